"""Layer norm (Ba et al. 2016), RMS norm and residual sums.

A post-norm block ends each half with `add_norm`; a pre-norm block begins it
with `norm` and ends it with `add`; embeddings end with `norm`. An RMS norm
(Zhang and Sennrich 2019) does not centre (`rms`). All are fused operations,
see `fused.py`.
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


def _normalise(x: Tensor, epsilon: float, rms: bool) -> tuple[Tensor, Tensor]:
    """Returns x [..., D] float32 normalised, and 1/sigma [..., 1].

    Squares of centred numbers, not `ops.var`'s squared differences, which
    TensorFlow 2.20's Grappler replaces by a norm without epsilon.
    """
    centred = x if rms else x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return centred * inverse, inverse


def _normalise_grad(
    upstream: Tensor, normalised: Tensor, inverse: Tensor, rms: bool
) -> Tensor:
    """Returns the gradient of `_normalise`, float32 [..., D]."""
    along = ops.mean(upstream * normalised, axis=-1, keepdims=True)
    if rms:
        return inverse * (upstream - normalised * along)
    mean = ops.mean(upstream, axis=-1, keepdims=True)
    return inverse * (upstream - mean - normalised * along)


def _scaled(normalised, gamma, beta):
    return normalised * gamma if beta is None else normalised * gamma + beta


@compiled
def _add_norm(x, bias, residual, gamma, beta, key, *, rate, epsilon, rms):
    total = to_float(residual) + dropout.dropped(plus_bias(x, bias), key, rate)
    normalised, inverse = _normalise(total, epsilon, rms)
    y = _scaled(normalised, gamma, beta)
    return ops.cast(y, x.dtype), ops.cast(normalised, x.dtype), inverse


@compiled
def _add_norm_grad(upstream, normalised, inverse, gamma, key, *, rate, rms):
    dtype = normalised.dtype
    upstream, normalised = to_float(upstream), to_float(normalised)
    total = _normalise_grad(upstream * gamma, normalised, inverse, rms)
    x = dropout.dropped(total, key, rate)
    return tuple(ops.cast(y, dtype) for y in (x, total, upstream * normalised))


def add_norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    epsilon: float,
    key: Tensor | None = None,
    rate: float = 0.0,
    rms: bool = False,
) -> Tensor:
    """Computes LayerNorm(residual + dropout(x + bias)), or RMSNorm.

    Args:
        x, residual: [..., D] in the compute dtype.
        bias: [D] float32, or None.
        gamma, beta, epsilon, rms: as of `norm`.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        total = to_float(ops.add(with_bias(x, bias), residual))
        normalised, _ = _normalise(total, epsilon, rms)
        return ops.cast(_scaled(normalised, gamma, beta), x.dtype)

    def function(x, bias, residual, gamma, beta):
        y, normalised, inverse = _add_norm(
            x, bias, residual, gamma, beta, key,
            rate=rate, epsilon=epsilon, rms=rms,
        )  # fmt: skip

        def grad(upstream):
            x, total, product = _add_norm_grad(
                upstream, normalised, inverse, gamma, key, rate=rate, rms=rms
            )
            d_beta = None if beta is None else sum_rows(upstream)
            return x, sum_rows(x), total, sum_rows(product), d_beta

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
def _norm(x, gamma, beta, key, *, rate, epsilon, dtype, rms):
    normalised, inverse = _normalise(to_float(x), epsilon, rms)
    y = dropout.dropped(_scaled(normalised, gamma, beta), key, rate)
    return ops.cast(y, dtype), ops.cast(normalised, dtype), inverse


@compiled
def _norm_grad(
    upstream, normalised, inverse, gamma, key, *, rate, dtype, biased, rms
):
    normalised = to_float(normalised)
    upstream = dropout.dropped(to_float(upstream), key, rate)
    x = _normalise_grad(upstream * gamma, normalised, inverse, rms)
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
    rms: bool = False,
) -> Tensor:
    """Computes dropout(LayerNorm(x)), or dropout(RMSNorm(x)).

    Args:
        x: [..., D].
        gamma: [D] float32.
        beta: [D] float32, or None: nothing is added.
        epsilon: added to the variance, or to the mean square.
        dtype: of the result.
        rms: whether x is divided by its root mean square, without centring.

    Returns:
        [..., D] of `dtype`.
    """
    if key is None:
        normalised, _ = _normalise(to_float(x), epsilon, rms)
        return ops.cast(_scaled(normalised, gamma, beta), dtype)

    def function(x, gamma, beta):
        y, normalised, inverse = _norm(
            x, gamma, beta, key,
            rate=rate, epsilon=epsilon, dtype=dtype, rms=rms,
        )  # fmt: skip

        def grad(upstream):
            d_x, products = _norm_grad(
                upstream, normalised, inverse, gamma, key,
                rate=rate, dtype=dtype_of(x), biased=beta is not None, rms=rms,
            )  # fmt: skip
            sums = sum_rows(products)
            if beta is None:
                return d_x, sums, None
            return d_x, *ops.split(sums, 2)

        return y, grad

    return with_gradient(function, x, read(gamma), read(beta))
