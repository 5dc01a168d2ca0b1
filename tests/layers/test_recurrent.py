"""Recurrence against Keras' own layers, and its gradients against autodiff."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import recurrent
from infoword_tf.layers.recurrent import Recurrent
from tests import eager
from tests.refused import refused

B, T, F, D, H = 3, 7, 5, 4, 6
KEY = eager.new_key(3)
KERAS = {
    'lstm': keras.layers.LSTM,
    'gru': keras.layers.GRU,
    'plain': keras.layers.SimpleRNN,
}
WAYS = {
    'lstm': ('lstm', None, None),
    'gru': ('gru', None, None),
    'plain': ('plain', None, None),
    'clipped': ('lstm', None, 0.3),
    'projected': ('lstm', H, 0.3),
}


def random(*shape, seed=0, scale=1.0):
    drawn = scale * np.random.default_rng(seed).standard_normal(shape)
    return drawn.astype(np.float32)


def make(cell, cells=None, clip=None, **arguments):
    layer = Recurrent(cell, D, cells, clip, **arguments)
    layer.build(F)
    for i, weight in enumerate(layer.weights):
        weight.assign(random(*weight.shape, seed=i, scale=0.7))
    return layer


def make_state(layer, seed=5):
    return {
        name: tf.constant(random(*x.shape, seed=seed + i, scale=0.5))
        for i, (name, x) in enumerate(layer.empty_state(B).items())
    }


def make_keep():
    """Sequences 0 and 2 restart, the latter at the first token."""
    keep = np.ones((T, B, 1), np.float32)
    keep[3, 0] = keep[0, 2] = 0
    return tf.constant(keep)


class ParityTest(parameterized.TestCase):
    @parameterized.product(
        cell=list(KERAS), backward=[False, True], key=[None, KEY]
    )
    def test_keras(self, cell, backward, key):
        layer = make(cell, backward=backward)
        theirs = KERAS[cell](
            D,
            return_sequences=True,
            return_state=True,
            go_backwards=backward,
        )
        theirs.build((B, T, F))
        mine = {weight.name: weight.numpy() for weight in layer.weights}
        bias = mine['input_bias']
        if cell == 'lstm':
            bias = bias + np.repeat([0, 1, 0, 0], D)  # the forget gate's
        if cell == 'gru':
            bias = np.stack([bias, mine['state_bias']])
        theirs.set_weights([mine['input_kernel'], mine['state_kernel'], bias])
        x, state = tf.constant(random(B, T, F)), make_state(layer)
        expected, *last = theirs(x, initial_state=list(state.values()))
        if backward:
            expected = expected[:, ::-1]
        actual, new = layer(x, state, key=key)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        for a, b in zip(new.values(), last, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)

    def test_projection_and_clips_by_hand(self):
        """Sak et al. 2014 as TensorFlow 1's `LSTMCell`, which bilm uses."""
        layer = make('lstm', H, 0.3)
        x = random(B, T, F)
        w, b, u, p = (weight.numpy() for weight in layer.weights)
        state = make_state(layer)
        h, c = (x.numpy() for x in state.values())

        def sigmoid(x):
            return 1 / (1 + np.exp(-x))

        states = []
        for t in range(T):
            i, f, g, o = np.split(x[:, t] @ w + h @ u + b, 4, axis=1)
            c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
            c = np.clip(c, -0.3, 0.3)
            h = np.clip(sigmoid(o) * np.tanh(c) @ p, -0.3, 0.3)
            states.append(h)
        expected = np.stack(states, axis=1)
        self.assertGreater((np.abs(expected) == np.float32(0.3)).sum(), 0)
        for key in (None, KEY):
            actual, new = layer(tf.constant(x), state, key=key)
            np.testing.assert_allclose(actual, expected, atol=1e-5)
            np.testing.assert_allclose(new['hidden'], h, atol=1e-5)
            np.testing.assert_allclose(new['cells'], c, atol=1e-5)


class GradientTest(parameterized.TestCase):
    @parameterized.product(
        way=list(WAYS), backward=[False, True], small=[0, 2**20]
    )
    def test_by_hand_is_that_of_plain_operations(self, way, backward, small):
        """Compares one kernel, and many in a loop."""
        self.enterContext(mock.patch.object(recurrent, 'SMALL', small))
        layer = make(*WAYS[way], backward=backward)
        x, state = tf.constant(random(B, T, F)), make_state(layer)
        values, actual = [x, *(w.value for w in layer.weights)], []
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(x)
                states, _ = layer(x, state, make_keep(), key)
                total = tf.reduce_sum(states**3)
            actual.append(tape.gradient(total, values))
        for plain, fused in zip(*actual, strict=True):
            scale = np.abs(plain).max()
            self.assertGreater(scale, 1e-4)
            np.testing.assert_allclose(fused, plain, 0, 1e-5 * max(1, scale))

    def test_no_gradient_enters_the_state(self):
        layer = make('lstm')
        x, state = tf.constant(random(B, T, F)), make_state(layer)
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(x)
                _, new = layer(x, state, key=key)
                loss = sum(tf.reduce_sum(a) for a in new.values())
            self.assertIsNone(tape.gradient(loss, x))


class StateTest(parameterized.TestCase):
    @parameterized.product(way=list(WAYS), backward=[False, True],
                           key=[None, KEY])
    def test_a_row_begins_anew(self, way, backward, key):
        layer = make(*WAYS[way], backward=backward)
        x, keep = tf.constant(random(B, T, F)), np.ones((T, B, 1), 'float32')
        cut = 3
        keep[cut] = 0
        actual, _ = layer(x, keep=tf.constant(keep), key=key)
        # The token that forgets is the first of what is read from there on.
        split = cut + 1 if backward else cut
        parts = [layer(part, key=key)[0] for part in (x[:, :split],
                                                      x[:, split:])]
        np.testing.assert_allclose(actual, tf.concat(parts, axis=1), atol=1e-6)

    def test_what_it_cannot_be(self):
        with refused('unknown_cell', 'lstm, gru, plain', 'rnn'):
            Recurrent('rnn', D)
        with refused('cell_without_projection', 'gru'):
            Recurrent('gru', D, H)
