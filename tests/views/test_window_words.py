"""The windows of word2vec: which words stay, which are near each other."""

import numpy as np
from absl.testing import parameterized

from infoword_tf.views import Specials
from infoword_tf.views.words import (
    WORDS,
    Words,
    keep_probabilities,
    noise,
    windows,
    words,
)
from tests.refused import refused
from tests.views.texts import same

SPECIALS = Specials(2, 3, 4, 60)


def make_text(texts, negatives=4):
    """Makes words numbered by index, of given passages."""
    texts = np.int32(texts)
    ids = 5 + np.arange(texts.size, dtype=np.int32).reshape(texts.shape)
    drawn = np.full((len(texts), negatives), 7, np.int32)
    return Words(ids, texts, drawn, np.full(len(texts), 9, np.int32))


class ProbabilityTest(parameterized.TestCase):
    @parameterized.parameters(
        (0.1, 0.11), (0.01, 0.41623), (0.005, 0.64721), (0.002, 1.0)
    )
    def test_of_the_code(self, share, expected):
        """Keeps so many of 100,000 words that are one word, t = 1e-3."""
        counts = np.array([100_000 * share, 100_000 * (1 - share)])
        actual = keep_probabilities(counts, 1e-3)
        self.assertAlmostEqual(actual[0], expected, places=5)

    def test_none_is_dropped(self):
        same(keep_probabilities(np.array([9, 1, 0]), 0.0), [1, 1, 0])

    def test_noise_is_unigram_to_the_three_quarters(self):
        actual = noise(np.array([0, 16, 81, 256]))
        np.testing.assert_allclose(actual, np.array([0, 8, 27, 64]) / 99)


class WindowTest(parameterized.TestCase):
    def test_how_often_each_distance_is_inside(self):
        """(w - d + 1) / w: 1, 0.8, 0.6, 0.4 and 0.2."""
        text = make_text(np.ones((40, 1000)))
        near = windows(text, np.random.default_rng(0), 5)
        self.assertEqual(near.shape, (40, 1000, 11))
        inside = near[:, 5:-5].mean(axis=(0, 1))
        half = np.array([1, 0.8, 0.6, 0.4, 0.2])
        np.testing.assert_allclose(
            inside, [*half[::-1], 0, *half], atol=0.01
        )
        # A window is whole: who holds a word holds all that are nearer.
        self.assertTrue((near[..., 6:-1] >= near[..., 7:]).all())

    def test_it_ends_with_its_text(self):
        text = make_text([[1, 1, 2, 3, 3, 3], [3, 3, 4, -1, -1, -1]])
        near = windows(text, np.random.default_rng(0), 3)
        for i, row in enumerate(text.texts):
            for j, number in enumerate(row):
                for k, inside in enumerate(near[i, j]):
                    other = j + k - 3
                    same = 0 <= other < 6 and row[other] == number >= 0
                    if inside:
                        self.assertTrue(same and other != j)
                    elif abs(other - j) == 1:
                        self.assertFalse(same)

    def test_views(self):
        text = make_text([[1, 1, 1, 2, 3, 3], [3, 4, 4, 4, -1, -1]])
        near = windows(text, np.random.default_rng(1), 2)
        view = words(text, near, {'one': 'around', 'two': 'middle'}, SPECIALS)
        targets = view.targets['one'].reshape(2, 6, 5)
        same(targets[0, 2], [5, 6, 7, 8, 9])
        same(targets[0, 0], [0, 0, 5, 6, 7])
        same(view.weights['one'].reshape(2, 6, 5), near)
        same(view.targets['two'], text.ids)
        # A document of one word has no pair, padding neither.
        same(view.weights['two'], [[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 0, 0]])
        mixes = view.mixes['two']
        np.testing.assert_allclose(mixes.sum(axis=2), view.weights['two'])
        same(mixes > 0, near)
        same(view.counts['padding'], [0, 2])
        with refused('where_not_in_view', 'one', 'tokens'):
            words(text, near, {'one': 'tokens'}, SPECIALS)

    def test_what_is_read_and_drawn(self):
        settings = {'window': 3, 'subsample': 1e-4, 'negatives': 9}
        self.assertEqual(
            WORDS.source_args(64, settings),
            {'length': 64, 'subsample': 1e-4, 'negatives': 9},
        )
        self.assertEqual(WORDS.draw(settings).settings, {'window': 3})
