"""Views: the inputs of the model, made of texts, for a and b of each row."""

from infoword_tf.views.cloze import PASSAGE, SENTENCE
from infoword_tf.views.examples import EXAMPLES
from infoword_tf.views.masked import JOINED, MASKED
from infoword_tf.views.negatives import NEGATIVES
from infoword_tf.views.ngrams import NGRAMS
from infoword_tf.views.overlap import OVERLAP
from infoword_tf.views.pair_candidates import PAIR_CANDIDATES
from infoword_tf.views.permuted import PERMUTED
from infoword_tf.views.sentences import SENTENCE_KEYS, SENTENCES
from infoword_tf.views.streams import NEIGHBOURS, STREAMED
from infoword_tf.views.translations import CROSSED, CROSSED_KEYS, TRANSLATED
from infoword_tf.views.view import (
    Draw,
    Reads,
    Specials,
    View,
    ViewSpec,
    ViewTable,
    flatten,
    generator,
    unflatten,
)
from infoword_tf.views.words import WORDS

VIEWS = ViewTable({
    'masked': MASKED,
    'joined': JOINED,
    'ngrams': NGRAMS,
    'negatives': NEGATIVES,
    'overlap': OVERLAP,
    'passage': PASSAGE,
    'sentence': SENTENCE,
    'streamed': STREAMED,
    'neighbours': NEIGHBOURS,
    'permuted': PERMUTED,
    'words': WORDS,
    'examples': EXAMPLES,
    'sentences': SENTENCES,
    'sentence_keys': SENTENCE_KEYS,
    'pair_candidates': PAIR_CANDIDATES,
    'translated': TRANSLATED,
    'crossed': CROSSED,
    'crossed_keys': CROSSED_KEYS,
})


__all__ = [
    'VIEWS',
    'Draw',
    'Reads',
    'Specials',
    'View',
    'ViewSpec',
    'ViewTable',
    'flatten',
    'generator',
    'unflatten',
]
