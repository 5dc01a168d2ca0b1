"""Rotary positions (Su et al. 2021, "RoFormer", §3.2.2).

Each query and key is rotated by its position, in E / 2 planes with a speed
each; their product then depends on the distance of the positions alone. Planes
are of the numbers i and i + E / 2.

A fused operation, see `fused.py`.

Glossary of shapes: E width of one head, n projections.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.layers import attention
from infoword_tf.layers.block import take
from infoword_tf.layers.fused import (
    compiled,
    plus_bias,
    read,
    sum_rows,
    to_float,
    with_gradient,
)
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor


@dataclasses.dataclass(frozen=True)
class Turn:
    """Rotations of tokens.

    Not a tuple, since Keras casts the tensors in a tuple to the compute dtype.

    Attributes:
        cos, sin: [B or 1, T, E / 2] float32.
    """

    cos: Tensor
    sin: Tensor

    def at(self, places: Tensor) -> 'Turn':
        """Takes the rotations at places [B, P] int32 of each sequence."""

        def at_places(x):
            if x.shape[0] == 1:
                return ops.take(x[0], places, axis=0)
            return take(x, places)

        return Turn(at_places(self.cos), at_places(self.sin))


def turns(
    positions: Tensor,
    width: int,
    theta: float,
    factor: float = 1.0,
    bounds: Sequence[float] | None = None,
) -> Turn:
    """Computes angles p / f theta^(-2 i / E) of positions p and planes i.

    Args:
        positions: [B or 1, T] int32.
        width: E, even.
        theta: with E it determines the slowest plane's wave length.
        factor: f, by which a model reads longer texts (Chen et al. 2023,
            "Extending Context Window ... via Positional Interpolation", §2.3).
        bounds: (low, high, T), which planes are slowed: those with `low` turns
            in T tokens or fewer, none with `high` or more, in between in part.
    """
    speeds = theta ** (-np.arange(0, width, 2) / width)
    if bounds:
        low, high, length = bounds
        share = (length * speeds / (2 * np.pi) - low) / (high - low)
        share = np.clip(share, 0, 1)
        speeds = speeds * ((1 - share) / factor + share)
    else:
        speeds = speeds / factor
    angles = to_float(positions)[..., None] * speeds.astype('float32')
    return Turn(ops.cos(angles), ops.sin(angles))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates [B, H, T, E] float32 by [B or 1, T, E / 2]; by -sin back."""
    cos, sin = cos[:, None], sin[:, None]
    first, second = ops.split(x, 2, axis=-1)
    halves = [first * cos - second * sin, second * cos + first * sin]
    return ops.concatenate(halves, axis=-1)


@compiled
def _split(x, bias, cos, sin, *, heads, count, turned):
    b, t, width = ops.shape(x)
    y = x if bias is None else ops.cast(plus_bias(x, bias), x.dtype)
    y = ops.reshape(y, (b, t, count, heads, width // (count * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(
        ops.cast(_turned(to_float(y[i]), cos, sin), x.dtype)
        if i < turned
        else y[i]
        for i in range(count)
    )


@compiled
def _all_turned(tensors, cos, sin):
    return tuple(
        ops.cast(_turned(to_float(x), cos, sin), x.dtype) for x in tensors
    )


def rotate(x: Tensor, turn: Turn, *, key: Tensor | None = None) -> Tensor:
    """Rotates heads [B, H, T, E] by position, see `split_turned`."""
    if key is None:
        return ops.cast(_turned(to_float(x), turn.cos, turn.sin), x.dtype)

    def function(x):
        def grad(upstream):
            return _all_turned((upstream,), turn.cos, -turn.sin)

        (result,) = _all_turned((x,), turn.cos, turn.sin)
        return result, grad

    return with_gradient(function, x)


def split_turned(
    x: Tensor,
    turn: Turn,
    *,
    bias: Tensor | None = None,
    heads: int,
    count: int,
    turned: int,
    key: Tensor | None = None,
    length: Any = None,
) -> tuple[Tensor, ...]:
    """Splits heads as `attention.split_heads`, and rotates.

    Args:
        x, bias, heads, count, key, length: as in `attention.split_heads`.
        turn: of the T tokens.
        turned: how many of the n projections are rotated; values are not.

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        projections = attention.split_heads(
            x, bias, heads=heads, count=count, length=length
        )
        return tuple(
            rotate(y, turn) if i < turned else y
            for i, y in enumerate(projections)
        )

    def function(x, bias):
        def grad(*upstream):
            back = _all_turned(upstream[:turned], turn.cos, -turn.sin)
            total = attention.joined_heads((*back, *upstream[turned:]))
            return total, None if bias is None else sum_rows(total)

        results = _split(
            x, bias, turn.cos, turn.sin,
            heads=heads, count=count, turned=turned,
        )  # fmt: skip
        return results, grad

    return with_gradient(function, x, read(bias))
