"""The view `overlap`: two cuts of a text in one sequence, masked."""

import numpy as np
from absl.testing import parameterized

from infoword_tf.plan import make_plan
from infoword_tf.views import overlap
from infoword_tf.views.masked import MASKINGS, Masking, Pairs, Windows, budget
from tests.views import texts
from tests.views.texts import assert_view, random_windows, same

CLS, SEP, MASK = 2, 3, 4
ROWS = {'overlap': 'tokens'}


def counted(b, length):
    """Makes texts whose ids are indices; all words have one token."""
    ids = np.broadcast_to(np.arange(100, 100 + length), (b, length))
    ids = ids.astype(np.int32)
    words = np.ones((b, length), bool)
    return Windows(ids, words, np.zeros((b, length), bool))


def drawn(windows, seed=0, masking='words', share=0.15, strangers=0.0):
    """Returns what is drawn of it."""
    random = np.random.default_rng(seed)
    return overlap.cut(windows, random, masking, share, strangers)


class OverlapTest(parameterized.TestCase):
    def test_written_out(self):
        """Tokens 10 to 14 of a text, and 13 to 19: two are in both."""
        ids = np.array([[10, 11, 12, 13, 14, 0, 13, 14, 15, 16, 17, 18, 19]])
        border = np.arange(13)[None] == 5
        text = Pairs(
            ids.astype(np.int32), np.ones((1, 13), bool), border,
            np.array([5], np.int32), np.array([7], np.int32),
            np.zeros(1, np.int32),
        )  # fmt: skip
        masked = np.isin(np.arange(13), [3, 11])[None]
        shown = np.zeros((1, 13), np.int32)
        masking = Masking(masked, shown, np.zeros((1, 13)))
        cuts = overlap.Cuts(text, masking)
        view = overlap.overlap(None, cuts, ROWS, texts.SPECIALS)
        assert_view(
            view, 'overlap',
            ids=[[CLS, 10, 11, 12, MASK, 14, SEP,
                  13, 14, 15, 16, 17, MASK, 19, SEP]],
            segment_ids=[[0] * 7 + [1] * 8], places=[[4, 12]],
            targets=[[13, 18]], weights=[[1, 1]], measured=[[1, 1]],
            block_ids=None, positions=None,
        )  # fmt: skip
        self.assertEqual(view.counts, {})

    @parameterized.product(length=(14, 62, 63), masking=list(MASKINGS))
    def test_cuts_are_of_one_text_and_overlap_by_half(self, length, masking):
        actual = drawn(counted(100, length), masking=masking).text
        for i in range(100):
            m, n = actual.firsts[i], actual.seconds[i]
            self.assertEqual(m + n, length - 1)
            self.assertGreaterEqual(min(m, n), (length - 1) // 4)
            a, b = actual.ids[i, :m], actual.ids[i, m + 1 :]
            same(np.diff(a), 1)
            same(np.diff(b), 1)
            common = np.intersect1d(a, b).size
            self.assertGreaterEqual(common, min(m, n) // 2)
        place = np.arange(length)
        same(actual.separators, place == actual.firsts[:, None])

    def test_a_word_that_a_cut_begins_in_begins_anew(self):
        """Cuts texts that are one long word: else `spans` would not mask it."""
        windows = counted(200, 62)
        windows = windows._replace(word_starts=np.zeros((200, 62), bool))
        text = drawn(windows).text
        place, border = np.arange(62), text.firsts[:, None]
        begins = (place == 0) | (place == border) | (place == border + 1)
        same(text.word_starts, begins)

    def test_lengths_distances_and_places_are_all_as_likely(self):
        n, length = 40_000, 14
        actual = drawn(counted(n, length)).text
        lengths = np.bincount(actual.firsts)[3:]
        np.testing.assert_allclose(lengths / n, 1 / 8, atol=0.01)
        # Where A has 6 tokens, B has 7; 3 at least are in both.
        half = actual.firsts == 6
        behind = (actual.ids[:, 7] - actual.ids[:, 0])[half]
        values, counts = np.unique(behind, return_counts=True)
        same(values, np.arange(-4, 4))
        np.testing.assert_allclose(counts / half.sum(), 1 / 8, atol=0.02)
        # Of these where B begins 3 behind A 10 of 14 tokens are read.
        begin = actual.ids[half, 0][behind == 3] - 100
        values, counts = np.unique(begin, return_counts=True)
        same(values, np.arange(5))
        np.testing.assert_allclose(counts / counts.sum(), 0.2, atol=0.05)

    def test_strangers_are_cut_in_the_same_way_out_of_the_next_text(self):
        n, length = 4_000, 62
        windows = counted(n, length)
        # Of which text a token is, is in its thousands.
        number = np.arange(n, dtype=np.int32)[:, None]
        windows = windows._replace(ids=windows.ids + 1000 * number)
        alone = drawn(windows).text
        self.assertFalse(alone.labels.any())
        actual = drawn(windows, strangers=0.25).text
        self.assertAlmostEqual(actual.labels.mean(), 0.25, delta=0.03)
        place = np.arange(length)
        second = place > actual.firsts[:, None]
        expected = (number + second * actual.labels[:, None]) % n
        same(actual.ids // 1000 * second, expected * second)
        # All else is as it is without strangers.
        same(actual.firsts, alone.firsts)
        same(actual.ids % 1000, alone.ids % 1000)

    def test_one_text_has_no_strangers(self):
        self.assertFalse(drawn(counted(1, 62), strangers=1.0).text.labels.any())
        self.assertTrue(drawn(counted(2, 62), strangers=1.0).text.labels.all())

    def test_strangers_where_a_row_asks_for_them(self):
        for rows, share in ((['overlap'], 0.0), (['same_text'], 0.25),
                            (['overlap', 'same_text'], 0.25)):  # fmt: skip
            plan = make_plan(dict.fromkeys(rows, {}), 64)
            draw = plan.views['overlap'].draw
            self.assertEqual(draw.settings['strangers'], share)

    def test_a_label_for_each_row(self):
        windows = random_windows(60, 40, 0.5)
        cuts = drawn(windows, strangers=0.5)
        rows = {**ROWS, 'same_text': 'next'}
        view = overlap.overlap(windows, cuts, rows, texts.SPECIALS)
        same(view.targets['same_text'][:, 0], cuts.text.labels)
        self.assertFalse(view.places['same_text'].any())
        self.assertTrue(view.weights['same_text'].all())

    @parameterized.parameters(0.15, 0.4)
    def test_what_is_asked_stood_there(self, share):
        windows = random_windows(60, 40, 0.5)
        cuts = drawn(windows, share=share)
        view = overlap.overlap(windows, cuts, ROWS, texts.SPECIALS)
        weights = view.weights['overlap']
        self.assertEqual(weights.shape[1], budget(40, share))
        self.assertLessEqual(weights.sum(1).max(), np.ceil(share * 39))
        self.assertGreater(weights.mean(), 0.9)
        i, j = np.nonzero(weights)
        at = view.places['overlap'][i, j]
        same(view.targets['overlap'][i, j], cuts.text.ids[i, at - 1])
        hidden = view.measured['overlap'][i, j] > 0
        same(view.ids[i, at][hidden], MASK)
        # Ends of documents, and the border, are shown and not asked.
        ends = np.pad(cuts.text.separators, ((0, 0), (1, 1)))
        same(view.ids[ends], SEP)
        self.assertFalse(ends[i, at].any())
        same(view.ids[:, 0], CLS)
        same(view.ids[:, -1], SEP)
