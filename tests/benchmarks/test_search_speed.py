"""What takes turns; the search itself is tests/tasks/test_ranking.py's."""

import numpy as np
from absl.testing import absltest

from benchmarks import search
from tasks import mine


class SearchSpeedTest(absltest.TestCase):
    def test_both_ask_the_same(self):
        for way in search.WAYS:
            given = search.Choices(
                texts=5000, queries=600, width=8, serve=way
            )
            turn, said = search.contestant(given)
            self.assertIsNone(turn())
            self.assertEqual(said, {'amount': 600})
        texts = search.vectors(5000, 8, 1)
        np.testing.assert_allclose(np.square(texts).sum(1), 1, rtol=1e-5)
        numbers = [n for n, _ in search.blocks(texts)]
        np.testing.assert_array_equal(np.concatenate(numbers), range(5000))
        self.assertLen(numbers[0], mine.BLOCK)


if __name__ == '__main__':
    absltest.main()
