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
        places = np.int32([[3, 3], [0, 39], [1, 2], [5, 4], [7, 8]])
        at_places = expected[np.arange(5)[:, None], places]
        for more, states in (
            ({}, expected), ({'key': KEY}, expected),
            ({'places': places}, at_places),
        ):  # fmt: skip
            actual = run(encoder, IDS, all_layers=True, **more)
            np.testing.assert_array_equal(actual.states, states)
            # Of layers there are all states, whatever the places.
            np.testing.assert_array_equal(actual.layers, [expected])
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
