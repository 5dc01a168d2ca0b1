"""XLNet's draw: targets, order of prediction, attention."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.views import permuted
from infoword_tf.views.streams import Streams
from tests.chances import assert_share, assert_shares
from tests.refused import refused
from tests.views.texts import assert_view, same

SPECIALS = views.Specials(2, 3, 4, 100)
SEP, CLS = SPECIALS.sep_id, SPECIALS.cls_id
PLM = {'plm': 'queries'}


def make_streams(b, tokens, word_rate=0.7, separator_rate=0.02, seed=0):
    """Draws streams of T - 3 tokens; odd ones run backward."""
    random = np.random.default_rng(seed)
    shape = (b, tokens - 3)
    separators = random.random(shape) < separator_rate
    word_starts = (random.random(shape) < word_rate) | separators
    word_starts[:, 1:] |= separators[:, :-1]
    ids = random.integers(5, 100, shape).astype(np.int32)
    sentence_starts = word_starts & (random.random(shape) < 0.1)
    return Streams(
        np.where(separators, np.int32(SEP), ids),
        word_starts,
        sentence_starts | separators,
        separators,
        np.where(np.arange(b) % 2, -1, 1).astype(np.int32),
        random.integers(5, 100, b).astype(np.int32),
        np.full(b, tokens - 3 - tokens // 2, np.int32),
    )


def drawn(b, tokens, k=6, order='partial', seed=0, **text):
    """Streams, their permutation, and the view of both."""
    streams = make_streams(b, tokens, seed=seed, **text)
    random = views.generator(seed, 0, 'permutation')
    draw = permuted.permutation(streams, random, k, order)
    return streams, draw, permuted.permuted(streams, draw, PLM, SPECIALS)


def content(ranks, sees):
    """Returns the mask [T, T] of the content stream."""
    return (sees[:, None] > ranks[None, :]) | np.eye(len(ranks), dtype=bool)


def queries(ranks, sees):
    """Returns the mask [T, T] of queries."""
    return sees[:, None] > ranks[None, :]


class HalvesTest(parameterized.TestCase):
    def test_one_in_k_of_all_tokens(self):
        for tokens in range(10, 600, 2):
            for k in range(2, tokens // 2 + 1):
                first, second = permuted.halves(tokens, k)
                self.assertEqual(first + second, tokens // k)
                self.assertBetween(first - second, 0, 1)
                self.assertGreater(second, 0)
                self.assertLessEqual(first, tokens // 2)

    @parameterized.parameters(9, 127, 513, 8, 2)
    def test_a_length_without_halves(self, tokens):
        with refused('no_two_halves', f'--seq_len={tokens}'):
            permuted.halves(tokens, 2)

    @parameterized.parameters(
        (128, 65, 'target', '2 to 64'), (128, 1000, 'target', '2 to 64'),
        (10, 6, 'target', '2 to 5'), (128, 1, 'no context'),
        (128, 0, 'no context'), (128, -3, 'no context'),
    )  # fmt: skip
    def test_no_target_or_no_context(self, tokens, k, *values):
        with refused('permuted_k_out_of_range', f'k {k}', *values):
            permuted.halves(tokens, k)


class PaperTest(absltest.TestCase):
    """The example of Kong et al. 2019, §3: order 3, 1, 5, 2, 4 and S = 1.

    Written out from one's view: row i, column j is 1 where x_i sees x_j.
    """

    def masks(self, order):
        order_of_text = np.array([[1, 3, 0, 4, 2]])  # x3 first, x4 last
        chosen = np.array([[0, 0, 0, 1, 0]], bool)
        ranks, sees = permuted.visibility(
            order_of_text, chosen, np.zeros((1, 5), bool), order
        )
        return content(ranks[0], sees[0]), queries(ranks[0], sees[0])[3]

    def test_strict(self):
        h, g = self.masks('strict')
        same(
            h,
            [
                [1, 0, 1, 0, 0],  # x1: x3 and itself
                [1, 1, 1, 0, 1],  # x2: x3, x1, x5 and itself
                [0, 0, 1, 0, 0],  # x3, the first: itself alone
                [1, 1, 1, 1, 1],  # x4, the last: everything
                [1, 0, 1, 0, 1],  # x5: x3, x1 and itself
            ],
        )
        same(g, [1, 1, 1, 0, 1])

    def test_several_targets_and_a_separator(self):
        """x1 a x3 b [SEP]: order b, [SEP], a, x1, x3; a and b are targets."""
        order_of_text = np.array([[3, 2, 4, 0, 1]])
        chosen = np.array([[0, 1, 0, 1, 0]], bool)
        functional = np.array([[0, 0, 0, 0, 1]], bool)
        for order, ranks, h in (
            (
                'partial',
                [-1, 2, -1, 0, 1],
                [
                    [1, 0, 1, 0, 0],
                    [1, 1, 1, 1, 1],  # b and [SEP] came before a
                    [1, 0, 1, 0, 0],
                    [1, 0, 1, 1, 0],  # b sees plain words alone
                    [1, 0, 1, 1, 1],
                ],
            ),
            (
                'strict',  # the targets come last: [SEP], x1, x3, b, a
                [1, 4, 2, 3, 0],
                [
                    [1, 0, 0, 0, 1],
                    [1, 1, 1, 1, 1],
                    [1, 0, 1, 0, 1],
                    [1, 0, 1, 1, 1],
                    [0, 0, 0, 0, 1],
                ],
            ),
        ):
            (actual,), (sees,) = permuted.visibility(
                order_of_text, chosen, functional, order
            )
            same(actual, ranks)
            same(content(actual, sees), h)

    def test_an_order_that_is_not_known(self):
        zeros = np.zeros((1, 3), bool)
        with refused('unknown_order', 'loose', 'partial, strict'):
            permuted.visibility(np.arange(3)[None], zeros, zeros, 'loose')


def official(order_of_text, chosen, functional):
    """[H, H] bool, blocked: the rule of XLNet's data_utils, one by one."""
    h = len(order_of_text)
    rank = [
        order_of_text[i] if chosen[i] or functional[i] else -1
        for i in range(h)
    ]
    blocked = np.zeros((h, h), bool)
    for i in range(h):
        self_rank = rank[i] if chosen[i] else rank[i] + 1
        for j in range(h):
            if chosen[j] or functional[j]:
                blocked[i, j] = self_rank <= rank[j]
    return blocked


class OfficialRuleTest(parameterized.TestCase):
    @parameterized.parameters(24, 64, 128)
    def test_both_halves(self, tokens):
        """The whole mask: a half by itself, none of the second, all of the
        first.
        """
        half = tokens // 2
        with mock.patch.object(
            permuted, 'visibility', side_effect=permuted.visibility
        ) as called:
            _, draw, view = drawn(6, tokens)
        order_of_text, chosen, functional, _ = called.call_args[0]
        for row in range(6):
            one, two = (
                official(order_of_text[i], chosen[i], functional[i])
                for i in (2 * row, 2 * row + 1)
            )
            none = np.zeros((half, half), bool)
            blocked = np.block([[one, ~none], [none, two]])
            same(queries(view.ranks[row], view.sees[row]), ~blocked)
            # What was taken for a separator is one.
            expected = np.concatenate(functional[2 * row : 2 * row + 2])
            same(np.isin(view.ids[row], (SEP, CLS)), expected)


class NgramsTest(parameterized.TestCase):
    def literal(self, word_starts, k, n, left):
        """The official loop with the end of an n-gram mended, in words."""
        (starts,) = np.nonzero(word_starts)
        chosen = np.zeros(len(word_starts), bool)
        at = 0
        for size, u in zip(n, left, strict=True):
            context = size * k
            left_of_it = int(u * context)
            begin = at + left_of_it
            end = begin + size
            if end >= len(starts):
                break
            chosen[starts[begin] : starts[end]] = True
            at = end + context - left_of_it
        return chosen

    @parameterized.product(length=(5, 32, 64, 256), rate=(0.0, 0.3, 1.0))
    def test_is_the_literal_loop(self, length, rate):
        random = np.random.default_rng(length)
        starts = random.random((9, length)) < rate
        for k in (2, 6):
            actual = permuted.ngrams(starts, k, np.random.default_rng(5))
            again = np.random.default_rng(5)
            shape = (9, -(-length // (k + 1)))
            n = permuted.ngram_lengths(shape, again)
            left = again.random(shape)
            for row in range(9):
                expected = self.literal(starts[row], k, n[row], left[row])
                same(actual[row], expected)

    def test_n_is_as_1_over_n(self):
        p = np.array([60, 30, 20, 15, 12]) / 137
        n = permuted.ngram_lengths((1000, 100), np.random.default_rng(0))
        observed = np.bincount(n.ravel(), minlength=6)
        self.assertEqual(observed[0], 0)
        assert_shares(observed[1:], 100_000 * p)


class TargetsTest(parameterized.TestCase):
    @parameterized.parameters(0.3, 0.7, 1.0)
    def test_as_many_as_are_wanted(self, rate):
        random = np.random.default_rng(0)
        starts = random.random((200, 64)) < rate
        functional = random.random((200, 64)) < 0.05
        goals = np.tile([11, 10], 100)
        chosen = permuted.targets(starts, functional, goals, 6, random)
        same(chosen.sum(axis=1), goals)
        self.assertFalse((chosen & functional).any())

    def test_mostly_ngrams(self):
        """Takes 36.6 of 256 one-token words in n-grams, up to 43 (§7.1)."""
        starts = np.ones((400, 256), bool)
        none = np.zeros_like(starts)
        ngrams = permuted.ngrams(starts, 6, np.random.default_rng(3))
        chosen = permuted.targets(
            starts, none, np.full(400, 43), 6, np.random.default_rng(3)
        )
        sizes = ngrams.sum(axis=1)
        self.assertBetween(sizes.mean(), 34, 37)
        few = sizes <= 43
        same((chosen & ngrams).sum(axis=1)[few], sizes[few])
        # Single tokens lie anywhere.
        single = (chosen & ~ngrams).sum(axis=0)
        assert_shares(single.reshape(4, 64).sum(axis=1))

    def test_fewer_where_there_are_no_more(self):
        functional = np.ones((3, 20), bool)
        functional[1, 4] = functional[2, :] = False
        starts, random = np.ones((3, 20), bool), np.random.default_rng(0)
        chosen = permuted.targets(starts, functional, np.full(3, 5), 6, random)
        same(chosen.sum(axis=1), [0, 1, 5])
        self.assertTrue(chosen[1, 4])


class PermutationTest(parameterized.TestCase):
    @parameterized.product(
        tokens=(10, 24, 64, 128, 512), k=(3, 5), order=permuted.ORDERS
    )
    def test_shapes_and_counts(self, tokens, k, order):
        _, draw, view = drawn(7, tokens, k, order, separator_rate=0.0)
        first, second = permuted.halves(tokens, k)
        self.assertEqual(draw.places.shape, (7, tokens // k))
        same((draw.places < tokens // 2).sum(axis=1), first)
        self.assertTrue((np.diff(draw.places, axis=1) > 0).all())
        if k > 3 or tokens > 12:  # two of five places may be separators
            self.assertTrue(draw.usable.all())
        for array in (draw.away, draw.columns, draw.segment_ids, draw.ranks,
                      draw.sees):
            self.assertEqual(array.shape, (7, tokens))
            self.assertEqual(array.dtype, np.int32)
        self.assertEqual(draw.places.dtype, np.int32)
        self.assertEqual(draw.usable.dtype, bool)
        self.assertEqual(view.ids.shape, (7, tokens))

    def test_unknown_words_are_targets_too(self):
        streams = make_streams(4, 64)
        streams.ids[~streams.separators] = 1
        draw = permuted.permutation(streams, np.random.default_rng(0))
        view = permuted.permuted(streams, draw, PLM, SPECIALS)
        same(view.targets['plm'], 1)

    def test_every_order_of_a_half_is_as_likely(self):
        _, draw, _ = drawn(2000, 24, separator_rate=0.0)
        pair = np.take_along_axis(draw.ranks, draw.places[:, :2], axis=1)
        assert_share((pair[:, 0] < pair[:, 1]).sum(), 2000)

    def test_the_order_changes_the_ranks_alone(self):
        partial, strict = (drawn(6, 64, order=o)[1] for o in permuted.ORDERS)
        for field in ('away', 'columns', 'segment_ids', 'places', 'usable'):
            same(getattr(partial, field), getattr(strict, field))

    def test_a_half_of_separators_has_no_targets(self):
        streams = make_streams(3, 24)
        streams.separators[1, :12] = True
        streams.ids[1, :12] = SEP
        draw = permuted.permutation(streams, np.random.default_rng(0))
        view = permuted.permuted(streams, draw, PLM, SPECIALS)
        same(view.weights['plm'][1], [0, 0, 1, 1])
        same(view.weights['plm'][[0, 2]], 1)


class TwoTextsTest(parameterized.TestCase):
    def test_written_out(self):
        """T = 16: 8 read again, then 5 in two texts."""
        ids = np.stack([np.arange(10, 23), np.arange(30, 43)]).astype(np.int32)
        starts = np.ones((2, 13), bool)
        starts[0, 9] = starts[1, 10] = False
        sentences, separators = np.zeros((2, 2, 13), bool)
        streams = Streams(
            ids, starts, sentences, separators, np.ones(2, np.int32),
            np.zeros(2, np.int32),
        )  # fmt: skip
        # Where A ends among its word starts; which other row; whether.
        numbers = [[0.5, 0.99], [0.0, 0.0], [0.9, 0.1]]
        random = mock.Mock(random=lambda shape: np.array(numbers))
        away, columns, segments = permuted._two_texts(streams, random)
        first = [*range(11), 13, 11, 12, 13, 14]
        same(columns, [first, [*range(12), 13, 12, 13, 14]])
        same(away, [[0] * 16, [0] * 13 + [-1] + [0] * 2])
        same(segments, [[0] * 12 + [1] * 3 + [2], [0] * 13 + [1] * 2 + [2]])
        # B of another row begins with a word: one token earlier.
        starts[0, 12] = False
        _, columns, _ = permuted._two_texts(streams, random)
        same(columns[1, 12:], [13, 11, 13, 14])
        # With a sentence, where there is one; the first token ends nothing.
        sentences[0, 8] = True
        _, columns, _ = permuted._two_texts(streams, random)
        same(columns[1, 12:], [13, 8, 13, 14])
        same(columns[0, 8:12], [8, 9, 10, 13])
        # A ends where a sentence does.
        sentences[0, 12] = True
        _, columns, _ = permuted._two_texts(streams, random)
        same(columns[0, 8:], [8, 9, 10, 11, 13, 12, 13, 14])

    @parameterized.parameters(24, 64, 128)
    def test_layout(self, tokens):
        streams, draw, view = drawn(40, tokens)
        half, room = tokens // 2, tokens // 2 - 3
        same(view.ids[:, :half], streams.ids[:, :half])
        same(view.ids[:, -2:], [[SEP, CLS]] * 40)
        same(view.segment_ids[:, -1], 2)
        same(view.directions, streams.directions)
        same(view.sequences, np.arange(40))
        for row in range(40):
            segment = view.segment_ids[row]
            self.assertTrue((np.diff(segment) >= 0).all())
            cut = int((segment[half:] == 0).sum()) - 1
            self.assertBetween(cut, 1, room - 1)
            self.assertTrue(streams.word_starts[row, half + cut])
            self.assertEqual(view.ids[row, half + cut], SEP)
            in_a = slice(half, half + cut)
            same(view.ids[row, in_a], streams.ids[row, in_a])
            in_b = slice(half + cut + 1, tokens - 2)
            (away,) = set(draw.away[row, in_b])
            partner = row + away
            columns = draw.columns[row, in_b]
            same(np.diff(columns), 1)
            same(view.ids[row, in_b], streams.ids[partner, columns])
            self.assertGreaterEqual(columns[0], half)
            self.assertTrue(streams.word_starts[partner, columns[0]])
            if partner == row:
                self.assertEqual(columns[0], half + cut)
            self.assertLessEqual(columns[0], half + cut)
            ways = streams.directions[[partner, row]]
            self.assertEqual(*ways)

    def test_half_of_them_go_on(self):
        _, draw, _ = drawn(2000, 24)
        assert_share(draw.away.any(axis=1).sum(), 2000)
        # Every other row is as likely; row 0's are 2, 4, 6.
        partners = np.array(
            [drawn(8, 24, seed=seed)[1].away[0].max() for seed in range(100)]
        )
        actual = np.bincount(partners[partners > 0], minlength=8)
        same(actual[[1, 3, 5, 7]], 0)
        assert_shares(actual[[2, 4, 6]])

    @parameterized.parameters(1, 2)
    def test_a_row_alone_in_its_direction_goes_on(self, b):
        for seed in range(20):
            _, draw, _ = drawn(b, 24, seed=seed)
            same(draw.away, np.zeros((b, 24)))

    def test_text_without_a_word_start(self):
        """One word longer than the second half: A is its first word."""
        streams, draw, view = drawn(3, 24, word_rate=0.0, separator_rate=0.0)
        same(view.ids[:, 13], SEP)
        continues = draw.away[:, 14] == 0
        same(view.ids[continues, 14:22], streams.ids[continues, 13:21])
        self.assertTrue(draw.usable.all())  # single tokens


class ViewTest(absltest.TestCase):
    def test_has_the_queries_alone(self):
        streams, draw, _ = drawn(4, 24)
        with refused('where_not_in_view', 'queries', 'tokens'):
            permuted.permuted(streams, draw, {'mlm': 'tokens'}, SPECIALS)

    def test_targets_stand_in_the_view(self):
        """Targets are hidden from queries, not masked."""
        _, draw, view = drawn(4, 64)
        targets = np.take_along_axis(view.ids, view.places['plm'], axis=1)
        same(view.targets['plm'], targets)
        self.assertFalse((view.ids == SPECIALS.mask_id).all())
        self.assertIsNone(view.block_ids)
        self.assertIsNone(view.positions)
        self.assertEqual(view.counts, {})
        assert_view(view)  # its types

    def test_the_draw_of_a_view_has_its_settings(self):
        streams, expected, _ = drawn(4, 24, k=3, order='strict')
        settings = {'k': 3, 'order': 'strict', 'others': None}
        draw = views.VIEWS['permuted'].draw(settings)
        random = views.generator(0, 0, draw.name)
        actual = draw.function(streams, random, **draw.settings)
        for name, array in expected._asdict().items():
            same(getattr(actual, name), array, name)
