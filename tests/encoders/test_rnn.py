"""The recurrent encoder: direction, memory, and places."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.encoders import Inputs
from tests.encoders import calls
from tests.encoders.calls import KEY, make_ids

D, B, T = 8, 3, 9
make_encoder = functools.partial(calls.make, 'rnn')


class RnnTest(parameterized.TestCase):
    def test_is_layers_of_keras(self):
        encoder, ids = make_encoder(), make_ids(B, T)
        x = tf.gather(encoder.embedding_table.value, ids) * D**0.5
        layers = [x]
        for block in encoder.blocks:
            theirs = keras.layers.LSTM(D, return_sequences=True)
            theirs.build((B, T, D))
            w, b, u = (weight.numpy() for weight in block.weights)
            theirs.set_weights([w, u, b + np.repeat([0, 1, 0, 0], D)])
            layers.append(theirs(layers[-1]))
        for key in (None, KEY):
            actual = encoder(Inputs(ids), key=key, all_layers=True)
            self.assertLen(actual.layers, 3)
            for mine, other in zip(actual.layers, layers, strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5)
            np.testing.assert_allclose(actual.states, layers[-1], atol=1e-5)
            self.assertIsNone(actual.state)
        below = encoder(Inputs(ids), all_layers='below').layers
        self.assertLen(below, 2)
