"""The encoder whose states are embeddings."""

import functools

import numpy as np
from absl.testing import parameterized

from infoword_tf.encoders import Lookup
from tests.encoders import calls
from tests.encoders.calls import KEY, V, make_ids, run

IDS = make_ids(5, 40)
make_encoder = functools.partial(calls.make, 'lookup', width=64)


class LookupTest(parameterized.TestCase):
    def test_states_are_embeddings(self):
        encoder = make_encoder()
        expected = encoder.embedding_table.numpy()[IDS]
        for key in (None, KEY):
            actual = run(encoder, IDS, key=key, all_layers=True)
            np.testing.assert_array_equal(actual.states, expected)
            self.assertLen(actual.layers, 1)
            np.testing.assert_array_equal(actual.layers[0], expected)
        places = np.int32([[3, 3], [0, 39], [1, 2], [5, 4], [7, 8]])
        actual = run(encoder, IDS, places=places, all_layers=True)
        np.testing.assert_array_equal(
            actual.states, expected[np.arange(5)[:, None], places]
        )
        # Of layers there are all states, whatever the places.
        np.testing.assert_array_equal(actual.layers[0], expected)
        self.assertEmpty(run(encoder, IDS).layers)

    def test_weights_of_pieces(self):
        """The state of a token is its embedding times its weight."""
        plain = Lookup(vocab_size=V, weighted=True)
        plain.build()
        np.testing.assert_array_equal(plain.piece_weights, np.ones(V))
        encoder = make_encoder(weighted=True)
        table = encoder.embedding_table.numpy()
        weights = encoder.piece_weights.numpy()
        np.testing.assert_array_equal(
            run(encoder, IDS).states, table[IDS] * weights[IDS][..., None]
        )
        # Scores of lookup rows are of the table alone.
        np.testing.assert_array_equal(encoder.lookup(IDS), table[IDS])
        self.assertEqual(
            [weight.path for weight in encoder.weights],
            ['encoder/word_embeddings', 'encoder/piece_weights'],
        )
