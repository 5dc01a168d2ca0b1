"""Activation of the feed-forward: GELU in its two forms, ReLU or SiLU.

Fused operations (see `fused.py`): after a bias (`bias_gelu`), or times a gate
(`gated`).

Glossary of shapes: F inner width.
"""

import math
from typing import Any

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
from infoword_tf.lazy import ops

Tensor = Any
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
        form: in FORMS.
        rate: dropout share, 0 in BERT.

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
        form: in FORMS.
        rate: dropout share.

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
