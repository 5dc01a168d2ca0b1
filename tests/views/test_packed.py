"""Packed pairs: each equals the pair alone."""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.views.masked import masked
from infoword_tf.views.masking import MASKINGS, masking, packed_budget
from infoword_tf.views.packed import fewest_sequences, folded
from tests import zoo
from tests.refused import refused
from tests.views import texts
from tests.views.texts import assert_view, same

ROWS = {'mlm': 'tokens', 'nsp': 'next'}


def three_pairs():
    """T = 11: two pairs of 5 + 6 tokens in a sequence, one of 6 alone."""
    text = texts.make_pairs(
        [([10], [11]), ([20], [21, 22]), ([30, 31], [32])], labels=[0, 1, 1]
    )
    slots = np.array([[True, True, False], [True, False, False]])
    return text._replace(slots=slots)


def random_pairs(seed, masking_name, batch=8):
    """Draws a batch of the source and a masking."""
    text = zoo.make_pairs(batch, seed, packed=True)
    draw = masking(masking_name)(text, np.random.default_rng(seed))
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


class FoldedTest(absltest.TestCase):
    def test_the_longest_with_the_shortest(self):
        sizes = np.array([3, 9, 5, 4, 8])
        same(folded(sizes, 3), [[1, -1], [4, 0], [2, 3]])
        same(
            folded(np.stack([sizes, sizes]), 5)[1],
            [[1, -1], [4, -1], [2, -1], [3, -1], [0, -1]],
        )

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
        self.assertEqual(fewest_sequences(np.array([[5, 5, 5, 5]]), 10), 2)
        self.assertEqual(fewest_sequences(np.array([[6, 5, 5, 5]]), 10), 3)
        self.assertEqual(fewest_sequences(np.array([[6, 6, 6, 6]]), 10), 4)
        # Of several batches all fit.
        sizes = np.array([[5] * 4, [6, 4, 6, 5]])
        self.assertEqual(fewest_sequences(sizes, 10), 3)
        self.assertEqual(fewest_sequences(np.array([[7, 2, 3]]), 10), 2)


class PackedTest(parameterized.TestCase):
    def test_written_out(self):
        draw = texts.pair_draw([[0], [3], [1]], shortened=np.array([1, 2, 4]))
        view = masked(three_pairs(), draw, ROWS, texts.SPECIALS)
        assert_view(
            view,
            ids=[
                [2, 4, 3, 11, 3, 2, 20, 3, 21, 4, 3],
                [2, 30, 4, 3, 32, 3, 3, 3, 3, 3, 3],
            ],
            positions=[
                [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5],
                [0, 1, 2, 3, 4, 5] + [0] * 5,
            ],
            segment_ids=[
                [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1],
                [0] * 4 + [1, 1] + [0] * 5,
            ],
            block_ids=[[0] * 5 + [1] * 6, [0] * 6 + [3] * 5],
        )
        same(view.weights['mlm'][:, :2], [[1, 1], [1, 0]])
        same(view.places['mlm'][0, :2], [1, 9])
        same(view.targets['mlm'][0, :2], [10, 22])
        same(view.measured['mlm'][0, :2], [1, 1])
        assert_view(
            view,
            'nsp',
            places=[[0, 5, 0], [0, 0, 0]],
            targets=[[0, 1, 0], [1, 0, 0]],
            weights=[[1, 1, 0], [1, 0, 0]],
            sequences=[0, 1],
        )
        same(view.counts['shortened_spans'], [3, 4])
        same(view.counts['padding'], [0, 5])
        same(three_pairs().tokens, [5, 3])
        for array in (view.ids, view.sequences, view.positions, view.block_ids,
                      view.segment_ids, *view.places.values(),
                      *view.targets.values(), *view.counts.values()):
            self.assertEqual(array.dtype, np.int32)
        for array in (*view.weights.values(), *view.measured.values()):
            self.assertEqual(array.dtype, np.float32)

    @parameterized.product(seed=(0, 1, 2, 3), name=list(MASKINGS))
    def test_each_pair_is_as_it_is_alone(self, seed, name):
        """Tokens, masks and targets; and every place is of one pair."""
        text, draw = random_pairs(seed, name)
        view = masked(text, draw, ROWS, zoo.SPECIALS)
        alone = masked(text._replace(slots=None), draw, ROWS, zoo.SPECIALS)
        self.assertGreater(len(text.ids), len(view.ids))
        left = np.ones(view.ids.shape, bool)
        for slot in ('mlm', 'nsp'):
            self.assertEqual(
                view.weights[slot].sum(), alone.weights[slot].sum()
            )
        for pair, row, begin, size in each(text):
            here = slice(begin, begin + size)
            self.assertTrue(left[row, here].all())
            left[row, here] = False
            for field in ('ids', 'segment_ids'):
                same(
                    getattr(view, field)[row, here],
                    getattr(alone, field)[pair, :size],
                )
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
        draw = texts.pair_draw([[0], [3], [1]])
        with refused('pairs_without_start', 'dim'):
            masked(three_pairs(), draw, {'dim': 'start'}, texts.SPECIALS)

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
