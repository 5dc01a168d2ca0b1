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

    def test_other_complaints(self):
        with refused('not_a_word', 'two words'):
            WordVectors(['two words'], np.ones((1, 2))).write(self.path)
        self.assertFalse(self.path.exists())
