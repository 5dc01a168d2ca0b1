"""Tokenizers by name."""

from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.characterpairs import CharacterPairs
from infoword_tf.text.markedpairs import MarkedPairs
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.text.wholewords import WholeWords
from infoword_tf.text.wordpiece import WordPieceTokenizer

TOKENIZERS: dict[str, type[TextTokenizer]] = {
    'wordpiece': WordPieceTokenizer,
    'sentencepiece': SentencePiece,
    'bytes': BytePairs,
    'characters': CharacterPairs,
    'marked': MarkedPairs,
    'words': WholeWords,
    'numbers': Numbers,
}
