"""Multi-head self-attention (Vaswani et al. 2017, §3.2), joined projections.

Projections split into heads, and attention weights, are fused operations, see
`fused.py`.

Glossary of shapes: Q query tokens (all, or those at places), E width of one
head, F width of a product, n projections.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
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
from infoword_tf.lazy import Layer, Variable, change_of, dtype_of, ops, parts_of
from infoword_tf.tensors import Tensor


class Branch(NamedTuple):
    """A branch of a layer.

    Attributes:
        weights: the shares of its weights.
        number: index of the branch.
        branches: their number.
    """

    weights: tuple[Any, ...]
    number: int
    branches: int

    def share(self, mask: Tensor | None) -> Tensor | None:
        """Takes the branch's heads of a mask or bias [B or 1, 1 or H, Q, T]."""
        if self.branches == 1 or mask is None or mask.shape[1] == 1:
            return mask
        # Not ops.split: where oneDNN adds a bias within a product of batches,
        # TensorFlow 2.20 gives it the first output of that operation.
        size = mask.shape[1] // self.branches
        return mask[:, self.number * size : (self.number + 1) * size]


def summed(function: Callable[[Branch], Tensor], *weights: Any) -> Tensor:
    """Adds the results of a function of each branch of weights."""
    return functools.reduce(operator.add, map(function, _branches(*weights)))


def _branches(*weights: Any) -> list[Branch]:
    """Returns the branches of weights, the first of which is a kernel.

    One with the weights themselves, unless the kernel is replaced by `Parts`.
    """
    parts = [parts_of(weight) for weight in weights]
    if parts[0] is None:
        return [Branch(weights, 0, 1)]
    count = len(parts[0].values)
    each = zip(
        *(x.values if x else (None,) * count for x in parts), strict=True
    )
    return [Branch(share, number, count) for number, share in enumerate(each)]


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies x [..., D] by a kernel [D, F], as one product of two matrices.

    A product of three dimensions by two would compute the kernel's gradient
    for each sequence and sum them.
    """
    if len(x.shape) == 2:
        return _product(x, kernel)
    y = _product(ops.reshape(x, (-1, x.shape[-1])), kernel)
    # No -1: one of its dimensions may be 0.
    return ops.reshape(y, (*ops.shape(x)[:-1], y.shape[-1]))


def scaled(kernel: Tensor, scale: Any) -> Tensor:
    """Multiplies the columns of a kernel [..., F] by factors [F], or by one."""
    changed = change_of(kernel)
    if changed is None:
        return kernel * ops.cast(scale, kernel.dtype)
    value, b = (scaled(x, scale) for x in (changed.value, changed.b))
    return changed._replace(value=value, b=b)


def split_columns(kernel: Tensor, sizes: Any) -> list[Tensor]:
    """Splits the columns of a kernel [..., F], as `ops.split`."""
    changed = change_of(kernel)
    if changed is None:
        return ops.split(kernel, sizes, axis=-1)
    both = (split_columns(x, sizes) for x in (changed.value, changed.b))
    return [
        changed._replace(value=value, b=b)
        for value, b in zip(*both, strict=True)
    ]


def _product(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies x [n, D] by a kernel, for `project`.

    The gradients of A and B are computed without that of W + A B, which takes
    as long as the product: dA = x^T (dy B^T), dB = (x A)^T dy.
    """
    changed = change_of(kernel)
    if changed is None:
        return ops.matmul(x, kernel)

    def multiply(x: Tensor, kernel: Tensor, a: Tensor, b: Tensor) -> tuple:
        def gradient(d_y: Tensor) -> tuple[Tensor, ...]:
            d_x = ops.matmul(d_y, ops.transpose(kernel))
            d_a = ops.matmul(
                ops.transpose(x), ops.matmul(d_y, ops.transpose(b))
            )
            d_b = ops.matmul(ops.transpose(ops.matmul(x, a)), d_y)
            return d_x, ops.zeros_like(kernel), d_a, d_b

        return ops.matmul(x, kernel), gradient

    kernels = ops.stop_gradient(changed.value), changed.a, changed.b
    return with_gradient(multiply, x, *kernels)


def vector(
    layer: Layer, name: str, size: int, initializer: str = 'zeros'
) -> Variable:
    """Makes a weight [size] that stays float32: a bias, or of a norm."""
    return layer.add_weight(
        shape=(size,), initializer=initializer, dtype='float32', name=name,
        autocast=False,
    )  # fmt: skip


def matrix(layer: Layer, name: str, *shape: int) -> Variable:
    """Makes a kernel of zeros, which the model draws or reads later."""
    return layer.add_weight(shape=shape, initializer='zeros', name=name)


def table(
    layer: Layer, name: str, *shape: int, dtype: str = 'float32'
) -> Variable:
    """Makes a weight like `matrix` that stays float32."""
    return layer.add_weight(
        shape=shape, initializer='zeros', dtype=dtype, name=name,
        autocast=False,
    )  # fmt: skip


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
    bias: Tensor | None = None,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Averages values by softmax(q k + bias), q scaled; see `Attention.call`.

    Keys and values may have fewer heads than queries; each is of as many
    queries, one after another (Ainslie et al. 2023, "GQA", §2.2).

    Returns:
        [B, H, Q, E].
    """
    grouped = q.shape[1] != k.shape[1]
    if grouped:  # the queries of a key become one sequence: no key is copied
        shape, length = ops.shape(q), ops.shape(k)[2]
        times = shape[1] // k.shape[1]
        group = shape[0], k.shape[1], times * shape[2]
        q = ops.reshape(q, (*group, shape[3]))
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))  # [B, H, Q, T]
    if grouped:
        scores = ops.reshape(scores, (*shape[:3], length))
    if bias is not None:
        scores = scores + bias
    scores = masked(scores, allowed)
    weights = softmax_dropout(scores, key=key, rate=rate)
    if not grouped:
        return ops.matmul(weights, v)
    weights = ops.reshape(weights, (*group, length))
    return ops.reshape(ops.matmul(weights, v), shape)


def joined(mixed: Tensor, flat: bool = False) -> Tensor:
    """Puts heads side by side: [B, H, Q, E] -> [B, Q, D], or flat [B Q, D]."""
    width = mixed.shape[1] * mixed.shape[3]
    mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, Q, H, E]
    shape = (-1, width) if flat else (-1, ops.shape(mixed)[1], width)
    return ops.reshape(mixed, shape)


def scaled_queries(width: int, root: float, size: int) -> np.ndarray:
    """Returns factors float32: `root` for `width` weights of queries, else 1.

    Args:
        width: D.
        root: 1/sqrt(E).
        size: length of the result, 3 D where keys and values are as wide.
    """
    scale = np.ones(size, 'float32')
    scale[:width] = root
    return scale


def distance_buckets(count: int, longest: int = 128) -> np.ndarray:
    """Numbers the buckets of distances (Raffel et al. 2020, "T5", §2.1).

    The second half of the buckets is of keys after the query. In
    both halves the first half are of one distance each, the others widen by
    logarithm up to `longest`, and the last holds all longer distances too.

    Args:
        count: number of buckets, even.
        longest: more than count / 4.

    Returns:
        [2 longest + 1] int32, of the distances -longest to longest from a
        query to a key.
    """
    half, exact = count // 2, count // 4
    distances = np.arange(longest + 1, dtype='float32')
    # In float32, as the public models were trained.
    steps = np.log(np.maximum(distances, exact) / np.float32(exact))
    steps = steps / np.float32(math.log(longest / exact)) * (half - exact)
    wide = np.minimum(exact + steps.astype('int32'), half - 1)
    numbers = np.where(distances < exact, distances, wide).astype('int32')
    return np.concatenate([numbers[::-1], half + numbers[1:]])


def check_heads(width: int, heads: int) -> None:
    """Raises a ValueError if H does not divide D."""
    if width % heads:
        raise errors.InputError(
            'heads_divide_width',
            f'{heads} heads do not divide a width of {width}',
        )


class SelfAttention(Layer):
    """Weights of self-attention, without the output's bias."""

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


class Attention(SelfAttention):
    """Self-attention without the output's bias, which `add_norm` adds."""

    def call(
        self,
        x: Tensor,
        allowed: Tensor | None = None,
        queries: Tensor | None = None,
        bias: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Mixes values by softmax(q k / sqrt(E) + bias).

        Args:
            x: [B, T, D] in the compute dtype, or flattened [B T, D] without a
                key.
            allowed: [B or 1, 1 or H, T or Q, T] bool, True where a query may
                attend to a key; or numbers in the compute dtype that are added
                to the scores (`as_numbers`); None: everywhere.
            queries: [B, Q, D], states of x that attend to x; None: all of x.
            bias: [B or 1, H, T or Q, T] in the compute dtype, with a gradient;
                None: 0.
            key: [2] uint32, or None for inference.
            length: T, where x is flattened.

        Returns:
            [B, T or Q, D], without the output's bias; flattened like x.
        """
        compute = functools.partial(
            self._of_heads, x=x, allowed=allowed, queries=queries, bias=bias,
            key=key, length=length,
        )  # fmt: skip
        return summed(compute, self.kernel, self.bias, self.output_kernel)

    def _of_heads(
        self,
        branch: Branch,
        x: Tensor,
        allowed: Tensor | None,
        queries: Tensor | None,
        bias: Tensor | None,
        key: Tensor | None,
        length: Any,
    ) -> Tensor:
        """Computes `call` of the heads of a branch."""
        kernel, qkv_bias, output_kernel = branch.weights
        allowed, bias = branch.share(allowed), branch.share(bias)
        head_count, width = (
            n // branch.branches for n in (self.heads, self.width)
        )
        root = 1.0 / math.sqrt(self.width // self.heads)
        if key is not None:
            # 1/sqrt(E) goes into the query's weights, which are few numbers.
            # In inference q may be fewer, and a served graph should hold no
            # second copy of weights.
            scale = scaled_queries(width, root, 3 * width)
            kernel, qkv_bias = scaled(kernel, scale), qkv_bias * scale

        def by_head(x, kernel, bias, *, count, length=None):
            """Projects x and splits heads: `count` times [B, H, T or Q, E]."""
            return split_heads(
                project(x, kernel), bias,
                heads=head_count, count=count, key=key, length=length,
            )  # fmt: skip

        if queries is None:
            q, k, v = by_head(x, kernel, qkv_bias, count=3, length=length)
        else:
            q_kernel, kv_kernel = split_columns(kernel, [width])
            q_bias, kv_bias = ops.split(qkv_bias, [width])
            (q,) = by_head(queries, q_kernel, q_bias, count=1)
            k, v = by_head(x, kv_kernel, kv_bias, count=2, length=length)
        if key is None:
            q = q * root
        mixed = mix(q, k, v, allowed, bias=bias, key=key, rate=self.rate)
        flat = length is not None and queries is None
        return project(joined(mixed, flat), output_kernel)


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
