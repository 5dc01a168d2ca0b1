"""One block of BERT's Transformer (Devlin et al. 2019): post-norm.

Glossary of shapes: B batch, T tokens, Q places, D width, F inner width.
"""

from typing import Any

import keras
from keras import ops

from infoword_tf.layers import dropout, fused
from infoword_tf.layers.attention import Attention, project

Tensor = Any


class Block(keras.layers.Layer):
    """x = norm(x + attention(x)); x = norm(x + feed_forward(x))."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        rate: float,
        gelu: str,
        epsilon: float,
        dtype: Any = None,
        name: str = 'block',
    ):
        """Args: as `encoders.transformer.Transformer`, hidden is F."""
        super().__init__(dtype=dtype, name=name)
        self.width, self.hidden, self.rate = width, hidden, rate
        self.gelu, self.epsilon = gelu, epsilon
        self.attention = Attention(width, heads, rate, dtype=dtype)

    def build(self) -> None:
        """Makes the weights."""
        self.attention.build()
        self.attention_bias = vector(self, 'attention_bias', self.width)
        make_feed_forward(self, self.width, self.hidden)
        self.built = True

    def call(
        self,
        x: Tensor,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        """Runs the block, for all tokens or at some places only.

        Args:
            x: [B, T, D].
            allowed: [B, 1, T, T] bool, where a token may look; None: anywhere.
            places: [B, Q] int32: only these states are wanted (the others
                still serve as keys and values). None: all.
            key: [2] uint32, or None for inference.

        Returns:
            [B, T or Q, D].
        """
        keys = [None] * 3 if key is None else [
            dropout.fold_in(key, site) for site in range(3)
        ]
        asking, residual = None, x
        if places is not None:
            asking = residual = take(x, places)
            if allowed is not None:
                allowed = ops.take_along_axis(
                    allowed, places[:, None, :, None], axis=2
                )
        mixed = self.attention(x, allowed, asking, key=keys[0])
        x = fused.add_norm(
            mixed,
            self.attention_bias,
            residual,
            self.attention_gamma,
            self.attention_beta,
            epsilon=self.epsilon,
            key=keys[1],
            rate=self.rate,
        )
        inner = fused.bias_gelu(
            project(x, self.inner_kernel),
            self.inner_bias,
            form=self.gelu,
            key=key,
        )  # [B, Q, F]
        return fused.add_norm(
            project(inner, self.outer_kernel),
            self.outer_bias,
            x,
            self.outer_gamma,
            self.outer_beta,
            epsilon=self.epsilon,
            key=keys[2],
            rate=self.rate,
        )


def vector(
    layer: keras.layers.Layer, name: str, size: int, initializer: str = 'zeros'
) -> keras.Variable:
    """A weight [size] of a layer that stays float32: a bias, or of a norm."""
    return layer.add_weight(
        shape=(size,), initializer=initializer, name=name, autocast=False
    )


def make_feed_forward(
    layer: keras.layers.Layer, width: int, hidden: int
) -> None:
    """Makes what a post-norm block has behind its attention, D and F wide."""
    d, f = width, hidden
    layer.attention_gamma = vector(layer, 'attention_norm_gamma', d, 'ones')
    layer.attention_beta = vector(layer, 'attention_norm_beta', d)
    layer.inner_kernel = layer.add_weight(shape=(d, f), name='inner_kernel')
    layer.inner_bias = vector(layer, 'inner_bias', f)
    layer.outer_kernel = layer.add_weight(shape=(f, d), name='outer_kernel')
    layer.outer_bias = vector(layer, 'outer_bias', d)
    layer.outer_gamma = vector(layer, 'outer_norm_gamma', d, 'ones')
    layer.outer_beta = vector(layer, 'outer_norm_beta', d)


def take(x: Tensor, places: Tensor) -> Tensor:
    """Rows of each sequence: x [B, T, D], places [B, Q] -> [B, Q, D]."""
    b, t = ops.shape(x)[0], ops.shape(x)[1]
    flat = places + t * ops.arange(b, dtype=places.dtype)[:, None]  # [B, Q]
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), flat, axis=0)
