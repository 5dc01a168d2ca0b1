"""Translations by hand, against scikit-learn, and planted ones."""

import gzip
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.evaluation import bitext, ranking
from tests import places
from tests.refused import refused


def signs(count, seed, width=16):
    """[count, width] of +-1: their cosines are exact in any block."""
    random = np.random.default_rng(seed)
    return random.choice(np.float32([-1, 1]), (count, width))


def by_hand(x, y, k):
    """Eq. 2-3 for all pairs, [N, M] cosines and margins, in plain NumPy."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    y = y / np.linalg.norm(y, axis=1, keepdims=True)
    cosines = x @ y.T
    margins = np.empty(cosines.shape)
    for i in range(len(x)):
        for j in range(len(y)):
            around_x = np.sort(cosines[i])[::-1][:k]
            around_y = np.sort(cosines[:, j])[::-1][:k]
            margins[i, j] = cosines[i, j] / (
                around_x.sum() / (2 * len(around_x))
                + around_y.sum() / (2 * len(around_y))
            )
    return cosines, margins


def first_best(scores):
    """Numbers [N, M] by score, of equal ones the lower first."""
    return np.argsort(-scores, axis=1, kind='stable')


class FilesTest(places.Folder, parameterized.TestCase):
    def write(self, name, *lines, end='\n'):
        path = self.folder / name
        data = ''.join(line + end for line in lines).encode()
        path.write_bytes(gzip.compress(data) if name[-3:] == '.gz' else data)
        return path

    @parameterized.parameters(
        ('tatoeba.{}-eng.{}', 'deu', 'eng'),
        ('{}-en.{}', 'de', 'en'),
        ('tatoeba.{}-en.{}', 'de', 'en'),
        ('a.b.{}-eng_Latn.{}', 'deu_Latn', 'eng_Latn'),
    )
    def test_names(self, name, code, english):
        """Names of LASER and of XTREME; other files are ignored."""
        self.write(name.format(code, code), 'Ja', ' Nein ', end='\r\n')
        self.write(name.format(code, english), 'Yes', 'No')
        self.write(name.format(code, 'fra'), 'Oui')
        self.write('README.md', 'of no language')
        self.write('multi.fra-deu.fra', 'Oui')
        (self.folder / 'x-en.x').mkdir()
        (actual,) = bitext.read(self.folder)
        self.assertEqual(actual.language, code)
        self.assertEqual(actual.foreign.texts, ['Ja', 'Nein'])
        self.assertEqual(actual.english.texts, ['Yes', 'No'])

    def test_english_first_and_gz(self):
        self.write('en-fr.en.gz', 'Yes', 'No')
        self.write('en-fr.fr', 'Oui', 'Non')
        (actual,) = bitext.read(self.folder)
        self.assertEqual(actual.language, 'fr')
        self.assertEqual(actual.english.texts, ['Yes', 'No'])

    def test_languages_in_their_order(self):
        for code in ('tur', 'deu', 'fra'):
            self.write(f'tatoeba.{code}-eng.{code}', code)
            self.write(f'tatoeba.{code}-eng.eng', 'x')

        def languages(*names):
            return [x.language for x in bitext.read(self.folder, names)]

        self.assertEqual(languages(), ['deu', 'fra', 'tur'])
        self.assertEqual(languages('tur', 'deu', 'tur'), ['deu', 'tur'])
        with refused('bitext_lacks_language', 'spa', 'deu, fra, tur'):
            languages('deu', 'spa')

    def test_what_xtreme_has_sorted(self):
        """The English side alone is in alphabetical order."""
        words = [f'{i:02}' for i in range(20)]
        for foreign, english, expected in (
            (words[::-1], words, True), (words, words, False),
            (words[::-1], words[::-1], False),
            (words[:19][::-1], words[:19], False),
        ):  # fmt: skip
            self.write('de-en.de', *foreign)
            self.write('de-en.en', *english)
            (actual,) = bitext.read(self.folder)
            self.assertEqual(actual.is_sorted, expected)

    def test_copies(self):
        actual = bitext.distinct(['b', 'a', 'b', 'c', 'a', 'b'])
        self.assertEqual(actual.texts, ['b', 'a', 'c'])
        self.assertEqual(actual.place.tolist(), [0, 1, 0, 2, 1, 0])
        self.assertEqual(actual.line.tolist(), [0, 1, 3])
        self.assertEqual(actual.copies, 3)


class SearchTest(parameterized.TestCase):
    @parameterized.parameters((30, 50, 4), (50, 30, 1), (3, 5, 4))
    def test_both_directions(self, n, m, k):
        """Among equal cosines, many here, the lower number is first."""
        x, y = signs(n, 0, 4), signs(m, 1, 4)
        cosines, margins = by_hand(x, y, k)
        both = bitext.nearest(x, y, k)
        for actual, scores, values, table in zip(
            both, (cosines, cosines.T), bitext.margins(*both),
            (margins, margins.T), strict=True,
        ):  # fmt: skip
            order = first_best(scores)[:, :k]
            np.testing.assert_array_equal(actual.numbers, order)
            np.testing.assert_allclose(
                actual.scores, np.take_along_axis(scores, order, 1), rtol=1e-6
            )
            np.testing.assert_allclose(
                values, np.take_along_axis(table, order, 1), rtol=1e-6
            )

    @parameterized.parameters((7, 5), (64, 1), (1, 64))
    def test_neither_lengths_nor_blocks_matter(self, block, rows):
        x, y = signs(40, 0), signs(60, 1)
        whole = bitext.nearest(x, y, 4)
        with (
            mock.patch.object(bitext, 'BLOCK', block),
            mock.patch.object(ranking, 'QUERIES', rows),
        ):
            parts = bitext.nearest(4 * x, y / 8, 4)
        for actual, other in zip(parts, whole, strict=True):
            np.testing.assert_array_equal(actual.numbers, other.numbers)
            np.testing.assert_array_equal(actual.scores, other.scores)

    def test_cosine_and_margin(self):
        """A hub, near all vectors, is found by cosine, not by margin.

        Angles in degrees: y[2] lies between all x.
        """

        def at(*angles):
            angles = np.radians(angles)
            return np.float32([np.cos(angles), np.sin(angles)]).T

        x, y = at(0, 20), at(-12, 32, 10)
        actual, back = bitext.translations(x, y)
        self.assertEqual(actual.tolist(), [2, 2])
        self.assertEqual(back.tolist(), [0, 1, 0])  # a tie: the lower number
        _, margins = by_hand(x, y, 2)
        actual, back = bitext.translations(x, y, 'margin', 2)
        self.assertEqual(actual.tolist(), margins.argmax(1).tolist())
        self.assertEqual(actual.tolist(), [0, 1])
        self.assertEqual(back.tolist()[:2], [0, 1])

    def test_the_margin_is_of_the_nearest_alone(self):
        """As published: a larger margin further off does not count."""
        x, y = signs(40, 2, 8), signs(40, 3, 8)
        cosines, margins = by_hand(x, y, 2)
        order = first_best(cosines)[:, :2]
        best = np.take_along_axis(margins, order, 1).argmax(1)
        expected = order[np.arange(40), best]
        actual, _ = bitext.translations(x, y, 'margin', 2)
        np.testing.assert_array_equal(actual, expected)
        self.assertTrue((expected != margins.argmax(1)).any())
        self.assertTrue((expected != order[:, 0]).any())

    def test_nothing_is_infinite(self):
        x = np.float32([[1, 0], [0, 0]])
        y = np.float32([[-1, 0], [0, 1]])
        for values in bitext.margins(*bitext.nearest(x, y, 4)):
            self.assertTrue(np.isfinite(values).all())


class MeasureTest(absltest.TestCase):
    def test_copies(self):
        """Lines 0 and 2 of the target hold the same sentence."""
        source = bitext.distinct(['a', 'b', 'c', 'd'])
        target = bitext.distinct(['x', 'y', 'x', 'z'])
        # a and c find x, b finds z, d finds z.
        actual = bitext.measure(np.array([0, 2, 0, 2]), source, target)
        self.assertEqual(actual['accuracy'], 3 / 4)
        # By line 0, 3, 0, 3 were found: of 0, 1, 2, 3 the first and the last.
        self.assertEqual(actual['by_line'], 2 / 4)
        # Each predicted twice, right once: 2 / (1 + 2).
        self.assertAlmostEqual(actual['f1'], (2 / 3 + 2 / 3) / 4)
        # The reverse: a sentence that stands twice finds one of two.
        actual = bitext.measure(np.array([2, 1, 3]), target, source)
        self.assertEqual(actual['accuracy'], 3 / 4)  # a -> c: wrong

    def test_f1_weighs_all_sentences_alike(self):
        """Predicts 0 twice, right once: 2 / (2 + 1); 1 never, 2 and 3 once
        each, of which 2 rightly.
        """
        sentences = bitext.distinct('abcd')
        actual = bitext.measure(np.array([0, 0, 2, 3]), sentences, sentences)
        self.assertAlmostEqual(actual['f1'], (2 / 3 + 0 + 1 + 1) / 4)
        self.assertEqual(actual['accuracy'], 3 / 4)
        actual = bitext.measure(np.array([0, 3, 1, 2]), sentences, sentences)
        self.assertEqual([*actual.values()], [1 / 4] * 3)
