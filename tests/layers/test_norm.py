"""Layer norm and residual sums."""

import functools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import norm
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
)

NORM = {'x': (B, T, D), 'gamma': (D,), 'beta': (D,)}
ADD = {'x': (B, T, D), 'bias': (D,), 'residual': (B, T, D)}
ADD_NORM = {**ADD, 'gamma': (D,), 'beta': (D,)}


def add_norm(inputs, key, rate=0.0):
    extra = {'bias': None, 'beta': None, **inputs, 'rms': 'beta' not in inputs}
    return [norm.add_norm(**extra, epsilon=EPSILON, key=key, rate=rate)]


def add_norm_masked(inputs, rate):
    x = drop(inputs['x'] + inputs.get('bias', 0.0), rate)
    return add_norm({**inputs, 'x': x, 'bias': tf.zeros(D)}, None)


def add(inputs, key, rate=0.0):
    return [norm.add(**{'bias': None, **inputs}, key=key, rate=rate)]


def add_masked(inputs, rate):
    x = drop(inputs['x'] + inputs.get('bias', 0.0), rate)
    return [inputs['residual'] + x]


def run_norm(inputs, key, rate=0.0, rms=False):
    dtype = inputs['x'].dtype.name
    return [
        norm.norm(
            **{'beta': None, **inputs},
            epsilon=EPSILON,
            dtype=dtype,
            key=key,
            rate=rate,
            rms=rms,
        )
    ]


OperationTest = operation_test({
    'norm': dropping(NORM, run_norm),
    'norm_without_beta': dropping(
        {name: NORM[name] for name in NORM if name != 'beta'}, run_norm
    ),
    'rms': dropping(
        {name: NORM[name] for name in NORM if name != 'beta'},
        functools.partial(run_norm, rms=True),
    ),
    'add_norm': Operation(ADD_NORM, add_norm, add_norm_masked),
    'add_rms': Operation(
        {name: ADD_NORM[name] for name in ADD_NORM if name != 'beta'},
        add_norm,
        add_norm_masked,
    ),
    'add_norm_only': Operation(
        {name: ADD_NORM[name] for name in ADD_NORM if name != 'bias'},
        add_norm,
        add_norm_masked,
    ),
    'add': Operation(ADD, add, add_masked),
    'add_only': Operation(
        {name: ADD[name] for name in ADD if name != 'bias'}, add, add_masked
    ),
})


class NormTest(parameterized.TestCase):
    def test_norm_written_out(self):
        x = [[1.0, 2.0, 3.0, 6.0]]  # mean 3, variance 3.5
        gamma, beta = [1.0, 2.0, 1.0, -1.0], [0.0, 1.0, 5.0, 0.0]
        expected = [
            [
                -2 / math.sqrt(4),
                1 - 2 / math.sqrt(4),
                5.0,
                -3 / math.sqrt(4),
            ]
        ]
        for key in (None, KEY):
            y = norm.norm(
                tf.constant(x),
                tf.constant(gamma),
                tf.constant(beta),
                epsilon=0.5,
                dtype='float32',
                key=key,
            )
            np.testing.assert_allclose(y, expected, atol=1e-6)

    @parameterized.parameters((None,), (KEY,))
    def test_rms_norm_written_out(self, key):
        """The mean square of 1, 2, 3, 6 is 12.5."""
        x = [[1.0, 2.0, 3.0, 6.0]]
        y = norm.norm(
            tf.constant(x), tf.constant([1.0, 2.0, 1.0, -1.0]), None,
            epsilon=3.5, dtype='float32', key=key, rms=True,
        )  # fmt: skip
        np.testing.assert_allclose(y, [[0.25, 1.0, 0.75, -1.5]], atol=1e-6)
