"""The source `translations`: which pairs an update reads, and in which rows."""

import numpy as np
from absl.testing import parameterized

from infoword_tf.data.text_pairs import Columns
from infoword_tf.data.translations import (
    ParallelText,
    TokenPairs,
    TranslationSource,
    tokenized,
)
from infoword_tf.text.wholewords import WholeWords

T = 40


def bitext(n, seed=0):
    """Pairs of random lengths; the first token of a text says which it is."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 18, 2 * n)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    ids = random.integers(5, 50, begins[-1]).astype(np.int32)
    ids[begins[:-1]] = 100 + np.arange(2 * n)
    return TokenPairs(ids, np.ones(len(ids), bool), begins, np.zeros(n, bool))


def opened(sizes, exponent=1.0, length=T, **more):
    parts = {f'a{i}-b': bitext(n, i) for i, n in enumerate(sizes)}
    return TranslationSource(
        ParallelText(parts, exponent), length, 8, 3, stratified=True, **more
    )


class TranslationSourceTest(parameterized.TestCase):
    def test_pairs_fill_the_rows(self):
        source = opened([2000], length=128)
        for step in range(30):
            text = source.batch(step)
            self.assertEqual(len(text.slots), 8)
            sizes = np.where(
                text.slots < 0,
                0,
                (text.lengths.sum(axis=1) + 3)[text.slots],
            ).sum(axis=1)
            self.assertLessEqual(sizes.max(), 128)
            self.assertGreater(sizes.sum() / (8 * 128), 0.85)
            actual = np.sort(text.slots[text.slots >= 0])
            np.testing.assert_array_equal(actual, np.arange(len(text.numbers)))

    def test_crossed_pairs_are_nearly_as_long(self):
        source = opened([2000], crossed=True)
        lengths = []
        for step in range(30):
            text = source.batch(step)
            self.assertEqual(len(text.numbers), 16)
            self.assertEqual((text.slots >= 0).sum(), 8)
            longest = text.lengths.max(axis=1).reshape(-1, 2).sum(axis=1) + 3
            self.assertLessEqual(longest.max(), text.width)
            lengths.append(longest)
        alone = np.std(bitext(2000).lengths.max(axis=1))
        self.assertLess(np.std(lengths), 0.6 * np.sqrt(2) * alone)

    def test_an_update_is_of_two_languages_by_the_exponent(self):
        source = opened([1600, 400], exponent=0.5)
        turns = [source.turns.turn(step)[0] for step in range(1024)]
        actual = np.bincount(turns) / 1024
        np.testing.assert_allclose(actual, [2 / 3, 1 / 3], atol=0.002)
        shapes = {
            (x.slots.shape, x.width)
            for x in (source.batch(step) for step in range(8))
        }
        self.assertLen(shapes, 1)

    @parameterized.parameters((1.0, 8, 2), (0.5, 7, 3))
    def test_counts_are_of_what_is_drawn(self, exponent, first, second):
        parts = {
            name: TokenPairs(
                np.full(2 * n, token, np.int32), np.ones(2 * n, bool),
                np.arange(2 * n + 1), np.zeros(n, bool),
            )
            for name, token, n in (('a-b', 1, 4), ('c-d', 3, 1))
        }  # fmt: skip
        text = ParallelText(parts, exponent)
        self.assertEqual([*text.counts(5)], [0, first, 0, second, 0])

    def test_texts_as_they_were(self):
        texts = [['one two three', 'four', 'a'],
                 ['uno dos tres', 'cuatro', 'x y z']]  # fmt: skip
        columns = Columns('x', texts, 0, ('en', 'es'))
        tokenizer = WholeWords.learn(t for side in texts for t in side)
        part = tokenized(columns, tokenizer, 40)
        words = [tokenizer.vocabulary[i] for i in part.ids]
        self.assertEqual(
            words, 'one two three uno dos tres four cuatro a x y z'.split()
        )
        np.testing.assert_array_equal(part.lengths, [[3, 3], [1, 1], [1, 3]])
        cut = tokenized(columns, tokenizer, 8)  # 2 tokens a side
        words = [tokenizer.vocabulary[i] for i in cut.ids]
        self.assertEqual(words, 'one two uno dos four cuatro a x y'.split())
        np.testing.assert_array_equal(cut.truncated, [True, False, True])

    def test_tokens_are_counted_by_row(self):
        source = opened([500])
        text = source.batch(0)
        self.assertEqual(text.tokens.sum(), text.lengths.sum())
        crossed = opened([500], crossed=True).batch(0)
        self.assertEqual(crossed.tokens.sum(), crossed.lengths.sum())
