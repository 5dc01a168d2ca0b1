"""The scalar mix of an encoder's layers (Peters et al. 2018, "ELMo", Eq. 1).

Glossary of shapes: L layers, D width.
"""

from collections.abc import Sequence
from typing import Any

from infoword_tf.layers.attention import vector
from infoword_tf.lazy import Layer, ops

Tensor = Any


class Mix(Layer):
    """gamma sum_l softmax(s)_l h_l: l from the embeddings to the last layer.

    It begins as the mean: s are zeros, gamma is one. A constant added to all s
    changes nothing.
    """

    def __init__(self, depth: int, name: str = 'mix'):
        """Args: L, without the embeddings; first part of the paths."""
        super().__init__(name=name)
        self.depth = depth

    def build(self) -> None:
        """Makes s and gamma."""
        self.scales = vector(self, 'scales', self.depth + 1)
        self.gamma = vector(self, 'gamma', 1, 'ones')
        self.built = True

    def call(self, layers: Sequence[Tensor]) -> Tensor:
        """L + 1 times [..., D] -> [..., D] float32."""
        shares = ops.softmax(self.scales)
        mixed = sum(
            shares[i] * ops.cast(layer, 'float32')
            for i, layer in enumerate(layers)
        )
        return self.gamma * mixed
