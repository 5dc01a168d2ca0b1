"""Scores of states: perhaps a dense layer, and columns."""

from typing import Any

from infoword_tf.layers import dropout, pointwise
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.dense import ACTIVATIONS
from infoword_tf.layers.pointwise import Norm
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

NO_POOLER = 'none'
# Activations of a dense layer, in layers.dense.ACTIVATIONS; with the suffix
# NORM a norm follows, and neither has a bias.
NORM = '_norm'
POOLERS = ('tanh', 'relu', 'gelu', f'gelu{NORM}')


class Scored:
    """A layer that scores states.

    Attributes:
        encoder: the one whose states are scored.
        pooler: NO_POOLER, or a name in POOLERS.
    """

    encoder: Any
    pooler: str

    @property
    def columns(self) -> int:
        """C."""
        return 1

    @property
    def input_width(self) -> int:
        """Width of the states."""
        return self.encoder.width

    def make_scores(self) -> None:
        """Makes the weights."""
        self.make_pooler()
        self.kernel = table(self, 'kernel', self.input_width, self.columns)
        self.bias = vector(self, 'bias', self.columns)

    def make_pooler(self) -> None:
        """Makes the weights of the dense layer that `pooler` names."""
        d = self.input_width
        if self.pooler == NO_POOLER:
            return
        self.pooler_kernel = table(self, 'pooler_kernel', d, d)
        if self.pooler.endswith(NORM):
            self.pooler_gamma = vector(self, 'pooler_norm_gamma', d, 'ones')
        else:
            self.pooler_bias = vector(self, 'pooler_bias', d)

    def class_scores(
        self, states: Tensor, key: Tensor | None = None
    ) -> Tensor:
        """Scores classes: states [..., D] -> [..., C] float32.

        Args:
            states: `input_width` numbers each.
            key: [2] uint32 of dropout, or None for inference.
        """
        x = self.pooled(states, key)
        x = dropout.drop(x, key=key, rate=self.encoder.arguments['rate'])
        return ops.matmul(x, self.kernel) + self.bias

    def pooled(self, states: Tensor, key: Tensor | None = None) -> Tensor:
        """Applies the dense layer that `pooler` names: [..., D] to float32."""
        x = ops.cast(states, 'float32')
        if self.pooler == NO_POOLER:
            return x
        x = ops.matmul(x, self.pooler_kernel)
        if not self.pooler.endswith(NORM):
            x = x + self.pooler_bias
        x = ACTIVATIONS[self.pooler.removesuffix(NORM)](x)
        if self.pooler.endswith(NORM):
            epsilon = self.encoder.arguments.get('epsilon', 1e-5)
            scale = Norm(self.pooler_gamma, None, epsilon)
            x = pointwise.norm(x, scale, dtype='float32', key=key)
        return x


class PairScore(Scored, Layer):
    """The score of a pair of texts that are encoded as one."""

    def __init__(self, encoder: Any, pooler: str, name: str = 'cross'):
        """Sets the encoder, and a dense layer of POOLERS or NO_POOLER."""
        super().__init__(name=name)
        self.encoder, self.pooler = encoder, pooler

    def build(self) -> None:
        """Makes the weights."""
        self.make_scores()

    def scores(self, states: Tensor, key: Tensor | None = None) -> Tensor:
        """Scores pairs: [..., D] -> [...] float32; as of `class_scores`."""
        return self.class_scores(states, key)[..., 0]
