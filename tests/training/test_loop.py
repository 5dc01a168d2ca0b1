"""Held-out values: the number of candidates of every sequence."""

import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.data.batches import HELDOUT_BATCH
from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE, Statistics
from infoword_tf.objectives.infonce import SUMS
from infoword_tf.training import loop
from infoword_tf.views.examples import by_example
from tests import zoo
from tests.objectives.eq1 import EagerCase

M = TABLE['dim'].heldout_candidates


class MeasuresTest(EagerCase):
    """Scores of the predictions for all held-out examples."""

    def test_they_get_all_in_the_order_of_examples(self):
        """120 of them, in 40 rows: two batches."""
        model = zoo.make_model('label', rate=0.5)
        views = zoo.make_views('label', 120)
        self.assertGreater(len(views['examples'].ids), HELDOUT_BATCH)
        calls = []

        def measure(predictions, view):
            calls.append((predictions, view))
            return {'answer': 42.0, 'accuracy': 0.25}

        heldout = loop.Heldout(
            model, views, zoo.statistics(), {'label': measure}
        )
        self.assertLen(heldout.batches, 2)
        actual = heldout.evaluate()
        ((predictions, view),) = calls
        self.assertEqual(set(predictions), {'scores'})
        scores = by_example(predictions['scores'], view)
        self.assertEqual(scores.shape, (120, 2))
        outcomes, _ = model.outcomes(views, zoo.statistics())
        whole = by_example(
            np.asarray(outcomes['label'].predictions['scores']), view
        )
        np.testing.assert_allclose(scores, whole, atol=1e-5)
        true = by_example(view.targets['label'], view)
        np.testing.assert_array_equal(view.sequences.max(), 119)
        # Bounds are of sums; what a measure calls by a name of theirs is its.
        loss = special.logsumexp(scores, axis=1) - scores[np.arange(120), true]
        self.assertAlmostEqual(
            actual['heldout/label/loss'], loss.mean(), places=5
        )
        self.assertEqual(actual['heldout/label/answer'], 42.0)
        self.assertEqual(actual['heldout/label/accuracy'], 0.25)


class HeldoutTest(EagerCase):
    def make(self, name, sequences, counts=None):
        """Builds views and `Heldout`; `counts`: n-grams of each sequence."""
        # Dropout is off whatever its rate.
        model = zoo.make_model(name, rate=0.5)
        views = zoo.make_views(name, sequences)
        if counts is not None:
            weights = views['ngrams'].weights['dim']
            weights[:] = np.arange(weights.shape[1]) < counts[:, None]
        return views, loop.Heldout(model, views, zoo.statistics())

    @parameterized.parameters('ict', 'simcse', 'dim')
    def test_a_text_with_nothing_to_be_told_from(self, row):
        """Has no MI of one document, which has no other, and no 0."""
        _, heldout = self.make(row, 1)
        actual = heldout.evaluate()
        self.assertIn(f'heldout/{row}/loss', actual)
        names = {name.split('/')[-1] for name in actual}
        self.assertNoCommonElements(names, ('mi', 'ceiling', 'accuracy'))

    @parameterized.parameters(*(r for r in TABLE if TABLE[r].objective.bounded))
    def test_sums_of_which_nothing_is_measured(self, row):
        """Without a pair, and with b alone; a pair of copies is measured."""
        objective = mock.Mock(bounded=True, more=())
        model = mock.Mock(objectives={row: objective})
        left = f'heldout/{row}/loss', f'heldout/{row}/log_candidates'
        for changes, expected in (
            ({}, left[:1]),
            ({'measured': 2.0}, left),
            ({'measured': 2.0, 'log_candidates': 2.0}, left),
        ):
            sums = [changes.get(name, 0.0) for name in SUMS]
            actual = loop.heldout_means(model, {row: np.array(sums)})
            self.assertCountEqual(actual, expected)
        sums = [2.0 if name != 'mi' else -1.0 for name in SUMS]
        actual = loop.heldout_means(model, {row: np.array(sums)})
        self.assertEqual(actual[f'heldout/{row}/mi'], -0.5)

    @parameterized.named_parameters(
        ('many_first', lambda n: np.where(np.arange(n) < 5, 4, 1)),
        ('many_last', lambda n: np.where(np.arange(n) < n - 5, 1, 4)),
        ('none_first', lambda n: np.where(np.arange(n) < 30, 0, 2)),
        ('uneven', lambda n: np.arange(n) % 5),
    )
    def test_every_sequence_has_as_many(self, counts):
        sequences = 192
        views, heldout = self.make('dim', sequences, counts(sequences))
        weights = views['ngrams'].weights['dim']
        self.assertGreater(weights.sum(), M + weights.shape[1])
        self.assertLen(heldout.batches, sequences // 32)
        # No pair has more of them: the mean is that of each.
        actual = heldout.evaluate()
        self.assertAlmostEqual(
            actual['heldout/dim/log_candidates'], math.log(M + 1), places=6
        )
        self.assertAlmostEqual(
            actual['heldout/dim/chance'], 1 / (M + 1), places=7
        )
        # No more is encoded for them than has to be.
        head = heldout.first_views['ngrams/weights/dim'].numpy()
        self.assertLess(head[:-1].sum(), M + weights.sum(axis=1).max())

    @parameterized.parameters(
        ('dim', 'ngrams', 40),
        ('bert_nce', 'masked', 40),
        ('bert_nce', 'masked', 147),  # two fewer than M
    )
    def test_too_few_of_them(self, row, view, sequences):
        """All there are of others, sequence by sequence."""
        views, heldout = self.make(row, sequences)
        each = views[view].weights[row].sum(axis=1)
        others = each.sum() - each
        self.assertLess(others.max(), TABLE[row].heldout_candidates)
        actual = heldout.evaluate()
        self.assertAlmostEqual(
            actual[f'heldout/{row}/log_candidates'],
            (each * np.log(1 + others)).sum() / each.sum(),
            places=5,
        )
        if row == 'dim':
            self.assertAlmostEqual(
                actual[f'heldout/{row}/chance'],
                (each / (1 + others)).sum() / each.sum(),
                places=6,
            )

    def test_the_commonest_b_of_every_row(self):
        views = zoo.make_views('mlm_nsp_nce', 40)
        masked = views['masked']
        counted = masked.weights['mlm'] * masked.measured['mlm']
        targets = masked.targets['mlm'][counted > 0]
        actual = loop.most_common_targets(views)
        self.assertEqual(actual['mlm'], np.bincount(targets).argmax())
        # A row of one pair and its own negatives to a sequence.
        self.assertIn(actual['nsp_nce'], views['negatives'].targets['nsp_nce'])

    def test_nothing_at_all(self):
        _, heldout = self.make('dim', 40, np.zeros(40))
        for name, value in heldout.evaluate().items():
            self.assertEqual(value, 0.0, name)

    def test_rows_of_a_sum_have_as_many_as_alone(self):
        _, heldout = self.make('infoword', 192)
        actual = heldout.evaluate()
        self.assertAlmostEqual(
            actual['heldout/dim/log_candidates'], math.log(M + 1), places=5
        )
        self.assertAlmostEqual(
            actual['heldout/bert_nce/log_candidates'], math.log(1025), places=5
        )

    @parameterized.parameters('bert_nce', 'mlm', 'dim', 'ict', 'transformer_xl')
    def test_dropout_is_off(self, name):
        """Whatever the rate: candidates and pairs are encoded without."""
        actual = []
        for rate in (0.0, 0.5):
            model = zoo.make_model(name, rate=rate)
            views = zoo.make_views(name, 40)
            heldout = loop.Heldout(model, views, zoo.statistics())
            actual.append(heldout.evaluate())
            drawn, _ = model.outcomes(
                views, zoo.statistics(), dropout.new_key(1)
            )
            actual.append(float(drawn[name].loss))
        without, exact, with_rate, dropped = actual
        self.assertEqual(without, with_rate)
        # There is something that could have been dropped.
        self.assertNotAlmostEqual(exact, dropped, delta=1e-3 * abs(exact))

    def test_the_ceiling_is_of_the_measured_text(self):
        """`mlm` held out: -log p of what [MASK] hides, p of the held-out text.
        """
        training = np.arange(zoo.V) + 1
        model, views = zoo.make_model('mlm'), zoo.make_views('mlm', 40)
        view = views['masked']
        hidden = view.measured['mlm'] > 0
        self.assertFalse(hidden.all())
        ceilings = []
        for counts in (zoo.statistics().measured, training):
            statistics = Statistics(training, counts)
            actual = loop.Heldout(model, views, statistics).evaluate()
            log_p = np.log((counts / counts.sum())[view.targets['mlm'][hidden]])
            self.assertAlmostEqual(
                actual['heldout/mlm/ceiling'], -log_p.mean(), places=5
            )
            ceilings.append(-log_p.mean())
        self.assertGreater(ceilings[1], ceilings[0] + 1)


class SummariseTest(absltest.TestCase):
    def test_a_row_without_a_bound(self):
        sums = [1.5, 4.0, 0.0, 0.0, 0.0, 0.0, 3.0, 2.0, 4.0]
        self.assertEqual(
            loop.summarise('nsp', sums),
            {'nsp/loss': 0.375, 'nsp/accuracy': 0.75, 'nsp/chance': 0.5},
        )
        self.assertEqual(
            list(loop.summarise('mlm', sums)),
            ['mlm/loss', 'mlm/mi', 'mlm/ceiling', 'mlm/log_candidates',
             'mlm/unigram_mi', 'mlm/accuracy', 'mlm/chance'],
        )  # fmt: skip

    def test_what_is_measured_besides(self):
        """Measures held-out text alone, by measured pair."""
        sums = [1.5, 6.0, 2.0, 4.0, 8.0, 0.0, 3.0, 2.0, 4.0]
        training = loop.summarise('dim', sums)
        heldout = loop.summarise('dim', [*sums, 1.0, 3.0])
        self.assertEqual(
            heldout,
            {
                **training,
                'dim/same_length_mi': 0.25,
                'dim/same_length_ceiling': 0.75,
            },
        )
        self.assertEqual(training['dim/loss'], 0.25)
        self.assertNotIn('dim/same_length_mi', training)

    def test_of_languages_each_and_all(self):
        row = mock.Mock(bounded=True, more=())
        model = mock.Mock(objectives={'mlm': row})
        sums = {
            'de': [6.0, 4.0, 2.0, 4.0, 8.0, 0.0, 3.0, 2.0, 4.0],
            'fr': [2.0, 4.0, 6.0, 8.0, 8.0, 0.0, 1.0, 2.0, 12.0],
        }
        languages = {}
        for name, values in sums.items():
            measured = {'mlm': np.array(values)}, {f'seconds_{name}': 1.0}
            measure = mock.Mock(return_value=measured)
            languages[name] = mock.Mock(model=model, measure=measure)
        actual = loop.HeldoutLanguages(languages).evaluate()
        self.assertLen(actual, 3 * 7 + 2)
        for name, de, fr, both in (
            ('loss', 1.5, 0.5, 1.0), ('mi', 0.5, 0.5, 0.5),
            ('ceiling', 1.0, 8 / 12, 0.75), ('accuracy', 0.75, 1 / 12, 0.25),
        ):  # fmt: skip
            for prefix, value in (('de_', de), ('fr_', fr), ('', both)):
                path = f'heldout/mlm/{prefix}{name}'
                self.assertAlmostEqual(actual[path], value, msg=path)


class ClockTest(absltest.TestCase):
    def test_laps(self):
        """A rate is that of steps since the last lap, or since a pause."""
        with mock.patch.object(loop.time, 'monotonic') as now:
            now.return_value = 100.0
            clock = loop.Clock(10, 5.0)
            for seconds, step, expected in (
                (102.0, 14, (7.0, 2.0)), (105.0, 20, (10.0, 2.0)),
                (109.0, 21, (14.0, 0.25)),
            ):  # fmt: skip
                now.return_value = seconds
                self.assertEqual(clock.lap(step), expected)
            now.return_value = 119.0
            clock.skip()
            now.return_value = 121.0
            self.assertEqual(clock.lap(25), (26.0, 2.0))
