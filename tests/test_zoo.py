"""The list of zoo.py is whole, and what it makes is what it says."""

from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import SUMS, TABLE, parse
from infoword_tf.objectives.dim import CRITICS
from infoword_tf.views.masked import MASKINGS
from infoword_tf.views.permuted import ORDERS
from infoword_tf.views.sentences import OF_PAIRS
from tests import zoo
from tests.combined import JUDGED


class CompleteTest(absltest.TestCase):
    def test_every_row_with_every_encoder_that_it_allows(self):
        expected = {(row, x) for row in TABLE for x in zoo.encoders_of(row)}
        self.assertEqual({row for row, _ in expected}, set(TABLE))
        listed, learned = (
            {(row, case.encoder) for case in cases.values()
             for row in case.rows} for cases in (zoo.CASES, zoo.LESSONS)
        )  # fmt: skip
        self.assertContainsSubset(expected, listed)
        self.assertEqual(expected, learned)

    def test_every_sum_that_has_a_name(self):
        """One that is another name of a row is that row's case."""
        listed = [case.rows for case in zoo.CASES.values()]
        for name in SUMS:
            self.assertIn(parse(name), listed, name)

    def test_every_encoder(self):
        self.assertEqual(set(zoo.ENCODERS), set(ENCODERS))
        used = {case.encoder for case in zoo.CASES.values()}
        self.assertEqual(used, set(ENCODERS))

    def test_every_view_and_masking(self):
        plans = [case.resolved.plan for case in zoo.CASES.values()]
        read = {view for plan in plans for view in plan.views}
        self.assertEqual(read, set(views.VIEWS))
        self.assertEqual({x.masking for x in plans} - {None}, set(MASKINGS))

    def used(self, row, setting):
        """Values of a setting; of a judged text, and of pairs, of any row."""
        rows = {row}
        if row in JUDGED or setting in (*OF_PAIRS, 'others'):
            rows |= {x for x in TABLE if setting in TABLE[x].view_of}
        return {
            case.settings_of(x)[setting]
            for case in zoo.CASES.values()
            for x in rows.intersection(case.rows)
        }

    def test_every_setting_of_a_row(self):
        """Switches both ways, all choices, and two values of each integer.

        But of `classes`: as many as examples have, test_label.py.
        """
        for row in TABLE:
            for name, setting in TABLE[row].settings.items():
                used = self.used(row, name)
                if isinstance(setting.default, bool):
                    self.assertEqual(used, {False, True}, f'{row}.{name}')
                elif setting.choices:
                    self.assertEqual(used, {*setting.choices}, f'{row}.{name}')
                elif type(setting.default) is int and name != 'classes':
                    self.assertGreater(len(used), 1, name)
        for row, name, known in (
            ('dim', 'critic', CRITICS), ('plm', 'order', ORDERS)
        ):  # fmt: skip
            self.assertCountEqual(TABLE[row].settings[name].choices, known)


class CaseTest(parameterized.TestCase):

    @parameterized.parameters(*zoo.CASES)
    def test_every_row_has_something_to_learn(self, name):
        for batch in (8, 24):
            all_views = zoo.make_views(name, batch)
            for row in zoo.CASES[name].rows:
                paired = [v for v in all_views.values() if row in v.weights]
                self.assertNotEmpty(paired)
                # Of `ict` a document that stands whole is a alone.
                weights = sum(v.weights[row].sum(axis=1) for v in paired)
                if 'words' in all_views:
                    weights = weights[:-2]  # a batch ends in padding
                self.assertTrue((weights > 0).all())
            longest = max(view.ids.shape[-1] for view in all_views.values())
            if 'pair_candidates' in all_views:  # as long as two texts
                continue
            if batch > 8 and 'sentences' in all_views:  # many share wider ones
                self.assertBetween(longest, zoo.T, 2 * zoo.T)
            else:
                self.assertEqual(longest, zoo.T)

    @parameterized.parameters(8, 24)
    def test_some_sequences_have_several_ngrams_and_some_slots_none(self, b):
        weights = zoo.make_views('dim', b)['ngrams'].weights['dim']
        self.assertGreater((weights.sum(axis=1) > 1).sum(), 2)
        self.assertTrue((weights == 0).any())
