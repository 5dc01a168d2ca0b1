"""The smallest encoder with memory: what tests of memory put in a row.

Glossary of shapes: B rows, T tokens, M tokens of memory, D width.
"""

import contextlib
import dataclasses
import math
from typing import Any, NamedTuple
from unittest import mock

import keras
from keras import ops

from infoword_tf.encoders import ENCODERS, Encoded
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import project
from infoword_tf.layers.block import take
from infoword_tf.objectives import TABLE

NAME = 'remembering'
SLOPE = 0.1  # of the distance, in scores


class Memory(NamedTuple):
    """states [1, B, M, D], filled [B] int32: how many of the last are real."""

    states: Any
    filled: Any


class Remembering(keras.layers.Layer):
    """x + attention to what came before: embeddings, and those remembered."""

    def __init__(
        self,
        vocab_size,
        width,
        max_length=512,
        causal=False,
        rate=0.1,
        dtype=None,
        name='encoder',
    ):
        super().__init__(dtype=dtype, name=name)
        self.arguments = {
            'vocab_size': vocab_size,
            'width': width,
            'max_length': max_length,
            'causal': causal,
            'rate': rate,
        }
        self.width, self.causal, self.rate = width, causal, rate

    def build(self):
        size = self.arguments['vocab_size'], self.width
        self.words = self.add_weight(
            shape=size, name='word_embeddings', autocast=False
        )
        self.kernel = self.add_weight(
            shape=(self.width, 3 * self.width), name='kernel'
        )
        self.built = True

    def lookup(self, ids):
        return ops.take(self.words, ids, axis=0)

    def empty_memory(self, batch, length):
        return Memory(
            ops.zeros((1, batch, length, self.width), self.compute_dtype),
            ops.zeros((batch,), 'int32'),
        )

    def call(
        self,
        ids,
        positions=None,
        segment_ids=None,
        block_ids=None,
        places=None,
        key=None,
        all_layers=False,
        memory=None,
        keep=None,
    ):
        x = self.lookup(ids)
        length = ids.shape[1]
        if key is not None and self.rate:
            kept = dropout.keep_mask(key, tuple(x.shape), self.rate)
            x = ops.where(kept, x / (1 - self.rate), 0.0)
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
            kept = length if keep is None else keep
            states = ops.concatenate([old, x[:, :kept]], axis=1)[:, -size:]
            new = Memory(
                ops.stop_gradient(states)[None],
                ops.minimum(memory.filled + kept, size),
            )
        return Encoded(
            y if places is None else take(y, places),
            [x, y] if all_layers else None,
            new,
        )


@contextlib.contextmanager
def row(name='transformer_xl', **changes):
    """Inside, a row of the table has this encoder."""
    entry = dataclasses.replace(TABLE[name], encoders=(NAME,), **changes)
    with (
        mock.patch.dict(ENCODERS, {NAME: Remembering}),
        mock.patch.dict(TABLE, {name: entry}),
    ):
        yield
