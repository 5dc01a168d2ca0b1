"""Norms, residual sums, biases and activations."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import pointwise
from infoword_tf.layers.pointwise import Norm
from tests.layers.operations import (
    EPSILON,
    KEY,
    B,
    D,
    Operation,
    T,
    drop,
    dropping,
    operation_test,
    value_and_gradients,
)

NORM = {'x': (B, T, D), 'gamma': (D,), 'beta': (D,)}
ADD = {'x': (B, T, D), 'bias': (D,), 'residual': (B, T, D)}
ADD_NORM = {**ADD, 'gamma': (D,), 'beta': (D,)}


def add_norm(inputs, key, rate=0.0):
    inputs = {'bias': None, 'beta': None, **inputs}
    x, bias, residual, gamma, beta = (
        inputs[name] for name in ('x', 'bias', 'residual', 'gamma', 'beta')
    )
    norm = Norm(gamma, beta, EPSILON, rms=beta is None)
    return [pointwise.add_norm(x, bias, residual, norm, key=key, rate=rate)]


def add_norm_masked(inputs, rate):
    x = drop(inputs['x'] + inputs.get('bias', 0.0), rate)
    return add_norm({**inputs, 'x': x, 'bias': tf.zeros(D)}, None)


def add(inputs, key, rate=0.0):
    return [pointwise.add(**{'bias': None, **inputs}, key=key, rate=rate)]


def add_masked(inputs, rate):
    x = drop(inputs['x'] + inputs.get('bias', 0.0), rate)
    return [inputs['residual'] + x]


def run_norm(inputs, key, rate=0.0, rms=False):
    dtype = inputs['x'].dtype.name
    norm = Norm(inputs['gamma'], inputs.get('beta'), EPSILON, rms)
    x = inputs['x']
    return [pointwise.norm(x, norm, dtype=dtype, key=key, rate=rate)]


def formed(function, shapes, form, **more):
    def run(inputs, key, rate=0.0):
        return [function(**inputs, **more, form=form, key=key, rate=rate)]

    return dropping(shapes, run)


def without(name, shapes):
    return {other: shape for other, shape in shapes.items() if other != name}


X = {'x': (B, T, D)}
OperationTest = operation_test({
    'norm': dropping(NORM, run_norm),
    'norm_without_beta': dropping(without('beta', NORM), run_norm),
    'rms': dropping(
        without('beta', NORM), functools.partial(run_norm, rms=True)
    ),
    'add_norm': Operation(ADD_NORM, add_norm, add_norm_masked),
    'add_rms': Operation(without('beta', ADD_NORM), add_norm, add_norm_masked),
    'add_norm_only': Operation(
        without('bias', ADD_NORM), add_norm, add_norm_masked
    ),
    'add': Operation(ADD, add, add_masked),
    'add_only': Operation(without('bias', ADD), add, add_masked),
    **{
        form: formed(pointwise.bias_gelu, {**X, 'bias': (D,)}, form)
        for form in pointwise.FORMS
    },
    **{
        f'gated_{form}': formed(pointwise.gated, {'x': (B, T, 2 * D)}, form)
        for form in pointwise.FORMS
    },
    'unbiased': formed(pointwise.bias_gelu, X, 'gelu_erf', bias=None),
})


class NormTest(parameterized.TestCase):
    @parameterized.parameters((None,), (KEY,))
    def test_norms_written_out(self, key):
        """Of 1, 2, 3, 6: the mean 3, the variance 3.5, the mean square 12.5."""
        x = tf.constant([[1.0, 2.0, 3.0, 6.0]])
        gamma = tf.constant([1.0, 2.0, 1.0, -1.0])
        beta = tf.constant([0.0, 1.0, 5.0, 0.0])
        for norm, expected in (
            (Norm(gamma, beta, 0.5), [-1.0, 0.0, 5.0, -1.5]),
            (Norm(gamma, None, 3.5, rms=True), [0.25, 1.0, 0.75, -1.5]),
        ):
            y = pointwise.norm(x, norm, dtype='float32', key=key)
            np.testing.assert_allclose(y, [expected], atol=1e-6)


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
        y = pointwise.bias_gelu(
            tf.constant([[-2.0, 0.5, 3.0]]),
            tf.constant([1.0, -1.0, 1.0]),
            form='relu',
            key=key,
        )
        np.testing.assert_array_equal(y, [[0.0, 0.0, 4.0]])

    @parameterized.product(form=tuple(VALUES), key=(None, KEY))
    def test_values(self, form, key):
        x = tf.constant(self.X)[None]
        y = pointwise.bias_gelu(x, tf.zeros(7), form=form, key=key)
        np.testing.assert_allclose(
            y[0], self.VALUES[form], rtol=1e-6, atol=2e-7
        )
        shifted = pointwise.bias_gelu(
            x - 0.25, tf.fill([7], 0.25), form=form, key=key
        )
        np.testing.assert_allclose(shifted, y, atol=1e-6)

    @parameterized.product(form=tuple(VALUES), key=(None, KEY))
    def test_the_second_half_is_the_gate(self, form, key):
        x = np.concatenate([self.X, np.arange(7.0)])[None].astype('f')
        y = pointwise.gated(tf.constant(x), form=form, key=key)
        np.testing.assert_allclose(
            y[0], np.arange(7) * self.VALUES[form], rtol=1e-6, atol=2e-6
        )

    @parameterized.parameters(*((form,) for form in VALUES))
    def test_far_out_it_is_relu_with_a_finite_slope(self, form):
        inputs = {'x': tf.constant([[-60.0, 60.0]]), 'bias': tf.zeros(2)}
        for key in (None, KEY):
            (y,), gradients = value_and_gradients(
                lambda i, key=key: [
                    pointwise.bias_gelu(*i.values(), form=form, key=key)
                ],
                inputs,
            )
            np.testing.assert_allclose(y, [[0.0, 60.0]], atol=1e-6)
            weights = np.random.default_rng(99).standard_normal((1, 2))
            np.testing.assert_allclose(
                gradients['x'], weights * [0, 1], atol=1e-6
            )
