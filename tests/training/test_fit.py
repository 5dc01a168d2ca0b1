"""What a logging step makes of a loop's counts."""

import types

import tensorflow as tf
from absl.testing import absltest

from infoword_tf.training import fit


class CountTest(absltest.TestCase):
    def test_tokens_and_padding(self):
        """Two steps of two views, 8 x 16 and 8 x 4 places."""
        spec = tf.TensorSpec
        dataset = types.SimpleNamespace(
            element_spec={
                'passage/ids': spec((8, 16), tf.int32),
                'passage/block_ids': spec((8, 16), tf.int32),
                'passage/counts/tokens': spec((8,), tf.int32),
                'several/ids': spec((8, 2, 2), tf.int32),
            }
        )
        places = fit.places_of(dataset)
        self.assertEqual(places, {'passage': 128, 'several': 32})
        values = {
            'ict/loss': 2.0,
            'passage/tokens': 150.0,
            'passage/padding': 64.0,
            'several/tokens': 20.0,
            'several/cut_sentences': 3.0,
        }
        self.assertEqual(fit.count_tokens(values, places, 2), 170)
        self.assertEqual(
            values,
            {
                'ict/loss': 2.0,
                'passage/padding': 0.25,
                'several/cut_sentences': 3.0,
                'padding': 0.2,
            },
        )


if __name__ == '__main__':
    absltest.main()
