"""Scores of the commonest answer by hand, by the measures and by resampling."""

import math

import numpy as np
from absl.testing import parameterized

from infoword_tf.evaluation import commonest

NAMES = 'a', 'b', 'c'
# Of 10, 7 are 'b' ("yes" where there are two labels).
YES = np.array([1, 1, 1, 1, 1, 1, 1, 0, 0, 0])
# 'a' three times of four, 'b' twice, 'c' never.
SETS = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])


class CommonestTest(parameterized.TestCase):
    @parameterized.parameters(
        ('accuracy', [2, 2, 0, 1, 2], "'c' for every text",
         0.6, math.sqrt(0.6 * 0.4 / 5)),
        # MRPC's dev examples: 279 of 408 are equivalent.
        ('f1', [1] * 279 + [0] * 129, "'b' for every text",
         2 * 279 / (279 + 408), 0.0162384),
        # 2 p / (1 + p), whose derivative is 2 / (1 + p)^2.
        ('f1', YES, "'b' for every text",
         1.4 / 1.7, 2 / 1.7**2 * math.sqrt(0.7 * 0.3 / 10)),
        # 6 / 9 of 'a', 10 / 13 of 'a' and 'b', 10 / 17 of all; 2 right - f1
        # total is 12, 12, -4 and -20 thirteenths, the mean of total 13 / 4.
        ('f1_micro', SETS, "'a' and 'b' for every text",
         10 / 13, math.sqrt((144 + 144 + 16 + 400) / 4) * 4 / 169 / 2),
        # 1.5 / 1.75, 1 / 1.5 and 0.
        ('f1_macro', SETS, 'all labels for every text',
         (6 / 7 + 2 / 3) / 3,
         np.std([8 / 49 + 4 / 9, 8 / 49 + 4 / 9, 8 / 49 - 4 / 9,
                 -24 / 49 - 4 / 9]) / 3 / 2),
        ('matthews', YES, 'the same label for every text', 0.0, 1 / 3),
        ('pearson', np.arange(101.0), 'the same number for every text',
         0.0, 0.1),
        ('spearman', np.arange(26.0), 'the same number for every text',
         0.0, 0.2),
    )  # fmt: skip
    def test_worked_by_hand(self, metric, targets, answer, score, error):
        actual = commonest.of_targets(metric, np.array(targets), NAMES)
        self.assertEqual(actual.answer, answer)
        self.assertAlmostEqual(actual.score, score, places=12)
        self.assertAlmostEqual(actual.error, error, places=6)

    def test_the_best_of_several_answers(self):
        scores = {'none': np.array([0.0, 100.0, 0.0]),
                  'two words': np.array([50.0, 80.0, 20.0])}  # fmt: skip
        actual = commonest.of_answers(scores)
        self.assertEqual(actual.answer, 'two words')
        self.assertAlmostEqual(actual.score, 50)
        self.assertAlmostEqual(actual.error, math.sqrt(600) / math.sqrt(3))


class ComplaintTest(parameterized.TestCase):
    ALWAYS = commonest.Commonest("'b' for every text", 0.8125, 0.0156)

    @parameterized.parameters(
        (0.8125, 92, 3e-5, '--steps=500', '--learning_rate=9e-05'),
        (0.8281, 276, 5e-4, '--steps=828', '--learning_rate=0.001'),
        (0.1, 2000, 1e-3, '--steps=6000', ''),
    )
    def test_no_better(self, score, steps, rate, more, higher):
        actual = commonest.complaint('f1', score, self.ALWAYS, steps, rate, 92)
        self.assertStartsWith(actual, f'f1 {score:.4f} is no better than ')
        self.assertIn("'b' for every text, 0.8125 +- 0.0156", actual)
        self.assertIn(f'({more})', actual)
        self.assertEqual('--learning_rate' in actual, bool(higher))
        self.assertIn(higher, actual)

    def test_better_by_more_than_the_error(self):
        for steps, usual in ((92, 92), (46, 92), (250, 9000)):
            self.assertIsNone(commonest.complaint(
                'f1', 0.8282, self.ALWAYS, steps, 3e-5, usual
            ))  # fmt: skip

    @parameterized.parameters((45, 92), (249, 9000), (1, 3))
    def test_better_after_few_updates(self, steps, usual):
        actual = commonest.complaint('f1', 0.9, self.ALWAYS, steps, 3e-5, usual)
        self.assertStartsWith(actual, f'f1 0.9000 is that of {steps} updates')
        self.assertIn(f'--steps={usual} ', actual)
