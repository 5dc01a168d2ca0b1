"""The text format of word2vec, out and in."""

import pathlib

import numpy as np
from absl.testing import parameterized

from infoword_tf.inference import wordvectors
from infoword_tf.inference.wordvectors import WordVectors
from tests.refused import refused


class WordVectorsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / 'v.txt'

    def test_out_and_in(self):
        random = np.random.default_rng(0)
        vectors = random.standard_normal((3, 4)).astype(np.float32)
        vectors[0] *= 1e-30
        words = WordVectors(['the', 'größe', 'x.y'], vectors)
        words.write(self.path)
        self.assertStartsWith(self.path.read_text(), '3 4\nthe ')
        actual = wordvectors.read(self.path)
        self.assertEqual(actual.words, words.words)
        np.testing.assert_array_equal(actual.vectors, vectors)

    def test_as_word2vec_writes_it(self):
        """A space at the end of each line; a word twice."""
        self.path.write_text('3 2\n</s> 1 2 \ncat 3 4 \ncat 5 6 \n')
        actual = wordvectors.read(self.path)
        self.assertEqual(actual.words, ['</s>', 'cat'])
        np.testing.assert_array_equal(actual.vectors, [[1, 2], [3, 4]])

    @parameterized.parameters(
        ('', 'header', 1),
        ('cat 1 2\n', 'header', 1, 'cat 1 2'),
        ('2 2\ncat 1 2\ndog 1\n', 'line', 3, 2, "'dog"),
        ('1 2\ncat 1 x\n', 'line', 2, 2),
        ('1 2\ncat 1 nan\n', 'not_finite', 2),
        ('2 2\ncat 1 2\n', 'count', 2, '2 words', 'there are 1'),
        ('1 1\ncat 1\ndog 2\n', 'count', 3, '1 words', 'more'),
    )
    def test_malformed(self, text, id, line, *values):
        self.path.write_text(text)
        with refused(f'word_vectors_{id}', f'v.txt, line {line}', *values):
            wordvectors.read(self.path)

    def test_other_complaints(self):
        with self.assertRaises(FileNotFoundError):
            wordvectors.read(self.path)
        with refused('not_a_word', 'two words'):
            WordVectors(['two words'], np.ones((1, 2))).write(self.path)
        self.assertFalse(self.path.exists())
