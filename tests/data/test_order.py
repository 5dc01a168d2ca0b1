"""The order of text: a permutation, mixed, of its key alone."""

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from infoword_tf.data import order

SIGNIFICANCE = 1e-3


class ShuffledTest(parameterized.TestCase):
    def test_is_a_permutation_of_every_small_size(self):
        for size in range(1, 301):
            sent = order.shuffled(np.arange(size), size, 1, size)
            self.assertEqual(sent.dtype, np.int64)
            np.testing.assert_array_equal(np.sort(sent), np.arange(size))

    @parameterized.parameters(1023, 1024, 1025, 4096, 4097, 65536, 100_003)
    def test_is_a_permutation(self, size):
        sent = order.shuffled(np.arange(size), size, 0, 5)
        np.testing.assert_array_equal(np.sort(sent), np.arange(size))

    def test_where_a_place_goes_does_not_depend_on_the_others(self):
        size = 1000
        whole = order.shuffled(np.arange(size), size, 2, 3)
        places = np.array([999, 0, 17, 512])
        np.testing.assert_array_equal(
            order.shuffled(places, size, 2, 3), whole[places]
        )

    def test_leaves_its_argument_alone(self):
        places = np.arange(300)
        order.shuffled(places, 300, 1)
        np.testing.assert_array_equal(places, np.arange(300))

    @parameterized.parameters(((1, 3),), ((2, 2),), ((1, 2, 2),), ((2, 1),))
    def test_differs_by_key(self, key):
        size = 1000
        a = order.shuffled(np.arange(size), size, 1, 2)
        b = order.shuffled(np.arange(size), size, *key)
        # Two random permutations agree at about one place.
        self.assertLess((a == b).sum(), 10)

    @parameterized.parameters(1000, 4096, 100_003)
    def test_mixes_like_a_random_permutation(self, size):
        places = np.arange(size)
        sent = order.shuffled(places, size, 11)
        # |i - j| of random i, j: mean n / 3, deviation n / sqrt(18).
        bound = 4 * size / np.sqrt(18 * size)
        moved = np.abs(sent - places).mean()
        self.assertAlmostEqual(moved, size / 3, delta=bound)
        neighbours = np.abs(np.diff(sent)).mean()
        self.assertAlmostEqual(neighbours, size / 3, delta=bound)

    def test_over_keys_a_place_goes_everywhere_equally_often(self):
        size, keys = 50, 5000
        sent = np.concatenate(
            [order.shuffled(np.array([3]), size, 0, k) for k in range(keys)]
        )
        observed = np.bincount(sent, minlength=size)
        self.assertGreater(
            stats.chisquare(observed).pvalue, SIGNIFICANCE
        )


if __name__ == '__main__':
    absltest.main()
