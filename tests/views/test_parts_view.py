"""The view `parts`: texts cut into parts of one length, masked."""

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.views import parts
from infoword_tf.views.masking import MASKINGS, Masking, Windows, budget
from tests.views import texts
from tests.views.test_ngrams import random_windows

CLS, SEP, MASK = 2, 3, 4
ROWS = {'parts': 'text', 'part_words': 'pieces'}


def masks_of(shape, *places):
    """A draw that hides these tokens of each row."""
    masked = np.zeros(shape, bool)
    for row, hidden in enumerate(places):
        masked[row, hidden] = True
    return Masking(masked, np.zeros(shape, np.int32), np.zeros(shape))


class PartsTest(parameterized.TestCase):
    def test_scales(self):
        self.assertEqual(parts.scales(64, 14), [(2, 30), (4, 14)])
        self.assertEqual(parts.scales(128, 14), [(2, 62), (4, 30), (8, 14)])
        self.assertEqual(parts.scales(64, 15), [(2, 30)])
        self.assertEqual(parts.scales(64, 31), [(2, 30)])
        self.assertEqual(parts.scales(8, 14), [(2, 2)])

    def test_written_out(self):
        """T = 18: two parts of 7 tokens, then four of 2 and two places left."""
        ids = np.stack([np.arange(10, 26), np.arange(30, 46)]).astype(np.int32)
        separators = np.zeros((2, 16), bool)
        ids[1, 5], separators[1, 5] = SEP, True
        text = Windows(ids, np.ones((2, 16), bool), separators)
        draw = parts.Parts(
            np.array([2, 4], np.int32),
            np.array([7, 2], np.int32),
            text,
            masks_of((2, 16), [0, 7, 13], [1, 2]),
        )
        view = parts.parts(text, draw, ROWS, texts.SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [CLS, MASK, 11, 12, 13, 14, 15, 16, SEP]
                + [CLS, MASK, 18, 19, 20, 21, 22, MASK, SEP],
                [CLS, 30, MASK, SEP, CLS, MASK, 33, SEP]
                + [CLS, 34, SEP, SEP, CLS, 36, 37, SEP, SEP, SEP],
            ],
        )
        np.testing.assert_array_equal(
            view.positions,
            [[*range(9), *range(9)], [*range(4)] * 4 + [0, 0]],
        )
        np.testing.assert_array_equal(
            view.block_ids,
            [
                [0] * 9 + [1] * 9,
                [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 2,
            ],
        )
        np.testing.assert_array_equal(
            view.places['part_words'], [[1, 10, 16], [2, 5, 0]]
        )
        np.testing.assert_array_equal(
            view.targets['part_words'][:, :2], [[10, 17], [31, 32]]
        )
        np.testing.assert_array_equal(
            view.weights['part_words'], [[1, 1, 1], [1, 1, 0]]
        )
        # The third part of the second row has the end of a document in it.
        np.testing.assert_array_equal(
            view.weights['parts'], [[1, 1, 0, 0], [1, 1, 0, 1]]
        )
        self.assertNotIn('parts', view.places)
        np.testing.assert_array_equal(view.counts['padding'], [0, 2])

    def test_equal_parts_have_one_number(self):
        ids = np.tile(np.arange(7, dtype=np.int32) + 20, (1, 2))
        text = Windows(ids, np.ones((1, 14), bool), np.zeros((1, 14), bool))
        draw = parts.Parts(
            np.array([2], np.int32), np.array([6], np.int32), text,
            masks_of((1, 14), [3]),
        )  # fmt: skip
        one = parts.parts(text, draw, ROWS, texts.SPECIALS)
        self.assertNotEqual(*one.targets['parts'][0])
        equal = text._replace(ids=np.full((1, 14), 9, np.int32))
        draw = draw._replace(text=equal)
        two = parts.parts(equal, draw, ROWS, texts.SPECIALS)
        self.assertEqual(*two.targets['parts'][0])

    @parameterized.product(masking=('tokens', 'words'), share=(0.15, 0.4))
    def test_what_is_masked_is_in_some_part(self, masking, share):
        """The whole budget where pieces are drawn one by one."""
        text = random_windows(12, 126, 0.6, separator_rate=0.01, pieces=50)
        draw = parts.cut(
            text, np.random.default_rng(0), masking, share, 6, 'next'
        )
        self.assertEqual(draw.counts[:5].tolist(), [2, 4, 8, 16, 2])
        self.assertEqual(draw.sizes[:5].tolist(), [62, 30, 14, 6, 62])
        view = parts.parts(text, draw, ROWS, texts.SPECIALS)
        weights = view.weights['part_words']
        self.assertEqual(weights.shape, (12, budget(126, share)))
        if masking == 'tokens':
            np.testing.assert_array_equal(weights, 1)
        found = np.take_along_axis(view.ids, view.places['part_words'], axis=1)
        hidden = view.measured['part_words'] * weights > 0
        self.assertTrue((found[hidden] == texts.SPECIALS.mask_id).all())
        self.assertEqual(
            hidden.sum(), (view.ids == texts.SPECIALS.mask_id).sum()
        )
        # What is shown is the text, but for what was masked.
        for row, (count, size) in enumerate(
            zip(draw.counts, draw.sizes, strict=True)
        ):
            shown = view.ids[row, : count * (size + 2)].reshape(count, -1)
            own = text.ids[row, : count * size].reshape(count, -1)
            kept = ~draw.masking.masked[row, : count * size].reshape(count, -1)
            np.testing.assert_array_equal(shown[:, 1:-1][kept], own[kept])

    def test_copies(self):
        """Each part twice, masked each time anew; the same number."""
        text = random_windows(40, 62, 0.6, separator_rate=0.0, pieces=50)
        draw = parts.cut(
            text, np.random.default_rng(0), 'tokens', 0.3, 6, 'copy'
        )
        view = parts.parts(text, draw, ROWS, texts.SPECIALS)
        differ = 0
        for row, (count, size) in enumerate(
            zip(draw.counts, draw.sizes, strict=True)
        ):
            own = text.ids[row, : count // 2 * size].reshape(-1, 1, size)
            shown = view.ids[row, : count * (size + 2)]
            shown = shown.reshape(-1, 2, size + 2)[:, :, 1:-1]
            masked = draw.masking.masked[row, : count * size]
            masked = masked.reshape(-1, 2, size)
            np.testing.assert_array_equal(
                np.where(masked, 0, shown), np.where(masked, 0, own)
            )
            differ += (masked[:, 0] != masked[:, 1]).any(axis=1).sum()
            number = view.targets['parts'][row, :count].reshape(-1, 2)
            np.testing.assert_array_equal(number[:, 0], number[:, 1])
        self.assertGreater(differ, 0.9 * draw.counts.sum() / 2)

    def test_states_of_masks_alone_are_refused_elsewhere(self):
        text = random_windows(2, 46, 0.6)
        draw = parts.cut(text, np.random.default_rng(0), 'tokens', 0.15, 14)
        with self.assertRaisesRegex(ValueError, "dim wants 'start'"):
            parts.parts(text, draw, {'dim': 'start'}, texts.SPECIALS)


class SharesTest(parameterized.TestCase):
    """--mask_share of every masking."""

    @parameterized.product(name=tuple(MASKINGS), share=(0.05, 0.15, 0.3, 0.5))
    def test_so_many_are_masked(self, name, share):
        text = random_windows(40, 126, 0.7, separator_rate=0.0, pieces=50)
        draw = MASKINGS[name](text, np.random.default_rng(0), share)
        self.assertEqual(draw.share, share)
        most = int(np.ceil(share * 126))
        masked = draw.masked.sum(axis=1)
        self.assertLessEqual(masked.max(), most)
        self.assertGreater(masked.mean(), 0.97 * most - 1)
        if name != 'words':  # of which some do not fit
            np.testing.assert_array_equal(masked, most)


if __name__ == '__main__':
    absltest.main()
