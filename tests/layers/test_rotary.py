"""Rotary positions."""


import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import attention
from infoword_tf.layers.rotary import Turn, rotate, split_turned, turns
from tests.layers.operations import KEY, B, D, H, Operation, T, operation_test

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
        far = turns(tf.constant([[0, 5, 10]]), 4, 16.0, 5.0)
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
