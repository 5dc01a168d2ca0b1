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
SCORES_AT_ONCE = 2**25  # numbers, 128 MiB of float32; see `vocabulary_scores`


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


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., D] + bias [D] in float32; without a bias x alone."""
    return _float(x) if bias is None else _float(x) + bias


@compiled
def _add_norm(x, bias, residual, gamma, beta, key, *, rate, epsilon):
    total = _float(residual) + _drop(_plus(x, bias), key, rate)
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
    bias: Tensor | None,
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
        bias: [D] float32, or None.
        gamma, beta: [D] float32.
        epsilon: added to the variance.
        key: [2] uint32, or None for inference.
        rate: dropout share.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        normalised, _ = _normalise(_float(residual) + _plus(x, bias), epsilon)
        return ops.cast(normalised * gamma + beta, x.dtype)

    @ops.custom_gradient
    def function(x, residual, gamma, beta, *bias):
        y, normalised, inverse = _add_norm(
            x,
            bias[0] if bias else None,
            residual,
            gamma,
            beta,
            key,
            rate=rate,
            epsilon=epsilon,
        )

        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            x, total, product = _add_norm_grad(
                upstream, normalised, inverse, gamma, key, rate=rate
            )
            return (
                x,
                total,
                _sum_rows(product),
                _sum_rows(upstream),
                *[_sum_rows(x) for _ in bias],
            )

        return y, grad

    given = () if bias is None else (_read(bias),)
    return function(x, residual, _read(gamma), _read(beta), *given)


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


# -------------------------------------------------------------------- dropout


@compiled
def _dropped(x, key, *, rate):
    return ops.cast(_drop(_float(x), key, rate), x.dtype)


def drop(x: Tensor, *, key: Tensor | None = None, rate: float = 0.0) -> Tensor:
    """dropout(x) alone: x [..., D] in any dtype, of which the result is.

    Args:
        x: of a static shape where a key is given.
        key: [2] uint32, or None for inference.
        rate: dropout share.
    """
    if key is None or not rate:
        return x

    @ops.custom_gradient
    def function(x):
        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            return _dropped(upstream, key, rate=rate)

        return _dropped(x, key, rate=rate), grad

    return function(x)


# ----------------------------------------------------------- bias + activation


def _tanh_part(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return ops.tanh(inner)


def _gelu(x: Tensor, form: str) -> Tensor:
    """x [...] float32. 'tanh' is Google's BERT, 'erf' Hugging Face's."""
    if form == 'relu':
        return ops.maximum(x, 0.0)
    if form == 'tanh':
        return 0.5 * x * (1.0 + _tanh_part(x))
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_slope(x: Tensor, form: str) -> Tensor:
    if form == 'relu':
        return ops.cast(ops.greater(x, 0.0), _F32)
    if form == 'tanh':
        t = _tanh_part(x)
        inner = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
    density = ops.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    return 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5))) + x * density


@compiled
def _bias_gelu(x, bias, key, *, form, rate):
    y = _gelu(_float(x) + bias, form)
    return ops.cast(_drop(y, key, rate), x.dtype)


@compiled
def _bias_gelu_grad(upstream, x, bias, key, *, form, rate):
    slope = _gelu_slope(_float(x) + bias, form)
    return ops.cast(_drop(_float(upstream), key, rate) * slope, x.dtype)


def bias_gelu(
    x: Tensor,
    bias: Tensor,
    *,
    form: str,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """dropout(GELU(x + bias)) (Hendrycks and Gimpel 2016), or ReLU for GELU.

    Args:
        x: [..., D] in the compute dtype.
        bias: [D] float32.
        form: 'tanh', 'erf' or 'relu'.
        key: [2] uint32, or None for inference.
        rate: dropout share, 0 in BERT.

    Returns:
        [..., D] in x's dtype.
    """
    if key is None:
        return ops.cast(_gelu(_float(x) + bias, form), x.dtype)

    @ops.custom_gradient
    def function(x, bias):
        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            total = _bias_gelu_grad(
                upstream, x, bias, key, form=form, rate=rate
            )
            return total, _sum_rows(total)

        return _bias_gelu(x, bias, key, form=form, rate=rate), grad

    return function(x, _read(bias))


# ----------------------------------------------------------------- attention


@compiled
def _heads(x, bias, *, heads, parts):
    b, t, width = x.shape
    y = ops.cast(_plus(x, bias), x.dtype)
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
    bias: Tensor | None,
    *,
    heads: int,
    parts: int,
    key: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Adds the bias to joined projections and parts them into heads.

    Args:
        x: [B, T, n D], n projections side by side, in the compute dtype.
        bias: [n D] float32, or None.
        heads: H.
        parts: n.
        key: None runs plain operations (and allows a dynamic B and T).

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        length, width = ops.shape(x)[1], x.shape[-1] // parts
        split = ops.split(ops.cast(_plus(x, bias), x.dtype), parts, axis=-1)
        shape = (-1, length, heads, width // heads)
        return tuple(
            ops.transpose(ops.reshape(part, shape), (0, 2, 1, 3))
            for part in split
        )

    @ops.custom_gradient
    def function(x, *bias):
        def grad(*args, upstream=None):
            total = _heads_grad(_many(args, upstream))
            return total, *[_sum_rows(total) for _ in bias]

        given = bias[0] if bias else None
        return _heads(x, given, heads=heads, parts=parts), grad

    return function(x, *(() if bias is None else (_read(bias),)))


@compiled
def _queries(x, content_bias, position_bias, signs, *, heads, blocks):
    return _queries_plain(x, content_bias, position_bias, signs, heads, blocks)


def _queries_plain(x, content_bias, position_bias, signs, heads, blocks):
    length, width = x.shape[1] or ops.shape(x)[1], x.shape[-1]
    e, y = width // heads, _float(x)

    def parted(bias):
        return ops.reshape(y + bias, (-1, length, heads, e))

    content = ops.transpose(parted(content_bias), (0, 2, 1, 3))
    position = parted(position_bias)
    if signs is not None:
        signs = _float(signs)[:, None, None, None]
        position = ops.concatenate([position, signs * position], axis=-1)
    n = position.shape[-1]
    position = ops.reshape(position, (-1, blocks, length // blocks, heads, n))
    position = ops.transpose(position, (3, 1, 0, 2, 4))
    return (
        ops.cast(content, x.dtype),
        ops.cast(ops.reshape(position, (heads, blocks, -1, n)), x.dtype),
    )


@compiled
def _queries_grad(content, position, signs):
    b, heads, length, e = content.shape
    dtype, (_, blocks, _, n) = content.dtype, position.shape
    content = ops.transpose(_float(content), (0, 2, 1, 3))  # [B, Q, H, E]
    position = ops.reshape(
        _float(position), (heads, blocks, b, length // blocks, n)
    )
    position = ops.transpose(position, (2, 1, 3, 0, 4))
    position = ops.reshape(position, (b, length, heads, n))
    if signs is not None:
        signs = _float(signs)[:, None, None, None]
        position = position[..., :e] + signs * position[..., e:]
    return tuple(
        ops.cast(ops.reshape(x, (b, length, heads * e)), dtype)
        for x in (content + position, content, position)
    )


def split_queries(
    x: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    signs: Tensor | None = None,
    *,
    heads: int,
    blocks: int = 1,
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The two queries of relative attention: q + u and q + v, by head.

    Args:
        x: [B, Q, D], q of all heads, in the compute dtype.
        content_bias, position_bias: [D] float32, u and v.
        signs: [B], 1 or -1; the position's query is then there twice, side by
            side, the second one times its sign. None: once.
        heads: H.
        blocks: n, a divisor of Q: runs of tokens that `relative_scores` wants
            apart.
        key: None runs plain operations (and allows a dynamic B and Q).

    Returns:
        [B, H, Q, E]; [H, n, B Q / n, E or 2 E], the rows of a block together.
    """
    if key is None:
        return _queries_plain(
            x, content_bias, position_bias, signs, heads, blocks
        )

    @ops.custom_gradient
    def function(x, content_bias, position_bias):
        def grad(*args, upstream=None):
            total, content, position = _queries_grad(
                *_many(args, upstream), signs
            )
            return total, _sum_rows(content), _sum_rows(position)

        found = _queries(
            x, content_bias, position_bias, signs, heads=heads, blocks=blocks
        )
        return found, grad

    return function(x, content_bias, position_bias)


def _by_key(x, places, batch, length, keys):
    """[H, n, B Q / n, N] by distance -> [B, H, Q, K] by key.

    Without places each row begins one column earlier than the row above, so
    that what a block of t rows wants lies N - 1 numbers apart, t numbers in.
    """
    heads, blocks, _, n = x.shape
    n = n or ops.shape(x)[-1]
    if places is None:
        t = length // blocks
        x = ops.reshape(x, (heads, blocks, -1, t * n))[..., t:]
        x = ops.reshape(x, (heads, blocks, -1, t, n - 1))[..., :keys]
        x = ops.transpose(x, (2, 0, 1, 3, 4))
        return ops.reshape(x, (-1, heads, length, keys))
    asking = places.shape[1] or ops.shape(places)[1]
    columns = length - places[..., None] + ops.arange(keys, dtype='int32')
    columns = ops.minimum(columns, n - 1)[:, None]  # [B, 1, Q, K]
    rows = _rows(heads, batch, asking)  # [H, B, Q, 1]
    rows = ops.transpose(rows, (1, 0, 2, 3))
    return ops.take(ops.reshape(x, (-1,)), rows * n + columns)


def _rows(*shape):
    """[..., 1] int32: 0, 1, 2, ..."""
    size = functools.reduce(lambda x, y: x * y, shape)
    return ops.reshape(ops.arange(size, dtype='int32'), (*shape, 1))


def _by_distance(x, places, length, blocks, n):
    """Gradient of `_by_key`: [B, H, Q, K] -> [H, n, B Q / n, N], all static."""
    b, heads, asking, keys = x.shape
    if places is None:
        t = length // blocks
        x = ops.reshape(x, (b, heads, blocks, t, keys))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.pad(x, ((0, 0),) * 4 + ((0, n - 1 - keys),))
        x = ops.reshape(x, (heads, blocks, b, t * (n - 1)))
        x = ops.pad(x, ((0, 0),) * 3 + ((t, 0),))
        return ops.reshape(x, (heads, blocks, b * t, n))
    columns = ops.arange(n, dtype='int32') - length + places[..., None]
    inside = (columns >= 0) & (columns < keys)  # [B, Q, N]
    columns = ops.clip(columns, 0, keys - 1)
    rows = ops.transpose(_rows(b, heads, asking), (1, 0, 2, 3))  # [H, B, Q, 1]
    found = ops.take(ops.reshape(x, (-1,)), rows * keys + columns)
    found = ops.where(inside, found, ops.cast(0, x.dtype))
    return ops.reshape(found, (heads, 1, b * asking, n))


def _relative_plain(
    content, position, segment, different, allowed, places, length
):
    keys = content.shape[-1] or ops.shape(content)[-1]
    batch = content.shape[0] or ops.shape(content)[0]
    total = _float(content)
    total = total + _float(_by_key(position, places, batch, length, keys))
    if segment is not None:
        total = total + ops.where(different, segment[..., None], 0.0)
    if allowed is not None:
        # Not -inf: a row without any place would be NaN.
        total = ops.where(allowed, total, -1e30)
    return ops.cast(total, content.dtype)


_relative = compiled(_relative_plain)


@compiled
def _relative_grad(upstream, different, places, *, length, blocks, n):
    segment = None
    if different is not None:
        own = ops.where(different, _float(upstream), 0.0)
        segment = ops.sum(own, axis=-1)
    return _by_distance(upstream, places, length, blocks, n), segment


def relative_scores(
    content: Tensor,
    position: Tensor,
    segment: Tensor | None = None,
    *,
    different: Tensor | None = None,
    allowed: Tensor | None = None,
    places: Tensor | None = None,
    length: Any,
    key: Tensor | None = None,
) -> Tensor:
    """Sums the parts of a relative score (Dai et al. 2019, §3.3) and masks.

    What is as large as all scores is read once and written once. The position
    part comes by distance, as one product makes it, and goes to its keys on
    the way: of a token at i the columns T - i, T - i + 1, ... belong to keys
    0, 1, ... (K of them, K - T of which are memory). Where all tokens ask,
    the rows of a block of t = T / n tokens need K + t columns only, those of
    its first row beginning at t; a single block is the usual case.

    Args:
        content: [B, H, Q, K] in the compute dtype, (q + u) k.
        position: [H, n, B Q / n, N] in the compute dtype, (q + v) r: with one
            block distance K in column 0, K - 1, ... down to 1 - T or less far
            where later keys are not allowed.
        segment: [B, H, Q] float32, added where key and query differ; or None.
        different: [B, 1, Q, K] bool, goes with `segment`.
        allowed: [B or 1, 1, Q or 1, K] bool, True where attention is allowed;
            None where all is. The gradient is right where what is not allowed
            has a weight of 0: rows without any place are not to be used.
        places: [B, Q] int32 of the tokens that ask, n = 1; None: all T, in
            order.
        length: T.
        key: None runs plain operations.

    Returns:
        [B, H, Q, K] in the compute dtype, masked places at -1e30.
    """
    if key is None:
        return _relative_plain(
            content, position, segment, different, allowed, places, length
        )

    @ops.custom_gradient
    def function(content, position, *segment):
        scores = _relative(
            content,
            position,
            segment[0] if segment else None,
            different,
            allowed,
            places,
            length,
        )

        def grad(*args, upstream=None):
            (upstream,) = _many(args, upstream)
            by_distance, by_segment = _relative_grad(
                upstream,
                different if segment else None,
                places,
                length=length,
                blocks=position.shape[1],
                n=position.shape[-1],
            )
            return upstream, by_distance, *[by_segment for _ in segment]

        return scores, grad

    return function(content, position, *(() if segment is None else (segment,)))


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

    Beyond `SCORES_AT_ONCE` scores the states are taken in chunks, one after
    the other, and the backward pass makes their scores again: the same
    numbers, in memory that does not grow with N.

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

    given = () if bias is None else (_read(bias),)
    size = states.shape[0]
    if size is not None and size * table.shape[0] > SCORES_AT_ONCE:
        return _chunked_scores(states, table, given, targets, dtype, key)

    def score(states, table, bias):
        return _score(states, table, bias, targets)

    if key is None:
        scores, positive = score(states, table, given)
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

    return function(states, _read(table), *given)


def _score(states, table, bias, targets):
    """[N, D], [V, D], a tuple of [V] or nothing -> [N, V], [N]."""
    scores = ops.matmul(states, ops.transpose(table))
    if bias:
        scores = scores + bias[0]
    positive = ops.take_along_axis(scores, targets[:, None], axis=1)
    return scores, positive[:, 0]


def _chunked_scores(states, table, bias, targets, dtype, key):
    """`vocabulary_scores` in chunks of rows; `scan` runs one at a time."""
    summarise, slope = _log_sum_and_rivals, _scores_grad
    if key is None:
        summarise, slope = summarise.__wrapped__, slope.__wrapped__
    size, width = states.shape
    chunks = -(-size * table.shape[0] // SCORES_AT_ONCE)
    chunks = min(chunks, size)
    rows = -(-size // chunks)
    numbers = ops.arange(chunks, dtype='int32')

    def parted(x):
        """[N, ...] -> [chunks, rows, ...], zeros behind."""
        behind = ((0, chunks * rows - size),) + ((0, 0),) * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, behind), (chunks, rows, *x.shape[1:]))

    def whole(x):
        return ops.reshape(x, (-1, *x.shape[2:]))[:size]

    @ops.custom_gradient
    def function(states, table, *bias):
        def forward(carry, chunk):
            scores, positive = _score(chunk[0], table, bias, chunk[1])
            log_sum, rivals = summarise(
                scores, ops.max(scores, axis=1), positive
            )
            return (found := (positive, log_sum, rivals)), found

        nothing = (ops.zeros((rows,), _F32),) * 3
        _, found = ops.scan(
            forward, nothing, (parted(states), parted(targets))
        )
        positive, log_sum, rivals = map(whole, found)

        def grad(*args, upstream=None):
            d_positive, d_log_sum, _ = _many(args, upstream)

            def backward(carry, chunk):
                d_states, d_table, *d_bias = carry
                number, x, targets, log_sum, *upstream = chunk
                scores, _ = _score(x, table, bias, targets)
                total = slope(scores, targets, log_sum, *upstream, dtype=dtype)
                here = ops.equal(numbers, number)[:, None, None]
                d_x = _float(ops.matmul(total, ops.cast(table, dtype)))
                d_states = ops.where(here, d_x[None], d_states)
                d_table = d_table + _float(
                    ops.matmul(ops.transpose(total), ops.cast(x, dtype))
                )
                d_bias = [d + _float(ops.sum(total, axis=0)) for d in d_bias]
                return (d_states, d_table, *d_bias), None

            nothing = (
                ops.zeros((chunks, rows, width), _F32),
                ops.zeros(table.shape, _F32),
                *(ops.zeros(b.shape, _F32) for b in bias),
            )
            given = (states, targets, log_sum, d_positive, d_log_sum)
            (d_states, *rest), _ = ops.scan(
                backward, nothing, (numbers, *map(parted, given))
            )
            return whole(d_states), *rest

        return (positive, log_sum, rivals), grad

    return function(states, _read(table), *bias)
