"""Reports of a run with rows that have a bound and rows that have none."""

from unittest import mock

from absl.testing import absltest
from matplotlib.figure import Figure

from infoword_tf.training import report
from tests import places

RECORD = {
    'step': 1200,
    'tokens_per_second': 34567.8,
    'mlm/loss': 5.5, 'mlm/mi': 0.25, 'mlm/ceiling': 6.4,
    'mlm/log_candidates': 9.0, 'mlm/unigram_mi': 0.0,
    'mlm/accuracy': 0.1, 'mlm/chance': 0.06,
    'heldout/mlm/mi': 0.125, 'heldout/mlm/ceiling': 6.25,
    'heldout/mlm/unigram_mi': -0.09,
    'nsp/loss': 0.6, 'nsp/accuracy': 0.75, 'nsp/chance': 0.5,
    'heldout/nsp/loss': 0.65, 'heldout/nsp/accuracy': 0.625,
    'heldout/nsp/chance': 0.5,
    'heldout/dim/mi': 1.0, 'heldout/dim/ceiling': 4.75,
    'heldout/dim/log_candidates': 4.86, 'heldout/dim/unigram_mi': 0.0,
    'heldout/dim/loss': 3.75, 'heldout/dim/accuracy': 0.3,
    'heldout/dim/chance': 1 / 129,
    'heldout/dim/same_length_mi': 0.75,
    'heldout/dim/same_length_ceiling': 3.5,
}  # fmt: skip
HALF = {'heldout/mlm/mi': 0.0, 'heldout/mlm/ceiling': 5.0}


class TextTest(absltest.TestCase):
    def test_progress_line(self):
        """Also without MI of the training text, of padded views, and so on."""
        mlm = ' | mlm MI 0.250 of 6.40, held out 0.125 nats'
        for more, rows, goal, padding, expected in (
            ({}, ['mlm', 'nsp'], None, '',
             mlm + ' | nsp MI -, accuracy 0.750, held out 0.625'),
            ({'dim/accuracy': 0.5}, ['dim'], None, '',
             ' | dim held out MI 1.000 of 4.75 nats, accuracy in training '
             '0.500'),
            ({'padding': 0.078}, ['mlm'], None, ' and 8% padding', mlm),
            # A regression; and what weights are chosen by.
            ({'score/loss': 0.5, 'heldout/score/loss': 0.25}, ['score'], None,
             '', ' | score MI -, loss 0.500, held out 0.250'),
            ({}, [], 'heldout/nsp/accuracy', '', ' | accuracy 0.6250'),
        ):  # fmt: skip
            self.assertEqual(
                report.progress_line(RECORD | more, rows, 5000, 125.0, goal),
                f'step 1,200/5,000 | 34,568 tokens/s{padding} | 2:05 left'
                + expected,
            )

    def test_heldout_text_that_measures_nothing(self):
        """No MI of 0 of 0, but why there is none."""
        record = {k: v for k, v in RECORD.items() if 'heldout' not in k}
        record['heldout/mlm/loss'] = record['heldout/nsp/loss'] = 0.0
        line = report.progress_line(record, ['mlm'], 5000, 125.0)
        self.assertIn('mlm MI 0.250 of 6.40, held out - nats', line)
        for more, why in (({}, 'no pair'), ({'log_candidates': 0.0}, 'only')):
            more = {f'heldout/mlm/{name}': x for name, x in more.items()}
            (sentence,) = report.unmeasured(record | more, ['mlm', 'nsp'])
            self.assertStartsWith(sentence, 'mlm: nothing was measured')
            self.assertIn(why, sentence)
            self.assertIn('--heldout', sentence)
        self.assertEmpty(report.unmeasured(RECORD, ['mlm', 'nsp', 'dim']))

    def test_closing_table(self):
        """A column for each of COLUMNS, and a line more for a second bound."""
        head, *lines = report.closing_table(
            RECORD, ['mlm', 'nsp', 'dim']
        ).splitlines()
        self.assertEqual(
            head.split(),
            ['row', 'text', 'MI', 'unigram', 'ceiling', 'log|B~|', 'loss',
             'accuracy', 'chance'],
        )  # fmt: skip
        nothing = ' -' * 7
        self.assertEqual(
            [' '.join(line.split()) for line in lines[:7]],
            [
                'mlm training 0.250 0.000 6.400 9.000 5.500 0.100 0.060',
                'mlm held out 0.125 -0.090 6.250 - - - -',
                'nsp training - - - - 0.600 0.750 0.500',
                'nsp held out - - - - 0.650 0.625 0.500',
                f'dim training{nothing}',
                'dim held out 1.000 0.000 4.750 4.860 3.750 0.300 0.008',
                'dim same length 0.750 - 3.500 - - - -',
            ],
        )
        self.assertLen({len(line) for line in [head, *lines[:7]]}, 1)
        self.assertEqual('\n'.join(lines[7:]), report.LEGEND)


class PictureTest(places.Folder, absltest.TestCase):
    def drawn(self, draw, *args):
        with mock.patch.object(
            Figure, 'savefig', autospec=True,
            side_effect=lambda _, path, **more: path.touch(),
        ) as save:  # fmt: skip
            draw(self.folder / 'x.png', *args)
        return save.call_args[0][0]

    def test_bounds_with_and_without_one(self):
        """A row without a bound has no column."""
        for rows, axes in (
            (['mlm', 'nsp'], 2), (['nsp'], 0), (['mlm'], 2), (['dim'], 2),
        ):  # fmt: skip
            figure = self.drawn(report.draw_bounds, [RECORD], rows)
            self.assertLen(figure.axes, axes)
        (text,) = self.drawn(report.draw_bounds, [RECORD], ['nsp']).texts
        self.assertIn('nsp: no bound', text.get_text())

    def test_what_weights_are_chosen_by(self):
        """A panel with the kept ones marked; a loss of the sum has no row."""
        for goal, title, label in (
            ('heldout/nsp/accuracy', 'nsp', 'accuracy, held out'),
            ('heldout_loss', '', 'loss, held out'),
            ('sts/spearman', 'sts', 'spearman'),
        ):
            records = [
                {'step': step, goal: value}
                for step, value in ((300, 0.5), (600, 0.25), (900, 0.75))
            ]
            (axis,) = self.drawn(
                report.draw_bounds, records, ['nsp'], (goal, 600)
            ).axes
            self.assertEqual(axis.get_title(loc='left'), title)
            self.assertEqual(axis.get_ylabel(), label)
            _, best = axis.lines
            self.assertEqual(best.get_label(), 'kept: 0.2500')
            self.assertEqual(best.get_xdata(), [600])

    def test_frequencies_alone_are_a_line(self):
        figure = self.drawn(report.draw_bounds, [RECORD], ['mlm'])
        _, below = figure.axes
        (line,) = (x for x in below.lines if 'alone' in x.get_label())
        self.assertEqual(line.get_label(), 'frequencies alone: -0.09')
        self.assertEqual(set(line.get_ydata()), {-0.09})
        # Where they have nothing by definition there is none.
        record = {**RECORD, 'dim/mi': 1.0, 'dim/ceiling': 4.5}
        _, below = self.drawn(report.draw_bounds, [record], ['dim']).axes
        self.assertFalse([x for x in below.lines if 'alone' in x.get_label()])

    def test_the_share_of_the_ceiling_is_on_the_right(self):
        """By the last ceiling of held-out text."""
        records = [{**RECORD, **HALF, 'step': 600}, RECORD]
        _, below = self.drawn(report.draw_bounds, records, ['mlm']).axes
        (share,) = below.child_axes
        low, high = below.get_ylim()
        self.assertAlmostEqual(share.get_ylim()[0], low / 6.25)
        self.assertAlmostEqual(share.get_ylim()[1], high / 6.25)
        self.assertIn('ceiling', share.get_ylabel())
        self.assertRegex(share.yaxis.get_major_formatter()(0.02), '^2.*%$')

        record = {k: v for k, v in RECORD.items() if 'heldout' not in k}
        _, below = self.drawn(report.draw_bounds, [record], ['mlm']).axes
        self.assertEmpty(below.child_axes)  # before the first held-out values

    def test_a_ceiling_of_0(self):
        """One document again and again: nothing can be told apart."""
        record = {**RECORD, 'heldout/mlm/mi': 0.0, 'heldout/mlm/ceiling': 0.0}
        path = self.folder / 'x.png'
        report.draw_bounds(path, [record], ['mlm'])
        self.assertTrue(path.read_bytes().startswith(b'\x89PNG'))
