"""The recurrent encoder: direction, memory, and places."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.encoders import Inputs
from tests.encoders import calls
from tests.encoders.calls import KEY, make_ids
from tests.objectives.eq1 import EagerCase

D, B, T = 8, 3, 9
make_encoder = functools.partial(calls.make, 'rnn')


class RnnTest(EagerCase):
    @parameterized.parameters('rnn', 'elmo')
    def test_a_state_stays_float32(self, kind):
        """Where all else is bfloat16, which rounds 1 + 2^-10 to 1."""
        encoder = calls.make(kind, layers=1, dtype='mixed_bfloat16')
        ids = make_ids(B, 1)
        cells = []
        for number in (1, 1 + 2**-10):
            state = tf.nest.map_structure(
                lambda x, number=number: x + number,
                encoder.empty_state(B, 0),
            )
            new = encoder(Inputs(ids), state=state).state
            self.assertEqual({x.dtype for x in tf.nest.flatten(new)},
                             {tf.float32})  # fmt: skip
            cells.append(new['cells'])  # [L, B, ...]
        self.assertTrue((np.not_equal(*cells).mean(axis=(1, 2)) > 0.9).all())

    def test_layers(self):
        encoder, ids = make_encoder(), make_ids(B, T)
        layers = [tf.gather(encoder.embedding_table.value, ids) * D**0.5]
        for block in encoder.blocks:  # test_recurrent.py has Keras' own
            layers.append(block(layers[-1])[0])
        for key in (None, KEY):
            actual = encoder(Inputs(ids), key=key, all_layers=True)
            self.assertLen(actual.layers, 3)
            for mine, other in zip(actual.layers, layers, strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5)
            np.testing.assert_allclose(actual.states, layers[-1], atol=1e-5)
            self.assertIsNone(actual.state)
        below = encoder(Inputs(ids), all_layers='below').layers
        self.assertLen(below, 2)
