"""Curves of several runs: what is drawn, and how their ends are named."""

import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks import curves, kept, tables, worth

RECORD = {
    'heldout/mlm/mi': 0.125, 'heldout/mlm/ceiling': 6.25,
    'heldout/dim/mi': 1.0, 'heldout/dim/ceiling': 4.75,
}  # fmt: skip
HALF = {'heldout/mlm/mi': 0.0, 'heldout/mlm/ceiling': 5.0}


class CurvesTest(absltest.TestCase):
    def drawn(self, draw, *runs):
        """The figure that would be saved; test_tables.py saves some."""
        with mock.patch.object(curves, '_save') as save:
            draw(pathlib.Path('x.png'), *runs)
        return save.call_args[0][0]

    def test_runs_are_shares_of_their_ceilings(self):
        runs = {
            'infoword_tiny': ([1.0, 2.0], [{**RECORD, **HALF}, RECORD]),
            'mlm_tiny': ([1.5], [{**HALF, 'heldout/mlm/mi': 2.5}]),
        }
        (axis,) = self.drawn(curves.draw_runs, runs).axes
        values = [list(x.get_ydata()) for x in axis.lines[:3]]
        self.assertEqual(values, [[0.0, 0.125 / 6.25], [1.0 / 4.75] * 2, [0.5]])
        self.assertEqual(axis.yaxis.get_major_formatter()(0.5), '50%')
        self.assertCountEqual([x.get_text() for x in axis.texts], [
            'infoword_tiny: mlm  0.12 of 6.25 nats',
            'infoword_tiny: dim  1.00 of 4.75 nats',
            'mlm_tiny  2.50 of 5.00 nats',
        ])  # fmt: skip

    def test_worth_over_nats_and_tokens(self):
        record = {
            'step': 7, 'tokens_per_second': 5e6, 'steps_per_second': 2.0,
            **RECORD,
        }  # fmt: skip
        folders = {
            'mlm_mini --steps=7': record,
            'mlm_mini --steps=3': {**record, 'step': 3, 'heldout/mlm/mi': -1.0},
            'same_text_mini': {
                **record, 'heldout/overlap/mi': 4.0,
                'heldout/overlap/ceiling': 6.5,
            },
            'untrained': {**record, 'heldout/mlm/mi': -2.5},
        }  # fmt: skip
        scores = dict(zip(folders, (52.0, 51.0, 61.0, 50.0), strict=True))
        self.enterContext(mock.patch.dict(tables.PICTURES))
        self.enterContext(
            mock.patch.object(kept, 'records_of', lambda x: [folders[x]])
        )
        self.enterContext(mock.patch.object(
            worth, 'answers_of',
            lambda x, _: {'mine': [scores[x] - 1, scores[x] + 1]},
        ))  # fmt: skip

        def drawn(along):
            tables.PICTURES['mine'] = {'x.png': ('mine', 'scores', along)}
            (axis,) = self.drawn(
                lambda path, runs: tables.draw_worth(runs, 'mine', path),
                {name: [name] for name in folders},
            ).axes
            self.assertCountEqual(
                [axis.get_ylabel(), *(x.get_text() for x in axis.texts)],
                ['scores', 'mlm_mini', 'same_text_mini', 'untrained'],
            )
            return axis.lines

        curve, other, level = drawn(curves.NATS)
        dim = 1.0 / 4.75
        shares = (-1 / 6.25 + dim) / 2, (0.02 + dim) / 2
        np.testing.assert_allclose(curve.get_xdata(), shares)
        self.assertEqual(list(curve.get_ydata()), [51.0, 52.0])
        np.testing.assert_allclose(
            other.get_xdata(), [(0.02 + dim + 4 / 6.5) / 3])
        self.assertEqual(list(level.get_ydata()), [50.0, 50.0])
        curve, other, level = drawn(curves.TOKENS)
        self.assertEqual(list(curve.get_xdata()), [7.5, 17.5])
        self.assertEqual(list(other.get_xdata()), [17.5])
        self.assertEqual(list(level.get_ydata()), [50.0, 50.0])
