"""Lines of the benchmark of critics, and the text that it trains on."""

import pathlib

from absl.testing import absltest

from benchmarks import critics, tables


class CriticsTest(absltest.TestCase):
    def test_text(self):
        # The flagfile, but for how long it trains and where.
        lines = (tables.FOLDER / 'ict_tiny.flags').read_text().splitlines()
        typed = [x for x in lines if x.startswith('--')]
        self.assertCountEqual(
            [x for x in typed if not x.startswith(('--steps', '--workdir'))],
            critics.SETS['ict'].training(pathlib.Path(), ''),
        )

    def test_line(self):
        costs = dict.fromkeys(critics.COSTS) | {'bytes_per_passage': 7177.4}
        scores = {'model': 0.5, 'hybrid': 0.75, 'bm25': 0.25}
        result = critics.Result(scores, {'model': costs}, 1.25, 3.5, 27)
        plain = result._replace(mi=None, ceiling=None, steps=0)
        for each, mi, n in ((result, '1.250 of 3.50', '27'), (plain, '', '')):
            self.assertEqual(
                critics.line('scifact', '`late`', [each])[1:],
                ['`late`', '0.500', '0.750', mi, '7,177', '', '', n])
