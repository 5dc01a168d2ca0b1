"""Rows that are to come, each as a toy: what a researcher writes, in full.

Through public names only. `added()` puts them into the tables.

Glossary of shapes: B sequences, P places, N = B P pairs, M candidates, D width,
L layers, V vocabulary.
"""

import contextlib
from unittest import mock

import numpy as np
from keras import ops

from infoword_tf import objectives, views
from infoword_tf.layers import dropout
from infoword_tf.layers.pooling import unit
from infoword_tf.objectives import (
    Companion,
    Objective,
    Reads,
    Row,
    gather_pool,
    infonce,
)
from tests import zoo

OBJECTIVES = 'drawn,early,late,queue,every_layer,twice,taught'
WORDS = 'a text', 'what belongs to it', 'a toy', 'see the class'


def among_others(batch, a, b, scale=10.0):
    """Eq. 1 of rows [B, D] with rows [B, D], others of the global batch."""
    a, b = unit(ops.cast(a, 'float32')), unit(ops.cast(b, 'float32'))
    sequences = next(iter(batch.views.values())).sequences
    everyone = batch.replicas.gather(b)  # [M, D]
    own = ops.equal(batch.replicas.gather(sequences), sequences[:, None])
    return infonce.contrast(
        scale * ops.sum(a * b, axis=1),
        scale * ops.matmul(a, ops.transpose(everyone)),
        ops.cast(ops.logical_not(own), 'float32'),
        own,
        ops.ones_like(a[:, 0]),
        drop_identical=False,
    )


# ------------------------------------- (a) negatives drawn from unigram^0.75


class Drawn(Objective):
    """A masked piece among pieces that are drawn from another q."""

    NEGATIVES = 32

    def q(self, statistics):
        weights = (statistics.training + 1e-6) ** 0.75
        return weights / weights.sum()

    def candidates(self, batch):
        """[M] ids, the same on all replicas."""
        u = dropout.uniform(batch.key, (self.NEGATIVES,))
        edges = np.cumsum(self.q(batch.statistics)).astype('float32')
        ids = ops.searchsorted(ops.convert_to_tensor(edges), u, side='right')
        return ops.minimum(ops.cast(ids, 'int32'), len(edges) - 1)

    def score(self, batch, candidates):
        view = batch.views['masked']
        targets = ops.reshape(view.targets[self.row], (-1,))
        a = ops.cast(batch.states('masked'), 'float32')
        a = ops.reshape(a, (-1, a.shape[-1]))  # [N, D]
        identical = ops.equal(candidates[None, :], targets[:, None])
        return infonce.contrast(
            ops.sum(a * self.encoder.lookup(targets), axis=1),
            ops.matmul(a, ops.transpose(self.encoder.lookup(candidates))),
            ops.ones_like(identical, 'float32'),
            identical,
            ops.reshape(view.weights[self.row], (-1,)),
            batch.statistics.marginal(
                self.row,
                targets,
                self.q(batch.statistics),
                candidates[None, :],
            ),
            drop_identical=False,
        )


# --------------------------- (b) rows that draw differently from one source


def opening(windows, begins, rows, specials):
    """[CLS] six pieces [SEP] from a drawn place on; b is the first of them."""
    b = len(windows.ids)
    few = np.take_along_axis(
        windows.ids, begins[:, None] + np.arange(6), axis=1
    )
    one = np.ones((b, 1), np.int32)
    return views.View(
        ids=np.hstack([specials.cls_id * one, few, specials.sep_id * one]),
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, one),
        targets=dict.fromkeys(rows, few[:, :1].astype(np.int32)),
        weights=dict.fromkeys(rows, one.astype(np.float32)),
    )


def place(name, low, high):
    """A draw of its own: where to begin."""

    def draw(windows, random):
        return random.integers(low, high, len(windows.ids))

    return lambda settings: views.Draw(name, draw)


class FirstWord(Objective):
    """A word from its place, among first words of other texts."""

    def candidates(self, batch):
        view = batch.views[self.row]
        return gather_pool(view, self.row, batch.replicas, batch.limit)

    def score(self, batch, candidates):
        view = batch.views[self.row]
        a = ops.cast(batch.states(self.row)[:, 0], 'float32')
        targets = view.targets[self.row][:, 0]
        return infonce.contrast(
            ops.sum(a * self.encoder.lookup(targets), axis=1),
            ops.matmul(a, ops.transpose(self.encoder.lookup(candidates.ids))),
            candidates.others(view.sequences),
            ops.equal(candidates.ids[None, :], targets[:, None]),
            view.weights[self.row][:, 0],
            drop_identical=True,
        )


# --------------------------------- (c) a momentum encoder, a queue of 64 keys


class Queue(Objective):
    """Which key is this text's own, among those of the texts before it."""

    SIZE, SCALE = 64, 10.0

    def empty_state(self):
        shape = self.SIZE, self.encoder.width
        return {'keys': ops.zeros(shape), 'filled': ops.zeros((), 'int32')}

    def vector(self, batch, encoder):
        states = batch.states('masked', encoder)[:, 0]
        return unit(ops.cast(states, 'float32'))  # [B, D]

    def score(self, batch, candidates):
        keys, filled = batch.state['keys'], batch.state['filled']
        a, b = (self.vector(batch, x) for x in ('encoder', 'momentum'))
        scores = self.SCALE * ops.matmul(a, ops.transpose(keys))
        there = ops.arange(self.SIZE, dtype='int32') >= self.SIZE - filled
        return infonce.contrast(
            self.SCALE * ops.sum(a * b, axis=1),
            scores,
            ops.zeros_like(scores) + ops.cast(there, 'float32'),
            ops.zeros_like(scores, 'bool'),
            ops.ones_like(a[:, 0]),
            drop_identical=False,
        )

    def remember(self, batch):
        new = batch.replicas.gather(self.vector(batch, 'momentum'))
        keys = ops.concatenate([batch.state['keys'], new])[-self.SIZE :]
        filled = batch.state['filled'] + new.shape[0]
        return {'keys': keys, 'filled': ops.minimum(filled, self.SIZE)}


# ----------------------------------------------- (d) [CLS] of every layer


class EveryLayer(Objective):
    """The last layer's [CLS] against the mean over all layers."""

    def score(self, batch, candidates):
        layers = [x[:, 0] for x in batch.layers('masked')]
        return among_others(batch, layers[-1], sum(layers) / len(layers))


# ------------------------------------- (e) two passes, with other dropout


class Twice(Objective):
    """Two passes of one text are one text (SimCSE)."""

    def score(self, batch, candidates):
        a, b = (batch.states('masked', turn=i)[:, 0] for i in range(2))
        return among_others(batch, a, b)


# --------------------------------------------- (f) a second, frozen encoder


class Taught(Objective):
    """[CLS] is to tell texts apart as another encoder's does."""

    def score(self, batch, candidates):
        a, b = (
            batch.states('masked', name)[:, 0] for name in ('encoder', 'guide')
        )
        return among_others(batch, a, b)


ROWS = {
    'drawn': Row(Drawn, *WORDS, views={'masked': Reads('pieces')}),
    'early': Row(
        FirstWord, *WORDS, views={'early': Reads('pieces')},
        heldout_candidates=16,
    ),  # fmt: skip
    'late': Row(
        FirstWord, *WORDS, views={'late': Reads('pieces')},
        heldout_candidates=16,
    ),  # fmt: skip
    'queue': Row(
        Queue,
        *WORDS,
        views={'masked': Reads('start', encoders=('encoder', 'momentum'))},
        companions={'momentum': Companion(momentum=0.9)},
    ),
    'every_layer': Row(
        EveryLayer, *WORDS, views={'masked': Reads('start', layers=True)}
    ),
    'twice': Row(Twice, *WORDS, views={'masked': Reads('start', passes=2)}),
    'taught': Row(
        Taught,
        *WORDS,
        views={'masked': Reads('start', encoders=('encoder', 'guide'))},
        companions={'guide': Companion()},
    ),
}
VIEWS = {
    'early': views.ViewSpec(opening, draw=place('early', 0, 4)),
    'late': views.ViewSpec(opening, draw=place('late', 8, 16)),
}
CASES = {
    **{f'toy_{row}': zoo.Case(row) for row in ROWS},
    'toys': zoo.Case(OBJECTIVES),
}


@contextlib.contextmanager
def added():
    """Inside, the tables and the list of zoo.py have the toys too."""
    with (
        mock.patch.dict(objectives.TABLE, ROWS),
        mock.patch.dict(views.VIEWS, VIEWS),
        mock.patch.dict(zoo.CASES, CASES),
    ):
        yield
