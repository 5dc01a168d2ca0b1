import collections

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import sampling, views

SPECIALS = views.Specials(cls_id=2, sep_id=3, mask_id=4, size=100)
DIM = {'dim': 'start'}


def make_windows():
    """Two rows of L = 7 tokens, P = 2; a document ends in the second."""
    ids = np.array(
        [[10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 3, 23, 24, 25]], np.int32
    )
    return sampling.Windows(ids, np.ones((2, 7), bool), ids == 3)


def make_draw(hidden, shown=None, random=None, **more):
    mask = np.zeros((2, 7), bool)
    for row, places in enumerate(hidden):
        mask[row, places] = True
    return sampling.Masking(
        mask,
        np.zeros((2, 7), np.int32) if shown is None else np.array(shown),
        np.zeros((2, 7)) if random is None else np.array(random),
        **more,
    )


class MaskedTest(absltest.TestCase):
    def test_spans(self):
        draw = make_draw([[5, 6], [1, 4]], shortened=np.array([0, 2]))
        view = views.masked(
            make_windows(), draw, {'bert_nce': 'words'}, SPECIALS
        )
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 10, 11, 12, 13, 14, 4, 4, 3],
                [2, 20, 4, 22, 3, 4, 24, 25, 3],
            ],
        )
        # Places count the [CLS], and are in the order of the text.
        np.testing.assert_array_equal(
            view.places['bert_nce'], [[6, 7], [2, 5]]
        )
        np.testing.assert_array_equal(
            view.targets['bert_nce'], [[15, 16], [21, 23]]
        )
        np.testing.assert_array_equal(
            view.weights['bert_nce'], np.ones((2, 2))
        )
        np.testing.assert_array_equal(view.sequences, [0, 1])
        np.testing.assert_array_equal(view.counts['shortened_spans'], [0, 2])
        self.assertIsNone(view.positions)
        self.assertIsNone(view.segment_ids)
        self.assertIsNone(view.block_ids)
        for array in (view.ids, view.sequences, view.places['bert_nce'],
                      view.targets['bert_nce']):  # fmt: skip
            self.assertEqual(array.dtype, np.int32)
        self.assertEqual(view.weights['bert_nce'].dtype, np.float32)

    def test_what_is_shown(self):
        # [MASK], piece floor(.37 * 100), itself, piece 99; what is not
        # hidden stays whatever was drawn for it.
        draw = make_draw(
            [[0, 3], [2, 6]],
            shown=[[0, 1, 0, 1, 2, 0, 1], [1, 1, 2, 0, 0, 0, 1]],
            random=[[0.5, 0.5, 0, 0.37, 0, 0, 0.9], [0.1] * 6 + [0.9999]],
        )
        view = views.masked(make_windows(), draw, {'mlm': 'words'}, SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 4, 11, 12, 37, 14, 15, 16, 3],
                [2, 20, 21, 22, 3, 23, 24, 99, 3],
            ],
        )
        np.testing.assert_array_equal(view.places['mlm'], [[1, 4], [3, 7]])
        np.testing.assert_array_equal(
            view.targets['mlm'], [[10, 13], [22, 25]]
        )
        np.testing.assert_array_equal(view.weights['mlm'], np.ones((2, 2)))
        self.assertEqual(view.counts, {})

    def test_random_pieces_are_of_the_whole_vocabulary(self):
        draw = make_draw(
            [[0, 1], [0, 1]],
            shown=np.ones((2, 7), int),
            random=[[0.0, 0.009, 0, 0, 0, 0, 0], [0.01, 1 - 2**-53] + [0] * 5],
        )
        view = views.masked(make_windows(), draw, {'mlm': 'words'}, SPECIALS)
        np.testing.assert_array_equal(view.ids[:, 1:3], [[0, 0], [1, 99]])

    def test_fewer_hidden_than_the_budget(self):
        draw = make_draw([[4], []])
        view = views.masked(make_windows(), draw, {'mlm': 'words'}, SPECIALS)
        np.testing.assert_array_equal(view.weights['mlm'], [[1, 0], [0, 0]])
        self.assertEqual(view.places['mlm'][0, 0], 5)
        self.assertEqual(view.targets['mlm'][0, 0], 14)
        self.assertEqual(view.places['mlm'].shape, (2, 2))
        # Places of weight 0 still lie inside the row.
        self.assertBetween(view.places['mlm'].min(), 1, 7)
        self.assertBetween(view.places['mlm'].max(), 1, 7)
        np.testing.assert_array_equal(
            view.ids[1], [2, 20, 21, 22, 3, 23, 24, 25, 3]
        )

    def test_rows_that_share_the_view_get_the_same(self):
        view = views.masked(
            make_windows(),
            make_draw([[1, 2], [0, 6]]),
            {'mlm': 'words', 'bert_nce': 'words'},
            SPECIALS,
        )
        for field in (view.places, view.targets, view.weights):
            self.assertEqual(list(field), ['mlm', 'bert_nce'])
            np.testing.assert_array_equal(field['mlm'], field['bert_nce'])

    def test_rows_that_want_the_start(self):
        view = views.masked(
            make_windows(),
            make_draw([[1, 2], [0, 6]]),
            {'dim': 'start', 'bert_nce': 'words'},
            SPECIALS,
        )
        self.assertEqual(list(view.places), ['dim', 'bert_nce'])
        np.testing.assert_array_equal(view.places['dim'], [[0], [0]])
        self.assertEqual(view.places['dim'].dtype, np.int32)
        np.testing.assert_array_equal(
            view.places['bert_nce'], [[2, 3], [1, 7]]
        )
        # What a text is compared with is another view's.
        self.assertEqual(list(view.targets), ['bert_nce'])
        self.assertEqual(list(view.weights), ['bert_nce'])

    def test_the_text_can_be_put_together_again(self):
        random = np.random.default_rng(0)
        b, length = 40, 62
        ids = random.integers(5, 100, (b, length), dtype=np.int32)
        windows = sampling.Windows(
            ids, np.ones((b, length), bool), np.zeros((b, length), bool)
        )
        for name, masking in sampling.MASKINGS.items():
            view = views.masked(
                windows, masking(windows, random), {'a': 'words'}, SPECIALS
            )
            self.assertTrue((np.diff(view.places['a']) > 0).all(), name)
            restored = view.ids.copy()
            np.put_along_axis(
                restored, view.places['a'], view.targets['a'], axis=1
            )
            np.testing.assert_array_equal(restored[:, 1:-1], ids)
            np.testing.assert_array_equal(restored[:, 0], 2)
            np.testing.assert_array_equal(restored[:, -1], 3)

    def test_leaves_the_text_alone(self):
        windows = make_windows()
        views.masked(
            windows, make_draw([[1, 2], [0, 6]]), {'a': 'words'}, SPECIALS
        )
        for array, old in zip(windows, make_windows(), strict=True):
            np.testing.assert_array_equal(array, old)


def random_windows(b, length, word_rate, separator_rate=0.02, pieces=8):
    """Few pieces, so that n-grams are there several times."""
    random = np.random.default_rng(length)
    ids = random.integers(5, 5 + pieces, (b, length), dtype=np.int32)
    word_starts = random.random((b, length)) < word_rate
    separators = random.random((b, length)) < separator_rate
    word_starts |= separators
    word_starts[:, 1:] |= separators[:, :-1]
    word_starts[:, 0] = True
    return sampling.Windows(
        np.where(separators, np.int32(3), ids), word_starts, separators
    )


def span_draw(shape, *rows):
    """A draw of (start, length) by row, as `sampling.spans` returns it."""
    b, length = shape
    p = sampling.budget(length)
    starts, lengths = np.zeros((2, b, p), np.int32)
    hidden = np.zeros(shape, bool)
    for row, spans in enumerate(rows):
        for i, (start, size) in enumerate(spans):
            starts[row, i], lengths[row, i] = start, size
            hidden[row, start : start + size] = True
    return sampling.Masking(
        hidden,
        np.zeros(shape, np.int32),
        np.zeros(shape),
        starts,
        lengths,
        np.zeros(b, np.int32),
    )


def drawn(b, length, word_rate, **more):
    """Random text, its spans, and both views of it."""
    windows = random_windows(b, length, word_rate, **more)
    draw = sampling.spans(windows, np.random.default_rng(1))
    masked = views.masked(windows, draw, DIM, SPECIALS)
    return windows, draw, masked, views.ngrams(windows, draw, DIM, SPECIALS)


class NgramsTest(parameterized.TestCase):
    def test_written_out(self):
        """P = 3, so S = 3: two n-grams and an empty slot, then three."""
        ids = np.stack([np.arange(10, 24), np.arange(30, 44)]).astype(np.int32)
        ids[1, 7] = 13
        windows = sampling.Windows(
            ids, np.ones((2, 14), bool), np.zeros((2, 14), bool)
        )
        draw = span_draw(
            (2, 14), [(9, 2), (3, 1)], [(7, 1), (13, 1), (0, 1)]
        )
        view = views.ngrams(windows, draw, DIM, SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 19, 20, 3, 2, 13, 3, 3, 3],
                [2, 13, 3, 2, 43, 3, 2, 30, 3],
            ],
        )
        np.testing.assert_array_equal(
            view.positions,
            [[0, 1, 2, 3, 0, 1, 2, 0, 0], [0, 1, 2] * 3],
        )
        np.testing.assert_array_equal(
            view.block_ids,
            [[0, 0, 0, 0, 1, 1, 1, 3, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2]],
        )
        np.testing.assert_array_equal(
            view.places['dim'], [[0, 4, 0], [0, 3, 6]]
        )
        np.testing.assert_array_equal(
            view.targets['dim'], [[2, 1, 0], [1, 4, 3]]
        )
        np.testing.assert_array_equal(
            view.weights['dim'], [[1, 1, 0], [1, 1, 1]]
        )
        np.testing.assert_array_equal(view.sequences, [0, 1])
        self.assertEqual(list(view.counts), ['dropped_spans'])
        np.testing.assert_array_equal(view.counts['dropped_spans'], [0, 0])
        self.assertIsNone(view.segment_ids)
        for array in (
            view.ids,
            view.sequences,
            view.positions,
            view.block_ids,
            view.places['dim'],
            view.targets['dim'],
            view.counts['dropped_spans'],
        ):
            self.assertEqual(array.dtype, np.int32)
        self.assertEqual(view.weights['dim'].dtype, np.float32)

    def test_spans_beyond_the_slots_stay_hidden_and_are_counted(self):
        windows = random_windows(2, 21, 1.0, 0.0)  # P = 4, S = 3
        draw = span_draw(
            (2, 21), [(2, 1), (20, 1), (9, 1), (0, 1)], [(5, 2), (8, 2)]
        )
        view = views.ngrams(windows, draw, DIM, SPECIALS)
        self.assertEqual(view.ids.shape, (2, 10))
        np.testing.assert_array_equal(
            view.ids[0, [1, 4, 7]], windows.ids[0, [2, 20, 9]]
        )
        np.testing.assert_array_equal(view.counts['dropped_spans'], [1, 0])
        masked = views.masked(windows, draw, DIM, SPECIALS)
        np.testing.assert_array_equal(
            masked.ids[0, [1, 3, 10, 21]], SPECIALS.mask_id
        )

    @parameterized.parameters(
        (8, 1, 1), (64, 10, 4), (128, 19, 6), (512, 77, 16)
    )
    def test_widths(self, tokens, p, s):
        self.assertEqual(sampling.budget(tokens - 2), p)
        self.assertEqual(views.most_ngrams(tokens - 2), s)
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
        windows, draw, masked, view = drawn(16, length, word_rate)
        slots = views.most_ngrams(length)
        for row in range(16):
            count = (draw.lengths[row] > 0).sum()
            kept = min(count, slots)
            end = 0
            shown = masked.ids[row, 1:-1].copy()
            for slot in range(kept):
                start, size = draw.starts[row, slot], draw.lengths[row, slot]
                here = slice(end, end + size + 2)
                self.assertEqual(view.places['dim'][row, slot], end)
                np.testing.assert_array_equal(
                    view.ids[row, here],
                    [2, *windows.ids[row, start : start + size], 3],
                )
                np.testing.assert_array_equal(
                    view.positions[row, here], np.arange(size + 2)
                )
                np.testing.assert_array_equal(view.block_ids[row, here], slot)
                np.testing.assert_array_equal(shown[start : start + size], 4)
                end += size + 2
            np.testing.assert_array_equal(view.block_ids[row, end:], slots)
            np.testing.assert_array_equal(
                view.weights['dim'][row], np.arange(slots) < count
            )
            self.assertEqual(
                view.counts['dropped_spans'][row], max(0, count - slots)
            )
            # Nothing else is hidden but what was dropped.
            dropped = draw.lengths[row, slots:].sum()
            self.assertEqual((shown == 4).sum(), end - 2 * kept + dropped)
            np.testing.assert_array_equal(shown == 4, draw.hidden[row])
        self.assertBetween(view.places['dim'].min(), 0, view.ids.shape[1])

    def test_some_spans_are_dropped_there(self):
        *_, view = drawn(400, 126, 1.0, separator_rate=0.6)
        self.assertGreater(view.counts['dropped_spans'].sum(), 10)

    @parameterized.parameters(2, 8, 60)
    def test_targets_are_equal_where_the_tokens_are(self, pieces):
        *_, view = drawn(60, 46, 0.8, pieces=pieces)
        number = {}
        found = collections.Counter()
        for row in range(60):
            for slot in np.nonzero(view.weights['dim'][row])[0]:
                text = tuple(view.ids[row][view.block_ids[row] == slot])
                target = view.targets['dim'][row, slot]
                self.assertEqual(number.setdefault(text, target), target)
                found[text] += 1
        self.assertLen(set(number.values()), len(number))
        self.assertGreater(max(found.values()), 1)
        self.assertIn(1, found.values())

    def test_rows_of_separators_alone(self):
        """One such row, then a batch of nothing else."""
        windows = random_windows(3, 46, 1.0, 0.0)
        windows.separators[1] = True
        draw = sampling.spans(windows, np.random.default_rng(0))
        view = views.ngrams(windows, draw, DIM, SPECIALS)
        np.testing.assert_array_equal(
            view.weights['dim'].any(axis=1), [True, False, True]
        )
        *_, nothing = drawn(3, 46, 1.0, separator_rate=1.0)
        for one, row in ((view, 1), (nothing, 0), (nothing, 2)):
            np.testing.assert_array_equal(one.weights['dim'][row], 0)
            np.testing.assert_array_equal(one.places['dim'][row], 0)
            np.testing.assert_array_equal(one.block_ids[row], 4)
            self.assertEqual(one.counts['dropped_spans'][row], 0)

    def test_one_word_at_a_time(self):
        """The shortest sequences, P = 1: [CLS] word [SEP]."""
        windows, draw, _, view = drawn(5, 6, 1.0, separator_rate=0.0)
        word = windows.ids[np.arange(5), draw.starts[:, 0]]
        np.testing.assert_array_equal(
            view.ids, np.stack([np.full(5, 2), word, np.full(5, 3)], axis=1)
        )
        np.testing.assert_array_equal(view.weights['dim'], np.ones((5, 1)))

    @parameterized.parameters('words', 'tokens')
    def test_wants_spans(self, masking):
        windows = random_windows(3, 46, 1.0)
        draw = sampling.MASKINGS[masking](windows, np.random.default_rng(0))
        with self.assertRaisesRegex(ValueError, 'spans'):
            views.ngrams(windows, draw, DIM, SPECIALS)

    def test_has_no_words(self):
        windows, draw, *_ = drawn(3, 46, 1.0)
        with self.assertRaisesRegex(ValueError, 'start alone.*bert_nce'):
            views.ngrams(windows, draw, {'bert_nce': 'words'}, SPECIALS)

    def test_rows_that_share_the_view_get_the_same(self):
        windows, draw, *_ = drawn(4, 46, 0.8)
        view = views.ngrams(windows, draw, {**DIM, 'b': 'start'}, SPECIALS)
        for field in (view.places, view.targets, view.weights):
            self.assertEqual(list(field), ['dim', 'b'])
            np.testing.assert_array_equal(field['dim'], field['b'])

    def test_is_pure(self):
        windows, draw, _, view = drawn(6, 126, 0.6)
        again = views.ngrams(windows, draw, DIM, SPECIALS)
        same_windows, same_draw, *_ = drawn(6, 126, 0.6)
        for one, two in (
            *zip(windows, same_windows, strict=True),
            *zip(draw, same_draw, strict=True),
        ):
            np.testing.assert_array_equal(one, two)
        one, two = (views.flatten({'ngrams': v}) for v in (view, again))
        self.assertEqual(list(one), list(two))
        for path, array in one.items():
            np.testing.assert_array_equal(array, two[path], path)


def make_pairs(rows, length=9, **more):
    """Pairs of (A, B): pieces of each."""
    ids = np.zeros((len(rows), length), np.int32)
    separators = np.ones((len(rows), length), bool)
    for row, (a, b) in enumerate(rows):
        for begin, piece in ((0, a), (len(a) + 1, b)):
            ids[row, begin : begin + len(piece)] = piece
            separators[row, begin : begin + len(piece)] = False
    return sampling.Pairs(
        ids, np.ones(ids.shape, bool), separators,
        np.array([len(a) for a, _ in rows], np.int32),
        np.array([len(b) for _, b in rows], np.int32),
        np.array(more.pop('labels', [0] * len(rows)), np.int32), **more,
    )  # fmt: skip


def pair_draw(hidden, length=9, **more):
    mask = np.zeros((len(hidden), length), bool)
    for row, places in enumerate(hidden):
        mask[row, places] = True
    return sampling.Masking(
        mask, np.zeros(mask.shape, np.int32), np.zeros(mask.shape), **more
    )


class PairViewTest(absltest.TestCase):
    """L = 9: T = 11, P = 2. The first pair is full, the second is padded."""

    def setUp(self):
        super().setUp()
        self.text = make_pairs(
            [([10, 11, 12], [13, 14, 15, 16, 17]), ([20], [21, 22])],
            labels=[0, 1],
        )
        self.draw = pair_draw([[1, 7], [2]])

    def test_masked_written_out(self):
        rows = {'mlm': 'words', 'nsp': 'next', 'dim': 'start'}
        view = views.masked(self.text, self.draw, rows, SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 10, 4, 12, 3, 13, 14, 15, 4, 17, 3],
                [2, 20, 3, 4, 22, 3, 3, 3, 3, 3, 3],
            ],
        )
        np.testing.assert_array_equal(
            view.segment_ids,
            [[0] * 5 + [1] * 6, [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]],
        )
        np.testing.assert_array_equal(
            view.block_ids, [[0] * 11, [0] * 6 + [1] * 5]
        )
        self.assertIsNone(view.positions)
        self.assertEqual(list(view.places), list(rows))
        np.testing.assert_array_equal(view.places['mlm'][0], [2, 8])
        np.testing.assert_array_equal(view.targets['mlm'][0], [11, 16])
        np.testing.assert_array_equal(view.weights['mlm'], [[1, 1], [1, 0]])
        self.assertEqual(view.places['mlm'][1, 0], 3)
        self.assertEqual(view.targets['mlm'][1, 0], 21)
        for row in ('nsp', 'dim'):
            np.testing.assert_array_equal(view.places[row], [[0], [0]])
        np.testing.assert_array_equal(view.targets['nsp'], [[0], [1]])
        np.testing.assert_array_equal(view.weights['nsp'], [[1], [1]])
        self.assertEqual(list(view.targets), ['mlm', 'nsp'])
        self.assertEqual(list(view.weights), ['mlm', 'nsp'])
        for array in (view.ids, view.segment_ids, view.block_ids,
                      view.places['nsp'], view.targets['nsp']):  # fmt: skip
            self.assertEqual(array.dtype, np.int32)
        self.assertEqual(view.weights['nsp'].dtype, np.float32)

    def test_what_is_shown(self):
        draw = self.draw._replace(
            shown=np.array([[0, 1, 0, 0, 0, 0, 0, 2, 0], [0] * 9]),
            random=np.full((2, 9), 0.37),
        )
        view = views.masked(self.text, draw, {'mlm': 'words'}, SPECIALS)
        np.testing.assert_array_equal(
            view.ids[0], [2, 10, 37, 12, 3, 13, 14, 15, 16, 17, 3]
        )

    def test_the_text_can_be_put_together_again(self):
        """Specials are never hidden, whatever the masking."""
        random = np.random.default_rng(0)
        rows = [
            (
                random.integers(5, 100, random.integers(1, 20)).tolist(),
                random.integers(5, 100, random.integers(1, 20)).tolist(),
            )
            for _ in range(60)
        ]
        text = make_pairs(rows, 46)
        for name in sampling.MASKINGS:
            draw = sampling.masking(name)(text, random)
            view = views.masked(text, draw, {'mlm': 'words'}, SPECIALS)
            for row, (a, b) in enumerate(rows):
                real = view.weights['mlm'][row] > 0
                self.assertEqual(
                    real.sum(), sampling.budget(len(a) + len(b)), name
                )
                ids = view.ids[row].copy()
                ids[view.places['mlm'][row][real]] = view.targets['mlm'][row][
                    real
                ]
                end = len(a) + len(b) + 3
                self.assertEqual(ids[:end].tolist(), [2, *a, 3, *b, 3])
                self.assertEqual(view.segment_ids[row, :end].tolist(),
                                 [0] * (len(a) + 2) + [1] * (len(b) + 1))
                self.assertTrue((view.block_ids[row, :end] == 0).all())
                self.assertTrue((view.block_ids[row, end:] == 1).all())

    def test_ngrams_of_a_pair(self):
        """What `masked` hides, of A and of B."""
        draw = self.draw._replace(
            starts=np.array([[7, 1], [2, 0]], np.int32),
            lengths=np.array([[1, 1], [1, 0]], np.int32),
        )
        view = views.ngrams(self.text, draw, DIM, SPECIALS)
        np.testing.assert_array_equal(
            view.ids, [[2, 16, 3, 2, 11, 3], [2, 21, 3, 3, 3, 3]]
        )
        np.testing.assert_array_equal(view.weights['dim'], [[1, 1], [1, 0]])

    def test_windows_are_no_pairs(self):
        with self.assertRaisesRegex(ValueError, 'windows are no pairs.*nsp'):
            views.masked(
                make_windows(), make_draw([[1], [2]]), {'nsp': 'next'}, SPECIALS
            )

    def test_rivals_written_out(self):
        """Two of each; one is a copy of the true piece, masked otherwise."""
        others = make_pairs(
            [
                ([10, 11, 12], [30, 31]),
                ([10, 11, 12], [13, 14, 15, 16, 17]),
                ([20], [21]),
                ([20], [30, 31]),
            ]
        )
        text = self.text._replace(rivals=others)
        draw = self.draw._replace(
            rivals=pair_draw([[0], [2, 5], [2], []])
        )
        view = views.rivals(text, draw, {'nsp_nce': 'start'}, SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [
                    [2, 4, 11, 12, 3, 30, 31, 3, 3, 3, 3],
                    [2, 10, 11, 4, 3, 13, 4, 15, 16, 17, 3],
                ],
                [
                    [2, 20, 3, 4, 3, 3, 3, 3, 3, 3, 3],
                    [2, 20, 3, 30, 31, 3, 3, 3, 3, 3, 3],
                ],
            ],
        )
        np.testing.assert_array_equal(
            view.segment_ids.sum(axis=2), [[3, 6], [2, 3]]
        )
        np.testing.assert_array_equal(
            view.block_ids.sum(axis=2), [[3, 0], [6, 5]]
        )
        np.testing.assert_array_equal(
            view.places['nsp_nce'], np.zeros((2, 2, 1))
        )
        numbers = view.targets['nsp_nce']
        self.assertEqual(numbers.shape, (2, 3))
        self.assertEqual(numbers[0, 0], numbers[0, 2])
        self.assertEqual(numbers[0, 1], numbers[1, 2])
        self.assertLen(set(numbers.ravel().tolist()), 4)
        np.testing.assert_array_equal(view.weights['nsp_nce'], [[1], [1]])
        np.testing.assert_array_equal(view.sequences, [0, 1])
        with self.assertRaisesRegex(ValueError, 'start alone.*mlm'):
            views.rivals(text, draw, {'mlm': 'words'}, SPECIALS)


class FlattenTest(absltest.TestCase):
    def make(self):
        draw = make_draw([[5, 6], [1, 4]], shortened=np.array([0, 2]))
        return {
            'masked': views.masked(
                make_windows(),
                draw,
                {'mlm': 'words', 'dim': 'start', 'bert_nce': 'words'},
                SPECIALS,
            ),
            'other': views.View(
                ids=np.arange(4), sequences=np.arange(2), positions=np.ones(3)
            ),
        }

    def test_names(self):
        self.assertEqual(
            list(views.flatten(self.make())),
            [
                'masked/ids', 'masked/sequences',
                'masked/places/mlm', 'masked/places/dim',
                'masked/places/bert_nce',
                'masked/targets/mlm', 'masked/targets/bert_nce',
                'masked/weights/mlm', 'masked/weights/bert_nce',
                'masked/counts/shortened_spans',
                'other/ids', 'other/sequences', 'other/positions',
            ],
        )  # fmt: skip

    def test_round_trip(self):
        before = self.make()
        after = views.unflatten(views.flatten(before))
        self.assertEqual(list(after), list(before))
        for name, view in before.items():
            for field, value in view._asdict().items():
                other = getattr(after[name], field)
                if isinstance(value, dict):
                    self.assertEqual(list(other), list(value))
                    for part in value:
                        self.assertIs(other[part], value[part])
                else:
                    self.assertIs(other, value)

    def test_views_do_not_share_their_rows(self):
        after = views.unflatten(views.flatten(self.make()))
        after['masked'].places['new'] = 1
        self.assertNotIn('new', views.View(ids=0, sequences=0).places)
        self.assertNotIn('new', after['other'].places)


if __name__ == '__main__':
    absltest.main()
