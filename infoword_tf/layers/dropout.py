"""Dropout by an explicit key, the same bits on every backend.

A key is [2] uint32. All randomness inside a model comes from keys, which are
arguments, never state: replicas differ by their number, a recomputed layer
draws the same mask again, and a resumed run goes on bit for bit.

Bits are a hash of (key, site, index in the array) and nothing else. A mask is
not stored for the backward pass but computed again, in the fused loop that uses
it (see `dropped`).

A key of [4] (`of_rows`) also says which sequences of a batch an array holds:
bits are then those of the same sequences in the whole batch, so that
microbatches have the masks of the batch.
"""

import math
from typing import Any

import numpy as np

from infoword_tf.layers.fused import (
    compiled,
    to_float,
    traced_once,
    with_gradient,
)
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

# Odd constants of two well-known mixers: the golden ratio (Weyl sequences)
# and the 32-bit finaliser with the lowest known bias.
_GOLDEN = np.uint32(0x9E3779B9)
_MIX_1 = np.uint32(0x7FEB352D)
_MIX_2 = np.uint32(0x846CA68B)


def _shift(x: Tensor, bits: int) -> Tensor:
    return ops.bitwise_xor(x, ops.right_shift(x, np.uint32(bits)))


def _mix(x: Tensor, salt: Tensor) -> Tensor:
    """Applies a keyed bijection of uint32: all bits affect all bits."""
    x = ops.multiply(_shift(x, 16), _MIX_1)
    x = ops.bitwise_xor(x, salt)
    x = ops.multiply(_shift(x, 15), _MIX_2)
    return _shift(x, 16)


def mixed(x: Tensor, salt: Tensor) -> Tensor:
    """Hashes uint32 [...] with a salt of the same shape."""
    return _mix(ops.multiply(x, _GOLDEN), salt)


def fold_in(key: Tensor, number: Tensor | int) -> Tensor:
    """Derives the key of a numbered step, view, replica or site.

    Args:
        key: [2] uint32, or [4] of some sequences (`of_rows`).
        number: integer scalar, of which the low 32 bits count.

    Returns:
        The shape of `key`.
    """
    if isinstance(number, int | np.integer):
        number = np.uint32(int(number) & 0xFFFFFFFF)
    return _folded(ops.convert_to_tensor(key), ops.cast(number, 'uint32'))


@traced_once
def _folded(key, number):
    key, salt, *sequences = ops.unstack(key)
    first = _mix(ops.add(ops.multiply(number, _GOLDEN), key), salt)
    second = _mix(ops.add(first, _GOLDEN), ops.bitwise_xor(key, number))
    return ops.stack([first, second, *sequences])


def keys_of(key: Tensor | None, count: int) -> list[Any]:
    """Derives the keys of the sites 0, 1, ... of a layer; of None each None."""
    return [None if key is None else fold_in(key, i) for i in range(count)]


def of_rows(key: Tensor, begin: Tensor | int, count: int) -> Tensor:
    """Returns the key of `count` sequences of a batch: [4] uint32.

    Args:
        key: [2] uint32, of the whole batch.
        begin: number of the first sequence.
        count: number of sequences, a divisor of the first axis of every array
            that the key is used for.
    """
    sequences = [ops.cast(n, 'uint32') for n in (begin, count)]
    return ops.concatenate([key, ops.stack(sequences)])


def of_all(key: Tensor | None) -> Tensor | None:
    """Returns the key of an array that all sequences share: [2] uint32."""
    return None if key is None else key[:2]


def new_key(*numbers: Tensor | int) -> Tensor:
    """Returns the key of integers, for example (seed, step, pass, replica)."""
    key = ops.convert_to_tensor(np.array([0x8E5B, 0x1D37], 'uint32'))
    for number in numbers:
        key = fold_in(key, number)
    return key


def random_bits(key: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Draws independent uniform uint32.

    Args:
        key: [2] uint32, or [4] of some sequences (`of_rows`).
        shape: sizes of below 2^31 values in all; dimensions that are not known
            beforehand are tensors, as of `ops.shape`.
    """
    size = math.prod(shape)
    indices = ops.reshape(
        ops.cast(ops.arange(size, dtype='int32'), 'uint32'), shape
    )
    key, salt, *sequences = ops.unstack(key)
    if sequences:
        begin, count = sequences
        indices = indices + begin * ops.floor_divide(
            ops.cast(size, 'uint32'), count
        )
    return _mix(ops.add(ops.multiply(indices, _GOLDEN), key), salt)


def uniform(key: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Draws independent uniform float32 in [0, 1), multiples of 2^-24."""
    bits = ops.right_shift(random_bits(key, shape), np.uint32(8))
    return ops.cast(bits, 'float32') * np.float32(2.0**-24)


def keep_mask(key: Tensor, shape: tuple[Any, ...], rate: float) -> Tensor:
    """Draws a mask of a shape: True with probability 1 - rate, to 2^-32."""
    threshold = np.uint32(min(round(rate * 2**32), 2**32 - 1))
    return ops.greater_equal(random_bits(key, shape), threshold)


def dropped(x: Tensor, key: Tensor, rate: float) -> Tensor:
    """Zeroes a share `rate` of x [...] float32, and scales the rest up.

    For use inside a fused operation, where it also maps the gradient.
    """
    if not rate:
        return x
    keep = keep_mask(key, ops.shape(x), rate)
    return ops.where(keep, x * (1.0 / (1.0 - rate)), 0.0)


@compiled
def _drop_alone(x, key, *, rate):
    return ops.cast(dropped(to_float(x), key, rate), x.dtype)


def drop(x: Tensor, *, key: Tensor | None = None, rate: float = 0.0) -> Tensor:
    """Applies dropout to x [..., D] of any dtype; a fused operation."""
    if key is None or not rate:
        return x

    def alone(x):
        return _drop_alone(x, key, rate=rate)

    return with_gradient(lambda x: (alone(x), alone), x)
