"""Lines of the benchmark of critics, and the text that it trains on."""

import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks import critics, tables
from tests import places


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
        result = critics.Result(
            scores, {'model': costs}, np.array([0, 0.5, 1]), 1.25, 3.5, 27)
        plain = result._replace(mi=None, ceiling=None, steps=0)
        other = result._replace(queries=result.queries - 0.125)
        for each, mi, n in ((result, '1.250 of 3.50', '27'), (plain, '', '')):
            self.assertEqual(
                critics.line('', '`late`', [each], [[other] * 2, []])[1:],
                ['`late`', '0.500', '0.750', '+0.125 to +0.125', '', mi,
                 '7,177', '', '', n])

    def test_gain_from_results(self):
        """The judged document first, second and absent: 1, 1 / log2 3, 0."""
        folder = places.make()
        (folder / 'run.trec').write_text(
            'a Q0 x 1 2 t\na Q0 y 2 1 t\nb Q0 x 1 2 t\nb Q0 y 2 1 t\n')
        task = mock.Mock(
            query_ids=['a', 'b', 'c'], document_ids=['x', 'y'],
            relevance=[{0: 1}, {1: 1}, {0: 1}], same_id=[-1] * 3)
        record = {x: {'ndcg@10': 0.5} for x in ('model', 'hybrid', 'bm25')}
        with mock.patch.object(
            critics.kept, 'search', return_value=record | {'costs': {}}
        ) as search:
            result = critics.searched(
                folder, 'late', critics.SETS['pydocs'], task)
        self.assertEqual(
            search.call_args.args[2:], ('--corpus=pydocs', '--costs'))
        np.testing.assert_allclose(result.queries, [1, 1 / np.log2(3), 0])
