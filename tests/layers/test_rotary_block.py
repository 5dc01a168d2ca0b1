"""Rotary positions; and a band of attention equals a mask over all scores."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import attention, rotary_block
from infoword_tf.layers.attention import mix
from infoword_tf.layers.rotary_block import (
    Band,
    Turn,
    band_is_faster,
    mix_near,
    near_mask,
    rotate,
    split_turned,
    turns,
)
from tests.layers.operations import KEY, B, D, H, Operation, T, operation_test

E = 4  # width of a head of a band
PLACES = np.random.default_rng(5).integers(0, 50, (B, T)).astype(np.int32)


def operation(count, turned, places=PLACES, **more):
    def run(inputs, key, rate=0.0):
        turn = turns(tf.constant(places), D // H, 100.0)
        return list(
            split_turned(
                **inputs, turn=turn, heads=H, count=count, turned=turned,
                key=key,
            )
        )  # fmt: skip

    return Operation({'x': (B, T, count * D), **more}, run)


def rotation():
    def run(inputs, key, rate=0.0):
        turn = turns(tf.constant(PLACES), D // H, 100.0)
        return [rotate(**inputs, turn=turn, key=key)]

    return Operation({'x': (B, H, T, D // H)}, run)


OperationTest = operation_test({
    'all': operation(3, 2),
    'keys_and_values': operation(2, 1),
    'queries': operation(1, 1),
    'biased': operation(3, 2, bias=(3 * D,)),
    'heads': rotation(),
    'one_row_of_places': operation(3, 2, PLACES[:1]),
})  # fmt: skip


class TurnsTest(parameterized.TestCase):
    def test_angles(self):
        """p theta^(-2 i / E): of theta 16 and E 4 the speeds are 1 and 1/4."""
        turn = turns(tf.constant([[0, 1, 2]]), 4, 16.0)
        angles = [[0, 0], [1, 0.25], [2, 0.5]]
        np.testing.assert_allclose(turn.cos[0], np.cos(angles), atol=1e-7)
        np.testing.assert_allclose(turn.sin[0], np.sin(angles), atol=1e-7)

    def test_positions_are_divided_by_a_factor(self):
        near = turns(tf.constant([[0, 1, 2]]), 4, 16.0)
        far = turns(tf.constant([[0, 5, 10]]), 4, 16.0, factor=5.0)
        np.testing.assert_allclose(far.cos, near.cos, atol=1e-6)
        np.testing.assert_allclose(far.sin, near.sin, atol=1e-6)

    @parameterized.parameters((None,), (KEY,))
    def test_planes_are_of_numbers_half_a_head_apart(self, key):
        """(1, 0) of plane 0 and (0, 1) of plane 1, by a quarter turn each."""
        quarter = Turn(tf.zeros((1, 1, 2)), tf.ones((1, 1, 2)))
        x = tf.constant([[[1.0, 0.0, 0.0, 1.0]]])
        (actual,) = split_turned(
            x, quarter, heads=1, count=1, turned=1, key=key
        )
        np.testing.assert_array_equal(actual, [[[[0, -1, 1, 0]]]])

    @parameterized.parameters((None,), (KEY,))
    def test_values_are_not_turned(self, key):
        random = np.random.default_rng(1)
        x = tf.constant(random.standard_normal((B, T, 3 * D)), tf.float32)
        turn = turns(tf.constant(PLACES), D // H, 100.0)
        how = {'heads': H, 'count': 3, 'key': key}
        q, k, v = split_turned(x, turn, turned=2, **how)
        plain_q, plain_k, plain_v = attention.split_heads(x, None, **how)
        np.testing.assert_array_equal(v, plain_v)
        for one, two in ((q, plain_q), (k, plain_k)):
            self.assertGreater(np.abs(one - two).max(), 0.5)
            np.testing.assert_allclose(  # lengths stay
                tf.norm(one, axis=-1), tf.norm(two, axis=-1), rtol=1e-5
            )


def drawn(length, seed=0):
    random = np.random.default_rng(seed)
    return [
        tf.constant(random.standard_normal((B, H, length, E)), tf.float32)
        for _ in range(3)
    ]


class MaskTest(absltest.TestCase):
    def test_near_written_out(self):
        np.testing.assert_array_equal(
            near_mask(6, 2)[0, 0],
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
            rotary_block._within(5, 2),
            np.array([
                [[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]],
                [[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0]],
                [[1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0]],
            ], bool),
        )  # fmt: skip

    def test_where_it_is_worth_it(self):
        self.assertTrue(band_is_faster(257, 64))
        self.assertFalse(band_is_faster(256, 64))
        self.assertFalse(band_is_faster(None, 64))
        self.assertFalse(band_is_faster(tf.constant(4096), 64))


class BandTest(parameterized.TestCase):
    @parameterized.product(
        length=(1, 4, 12, 13, 31), reach=(1, 3, 5), blocks=(False, True),
        key=(None, KEY),
    )  # fmt: skip
    def test_values_and_gradients_are_those_of_the_mask(
        self, length, reach, blocks, key
    ):
        qkv = drawn(length)
        allowed, block_ids = near_mask(length, reach), None
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
            lambda *x: mix_near(*x, Band(reach, block_ids), key=key),
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
        mixed = mix_near(q, k, ones, Band(50), key=KEY, rate=0.25)
        self.assertAlmostEqual(float(tf.reduce_mean(mixed)), 1.0, delta=0.02)
        self.assertGreater(float(tf.math.reduce_std(mixed)), 0.02)

    def test_of_unknown_batch(self):
        """Only T is known, as in a graph for texts of one length."""
        function = tf.function(
            lambda q, k, v: mix_near(q, k, v, Band(3)),
            input_signature=[tf.TensorSpec((None, H, 13, E))] * 3,
        )
        qkv = drawn(13)
        np.testing.assert_allclose(
            function(*qkv), mix(*qkv, near_mask(13, 3)), atol=2e-6
        )
