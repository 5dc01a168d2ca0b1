"""Rotary positions (Su et al. 2021, "RoFormer", §3.2.2).

Each query and key is turned by its position, in E / 2 planes of which every one
turns at a speed of its own; a product of the two then knows their distance,
and nothing else of where they stand. Planes are of the numbers i and i + E / 2.

A fused piece, see `fused.py`.

Glossary of shapes: B batch, T tokens, H heads, D width, E width of one head.
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
    """By how much what stands at a place is turned.

    No tuple: of what is in one, Keras makes numbers of the compute dtype.

    Attributes:
        cos, sin: [B or 1, T, E / 2] float32.
    """

    cos: Tensor
    sin: Tensor

    def at(self, places: Tensor) -> 'Turn':
        """At some places [B, Q] int32 of each row."""

        def some(x):
            if x.shape[0] == 1:
                return ops.take(x[0], places, axis=0)
            return take(x, places)

        return Turn(some(self.cos), some(self.sin))


def turns(positions: Tensor, width: int, theta: float) -> Turn:
    """Angles p theta^(-2 i / E) of positions p and planes i.

    Args:
        positions: [B or 1, T] int32.
        width: E, even.
        theta: of it and E the slowest plane's wave length comes.
    """
    speeds = theta ** (-np.arange(0, width, 2) / width)
    angles = to_float(positions)[..., None] * speeds.astype('float32')
    return Turn(ops.cos(angles), ops.sin(angles))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[B, H, T, E] float32 by [B or 1, T, E / 2]; -sin turns back."""
    cos, sin = cos[:, None], sin[:, None]
    first, second = ops.split(x, 2, axis=-1)
    parts = [first * cos - second * sin, second * cos + first * sin]
    return ops.concatenate(parts, axis=-1)


@compiled
def _split(x, cos, sin, *, heads, parts, turned):
    b, t, width = ops.shape(x)
    y = ops.reshape(x, (b, t, parts, heads, width // (parts * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(
        ops.cast(_turned(to_float(y[i]), cos, sin), x.dtype)
        if i < turned
        else y[i]
        for i in range(parts)
    )


@compiled
def _turned_back(upstream, cos, sin):
    found = (_turned(to_float(x), cos, -sin) for x in upstream)
    return tuple(
        ops.cast(x, of.dtype) for x, of in zip(found, upstream, strict=True)
    )


def split_turned(
    x: Tensor,
    turn: Turn,
    *,
    heads: int,
    parts: int,
    turned: int,
    key: Tensor | None = None,
    length: Any = None,
) -> tuple[Tensor, ...]:
    """`heads.split_heads` without a bias, the first parts turned.

    Args:
        x, heads, parts, key, length: as there.
        turn: of the T tokens.
        turned: how many of the n parts are; values are not.

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        found = heading.split_heads(
            x, None, heads=heads, parts=parts, length=length
        )
        return tuple(
            ops.cast(_turned(to_float(part), turn.cos, turn.sin), part.dtype)
            if i < turned
            else part
            for i, part in enumerate(found)
        )

    def function(x):
        def grad(*upstream):
            back = _turned_back(upstream[:turned], turn.cos, turn.sin)
            return heading.joined_heads((*back, *upstream[turned:]))

        found = _split(
            x, turn.cos, turn.sin, heads=heads, parts=parts, turned=turned
        )
        return found, grad

    return with_gradient(function, x)
