"""The views `masked` and `joined`, of windows and of pairs, also packed.

Each pair of a packed sequence equals the pair alone.
"""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.views.masked import (
    MASKINGS,
    fewest_sequences,
    folded,
    joined,
    masked,
    masking_of,
    packed_budget,
)
from tests import zoo
from tests.refused import refused
from tests.views.texts import (
    SPECIALS,
    assert_view,
    make_draw,
    make_pairs,
    make_windows,
    pair_draw,
    same,
    two_pairs,
    two_pairs_draw,
)

ROWS = {'mlm': 'tokens', 'nsp': 'next'}


def three_pairs():
    """T = 11: two pairs of 5 + 6 tokens in a sequence, one of 6 alone."""
    text = make_pairs(
        [([10], [11]), ([20], [21, 22]), ([30, 31], [32])], labels=[0, 1, 1]
    )
    slots = np.array([[True, True, False], [True, False, False]])
    return text._replace(slots=slots)


def random_pairs(seed, masking_name, batch=8):
    """Draws a batch of the source and a masking."""
    text = zoo.make_pairs(batch, seed, packed=True)
    draw = masking_of(masking_name)(text, np.random.default_rng(seed))
    return text, draw


def each(text):
    """Yields pair, sequence, first index and length."""
    pair = 0
    for row, slots in enumerate(text.slots):
        begin = 0
        for _ in range(slots.sum()):
            size = int(text.firsts[pair] + text.seconds[pair]) + 3
            yield pair, row, begin, size
            pair, begin = pair + 1, begin + size


class MaskedTest(absltest.TestCase):
    def test_spans(self):
        draw = make_draw([[5, 6], [1, 4]], shortened=np.int32([0, 2]))
        view = masked(make_windows(), draw, {'bert_nce': 'tokens'}, SPECIALS)
        # Places count the [CLS], and are in the order of the text.
        assert_view(
            view, 'bert_nce',
            ids=[[2, 10, 11, 12, 13, 14, 4, 4, 3],
                 [2, 20, 4, 22, 3, 4, 24, 25, 3]],
            places=[[6, 7], [2, 5]], targets=[[15, 16], [21, 23]],
            weights=np.ones((2, 2)), sequences=[0, 1],
            shortened_spans=[0, 2], positions=None, segment_ids=None,
            block_ids=None,
        )  # fmt: skip

    def test_what_is_shown(self):
        # [MASK], token floor(.37 * 100), itself, token 99; what is not
        # masked stays whatever was drawn for it.
        draw = make_draw(
            [[0, 3], [2, 6]],
            shown=[[0, 1, 0, 1, 2, 0, 1], [1, 1, 2, 0, 0, 0, 1]],
            random=[[0.5, 0.5, 0, 0.37, 0, 0, 0.9], [0.1] * 6 + [0.9999]],
        )
        view = masked(make_windows(), draw, {'mlm': 'tokens'}, SPECIALS)
        assert_view(
            view, 'mlm',
            ids=[[2, 4, 11, 12, 37, 14, 15, 16, 3],
                 [2, 20, 21, 22, 3, 23, 24, 99, 3]],
            places=[[1, 4], [3, 7]], targets=[[10, 13], [22, 25]],
            weights=np.ones((2, 2)),
            # MI counts what [MASK] hides.
            measured=[[1, 0], [0, 0]],
        )  # fmt: skip
        self.assertEqual(view.counts, {})
        same(make_windows().tokens, [7, 6])

    def test_random_pieces_are_of_the_whole_vocabulary(self):
        draw = make_draw(
            [[0, 1], [0, 1]],
            shown=np.ones((2, 7), int),
            random=[[0.0, 0.009, 0, 0, 0, 0, 0], [0.01, 1 - 2**-53] + [0] * 5],
        )
        view = masked(make_windows(), draw, {'mlm': 'tokens'}, SPECIALS)
        same(view.ids[:, 1:3], [[0, 0], [1, 99]])

    def test_fewer_hidden_than_the_budget(self):
        draw = make_draw([[4], []])
        view = masked(make_windows(), draw, {'mlm': 'tokens'}, SPECIALS)
        same(view.weights['mlm'], [[1, 0], [0, 0]])
        places = view.places['mlm']
        self.assertEqual((places[0, 0], view.targets['mlm'][0, 0]), (5, 14))
        self.assertEqual(places.shape, (2, 2))
        # Places of weight 0 still lie inside the row.
        self.assertTrue(((places >= 1) & (places <= 7)).all())
        same(view.ids[1], [2, 20, 21, 22, 3, 23, 24, 25, 3])

    def test_rows_that_share_the_view(self):
        """Two want its tokens, and get the same; one the start alone."""
        rows = {'dim': 'start', 'mlm': 'tokens', 'bert_nce': 'tokens'}
        draw = make_draw([[1, 2], [0, 6]])
        view = masked(make_windows(), draw, rows, SPECIALS)
        self.assertEqual(list(view.places), list(rows))
        assert_view(view, 'dim', places=[[0], [0]])
        same(view.places['bert_nce'], [[2, 3], [1, 7]])
        same(view.places['mlm'], view.places['bert_nce'])
        # What a text is compared with is another view's.
        for field in (view.targets, view.weights, view.measured):
            self.assertEqual(list(field), ['mlm', 'bert_nce'])
            same(field['mlm'], field['bert_nce'])


class JoinedTest(absltest.TestCase):
    ROWS = {'dim': 'start'}

    def test_written_out(self):
        """Two n-grams that touch stay two [MASK]."""
        draw = make_draw(
            [[1, 2, 3], [4, 5, 6]], starts=np.array([[3, 1], [4, 0]]),
            lengths=np.array([[1, 2], [3, 0]]),
        )  # fmt: skip
        view = joined(make_windows(), draw, self.ROWS, SPECIALS)
        assert_view(
            view, 'dim',
            ids=[[2, 10, 4, 4, 14, 15, 16, 3, 3],
                 [2, 20, 21, 22, 3, 4, 3, 3, 3]],
            block_ids=[[0] * 8 + [1], [0] * 7 + [1] * 2],
            # Places are counted in what is shown.
            positions=None, segment_ids=None, places=[[0], [0]],
            sequences=[0, 1],
        )  # fmt: skip
        for field in (view.targets, view.weights, view.measured):
            self.assertEqual(field, {})

    def test_pairs_written_out(self):
        draw = pair_draw(
            [[1, 2, 7, 8], [2, 3]], starts=np.array([[7, 1], [2, 0]]),
            lengths=np.array([[2, 2], [2, 0]]),
        )  # fmt: skip
        view = joined(two_pairs(), draw, self.ROWS, SPECIALS)
        assert_view(
            view,
            ids=[[2, 10, 4, 3, 13, 14, 15, 4, 3, 3, 3],
                 [2, 20, 3, 4, 3, 3, 3, 3, 3, 3, 3]],
            block_ids=[[0] * 9 + [1] * 2, [0] * 5 + [1] * 6],
        )  # fmt: skip
        segments = view.segment_ids[view.block_ids == 0]
        same(segments, [0] * 4 + [1] * 5 + [0] * 3 + [1] * 2)

    def test_what_it_is_not_for(self):
        draw = make_draw([[1], [2]])
        with refused('joined_without_spans'):
            joined(make_windows(), draw, self.ROWS, SPECIALS)
        starts, lengths = np.array([[1], [2]]), np.array([[1], [1]])
        draw = draw._replace(starts=starts, lengths=lengths)
        with refused('where_not_in_view', 'start', 'tokens'):
            joined(make_windows(), draw, {'mlm': 'tokens'}, SPECIALS)


class PairViewTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.text, self.draw = two_pairs(), two_pairs_draw()

    def test_masked_written_out(self):
        rows = {'mlm': 'tokens', 'nsp': 'next', 'dim': 'start'}
        view = masked(self.text, self.draw, rows, SPECIALS)
        assert_view(
            view, 'mlm',
            ids=[[2, 10, 4, 12, 3, 13, 14, 15, 4, 17, 3],
                 [2, 20, 3, 4, 22, 3, 3, 3, 3, 3, 3]],
            segment_ids=[[0] * 5 + [1] * 6, [0] * 3 + [1] * 3 + [0] * 5],
            block_ids=[[0] * 11, [0] * 6 + [1] * 5], padding=[0, 5],
            positions=None, weights=[[1, 1], [1, 0]],
        )  # fmt: skip
        same(self.text.tokens, [8, 3])
        self.assertEqual(list(view.places), list(rows))
        real = view.weights['mlm'] > 0
        same(view.places['mlm'][real], [2, 8, 3])
        same(view.targets['mlm'][real], [11, 16, 21])
        for row in ('nsp', 'dim'):
            same(view.places[row], [[0], [0]])
        assert_view(view, 'nsp', targets=[[0], [1]], weights=[[1], [1]])
        self.assertEqual(list(view.targets), ['mlm', 'nsp'])
        self.assertEqual(list(view.weights), ['mlm', 'nsp'])

    def test_windows_are_no_pairs(self):
        draw = make_draw([[1], [2]])
        with refused('windows_without_pairs', 'nsp'):
            masked(make_windows(), draw, {'nsp': 'next'}, SPECIALS)


class FoldedTest(absltest.TestCase):
    def test_the_longest_with_the_shortest(self):
        sizes = np.array([3, 9, 5, 4, 8])
        same(folded(sizes, 3), [[1, -1], [4, 0], [2, 3]])
        both = folded(np.stack([sizes, sizes]), 5)
        same(both[1], [[1, -1], [4, -1], [2, -1], [3, -1], [0, -1]])

    def test_no_other_choice_fits_where_it_does_not(self):
        """All permutations of six texts, in 3 to 6 sequences."""
        random = np.random.default_rng(0)
        orders = np.array(list(itertools.permutations(range(6))))
        for _ in range(20):
            sizes = random.integers(1, 10, 6)
            for rows in range(3, 6):
                padded = np.append(sizes, 0)
                lowest = padded[folded(sizes, rows)].sum(axis=1).max()
                # Slots of the rows: texts, and what is left empty.
                slots = np.zeros((len(orders), 2 * rows), int)
                slots[:, :rows] = sizes[orders[:, :rows]]
                slots[:, rows:6] = sizes[orders[:, rows:]]
                sums = slots[:, :rows] + slots[:, rows:]
                self.assertEqual(lowest, sums.max(axis=1).min())

    def test_fewest_rows(self):
        """Takes as few as the largest of several batches needs."""
        for sizes, rows in (
            ([[5, 5, 5, 5]], 2), ([[6, 5, 5, 5]], 3), ([[6, 6, 6, 6]], 4),
            ([[5, 5, 5, 5], [6, 4, 6, 5]], 3), ([[7, 2, 3]], 2),
        ):  # fmt: skip
            self.assertEqual(fewest_sequences(np.array(sizes), 10), rows)


class PackedTest(parameterized.TestCase):
    def test_written_out(self):
        draw = pair_draw([[0], [3], [1]], shortened=np.array([1, 2, 4]))
        view = masked(three_pairs(), draw, ROWS, SPECIALS)
        assert_view(
            view, 'nsp',
            ids=[[2, 4, 3, 11, 3, 2, 20, 3, 21, 4, 3],
                 [2, 30, 4, 3, 32, 3, 3, 3, 3, 3, 3]],
            positions=[[*range(5), *range(6)], [*range(6), *[0] * 5]],
            segment_ids=[[0] * 3 + [1] * 2 + [0] * 3 + [1] * 3,
                         [0] * 4 + [1] * 2 + [0] * 5],
            block_ids=[[0] * 5 + [1] * 6, [0] * 6 + [3] * 5],
            places=[[0, 5, 0], [0, 0, 0]], targets=[[0, 1, 0], [1, 0, 0]],
            weights=[[1, 1, 0], [1, 0, 0]], sequences=[0, 1],
            shortened_spans=[3, 4], padding=[0, 5],
        )  # fmt: skip
        same(view.weights['mlm'][:, :2], [[1, 1], [1, 0]])
        same(view.places['mlm'][0, :2], [1, 9])
        same(view.targets['mlm'][0, :2], [10, 22])
        same(view.measured['mlm'][0, :2], [1, 1])
        same(three_pairs().tokens, [5, 3])

    @parameterized.product(seed=(0, 1, 2, 3), name=list(MASKINGS))
    def test_each_pair_is_as_it_is_alone(self, seed, name):
        """Tokens, masks and targets; and every place is of one pair."""
        text, draw = random_pairs(seed, name)
        view = masked(text, draw, ROWS, zoo.SPECIALS)
        alone = masked(text._replace(slots=None), draw, ROWS, zoo.SPECIALS)
        self.assertGreater(len(text.ids), len(view.ids))
        left = np.ones(view.ids.shape, bool)
        for row in ROWS:
            self.assertEqual(view.weights[row].sum(), alone.weights[row].sum())
        for pair, row, begin, size in each(text):
            here = slice(begin, begin + size)
            self.assertTrue(left[row, here].all())
            left[row, here] = False
            same(view.ids[row, here], alone.ids[pair, :size])
            same(view.segment_ids[row, here], alone.segment_ids[pair, :size])
            same(view.positions[row, here], np.arange(size))
            self.assertLen(set(view.block_ids[row, here].tolist()), 1)
            for objective in ROWS:
                actual, single = (
                    np.stack([x.places[objective] - shift, x.targets[objective],
                              x.weights[objective]])[:, number]
                    for x, shift, number in ((view, begin, row),
                                             (alone, 0, pair))
                )  # fmt: skip
                inside = (actual[2] > 0) & (actual[0] >= 0)
                inside &= actual[0] < size
                same(actual[:, inside], single[:, single[2] > 0])
        slots = text.slots.shape[1]
        same(view.block_ids == slots, left)
        same(view.counts['padding'], left.sum(axis=1))

    def test_one_state_for_a_row_is_none(self):
        draw = pair_draw([[0], [3], [1]])
        with refused('pairs_without_start', 'dim'):
            masked(three_pairs(), draw, {'dim': 'start'}, SPECIALS)

    @parameterized.parameters((8, 1), (20, 4), (31, 6), (64, 4), (128, 4))
    def test_the_budget_holds_whatever_pairs_share_a_row(self, tokens, slots):
        """The most that up to J pairs of any sizes mask, by recursion."""
        most = np.zeros(tokens + 1, int)
        for _ in range(slots):
            before = most.copy()
            for room in range(5, tokens + 1):
                most[room] = max(
                    before[room - size]
                    + math.ceil(round(0.15 * (size - 3), 9))
                    for size in range(5, room + 1)
                )
            most = np.maximum.accumulate(np.maximum(most, before))
        room = packed_budget(tokens, slots)
        self.assertGreaterEqual(room, most[tokens])
        self.assertLessEqual(room, most[tokens] + 2)
