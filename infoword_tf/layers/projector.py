"""A projector of contrasted vectors, with norms over the batch.

From DiffCSE (Chuang et al. 2022, §4.1, and its code), later InfoCSE; similar to
those of SimSiam and Barlow Twins. In training the moments are those of the
global batch; of held-out text those of all its texts, in whatever slices they
are read. The projector is never exported, so it keeps no moving averages.

Glossary of shapes: n texts of this replica.
"""

from collections.abc import Callable

from infoword_tf.layers.attention import matrix, vector
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

Moments = tuple[Tensor, Tensor]  # mean and variance, [1, D] or [D]
EPSILON = 1e-5


def batch_norm(
    x: Tensor,
    weights: Tensor,
    gather: Callable[[Tensor], Tensor],
    moments: Moments | None = None,
) -> tuple[Tensor, Moments]:
    """Subtracts the mean from x [n, D] and divides by the deviation.

    Args:
        x: float32.
        weights: [n] float32, 0 for padding.
        gather: joins what all replicas have, see `Replicas.gather`.
        moments: moments of other texts; None: those of the global batch.

    Returns:
        [n, D]; and the moments that were used.
    """

    def total(y: Tensor) -> Tensor:  # [n, D] -> [D]
        local = ops.sum(weights[:, None] * y, axis=0, keepdims=True)
        return ops.sum(gather(local), axis=0)

    if moments is not None:
        mean, variance = moments
        return (x - mean) * ops.rsqrt(variance + EPSILON), moments
    count = ops.maximum(total(ops.ones_like(x[:, :1])), 1.0)  # [1]
    mean = total(x) / count
    centred = x - mean
    variance = total(centred * centred) / count
    return centred * ops.rsqrt(variance + EPSILON), (mean, variance)


class Projector(Layer):
    """A projector norm(relu(norm(x W) gamma + beta) W'), 2 D wide inside."""

    def __init__(self, width: int, name: str = 'projector'):
        """Sets D."""
        super().__init__(name=name)
        self.width = width

    def build(self) -> None:
        """Makes the weights."""
        d = self.width
        self.kernel = matrix(self, 'kernel', d, 2 * d)
        self.gamma = vector(self, 'norm_gamma', 2 * d, 'ones')
        self.beta = vector(self, 'norm_beta', 2 * d)
        self.outer_kernel = matrix(self, 'outer_kernel', 2 * d, d)

    def call(
        self,
        x: Tensor,
        weights: Tensor,
        gather: Callable[[Tensor], Tensor],
        moments: tuple[Moments, Moments] | None = None,
    ) -> tuple[Tensor, tuple[Moments, Moments]]:
        """Projects x [n, D] float32; see `batch_norm`, with moments of both."""
        inner, outer = moments or (None, None)
        x = ops.matmul(x, ops.convert_to_tensor(self.kernel))
        x, inner = batch_norm(x, weights, gather, inner)
        x = ops.relu(x * self.gamma + self.beta)
        x = ops.matmul(x, ops.convert_to_tensor(self.outer_kernel))
        x, outer = batch_norm(x, weights, gather, outer)
        return x, (inner, outer)
