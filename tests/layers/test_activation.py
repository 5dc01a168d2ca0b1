"""Bias and activation."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import activation
from tests.layers.operations import (
    KEY,
    B,
    D,
    T,
    dropping,
    operation_test,
    value_and_gradients,
)


def make_operation(form):
    def run(inputs, key, rate=0.0):
        return [activation.bias_gelu(**inputs, form=form, key=key, rate=rate)]

    return dropping({'x': (B, T, D), 'bias': (D,)}, run)


def make_gated(form):
    def run(inputs, key, rate=0.0):
        return [activation.gated(**inputs, form=form, key=key, rate=rate)]

    return dropping({'x': (B, T, 2 * D)}, run)


def make_unbiased(form):
    def run(inputs, key, rate=0.0):
        return [
            activation.bias_gelu(**inputs, bias=None, form=form, key=key,
                                 rate=rate)
        ]  # fmt: skip

    return dropping({'x': (B, T, D)}, run)


OperationTest = operation_test({
    **{form: make_operation(form) for form in activation.FORMS},
    **{f'gated_{form}': make_gated(form) for form in activation.FORMS},
    'unbiased': make_unbiased('gelu_erf'),
})  # fmt: skip


class GeluTest(parameterized.TestCase):
    X = (-3.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0)
    VALUES = {
        'gelu_erf': (-0.00404969, -0.15865525, -0.15426877, 0.34573123,
                     0.84134475, 1.95449974, 2.99595031),
        'silu': (-0.14227762, -0.26894142, -0.18877033, 0.31122967,
                 0.73105858, 1.76159416, 2.85772238),
        'gelu_tanh': (-0.00363739, -0.15880801, -0.15428599, 0.34571401,
                      0.84119199, 1.95459769, 2.99636261),
    }

    @parameterized.parameters((None,), (KEY,))
    def test_relu(self, key):
        y = activation.bias_gelu(
            tf.constant([[-2.0, 0.5, 3.0]]),
            tf.constant([1.0, -1.0, 1.0]),
            form='relu',
            key=key,
        )
        np.testing.assert_array_equal(y, [[0.0, 0.0, 4.0]])

    @parameterized.product(form=tuple(VALUES), key=(None, KEY))
    def test_values(self, form, key):
        x = tf.constant(self.X)[None]
        y = activation.bias_gelu(x, tf.zeros(7), form=form, key=key)
        np.testing.assert_allclose(
            y[0], self.VALUES[form], rtol=1e-6, atol=2e-7
        )
        shifted = activation.bias_gelu(
            x - 0.25, tf.fill([7], 0.25), form=form, key=key
        )
        np.testing.assert_allclose(shifted, y, atol=1e-6)

    @parameterized.product(form=tuple(VALUES), key=(None, KEY))
    def test_the_second_half_is_the_gate(self, form, key):
        x = np.concatenate([self.X, np.arange(7.0)])[None].astype('f')
        y = activation.gated(tf.constant(x), form=form, key=key)
        np.testing.assert_allclose(
            y[0], np.arange(7) * self.VALUES[form], rtol=1e-6, atol=2e-6
        )

    @parameterized.parameters(*((form,) for form in VALUES))
    def test_far_out_it_is_relu_with_a_finite_slope(self, form):
        inputs = {'x': tf.constant([[-60.0, 60.0]]), 'bias': tf.zeros(2)}
        for key in (None, KEY):
            (y,), gradients = value_and_gradients(
                lambda i, key=key: [
                    activation.bias_gelu(*i.values(), form=form, key=key)
                ],
                inputs,
            )
            np.testing.assert_allclose(y, [[0.0, 60.0]], atol=1e-6)
            weights = np.random.default_rng(99).standard_normal((1, 2))
            np.testing.assert_allclose(
                gradients['x'], weights * [0, 1], atol=1e-6
            )
