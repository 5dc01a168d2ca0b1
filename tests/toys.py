"""Rows that are to come, each as a toy: what a researcher writes, in full.

Through public names only. `added()` puts them into the tables.
"""

import contextlib
from unittest import mock

import numpy as np
from keras import ops

from infoword_tf import files, objectives, views
from infoword_tf.encoders import Inputs
from infoword_tf.layers.block import Block, take
from infoword_tf.layers.pooling import unit
from infoword_tf.objectives import (
    Auxiliary,
    Objective,
    Reads,
    Ring,
    Row,
    gather_pool,
    gather_vectors,
    infonce,
    join_pools,
    text_ids,
)
from infoword_tf.settings import setting
from tests import zoo

WORDS = 'a text', 'what belongs to it', 'a toy', 'see the class'


def among_others(batch, a, b, scale=10.0):
    """Eq. 1 of rows [B, D] with rows [B, D], others of the global batch."""
    a, b = unit(ops.cast(a, 'float32')), unit(ops.cast(b, 'float32'))
    sequences = next(iter(batch.views.values())).sequences
    everyone = batch.replicas.gather(b)  # [M, D]
    inside = ops.equal(batch.replicas.gather(sequences), sequences[:, None])
    return infonce.contrast(
        infonce.Comparison(
            scale * ops.sum(a * b, axis=1),
            scale * ops.matmul(a, ops.transpose(everyone)),
            ops.cast(ops.logical_not(inside), 'float32'),
            inside,
        ),
        ops.ones_like(a[:, 0]),
        drop_identical=False,
    )


# --------------------------- (a) rows that draw differently from one source


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
            infonce.Comparison(
                ops.sum(a * self.encoder.lookup(targets), axis=1),
                ops.matmul(
                    a, ops.transpose(self.encoder.lookup(candidates.ids))
                ),
                candidates.others(view.sequences),
                ops.equal(candidates.ids[None, :], targets[:, None]),
            ),
            view.weights[self.row][:, 0],
            drop_identical=True,
        )


# ------- (b) two passes with other dropout, or a momentum encoder and a queue


class Twice(Objective):
    """Two passes of one text are one text (SimCSE); or a queue (MoCo)."""

    SCALE = 10.0
    queue: int = setting(64, 'Keys of the steps before; 0: none.', at_least=0)

    @property
    def ring(self):
        return Ring(self.queue, self.encoder.width)

    def empty_state(self):
        return self.ring.empty() if self.queue else {}

    def vectors(self, batch):
        other = ('momentum', 0) if self.queue else ('encoder', 1)
        return {
            'a': batch.states('masked')[:, 0],
            'b': batch.states('masked', *other)[:, 0],
        }

    def keys(self, batch):
        view = batch.views['masked']
        texts = text_ids(view.ids, ops.ones_like(view.ids, 'bool'))
        keys = unit(ops.cast(self.vectors_of(batch)['b'], 'float32'))
        return gather_vectors(batch, texts, view.sequences, keys)

    def candidates(self, batch):
        keys = self.keys(batch)
        if not self.queue:
            return keys
        return join_pools(keys, self.ring.pool(batch.state))

    def score(self, batch, candidates):
        a, b = (
            unit(ops.cast(self.vectors_of(batch)[x], 'float32')) for x in 'ab'
        )
        view = batch.views['masked']
        texts = text_ids(view.ids, ops.ones_like(view.ids, 'bool'))
        return infonce.contrast(
            infonce.Comparison(
                self.SCALE * ops.sum(a * b, axis=1),
                self.SCALE * ops.matmul(a, ops.transpose(candidates.states)),
                # What is queued is in the loss alone.
                candidates.others(
                    view.sequences, candidates.sequences[None] >= 0
                ),
                ops.equal(candidates.ids[None, :], texts[:, None]),
            ),
            ops.ones_like(a[:, 0]),
            drop_identical=True,
            trained=candidates.others(view.sequences),
        )

    def update_state(self, batch):
        keys = self.keys(batch)
        return self.ring.add(batch.state, keys.states, keys.ids)


# --------------------------------------------- (c) a second, frozen encoder


class Taught(Objective):
    """[CLS] is to tell texts apart as another encoder's does."""

    def score(self, batch, candidates):
        a, b = (
            batch.states('masked', name)[:, 0] for name in ('encoder', 'guide')
        )
        return among_others(batch, a, b)


# ---------- (d) a generator of another workdir; a third encoder reads its words


class Replaced(Objective):
    """Which words did a generator choose? The state of the text knows."""

    bounded = False
    generator: str = setting('', 'A workdir with the row mlm.')

    def build(self):
        self.kernel = self.make_weight(
            'kernel', self.encoder.width, 1, decayed=False, exported=False
        )
        self.built = True

    def score(self, batch, candidates):
        view = batch.views['masked']
        states = batch.states('masked', 'generator')
        scores = self.auxiliary_rows['generator']['mlm'].token_scores(
            states, batch.statistics.training
        )
        chosen = ops.cast(ops.argmax(scores, axis=-1), 'int32')  # [B, P]
        at = ops.one_hot(view.places[self.row], view.ids.shape[1])  # [B, P, T]
        masked = ops.sum(at, axis=1)
        words = ops.sum(at * ops.cast(chosen, at.dtype)[..., None], axis=1)
        ids = ops.where(masked > 0, ops.cast(words, 'int32'), view.ids)
        known = batch.encode(Inputs(view.ids), name='text').states[:, 0]
        read = batch.encode(
            Inputs(ids, first=known[:, None], first_places=0 * view.ids[:, :1]),
            'discriminator',
            name='chosen',
        ).states
        logits = ops.matmul(ops.cast(read, 'float32'), self.kernel)[..., 0]
        sign = 2.0 * masked - 1.0
        loss = ops.softplus(-sign * logits)
        flat = ops.reshape(loss, (-1,))
        return infonce.unbounded(flat, ops.ones_like(flat))


# ------- (e) a network of the row's own that begins elsewhere, frozen by a flag


class ExtraBlock(Objective):
    """Masked words from [h, states of the first layer], by one more block."""

    begin: str = setting('', 'A workdir whose block it begins with.')
    frozen: bool = setting(False, 'Leave the block as it begins.')

    def build(self):
        sizes = self.encoder.arguments
        self.block = Block(
            sizes['width'], sizes['heads'], sizes['inner_width'], 0.0,
            sizes['activation'], sizes['epsilon'],
            dtype=self.dtype_policy, name='block',
        )  # fmt: skip
        self.block.build()
        self.block.trainable = not self.frozen
        self.built = True

    def initial_weights(self):
        if not self.begin:
            return {}
        tensors = files.read_tensors(f'{self.begin}/weights.safetensors')
        mine = {w.path for w in self.block.weights}
        return {path: tensors[path] for path in mine}

    def score(self, batch, candidates):
        view = batch.views['masked']
        lower = batch.layers('masked')[0]  # [B, T, D]
        h = batch.states('masked')[:, :1]
        x = ops.concatenate([h, lower[:, 1:]], axis=1)
        x = take(self.block(x, key=batch.fused_key), view.places[self.row])
        targets = ops.reshape(view.targets[self.row], (-1,))
        x = ops.reshape(ops.cast(x, 'float32'), (-1, x.shape[-1]))
        table = ops.convert_to_tensor(self.encoder.embedding_table)
        scores = ops.matmul(x, ops.transpose(table))
        positive, rank = infonce.rank_classes(scores, targets)
        size = float(np.log(scores.shape[1]))
        log_sum = ops.logsumexp(scores, axis=1)
        return infonce.infonce(
            infonce.Candidates(positive, log_sum, size, rank),
            ops.reshape(view.weights[self.row], (-1,)),
        )


ROWS = {
    'early': Row(
        FirstWord, *WORDS, views={'early': Reads('tokens')},
        heldout_candidates=16,
    ),  # fmt: skip
    'late': Row(
        FirstWord, *WORDS, views={'late': Reads('tokens')},
        heldout_candidates=16,
    ),  # fmt: skip
    'twice': Row(
        Twice,
        *WORDS,
        views={
            'masked': lambda chosen: (
                Reads('start', encoders=('encoder', 'momentum'))
                if chosen['queue']
                else Reads('start', passes=2)
            )
        },
        auxiliaries=lambda chosen: (
            {'momentum': Auxiliary(momentum=0.9)} if chosen['queue'] else {}
        ),
    ),
    'taught': Row(
        Taught,
        *WORDS,
        views={'masked': Reads('start', encoders=('encoder', 'guide'))},
        auxiliaries={'guide': Auxiliary()},
    ),
}
# Rows that begin with another workdir.
LATER = {
    'replaced': Row(
        Replaced,
        *WORDS,
        views={'masked': Reads('tokens', encoders=('generator',))},
        auxiliaries=lambda chosen: {
            'generator': Auxiliary(workdir=chosen['generator'], saved=False),
            'discriminator': Auxiliary(frozen=False),
        },
    ),
    'auxiliary': Row(
        ExtraBlock,
        *WORDS,
        views={'masked': Reads('tokens', layers=True, everywhere=True)},
    ),
}
VIEWS = {
    'early': views.ViewSpec(opening, draw=place('early', 0, 4)),
    'late': views.ViewSpec(opening, draw=place('late', 8, 16)),
}
CASES = {
    **{f'toy_{row}': zoo.Case(row) for row in ROWS},
    'toy_passes': zoo.Case('twice', settings={'twice.queue': 0}),
}


@contextlib.contextmanager
def added():
    """Inside, the tables and the list of zoo.py have the toys too."""
    with (
        mock.patch.dict(objectives.TABLE, {**ROWS, **LATER}),
        mock.patch.dict(views.VIEWS, VIEWS),
        mock.patch.dict(zoo.CASES, CASES),
    ):
        yield
