"""Tools of fused operations."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import fused
from tests.layers.operations import BFLOAT16, assert_close


class CompiledTest(absltest.TestCase):
    def test_is_one_kernel_of_xla(self):
        @fused.compiled
        def double(x, *, times):
            return x * times

        np.testing.assert_array_equal(double(tf.ones(3), times=2), [2, 2, 2])
        graph = tf.function(lambda x: double(x, times=2))
        graph = graph.get_concrete_function(tf.TensorSpec([3])).graph
        (call,) = (
            node for node in graph.get_operations()
            if node.type.endswith('PartitionedCall')
        )
        self.assertTrue(call.get_attr('_XlaMustCompile'))
        self.assertEqual(double.__name__, 'double')

    def test_of_each_shape_once(self):
        traced = []

        @fused.compiled
        def double(x, *, times):
            traced.append(x.shape)
            return x * times

        @tf.function(autograph=False)
        def layers(x):
            for _ in range(3):
                x = double(x, times=2)
            return x, double(x[:2], times=2)

        whole, part = layers(tf.ones(3))
        np.testing.assert_array_equal(whole, [8, 8, 8])
        np.testing.assert_array_equal(part, [16, 16])
        self.assertEqual(traced, [(3,), (2,)])
        layers(tf.ones((3, 1)))  # another graph, and shapes of its own
        self.assertEqual(traced, [(3,), (2,), (3, 1), (2, 1)])

    def test_an_operation_that_is_no_kernel_is_traced_once_too(self):
        traced = []

        @fused.traced_once
        def double(x):
            traced.append(x.shape)
            return x + x

        graph = tf.function(lambda x: double(double(x)), autograph=False)
        np.testing.assert_array_equal(graph(tf.ones(3)), [4, 4, 4])
        self.assertEqual(traced, [(3,)])
        calls = [
            node for node in graph.get_concrete_function(tf.ones(3))
            .graph.get_operations() if node.type.endswith('PartitionedCall')
        ]  # fmt: skip
        self.assertLen(calls, 2)
        for call in calls:
            self.assertRaises(ValueError, call.get_attr, '_XlaMustCompile')


class GradientTest(parameterized.TestCase):
    def test_upstream_of_each_backend(self):
        one, two = tf.zeros(1), tf.ones(2)
        for actual, expected in (
            (fused.upstream_of((one,), None), (one,)),
            (fused.upstream_of((one, two), None), (one, two)),
            (fused.upstream_of((), one), (one,)),
            (fused.upstream_of((), (one, two)), (one, two)),
            (fused.upstream_of((), [(one, two)]), (one, two)),
        ):
            self.assertLen(actual, len(expected))
            for x, y in zip(actual, expected, strict=True):
                self.assertIs(x, y)

    def test_read_is_the_value(self):
        weight = keras.Variable([1.0, 2.0])
        actual = fused.read(weight)
        self.assertIsInstance(actual, tf.Tensor)
        np.testing.assert_array_equal(actual, [1.0, 2.0])

    @parameterized.parameters('float32', 'bfloat16')
    def test_sum_rows(self, dtype):
        x = np.random.default_rng(0).standard_normal((3, 40, 5))
        x = tf.cast(tf.constant(x), dtype)
        expected = tf.reduce_sum(tf.cast(x, tf.float64), axis=(0, 1))
        actual = fused.sum_rows(x)
        self.assertEqual(actual.dtype, tf.float32)
        assert_close(actual, expected, 1e-6 if dtype == 'float32' else BFLOAT16)

    def test_plus_bias(self):
        x, bias = tf.ones((2, 3), tf.bfloat16), tf.constant([0.0, 1.0, 2.0**-9])
        actual = fused.plus_bias(x, bias)
        np.testing.assert_array_equal(actual, [[1.0, 2.0, 1 + 2.0**-9]] * 2)
        self.assertEqual(fused.plus_bias(x, None).dtype, tf.float32)
