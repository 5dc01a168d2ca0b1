"""Dropout by key: shares, independence, and numbers that may not change.

Statistics here are of fixed keys: a test passes always or never. ALPHA is the
significance at which each would reject chance.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import stats

from infoword_tf.layers import dropout
from tests.layers.operations import B, D, T, dropping, operation_test

ALPHA = 1e-4
COUNT = 1 << 18


def drop(inputs, key, rate=0.0):
    return [dropout.drop(**inputs, key=key, rate=rate)]


OperationTest = operation_test({'drop': dropping({'x': (B, T, D)}, drop)})


def numpy_mask(key, rate, shape=(COUNT,)):
    return dropout.keep_mask(key, shape, rate).numpy()


def for_each(function, numbers):
    """Maps lists of numbers [n, m] in one graph: [n, ...] uint32."""
    mapped = tf.function(
        lambda x: tf.map_fn(function, x, fn_output_signature=tf.uint32)
    )
    return mapped(tf.constant(numbers)).numpy()


class KeyTest(parameterized.TestCase):
    def test_golden_values(self):
        key = np.array([1, 2], np.uint32)
        for actual, expected in (
            (dropout.fold_in(key, 7), [3080655358, 3565137098]),
            (dropout.new_key(), [0x8E5B, 0x1D37]),
            (dropout.new_key(0), [3246474206, 3639473518]),
            (dropout.new_key(1, 2, 3), [1338416305, 1587954677]),
            (dropout.random_bits(key, (2, 3)),
             [[1605432451, 2821373520, 1285485403],
              [4221614845, 1608558082, 3849347072]]),
            (dropout.random_bits(dropout.new_key(1, 2, 3), (4,)),
             [1884636106, 2327614402, 3216890880, 1655310879]),
        ):  # fmt: skip
            np.testing.assert_array_equal(actual, expected)

    def test_low_32_bits_of_a_number_count(self):
        expected = [866405099, 3969118093]
        for number in (5, 2**32 + 5, np.int64(2**40 + 5), np.uint32(5),
                       tf.constant(2**32 + 5, tf.int64)):  # fmt: skip
            np.testing.assert_array_equal(dropout.new_key(number), expected)
        np.testing.assert_array_equal(
            dropout.new_key(-1), [4006735480, 162206384]
        )

    @parameterized.parameters(tf.int32, tf.int64, tf.uint32)
    def test_tensors_give_the_key_of_their_numbers(self, dtype):
        expected = dropout.new_key(1, 2, 3)
        numbers = [tf.constant(n, dtype) for n in (1, 2, 3)]
        np.testing.assert_array_equal(
            dropout.new_key(1, numbers[1], 3), expected
        )
        key_of = dropout.new_key
        compiled = tf.function(key_of, jit_compile=True)
        for function in (key_of, tf.function(key_of), compiled):
            np.testing.assert_array_equal(function(*numbers), expected)


class BitsTest(parameterized.TestCase):
    @parameterized.parameters(0, 1, 2, 3)
    def test_every_byte_is_uniform(self, byte):
        bits = dropout.random_bits(dropout.new_key(11), (1 << 20,)).numpy()
        counts = np.bincount((bits >> (8 * byte)) & 0xFF, minlength=256)
        self.assertGreater(stats.chisquare(counts).pvalue, ALPHA)

    def test_uniform_numbers_fill_0_to_1(self):
        """They are multiples of 2^-24, so 1 is none of them."""
        drawn = dropout.uniform(dropout.new_key(12), (1 << 16,)).numpy()
        counts, _ = np.histogram(drawn, 64, (0.0, 1.0))
        self.assertEqual(counts.sum(), 1 << 16)
        self.assertGreater(stats.chisquare(counts).pvalue, ALPHA)
        self.assertLess(drawn.max(), 1.0)
        whole = drawn.astype(np.float64) * 2**24
        np.testing.assert_array_equal(whole, np.floor(whole))

    def test_the_same_in_a_compiled_graph(self):
        key = dropout.new_key(2)
        compiled = tf.function(
            lambda k: dropout.random_bits(k, (3, 50)), jit_compile=True
        )
        np.testing.assert_array_equal(
            compiled(key), dropout.random_bits(key, (3, 50))
        )


class MaskTest(parameterized.TestCase):
    @parameterized.product(rate=(0.01, 0.1, 0.5, 0.9), seed=(0, 1, 2))
    def test_share(self, rate, seed):
        count = int(numpy_mask(dropout.new_key(seed), rate).sum())
        test = stats.binomtest(count, COUNT, 1 - rate)
        self.assertGreater(test.pvalue, ALPHA)

    def test_a_higher_rate_drops_more_of_the_same_and_rate_0_nothing(self):
        key = dropout.new_key(0)
        self.assertTrue(numpy_mask(key, 0.0).all())
        low, high = numpy_mask(key, 0.1), numpy_mask(key, 0.3)
        self.assertTrue((low | ~high).all())
        self.assertLess(high.sum(), low.sum())

    def assert_independent(self, first, second, rate):
        """Chi-square of the four joint cells, whose shares are known."""
        p = np.array([rate, 1 - rate])
        counts = np.bincount(2 * first.ravel() + second.ravel(), minlength=4)
        expected = np.outer(p, p).ravel() * first.size
        self.assertGreater(stats.chisquare(counts, expected).pvalue, ALPHA)

    @parameterized.product(
        rate=(0.1, 0.5), lag=(1, 2, 3, 16, 64, 128, 768, 4096)
    )
    def test_neighbours(self, rate, lag):
        mask = numpy_mask(dropout.new_key(3), rate, (COUNT // lag // 2, 2, lag))
        self.assert_independent(mask[:, 0], mask[:, 1], rate)

    @parameterized.product(
        rate=(0.1, 0.5),
        keys=(
            ((0, 5, 0), (0, 6, 0)),
            ((0, 5, 0), (0, 5, 1)),
            ((0, 5, 0), (1, 5, 0)),
            ((0, 5, 0), (5, 0, 0)),
            # Sites of a layer.
            ((0, 1, 0), (0, 1, 1)),
            ((0, 1, 1), (0, 1, 2)),
            ((0, 1, 0), (0, 1, 12)),
        ),
    )
    def test_steps_replicas_seeds_and_sites(self, rate, keys):
        first, second = (
            numpy_mask(dropout.new_key(*numbers), rate) for numbers in keys
        )
        self.assert_independent(first, second, rate)
