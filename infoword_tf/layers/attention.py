"""Multi-head self-attention (Vaswani et al. 2017, §3.2), joined projections.

Glossary of shapes: B batch, T tokens, Q query tokens (all, or the places where
states are wanted), H heads, D width, E width of one head.
"""

import math
from typing import Any

import numpy as np

from infoword_tf.layers import heads
from infoword_tf.lazy import Layer, Variable, dtype_of, ops

Tensor = Any


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """x [..., D] times kernel [D, F], as one product of two matrices.

    A product of three dimensions by two would make the kernel's gradient once
    for each row of the batch and sum them.
    """
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    # No -1: one of its dimensions may be 0.
    shape = (*ops.shape(x)[:-1], kernel.shape[-1])
    rows = ops.reshape(x, (-1, x.shape[-1]))
    return ops.reshape(ops.matmul(rows, kernel), shape)


def vector(
    layer: Layer, name: str, size: int, initializer: str = 'zeros'
) -> Variable:
    """A weight [size] of a layer that stays float32: a bias, or of a norm."""
    return layer.add_weight(
        shape=(size,), initializer=initializer, name=name, autocast=False
    )


def matrix(layer: Layer, name: str, *shape: int) -> Variable:
    """A kernel of a layer: zeros, until the model draws or reads it."""
    return layer.add_weight(shape=shape, initializer='zeros', name=name)


def table(layer: Layer, name: str, *shape: int) -> Variable:
    """As `matrix`, but it stays float32."""
    return layer.add_weight(
        shape=shape, initializer='zeros', name=name, autocast=False
    )


def causal_mask(length: Any) -> Tensor:
    """Where no token attends to a later one: [1, 1, T, T] bool."""
    i = ops.arange(length, dtype='int32')
    return ops.greater_equal(i[:, None], i)[None, None]


def as_numbers(allowed: Tensor, dtype: str) -> Tensor:
    """What `Attention` may add to scores: 0 where True, else -1e30 (not -inf: a
    row without any place would be NaN).
    """
    return ops.where(allowed, ops.cast(0.0, dtype), ops.cast(-1e30, dtype))


def mix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    *,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Values mixed by softmax(q k), q scaled; `allowed` as in `Attention`.

    Returns:
        [B, H, Q, E].
    """
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))  # [B, H, Q, T]
    if allowed is not None:
        if dtype_of(allowed) == 'bool':
            scores = ops.where(allowed, scores, ops.cast(-1e30, scores.dtype))
        else:
            scores = scores + allowed
    weights = heads.softmax_dropout(scores, key=key, rate=rate)
    return ops.matmul(weights, v)


def joined(mixed: Tensor, rows: bool = False) -> Tensor:
    """Heads side by side: [B, H, Q, E] -> [B, Q, D], or its rows [B Q, D]."""
    width = mixed.shape[1] * mixed.shape[3]
    mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, Q, H, E]
    shape = (-1, width) if rows else (-1, ops.shape(mixed)[1], width)
    return ops.reshape(mixed, shape)


def scaled_queries(width: int, root: float) -> np.ndarray:
    """[3 D] float32: `root` for the query's weights, 1 for the others."""
    scale = np.ones(3 * width, 'float32')
    scale[:width] = root
    return scale


class Attention(Layer):
    """Self-attention without its closing bias, which `add_norm` adds."""

    def __init__(self, width: int, heads: int, rate: float, dtype: Any = None):
        """Args: width D, heads H (a divisor of D), rate of dropout."""
        super().__init__(dtype=dtype, name='attention')
        if width % heads:
            raise ValueError(f'{heads} heads do not divide a width of {width}')
        self.width, self.heads, self.rate = width, heads, rate

    def build(self) -> None:
        """Makes the weights: query, key and value side by side, output."""
        d = self.width
        self.kernel = matrix(self, 'qkv_kernel', d, 3 * d)
        self.bias = vector(self, 'qkv_bias', 3 * d)
        self.output_kernel = matrix(self, 'output_kernel', d, d)
        self.built = True

    def call(
        self,
        x: Tensor,
        allowed: Tensor | None = None,
        queries: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Mixes values by softmax(q k / sqrt(E)).

        Args:
            x: [B, T, D] in the compute dtype, or its rows [B T, D] without a
                key.
            allowed: [B or 1, 1, T or Q, T] bool, True where a query may attend
                to a key; or of the compute dtype, what is added to the scores
                (`as_numbers`); None: everywhere.
            queries: [B, Q, D], rows of x that attend to x; None: all of x.
            key: [2] uint32, or None for inference.
            length: T, where x is rows.

        Returns:
            [B, T or Q, D], without the output's bias; rows for rows.
        """
        root = 1.0 / math.sqrt(self.width // self.heads)
        kernel, bias = self.kernel, self.bias
        if key is not None:
            # 1/sqrt(E) goes into the query's weights, which are few numbers.
            # For few texts q is fewer, and a served graph has no weights but
            # those that it was given.
            scale = scaled_queries(self.width, root)
            kernel = kernel * ops.cast(scale, self.compute_dtype)
            bias = bias * scale

        def parted(x, kernel, bias, parts, length=None):
            """n projections of x by head: [B, H, T or Q, E] each."""
            return heads.split_heads(
                project(x, kernel), bias,
                heads=self.heads, parts=parts, key=key, length=length,
            )  # fmt: skip

        if queries is None:
            q, k, v = parted(x, kernel, bias, 3, length)
        else:
            q_kernel, kv_kernel = ops.split(kernel, [self.width], axis=-1)
            q_bias, kv_bias = ops.split(bias, [self.width])
            (q,) = parted(queries, q_kernel, q_bias, 1)
            k, v = parted(x, kv_kernel, kv_bias, 2, length)
        if key is None:
            q = q * root
        mixed = mix(q, k, v, allowed, key=key, rate=self.rate)
        rows = length is not None and queries is None
        return project(joined(mixed, rows), self.output_kernel)
