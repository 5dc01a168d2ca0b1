"""Translations by hand, beside scikit-learn, and among planted ones."""

import gzip
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.evaluation import bitext, ranking


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


class FilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

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
        """Those of LASER and of XTREME; all else is left alone."""
        self.write(name.format(code, code), 'Ja', ' Nein ', end='\r\n')
        self.write(name.format(code, english), 'Yes', 'No')
        self.write(name.format(code, 'fra'), 'Oui')
        self.write('README.md', 'of no language')
        self.write('multi.fra-deu.fra', 'Oui')
        (self.folder / 'x-en.x').mkdir()
        (found,) = bitext.read(self.folder)
        self.assertEqual(found.language, code)
        self.assertEqual(found.foreign.texts, ['Ja', 'Nein'])
        self.assertEqual(found.english.texts, ['Yes', 'No'])

    def test_english_first_and_gz(self):
        self.write('en-fr.en.gz', 'Yes', 'No')
        self.write('en-fr.fr', 'Oui', 'Non')
        (found,) = bitext.read(self.folder)
        self.assertEqual(found.language, 'fr')
        self.assertEqual(found.english.texts, ['Yes', 'No'])

    def test_languages_in_their_order(self):
        for code in ('tur', 'deu', 'fra'):
            self.write(f'tatoeba.{code}-eng.{code}', code)
            self.write(f'tatoeba.{code}-eng.eng', 'x')

        def languages(*given):
            return [x.language for x in bitext.read(self.folder, given)]

        self.assertEqual(languages(), ['deu', 'fra', 'tur'])
        self.assertEqual(languages('tur', 'deu', 'tur'), ['deu', 'tur'])
        with self.assertRaisesRegex(
            ValueError, 'has no spa: its languages are deu, fra, tur$'
        ):
            languages('deu', 'spa')

    def test_what_xtreme_has_sorted(self):
        """Its English side alone is in the order of the alphabet."""
        words = [f'{i:02}' for i in range(20)]
        for foreign, english, wanted in (
            (words[::-1], words, True),
            (words, words, False),
            (words[::-1], words[::-1], False),
            (words[:19][::-1], words[:19], False),
        ):
            self.write('de-en.de', *foreign)
            self.write('de-en.en', *english)
            (found,) = bitext.read(self.folder)
            self.assertEqual(found.is_sorted, wanted)

    def test_copies(self):
        found = bitext.distinct(['b', '', 'a', 'b', 'c', 'a', 'b', ''])
        self.assertEqual(found.texts, ['b', 'a', 'c'])
        self.assertEqual(found.place.tolist(), [0, -1, 1, 0, 2, 1, 0, -1])
        self.assertEqual(found.line.tolist(), [0, 2, 4])
        self.assertEqual((found.copies, found.blank), (3, 2))

    @parameterized.parameters(
        # The first line that is odd on one side alone.
        ('aabc', 'xyz', 'a.de has 4 lines and .*b.en 3, .* perhaps at line 2 '
         'of .*a.de, which repeats the one before; align them again$'),
        ('aabbc', 'xxyz', 'perhaps at line 4 of .*a.de, which repeats'),
        ('abcd', 'x-z', 'perhaps at line 2 of .*b.en, which is empty;'),
        ('a', 'xyyz', 'line 2 of .*b.en has no neighbour;'),
        ('abc', 'xyzz', 'line 4 of .*b.en has no neighbour;'),
        ('a-c', 'xyz', 'a.de, line 2 is empty: fill it, or take this line out '
         'of both files$'),
        ('abc', 'x--', 'b.en, line 2 is empty'),
        ('--', 'xy', 'a.de holds no sentence'),
        ('', 'xy', 'a.de holds no sentence'),
    )  # fmt: skip
    def test_not_aligned(self, first, second, wrong):
        paths = [
            self.write(name, *(x.replace('-', ' ') for x in lines))
            for name, lines in (('a.de', first), ('b.en', second))
        ]
        with self.assertRaisesRegex(ValueError, wrong):
            bitext.aligned(*paths)

    def test_not_utf8(self):
        path = self.write('a.de', 'ja', 'nein')
        path.write_bytes(path.read_bytes() + 'Grüße\n'.encode('latin1'))
        with self.assertRaisesRegex(ValueError, 'a.de, line 3 is not UTF-8'):
            bitext.sentences_of(path)

    def test_folders(self):
        with self.assertRaisesRegex(FileNotFoundError, 'no such folder'):
            bitext.read(self.folder / 'nothing')
        with self.assertRaisesRegex(
            ValueError, 'holds no translations into English: expected are .* '
            'tatoeba.deu-eng.deu and tatoeba.deu-eng.eng'
        ):  # fmt: skip
            bitext.read(self.folder)
        self.write('v1.deu-eng.deu', 'Ja')
        with self.assertRaisesRegex(
            FileNotFoundError, 'v1.deu-eng.deu has no v1.deu-eng.eng beside it'
        ):
            bitext.read(self.folder)
        for name in ('v1.deu-eng.eng', 'v2.deu-eng.eng', 'v2.deu-eng.deu'):
            self.write(name, 'x')
        with self.assertRaisesRegex(
            ValueError, 'two test sets of deu, the second is v2.deu-eng'
        ):
            bitext.read(self.folder)

    def test_gold(self):
        """Lines, from 1; copies of a sentence are that sentence."""
        source = bitext.distinct(['a', '', 'b', 'a'])
        target = bitext.distinct(['x', 'y', 'y'])
        path = self.write('gold', '3\t2', '', '4\t1', '1\t1', '3\t3')
        self.assertEqual(
            bitext.read_gold(path, source, target), {(1, 1), (0, 0)}
        )
        for line, wrong in (
            ('3 2', "line 1: expected two line numbers, .* not '3 2'$"),
            ('3\tx', 'line 1: expected two line numbers'),
            ('3\t2\t1', 'line 1: expected two line numbers'),
            ('5\t1', 'the source has no line 5, its lines are 1 to 4'),
            ('1\t0', 'the target has no line 0, its lines are 1 to 3'),
            ('2\t1', 'line 2 of the source is blank'),
            ('', 'holds no pair of line numbers'),
        ):
            with self.assertRaisesRegex(ValueError, wrong):
                bitext.read_gold(self.write('bad', line), source, target)
        with self.assertRaisesRegex(FileNotFoundError, 'no such file'):
            bitext.read_gold(self.folder / 'none', source, target)


class SearchTest(parameterized.TestCase):
    @parameterized.parameters((30, 50, 4), (50, 30, 1), (3, 5, 4))
    def test_both_directions(self, n, m, k):
        """Of equal cosines, which are many here, the lower number is first."""
        x, y = signs(n, 0, 4), signs(m, 1, 4)
        cosines, margins = by_hand(x, y, k)
        both = bitext.nearest(x, y, k)
        for found, scores, values, table in zip(
            both, (cosines, cosines.T), bitext.margins(*both),
            (margins, margins.T), strict=True,
        ):  # fmt: skip
            order = first_best(scores)[:, :k]
            np.testing.assert_array_equal(found.numbers, order)
            np.testing.assert_allclose(
                found.scores, np.take_along_axis(scores, order, 1), rtol=1e-6
            )
            np.testing.assert_allclose(
                values, np.take_along_axis(table, order, 1), rtol=1e-6
            )

    def test_lengths_do_not_count(self):
        x, y = signs(9, 0), signs(8, 1)
        plain = bitext.nearest(x, y, 3)
        for found, other in zip(
            plain, bitext.nearest(4 * x, y / 8, 3), strict=True
        ):
            np.testing.assert_array_equal(found.numbers, other.numbers)
            np.testing.assert_array_equal(found.scores, other.scores)

    @parameterized.parameters((7, 5), (64, 1), (1, 64))
    def test_blocks_do_not_matter(self, block, rows):
        x, y = signs(40, 0), signs(60, 1)
        whole, mined = bitext.nearest(x, y, 4), bitext.mine(x, y)
        with (
            mock.patch.object(bitext, 'BLOCK', block),
            mock.patch.object(ranking, 'ROWS', rows),
        ):
            for found, other in zip(
                bitext.nearest(x, y, 4), whole, strict=True
            ):
                np.testing.assert_array_equal(found.numbers, other.numbers)
                np.testing.assert_array_equal(found.scores, other.scores)
            for found, other in zip(bitext.mine(x, y), mined, strict=True):
                np.testing.assert_array_equal(found, other)

    def test_cosine_and_margin(self):
        """What is near everything is found by cosine, and not by margin.

        Angles in degrees: y[2] lies between all x.
        """

        def at(*angles):
            angles = np.radians(angles)
            return np.float32([np.cos(angles), np.sin(angles)]).T

        x, y = at(0, 20), at(-12, 32, 10)
        found, back = bitext.translations(x, y)
        self.assertEqual(found.tolist(), [2, 2])
        self.assertEqual(back.tolist(), [0, 1, 0])  # a tie: the lower number
        _, margins = by_hand(x, y, 2)
        found, back = bitext.translations(x, y, 'margin', 2)
        self.assertEqual(found.tolist(), margins.argmax(1).tolist())
        self.assertEqual(found.tolist(), [0, 1])
        self.assertEqual(back.tolist()[:2], [0, 1])

    def test_the_margin_is_of_the_nearest_alone(self):
        """As published: a larger margin further off does not count."""
        x, y = signs(40, 2, 8), signs(40, 3, 8)
        cosines, margins = by_hand(x, y, 2)
        order = first_best(cosines)[:, :2]
        own = np.take_along_axis(margins, order, 1).argmax(1)
        wanted = order[np.arange(40), own]
        found, _ = bitext.translations(x, y, 'margin', 2)
        np.testing.assert_array_equal(found, wanted)
        self.assertTrue((wanted != margins.argmax(1)).any())
        self.assertTrue((wanted != order[:, 0]).any())

    def test_nothing_is_infinite(self):
        """A margin around 0, and a vector of zeros."""
        x = np.float32([[1, 0], [0, 0]])
        y = np.float32([[-1, 0], [0, 1]])
        for values in bitext.margins(*bitext.nearest(x, y, 4)):
            self.assertTrue(np.isfinite(values).all())

    def test_not_finite(self):
        x = signs(3, 0)
        for bad in (np.nan, np.inf):
            y = x.copy()
            y[1, 2] = bad
            for one, other in ((x, y), (y, x)):
                with self.assertRaisesRegex(ValueError, 'that are not finite'):
                    bitext.translations(one, other)


class MeasureTest(absltest.TestCase):
    def test_copies(self):
        """Lines 0 and 2 of the target hold the same sentence."""
        source = bitext.distinct(['a', 'b', 'c', 'd'])
        target = bitext.distinct(['x', 'y', 'x', 'z'])
        # a and c find x, b finds z, d finds z.
        found = bitext.measure(np.array([0, 2, 0, 2]), source, target)
        self.assertEqual(found['accuracy'], 3 / 4)
        # By line 0, 3, 0, 3 were found: of 0, 1, 2, 3 the first and the last.
        self.assertEqual(found['by_line'], 2 / 4)
        # Each predicted twice, right once: 2 / (1 + 2).
        self.assertAlmostEqual(found['f1'], (2 / 3 + 2 / 3) / 4)
        # The reverse: a sentence that stands twice finds one of two.
        found = bitext.measure(np.array([2, 1, 3]), target, source)
        self.assertEqual(found['accuracy'], 3 / 4)  # a -> c: wrong

    def test_f1_is_that_of_scikit_learn(self):
        from sklearn import metrics

        random = np.random.default_rng(0)
        for share in (0.0, 0.3, 0.9, 1.0):
            right = np.arange(200)
            found = np.where(
                random.random(200) < share, right, random.integers(0, 200, 200)
            )
            wanted = metrics.f1_score(
                right, found, average='weighted', zero_division=0
            )
            self.assertAlmostEqual(bitext.weighted_f1(found), wanted)
            sentences = bitext.distinct(map(str, right))
            measured = bitext.measure(found, sentences, sentences)
            wanted = metrics.accuracy_score(right, found)
            self.assertAlmostEqual(measured['accuracy'], wanted)
            self.assertAlmostEqual(measured['by_line'], wanted)


class MiningTest(parameterized.TestCase):
    def test_planted(self):
        """Forty of each side belong together, among twice as many others."""
        random = np.random.default_rng(0)
        x = random.standard_normal((120, 32)).astype(np.float32)
        y = random.standard_normal((130, 32)).astype(np.float32)
        at_x, at_y = random.permutation(120)[:40], random.permutation(130)[:40]
        noise = random.standard_normal((40, 32)).astype(np.float32)
        y[at_y] = x[at_x] + 0.3 * noise
        mined = bitext.mine(x, y)
        gold = set(zip(at_x.tolist(), at_y.tolist(), strict=True))
        found = list(
            zip(mined.source.tolist(), mined.target.tolist(), strict=True)
        )
        self.assertEqual(set(found[:40]), gold)
        self.assertLess(mined.scores[40], 0.9 * mined.scores[39])
        self.assertTrue((np.diff(mined.scores) <= 0).all())
        for used in (mined.source, mined.target):
            self.assertLen(set(used.tolist()), len(used))
        judged = bitext.judge(mined, gold)
        self.assertEqual(
            judged['threshold'], mined.scores[39:41].mean()
        )
        self.assertEqual(judged['f1'], 1.0)
        # The same from the other side.
        other = bitext.mine(y, x)
        np.testing.assert_allclose(other.scores, mined.scores, rtol=1e-5)
        np.testing.assert_array_equal(other.source, mined.target)

    def test_each_direction_keeps_one(self):
        """In plain NumPy; ties, of which there are many, go by number."""
        x, y = signs(25, 0, 4), signs(31, 1, 4)
        cosines, margins = by_hand(x, y, 4)
        candidates = set()
        for scores, values, flip in (
            (cosines, margins, 1), (cosines.T, margins.T, -1)
        ):  # fmt: skip
            for i, near in enumerate(first_best(scores)[:, :4]):
                j = near[np.argmax(values[i, near])]
                candidates.add((-values[i, j], *(i, int(j))[::flip]))
        self.assertLess(len({score for score, *_ in candidates}), 20)
        taken_x, taken_y, wanted = set(), set(), []
        for _, i, j in sorted(candidates):
            if i not in taken_x and j not in taken_y:
                wanted.append((i, j))
                taken_x.add(i)
                taken_y.add(j)
        mined = bitext.mine(x, y)
        found = zip(mined.source.tolist(), mined.target.tolist(), strict=True)
        self.assertEqual(list(found), wanted)
        self.assertLess(len(wanted), 25)

    def test_thresholds(self):
        mined = bitext.Mined(
            np.array([3.0, 2.5, 2.5, 2.0, 1.0]), np.arange(5), np.arange(5)
        )
        gold = {(0, 0), (2, 2), (3, 3), (7, 9)}
        # 1, 3 (2 and 3 share a score), 4 or 5 pairs: of 1, 2, 3, 3 right ones
        # F1 is 2 / 5, 4 / 7, 6 / 8, 6 / 9.
        self.assertEqual(
            bitext.judge(mined, gold),
            {'threshold': 1.5, 'precision': 3 / 4, 'recall': 3 / 4,
             'f1': 3 / 4},
        )  # fmt: skip
        self.assertEqual(
            bitext.judge(mined, gold, 2.5),
            {'threshold': 2.5, 'precision': 2 / 3, 'recall': 2 / 4,
             'f1': 4 / 7},
        )  # fmt: skip
        self.assertEqual(
            bitext.judge(mined, gold, 4.0),
            {'threshold': 4.0, 'precision': 0.0, 'recall': 0.0, 'f1': 0.0},
        )
        # All of them: the last has no score below it.
        gold = {(i, i) for i in range(5)}
        self.assertEqual(bitext.judge(mined, gold)['threshold'], 1.0)
        self.assertEqual(bitext.judge(mined, gold)['f1'], 1.0)
        self.assertEqual(bitext.judge(mined, {(9, 9)})['f1'], 0.0)


if __name__ == '__main__':
    absltest.main()
