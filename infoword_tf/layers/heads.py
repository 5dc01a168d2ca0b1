"""Heads of attention: projections split into heads, and attention weights.

Fused operations, see `fused.py`.

Glossary of shapes: Q query tokens, E width of one head, n projections.
"""

from typing import Any

from infoword_tf.layers import dropout
from infoword_tf.layers.fused import (
    compiled,
    plus_bias,
    read,
    sum_rows,
    to_float,
    with_bias,
    with_gradient,
)
from infoword_tf.lazy import ops

Tensor = Any


@compiled
def _heads(x, bias, *, heads, count):
    b, t, width = ops.shape(x)
    y = ops.cast(plus_bias(x, bias), x.dtype)
    y = ops.reshape(y, (b, t, count, heads, width // (count * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(y[i] for i in range(count))


def joined_heads(tensors: tuple[Tensor, ...]) -> Tensor:
    """Joins n times [B, H, T, E] to [B, T, n D] by one plain transpose."""
    b, h, t, e = ops.shape(tensors[0])
    x = ops.transpose(ops.stack(tensors), (1, 3, 0, 2, 4))  # [B, T, n, H, E]
    return ops.reshape(x, (b, t, len(tensors) * h * e))


def split_heads(
    x: Tensor,
    bias: Tensor | None,
    *,
    heads: int,
    count: int,
    key: Tensor | None = None,
    length: Any = None,
) -> tuple[Tensor, ...]:
    """Adds the bias to joined projections and splits the sum into heads.

    Args:
        x: [B, T, n D], n projections side by side, in the compute dtype; or
            flattened [B T, n D] without a key.
        bias: [n D] float32, or None.
        heads: H.
        count: n.
        key: None runs plain operations.
        length: T, where x is flattened.

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        length = ops.shape(x)[1] if length is None else length
        shape = (-1, length, count, heads, x.shape[-1] // (count * heads))
        # One transpose: unstacking the first axis copies nothing.
        y = ops.transpose(
            ops.reshape(with_bias(x, bias), shape), (2, 0, 3, 1, 4)
        )  # [n, B, H, T, E]
        return tuple(ops.unstack(y, count))

    def function(x, bias):
        def grad(*upstream):
            total = joined_heads(upstream)
            return total, sum_rows(total)

        return _heads(x, bias, heads=heads, count=count), grad

    return with_gradient(function, x, read(bias))


@compiled
def _drop_weights(weights, key, *, rate):
    dropped = dropout.dropped(to_float(weights), key, rate)
    return ops.cast(dropped, weights.dtype)


@compiled
def _softmax_drop_grad(upstream, weights, key, *, rate):
    dtype = weights.dtype
    weights = to_float(weights)
    upstream = dropout.dropped(to_float(upstream), key, rate)
    mean = ops.sum(upstream * weights, axis=-1, keepdims=True)
    return ops.cast(weights * (upstream - mean), dtype)


def softmax_dropout(
    scores: Tensor, *, key: Tensor | None = None, rate: float = 0.0
) -> Tensor:
    """Computes dropout(softmax(scores)) over the last axis.

    The softmax is left to the backend: on a CPU oneDNN's is three times as
    fast as XLA's.

    Args:
        scores: [B, H, Q, T] in the compute dtype, masked places at -1e30.

    Returns:
        [B, H, Q, T] in the dtype of `scores`.
    """
    if key is None:
        return ops.softmax(scores, axis=-1)

    def function(scores):
        # The reshape sets a static shape, which compiled kernels lose.
        scores = ops.reshape(scores, ops.shape(scores))
        weights = ops.softmax(scores, axis=-1)

        def grad(upstream):
            return _softmax_drop_grad(upstream, weights, key, rate=rate)

        if not rate:
            return weights, grad
        return _drop_weights(weights, key, rate=rate), grad

    return with_gradient(function, scores)
