"""Scores are float32 whatever the model computes in, of every row."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE
from tests import zoo
from tests.objectives.given import F, sums

KEY = dropout.new_key(8)
# Of each row and critic once; BERT's transform is a layer, before the scores.
CASES = [
    name
    for name, case in zoo.CASES.items()
    if len(case.rows) == 1 and name not in ('mlm_transform', 'plm_strict')
    # LSTMs of a head compute as those of an encoder do.
    and not any('bilstm' in setting for setting in case.settings)
]


class PrecisionTest(parameterized.TestCase):
    def test_every_row_is_here(self):
        rows = {row for name in CASES for row in zoo.CASES[name].rows}
        self.assertEqual(rows, set(TABLE))

    @parameterized.product(name=CASES, key=(None, KEY))
    def test_of_rounded_states_the_scores_are_exact(self, name, key):
        exact = zoo.make_model(name, rate=0.0)
        mixed = zoo.make_model(name, rate=0.0, precision='mixed_bfloat16')
        made = zoo.make_views(name)
        batches, _ = mixed.batches(made, zoo.statistics(), key)
        (row,) = zoo.CASES[name].rows
        batch = batches[row]
        found = mixed.objectives[row]
        found = found.score(batch, found.candidates(batch))

        def widen(x):
            return x if x is None else tf.cast(x, tf.float32)

        def widened(batch):
            """The same states as numbers that scores are made of."""
            for by_encoder in batch.encoded.values():
                for passes in by_encoder.values():
                    for encoded in passes:
                        self.assertEqual(encoded.states.dtype, tf.bfloat16)
            return batch._replace(
                encoded={
                    view: {
                        encoder: [
                            e._replace(
                                states=widen(e.states),
                                layers=e.layers and list(map(widen, e.layers)),
                            )
                            for e in turns
                        ]
                        for encoder, turns in by_encoder.items()
                    }
                    for view, by_encoder in batch.encoded.items()
                },
                head=batch.head and widened(batch.head),
            )

        batch = widened(batch)
        expected = exact.objectives[row]
        expected = expected.score(batch, expected.candidates(batch))
        for value in [*found[:F], *found.more.values()]:
            self.assertEqual(value.dtype, tf.float32)
        np.testing.assert_allclose(
            sums(found), sums(expected), rtol=1e-6, atol=1e-5
        )


if __name__ == '__main__':
    absltest.main()
