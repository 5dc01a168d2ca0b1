"""Multi-head self-attention (Vaswani et al. 2017, §3.2), joined projections.

Glossary of shapes: Q query tokens (all, or those at places), E width of one
head, F width of a product.
"""

import math
from typing import Any

import numpy as np

from infoword_tf import errors
from infoword_tf.layers import heads
from infoword_tf.lazy import Layer, Variable, dtype_of, ops

Tensor = Any


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies x [..., D] by a kernel [D, F], as one product of two matrices.

    A product of three dimensions by two would compute the kernel's gradient
    for each sequence and sum them.
    """
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    # No -1: one of its dimensions may be 0.
    shape = (*ops.shape(x)[:-1], kernel.shape[-1])
    flat = ops.reshape(x, (-1, x.shape[-1]))
    return ops.reshape(ops.matmul(flat, kernel), shape)


def vector(
    layer: Layer, name: str, size: int, initializer: str = 'zeros'
) -> Variable:
    """Makes a weight [size] that stays float32: a bias, or of a norm."""
    return layer.add_weight(
        shape=(size,), initializer=initializer, name=name, autocast=False
    )


def matrix(layer: Layer, name: str, *shape: int) -> Variable:
    """Makes a kernel of zeros, which the model draws or reads later."""
    return layer.add_weight(shape=shape, initializer='zeros', name=name)


def table(layer: Layer, name: str, *shape: int) -> Variable:
    """Makes a weight like `matrix` that stays float32."""
    return layer.add_weight(
        shape=shape, initializer='zeros', name=name, autocast=False
    )


def causal_mask(length: Any) -> Tensor:
    """Returns a mask [1, 1, T, T] bool by which no token sees later tokens."""
    i = ops.arange(length, dtype='int32')
    return ops.greater_equal(i[:, None], i)[None, None]


def as_numbers(allowed: Tensor, dtype: str) -> Tensor:
    """Converts a mask to terms of scores: 0 where True, else -1e30.

    Not -inf, since the softmax of a query without any key would be NaN.
    """
    return ops.where(allowed, ops.cast(0.0, dtype), ops.cast(-1e30, dtype))


def masked(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Masks scores [B, H, Q, T] by `allowed` of `Attention`."""
    if allowed is None:
        return scores
    if dtype_of(allowed) == 'bool':
        # Not -inf: the softmax of a query without any key would be NaN.
        return ops.where(allowed, scores, ops.cast(-1e30, scores.dtype))
    return scores + ops.cast(allowed, scores.dtype)


def mix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    *,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Averages values by softmax(q k), q scaled; `allowed` as in `Attention`.

    Returns:
        [B, H, Q, E].
    """
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))  # [B, H, Q, T]
    scores = masked(scores, allowed)
    weights = heads.softmax_dropout(scores, key=key, rate=rate)
    return ops.matmul(weights, v)


def joined(mixed: Tensor, flat: bool = False) -> Tensor:
    """Puts heads side by side: [B, H, Q, E] -> [B, Q, D], or flat [B Q, D]."""
    width = mixed.shape[1] * mixed.shape[3]
    mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, Q, H, E]
    shape = (-1, width) if flat else (-1, ops.shape(mixed)[1], width)
    return ops.reshape(mixed, shape)


def scaled_queries(width: int, root: float) -> np.ndarray:
    """Returns factors [3 D] float32: `root` for the query's weights, else 1."""
    scale = np.ones(3 * width, 'float32')
    scale[:width] = root
    return scale


def check_heads(width: int, heads: int) -> None:
    """Raises a ValueError if H does not divide D."""
    if width % heads:
        raise errors.InputError(
            'heads_divide_width',
            f'{heads} heads do not divide a width of {width}',
        )


class Attention(Layer):
    """Self-attention without the output's bias, which `add_norm` adds."""

    def __init__(self, width: int, heads: int, rate: float, dtype: Any = None):
        """Sets D, H (a divisor of D) and the rate of dropout."""
        super().__init__(dtype=dtype, name='attention')
        check_heads(width, heads)
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
            x: [B, T, D] in the compute dtype, or flattened [B T, D] without a
                key.
            allowed: [B or 1, 1, T or Q, T] bool, True where a query may attend
                to a key; or numbers in the compute dtype that are added to the
                scores (`as_numbers`); None: everywhere.
            queries: [B, Q, D], states of x that attend to x; None: all of x.
            key: [2] uint32, or None for inference.
            length: T, where x is flattened.

        Returns:
            [B, T or Q, D], without the output's bias; flattened like x.
        """
        root = 1.0 / math.sqrt(self.width // self.heads)
        kernel, bias = self.kernel, self.bias
        if key is not None:
            # 1/sqrt(E) goes into the query's weights, which are few numbers.
            # In inference q may be fewer, and a served graph should hold no
            # second copy of weights.
            scale = scaled_queries(self.width, root)
            kernel = kernel * ops.cast(scale, self.compute_dtype)
            bias = bias * scale

        def by_head(x, kernel, bias, count, length=None):
            """Projects x and splits heads: `count` times [B, H, T or Q, E]."""
            return heads.split_heads(
                project(x, kernel), bias,
                heads=self.heads, count=count, key=key, length=length,
            )  # fmt: skip

        if queries is None:
            q, k, v = by_head(x, kernel, bias, 3, length)
        else:
            q_kernel, kv_kernel = ops.split(kernel, [self.width], axis=-1)
            q_bias, kv_bias = ops.split(bias, [self.width])
            (q,) = by_head(queries, q_kernel, q_bias, 1)
            k, v = by_head(x, kv_kernel, kv_bias, 2, length)
        if key is None:
            q = q * root
        mixed = mix(q, k, v, allowed, key=key, rate=self.rate)
        flat = length is not None and queries is None
        return project(joined(mixed, flat), self.output_kernel)
