"""Layer norm (Ba et al. 2016) and residual sums.

A post-norm block ends each half with `add_norm`; a pre-norm block begins it
with `norm` and ends it with `add`; embeddings end with `norm`. All are fused
operations, see `fused.py`.
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
from infoword_tf.lazy import dtype_of, ops

Tensor = Any


def _normalise(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Returns x [..., D] float32 normalised, and 1/sigma [..., 1].

    Squares of centred numbers, not `ops.var`'s squared differences, which
    TensorFlow 2.20's Grappler replaces by a norm without epsilon.
    """
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return centred * inverse, inverse


def _normalise_grad(
    upstream: Tensor, normalised: Tensor, inverse: Tensor
) -> Tensor:
    """Returns the gradient of `_normalise`, float32 [..., D]."""
    along = ops.mean(upstream * normalised, axis=-1, keepdims=True)
    mean = ops.mean(upstream, axis=-1, keepdims=True)
    return inverse * (upstream - mean - normalised * along)


@compiled
def _add_norm(x, bias, residual, gamma, beta, key, *, rate, epsilon):
    total = to_float(residual) + dropout.dropped(plus_bias(x, bias), key, rate)
    normalised, inverse = _normalise(total, epsilon)
    y = normalised * gamma + beta
    return ops.cast(y, x.dtype), ops.cast(normalised, x.dtype), inverse


@compiled
def _add_norm_grad(upstream, normalised, inverse, gamma, key, *, rate):
    dtype = normalised.dtype
    upstream, normalised = to_float(upstream), to_float(normalised)
    total = _normalise_grad(upstream * gamma, normalised, inverse)
    x = dropout.dropped(total, key, rate)
    return tuple(ops.cast(y, dtype) for y in (x, total, upstream * normalised))


def add_norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    epsilon: float,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes LayerNorm(residual + dropout(x + bias)).

    Args:
        x, residual: [..., D] in the compute dtype.
        bias: [D] float32, or None.
        gamma, beta: [D] float32.
        epsilon: added to the variance.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        total = to_float(ops.add(with_bias(x, bias), residual))
        normalised, _ = _normalise(total, epsilon)
        return ops.cast(normalised * gamma + beta, x.dtype)

    def function(x, bias, residual, gamma, beta):
        y, normalised, inverse = _add_norm(
            x, bias, residual, gamma, beta, key, rate=rate, epsilon=epsilon
        )

        def grad(upstream):
            x, total, product = _add_norm_grad(
                upstream, normalised, inverse, gamma, key, rate=rate
            )
            sums = map(sum_rows, (product, upstream))
            return x, sum_rows(x), total, *sums

        return y, grad

    weights = read(bias), residual, read(gamma), read(beta)
    return with_gradient(function, x, *weights)


@compiled
def _add(x, bias, residual, key, *, rate):
    total = to_float(residual) + dropout.dropped(plus_bias(x, bias), key, rate)
    return ops.cast(total, x.dtype)


def add(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    *,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes residual + dropout(x + bias); arguments as of `add_norm`."""
    if key is None:
        return ops.add(with_bias(x, bias), residual)

    def function(x, bias, residual):
        def grad(upstream):
            x = dropout.drop(upstream, key=key, rate=rate)
            return x, sum_rows(x), upstream

        return _add(x, bias, residual, key, rate=rate), grad

    return with_gradient(function, x, read(bias), residual)


@compiled
def _norm(x, gamma, beta, key, *, rate, epsilon, dtype):
    normalised, inverse = _normalise(to_float(x), epsilon)
    y = normalised * gamma if beta is None else normalised * gamma + beta
    y = dropout.dropped(y, key, rate)
    return ops.cast(y, dtype), ops.cast(normalised, dtype), inverse


@compiled
def _norm_grad(
    upstream, normalised, inverse, gamma, key, *, rate, dtype, biased
):
    normalised = to_float(normalised)
    upstream = dropout.dropped(to_float(upstream), key, rate)
    x = _normalise_grad(upstream * gamma, normalised, inverse)
    products = upstream * normalised
    if biased:
        # Both in one array: upstream after dropout is the bias's gradient.
        products = ops.concatenate([products, upstream], axis=-1)
    return ops.cast(x, dtype), products


def norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    epsilon: float,
    dtype: str,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes dropout(LayerNorm(x)).

    Args:
        x: [..., D].
        gamma: [D] float32.
        beta: [D] float32, or None: nothing is added.
        epsilon: added to the variance.
        dtype: of the result.

    Returns:
        [..., D] of `dtype`.
    """
    if key is None:
        normalised, _ = _normalise(to_float(x), epsilon)
        y = normalised * gamma if beta is None else normalised * gamma + beta
        return ops.cast(y, dtype)

    def function(x, gamma, beta):
        y, normalised, inverse = _norm(
            x, gamma, beta, key, rate=rate, epsilon=epsilon, dtype=dtype
        )

        def grad(upstream):
            d_x, products = _norm_grad(
                upstream, normalised, inverse, gamma, key,
                rate=rate, dtype=dtype_of(x), biased=beta is not None,
            )  # fmt: skip
            sums = sum_rows(products)
            if beta is None:
                return d_x, sums, None
            return d_x, *ops.split(sums, 2)

        return y, grad

    return with_gradient(function, x, read(gamma), read(beta))
