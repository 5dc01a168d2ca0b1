"""Copies and near copies, against sets of shingles that are written out."""

import zlib

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data import duplicates


def shingles(text):
    words = text.casefold().split()
    size = duplicates.SHINGLE
    count = max(1, len(words) - size + 1)
    return {tuple(words[i : i + size]) for i in range(count)}


def jaccard(a, b):
    a, b = shingles(a), shingles(b)
    return len(a & b) / len(a | b)


def pairs(words, count, changes):
    """Texts of so many words, and copies with other words in some places."""
    random = np.random.default_rng(words)
    for _ in range(count):
        text = [f'w{i}' for i in random.integers(0, 5000, words)]
        other = list(text)
        for place in random.integers(0, words, random.integers(0, changes)):
            other[place] = f'other{place}'
        yield ' '.join(text), ' '.join(other)


class SketchTest(parameterized.TestCase):
    @parameterized.parameters(
        # A text of few shingles has few different numbers in its bins.
        (9, 2, 0.05), (40, 4, 0.02), (400, 40, 0.01),
    )  # fmt: skip
    def test_the_share_of_equal_bins_is_the_similarity(
        self, words, changes, off
    ):
        texts = list(pairs(words, 200, changes))
        a, b = (duplicates.sketches(list(x)) for x in zip(*texts, strict=True))
        self.assertEqual(a.shape, (200, duplicates.BINS))
        found = (a == b).mean(axis=1)
        wanted = np.array([jaccard(*x) for x in texts])
        self.assertLess(wanted.min(), 0.7)
        self.assertAlmostEqual((found - wanted).mean(), 0, delta=off)
        self.assertLess(np.abs(found - wanted).mean(), 4 * off)

    def test_a_text_is_alone_what_it_is_among_others(self):
        texts = ['One two three four five six.', 'Short.', '', 'x ' * 99 + 'y',
                 'Ünïcode 中文 عربي', 'w' * 300 + ' ' + 'v' * 70]  # fmt: skip
        whole = duplicates.sketches(texts)
        for text, row in zip(texts, whole, strict=True):
            np.testing.assert_array_equal(duplicates.sketches([text])[0], row)
        # Case makes no difference, another letter does.
        for other, same in (('SHORT.', True), ('Shorts', False)):
            found = duplicates.sketches([other])[0]
            self.assertEqual((found == whole[1]).all(), same)
        self.assertLess((whole[:, None] == whole).mean(-1).sum(), 6.2)

    def test_bins_are_those_of_every_machine(self):
        """Of texts from one shingle to more than there are bins."""
        texts = [' '.join(f'w{i * i % 97}' for i in range(n))
                 for n in (1, 5, 6, 9, 20, 21, 22, 60, 300)]  # fmt: skip
        found = duplicates.sketches(texts)
        self.assertEqual(zlib.crc32(found.astype('<u2').tobytes()), 1069531653)
        # An empty bin has asked each of the others when it gives up.
        _, first = duplicates._lending()
        self.assertLess(first.max(), duplicates._ATTEMPTS * duplicates.BINS)

    def test_equal_bins_of_unlike_texts_are_chance(self):
        random = np.random.default_rng(0)
        texts = [' '.join(map(str, random.integers(0, 10**6, 50)))
                 for _ in range(60)]  # fmt: skip
        found = duplicates.sketches(texts)
        same = (found[:, None] == found).mean(axis=-1) - np.eye(60)
        # One that agrees by chance is lent to some others.
        self.assertLess(same.max(), 0.06)
        self.assertLess(same.mean(), 1e-3)


class DuplicatesTest(absltest.TestCase):
    def test_the_first_of_equal_ones_stays(self):
        hashes = np.array([7, 3, 7, 9, 3, 7], np.uint64)
        np.testing.assert_array_equal(
            duplicates.repeated(hashes), [0, 0, 1, 0, 1, 1]
        )

    def test_near_ones(self):
        random = np.random.default_rng(1)
        texts = [' '.join(f'w{i}' for i in random.integers(0, 3000, 300))
                 for _ in range(50)]  # fmt: skip
        copies = []
        for number in range(20):
            words = texts[number].split()
            for place in range(5 * (number % 4)):  # Jaccard 1, .85, .71, .6
                words[20 * place] = 'changed'
            copies.append(' '.join(words))
        every = [*texts, *copies]
        wanted = [False] * 50 + [
            jaccard(texts[n], copy) >= 0.78 for n, copy in enumerate(copies)
        ]
        self.assertEqual(sum(wanted), 10)
        found = duplicates.near(duplicates.sketches(every), 0.78)
        np.testing.assert_array_equal(found, wanted)
        # All copies of one text but the first, wherever they stand.
        many = duplicates.sketches([texts[0]] * 500 + [texts[1]])
        found = duplicates.near(many[::-1], 0.8)
        np.testing.assert_array_equal(found, [0, 0] + [1] * 499)


if __name__ == '__main__':
    absltest.main()
