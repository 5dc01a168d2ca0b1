"""The view `ngrams`: the n-grams that `masked` hides, packed."""

import collections

import numpy as np
from absl.testing import parameterized

from infoword_tf.views import ngrams
from infoword_tf.views.masked import (
    Masking,
    Windows,
    budget,
    mask_spans,
    mask_words,
    masked,
)
from tests.refused import refused
from tests.views import texts
from tests.views.texts import assert_view, random_windows, same

DIM = {'dim': 'start'}


def span_draw(shape, *rows):
    """Makes a draw of (start, length) by sequence, like `mask_spans`."""
    b, length = shape
    p = budget(length)
    starts, lengths = np.zeros((2, b, p), np.int32)
    masked = np.zeros(shape, bool)
    for row, places in enumerate(rows):
        for i, (start, size) in enumerate(places):
            starts[row, i], lengths[row, i] = start, size
            masked[row, start : start + size] = True
    return Masking(
        masked, np.zeros(shape, np.int32), np.zeros(shape), starts, lengths,
        np.zeros(b, np.int32),
    )  # fmt: skip


def drawn(b, length, word_rate, **more):
    """Random text, its spans, and both views of it."""
    windows = random_windows(b, length, word_rate, **more)
    draw = mask_spans(windows, np.random.default_rng(1))
    shown = masked(windows, draw, DIM, texts.SPECIALS)
    view = ngrams.ngrams(windows, draw, DIM, texts.SPECIALS)
    return windows, draw, shown, view


class NgramsTest(parameterized.TestCase):
    def test_written_out(self):
        """P = 3, so S = 3: two n-grams and an empty slot, then three."""
        ids = np.stack([np.arange(10, 24), np.arange(30, 44)]).astype(np.int32)
        ids[1, 7] = 13
        windows = Windows(ids, np.ones((2, 14), bool), np.zeros((2, 14), bool))
        draw = span_draw((2, 14), [(9, 2), (3, 1)], [(7, 1), (13, 1), (0, 1)])
        view = ngrams.ngrams(windows, draw, DIM, texts.SPECIALS)
        assert_view(
            view, 'dim',
            ids=[[2, 19, 20, 3, 2, 13, 3, 3, 3],
                 [2, 13, 3, 2, 43, 3, 2, 30, 3]],
            positions=[[0, 1, 2, 3, 0, 1, 2, 0, 0], [0, 1, 2] * 3],
            block_ids=[[0, 0, 0, 0, 1, 1, 1, 3, 3],
                       [0, 0, 0, 1, 1, 1, 2, 2, 2]],
            places=[[0, 4, 0], [0, 3, 6]], targets=[[2, 1, 0], [1, 4, 3]],
            weights=[[1, 1, 0], [1, 1, 1]], sequences=[0, 1],
            dropped_spans=[0, 0], padding=[2, 0], segment_ids=None,
        )  # fmt: skip
        self.assertEqual(list(view.counts), ['dropped_spans', 'padding'])

    def test_spans_beyond_the_slots_stay_hidden_and_are_counted(self):
        windows = random_windows(2, 21, 1.0, 0.0)  # P = 4, S = 3
        draw = span_draw(
            (2, 21), [(2, 1), (20, 1), (9, 1), (0, 1)], [(5, 2), (8, 2)]
        )
        view = ngrams.ngrams(windows, draw, DIM, texts.SPECIALS)
        self.assertEqual(view.ids.shape, (2, 10))
        same(view.ids[0, [1, 4, 7]], windows.ids[0, [2, 20, 9]])
        same(view.counts['dropped_spans'], [1, 0])
        shown = masked(windows, draw, DIM, texts.SPECIALS)
        same(shown.ids[0, [1, 3, 10, 21]], texts.SPECIALS.mask_id)

    @parameterized.parameters(
        (8, 1, 1), (64, 10, 4), (128, 19, 6), (512, 77, 16)
    )
    def test_widths(self, tokens, p, s):
        self.assertEqual(budget(tokens - 2), p)
        self.assertEqual(ngrams.most_ngrams(tokens - 2), s)
        # Whatever was drawn.
        for word_rate, separator_rate in ((1.0, 0.0), (0.3, 0.5), (1.0, 1.0)):
            *_, view = drawn(
                9, tokens - 2, word_rate, separator_rate=separator_rate
            )
            for array in (view.ids, view.positions, view.block_ids):
                self.assertEqual(array.shape, (9, p + 2 * s))
            for part in (view.places, view.targets, view.weights):
                self.assertEqual(part['dim'].shape, (9, s))

    @parameterized.product(
        length=(6, 14, 46, 126, 510), word_rate=(0.4, 1.0)
    )
    def test_is_what_the_masked_view_hides(self, length, word_rate):
        windows, draw, seen, view = drawn(16, length, word_rate)
        slots = ngrams.most_ngrams(length)
        for row in range(16):
            count = (draw.lengths[row] > 0).sum()
            fitting = min(count, slots)
            end = 0
            shown = seen.ids[row, 1:-1].copy()
            for slot in range(fitting):
                start, size = draw.starts[row, slot], draw.lengths[row, slot]
                here = slice(end, end + size + 2)
                self.assertEqual(view.places['dim'][row, slot], end)
                span = slice(start, start + size)
                same(view.ids[row, here], [2, *windows.ids[row, span], 3])
                same(view.positions[row, here], np.arange(size + 2))
                same(view.block_ids[row, here], slot)
                same(shown[span], 4)
                end += size + 2
            same(view.block_ids[row, end:], slots)
            same(view.weights['dim'][row], np.arange(slots) < count)
            same(view.counts['dropped_spans'][row], max(0, count - slots))
            # Nothing else is masked but what was dropped.
            dropped = draw.lengths[row, slots:].sum()
            self.assertEqual((shown == 4).sum(), end - 2 * fitting + dropped)
            same(shown == 4, draw.masked[row])
        self.assertBetween(view.places['dim'].min(), 0, view.ids.shape[1])

    @parameterized.parameters(2, 8, 60)
    def test_targets_are_equal_where_the_tokens_are(self, tokens):
        *_, view = drawn(60, 46, 0.8, tokens=tokens)
        number = {}
        actual = collections.Counter()
        for row in range(60):
            for slot in np.nonzero(view.weights['dim'][row])[0]:
                text = tuple(view.ids[row][view.block_ids[row] == slot])
                target = view.targets['dim'][row, slot]
                self.assertEqual(number.setdefault(text, target), target)
                actual[text] += 1
        self.assertLen(set(number.values()), len(number))
        self.assertGreater(max(actual.values()), 1)
        self.assertIn(1, actual.values())

    def test_rows_of_separators_alone(self):
        """One sequence of separators, then a batch of these."""
        windows = random_windows(3, 46, 1.0, 0.0)
        windows.separators[1] = True
        draw = mask_spans(windows, np.random.default_rng(0))
        view = ngrams.ngrams(windows, draw, DIM, texts.SPECIALS)
        same(view.weights['dim'].any(axis=1), [True, False, True])
        *_, nothing = drawn(3, 46, 1.0, separator_rate=1.0)
        for one, row in ((view, 1), (nothing, 0), (nothing, 2)):
            same(one.weights['dim'][row], 0)
            same(one.places['dim'][row], 0)
            same(one.block_ids[row], 4)
            self.assertEqual(one.counts['dropped_spans'][row], 0)

    def test_wants_spans_and_has_no_words(self):
        windows, draw, *_ = drawn(3, 46, 1.0)
        with refused('where_not_in_view', 'start', 'bert_nce'):
            ngrams.ngrams(windows, draw, {'bert_nce': 'tokens'}, texts.SPECIALS)
        draw = mask_words(windows, np.random.default_rng(0))
        with refused('ngrams_without_spans'):
            ngrams.ngrams(windows, draw, DIM, texts.SPECIALS)

    def test_ngrams_of_a_pair(self):
        """Takes of A and of B what `masked` hides."""
        draw = texts.two_pairs_draw()._replace(
            starts=np.array([[7, 1], [2, 0]], np.int32),
            lengths=np.array([[1, 1], [1, 0]], np.int32),
        )
        view = ngrams.ngrams(texts.two_pairs(), draw, DIM, texts.SPECIALS)
        same(view.ids, [[2, 16, 3, 2, 11, 3], [2, 21, 3, 3, 3, 3]])
        same(view.weights['dim'], [[1, 1], [1, 0]])
