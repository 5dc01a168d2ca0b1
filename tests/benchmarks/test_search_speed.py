"""The table; the search itself is tests/tasks/test_ranking.py's."""

from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks import search
from tasks import mine
from tests.tasks import command


class SearchSpeedTest(absltest.TestCase):
    def test_the_table(self):
        with mock.patch.object(search, 'products', wraps=search.products) as p:
            done = command.run(
                search, '--texts=5000', '--queries=600', '--width=8',
                '--rounds=2',
            )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        self.assertRegex(
            done.out,
            r'^600 queries, 5,000 texts, 8 numbers, 52 best\n'
            r'search +[\d.]+ s .*\nproducts +[\d.]+ s .*\nratio +[\d.]+\n$',
        )
        self.assertEqual(p.call_count, 3)
        queries, texts = p.call_args.args
        self.assertEqual((queries.shape, texts.shape), ((600, 8), (5000, 8)))
        np.testing.assert_allclose(np.square(texts).sum(1), 1, rtol=1e-5)
        numbers = [n for n, _ in search.blocks(texts)]
        np.testing.assert_array_equal(np.concatenate(numbers), range(5000))
        self.assertLen(numbers[0], mine.BLOCK)


if __name__ == '__main__':
    absltest.main()
