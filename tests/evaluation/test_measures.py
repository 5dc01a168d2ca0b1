"""Measures of predictions whose measures are worked out by hand."""

import contextlib
import math
import warnings
from unittest import mock

import numpy as np
from absl.testing import parameterized
from matplotlib import figure, image

from infoword_tf.evaluation import measures
from tests import places

# 3 true positives, 1 false negative, 1 false positive, 5 true negatives.
TARGETS = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
PREDICTIONS = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])
# Of targets 0, 1 and 2: (2, 1, 0), (0, 2, 0) and (0, 1, 2) are taken so.
THREE = np.array([0, 0, 0, 1, 1, 2, 2, 2])
TAKEN = np.array([0, 0, 1, 1, 1, 1, 2, 2])

# Of four texts, which of three labels they have, and are taken to have.
SETS = [[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
SETS_TAKEN = [[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1]]


class TaskMeasuresTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter('error')

    @parameterized.parameters(
        ('accuracy', PREDICTIONS, TARGETS, 0.8),
        ('f1', PREDICTIONS, TARGETS, 2 * 3 / (2 * 3 + 1 + 1)),
        ('f1', 1 - PREDICTIONS, 1 - TARGETS, 10 / 12),
        # All are taken for the positive class.
        ('f1', 0 * TARGETS + 1, TARGETS, 8 / 14),
        ('f1', 0 * TARGETS + 1, 0 * TARGETS + 1, 1.0),
        # (3 * 5 - 1 * 1) / sqrt(4 * 4 * 6 * 6)
        ('matthews', PREDICTIONS, TARGETS, 14 / 24),
        ('matthews', 1 - PREDICTIONS, TARGETS, -14 / 24),
        ('matthews', TARGETS, TARGETS, 1.0),
        ('accuracy', TAKEN, THREE, 6 / 8),
        # Of each label right, predicted and true: 2 2 3, 1 1 2 and 0 2 0.
        ('f1_micro', SETS_TAKEN, SETS, 2 * 3 / (5 + 5)),
        ('f1_macro', SETS_TAKEN, SETS, (4 / 5 + 2 / 3 + 0) / 3),
        # Predicted 2, 4, 2, wanted 3, 2, 3: of 8, 6 are right.
        ('matthews', TAKEN, THREE, (6 * 8 - 20) / math.sqrt(
            (64 - 24) * (64 - 22))),
        # Deviations -3, -1, 1, 3 (halves) and -7, 1, -3, 9 (quarters).
        ('pearson', [1, 2, 3, 4], [1, 3, 2, 5], 44 / math.sqrt(20 * 140)),
        ('pearson', [1, 2, 3], [-1, -2, -3], -1.0),
        # Of one precision, and far from zero.
        ('pearson', np.float32([1e4, 1e4 + 1, 1e4 + 2]), [1, 2, 3], 1.0),
        # Ranks 1 2 3 4 and 1 3 2 4: 1 - 6 * 2 / (4 * 15).
        ('spearman', [0.1, 0.2, 0.3, 9.0], [1, 3, 2, 5], 0.8),
        # Ranks 1.5, 1.5, 3 and 1, 2, 3: 1.5 / sqrt(1.5 * 2).
        ('spearman', [1, 1, 2], [4, 5, 6], math.sqrt(3) / 2),
    )  # fmt: skip
    def test_worked_by_hand(self, name, predictions, targets, expected):
        measure = measures.MEASURES[name]
        actual = measure(np.array(predictions), np.array(targets))
        self.assertIsInstance(actual, float)
        self.assertAlmostEqual(actual, expected, places=12)

    @parameterized.parameters('f1', 'matthews', 'pearson', 'spearman')
    def test_constant_predictions(self, name):
        """0, as GLUE has it; of correlations it is said. So are predictions
        that differ in the last bits of float32 alone, which rank by chance;
        what differs by more ranks as before. Constant targets are 0 too.
        """
        for constant in (0, 0.1, 7):
            same = np.full(10, constant)
            if name in ('f1', 'matthews'):
                same = same.astype(int)
                warned = contextlib.nullcontext()
            else:
                same = same * (1 + np.arange(10) % 3 * 2.0**-23)
                warned = self.assertWarnsRegex(
                    UserWarning, 'all 10 .* rounding'
                )
            with warned:
                actual = measures.MEASURES[name](same, TARGETS)
            self.assertEqual(actual, 0.0)
            same = np.full_like(same, constant)
            self.assertEqual(measures.MEASURES[name](TARGETS, same), 0.0)
        if name in ('pearson', 'spearman'):
            near = 1 + np.arange(10) * 2.0**-21
            actual = measures.MEASURES[name](near, np.arange(10))
            self.assertAlmostEqual(actual, 1.0)

    @parameterized.parameters(
        (0.5, 103, 0.3287416, 0.6394221),  # tanh(atanh r +- 1.96 0.1060660)
        (-0.5, 103, -0.6394221, -0.3287416),
        (1.0, 4, -0.6916027, 1.0),  # r counts as 1 - 6 / 60
        (0.5, 3, -1.0, 1.0),
    )
    def test_how_sure_a_correlation_is(self, value, count, low, high):
        """Bonett & Wright 2000: (1 + r^2 / 2) / (n - 3) of Fisher's z."""
        actual = measures.interval(value, count)
        np.testing.assert_allclose(actual, (low, high), atol=1e-6)


class MeasuresPictureTest(places.Folder, parameterized.TestCase):
    def drawn(self, *arguments):
        """Returns what is written into the picture: cells, names, the title."""
        with mock.patch.object(
            figure.Figure, 'savefig', autospec=True,
            side_effect=figure.Figure.savefig,
        ) as save:  # fmt: skip
            measures.draw_confusion(self.folder / 'a.png', *arguments)
        (axes,) = save.call_args.args[0].axes
        cells = {
            tuple(map(int, text.get_position())): text.get_text()
            for text in axes.texts
        }
        names = [label.get_text() for label in axes.get_yticklabels()]
        return cells, names, axes.get_title()

    def test_what_it_shows(self):
        names = ['bad', '$1 or $2', 'good']
        cells, shown, title = self.drawn(names, THREE, TAKEN)
        self.assertEqual(cells, {
            (0, 0): '2\n66.7%', (1, 0): '1\n33.3%', (1, 1): '2\n100.0%',
            (1, 2): '1\n33.3%', (2, 2): '2\n66.7%',
        })  # fmt: skip
        self.assertEqual(shown, ['bad', r'\$1 or \$2', 'good'])
        self.assertEqual(title, '6 of 8 right (75.0%)')
        height, width, _ = image.imread(self.folder / 'a.png').shape
        self.assertBetween(height, 400, 700)
        self.assertBetween(width, 400, 700)

    def test_many_classes(self):
        """The 49 commonest, 10 to 58, and the rest as one."""
        targets = np.concatenate([np.arange(80), np.arange(10, 59)])
        predictions = np.where(targets < 10, 10, targets)
        names = [f'class {n}' + 'x' * 30 * (n == 10) for n in range(80)]
        cells, shown, title = self.drawn(names, targets, predictions)
        self.assertLen(shown, 50)
        self.assertEqual(shown[0], 'class 10' + 'x' * 15 + '…')
        self.assertEqual(shown[-2:], ['class 58', '31 others'])
        self.assertEmpty(cells)  # no room
        self.assertEqual(title, '119 of 129 right (92.2%)')
        counts = measures.confusion(predictions, targets, 80)
        _, fewer = measures._commonest([''] * 80, counts)
        self.assertEqual(fewer.sum(), 129)
        self.assertEqual(fewer[49, 0], 10)
        self.assertEqual(fewer[49, 49], 21)
        few = counts[:50, :50]
        self.assertIs(measures._commonest(shown, few)[1], few)

    def test_nothing_is_left_where_it_fails(self):
        path = self.folder / 'a.png'
        with (
            mock.patch.object(
                figure.Figure, 'savefig', side_effect=OSError(28, 'full')
            ),
            self.assertRaisesRegex(OSError, 'a.png could not be written'),
        ):
            measures.draw_confusion(path, ['a', 'b'], TARGETS, TARGETS)
        self.assertEmpty(list(self.folder.iterdir()))
