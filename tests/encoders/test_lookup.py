"""The encoder that reads nothing but the token itself."""


import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.encoders import ENCODERS, Lookup
from infoword_tf.layers import dropout
from tests.encoders.calls import run

V, D = 30, 64
KEY = dropout.new_key(4)
IDS = np.random.default_rng(0).integers(V, size=(5, 40)).astype(np.int32)


def make_encoder(rate=0.0, dtype='float32'):
    encoder = Lookup(vocab_size=V, width=D, rate=rate, dtype=dtype)
    encoder.build()
    random = np.random.default_rng(1)
    encoder.embedding_table.assign(random.standard_normal((V, D)))
    return encoder


class LookupTest(parameterized.TestCase):
    def test_states_are_embeddings(self):
        encoder = make_encoder()
        expected = encoder.embedding_table.numpy()[IDS]
        for key in (None, KEY):
            found = run(encoder, IDS, key=key, all_layers=True)
            np.testing.assert_array_equal(found.states, expected)
            self.assertLen(found.layers, 1)
            np.testing.assert_array_equal(found.layers[0], expected)
        places = np.int32([[3, 3], [0, 39], [1, 2], [5, 4], [7, 8]])
        found = run(encoder, IDS, places=places, all_layers=True)
        np.testing.assert_array_equal(
            found.states, expected[np.arange(5)[:, None], places]
        )
        # Of layers there are all states, whatever the places.
        np.testing.assert_array_equal(found.layers[0], expected)
        self.assertEqual(
            [weight.path for weight in encoder.weights],
            ['encoder/word_embeddings'],
        )

    def test_nothing_around_a_token_changes_it(self):
        """What a view of other encoders says beside its ids is not read."""
        encoder, zeros = make_encoder(), np.zeros_like(IDS)
        given = dict.fromkeys(('positions', 'segment_ids', 'block_ids'), zeros)
        np.testing.assert_array_equal(
            run(encoder, IDS, **given).states, run(encoder, IDS).states
        )

    def test_weights_of_pieces(self):
        """The state of a piece is its embedding times its weight."""
        encoder = Lookup(vocab_size=V, width=D, rate=0.0, weighted=True)
        encoder.build()
        np.testing.assert_array_equal(encoder.piece_weights, np.ones(V))
        random = np.random.default_rng(2)
        encoder.embedding_table.assign(random.standard_normal((V, D)))
        encoder.piece_weights.assign(random.standard_normal(V))
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

    def test_dropout(self):
        """A share of single numbers, and the others are larger."""
        encoder, rate = make_encoder(rate=0.3), 0.3
        whole = encoder.embedding_table.numpy()[IDS]
        found = run(encoder, IDS, key=KEY).states.numpy()
        dropped = found == 0
        self.assertAlmostEqual(dropped.mean(), rate, delta=0.02)
        np.testing.assert_allclose(
            found[~dropped], whole[~dropped] / (1 - rate), rtol=1e-6
        )
        np.testing.assert_array_equal(run(encoder, IDS).states, whole)
        np.testing.assert_array_equal(run(encoder, IDS, key=KEY).states, found)
        other = run(encoder, IDS, key=dropout.new_key(5)).states.numpy()
        self.assertFalse(np.array_equal(other == 0, dropped))

    def test_mixed_bfloat16(self):
        encoder = make_encoder(dtype='mixed_bfloat16')
        self.assertEqual(run(encoder, IDS).states.dtype, tf.bfloat16)
        self.assertEqual(encoder.lookup(IDS).dtype, tf.float32)


class EncoderTest(parameterized.TestCase):
    """What all of them promise."""

    @parameterized.parameters(*ENCODERS)
    def test_complains_of_what_it_does_not_read(self, name):
        taken = ENCODERS[name].settings
        sizes = {k: v for k, v in (('layers', 1), ('heads', 2)) if k in taken}
        encoder = ENCODERS[name](vocab_size=V, width=D, **sizes)
        encoder.build()
        kind = type(encoder)
        self.assertEqual(encoder.depth, sizes.get('layers', 0))
        self.assertEqual(
            (encoder.width, encoder.vocab_size, encoder.max_length),
            (D, V, 512),
        )
        self.assertEqual(
            encoder.embedding_table.shape, (V, encoder.embedding_width)
        )
        for field in ('positions', 'directions'):
            if field not in encoder.input_fields:
                with self.assertRaisesRegex(
                    ValueError, f'{kind.__name__} does not read {field}; .*ids'
                ):
                    run(encoder, IDS, **{field: IDS})
        if not encoder.remembers:
            with self.assertRaisesRegex(ValueError, 'remembers nothing'):
                encoder.empty_state(2, 3)
        again = kind(**encoder.arguments)
        self.assertEqual(again.arguments, encoder.arguments)


if __name__ == '__main__':
    absltest.main()
