"""A band of attention equals a mask over all scores."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import band
from infoword_tf.layers.attention import mix
from tests.layers.operations import KEY

B, H, E = 2, 3, 4


def drawn(length, seed=0):
    random = np.random.default_rng(seed)
    return [
        tf.constant(random.standard_normal((B, H, length, E)), tf.float32)
        for _ in range(3)
    ]


class MaskTest(absltest.TestCase):
    def test_near_written_out(self):
        np.testing.assert_array_equal(
            band.near(6, 2)[0, 0],
            np.array([
                [1, 1, 1, 0, 0, 0],
                [1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 0],
                [0, 1, 1, 1, 1, 1],
                [0, 0, 1, 1, 1, 1],
                [0, 0, 0, 1, 1, 1],
            ], bool),
        )  # fmt: skip

    def test_chunks_written_out(self):
        """5 tokens, 2 on each side: 3 chunks of 2, the last one half full."""
        np.testing.assert_array_equal(
            band._within(5, 2),
            np.array([
                [[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]],
                [[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0]],
                [[1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0]],
            ], bool),
        )  # fmt: skip

    def test_where_it_is_worth_it(self):
        self.assertTrue(band.worth(257, 64))
        self.assertFalse(band.worth(256, 64))
        self.assertFalse(band.worth(None, 64))
        self.assertFalse(band.worth(tf.constant(4096), 64))


class BandTest(parameterized.TestCase):
    @parameterized.product(
        length=(1, 4, 12, 13, 31), reach=(1, 3, 5), blocks=(False, True),
        key=(None, KEY),
    )  # fmt: skip
    def test_values_and_gradients_are_those_of_the_mask(
        self, length, reach, blocks, key
    ):
        qkv = drawn(length)
        allowed, block_ids = band.near(length, reach), None
        if blocks:
            random = np.random.default_rng(length)
            block_ids = np.sort(random.integers(0, 3, (B, length)), axis=1)
            block_ids = tf.constant(block_ids, tf.int32)
            same_block = (
                block_ids[:, None, :, None] == block_ids[:, None, None, :]
            )
            allowed = tf.logical_and(same_block, allowed)
        weights = np.random.default_rng(7).standard_normal(qkv[0].shape)
        actual = []
        for function in (
            lambda *x: band.mixed(*x, block_ids, reach=reach, key=key),
            lambda *x: mix(*x, allowed, key=key),
        ):
            with tf.GradientTape() as tape:
                tape.watch(qkv)
                mixed = function(*qkv)
                total = tf.reduce_sum(mixed * weights.astype('f'))
            actual.append([mixed, *tape.gradient(total, qkv)])
        for one, two in zip(*actual, strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=2e-6)

    def test_dropout_takes_a_share_of_the_weights(self):
        q, k, _ = drawn(400)
        ones = tf.ones_like(q)
        mixed = band.mixed(q, k, ones, None, reach=50, key=KEY, rate=0.25)
        self.assertAlmostEqual(float(tf.reduce_mean(mixed)), 1.0, delta=0.02)
        self.assertGreater(float(tf.math.reduce_std(mixed)), 0.02)

    def test_of_unknown_batch(self):
        """Only T is known, as in a graph for texts of one length."""
        function = tf.function(
            lambda q, k, v: band.mixed(q, k, v, None, reach=3),
            input_signature=[tf.TensorSpec((None, H, 13, E))] * 3,
        )
        qkv = drawn(13)
        np.testing.assert_allclose(
            function(*qkv), mix(*qkv, band.near(13, 3)), atol=2e-6
        )
