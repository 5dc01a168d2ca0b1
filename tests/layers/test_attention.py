"""Attention against loops written out."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.layers import attention
from infoword_tf.lazy import Parts, instead
from tests import eager
from tests.objectives.eq1 import drawn

B, T, H, D = 2, 5, 3, 12
E = D // H
KEY = eager.new_key(5)


def make_layer():
    return drawn(attention.Attention(D, H, 0.0), scale=0.4)


def make_x():
    random = np.random.default_rng(4)
    return random.standard_normal((B, T, D)).astype(np.float32)


def loops(layer, x, allowed):
    """softmax(q k / sqrt(E)) v, text by text and head by head, float64."""
    x, kernel, bias, output = (
        np.asarray(a, np.float64)
        for a in (x, layer.kernel, layer.bias, layer.output_kernel)
    )
    allowed = True if allowed is None else allowed
    allowed = np.broadcast_to(allowed, (B, 1, T, T))
    mixed = np.zeros((B, T, H, E))
    for b, h in np.ndindex(B, H):
        projected = (x[b] @ kernel + bias).reshape(T, 3, H, E)
        q, k, v = np.moveaxis(projected[:, :, h], 1, 0)
        scores = np.where(allowed[b, 0], q @ k.T / math.sqrt(E), -np.inf)
        mixed[b, :, h] = special.softmax(scores, axis=1) @ v
    return mixed.reshape(B, T, D) @ output


class AttentionTest(parameterized.TestCase):
    @parameterized.parameters((None,), (KEY,))
    def test_blocked_is_below_any_score(self, key):
        """Tokens see themselves alone, with scores below -100 as well."""
        layer, x = make_layer(), make_x()
        layer.kernel.assign(30 * layer.kernel.numpy())
        allowed = np.tile(np.eye(T, dtype=bool), (B, 1, 1, 1))
        expected = loops(layer, x, allowed)
        actual = layer(tf.constant(x), allowed, key=key)
        np.testing.assert_allclose(
            actual, expected, rtol=0, atol=1e-3 * np.abs(expected).max()
        )

    @parameterized.parameters((None,), (KEY,))
    def test_a_row_that_sees_nothing_is_finite(self, key):
        layer, x = make_layer(), tf.constant(make_x())
        allowed = np.ones((B, 1, T, T), bool)
        allowed[1, 0, 2] = False
        with tf.GradientTape() as tape:
            tape.watch(x)
            actual = layer(x, allowed, key=key)
            total = tf.reduce_sum(actual**2)
        values = [x, *(w.value for w in layer.weights)]
        for gradient in tape.gradient(total, values):
            self.assertTrue(np.isfinite(gradient).all())
        # It sees all alike, then: the mean of the values.
        value = tf.matmul(x, layer.kernel[:, 2 * D :]) + layer.bias[2 * D :]
        mean = tf.reduce_mean(value[1], axis=0, keepdims=True)
        np.testing.assert_allclose(
            actual[1, 2:3], tf.matmul(mean, layer.output_kernel), atol=1e-5
        )

    def test_branches_add_up(self):
        """Each has one head, and of a mask and a bias that head's share.

        Those of the output are twice the layer's, so that they are used.
        """
        layer, x = make_layer(), tf.constant(make_x())
        random = np.random.default_rng(5)
        more = {
            'allowed': random.random((B, H, T, T)) < 0.7,
            'bias': np.float32(random.standard_normal((1, H, T, T))),
        }
        columns = np.arange(3 * D).reshape(3, H, E)
        columns = [columns[:, h].ravel() for h in range(H)]
        kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
        output = 2 * layer.output_kernel.numpy()
        shares = (
            (layer.kernel, [kernel[:, x] for x in columns]),
            (layer.bias, [bias[x] for x in columns]),
            (layer.output_kernel, np.split(output, H)),
        )
        with instead((w, Parts(tuple(values))) for w, values in shares):
            actual = layer(x, **more)
        np.testing.assert_allclose(actual, 2 * layer(x, **more), atol=1e-5)


class CausalMaskTest(absltest.TestCase):
    def test_written_out(self):
        actual = attention.causal_mask(3)
        self.assertEqual(actual.dtype, tf.bool)
        np.testing.assert_array_equal(
            actual, [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
        )


class ProjectTest(absltest.TestCase):
    def test_of_nothing(self):
        """B and T are not known, as in a served model."""
        @tf.function(
            input_signature=[tf.TensorSpec((None, None, 3), tf.float32)]
        )
        def run(x):
            return attention.project(x, tf.zeros((3, 5)))

        for shape in ((0, 2, 3), (2, 0, 3)):
            actual = run(tf.zeros(shape))
            self.assertEqual(tuple(actual.shape), (*shape[:2], 5))
