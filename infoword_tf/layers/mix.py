"""The scalar mix of an encoder's layers (Peters et al. 2018, "ELMo", Eq. 1)."""

from collections.abc import Sequence

from infoword_tf.layers.attention import vector
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor


class Mix(Layer):
    """A weighted mean gamma sum_l softmax(s)_l h_l of embeddings and layers.

    Initially the plain mean: s are zeros, gamma is one. A constant added to all
    s changes nothing.
    """

    def __init__(self, depth: int, name: str = 'mix'):
        """Sets L, without the embeddings, and the first part of the paths."""
        super().__init__(name=name)
        self.depth = depth

    def build(self) -> None:
        """Makes s and gamma."""
        self.scales = vector(self, 'scales', self.depth + 1)
        self.gamma = vector(self, 'gamma', 1, 'ones')

    def call(self, layers: Sequence[Tensor]) -> Tensor:
        """Maps L + 1 times [..., D] to [..., D] float32."""
        shares = ops.softmax(self.scales)
        mixed = sum(
            shares[i] * ops.cast(layer, 'float32')
            for i, layer in enumerate(layers)
        )
        return self.gamma * mixed
