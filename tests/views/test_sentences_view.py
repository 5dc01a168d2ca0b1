"""Copies of sentences, texts of pairs, and random changes."""

import numpy as np
from absl.testing import absltest

from infoword_tf.data.examples import Examples
from infoword_tf.views import sentences
from infoword_tf.views.examples import Labelled
from infoword_tf.views.pair_candidates import Joining, pair_candidates
from infoword_tf.views.sentences import (
    change,
    most_repeated,
    sentence_keys,
    text_numbers,
)
from tests import zoo
from tests.views.texts import same

ROWS = {'simcse': 'example'}


def batch_of(texts, slots, width=32):
    """Examples of texts without specials; places of these are free."""
    k = len(texts[0])
    longest = max(len(t) + 2 for row in texts for t in row)
    ids = np.zeros((len(texts), k, longest), np.int32)
    lengths = np.zeros((len(texts), k), np.int32)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            ids[i, j, 1 : 1 + len(text)] = text
            lengths[i, j] = len(text) + 2
    return Labelled(
        ids, np.zeros_like(ids), lengths, np.zeros_like(lengths),
        np.arange(len(texts), dtype=np.int32), {}, {},
        np.array(slots, np.int32), width,
    )  # fmt: skip


def make(text, view=sentences.sentences, seed=0, rows=ROWS, **settings):
    chosen = {'pairs': 0, 'repeat': 0.0, 'shuffle': False, **settings}
    drawn = change(text, np.random.default_rng(seed), **chosen)
    return view(text, drawn, rows, zoo.SPECIALS)


class ExpandedTest(absltest.TestCase):
    def test_expansion_by_hand(self):
        """[MASK] behind [SEP] of a; one that a text has itself is a word."""
        ids = np.array([[2, 7, 3, 4, 4, 9], [2, 4, 3, 8, 8, 8]])
        actual = sentences.expansion(ids, np.array([5, 3]), 4)
        same(actual, [[0, 0, 0, 1, 1, 0], [0] * 6])

    def test_expanded_queries(self):
        """Two pairs share a sequence; positions and texts go on to [MASK]."""
        ids = [[2, 7, 3], [2, 8, 9, 3], [2, 5, 6, 3], [2, 9, 3]]
        flat = np.concatenate(ids).astype(np.int32)
        begins = np.cumsum([0, *map(len, ids)])
        plain = Examples(
            flat, np.zeros(len(flat), np.int8), begins, np.zeros(4, np.int32),
            {}, texts=2,
        )  # fmt: skip
        pairs = plain.expanded(5, 4)
        text = pairs.batch(np.arange(2), np.array([[0, 1]]), 24)
        view = make(text, pairs=2, sides=sentences.Sides(expand=True))
        same(view.ids[0, :16],
             [2, 7, 3, 4, 4, 2, 8, 9, 3, 2, 5, 6, 3, 4, 2, 9])  # fmt: skip
        hidden = np.flatnonzero(view.hidden[0])
        same(hidden, [3, 4, 13])
        same(view.block_ids[0, :16], [0] * 5 + [1] * 4 + [2] * 5 + [3] * 2)
        same(view.positions[0, :6], [0, 1, 2, 3, 4, 0])
        same(view.places['simcse'], [[0, 5, 9, 14]])
        both = make(text, pairs=2, sides=sentences.Sides(True, attend=True))
        self.assertIsNone(both.hidden)
        same(both.ids, view.ids)


class CandidatesTest(absltest.TestCase):
    TEXTS = [[[7, 8], [9], [10]], [[11], [12, 13], []], [[14], [9], [15]]]

    def make(self, length=9, others=1, seed=0, **joining):
        text = batch_of(self.TEXTS, [[0, 1, 2]])
        text = text._replace(joining=Joining(length, **joining))
        return make(
            text, pair_candidates, seed, {'simcse': 'pair'}, pairs=3,
            others=others,
        )

    def test_by_hand(self):
        """b, the b of another example, and a negative where there is one."""
        view = self.make()
        self.assertEqual(view.ids.shape[:2], (3, 3))
        same(view.ids[0, 0, :6], [2, 7, 8, 3, 9, 3])
        same(view.ids[0, 2, :6], [2, 7, 8, 3, 10, 3])
        same(view.ids[1, 0, :6], [2, 11, 3, 12, 13, 3])
        same(view.block_ids[0, 0, :7], [0] * 6 + [1])
        same(view.positions[0, 0, :7], [0, 1, 2, 3, 4, 5, 0])
        same(view.segment_ids[0, 0], [0] * view.ids.shape[2])
        numbers = view.targets['simcse']
        self.assertEqual(numbers[0, 0], numbers[2, 0])  # equal texts
        self.assertEqual(numbers[1, 2], -1)
        same(view.weights['simcse'], np.ones((3, 1)))

    def test_other_examples_are_drawn(self):
        """Never the example itself; each of the others as often."""
        counts = np.zeros((3, 3))
        for seed in range(60):
            drawn = change(
                batch_of(self.TEXTS, [[0, 1, 2]]), np.random.default_rng(seed),
                pairs=3, repeat=0.0, shuffle=False, others=1,
            )  # fmt: skip
            counts[np.arange(3), drawn.others[:, 0]] += 1
        same(np.diag(counts), [0] * 3)
        np.testing.assert_allclose(counts[~np.eye(3, dtype=bool)], 30, atol=12)

    def test_every_other_example_once(self):
        numbers = self.make(others=7).targets['simcse']
        self.assertEqual(numbers.shape, (3, 4))  # b, two others, a negative
        same(numbers[1, 1:3], [numbers[0, 0]] * 2)
        self.assertEqual({*numbers[0, 1:3]}, {*numbers[:2, 0]})

    def test_truncated_and_in_two_segments(self):
        """The longer text is cut first, and b is of the second segment."""
        view = self.make(length=6, between=2, segment=1)
        same(view.ids[0, 0, :6], [2, 7, 3, 3, 9, 3])
        same(view.ids[1, 0, :6], [2, 11, 3, 3, 12, 3])
        same(view.segment_ids[0, 0, :7], [0, 0, 0, 0, 1, 1, 0])


class CopiesTest(absltest.TestCase):
    def test_by_hand(self):
        """Two sentences share a sequence, each twice; the third is alone."""
        texts = [[x, x] for x in ([7, 8], [9], [10, 11, 12])]
        view = make(batch_of(texts, [[0, 1], [2, -1]], width=16))
        first = [2, 7, 8, 3, 2, 7, 8, 3, 2, 9, 3, 2, 9, 3]
        same(view.ids[0, :14], first)
        same(view.positions[0, :14], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2])
        same(view.block_ids[0, :14], [0] * 4 + [1] * 4 + [2] * 3 + [3] * 3)
        same(view.places['simcse'], [[0, 4, 8, 11], [0, 5, 0, 0]])
        same(view.weights['simcse'], [[1, 1], [1, 0]])
        numbers = view.targets['simcse']  # [R, J, K]
        same(numbers[..., 0], numbers[..., 1])
        self.assertLen({*numbers[[0, 0, 1], [0, 1, 0], 0].tolist()}, 3)
        same(view.sequences, [[0, 1], [2, -1]])

    def test_repetition_is_that_of_the_paper(self):
        """Wu et al. 2022, §3.1: 0 to max(2, int(.32 N)) tokens, all alike."""
        words = list(range(10, 23))  # N = 15
        counts = []
        for seed in range(200):
            text = batch_of([[words, words]], [[0]], width=40)
            view = make(text, seed=seed, repeat=0.32)
            plain = view.ids[0][view.block_ids[0] == 0]
            same(plain, [2, *words, 3])
            doubled = view.ids[0][view.block_ids[0] == 1]
            self.assertEqual((doubled[0], doubled[-1]), (2, 3))
            each = np.bincount(doubled[1:-1], minlength=23)[10:]
            self.assertTrue(((each == 1) | (each == 2)).all())
            self.assertTrue((np.diff(doubled[1:-1]) >= 0).all())  # in place
            counts.append((each == 2).sum())
            numbers = view.targets['simcse'][0, 0]
            self.assertEqual(*numbers)  # of the sentence as it was
        self.assertEqual(set(counts), {0, 1, 2, 3, 4})
        shares = np.bincount(counts) / len(counts)
        np.testing.assert_allclose(shares, 0.2, atol=0.08)

    def test_the_only_copy_is_changed_and_its_key_is_not(self):
        """As where a momentum encoder makes b (`keys`)."""
        settings = {n: s.default for n, s in sentences.SETTINGS.items()}
        settings |= {'source': 'sentences', 'keys': 'positives'}
        self.assertEqual(sentences.source_args(9, settings)['copies'], 1)
        words = list(range(10, 23))
        lengths = set()
        for seed in range(20):
            text = batch_of([[words]], [[0]], width=24)
            view, key = (
                make(text, of, seed=seed, repeat=0.32)
                for of in (sentences.sentences, sentence_keys)
            )
            shown = view.ids[0][view.block_ids[0] == 0]
            self.assertEqual(sorted({*shown} - {2, 3}), words)
            lengths.add(len(shown))
            same(key.ids[0, :15], [2, *words, 3])
            same(view.targets['simcse'], key.targets['simcse'])
        self.assertEqual((min(lengths), max(lengths)), (15, 19))

    def test_how_many_at_most(self):
        same(most_repeated(np.array([3, 4, 6, 10, 32]), 0.32), [1, 2, 2, 3, 10])
        same(most_repeated(np.array([9]), 0.0), [0])

    def test_shuffled_positions(self):
        """A permutation of the second copy's; ids stay (ConSERT)."""
        words = list(range(10, 20))
        seen = set()
        for seed in range(20):
            text = batch_of([[words, words]], [[0]])
            view = make(text, seed=seed, shuffle=True)
            first, second = (
                view.positions[0][view.block_ids[0] == i] for i in range(2)
            )
            same(first, np.arange(12))
            same(np.sort(second), np.arange(12))
            seen.add(tuple(second))
            same(view.ids[0][view.block_ids[0] == 1], [2, *words, 3])
        self.assertGreater(len(seen), 18)


class PairsTest(absltest.TestCase):
    TEXTS = [[[7, 8], [9], [10]], [[11], [12, 13], []]]

    def test_texts_stay_and_a_negative_may_be_lacking(self):
        text = batch_of(self.TEXTS, [[0], [1]], width=16)
        view = make(text, pairs=3, repeat=0.9, shuffle=True)
        same(view.ids[1, :7], [2, 11, 3, 2, 12, 13, 3])
        same(view.block_ids[1, 7:], [3] * 9)
        self.assertEqual(view.targets['simcse'][1, 0, 2], -1)
        self.assertTrue((view.targets['simcse'][0] >= 0).all())

    def test_keys_are_the_second_texts(self):
        text = batch_of(self.TEXTS, [[0], [1]], width=16)
        view = make(text, sentence_keys, pairs=3)
        same(view.ids[0, :3], [2, 9, 3])
        same(view.ids[1, :4], [2, 12, 13, 3])
        of_copies = make(batch_of([[[7, 8]] * 2], [[0]], 16), sentence_keys)
        same(of_copies.ids, [[2, 7, 8, 3, 3, 3, 3, 3]])


class NumbersTest(absltest.TestCase):
    def test_of_tokens_alone(self):
        ids = np.array([[5, 6, 7, 0], [5, 6, 7, 9], [6, 5, 7, 0], [5, 6, 7, 9]])
        actual = text_numbers(ids, np.array([3, 3, 3, 4]))
        self.assertEqual(actual[0], actual[1])
        self.assertLen(set(actual.tolist()), 3)
        self.assertEqual(text_numbers(ids, np.zeros(4, int)).tolist(), [-1] * 4)

    def test_no_two_of_many_are_one(self):
        """Some are expected: n^2 / 2^32 of 20,000."""
        random = np.random.default_rng(0)
        ids = np.unique(random.integers(0, 500, (20_000, 6)), axis=0)
        actual = text_numbers(ids, np.full(len(ids), 6))
        self.assertLess(len(ids) - len(set(actual.tolist())), 3)
        self.assertGreaterEqual(actual.min(), 0)
