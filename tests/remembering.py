"""The smallest encoder with memory, and a row that has it, for tests of memory.

The memory has K - T tokens.
"""

import contextlib
import dataclasses
import math
from typing import Any, NamedTuple
from unittest import mock

from keras import ops

from infoword_tf.encoders import ENCODERS, Encoded, Encoder
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import project
from infoword_tf.layers.block import take
from infoword_tf.objectives import TABLE
from infoword_tf.settings import setting
from infoword_tf.views import VIEWS

NAME = 'remembering'
SLOPE = 0.1  # of the distance, in scores


class Memory(NamedTuple):
    """States [1, B, K - T, D]; filled [B] int32: how many are real."""

    states: Any
    filled: Any


class Remembering(Encoder):
    """x + attention to the embeddings of this text and of the memory."""

    abilities = {
        NAME: {}, 'memory': {}, 'both_sides': {'causal': False},
        'causal': {'causal': True},
    }  # fmt: skip
    causal: bool = setting(False, 'Whether tokens see no later ones.')

    def build(self):
        self.make_embedding_table()
        self.kernel = self.add_weight(
            shape=(self.width, 3 * self.width), name='kernel'
        )
        self.built = True

    def empty_state(self, batch, length):
        return Memory(
            ops.zeros((1, batch, length, self.width), self.compute_dtype),
            ops.zeros((batch,), 'int32'),
        )

    def call(
        self,
        inputs,
        places=None,
        key=None,
        all_layers=False,
        state=None,
        advance=None,
    ):
        self.check_inputs(inputs)
        ids, memory = inputs.ids, state
        x = self.lookup(ids)
        length = ids.shape[1]
        if key is not None and self.rate:
            mask = dropout.keep_mask(key, tuple(x.shape), self.rate)
            x = ops.where(mask, x / (1 - self.rate), 0.0)
        x = ops.cast(x, self.compute_dtype)
        known, size = x, 0
        if memory is not None:
            size = memory.states.shape[2]
            old = ops.stop_gradient(memory.states[0])
            known = ops.concatenate([old, x], axis=1)
        joined = project(known, self.kernel)
        q, k, v = ops.split(joined, 3, axis=-1)
        scores = ops.matmul(q[:, size:], ops.swapaxes(k, 1, 2))
        scores = ops.cast(scores, 'float32') / math.sqrt(self.width)
        place = ops.arange(size + length) - size
        away = place[size:, None] - place[None, :]
        scores = scores - SLOPE * ops.cast(ops.abs(away), 'float32')
        allowed = ops.ones(scores.shape, 'bool')
        if self.causal:
            allowed = ops.logical_and(allowed, (away >= 0)[None])
        if memory is not None:
            real = place[None, :] >= -memory.filled[:, None]
            allowed = ops.logical_and(allowed, real[:, None, :])
        weights = ops.softmax(ops.where(allowed, scores, -1e30))
        y = x + ops.matmul(ops.cast(weights, x.dtype), v)
        new = None
        if memory is not None:
            count = length if advance is None else advance
            states = ops.concatenate([old, x[:, :count]], axis=1)[:, -size:]
            new = Memory(
                ops.stop_gradient(states)[None],
                ops.minimum(memory.filled + count, size),
            )
        return Encoded(
            y if places is None else take(y, places),
            [x, y] if all_layers else (),
            new,
        )


@contextlib.contextmanager
def row(name='transformer_xl', view=None, **changes):
    """Gives a row of the table this encoder, in a `with` statement.

    Args:
        name: of the row.
        view: changes of the `ViewSpec` of its view, by field.
        changes: of the row's other fields.
    """
    ways = {'causal', 'both_sides'} & {*TABLE[name].needs}
    changes = {'needs': (*ways, NAME), **changes}
    entry = dataclasses.replace(TABLE[name], **changes)
    (read, *_) = TABLE[name].views
    other = VIEWS[read]._replace(**(view or {}))
    with (
        mock.patch.dict(ENCODERS, {NAME: Remembering}),
        mock.patch.dict(TABLE, {name: entry}),
        mock.patch.dict(VIEWS, {read: other}),
    ):
        yield
