"""Projections by head, and weights of attention."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from infoword_tf.layers import attention
from tests.layers.operations import (
    KEY,
    B,
    D,
    H,
    Operation,
    T,
    dropping,
    operation_test,
)


def heads_operation(count, bias=True):
    def run(inputs, key, rate=0.0):
        extra = {'bias': None, **inputs}
        return list(
            attention.split_heads(**extra, heads=H, count=count, key=key)
        )

    shapes = {'x': (B, T, count * D)}
    if bias:
        shapes['bias'] = (count * D,)
    return Operation(shapes, run)


def softmax(inputs, key, rate=0.0):
    return [attention.softmax_dropout(**inputs, key=key, rate=rate)]


OperationTest = operation_test({
    'heads_3': heads_operation(3),
    'heads_2': heads_operation(2),
    'heads_1': heads_operation(1),
    'heads_only_2': heads_operation(2, bias=False),
    'softmax': dropping({'scores': (B, H, T, T + 2)}, softmax),
})


class SoftmaxDropoutTest(absltest.TestCase):
    def test_blocked_places_get_nothing(self):
        scores = tf.constant([[[[1.0, -1e30, 2.0], [-1e30, -1e30, -1e30]]]])
        e = math.e
        expected = [[1 / (1 + e), 0, e / (1 + e)], [1 / 3, 1 / 3, 1 / 3]]
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                weights = attention.softmax_dropout(scores, key=key)
                total = tf.reduce_sum(weights * [1.0, 2.0, 3.0])
            np.testing.assert_allclose(weights[0, 0], expected, atol=1e-6)
            gradient = tape.gradient(total, scores).numpy()
            self.assertTrue(np.isfinite(gradient).all())
            self.assertEqual(gradient[0, 0, 0, 1], 0.0)
