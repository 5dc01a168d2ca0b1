"""Rows compute, and weights and flags are called, as recorded."""

import json

import numpy as np
from absl.testing import absltest

from tests import eager, recorded, zoo


class RecordedTest(absltest.TestCase):

    def setUp(self):
        super().setUp()
        self.expected = json.loads(recorded.PATH.read_text())

    def test_flags(self):
        self.assertEqual(recorded.flags(), self.expected['flags'])

    def test_cases(self):
        names = set(self.expected) - {'flags'}
        self.assertEqual(names, set(zoo.CASES), 'python -m tests.recorded')
        for name in zoo.CASES:
            with self.subTest(name), eager.eagerly():
                actual, expected = recorded.case(name), self.expected[name]
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
