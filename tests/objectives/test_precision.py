"""Scores are float32 whatever the model computes in, of every row."""

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.objectives import TABLE
from tests import eager, zoo
from tests.combined import JUDGED
from tests.near import near
from tests.objectives.eq1 import EagerCase, F, sums

KEY = eager.new_key(8)
# Of each row and its settings once, over whichever encoder: of that are only
# the states. BERT's transform is a layer, before the scores.
CASES = {
    (case.objectives, *case.settings.items()): name
    for name, case in reversed(zoo.CASES.items())
    if len(case.rows) == 1
    and zoo.ROUNDED not in case.checks
    # LSTMs of a head compute as those of an encoder do.
    and not any('bilstm' in setting for setting in case.settings)
}.values()  # fmt: skip


class PrecisionTest(EagerCase):
    def test_every_row_is_here(self):
        rows = {row for name in CASES for row in zoo.CASES[name].rows}
        # What judged rows compare are scores of `simcse`.
        self.assertEqual(rows | {'infocse', *JUDGED}, set(TABLE))

    @parameterized.parameters(*CASES)
    def test_of_rounded_states_the_scores_are_exact(self, name):
        exact = zoo.make_model(name, rate=0.0)
        mixed = zoo.make_model(name, rate=0.0, precision='mixed_bfloat16')
        all_views = zoo.make_views(name)
        (row,) = zoo.CASES[name].rows
        for key in (None, KEY):
            batches, _ = mixed.batches(all_views, zoo.statistics(), key)
            batch = batches[row]
            actual = mixed.objectives[row]
            actual = actual.score(batch, actual.candidates(batch))
            batch = self.widened(batch)
            expected = exact.objectives[row]
            expected = expected.score(batch, expected.candidates(batch))
            for value in [*actual[:F], *actual.more.values()]:
                self.assertEqual(value.dtype, tf.float32)
            near(sums(actual), sums(expected), rtol=1e-6, atol=1e-5)

    def widened(self, batch):
        """The same states as numbers that scores are made of."""

        def wide(encoded):
            self.assertEqual(encoded.states.dtype, tf.bfloat16)
            layers = encoded.layers and [
                tf.cast(x, tf.float32) for x in encoded.layers
            ]
            states = tf.cast(encoded.states, tf.float32)
            return encoded._replace(states=states, layers=layers)

        encoded = {
            view: {
                encoder: list(map(wide, turns))
                for encoder, turns in by_encoder.items()
            }
            for view, by_encoder in batch.encoded.items()
        }
        head = batch.scorer_batch and self.widened(batch.scorer_batch)
        return batch._replace(encoded=encoded, scorer_batch=head)
