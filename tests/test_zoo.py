"""The list of zoo.py is whole, and what it makes is what it says."""

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import sampling, views
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import SUMS, TABLE, parse
from tests import zoo


class CompleteTest(absltest.TestCase):
    def test_every_row_with_every_encoder_that_it_allows(self):
        wanted = {
            (row, encoder)
            for row, entry in TABLE.items()
            for encoder in entry.encoders
        }
        listed = {(case.row, case.encoder) for case in zoo.CASES.values()}
        self.assertEqual(listed, wanted)

    def test_every_encoder(self):
        self.assertEqual(set(zoo.ENCODERS), set(ENCODERS))
        used = {case.encoder for case in zoo.CASES.values()}
        self.assertEqual(used, set(ENCODERS))

    def test_every_view(self):
        read = {v for c in zoo.CASES.values() for v in TABLE[c.row].views}
        self.assertEqual(read, set(views.VIEWS))

    def test_every_masking(self):
        used = {case.masking for case in zoo.CASES.values()}
        self.assertEqual(used, set(sampling.MASKINGS))

    def test_every_switch_of_a_row_both_ways(self):
        for row, entry in TABLE.items():
            for setting, default in entry.settings.items():
                if not isinstance(default, bool):
                    continue
                values = {
                    {**entry.settings, **case.settings}[setting]
                    for case in zoo.CASES.values()
                    if case.row == row
                }
                self.assertEqual(values, {False, True}, f'{row} {setting}')

    def test_sums_are_made_of_rows(self):
        for name in SUMS:
            self.assertContainsSubset(parse(name), TABLE)


class CaseTest(parameterized.TestCase):
    @parameterized.parameters(*zoo.CASES)
    def test_masking_is_one_the_row_allows(self, name):
        case = zoo.CASES[name]
        self.assertIn(TABLE[case.row].masking, (None, case.masking))

    @parameterized.parameters(*zoo.CASES)
    def test_the_same_model_and_batch_every_time(self, name):
        first, again = zoo.make_model(name), zoo.make_model(name)
        self.assertEqual(list(first.variables), list(again.variables))
        for path, variable in first.variables.items():
            np.testing.assert_array_equal(
                variable.numpy(), again.variables[path].numpy(), path
            )
        one = views.flatten(zoo.make_views(name))
        two = views.flatten(zoo.make_views(name))
        other = views.flatten(zoo.make_views(name, seed=1))
        self.assertEqual(list(one), list(two))
        for path, array in one.items():
            np.testing.assert_array_equal(array, two[path], path)
        row = zoo.CASES[name].row
        targets = [path for path in one if path.endswith(f'/targets/{row}')]
        self.assertNotEmpty(targets)
        for path in targets:
            self.assertFalse(np.array_equal(one[path], other[path]), path)

    @parameterized.parameters(*zoo.CASES)
    def test_every_row_has_something_to_learn(self, name):
        row = zoo.CASES[name].row
        for view in zoo.make_views(name).values():
            weights = view.weights[row]
            self.assertTrue((weights.sum(axis=1) > 0).all())
            self.assertEqual(view.ids.shape, (8, zoo.T))


if __name__ == '__main__':
    absltest.main()
