import pathlib

import numpy as np
from absl.testing import parameterized

from infoword_tf.data import store as stores
from infoword_tf.data.source import WindowSource


def make_store(word_lengths, separators=()):
    """A store in memory: words of so many pieces, numbered from 0.

    Args:
        word_lengths: pieces of each word.
        separators: numbers of the words that are separators.
    """
    word_lengths = np.asarray(word_lengths)
    tokens = int(word_lengths.sum())
    flags = np.zeros(tokens, np.uint8)
    begins = np.cumsum(word_lengths) - word_lengths
    flags[begins] = stores.WORD_START
    flags[begins[list(separators)]] |= stores.SEPARATOR
    return stores.Store(
        np.arange(tokens, dtype=np.uint32), flags, np.array([0, tokens]),
        np.ones(tokens, np.int64), pathlib.Path('nowhere'),
    )  # fmt: skip


def words_of_random_length(tokens, longest, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, tokens)
    return lengths[np.cumsum(lengths) <= tokens]


class WindowSourceTest(parameterized.TestCase):
    @parameterized.parameters(1, 3, 64, 300)
    def test_moved_back_to_the_word_that_the_cut_falls_into(self, longest):
        store = make_store(words_of_random_length(20_000, longest))
        tokens = len(store.ids)
        # Of the same size, with nothing to be moved: the cuts themselves.
        cuts = WindowSource(make_store(np.ones(tokens, int)), 30, 8, 1)
        source = WindowSource(store, 30, 8, 1)
        begins = np.nonzero(store.flags & stores.WORD_START)[0]
        for step in range(100):
            cut = cuts.starts(step)
            np.testing.assert_array_equal(
                source.starts(step),
                begins[np.searchsorted(begins, cut, side='right') - 1],
            )

    def test_a_text_of_one_word(self):
        store = make_store([1000])
        source = WindowSource(store, 30, 8, seed=1)
        np.testing.assert_array_equal(source.starts(3), np.zeros(8))

    def test_windows_are_slices_of_the_store(self):
        lengths = words_of_random_length(5_000, 4)
        store = make_store(lengths, range(9, len(lengths), 10))
        source = WindowSource(store, 30, 8, seed=2)
        separators = 0
        for step in range(20):
            batch = source.batch(step)
            for row, start in enumerate(source.starts(step)):
                flags = store.flags[start : start + 30]
                for actual, expected in (
                    (batch.ids, store.ids[start : start + 30]),
                    (batch.word_starts, flags & stores.WORD_START > 0),
                    (batch.separators, flags & stores.SEPARATOR > 0),
                ):
                    np.testing.assert_array_equal(actual[row], expected)
            separators += batch.separators.sum()
        self.assertGreater(separators, 0)
        self.assertEqual(batch.ids.dtype, np.int32)
        self.assertEqual(batch.word_starts.dtype, bool)
        self.assertEqual(batch.separators.dtype, bool)

    def test_the_global_batch_is_the_next_rows_of_the_order(self):
        # The order of windows does not depend on how many make a batch.
        store = make_store(words_of_random_length(5_000, 4))
        one = WindowSource(store, 30, 1, seed=4)
        eight = WindowSource(store, 30, 8, seed=4)
        for step in (0, 5, 20, 21):
            np.testing.assert_array_equal(
                eight.starts(step),
                [one.starts(8 * step + i)[0] for i in range(8)],
            )

    def test_over_epochs_offsets_are_uniform(self):
        length, epochs = 10, 800
        source = WindowSource(make_store(np.ones(25, int)), length, 1, seed=6)
        self.assertEqual(source.windows, 1)
        starts = np.concatenate([source.starts(s) for s in range(epochs)])
        observed = np.bincount(starts, minlength=length)
        self.assertLen(observed, length)
        expected = epochs / length
        statistic = ((observed - expected) ** 2 / expected).sum()
        self.assertLess(statistic, 27.88)  # chi-square of 9, p = 1e-3
