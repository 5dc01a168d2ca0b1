"""A dense layer with an activation, in float32: of heads and of vectors.

Glossary of shapes: F width of the result.
"""

from collections.abc import Callable

from infoword_tf import errors
from infoword_tf.layers.attention import table, vector
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    'identity': lambda x: x,
    'tanh': lambda x: ops.tanh(x),
    'relu': lambda x: ops.relu(x),
    'gelu': lambda x: ops.gelu(x, approximate=False),
}


class Dense(Layer):
    """A dense layer: activation(x W + b)."""

    def __init__(
        self,
        width: int,
        wide: int,
        activation: str,
        bias: bool = True,
        name: str = 'dense',
    ):
        """Sets D, F, the activation's name in ACTIVATIONS, whether to add b."""
        super().__init__(name=name)
        if activation not in ACTIVATIONS:
            raise errors.InputError(
                'unknown_head_activation',
                f'activation {activation!r}: known are '
                f'{", ".join(ACTIVATIONS)}',
            )
        self.width, self.wide = width, wide
        self.activation, self.has_bias = activation, bias

    def build(self) -> None:
        """Makes the weights."""
        self.kernel = table(self, 'kernel', self.width, self.wide)
        if self.has_bias:
            self.bias = vector(self, 'bias', self.wide)

    def call(self, x: Tensor) -> Tensor:
        """Maps [B, D] to [B, F] float32."""
        x = ops.matmul(ops.cast(x, 'float32'), self.kernel)
        if self.has_bias:
            x = x + self.bias
        return ACTIVATIONS[self.activation](x)
