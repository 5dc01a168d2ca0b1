"""What a run shows, with rows that have a bound and rows that have none."""

import pathlib

from absl.testing import absltest

from infoword_tf.training import report

RECORD = {
    'step': 1200,
    'tokens_per_second': 34567.8,
    'mlm/loss': 5.5, 'mlm/mi': 0.25, 'mlm/ceiling': 6.4,
    'mlm/accuracy': 0.1, 'mlm/chance': 0.001,
    'heldout/mlm/mi': 0.125,
    'nsp/loss': 0.6, 'nsp/accuracy': 0.75, 'nsp/chance': 0.5,
    'heldout/nsp/loss': 0.65, 'heldout/nsp/accuracy': 0.625,
    'heldout/nsp/chance': 0.5,
}  # fmt: skip


class ReportTest(absltest.TestCase):
    def test_progress_line(self):
        self.assertEqual(
            report.progress_line(RECORD, ['mlm', 'nsp'], 5000, 125.0),
            'step 1,200/5,000 | 34,568 tokens/s | 2:05 left | mlm MI 0.250 of '
            '6.40, held out 0.125 nats | nsp MI -, accuracy 0.750, held out '
            '0.625',
        )

    def test_closing_table(self):
        *_, training, held_out, _ = report.closing_table(
            RECORD, ['mlm', 'nsp']
        ).splitlines()
        self.assertEqual(
            training.split(),
            ['nsp', 'training', '-', '-', '0.600', '0.750', '0.50000'],
        )
        self.assertEqual(
            held_out.split(),
            ['nsp', 'held', 'out', '-', '-', '0.650', '0.625', '0.50000'],
        )

    def test_bounds_with_and_without_one(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        for rows in (['mlm', 'nsp'], ['nsp'], ['mlm']):
            path = folder / f'{len(rows)}{rows[0]}.png'
            report.draw_bounds(path, [RECORD], rows)
            self.assertTrue(path.read_bytes().startswith(b'\x89PNG'))
        sizes = [(folder / name).read_bytes()[16:24]
                 for name in ('2mlm.png', '1mlm.png')]  # fmt: skip
        # A row without a bound has no column.
        self.assertEqual(*sizes)
        self.assertLess(
            (folder / '1nsp.png').stat().st_size,
            (folder / '1mlm.png').stat().st_size,
        )


if __name__ == '__main__':
    absltest.main()
