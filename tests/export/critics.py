"""Workdirs of other critics than the cosine, for tests."""

from unittest import mock

from export import signatures
from infoword_tf.config import DenseConfig
from infoword_tf.critics.cross import CrossConfig
from infoword_tf.critics.late import LateConfig
from infoword_tf.critics.lexical import LexicalConfig
from tests.export import workdirs

LATE = LateConfig((DenseConfig(9, 'gelu'), DenseConfig(5, 'identity', False)),
                  expand=True, skip=('.', 'the'))  # fmt: skip
FIELDS = {
    'critics': {
        'late': LATE.written(),
        'lexical': LexicalConfig(transform=True).written(),
    },
    'query_length': 9, 'passage_length': 20,
    'prompts': {'query': 'is ', 'document': 'of '},
}  # fmt: skip
_OF_PAIRS = {'simcse.critic': 'cross', 'sentences.pairs': 3}
# By name: one with vectors of tokens and weights of the vocabulary; two that
# score pairs, by the head that BERT has in transformers, and without a layer.
KINDS = {
    'both': {'fields': FIELDS},
    'pairs': {
        'settings': _OF_PAIRS,
        'fields': {'critics': {'cross': CrossConfig('tanh').written()}},
    },
    'pairs_bare': {'settings': _OF_PAIRS},
}  # fmt: skip
TEXTS = [
    'the end of a value.', '', 'names refer to objects ' * 9, 'x', 'x',
    'a the. the', 'a name of the value',
]  # fmt: skip
# Of exports, all that are traced, which takes longest.
SIGNATURES = {
    'both': ('embed_tokens', 'embed_tokens_query', 'embed_sparse',
             'embed_sparse_query'),
    'pairs': ('score_pairs',),
}  # fmt: skip
workdir, _exported, loaded, served = workdirs.kinds(
    'critics',
    lambda kind: workdirs.write(
        workdirs.folder() / kind, ('simcse',), **KINDS[kind]
    ),
)


def few(*names):
    """Inside, whatever is exported has these signatures alone."""
    every = signatures._Graphs.functions

    def functions(graphs):
        return {name: every(graphs)[name] for name in names}

    return mock.patch.object(signatures._Graphs, 'functions', functions)


def exported(kind):
    """A version with the signatures of `SIGNATURES` alone; before `served`."""
    with few(*SIGNATURES[kind]):
        return _exported(kind)
