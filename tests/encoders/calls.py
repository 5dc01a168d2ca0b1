"""Helpers that make, call and compare encoders."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infoword_tf.encoders import ENCODERS, Encoded, Encoder, Inputs, Memory
from tests import eager

V = 60
KEY = eager.new_key(21)
# Tiny, of every encoder.
SIZES: dict[str, dict[str, Any]] = {
    'transformer': {'layers': 2, 'width': 16, 'heads': 2, 'max_length': 32},
    'relative': {
        'layers': 2, 'width': 16, 'heads': 2, 'inner_width': 24,
        'max_length': 32, 'segments': 2,
    },
    'modern': {'layers': 4, 'width': 16, 'heads': 2, 'local_window': 4},
    'disentangled': {
        'layers': 2, 'width': 16, 'heads': 2, 'buckets': 6, 'max_distance': 9,
    },
    'lookup': {'width': 16},
    'rnn': {'layers': 2, 'width': 8},
    'elmo': {'layers': 2, 'width': 8, 'inner_width': 6, 'filters': [2, 3, 4]},
}  # fmt: skip
# Of their weights, large enough to leave the linear range.
DEVIATIONS = {'lookup': 1.0, 'rnn': 0.7, 'elmo': 0.5}


def make(
    kind: str, rate: float = 0.0, dtype: str = 'float32', **sizes: Any
) -> Encoder:
    """Makes an encoder with random weights; `sizes` replace SIZES."""
    encoder = ENCODERS[kind](
        **{'vocab_size': V, **SIZES[kind], **sizes}, rate=rate, dtype=dtype
    )
    encoder.build()
    random = np.random.default_rng(12)
    for weight in encoder.weights:
        drawn = DEVIATIONS.get(kind, 0.3) * random.standard_normal(weight.shape)
        weight.assign(drawn + weight.path.endswith('gamma'))
    return encoder


def count(kind: str, **sizes: Any) -> int:
    """Counts the numbers in an encoder's weights, of which none is made."""
    with keras.StatelessScope(initialize_variables=False):
        encoder = ENCODERS[kind](**sizes)
        encoder.build()
    return sum(math.prod(weight.shape) for weight in encoder.weights)


def make_memory(
    encoder: Encoder, filled: Sequence[int], length: int = 3
) -> Memory:
    """Draws a memory of some tokens, of which so many are filled."""
    shape = encoder.depth, len(filled), length, encoder.width
    states = np.random.default_rng(13).standard_normal(shape)
    return Memory(
        tf.cast(states, encoder.compute_dtype), tf.constant(filled, tf.int32)
    )


def make_ids(*shape: int, seed: int = 0) -> np.ndarray:
    """Draws ids without special tokens."""
    random = np.random.default_rng(seed)
    return random.integers(5, V, size=shape).astype(np.int32)


def make_order(b: int, t: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Draws ranks and sees: half of the tokens context, then targets."""
    random = np.random.default_rng(seed)
    order = random.permuted(np.tile(np.arange(t), (b, 1)), axis=1)
    kind = random.integers(4, size=(b, t))  # 0, 1: plain; 2: target; 3: [SEP]
    ranks = np.where(kind < 2, -1, order).astype(np.int32)
    return ranks, (ranks + (kind != 2)).astype(np.int32)


def run(encoder: Encoder, ids: Any, **arguments: Any) -> Encoded:
    """Calls an encoder with fields of `Inputs` and other arguments."""
    fields = set(Inputs._fields) & set(arguments)
    inputs = Inputs(ids, **{name: arguments.pop(name) for name in fields})
    return encoder(inputs, **arguments)


def near(
    actual: Any, expected: Any, atol: float = 1e-5, message: str = ''
) -> None:
    """Asserts that numbers are equal up to rounding."""
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=atol, err_msg=message
    )


def moved(states_of: Any, ids: np.ndarray) -> np.ndarray:
    """Returns how far changing token i of [1, T] moves state j: [T, T].

    Args:
        states_of: takes ids, returns states [1, T, D].
    """
    before = np.asarray(states_of(ids))
    rows = []
    for t in range(ids.shape[1]):
        changed = ids.copy()
        changed[0, t] = 5 + (changed[0, t] - 4) % (V - 5)
        after = np.asarray(states_of(changed))
        rows.append(np.abs(after - before)[0].max(axis=-1))
    return np.array(rows)
