"""Training graphs whose batch is not known when they are traced."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.encoders import ENCODERS, Inputs
from infoword_tf.layers import dropout
from infoword_tf.model import initialise
from tests import zoo

B, T = 4, 12
KEY = (3, 5)
NEAR = 1e-5  # where another graph computes the same


def encoder_of(name):
    """One of the zoo, with drawn weights and dropout."""
    encoder = ENCODERS[name](**zoo.ENCODERS[name])
    encoder.spell(zoo.SPECIALS)
    encoder.build()
    initialise({v.path: v for v in encoder.weights}, 0, encoder.width)
    return encoder


def gradients(encoder, ids, blocks, key):
    """States, and gradients of the sum of their squares."""
    with tf.GradientTape() as tape:
        states = encoder(Inputs(ids, block_ids=blocks), key=key).states
        loss = tf.reduce_sum(tf.square(tf.cast(states, tf.float32)))
    weights = [v.value for v in encoder.trainable_variables]
    found = tape.gradient(loss, weights)
    return [states, *(tf.convert_to_tensor(g) for g in found if g is not None)]


class ShapesTest(parameterized.TestCase):
    @parameterized.product(
        name=list(zoo.ENCODERS), shape=[(None, T), (None, None)]
    )
    def test_states_and_gradients_are_the_same(self, name, shape):
        """Masks too, since dropout is on; also those of some rows."""
        encoder = encoder_of(name)
        random = np.random.default_rng(0)
        ids = random.integers(zoo.FIRST, zoo.V, (B, T)).astype(np.int32)
        lengths = np.array([[T], [6], [4], [9]])
        blocks = (np.arange(T) >= lengths).astype(np.int32)
        key = dropout.of_rows(dropout.new_key(*KEY), B, B)

        def run(ids, blocks):
            return gradients(encoder, ids, blocks, key)

        spec = tf.TensorSpec(shape, tf.int32)
        known = tf.function(run, autograph=False)
        unknown = tf.function(
            run, input_signature=[spec, spec], autograph=False
        )
        given = tf.constant(ids), tf.constant(blocks)
        wanted, found = known(*given), unknown(*given)
        self.assertGreater(len(found), 1)
        for x, y in zip(wanted, found, strict=True):
            np.testing.assert_allclose(x, y, rtol=NEAR, atol=NEAR)
        # Other rows of a batch are dropped otherwise.
        dropped = gradients(encoder, *given, dropout.new_key(*KEY))
        self.assertGreater(np.abs(dropped[0] - found[0]).max(), 0.01)


if __name__ == '__main__':
    absltest.main()
