"""Maskings of windows and pairs: budgets, shares, places."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from infoword_tf.views import generator
from infoword_tf.views import masked as maskings
from tests.chances import SIGNIFICANCE, assert_share, assert_shares
from tests.views.texts import random_windows, same

# P(n) of n ~ N(5, 1), rounded and clipped to 1..10.
LENGTH_PMF = (
    0.000233, 0.005977, 0.060598, 0.241730, 0.382925,
    0.241730, 0.060598, 0.005977, 0.000229, 0.000003,
)  # fmt: skip


def one_piece_words(b, length, separators=()):
    """Every token a word; separators at the same places everywhere."""
    is_separator = np.zeros((b, length), bool)
    is_separator[:, list(separators)] = True
    ids = np.full((b, length), 7, np.int32)
    return maskings.Windows(ids, np.ones((b, length), bool), is_separator)


def constant_lengths(n):
    return mock.patch.object(
        maskings, 'span_lengths', lambda size, random: np.full(size, n)
    )


def equal_share_p(masked):
    """P-value of uniform places, P of each sequence.

    Drawn without replacement the counts vary less than multinomial ones:
    covariance B p (1 - p) (I - 1/L) L / (L - 1), p = P / L.
    """
    b, length = masked.shape
    p = masked.mean()
    deviation = masked.sum(axis=0) - b * p
    statistic = (deviation**2).sum() / (b * p * (1 - p))
    return stats.chi2.sf(statistic * (length - 1) / length, length - 1)


class BudgetTest(absltest.TestCase):
    def test_is_the_smallest_number_of_at_least_15_percent(self):
        for length in range(1, 1000):
            p = maskings.budget(length)
            self.assertGreaterEqual(100 * p, 15 * length)
            self.assertLess(100 * (p - 1), 15 * length)


def make_pairs(b, length, seed=0):
    """A [SEP] B of all lengths that fit, then padding."""
    random = np.random.default_rng(seed)
    firsts = random.integers(1, length - 1, b).astype(np.int32)
    seconds = random.integers(1, length - firsts).astype(np.int32)
    column, a = np.arange(length), firsts[:, None]
    separators = (column == a) | (column > a + seconds[:, None])
    word_starts = random.random((b, length)) < 0.6
    word_starts |= separators | (column == 0) | (column == a + 1)
    return maskings.Pairs(
        np.full((b, length), 7, np.int32), word_starts, separators,
        firsts, seconds, np.zeros(b, np.int32),
    )  # fmt: skip


def check_words(test, text, masked):
    """None in part, and none left out that would fit; returns what is left."""
    word = np.cumsum(text.word_starts, axis=1) - 1
    left = maskings.budgets(text) - masked.sum(axis=1)
    test.assertGreaterEqual(left.min(), 0)
    for row, separators in enumerate(text.separators):
        number = word[row][~separators]
        sizes = np.bincount(number)
        hidden = np.bincount(number, masked[row][~separators], len(sizes))
        test.assertTrue(((hidden == 0) | (hidden == sizes)).all())
        shown = sizes[(hidden == 0) & (sizes > 0)]
        test.assertTrue((shown > left[row]).all())
    return left


def repeated(text, times):
    """Every pair so many times."""
    return maskings.Pairs(
        *(None if x is None else np.repeat(x, times, axis=0) for x in text)
    )


class PairsTest(parameterized.TestCase):
    def test_a_budget_for_each_row(self):
        text = make_pairs(200, 46)
        sizes = (text.firsts + text.seconds).tolist()
        self.assertEqual(
            maskings.budgets(text).tolist(), [maskings.budget(n) for n in sizes]
        )
        self.assertGreater(len(set(sizes)), 30)
        windows = random_windows(3, 46, 0.6, 0.1)
        self.assertEqual(maskings.budgets(windows).tolist(), [7, 7, 7])

    @parameterized.product(
        name=('spans', 'words', 'tokens'), length=(6, 46, 126)
    )
    def test_the_budget_is_hidden_and_nothing_but_text(self, name, length):
        text = make_pairs(300, length)
        draw = maskings.masking_of(name)(text, np.random.default_rng(1))
        self.assertFalse((draw.masked & text.separators).any())
        if name == 'words':
            check_words(self, text, draw.masked)
        else:
            same(draw.masked.sum(axis=1), maskings.budgets(text))
        self.assertIsNone(draw.negatives)
        if name == 'spans':  # of one token each
            same(draw.lengths.sum(axis=1), maskings.budgets(text))
            self.assertEqual(draw.starts.shape[1], maskings.budget(length))
            a = text.firsts[:, None]
            ends = draw.starts + draw.lengths
            self.assertFalse(((draw.starts < a) & (ends > a)).any())

    def test_every_token_of_a_pair_is_drawn_as_often(self):
        text = repeated(make_pairs(1, 40, seed=5), 6000)
        draw = maskings.mask_tokens(text, np.random.default_rng(0))
        masked = draw.masked[:, ~text.separators[0]]
        self.assertGreater(equal_share_p(masked), SIGNIFICANCE)

    @parameterized.product(name=('spans', 'words', 'tokens'), share=(0.15, 0.5))
    def test_negatives_are_masked_alike_after_the_true_pair(self, name, share):
        """By the same generator, which the true pair reads as if alone."""
        text, mask = make_pairs(20, 40), maskings.MASKINGS[name]
        text = text._replace(negatives=repeated(text, 3))
        draw = maskings.masking_of(name)(text, np.random.default_rng(0), share)
        random = np.random.default_rng(0)
        for pairs, actual in ((text, draw), (text.negatives, draw.negatives)):
            expected = mask(pairs, random, share)
            same(actual.masked, expected.masked)
            same(actual.shown, expected.shown)
            self.assertAlmostEqual(
                actual.masked.sum() / (~pairs.separators).sum(), share,
                delta=0.04,
            )  # fmt: skip


class SpanLengthsTest(absltest.TestCase):
    def test_rounded_and_clipped_normal(self):
        draws = 1_000_000
        n = maskings.span_lengths(draws, np.random.default_rng(0))
        self.assertEqual(n.min(), 1)
        self.assertLessEqual(n.max(), 10)
        observed = np.bincount(n, minlength=11)[1:].astype(float)
        expected = draws * np.array(LENGTH_PMF)
        # The last two cells as one: 3 draws are expected in the last.
        observed[-2:], expected[-2:] = observed[-2:].sum(), expected[-2:].sum()
        assert_shares(observed[:-1], expected[:-1])
        self.assertAlmostEqual(n.mean(), 5.0, delta=4 * 1.05 / draws**0.5)


class SpansTest(parameterized.TestCase):
    @parameterized.product(
        length=(6, 62, 126, 510),
        word_rate=(0.3, 0.7, 1.0),
        separator_rate=(0.0, 0.03, 0.2),
    )
    def test_invariants(self, length, word_rate, separator_rate):
        windows = random_windows(24, length, word_rate, separator_rate)
        draw = maskings.mask_spans(windows, np.random.default_rng(1))
        budget = maskings.budget(length)
        self.assertFalse(draw.shown.any())
        self.assertEqual(draw.starts.shape, (24, budget))
        self.assertEqual(draw.lengths.shape, (24, budget))
        for row in range(24):
            starts, lengths = draw.starts[row], draw.lengths[row]
            count = int((lengths > 0).sum())
            self.assertTrue((lengths[:count] > 0).all())  # no gaps
            room = int((~windows.separators[row]).sum())
            self.assertEqual(draw.masked[row].sum(), min(budget, room))
            cover = np.zeros(length, int)
            # The token after a row begins a word, as far as is known.
            begins = np.append(windows.word_starts[row], True)
            for i in range(count):
                first, end = starts[i], starts[i] + lengths[i]
                cover[first:end] += 1
                self.assertTrue(begins[first])
                self.assertLessEqual(begins[first:end].sum(), 10)
                if i < count - 1:
                    self.assertTrue(begins[end])
            same(cover, draw.masked[row])
            self.assertFalse((draw.masked[row] & windows.separators[row]).any())

    def test_a_length_is_drawn_once_for_each_span(self):
        drawn = []

        def record(size, random):
            drawn.append(real(size, random))
            return drawn[-1]

        real = maskings.span_lengths
        windows = random_windows(300, 126, 0.7, 0.01)
        with mock.patch.object(maskings, 'span_lengths', record):
            draw = maskings.mask_spans(windows, np.random.default_rng(3))
        self.assertLen(drawn, (draw.lengths > 0).sum(axis=1).max())
        checked = 0
        for row in np.nonzero(draw.shortened == 0)[0]:
            count = int((draw.lengths[row] > 0).sum())
            for i in range(count - 1):
                first = draw.starts[row, i]
                end = first + draw.lengths[row, i]
                words = windows.word_starts[row, first:end].sum()
                self.assertEqual(words, drawn[i][row])
                checked += 1
        self.assertGreater(checked, 300)

    def test_the_place_is_uniform_over_words_not_tokens(self):
        # Words of 1 and of 4 tokens in turn; 3 words from 22 places.
        word_starts = np.zeros((20_000, 60), bool)
        word_starts[:, 0::5] = word_starts[:, 1::5] = True
        windows = one_piece_words(20_000, 60)._replace(word_starts=word_starts)
        with constant_lengths(3):
            draw = maskings.mask_spans(windows, np.random.default_rng(6))
        word = np.cumsum(word_starts[0]) - 1
        observed = np.bincount(word[draw.starts[:, 0]], minlength=24)
        same(observed[22:], 0)
        assert_shares(observed[:22])

    def test_the_second_place_is_uniform_among_the_free(self):
        # 2 words of 20, then 2 more, of which the budget P = 3 leaves one.
        b, words = 20_000, 20
        with constant_lengths(2):
            draw = maskings.mask_spans(
                one_piece_words(b, words), np.random.default_rng(7)
            )
        same(draw.lengths, np.broadcast_to([2, 1, 0], (b, 3)))
        observed, expected = [], []
        for first in range(words - 1):
            free = [x for x in range(words - 1) if abs(x - first) >= 2]
            here = draw.starts[draw.starts[:, 0] == first, 1]
            counts = np.bincount(here, minlength=words)
            self.assertEqual(counts.sum(), counts[free].sum())
            observed.extend(counts[free])
            expected.extend([b / (words - 1) / len(free)] * len(free))
        assert_shares(observed, expected)

    def test_short_documents_give_their_longest_free_run(self):
        # Runs of 3, 2, 4, 2, 2, ... words; 6 words fit nowhere.
        separators = [3, 6, 11, *range(14, 40, 3)]
        row = one_piece_words(1, 40, separators)
        free = one_piece_words(1, 40)
        windows = maskings.Windows(
            *(np.concatenate([a, b]) for a, b in zip(row, free, strict=True))
        )
        with constant_lengths(6):
            draw = maskings.mask_spans(windows, np.random.default_rng(8))
        same(draw.starts[0, :2], [7, 0])
        same(draw.lengths[:, :2], [[4, 2], [6, 0]])
        same(draw.lengths[:, 2:], 0)
        same(draw.shortened, [2, 0])
        same(np.nonzero(draw.masked[0])[0], [0, 1, 7, 8, 9, 10])


class MaskingsTest(parameterized.TestCase):
    """Properties of every masking."""

    @parameterized.parameters('spans', 'words', 'tokens')
    def test_is_a_function_of_its_key(self, name):
        windows = random_windows(16, 126, 0.7, 0.02)
        before = [array.copy() for array in windows]
        mask = maskings.MASKINGS[name]
        a, b = (mask(windows, generator(1, 2, name)) for _ in 'ab')
        for x, y in zip([*a, *windows], [*b, *before], strict=True):
            same(x, y)

    @parameterized.parameters('spans', 'words', 'tokens')
    def test_a_row_does_not_depend_on_the_text_of_others(self, name):
        a = random_windows(8, 126, 0.7, 0.02, seed=1)
        b = random_windows(8, 126, 0.3, 0.10, seed=2)
        for ours, theirs in zip(a, b, strict=True):
            theirs[3] = ours[3]
        ours, theirs = (
            maskings.MASKINGS[name](w, generator(0, 0, name))
            for w in (a, b)
        )
        same(ours.masked[3], theirs.masked[3])
        same(ours.shown[3], theirs.shown[3])

    @parameterized.parameters('spans', 'words', 'tokens')
    def test_fewer_tokens_than_the_budget_are_all_hidden(self, name):
        windows = one_piece_words(2, 20, range(20))
        windows.separators[1, [4, 9]] = False
        draw = maskings.MASKINGS[name](windows, np.random.default_rng(0))
        self.assertFalse(draw.masked[0].any())
        same(np.nonzero(draw.masked[1])[0], [4, 9])
        if name == 'spans':
            self.assertCountEqual(draw.starts[1, :2].tolist(), [4, 9])
            same(draw.lengths[1, :2], [1, 1])

    @parameterized.parameters('words', 'tokens')
    def test_eighty_ten_ten_for_each_piece(self, name):
        windows = random_windows(2000, 126, 0.4, 0.02)
        draw = maskings.MASKINGS[name](windows, np.random.default_rng(0))
        shown = draw.shown[draw.masked]
        observed = np.bincount(shown, minlength=3)
        assert_shares(observed, len(shown) * np.array([0.8, 0.1, 0.1]))
        # Each token has its own draw, not its word: neighbours agree by chance,
        # 0.8^2 + 0.1^2 + 0.1^2 = 0.66 of the time.
        both = draw.masked[:, 1:] & draw.masked[:, :-1]
        agree = (draw.shown[:, 1:] == draw.shown[:, :-1])[both]
        assert_share(agree.sum(), len(agree), 0.66)
        random = draw.random[draw.masked & (draw.shown == 1)]
        p = stats.kstest(random, 'uniform').pvalue
        self.assertGreater(p, SIGNIFICANCE)


class WordsTest(parameterized.TestCase):
    @parameterized.product(
        length=(6, 62, 126, 510), word_rate=(0.1, 0.6, 1.0)
    )
    def test_whole_words_as_many_as_fit(self, length, word_rate):
        windows = random_windows(100, length, word_rate, 0.05, seed=length)
        draw = maskings.mask_words(windows, np.random.default_rng(1))
        self.assertTrue(windows.separators.any())
        self.assertFalse((draw.masked & windows.separators).any())
        left = check_words(self, windows, draw.masked)
        if word_rate == 0.6 and length > 6:
            self.assertLess(left.mean(), 0.05)

    def test_is_the_literal_loop(self):
        """Loops as the official code: a word that does not fit is left out."""
        random = np.random.default_rng(0)
        for _ in range(300):
            sizes = random.integers(0, 9, (4, 20))
            room = random.integers(0, 40, 4)
            actual = maskings._that_fit(sizes, room)
            for row, left, taken in zip(sizes, room, actual, strict=True):
                for size, is_taken in zip(row, taken, strict=True):
                    self.assertEqual(0 < size <= left, is_taken)
                    left -= size * is_taken

    def test_every_word_equally_often(self):
        draw = maskings.mask_words(
            one_piece_words(20_000, 62), np.random.default_rng(2)
        )
        self.assertGreater(equal_share_p(draw.masked), SIGNIFICANCE)

    def test_long_words_are_no_likelier_to_come_first(self):
        # A word of 2 tokens and 18 of one; P = 3. The long word is masked
        # when it is among the first 2 drawn of 19.
        word_starts = np.ones((20_000, 20), bool)
        word_starts[:, 6] = False
        windows = one_piece_words(20_000, 20)._replace(word_starts=word_starts)
        draw = maskings.mask_words(windows, np.random.default_rng(3))
        assert_share(draw.masked[:, 5].sum(), 20_000, 2 / 19)


class TokensTest(absltest.TestCase):
    def test_places_are_drawn_independently_of_words(self):
        # Two neighbours are both masked with P (P - 1) / L (L - 1).
        windows = random_windows(5_000, 62, 0.2, 0.0)
        draw = maskings.mask_tokens(windows, np.random.default_rng(2))
        both = draw.masked[:, 30] & draw.masked[:, 31]
        assert_share(both.sum(), 5_000, 10 * 9 / (62 * 61))
