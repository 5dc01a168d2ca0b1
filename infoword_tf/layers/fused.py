"""The element-wise pieces that cost most, forward and backward written out.

On a CPU only a third of a plain training step is matrix products. Each piece
here is one loop over memory instead of ten: under TensorFlow it is compiled
alone by XLA while the products around it stay with oneDNN, under JAX it is
traced into the compiled step. Inside, arithmetic is float32; dtypes change at
the edges. What the backward pass needs is kept small: normalised values and
1/sigma, never a mask (bits are hashed again from the key).

Every piece takes `key`: None runs the plain operations (held-out text, encode,
export, where shapes are dynamic and a kernel must run anywhere); a key runs
the fused form, also at rate 0. tests/layers/test_fused.py holds each against
plain operations and their automatic gradients.

Glossary of shapes: B batch, T tokens (Q of them asking), H heads, D width,
E width of one head; `...` any.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from infoword_tf.layers import dropout

Tensor = Any
_F32 = 'float32'


def compiled(function: Callable) -> Callable:
    """`function` as one kernel: under TensorFlow by XLA, elsewhere itself.

    TensorFlow is imported at the first call, so that this module can be
    imported without it.
    """
    kernel = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal kernel
        if kernel is None:
            kernel = function
            if keras.backend.backend() == 'tensorflow':
                import tensorflow as tf

                kernel = tf.function(function, jit_compile=True)
        return kernel(*args, **kwargs)

    return call


def _float(x: Tensor) -> Tensor:
    return ops.cast(x, _F32)


def _many(args: tuple, upstream: Any) -> tuple:
    """Upstream gradients: TensorFlow gives them one by one, JAX as a tuple."""
    found = args if upstream is None else upstream
    if isinstance(found, tuple | list):
        if len(found) == 1 and isinstance(found[0], tuple | list):
            (found,) = found
        return tuple(found)
    return (found,)


def _read(weight: Tensor) -> Tensor:
    """A weight's value: a custom gradient takes no variables."""
    return ops.reshape(weight, weight.shape)


def _drop(x: Tensor, key: Tensor, rate: float) -> Tensor:
    """x [...] float32 with a share `rate` zeroed, the rest scaled up."""
    if not rate:
        return x
    kept = dropout.keep_mask(key, tuple(x.shape), rate)
    return ops.where(kept, x * (1.0 / (1.0 - rate)), 0.0)


def _sum_rows(x: Tensor) -> Tensor:
    """[..., D] -> [D] float32, as a product with a row of ones.

    A matrix product, so that oneDNN makes it; inside a fused loop XLA's sum
    over rows costs more than all the rest. In bfloat16 the result is rounded
    once, as every kernel's gradient is.
    """
    rows = ops.reshape(x, (-1, x.shape[-1]))
    ones = ops.ones((1, rows.shape[0]), x.dtype)
    return _float(ops.matmul(ones, rows))[0]


def _normalise(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x [..., D] float32 -> normalised [..., D], 1/sigma [..., 1]."""
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return centred * inverse, inverse


def _normalise_grad(
    upstream: Tensor, normalised: Tensor, inverse: Tensor
) -> Tensor:
    """Gradient of `_normalise`, all float32 [..., D]."""
    along = ops.mean(upstream * normalised, axis=-1, keepdims=True)
    mean = ops.mean(upstream, axis=-1, keepdims=True)
    return inverse * (upstream - mean - normalised * along)


# ------------------------------------- bias + dropout + residual + layer norm


@compiled
def _add_norm(x, bias, residual, gamma, beta, key, *, rate, epsilon):
    total = _float(residual) + _drop(_float(x) + bias, key, rate)
    normalised, inverse = _normalise(total, epsilon)
    y = normalised * gamma + beta
    return ops.cast(y, x.dtype), ops.cast(normalised, x.dtype), inverse


@compiled
def _add_norm_grad(upstream, normalised, inverse, gamma, key, *, rate):
    dtype = normalised.dtype
    upstream, normalised = _float(upstream), _float(normalised)
    total = _normalise_grad(upstream * gamma, normalised, inverse)
    x = _drop(total, key, rate)
    return tuple(
        ops.cast(part, dtype) for part in (x, total, upstream * normalised)
    )


def add_norm(
    x: Tensor,
    bias: Tensor,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    epsilon: float,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """LayerNorm(residual + dropout(x + bias)): how each half block ends.

    Args:
        x, residual: [..., D] in the compute dtype.
        bias, gamma, beta: [D] float32.
        epsilon: added to the variance.
        key: [2] uint32, or None for inference.
        rate: dropout share.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        normalised, _ = _normalise(
            _float(residual) + _float(x) + bias, epsilon
        )
        return ops.cast(normalised * gamma + beta, x.dtype)

    @ops.custom_gradient
    def function(x, bias, residual, gamma, beta):
        y, normalised, inverse = _add_norm(
            x, bias, residual, gamma, beta, key, rate=rate, epsilon=epsilon
        )

        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            x, total, product = _add_norm_grad(
                upstream, normalised, inverse, gamma, key, rate=rate
            )
            return (
                x,
                _sum_rows(x),
                total,
                _sum_rows(product),
                _sum_rows(upstream),
            )

        return y, grad

    return function(x, _read(bias), residual, _read(gamma), _read(beta))


# ------------------------------------------------ embeddings: norm + dropout


@compiled
def _norm(x, gamma, beta, key, *, rate, epsilon, dtype):
    normalised, inverse = _normalise(_float(x), epsilon)
    y = _drop(normalised * gamma + beta, key, rate)
    return ops.cast(y, dtype), ops.cast(normalised, dtype), inverse


@compiled
def _norm_grad(upstream, normalised, inverse, gamma, key, *, rate, dtype):
    normalised = _float(normalised)
    upstream = _drop(_float(upstream), key, rate)
    x = _normalise_grad(upstream * gamma, normalised, inverse)
    # Both sums in one array: upstream is dropped here, for the bias too.
    return (
        ops.cast(x, dtype),
        ops.concatenate([upstream * normalised, upstream], axis=-1),
    )


def norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    epsilon: float,
    dtype: str,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """dropout(LayerNorm(x)): how the embeddings end (BERT).

    Args:
        x: [..., D].
        gamma, beta: [D] float32.
        epsilon: added to the variance.
        dtype: of the result.
        key: [2] uint32, or None for inference.
        rate: dropout share.

    Returns:
        [..., D] of `dtype`.
    """
    if key is None:
        normalised, _ = _normalise(_float(x), epsilon)
        return ops.cast(normalised * gamma + beta, dtype)

    @ops.custom_gradient
    def function(x, gamma, beta):
        y, normalised, inverse = _norm(
            x, gamma, beta, key, rate=rate, epsilon=epsilon, dtype=dtype
        )

        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            d_x, products = _norm_grad(
                upstream,
                normalised,
                inverse,
                gamma,
                key,
                rate=rate,
                dtype=keras.backend.standardize_dtype(x.dtype),
            )
            return d_x, *ops.split(_sum_rows(products), 2)

        return y, grad

    return function(x, _read(gamma), _read(beta))


# ----------------------------------------------------------------- bias + GELU


def _tanh_part(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return ops.tanh(inner)


def _gelu(x: Tensor, form: str) -> Tensor:
    """x [...] float32. 'tanh' is Google's BERT, 'erf' Hugging Face's."""
    if form == 'tanh':
        return 0.5 * x * (1.0 + _tanh_part(x))
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_slope(x: Tensor, form: str) -> Tensor:
    if form == 'tanh':
        t = _tanh_part(x)
        inner = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
    density = ops.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    return 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5))) + x * density


@compiled
def _bias_gelu(x, bias, *, form):
    return ops.cast(_gelu(_float(x) + bias, form), x.dtype)


@compiled
def _bias_gelu_grad(upstream, x, bias, *, form):
    slope = _gelu_slope(_float(x) + bias, form)
    return ops.cast(_float(upstream) * slope, x.dtype)


def bias_gelu(
    x: Tensor, bias: Tensor, *, form: str, key: Tensor | None = None
) -> Tensor:
    """GELU(x + bias) (Hendrycks and Gimpel 2016).

    Args:
        x: [..., D] in the compute dtype.
        bias: [D] float32.
        form: 'tanh' or 'erf'.
        key: None runs plain operations.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        return ops.cast(_gelu(_float(x) + bias, form), x.dtype)

    @ops.custom_gradient
    def function(x, bias):
        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            total = _bias_gelu_grad(upstream, x, bias, form=form)
            return total, _sum_rows(total)

        return _bias_gelu(x, bias, form=form), grad

    return function(x, _read(bias))


# ----------------------------------------------------------------- attention


@compiled
def _heads(x, bias, *, heads, parts):
    b, t, width = x.shape
    y = ops.cast(_float(x) + bias, x.dtype)
    y = ops.reshape(y, (b, t, parts, heads, width // (parts * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(y[i] for i in range(parts))


def _heads_grad(parts):
    """n times [B, H, T, E] -> [B, T, n D]: one plain transpose is fastest."""
    b, h, t, e = parts[0].shape
    x = ops.transpose(ops.stack(parts), (1, 3, 0, 2, 4))  # [B, T, n, H, E]
    return ops.reshape(x, (b, t, len(parts) * h * e))


def split_heads(
    x: Tensor,
    bias: Tensor,
    *,
    heads: int,
    parts: int,
    key: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Adds the bias to joined projections and parts them into heads.

    Args:
        x: [B, T, n D], n projections side by side, in the compute dtype.
        bias: [n D] float32.
        heads: H.
        parts: n.
        key: None runs plain operations (and allows a dynamic B and T).

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        length, width = ops.shape(x)[1], x.shape[-1] // parts
        split = ops.split(ops.cast(_float(x) + bias, x.dtype), parts, axis=-1)
        shape = (-1, length, heads, width // heads)
        return tuple(
            ops.transpose(ops.reshape(part, shape), (0, 2, 1, 3))
            for part in split
        )

    @ops.custom_gradient
    def function(x, bias):
        def grad(*args, upstream=None):
            total = _heads_grad(_many(args, upstream))
            return total, _sum_rows(total)

        return _heads(x, bias, heads=heads, parts=parts), grad

    return function(x, _read(bias))


@compiled
def _drop_weights(weights, key, *, rate):
    return ops.cast(_drop(_float(weights), key, rate), weights.dtype)


@compiled
def _softmax_drop_grad(upstream, weights, key, *, rate):
    dtype = weights.dtype
    weights = _float(weights)
    upstream = _drop(_float(upstream), key, rate)
    mean = ops.sum(upstream * weights, axis=-1, keepdims=True)
    return ops.cast(weights * (upstream - mean), dtype)


def softmax_dropout(
    scores: Tensor, *, key: Tensor | None = None, rate: float = 0.0
) -> Tensor:
    """dropout(softmax(scores)) over the last axis.

    The softmax itself is left to the backend (oneDNN's is three times as fast
    as XLA's on a CPU).

    Args:
        scores: [B, H, Q, T] in the compute dtype, masked places at -1e30.
        key: [2] uint32, or None for inference.
        rate: dropout share.

    Returns:
        [B, H, Q, T] in the dtype of `scores`.
    """
    if key is None:
        return ops.softmax(scores, axis=-1)

    @ops.custom_gradient
    def function(scores):
        # The reshape states a shape that kernels do not tell the graph.
        scores = ops.reshape(scores, scores.shape)
        weights = ops.softmax(scores, axis=-1)

        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            return _softmax_drop_grad(upstream, weights, key, rate=rate)

        if not rate:
            return weights, grad
        return _drop_weights(weights, key, rate=rate), grad

    return function(scores)


# ---------------------------------------------- scores over the vocabulary


@compiled
def _log_sum_and_rivals(scores, highest, positive):
    """[N, V], [N], [N] -> log sum exp [N], scores at least as high [N]."""
    total = ops.sum(ops.exp(scores - highest[:, None]), axis=1)
    as_high = ops.greater_equal(scores, positive[:, None])
    rivals = ops.sum(ops.cast(as_high, _F32), axis=1) - 1.0
    return highest + ops.log(total), rivals


@compiled
def _scores_grad(scores, targets, log_sum, d_positive, d_log_sum, *, dtype):
    columns = ops.arange(scores.shape[1], dtype='int32')
    own = ops.equal(columns, targets[:, None])
    total = ops.exp(scores - log_sum[:, None]) * d_log_sum[:, None]
    return ops.cast(total + ops.where(own, d_positive[:, None], 0.0), dtype)


def vocabulary_scores(
    states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    dtype: str = _F32,
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores states against every row of a table, reading [N, V] once each way.

    Args:
        states: [N, D] float32.
        table: [V, D] float32.
        bias: [V] float32, or None.
        targets: [N] int32, each state's own row.
        dtype: in which the gradient's products are computed; the scores
            themselves are float32 always.
        key: None runs plain operations.

    Returns:
        The target's score [N]; log sum exp of all scores [N]; how many other
        rows score at least as high as the target [N], which has no gradient.
    """

    def score(states, table, bias):
        scores = ops.matmul(states, ops.transpose(table))  # [N, V]
        if bias:
            scores = scores + bias[0]
        positive = ops.take_along_axis(scores, targets[:, None], axis=1)
        return scores, positive[:, 0]

    if key is None:
        scores, positive = score(states, table, () if bias is None else (bias,))
        as_high = ops.cast(ops.greater_equal(scores, positive[:, None]), _F32)
        return (
            positive,
            ops.logsumexp(scores, axis=1),
            ops.stop_gradient(ops.sum(as_high, axis=1) - 1.0),
        )

    @ops.custom_gradient
    def function(states, table, *bias):
        scores, positive = score(states, table, bias)
        log_sum, rivals = _log_sum_and_rivals(
            scores, ops.max(scores, axis=1), positive
        )

        def grad(*args, upstream=None):
            d_positive, d_log_sum, _ = _many(args, upstream)
            total = _scores_grad(
                scores, targets, log_sum, d_positive, d_log_sum, dtype=dtype
            )
            d_states = ops.matmul(total, ops.cast(table, dtype))
            d_table = ops.matmul(ops.transpose(total), ops.cast(states, dtype))
            d_bias = [_float(ops.sum(total, axis=0)) for _ in bias]
            return _float(d_states), _float(d_table), *d_bias

        return (positive, log_sum, rivals), grad

    given = () if bias is None else (_read(bias),)
    return function(states, _read(table), *given)
