"""The one list that guarantees run over: every row and sum, tiny.

A test of something that is promised for every row loops over `CASES`.
test_zoo.py fails when the table or the encoders have one that is not here.

Glossary of shapes: B sequences, L tokens drawn, T = L + 2, V vocabulary.
"""

import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import sampling, views
from infoword_tf.data.batches import Batches
from infoword_tf.data.pairs import NextPairSource, PairSource
from infoword_tf.data.store import SENTENCE_START, SEPARATOR, WORD_START, Store
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, parse
from infoword_tf.plan import make_plan

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
    'transformer_xl': {
        'vocab_size': V,
        'layers': 2,
        'width': 16,
        'heads': 2,
        'max_length': POSITIONS,
    },
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
    'nsp': Case('nsp'),
    'nsp_nce': Case('nsp_nce', masking='words'),
    'bert': Case('bert'),
    'mlm_nsp_nce': Case('mlm:1,nsp_nce:0.5'),
    'infoword_nsp': Case('bert_nce:1,dim:0.8,nsp:1', masking='spans'),
    'ict': Case('ict'),
    'ict_lookup': Case('ict', encoder='lookup'),
    'transformer_xl': Case('transformer_xl', encoder='transformer_xl'),
    'plm': Case('plm', encoder='transformer_xl'),
    'plm_strict': Case(
        'plm', encoder='transformer_xl', settings={'order': 'strict', 'k': 4}
    ),
    'infoword_ict': Case('bert_nce:1,dim:0.8,ict:1', masking='spans'),
}


def config(
    name: str, rate: float = 0.1, precision: str = 'float32'
) -> dict[str, Any]:
    """What config.json would hold for a case."""
    case = CASES[name]
    arguments = {**ENCODERS[case.encoder], 'rate': rate}
    for row in case.rows:
        arguments.update(TABLE[row].arguments)
    return {
        'encoder': {'name': case.encoder, 'arguments': arguments},
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


def make_store(seed: int = 0, documents: int = 60) -> Store:
    """Random documents of one to six sentences, of 1 to 25 pieces each."""
    random = np.random.default_rng([seed, 1])
    ids, flags, begins = [], [], [0]
    for _ in range(documents):
        for size in random.integers(1, 26, random.integers(1, 7)):
            ids += random.choice(V, size, p=frequencies()).tolist()
            begin = [WORD_START | SENTENCE_START]
            flags += begin + [
                WORD_START * int(x < 0.7) for x in random.random(size - 1)
            ]
        ids.append(SEP)
        flags.append(WORD_START | SEPARATOR)
        begins.append(len(ids))
    ids = np.array(ids, np.uint16)
    return Store(
        ids,
        np.array(flags, np.uint8),
        np.array(begins),
        np.bincount(ids, minlength=V),
        pathlib.Path('nowhere'),
    )


def make_pairs(batch: int = 8, seed: int = 0) -> sampling.Pairs:
    """Pairs of random documents, some of them not consecutive."""
    return PairSource(make_store(seed), T - 2, batch, seed).batch(0)


def make_next_pairs(batch: int = 8, seed: int = 0) -> sampling.Pairs:
    """Pairs of random documents, each with three rivals."""
    return NextPairSource(make_store(seed), T - 2, batch, seed).batch(0)


def make_streams(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    advance: int | None = None,
    both_directions: bool = False,
) -> sampling.Streams:
    """Random text [B, n] that a row of streams reads in some way."""
    del advance
    random = np.random.default_rng(seed)
    shape = (batch, length + 1)
    ids = random.choice(V, size=shape, p=frequencies()).astype(np.int32)
    word_starts = random.random(shape) < 0.7
    separators = np.zeros(shape, bool)
    separators[0, 5] = True
    word_starts[0, 5:7] = True
    ids[separators] = SEP
    directions = np.ones(batch, np.int32)
    if both_directions:
        directions[1::2] = -1
    return sampling.Streams(
        ids[:, :-1],
        word_starts[:, :-1],
        separators[:, :-1],
        directions,
        ids[:, -1],
    )


class Text(NamedTuple):
    """A source that has one batch."""

    text: Any

    def batch(self, step: int) -> Any:
        """The same at every step."""
        return self.text


def views_of(
    rows: Iterable[str],
    masking: str,
    batch: int = 8,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, views.View]:
    """The views that rows share, NumPy."""
    make = {
        'windows': make_windows,
        'documents': make_documents,
        'pairs': make_pairs,
        'next_pairs': make_next_pairs,
        'streams': make_streams,
    }
    given = {
        row: {
            name: (settings or {}).get(name, default)
            for name, default in TABLE[row].settings.items()
        }
        for row in rows
    }
    plan = make_plan(given, T, masking)
    sources = {}
    for name, how in plan.reading.items():
        how = how if name == 'streams' else {}
        sources[name] = Text(make[name](batch, seed, **how))
    return Batches(
        sources, plan, SPECIALS, seed
    ).views(0)


def make_views(
    name: str, batch: int = 8, seed: int = 0
) -> dict[str, views.View]:
    """The views of a case's rows."""
    case = CASES[name]
    return views_of(case.rows, case.masking, batch, seed, case.settings)
