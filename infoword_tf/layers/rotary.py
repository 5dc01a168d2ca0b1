"""Rotary positions (Su et al. 2021, "RoFormer", §3.2.2).

Each query and key is rotated by its position, in E / 2 planes with a speed
each; their product then depends on the distance of the positions alone. Planes
are of the numbers i and i + E / 2.

A fused operation, see `fused.py`.

Glossary of shapes: E width of one head, n projections.
"""

import dataclasses
from typing import Any

import numpy as np

from infoword_tf.layers import heads as heading
from infoword_tf.layers.block import take
from infoword_tf.layers.fused import compiled, to_float, with_gradient
from infoword_tf.lazy import ops

Tensor = Any


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


def turns(positions: Tensor, width: int, theta: float) -> Turn:
    """Computes angles p theta^(-2 i / E) of positions p and planes i.

    Args:
        positions: [B or 1, T] int32.
        width: E, even.
        theta: with E it determines the slowest plane's wave length.
    """
    speeds = theta ** (-np.arange(0, width, 2) / width)
    angles = to_float(positions)[..., None] * speeds.astype('float32')
    return Turn(ops.cos(angles), ops.sin(angles))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates [B, H, T, E] float32 by [B or 1, T, E / 2]; by -sin back."""
    cos, sin = cos[:, None], sin[:, None]
    first, second = ops.split(x, 2, axis=-1)
    halves = [first * cos - second * sin, second * cos + first * sin]
    return ops.concatenate(halves, axis=-1)


@compiled
def _split(x, cos, sin, *, heads, count, turned):
    b, t, width = ops.shape(x)
    y = ops.reshape(x, (b, t, count, heads, width // (count * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(
        ops.cast(_turned(to_float(y[i]), cos, sin), x.dtype)
        if i < turned
        else y[i]
        for i in range(count)
    )


@compiled
def _turned_back(upstream, cos, sin):
    return tuple(
        ops.cast(_turned(to_float(x), cos, -sin), x.dtype) for x in upstream
    )


def split_turned(
    x: Tensor,
    turn: Turn,
    *,
    heads: int,
    count: int,
    turned: int,
    key: Tensor | None = None,
    length: Any = None,
) -> tuple[Tensor, ...]:
    """Splits heads as `heads.split_heads`, without a bias, and rotates.

    Args:
        x, heads, count, key, length: as in `heads.split_heads`.
        turn: of the T tokens.
        turned: how many of the n projections are rotated; values are not.

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        projections = heading.split_heads(
            x, None, heads=heads, count=count, length=length
        )
        return tuple(
            ops.cast(_turned(to_float(y), turn.cos, turn.sin), y.dtype)
            if i < turned
            else y
            for i, y in enumerate(projections)
        )

    def function(x):
        def grad(*upstream):
            back = _turned_back(upstream[:turned], turn.cos, turn.sin)
            return heading.joined_heads((*back, *upstream[turned:]))

        results = _split(
            x, turn.cos, turn.sin, heads=heads, count=count, turned=turned
        )
        return results, grad

    return with_gradient(function, x)
