"""Tests that all fused operations share: the plain form, in float32.

An `Operation` has inputs and runs in both forms; `operation_test` makes tests
that compare the fused form with the plain form and its automatic gradients.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import dropout
from tests import eager

B, T, H, D, EPSILON, RATE = 3, 5, 2, 12, 1e-6, 0.1
KEY = eager.new_key(17)
BFLOAT16 = 2.0**-8  # half a unit in the last place, relative
# Inputs in the compute dtype; others are float32.
WIDE = ('x', 'residual', 'scores', 'content', 'position', 'of_keys')


class Operation(NamedTuple):
    """One fused operation under test.

    Attributes:
        shapes: of the inputs, by name.
        run: (inputs, key, rate) -> list of results.
        masked: (inputs, rate) -> results of plain operations with the mask of
            KEY; None: the operation has no dropout.
    """

    shapes: dict[str, tuple[int, ...]]
    run: Callable[..., list[Any]]
    masked: Callable[..., list[Any]] | None = None


def drop(x, rate):
    keep = dropout.keep_mask(KEY, tuple(x.shape), rate)
    return tf.where(keep, x / (1 - rate), 0.0)


def dropping(shapes, run):
    return Operation(
        shapes, run, lambda inputs, rate: [drop(run(inputs, None)[0], rate)]
    )


def make_inputs(shapes, seed, dtype='float32'):
    random = np.random.default_rng(seed)
    return {
        key: tf.cast(
            tf.constant(
                random.standard_normal(shape) * 1.5 + (key == 'gamma'),
                tf.float32,
            ),
            dtype if key in WIDE else 'float32',
        )
        for key, shape in shapes.items()
    }


def value_and_gradients(function, inputs):
    """Returns results, and gradients of their product with fixed numbers."""
    random = np.random.default_rng(99)
    with tf.GradientTape() as tape:
        tape.watch(list(inputs.values()))
        results = function(inputs)
        total = 0.0
        for result in results:
            weights = random.standard_normal(result.shape).astype('f')
            total += tf.reduce_sum(tf.cast(result, tf.float32) * weights)
    return results, tape.gradient(total, inputs)


def normed(x, weights, name, epsilon):
    """Normalizes x [..., D] in float64, by the weights of a norm."""
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    return x * weights[f'{name}_gamma'] + weights[f'{name}_beta']


def gelu_tanh(x):
    """The GELU by tanh, as BERT's code has it."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (1 + np.tanh(inner)) / 2


def fed_forward(x, weights):
    """Runs a feed-forward with the GELU by tanh in float64."""
    x = gelu_tanh(x @ weights['inner_kernel'] + weights['inner_bias'])
    return x @ weights['outer_kernel'] + weights['outer_bias']


def assert_close(actual, expected, tolerance, what=''):
    """Asserts that values are within `tolerance` of the largest one."""
    expected = np.asarray(tf.cast(expected, tf.float64))
    np.testing.assert_allclose(
        np.asarray(tf.cast(actual, tf.float64)),
        expected,
        rtol=0,
        atol=tolerance * np.abs(expected).max(),
        err_msg=what,
    )


def operation_test(operations):
    def inputs_of(name, dtype='float32'):
        return make_inputs(operations[name].shapes, len(name), dtype)

    class OperationTest(parameterized.TestCase):
        @parameterized.product(name=list(operations))
        def test_rate_0_is_the_plain_operation(self, name):
            inputs, run = inputs_of(name), operations[name].run
            plain, plain_gradients = value_and_gradients(
                lambda i: run(i, None), inputs
            )
            actual, gradients = value_and_gradients(
                lambda i: run(i, KEY), inputs
            )
            for one, two in zip(actual, plain, strict=True):
                self.assertEqual(one.dtype, tf.float32)
                self.assertEqual(one.shape, two.shape)
                assert_close(one, two, 1e-6)
            for key, gradient in gradients.items():
                self.assertEqual(gradient.shape, inputs[key].shape)
                assert_close(gradient, plain_gradients[key], 1e-5, key)

        @parameterized.product(name=list(operations))
        def test_bfloat16(self, name):
            inputs, run = inputs_of(name, 'bfloat16'), operations[name].run
            exact = {k: tf.cast(v, tf.float32) for k, v in inputs.items()}
            expected, expected_gradients = value_and_gradients(
                lambda i: run(i, None), exact
            )
            for key in (None, KEY):
                actual, gradients = value_and_gradients(
                    lambda i, key=key: run(i, key), inputs
                )
                for one, two in zip(actual, expected, strict=True):
                    self.assertEqual(one.dtype, tf.bfloat16)
                    assert_close(one, two, 2 * BFLOAT16)
                for k, gradient in gradients.items():
                    self.assertEqual(gradient.dtype, inputs[k].dtype, k)
                    plain = expected_gradients[k]
                    assert_close(gradient, plain, 8 * BFLOAT16, k)

    droppers = [name for name in operations if operations[name].masked]
    if not droppers:
        return OperationTest

    class DroppingTest(OperationTest):
        @parameterized.product(name=droppers)
        def test_dropout_is_the_mask_of_the_key(self, name):
            inputs, operation = inputs_of(name), operations[name]
            plain, plain_gradients = value_and_gradients(
                lambda i: operation.masked(i, RATE), inputs
            )
            actual, gradients = value_and_gradients(
                lambda i: operation.run(i, KEY, RATE), inputs
            )
            assert_close(actual[0], plain[0], 1e-6)
            for key, gradient in gradients.items():
                assert_close(gradient, plain_gradients[key], 1e-5, key)
            (undropped,) = operation.run(inputs, KEY)
            moved = tf.reduce_max(abs(actual[0] - undropped))
            self.assertGreater(float(moved), 0.05)

        @parameterized.product(name=droppers)
        def test_inference_drops_nothing(self, name):
            inputs, run = inputs_of(name), operations[name].run
            (with_rate,) = run(inputs, None, RATE)
            (without,) = run(inputs, None)
            np.testing.assert_array_equal(with_rate, without)

    return DroppingTest
