"""Rows that are to come, each as a toy: what a researcher writes, in full.

Through public names only. `added()` puts them into the tables.
"""

from unittest import mock

import numpy as np
from keras import ops

from infoword_tf import files, objectives
from infoword_tf.encoders import Inputs
from infoword_tf.layers.block import Block, take
from infoword_tf.layers.pooling import unit
from infoword_tf.objectives import Auxiliary, Objective, Reads, Row, infonce
from infoword_tf.settings import setting

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


# --------------------------------------------- (a) a second, frozen encoder


class Taught(Objective):
    """[CLS] is to tell texts apart as another encoder's does."""

    def score(self, batch, candidates):
        a, b = (
            batch.states('masked', name)[:, 0] for name in ('encoder', 'guide')
        )
        return among_others(batch, a, b)


# ---------- (b) a generator of another workdir; a third encoder reads its words


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


# ------- (c) a network of the row's own that begins elsewhere, frozen by a flag


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


def added():
    """Returns what puts the toys into the table while it is entered."""
    return mock.patch.dict(objectives.TABLE, {**ROWS, **LATER})
