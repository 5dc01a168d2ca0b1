"""One block of a Transformer: attention, then a feed-forward, each with norm.

Post-norm as in BERT (Vaswani et al. 2017, §3.1; Devlin et al. 2019) or
pre-norm as in GPT-2 (Radford et al. 2019, §2.3; Xiong et al. 2020).

Glossary of shapes: B batch, T tokens, Q places, D width, F inner width.
"""

from collections.abc import Callable, Sequence
from typing import Any

from infoword_tf.layers import activation, dropout, norm
from infoword_tf.layers.attention import Attention, matrix, project, vector
from infoword_tf.lazy import Layer, ops

Tensor = Any


class Sized(Layer):
    """A block with attention of the kind `attends`, and a feed-forward."""

    attends: Callable[..., Layer]

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
            heads: H, a divisor of D.
            inner_width: F, of the feed-forward.
            rate: of dropout, of attention weights and of both sums.
            activation: in `activation.FORMS`.
            epsilon: of both norms.
            **more: what this kind of attention takes besides.
        """
        super().__init__(dtype=dtype, name=name)
        self.width, self.inner_width, self.rate = width, inner_width, rate
        self.form, self.epsilon = activation, epsilon
        self.attention = self.attends(width, heads, rate, **more, dtype=dtype)

    def normalized(
        self, x: Tensor, gamma: Tensor, beta: Tensor | None, key: Tensor | None
    ) -> Tensor:
        """[..., D] -> the same, normalised: nothing is dropped."""
        return norm.norm(
            x, gamma, beta,
            epsilon=self.epsilon, dtype=self.compute_dtype, key=key,
        )  # fmt: skip


class Block(Sized):
    """Post-norm: x = norm(x + attention(x)); x = norm(x + feed_forward(x)).

    Pre-norm: x = x + attention(norm(x)); x = x + feed_forward(norm(x)). Its
    states are not normalised; an encoder does so after its last block. Both
    have the same weights; `attention_norm` and `outer_norm` stand after
    attention and feed-forward, or before them.
    """

    attends = Attention

    def __init__(self, *sizes: Any, pre_norm: bool = False, **more: Any):
        """Args: as `Sized`; whether norms come before what they are for."""
        super().__init__(*sizes, **more)
        self.pre_norm = pre_norm

    def build(self) -> None:
        """Makes the weights."""
        self.attention.build()
        self.attention_bias = vector(self, 'attention_bias', self.width)
        make_feed_forward(self, self.width, self.inner_width)
        self.built = True

    def call(
        self,
        x: Tensor,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Runs the block, for all tokens or at some places only.

        Args:
            x: [B, T, D]; without a key also its rows [B T, D], which makes
                fewer operations.
            allowed: [B or 1, 1, T, T] bool, True where a token may attend to
                another (see `attention.causal_mask`), or numbers (see
                `attention.as_numbers`); None: everywhere.
            places: [B, Q] int32: only these states are wanted (the others
                still serve as keys and values). None: all.
            key: [2] uint32, or None for inference.
            length: T, where x is rows.

        Returns:
            [B, T or Q, D]; rows for rows, but [B, Q, D] at places.
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
            if allowed is not None:
                allowed = ops.take_along_axis(
                    allowed, places[:, None, :, None], axis=2
                )  # [B, 1, Q, T]
        mixed = self.attention(
            inputs, allowed, queries, key=keys[0], length=length
        )
        if not self.pre_norm:
            return post_norm(
                self, mixed, self.attention_bias, residual,
                (keys[1], key, keys[2]),
            )  # fmt: skip
        x = norm.add(
            mixed, self.attention_bias, residual, key=keys[1], rate=self.rate
        )
        inputs = self.normalized(x, self.outer_gamma, self.outer_beta, key)
        inner = feed_forward(self, inputs, key)
        return norm.add(inner, self.outer_bias, x, key=keys[2], rate=self.rate)


def feed_forward(
    layer: Layer, x: Tensor, key: Tensor | None, rate: float = 0.0
) -> Tensor:
    """[..., D] -> the same, without the closing bias; args as `post_norm`."""
    inner = activation.bias_gelu(
        project(x, layer.inner_kernel),
        layer.inner_bias,
        form=layer.form,
        key=key,
        rate=rate,
    )  # [..., F]
    return project(inner, layer.outer_kernel)


def post_norm(
    layer: Layer,
    mixed: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    keys: Sequence[Tensor | None],
    rate: float = 0.0,
) -> Tensor:
    """What comes after attention: norm(x + feed_forward(x)), x normed too.

    Args:
        layer: with `form`, `epsilon`, `rate` and what `make_feed_forward`
            makes.
        mixed, residual: [B, Q, D], of attention and from before it.
        bias: [D] of attention, or None.
        keys: of the first sum, of the activation and of the second sum.
        rate: of dropout after the activation.
    """
    how = {'epsilon': layer.epsilon, 'rate': layer.rate}
    scale = layer.attention_gamma, layer.attention_beta
    x = norm.add_norm(mixed, bias, residual, *scale, key=keys[0], **how)
    inner = feed_forward(layer, x, keys[1], rate)
    scale = layer.outer_gamma, layer.outer_beta
    return norm.add_norm(inner, layer.outer_bias, x, *scale, key=keys[2], **how)


def make_feed_forward(layer: Layer, d: int, f: int) -> None:
    """Makes the weights of both norms and of the feed-forward; args: D, F."""
    layer.attention_gamma = vector(layer, 'attention_norm_gamma', d, 'ones')
    layer.attention_beta = vector(layer, 'attention_norm_beta', d)
    layer.inner_kernel = matrix(layer, 'inner_kernel', d, f)
    layer.inner_bias = vector(layer, 'inner_bias', f)
    layer.outer_kernel = matrix(layer, 'outer_kernel', f, d)
    layer.outer_bias = vector(layer, 'outer_bias', d)
    layer.outer_gamma = vector(layer, 'outer_norm_gamma', d, 'ones')
    layer.outer_beta = vector(layer, 'outer_norm_beta', d)


def rows_of(table: Any, ids: Tensor) -> Tensor:
    """Rows of a weight [V, D] of which only these are read: ids [...] ->
    [..., D].

    Under TensorFlow a table that rows are written to is copied whenever it is
    read as a whole, which `ops.take` does.
    """
    value = getattr(table, 'value', table)
    if hasattr(value, '_get'):  # of several replicas the one that runs
        value = value._get()
    if hasattr(value, 'sparse_read'):
        return value.sparse_read(ids)
    return ops.take(table, ids, axis=0)


def take(x: Tensor, places: Tensor, length: Any = None) -> Tensor:
    """Rows of each sequence: x [B, T, D] (or rows [B T, D], of length T each),
    places [B, Q] int32 -> [B, Q, D].
    """
    b, t = ops.shape(places)[0], ops.shape(x)[1] if length is None else length
    flat = places + t * ops.arange(b, dtype=places.dtype)[:, None]  # [B, Q]
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), flat, axis=0)


def put(x: Tensor, states: Tensor, places: Tensor) -> Tensor:
    """Other states at some places: x [B, T, D] -> the same shape.

    Args:
        states: [B, P, D].
        places: [B, P] int32, none twice in a sequence; -1: nowhere.
    """
    at = ops.one_hot(places, x.shape[1], dtype=x.dtype)  # [B, P, T]
    others = 1.0 - ops.sum(at, axis=1)[..., None]
    at = ops.transpose(at, (0, 2, 1))
    return x * others + ops.matmul(at, ops.cast(states, x.dtype))
