"""Norms, residual sums and activations: what is done to the states of a token.

Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019), which does
not centre (`rms`). A post-norm block ends each half with `add_norm`; a pre-norm
block begins it with `norm` and ends it with `add`; embeddings end with `norm`.
An activation of the feed-forward, GELU in its two forms, ReLU or SiLU, follows
a bias (`bias_gelu`) or is times a gate (`gated`). All are fused operations, see
`fused.py`.

Glossary of shapes: F inner width.
"""

import math
from typing import NamedTuple

from infoword_tf.layers import dropout
from infoword_tf.layers.fused import (
    compiled,
    computed_again,
    plus_bias,
    read,
    sum_rows,
    to_float,
    with_bias,
    with_gradient,
)
from infoword_tf.lazy import dtype_of, ops
from infoword_tf.tensors import Tensor


class Norm(NamedTuple):
    """Weights and form of a norm.

    Attributes:
        gamma: [D] float32.
        beta: [D] float32; None: nothing is added.
        epsilon: term added to the variance, or to the mean square.
        rms: whether x is divided by its root mean square, without centring.
    """

    gamma: Tensor
    beta: Tensor | None
    epsilon: float
    rms: bool = False


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
def _add_norm(x, bias, residual, weights, key, *, rate, epsilon, rms):
    total = to_float(residual) + dropout.dropped(plus_bias(x, bias), key, rate)
    normalised, inverse = _normalise(total, epsilon, rms)
    y = _scaled(normalised, *weights)
    return ops.cast(y, x.dtype), ops.cast(normalised, x.dtype), inverse


@compiled
def _add_norm_grad(upstream, saved, gamma, key, *, rate, rms):
    normalised, inverse = saved
    dtype = normalised.dtype
    upstream, normalised = to_float(upstream), to_float(normalised)
    total = _normalise_grad(upstream * gamma, normalised, inverse, rms)
    x = dropout.dropped(total, key, rate)
    return tuple(ops.cast(y, dtype) for y in (x, total, upstream * normalised))


def add_norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    of_sum: Norm,
    *,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes LayerNorm(residual + dropout(x + bias)), or RMSNorm.

    Args:
        x, residual: [..., D] in the compute dtype.
        bias: [D] float32, or None.
        of_sum: norm of the sum.
        key: [2] uint32; None runs plain operations, without dropout.
        rate: share that dropout takes.

    Returns:
        [..., D] in x's dtype.
    """
    gamma, beta, epsilon, rms = of_sum
    if key is None:
        total = to_float(ops.add(with_bias(x, bias), residual))
        normalised, _ = _normalise(total, epsilon, rms)
        return ops.cast(_scaled(normalised, gamma, beta), x.dtype)

    def function(x, bias, residual, gamma, beta):
        y, *saved = _add_norm(
            x, bias, residual, (gamma, beta), key=key,
            rate=rate, epsilon=epsilon, rms=rms,
        )  # fmt: skip

        def grad(upstream):
            x, total, product = _add_norm_grad(
                upstream, saved, gamma, key, rate=rate, rms=rms
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
def _norm_grad(upstream, saved, gamma, key, *, rate, dtype, biased, rms):
    normalised, inverse = saved
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
    weights: Norm,
    *,
    dtype: str,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes dropout(LayerNorm(x)), or dropout(RMSNorm(x)).

    Args:
        x: [..., D].
        weights: those of the norm, and its form.
        dtype: dtype of the result.
        key: [2] uint32; None runs plain operations, without dropout.
        rate: share that dropout takes.

    Returns:
        [..., D] of `dtype`.
    """
    gamma, beta, epsilon, rms = weights
    if key is None:
        normalised, _ = _normalise(to_float(x), epsilon, rms)
        return ops.cast(_scaled(normalised, gamma, beta), dtype)

    def function(x, gamma, beta):
        y, *saved = _norm(
            x, gamma, beta, key,
            rate=rate, epsilon=epsilon, dtype=dtype, rms=rms,
        )  # fmt: skip

        def grad(upstream):
            d_x, products = _norm_grad(
                upstream, saved, gamma, key,
                rate=rate, dtype=dtype_of(x), biased=beta is not None, rms=rms,
            )  # fmt: skip
            sums = sum_rows(products)
            if beta is None:
                return d_x, sums, None
            return d_x, *ops.split(sums, 2)

        return y, grad

    return with_gradient(function, x, read(gamma), read(beta))


FORMS = ('gelu_tanh', 'gelu_erf', 'relu', 'silu')


def _tanh_term(x: Tensor) -> Tensor:
    # Grappler recognizes this form of the cube, and that of `_gelu`.
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * ops.square(x)))
    return ops.tanh(inner)


def _gelu(x: Tensor, form: str) -> Tensor:
    """Applies an activation of FORMS."""
    if form == 'relu':
        return ops.relu(x)
    if form == 'silu':
        return x * ops.sigmoid(x)
    if form == 'gelu_tanh':
        return 0.5 * x * (1.0 + _tanh_term(x))
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_slope(x: Tensor, form: str) -> Tensor:
    if form == 'relu':
        return ops.cast(ops.greater(x, 0.0), 'float32')
    if form == 'silu':
        share = ops.sigmoid(x)
        return share * (1.0 + x * (1.0 - share))
    if form == 'gelu_tanh':
        t = _tanh_term(x)
        inner = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
    density = ops.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    return 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5))) + x * density


@compiled
def _bias_gelu(x, bias, key, *, form, rate):
    y = _gelu(plus_bias(x, bias), form)
    return ops.cast(dropout.dropped(y, key, rate), x.dtype)


@compiled
def _bias_gelu_grad(upstream, x, bias, key, *, form, rate):
    slope = _gelu_slope(plus_bias(x, bias), form)
    upstream = dropout.dropped(to_float(upstream), key, rate)
    return ops.cast(upstream * slope, x.dtype)


def bias_gelu(
    x: Tensor,
    bias: Tensor | None,
    *,
    form: str,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Computes dropout(GELU(x + bias)) (Hendrycks and Gimpel 2016), or another.

    Args:
        x: [..., D] in the compute dtype.
        bias: [D] float32, or None.
        form: name in FORMS.
        rate: share that dropout takes, 0 in BERT.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        return _gelu(with_bias(x, bias), form)

    def function(x, bias):
        def grad(upstream):
            total = _bias_gelu_grad(
                upstream, computed_again(x), bias, key, form=form, rate=rate
            )
            return total, sum_rows(total)

        return _bias_gelu(x, bias, key, form=form, rate=rate), grad

    return with_gradient(function, x, read(bias))


@compiled
def _gated(x, key, *, form, rate):
    inner, gate = ops.split(to_float(x), 2, axis=-1)
    y = _gelu(inner, form) * gate
    return ops.cast(dropout.dropped(y, key, rate), x.dtype)


@compiled
def _gated_grad(upstream, x, key, *, form, rate):
    inner, gate = ops.split(to_float(x), 2, axis=-1)
    upstream = dropout.dropped(to_float(upstream), key, rate)
    gradients = [
        upstream * gate * _gelu_slope(inner, form),
        upstream * _gelu(inner, form),
    ]
    return ops.cast(ops.concatenate(gradients, axis=-1), x.dtype)


def gated(
    x: Tensor, *, form: str, key: Tensor | None = None, rate: float = 0.0
) -> Tensor:
    """Computes GeGLU, dropout(GELU(x_1) x_2), or SwiGLU by the form `silu`.

    After Shazeer 2020, eq. 5.

    Args:
        x: [..., 2 F], x_1 and x_2 side by side, in the compute dtype.
        form: name in FORMS.
        rate: share that dropout takes.

    Returns:
        [..., F] in x's dtype.
    """
    if key is None:
        inner, gate = ops.split(x, 2, axis=-1)
        return _gelu(inner, form) * gate

    def function(x):
        def grad(upstream):
            again = computed_again(x)
            return _gated_grad(upstream, again, key, form=form, rate=rate)

        return _gated(x, key, form=form, rate=rate), grad

    return with_gradient(function, x)
