"""The projector over the vectors of a contrast, with norms over the batch.

Of DiffCSE (Chuang et al. 2022, §4.1, and its code), which InfoCSE took over;
SimSiam's and Barlow Twins' are alike. The statistics are those of the batch, of
all its replicas, in held-out text too: nothing of it leaves training, so no
averages are kept.

Glossary of shapes: n texts of this replica, D width.
"""

from collections.abc import Callable
from typing import Any

from infoword_tf.layers.attention import matrix, vector
from infoword_tf.lazy import Layer, ops

Tensor = Any
EPSILON = 1e-5


def batch_norm(
    x: Tensor, weights: Tensor, gather: Callable[[Tensor], Tensor]
) -> Tensor:
    """x [n, D] less its mean, over its deviation, of the global batch.

    Args:
        x: float32.
        weights: [n] float32, 0 for texts that are none.
        gather: as `Replicas.gather`.
    """

    def total(each: Tensor) -> Tensor:  # [n, D] -> [D]
        mine = ops.sum(weights[:, None] * each, axis=0, keepdims=True)
        return ops.sum(gather(mine), axis=0)

    count = ops.maximum(total(ops.ones_like(x[:, :1])), 1.0)  # [1]
    centred = x - total(x) / count
    variance = total(centred * centred) / count
    return centred * ops.rsqrt(variance + EPSILON)


class Projector(Layer):
    """norm(relu(norm(x W) gamma + beta) W'), twice as wide inside."""

    def __init__(self, width: int, name: str = 'projector'):
        """Args: D."""
        super().__init__(name=name)
        self.width = width

    def build(self) -> None:
        """Makes the weights."""
        d = self.width
        self.kernel = matrix(self, 'kernel', d, 2 * d)
        self.gamma = vector(self, 'norm_gamma', 2 * d, 'ones')
        self.beta = vector(self, 'norm_beta', 2 * d)
        self.outer_kernel = matrix(self, 'outer_kernel', 2 * d, d)
        self.built = True

    def call(
        self, x: Tensor, weights: Tensor, gather: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """[n, D] float32 -> the same; args as `batch_norm`."""
        x = ops.matmul(x, ops.convert_to_tensor(self.kernel))
        x = batch_norm(x, weights, gather) * self.gamma + self.beta
        x = ops.matmul(ops.relu(x), ops.convert_to_tensor(self.outer_kernel))
        return batch_norm(x, weights, gather)
