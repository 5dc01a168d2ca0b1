"""The projector of DiffCSE against NumPy, and the texts of its norms."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from infoword_tf.layers.projector import Projector
from tests.objectives.eq1 import drawn

N, D = 7, 6


def normed(x, by):
    """Subtracts the mean of `by` and divides by its deviation."""
    return (x - by.mean(0)) / np.sqrt(by.var(0) + 1e-5)


class ProjectorTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(1)
        self.layer = drawn(Projector(D), 0)
        self.x, self.other = random.standard_normal((2, N, D)).astype('f')

    def written_out(self, x, by):
        """Linear, norm, ReLU, linear, norm without an affine part."""
        layer = self.layer
        kernel, gamma, beta, outer = (
            np.array(w, np.float64)
            for w in (layer.kernel, layer.gamma, layer.beta, layer.outer_kernel)
        )

        def inner(x, by):
            return np.maximum(normed(x @ kernel, by @ kernel) * gamma + beta, 0)

        return normed(inner(x, by) @ outer, inner(by, by) @ outer)

    def test_texts_that_are_none_count_nowhere(self):
        """Padding counts neither in means nor in gradients."""
        weights = np.array([1, 0, 1, 1, 0, 1, 1], np.float32)
        real = weights > 0
        gradients = []
        for wild in (1.0, 1e4):
            x = np.where(real[:, None], self.x, wild * self.x)
            with tf.GradientTape() as tape:
                actual, _ = self.layer(x, weights, gather=lambda y: y)
                loss = tf.reduce_sum(actual[real] * self.other[real])
            gradients.append(tape.gradient(loss, self.layer.kernel.value))
            np.testing.assert_allclose(
                actual[real], self.written_out(self.x[real], self.x[real]),
                atol=1e-4,
            )  # fmt: skip
        np.testing.assert_allclose(*gradients, atol=1e-3)

    def test_moments_of_other_texts(self):
        """Moments of other texts norm any number of texts."""
        one = np.ones(N, np.float32)
        _, moments = self.layer(self.other, one, gather=lambda y: y)
        expected = self.written_out(self.x, self.other)
        for part in (slice(0, N), slice(2, 3)):
            actual, again = self.layer(
                self.x[part], one[part], gather=lambda y: y, moments=moments
            )
            np.testing.assert_allclose(actual, expected[part], atol=1e-4)
            self.assertIs(again[0][0], moments[0][0])
