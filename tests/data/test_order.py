"""The order of text: a permutation, mixed, of its key alone."""

from unittest import mock

import numpy as np
from absl.testing import parameterized
from scipy import stats

from infoword_tf.data import source
from tests.chances import SIGNIFICANCE, assert_shares
from tests.near import same


class ShuffledTest(parameterized.TestCase):
    def test_is_a_permutation(self):
        """And leaves its argument alone."""
        for size in (*range(1, 301), 1023, 1024, 1025, 4097, 100_003):
            places = np.arange(size)
            sent = source.shuffled(places, size, 1, size)
            self.assertEqual(sent.dtype, np.int64)
            same(np.sort(sent), np.arange(size))
            same(places, np.arange(size))

    def test_where_a_place_goes_does_not_depend_on_the_others(self):
        size = 1000
        whole = source.shuffled(np.arange(size), size, 2, 3)
        places = np.array([999, 0, 17, 512])
        same(source.shuffled(places, size, 2, 3), whole[places])

    @parameterized.parameters(((1, 3),), ((2, 2),), ((1, 2, 2),), ((2, 1),))
    def test_differs_by_key(self, key):
        size = 1000
        a = source.shuffled(np.arange(size), size, 1, 2)
        b = source.shuffled(np.arange(size), size, *key)
        # Two random permutations agree at about one place.
        self.assertLess((a == b).sum(), 10)

    @parameterized.parameters(1000, 4096, 100_003)
    def test_mixes_like_a_random_permutation(self, size):
        places = np.arange(size)
        sent = source.shuffled(places, size, 11)
        # |i - j| of random i, j: mean n / 3, deviation n / sqrt(18).
        bound = 4 * size / np.sqrt(18 * size)
        moved = np.abs(sent - places).mean()
        self.assertAlmostEqual(moved, size / 3, delta=bound)
        neighbours = np.abs(np.diff(sent)).mean()
        self.assertAlmostEqual(neighbours, size / 3, delta=bound)

    def test_over_keys_a_place_goes_everywhere_equally_often(self):
        size, keys = 50, 2000
        sent = np.concatenate(
            [source.shuffled(np.array([3]), size, 0, k) for k in range(keys)]
        )
        assert_shares(np.bincount(sent, minlength=size))


class BlocksTest(parameterized.TestCase):
    """Some 64 blocks are shuffled together."""

    SIZE, BLOCK = 100_037, 100  # 1,001 blocks in 16 groups

    def sent(self, *key):
        places = np.arange(self.SIZE)
        return source.shuffled_in_blocks(places, self.SIZE, self.BLOCK, *key)

    def groups(self, sent):
        """The items of each group."""
        ends = np.arange(1, 16) * 1001 // 16 * self.BLOCK
        return np.split(sent, ends)

    def blocks(self, group):
        """Returns the block of each item, where all are of one group.

        What is next to each other in the circle is of one block, or of two
        that are neighbours by chance.
        """
        items = np.sort(group)
        number = np.cumsum(np.diff(items, prepend=-9) > 1)
        return number[np.searchsorted(items, group)]

    @parameterized.product(block=(1, 3, 50, 299, 10_000))
    def test_is_a_permutation_of_every_small_size(self, block):
        for size in [*range(1, 301, 7), 4097]:
            places = np.arange(size)
            sent = source.shuffled_in_blocks(places, size, block, 1, size)
            same(np.sort(sent), places)

    def test_where_a_place_goes_does_not_depend_on_the_others(self):
        places = np.array([99_000, 0, 100_036, 6300, 6299])
        sent = source.shuffled_in_blocks(places, self.SIZE, self.BLOCK, 2)
        same(sent, self.sent(2)[places])

    def test_a_group_is_read_in_few_places(self):
        every = []
        for group in self.groups(self.sent(1)):
            self.assertBetween(len(group), 6100, 6300)
            sizes = np.bincount(self.blocks(group))[1:]
            self.assertBetween(len(sizes), 48, 64)
            # What is left over is one of 37, the circle's end cuts another.
            odd = sizes[sizes % self.BLOCK > 0]
            self.assertLessEqual(len(odd), 2)
            every += sizes.tolist()
        self.assertEqual(sum(every), self.SIZE)

    def test_a_group_is_well_mixed(self):
        """Chi-square of the blocks of what is visited first."""
        for group in self.groups(self.sent(4)):
            number = self.blocks(group)
            sizes, half = np.bincount(number)[1:], len(group) // 2
            seen = np.bincount(number[:half], minlength=len(sizes) + 1)[1:]
            actual = stats.chisquare(seen, sizes * half / len(group)).statistic
            # Of a half that is drawn without repetition it is half as large.
            tail = stats.chi2.sf(2 * actual, len(sizes) - 1)
            self.assertBetween(tail, SIGNIFICANCE, 1 - SIGNIFICANCE)

    def test_blocks_come_from_everywhere(self):
        sent = self.sent(5)
        moved = np.abs(sent - np.arange(self.SIZE)).mean()
        self.assertAlmostEqual(moved, self.SIZE / 3, delta=self.SIZE / 60)
        firsts = [np.sort(group)[::100] for group in self.groups(sent)]
        # The blocks of a group are spread over the text.
        for places in firsts:
            test = stats.kstest(places / self.SIZE, 'uniform')
            self.assertGreater(test.pvalue, SIGNIFICANCE)

    @parameterized.parameters(3, 49)
    def test_over_keys_a_place_goes_everywhere_equally_often(self, place):
        """Also what is left over: 50 are 7 blocks and 1."""
        size, keys = 50, 600
        with mock.patch.object(source, 'GROUP', 3):
            sent = np.concatenate([
                source.shuffled_in_blocks(np.array([place]), size, 7, 0, k)
                for k in range(keys)
            ])  # fmt: skip
        assert_shares(np.bincount(sent, minlength=size))

    def test_epochs_differ_and_each_has_all(self):
        visits = np.arange(3000)
        actual = source.visited(visits, 1000, 7, 2, block=5).reshape(3, 1000)
        for epoch in actual:
            same(np.sort(epoch), np.arange(1000))
        self.assertLess((actual[0] == actual[1]).sum(), 10)

    def test_without_blocks_nothing_is_new(self):
        actual = source.visited(np.array([0, 5, 999, 1000]), 1000, 7, 2)
        first = source.shuffled(np.array([0, 5, 999]), 1000, 7, 0, 2)
        same(actual[:3], first)
        same(actual[3:], source.shuffled(np.array([0]), 1000, 7, 1, 2))

    def test_items_of_a_block(self):
        self.assertIsNone(source.items_of(None, 10, 1000))
        self.assertEqual(source.items_of(500, 10, 1000), 5)
        self.assertEqual(source.items_of(3, 10, 1000), 1)
