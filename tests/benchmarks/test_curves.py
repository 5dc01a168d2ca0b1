"""Curves of several runs: what is drawn, and how their ends are named."""

import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import curves

RECORD = {
    'heldout/mlm/mi': 0.125, 'heldout/mlm/ceiling': 6.25,
    'heldout/dim/mi': 1.0, 'heldout/dim/ceiling': 4.75,
}  # fmt: skip
HALF = {'heldout/mlm/mi': 0.0, 'heldout/mlm/ceiling': 5.0}


class CurvesTest(absltest.TestCase):
    def drawn(self, draw, runs):
        """The figure that is saved; it is checked that it can be."""
        path = pathlib.Path(self.create_tempdir().full_path) / 'x.png'
        with mock.patch.object(curves, '_save', wraps=curves._save) as save:
            draw(path, runs)
        self.assertTrue(path.read_bytes().startswith(b'\x89PNG'))
        return save.call_args[0][0]

    def test_runs_are_shares_of_their_ceilings(self):
        runs = {
            'infoword_tiny': ([1.0, 2.0], [{**RECORD, **HALF}, RECORD]),
            'mlm_tiny': ([1.5], [{**HALF, 'heldout/mlm/mi': 2.5}]),
        }
        (axis,) = self.drawn(curves.draw_runs, runs).axes
        values = [list(x.get_ydata()) for x in axis.lines[:3]]
        self.assertEqual(
            values, [[0.0, 0.125 / 6.25], [1.0 / 4.75] * 2, [0.5]]
        )
        self.assertEqual(axis.yaxis.get_major_formatter()(0.5), '50%')
        self.assertCountEqual(
            [x.get_text() for x in axis.texts],
            [
                'infoword_tiny: mlm  0.12 of 6.25 nats',
                'infoword_tiny: dim  1.00 of 4.75 nats',
                'mlm_tiny  2.50 of 5.00 nats',
            ],
        )
