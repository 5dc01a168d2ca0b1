"""The one list that guarantees run over: every row and sum, tiny.

A test of something that is promised for every row loops over `CASES`.
test_zoo.py fails when the table or the encoders have one that is not here.

Glossary of shapes: B sequences, L tokens drawn, T = L + 2, V vocabulary.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import sampling, views
from infoword_tf.data.batches import Batches, source_names
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, parse

# T is long enough for two n-grams in many sequences.
V, T, POSITIONS = 60, 48, 64
UNK, CLS, SEP, MASK, FIRST = 1, 2, 3, 4, 5
SPECIALS = views.Specials(CLS, SEP, MASK, V)

ENCODERS: dict[str, dict[str, Any]] = {
    'transformer': {
        'vocab_size': V,
        'layers': 2,
        'width': 16,
        'heads': 2,
        'max_length': POSITIONS,
    },
    'lookup': {'vocab_size': V, 'width': 16, 'max_length': POSITIONS},
}


class Case(NamedTuple):
    """One way to run a row or a sum; settings go to the rows that have them."""

    objectives: str
    encoder: str = 'transformer'
    masking: str = 'tokens'
    settings: dict[str, Any] = {}

    @property
    def rows(self) -> dict[str, float]:
        """Weight of each row."""
        return parse(self.objectives)

    def settings_of(self, row: str) -> dict[str, Any]:
        """All settings of a row."""
        return {
            name: self.settings.get(name, default)
            for name, default in TABLE[row].settings.items()
        }


CASES: dict[str, Case] = {
    'mlm': Case('mlm'),
    'mlm_transform': Case(
        'mlm', masking='words', settings={'transform': True}
    ),
    'bert_nce': Case('bert_nce', masking='spans'),
    'bert_nce_drop_hits': Case(
        'bert_nce', masking='spans', settings={'drop_hits': True}
    ),
    'dim': Case('dim', masking='spans'),
    'dim_scaled': Case('dim', masking='spans', settings={'critic': 'scaled'}),
    'dim_cosine': Case('dim', masking='spans', settings={'critic': 'cosine'}),
    'infoword': Case('infoword', masking='spans'),
    'ict': Case('ict'),
    'ict_lookup': Case('ict', encoder='lookup'),
    'infoword_ict': Case('bert_nce:1,dim:0.8,ict:1', masking='spans'),
}


def config(
    name: str, rate: float = 0.1, precision: str = 'float32'
) -> dict[str, Any]:
    """What config.json would hold for a case."""
    case = CASES[name]
    return {
        'encoder': {
            'name': case.encoder,
            'arguments': {**ENCODERS[case.encoder], 'rate': rate},
        },
        'rows': {
            row: {'weight': weight, 'settings': case.settings_of(row)}
            for row, weight in case.rows.items()
        },
        'precision': precision,
    }


def make_model(
    name: str, rate: float = 0.1, precision: str = 'float32', seed: int = 0
) -> Model:
    """The model of a case, all weights drawn: norms and biases too.

    Larger than a fresh model's, so that softmax and GELU leave the range in
    which they are all but linear.
    """
    model = Model(config(name, rate, precision), SPECIALS)
    random = np.random.default_rng(seed)
    for path, variable in model.variables.items():
        drawn = 0.3 * random.standard_normal(variable.shape)
        variable.assign(drawn + path.endswith('gamma'))
    return model


@functools.cache
def strategy(replicas: int) -> tf.distribute.Strategy:
    """One device, or two replicas on two logical CPUs.

    One for the whole process: each strategy numbers its collectives from the
    same number on, and TensorFlow holds a number to the shape that it first
    had, so a second one may find that its sums "mismatch".
    """
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy('/cpu:0')
    return tf.distribute.MirroredStrategy(['/cpu:0', '/cpu:1'])


def frequencies() -> np.ndarray:
    """[V] float64, p(b) of `make_windows`: few pieces are most of the text."""
    p = np.zeros(V)
    p[UNK] = 1.0
    p[FIRST:] = 4.0 / np.arange(1, V - FIRST + 1)
    return p / p.sum()


def make_windows(batch: int = 8, seed: int = 0) -> sampling.Windows:
    """Random text [B, L]; the first row has the end of a document in it."""
    random = np.random.default_rng(seed)
    shape = (batch, T - 2)
    ids = random.choice(V, size=shape, p=frequencies()).astype(np.int32)
    word_starts = random.random(shape) < 0.7
    word_starts[:, 0] = True
    separators = np.zeros(shape, bool)
    separators[0, 5] = True
    word_starts[0, 5:7] = True
    return sampling.Windows(
        np.where(separators, np.int32(SEP), ids), word_starts, separators
    )


def make_documents(batch: int = 8, seed: int = 0) -> sampling.Documents:
    """Random documents of two to five sentences, some of them cut."""
    random = np.random.default_rng(seed)
    shape = (batch, T - 2)
    ids = random.choice(V, size=shape, p=frequencies()).astype(np.int32)
    lengths = random.integers(12, T - 1, batch).astype(np.int32)
    starts = np.zeros(shape, bool)
    starts[:, [0, 5]] = True
    starts[:, 10:] = random.random((batch, T - 12)) < 0.1
    starts &= np.arange(T - 2) < lengths[:, None]
    return sampling.Documents(ids, lengths, starts)


class Text(NamedTuple):
    """A source that has one batch."""

    text: Any

    def batch(self, step: int) -> Any:
        """The same at every step."""
        return self.text


def views_of(
    rows: Iterable[str], masking: str, batch: int = 8, seed: int = 0
) -> dict[str, views.View]:
    """The views that rows share, NumPy."""
    make = {'windows': make_windows, 'documents': make_documents}
    wanted = {row: TABLE[row].views for row in rows}
    sources = {
        name: Text(make[name](batch, seed)) for name in source_names(wanted)
    }
    return Batches(sources, wanted, masking, SPECIALS, seed).views(0)


def make_views(
    name: str, batch: int = 8, seed: int = 0
) -> dict[str, views.View]:
    """The views of a case's rows."""
    return views_of(CASES[name].rows, CASES[name].masking, batch, seed)
