"""Attention against loops written out."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import attention
from tests import eager

B, T, H, D = 2, 5, 3, 12
E = D // H
KEY = eager.new_key(5)


def make_layer(rate=0.0):
    layer = attention.Attention(D, H, rate)
    layer.build()
    random = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(0.4 * random.standard_normal(weight.shape))
    return layer


def make_x():
    random = np.random.default_rng(4)
    return random.standard_normal((B, T, D)).astype(np.float32)


def loops(layer, x, allowed):
    """softmax(q k / sqrt(E)) v, one number after the other, float64."""
    kernel = layer.kernel.numpy().astype(np.float64)
    bias = layer.bias.numpy().astype(np.float64)
    output = layer.output_kernel.numpy().astype(np.float64)
    x = x.astype(np.float64)
    mixed = np.zeros((B, T, D))
    for b in range(B):
        for h in range(H):
            columns = slice(h * E, (h + 1) * E)
            q, k, v = (
                x[b] @ kernel[:, i * D : (i + 1) * D][:, columns]
                + bias[i * D : (i + 1) * D][columns]
                for i in range(3)
            )
            for t in range(T):
                seen = [
                    s
                    for s in range(T)
                    if allowed is None or allowed[b, 0, t, s]
                ]
                scores = {s: q[t] @ k[s] / math.sqrt(E) for s in seen}
                highest = max(scores.values())
                weights = np.zeros(T)
                for s in seen:
                    weights[s] = math.exp(scores[s] - highest)
                weights /= weights.sum()
                for s in range(T):
                    mixed[b, t, columns] += weights[s] * v[s]
    return mixed @ output


def make_allowed():
    random = np.random.default_rng(6)
    allowed = random.random((B, 1, T, T)) < 0.6
    allowed[:, 0, np.arange(T), np.arange(T)] = True
    return allowed


class AttentionTest(parameterized.TestCase):
    @parameterized.product(key=(None, KEY), masked=(False, True))
    def test_equals_loops(self, key, masked):
        layer, x = make_layer(), make_x()
        allowed = make_allowed() if masked else None
        actual = layer(tf.constant(x), allowed, key=key)
        np.testing.assert_allclose(
            actual, loops(layer, x, allowed), rtol=0, atol=2e-6
        )

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
