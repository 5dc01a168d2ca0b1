"""One block of a Transformer: attention, then a feed-forward, each with norm.

Post-norm as in BERT (Vaswani et al. 2017, §3.1; Devlin et al. 2019) or
pre-norm as in GPT-2 (Radford et al. 2019, §2.3; Xiong et al. 2020).

Glossary of shapes: P places, F inner width.
"""

from collections.abc import Callable, Sequence
from typing import Any

from infoword_tf.layers import dropout, pointwise
from infoword_tf.layers.attention import (
    Attention,
    Branch,
    matrix,
    project,
    summed,
    vector,
)
from infoword_tf.layers.pointwise import Norm
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor


class Sized(Layer):
    """A block of attention and feed-forward; the base of all kinds."""

    attends: Callable[..., Layer]  # class of the attention
    rms = False  # whether norms are RMS norms

    def __init__(
        self,
        width: int,
        heads: int,
        inner_width: int,
        rate: float,
        activation: str,
        epsilon: float,
        dtype: Any = None,
        name: str = 'block',
        **more: Any,
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            width: D.
            heads: H, a divisor of D.
            inner_width: F, of the feed-forward.
            rate: share that dropout takes of attention weights and both sums.
            activation: name in pointwise.FORMS.
            epsilon: epsilon of both norms.
            **more: arguments of this kind of attention.
        """
        super().__init__(dtype=dtype, name=name)
        self.width, self.inner_width, self.rate = width, inner_width, rate
        self.form, self.epsilon = activation, epsilon
        self.attention = self.attends(width, heads, rate, **more, dtype=dtype)

    def normalized(
        self, x: Tensor, gamma: Tensor, beta: Tensor | None, key: Tensor | None
    ) -> Tensor:
        """Normalizes x [..., D], without dropout."""
        return pointwise.norm(
            x,
            Norm(gamma, beta, self.epsilon, self.rms),
            dtype=self.compute_dtype,
            key=key,
        )


class Block(Sized):
    """A block of BERT, or with `pre_norm` of GPT-2.

    Post-norm: x = norm(x + attention(x)); x = norm(x + feed_forward(x)).
    Pre-norm: x = x + attention(norm(x)); x = x + feed_forward(norm(x)), and an
    encoder normalizes the states after its last block. Both have the same
    weights: `attention_norm` and `outer_norm` are applied after attention and
    feed-forward, or before them.
    """

    attends = Attention

    def __init__(self, *sizes: Any, pre_norm: bool = False, **more: Any):
        """Sets the sizes, as of `Sized`, and whether norms come first."""
        super().__init__(*sizes, **more)
        self.pre_norm = pre_norm

    def build(self) -> None:
        """Makes the weights."""
        self.attention.build()
        self.attention_bias = vector(self, 'attention_bias', self.width)
        make_feed_forward(self, self.width, self.inner_width)

    def call(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
        **more: Any,
    ) -> Tensor:
        """Runs the block, for all tokens or at the given places.

        Args:
            x: [B, T, D]; without a key also flattened [B T, D], which takes
                fewer operations.
            bias: [1, H, T, T] in the compute dtype, added to the scores of
                attention, with a gradient; None: 0.
            allowed: [B or 1, 1 or H, T, T] bool, True where a token may attend
                to another (see `attention.causal_mask`), or numbers (see
                `attention.as_numbers`); None: everywhere.
            places: [B, P] int32, tokens whose states are computed, from keys
                and values of all tokens; None: all.
            key: [2] uint32, or None for inference.
            length: T, where x is flattened.
            **more: arguments of this kind of attention.

        Returns:
            [B, T, D], flattened like x; or [B, P, D] at places.
        """
        keys = dropout.keys_of(key, 3)
        inputs = x
        if self.pre_norm:
            inputs = self.normalized(
                x, self.attention_gamma, self.attention_beta, key
            )
        queries, residual = None, x
        if places is not None:
            queries = residual = take(x, places, length)
            if self.pre_norm:
                queries = take(inputs, places, length)
            allowed, bias = mask_at(allowed, places), mask_at(bias, places)
        if bias is not None:
            more['bias'] = bias
        mixed = self.attention(
            inputs, allowed, queries, key=keys[0], length=length, **more
        )
        if not self.pre_norm:
            return post_norm(
                self, mixed, self.attention_bias, residual,
                keys=(keys[1], key, keys[2]),
            )  # fmt: skip
        x = pointwise.add(
            mixed, self.attention_bias, residual, key=keys[1], rate=self.rate
        )
        inputs = self.normalized(x, self.outer_gamma, self.outer_beta, key)
        inner = feed_forward(self, inputs, key)
        return pointwise.add(
            inner, self.outer_bias, x, key=keys[2], rate=self.rate
        )


def feed_forward(
    layer: Layer, x: Tensor, key: Tensor | None, rate: float = 0.0
) -> Tensor:
    """Maps [..., D] to [..., D], without the last bias; see `post_norm`."""

    def compute(branch: Branch) -> Tensor:
        kernel, bias, outer_kernel = branch.weights
        inner = pointwise.bias_gelu(
            project(x, kernel), bias, form=layer.form, key=key, rate=rate
        )  # [..., F]
        return project(inner, outer_kernel)

    return summed(
        compute, layer.inner_kernel, layer.inner_bias, layer.outer_kernel
    )


def post_norm(
    layer: Layer,
    mixed: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    keys: Sequence[Tensor | None],
    rate: float = 0.0,
) -> Tensor:
    """Finishes a post-norm block: adds, normalizes, feed-forward, the same.

    Args:
        layer: one that has `form`, `epsilon`, `rate` and the weights of
            `make_feed_forward`.
        mixed, residual: [B, T, D], result of attention and the block's input.
        bias: bias of attention, [D], or None.
        keys: keys of the first sum, of the activation and of the second sum.
        rate: share that dropout takes after the activation.
    """
    before, after = (
        Norm(gamma, beta, layer.epsilon)
        for gamma, beta in (
            (layer.attention_gamma, layer.attention_beta),
            (layer.outer_gamma, layer.outer_beta),
        )
    )
    x = pointwise.add_norm(
        mixed, bias, residual, before, key=keys[0], rate=layer.rate
    )
    y = feed_forward(layer, x, keys[1], rate)
    return pointwise.add_norm(
        y, layer.outer_bias, x, after, key=keys[2], rate=layer.rate
    )


def make_feed_forward(layer: Layer, d: int, f: int) -> None:
    """Makes the weights of both norms and of the feed-forward, from D and F."""
    layer.attention_gamma = vector(layer, 'attention_norm_gamma', d, 'ones')
    layer.attention_beta = vector(layer, 'attention_norm_beta', d)
    layer.inner_kernel = matrix(layer, 'inner_kernel', d, f)
    layer.inner_bias = vector(layer, 'inner_bias', f)
    layer.outer_kernel = matrix(layer, 'outer_kernel', f, d)
    layer.outer_bias = vector(layer, 'outer_bias', d)
    layer.outer_gamma = vector(layer, 'outer_norm_gamma', d, 'ones')
    layer.outer_beta = vector(layer, 'outer_norm_beta', d)


def read_vectors(table: Any, ids: Tensor) -> Tensor:
    """Reads vectors of a weight [V, D]: ids [...] -> [..., D].

    `ops.take` reads the whole table, and TensorFlow copies a table on reading
    if an optimizer updates single vectors of it; this reads those of `ids`.
    """
    value = getattr(table, 'value', table)
    if hasattr(value, '_get'):  # the copy of the replica that runs
        value = value._get()
    if hasattr(value, 'sparse_read'):
        return value.sparse_read(ids)
    return ops.take(table, ids, axis=0)


def take(x: Tensor, places: Tensor, length: Any = None) -> Tensor:
    """Takes states of x [B, T, D] at places [B, P] int32: [B, P, D].

    With `length` T, x may be flattened [B T, D].
    """
    b, t = ops.shape(places)[0], ops.shape(x)[1] if length is None else length
    flat = places + t * ops.arange(b, dtype=places.dtype)[:, None]  # [B, P]
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), flat, axis=0)


def mask_at(allowed: Tensor | None, places: Tensor) -> Tensor | None:
    """Takes rows of a mask or bias for queries at places [B, P] int32.

    Args:
        allowed: [B or 1, 1 or H, T, T], or None.
        places: places of the queries.

    Returns:
        [B, 1 or H, P, T], or None.
    """
    if allowed is None:
        return None
    b, h, t, _ = ops.shape(allowed)
    rows = places[:, None] + t * ops.arange(h, dtype='int32')[:, None]
    if allowed.shape[0] != 1:
        rows = rows + h * t * ops.arange(b, dtype='int32')[:, None, None]
    return ops.take(ops.reshape(allowed, (b * h * t, t)), rows, axis=0)


def put(x: Tensor, states: Tensor, places: Tensor) -> Tensor:
    """Replaces x [B, T, D] by states [B, P, D] at places [B, P] int32.

    A place occurs only once in a sequence; -1: nowhere.
    """
    at = ops.one_hot(places, x.shape[1], dtype=x.dtype)  # [B, P, T]
    others = 1.0 - ops.sum(at, axis=1)[..., None]
    at = ops.transpose(at, (0, 2, 1))
    return x * others + ops.matmul(at, ops.cast(states, x.dtype))
