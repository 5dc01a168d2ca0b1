"""Functions without graphs, for tests of what they compute.

Tracing and compiling a graph takes far longer than a tiny model does.
"""

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from infoword_tf.layers import dropout, fused

LANES = fused.LANES


@contextlib.contextmanager
def eagerly(expected: bool = True, lanes: int = 1) -> Iterator[None]:
    """Runs every `tf.function` as plain Python, within the context.

    Args:
        expected: whether it does; False: graphs, within such a context.
        lanes: runs of columns of fused operations, which are there for the
            compiler: operation by operation each takes as long as all.
    """
    before = tf.config.functions_run_eagerly()
    lanes = lanes if expected else LANES
    with warnings.catch_warnings(), mock.patch.object(fused, 'LANES', lanes):
        # That datasets stay graphs, which is as it should be.
        warnings.filterwarnings('ignore', 'Even though the `tf.config')
        tf.config.run_functions_eagerly(expected)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)


def new_key(*numbers: int) -> np.ndarray:
    """Returns `dropout.new_key` of integers, [2] uint32, by NumPy.

    For constants of modules: TensorFlow starts its threads at the first
    operation, and a process that has threads cannot be forked.
    """
    golden, (key, salt) = np.uint32(0x9E3779B9), np.uint32([0x8E5B, 0x1D37])

    def mix(x, salt):
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D) ^ salt
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
        return x ^ x >> np.uint32(16)

    with np.errstate(over='ignore'):
        for number in np.uint32(numbers):
            first = mix(number * golden + key, salt)
            key, salt = first, mix(first + golden, key ^ number)
    return np.uint32([key, salt])


def keys_at_once() -> None:
    """Makes the derivation of keys, and of bits, one operation each.

    The same functions, traced once: they are dozens of operations on two
    numbers, which to trace or to run one by one takes longer than a tiny model.
    """

    @functools.cache
    def traced(function: Any, size: int, *more: Any) -> Any:
        key = tf.TensorSpec([size], tf.uint32)
        with tf.init_scope():
            return tf.function(function, autograph=False).get_concrete_function(
                key, *more
            )

    def fold_in(key: Any, number: Any, whole: Any = dropout.fold_in) -> Any:
        if isinstance(number, int | np.integer):
            number = np.uint32(int(number) & 0xFFFFFFFF)
        number = tf.cast(number, tf.uint32)
        key = tf.convert_to_tensor(key)
        number_of = tf.TensorSpec([], tf.uint32)
        return traced(whole, key.shape[0], number_of)(key, number)

    def random_bits(
        key: Any, shape: tuple[Any, ...], whole: Any = dropout.random_bits
    ) -> Any:
        key = tf.convert_to_tensor(key)
        if any(tf.is_symbolic_tensor(size) for size in shape):
            return whole(key, shape)  # a graph of any shape
        return traced(whole, key.shape[0], tuple(map(int, shape)))(key)

    dropout.fold_in, dropout.random_bits = fold_in, random_bits
