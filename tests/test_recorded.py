"""Rows compute, and weights and flags are called, as recorded."""

import json

import numpy as np
from absl.testing import parameterized

from tests import eager, recorded, zoo

EXPECTED = json.loads(recorded.PATH.read_text())


class RecordedTest(parameterized.TestCase):
    def test_flags(self):
        self.assertEqual(recorded.flags(), EXPECTED['flags'])

    def test_bounds(self):
        actual = recorded.bounds()
        self.assertEqual(
            actual, EXPECTED['bounds'], 'python -m tests.recorded'
        )

    def test_all_are_recorded(self):
        names = set(EXPECTED) - {'flags', 'bounds'}
        self.assertEqual(names, set(zoo.CASES), 'python -m tests.recorded')

    @parameterized.named_parameters((name, name) for name in zoo.CASES)
    def test_case(self, name):
        with eager.eagerly():
            actual = recorded.case(name)
        expected = dict(EXPECTED[name])
        outcomes = actual.pop('outcomes')
        for row, numbers in expected.pop('outcomes').items():
            np.testing.assert_allclose(
                outcomes.pop(row), numbers, 2e-4, 2e-3, err_msg=row
            )
        self.assertEmpty(outcomes)
        self.assertAlmostEqual(
            actual.pop('shares'), expected.pop('shares'), places=2
        )
        self.assertEqual(actual, expected)
