"""The sources by name."""

from infoword_tf.data.examples import ExampleSource
from infoword_tf.data.pairs import NextPairSource, PairSource
from infoword_tf.data.passages import DocumentSource
from infoword_tf.data.sentences import SentenceSource
from infoword_tf.data.source import Source, WindowSource
from infoword_tf.data.streams import StreamSource
from infoword_tf.data.text_pairs import TextPairSource
from infoword_tf.data.translations import TranslationSource
from infoword_tf.data.words import WordSource

SOURCES: dict[str, type[Source]] = {
    'windows': WindowSource,
    'documents': DocumentSource,
    'pairs': PairSource,
    'next_pairs': NextPairSource,
    'streams': StreamSource,
    'words': WordSource,
    'examples': ExampleSource,
    'sentences': SentenceSource,
    'text_pairs': TextPairSource,
    'translations': TranslationSource,
}
