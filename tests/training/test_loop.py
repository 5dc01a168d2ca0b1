"""Held-out values: how many candidates every sequence is compared with."""

import math

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE, Statistics
from infoword_tf.training import loop
from tests import zoo
from tests.eager import eagerly

M = TABLE['dim'].heldout_candidates


class HeldoutTest(parameterized.TestCase):
    """Without graphs; of those, see `SummariseTest`."""

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def make(self, name, sequences, counts=None, model=None):
        """Held-out values; counts: of n-grams, by sequence."""
        # Dropout is off whatever its rate.
        model = model or zoo.make_model(name, rate=0.5)
        made = zoo.make_views(name, sequences)
        if counts is not None:
            weights = made['ngrams'].weights['dim']
            weights[:] = np.arange(weights.shape[1]) < counts[:, None]
        return made, loop.Heldout(model, made, zoo.statistics())

    def by_batch(self, heldout, row):
        """Mean ceiling and chance of every held-out batch."""
        candidates = heldout._candidates()
        index = list(heldout.model.objectives).index(row)
        for batch in heldout.batches:
            sums, _ = heldout._sums(batch, candidates, {})
            found = loop.summarise(row, sums.numpy()[index])
            yield found[f'{row}/ceiling'], found[f'{row}/chance']

    @parameterized.named_parameters(
        ('as_drawn', None),
        ('many_first', lambda n: np.where(np.arange(n) < 5, 4, 1)),
        ('many_last', lambda n: np.where(np.arange(n) < n - 5, 1, 4)),
        ('none_first', lambda n: np.where(np.arange(n) < 30, 0, 2)),
        ('uneven', lambda n: np.arange(n) % 5),
    )
    def test_every_sequence_has_as_many(self, counts):
        sequences = 192
        given = None if counts is None else counts(sequences)
        made, heldout = self.make('dim', sequences, given)
        weights = made['ngrams'].weights['dim']
        self.assertGreater(weights.sum(), M + weights.shape[1])
        batches = list(self.by_batch(heldout, 'dim'))
        self.assertLen(batches, sequences // 32)
        for ceiling, chance in batches:
            self.assertAlmostEqual(ceiling, math.log(M + 1), places=5)
            self.assertAlmostEqual(chance, 1 / (M + 1), places=7)
        found = heldout.evaluate()
        self.assertAlmostEqual(
            found['heldout/dim/ceiling'], math.log(M + 1), places=5
        )
        # No more is encoded for them than has to be.
        head = heldout.head['ngrams/weights/dim'].numpy()
        self.assertLess(head[:-1].sum(), M + weights.sum(axis=1).max())

    @parameterized.parameters(
        ('dim', 'ngrams', 40),
        ('bert_nce', 'masked', 40),
        ('bert_nce', 'masked', 147),  # two fewer than M
    )
    def test_too_few_of_them(self, row, view, sequences):
        """All there are of others, sequence by sequence."""
        made, heldout = self.make(row, sequences)
        each = made[view].weights[row].sum(axis=1)
        others = each.sum() - each
        self.assertLess(others.max(), TABLE[row].heldout_candidates)
        found = heldout.evaluate()
        self.assertAlmostEqual(
            found[f'heldout/{row}/ceiling'],
            (each * np.log(1 + others)).sum() / each.sum(),
            places=5,
        )
        self.assertAlmostEqual(
            found[f'heldout/{row}/chance'],
            (each / (1 + others)).sum() / each.sum(),
            places=6,
        )

    def test_nothing_at_all(self):
        _, heldout = self.make('dim', 40, np.zeros(40))
        for name, value in heldout.evaluate().items():
            self.assertEqual(value, 0.0, name)

    def test_rows_of_a_sum_have_as_many_as_alone(self):
        _, heldout = self.make('infoword', 192)
        found = heldout.evaluate()
        self.assertAlmostEqual(
            found['heldout/dim/ceiling'], math.log(M + 1), places=5
        )
        self.assertAlmostEqual(
            found['heldout/bert_nce/ceiling'], math.log(1025), places=5
        )
        for row, other in (('dim', 'bert_nce'), ('bert_nce', 'dim')):
            # The sum's encoder, which has more layers than that of its rows.
            model = zoo.make_model('infoword', rate=0.5)
            model.drop(other)
            _, alone = self.make(row, 192, model=model)
            for name, value in alone.evaluate().items():
                self.assertAlmostEqual(found[name], value, places=4, msg=name)

    @parameterized.parameters('bert_nce', 'mlm', 'dim', 'ict', 'transformer_xl')
    def test_dropout_is_off(self, name):
        """Whatever the rate: candidates and pairs are encoded without."""
        found = []
        for rate in (0.0, 0.5):
            model = zoo.make_model(name, rate=rate)
            made = zoo.make_views(name, 40)
            heldout = loop.Heldout(model, made, zoo.statistics())
            found.append(heldout.evaluate())
            drawn, _ = model.outcomes(
                made, zoo.statistics(), dropout.new_key(1)
            )
            found.append(float(drawn[name].loss))
        without, exact, with_rate, dropped = found
        self.assertEqual(without, with_rate)
        # There is something that could have been dropped.
        self.assertNotAlmostEqual(exact, dropped, delta=1e-3 * abs(exact))

    def test_the_ceiling_is_of_the_measured_text(self):
        """`mlm` held out: H(b) of the held-out counts, not of those trained on.
        """
        training = np.arange(zoo.V) + 1
        measured = np.zeros(zoo.V, np.int64)
        measured[zoo.FIRST : zoo.FIRST + 4] = [40, 20, 10, 10]
        entropy = 1.75 * math.log(2)
        statistics = Statistics(training, measured)
        heldout = loop.Heldout(
            zoo.make_model('mlm'), zoo.make_views('mlm', 40), statistics
        )
        found = heldout.evaluate()
        self.assertAlmostEqual(
            found['heldout/mlm/ceiling'], entropy, places=5
        )
        self.assertLess(found['heldout/mlm/mi'], entropy)
        trained = Statistics(training, training)
        p = training / training.sum()
        self.assertGreater(-(p * np.log(p)).sum(), entropy + 1)
        model = heldout.model
        outcomes, _ = model.outcomes(zoo.make_views('mlm', 40), trained)
        outcome = outcomes['mlm']
        self.assertAlmostEqual(
            float(outcome.ceiling / outcome.measured),
            -(p * np.log(p)).sum(),
            places=4,
        )


class SummariseTest(absltest.TestCase):
    def test_a_row_without_a_bound(self):
        sums = np.array([1.5, 4.0, 0.0, 0.0, 3.0, 2.0, 4.0])
        self.assertEqual(
            loop.summarise('nsp', sums),
            {'nsp/loss': 0.375, 'nsp/accuracy': 0.75, 'nsp/chance': 0.5},
        )
        self.assertEqual(
            list(loop.summarise('mlm', sums)),
            ['mlm/loss', 'mlm/mi', 'mlm/ceiling', 'mlm/accuracy',
             'mlm/chance'],
        )  # fmt: skip

    def test_candidates_of_its_own(self):
        """`nsp_nce` has 4 in held-out text too, in every batch of it."""
        model = zoo.make_model('mlm_nsp_nce', rate=0.0)
        made = zoo.make_views('mlm_nsp_nce', 40)
        heldout = loop.Heldout(model, made, zoo.statistics())
        found = heldout.evaluate()
        self.assertAlmostEqual(
            found['heldout/nsp_nce/ceiling'], math.log(4), places=5
        )
        self.assertAlmostEqual(
            found['heldout/nsp_nce/chance'], 0.25, places=6
        )
        outcomes, _ = model.outcomes(made, heldout.statistics)
        whole = loop.summarise('nsp_nce', np.array(outcomes['nsp_nce']))
        for name, value in whole.items():
            self.assertAlmostEqual(found[f'heldout/{name}'], value, places=4)


if __name__ == '__main__':
    absltest.main()
