"""Whole words: what parts them, and how they are learned."""

import numpy as np
from absl.testing import absltest

from infoword_tf.text import wholewords
from tests.near import same
from tests.text.learned import SPECIALS, small

LEARNED = ('b a c', 'a <unk> [MASK] B', 'c\u00e9 a b')


class WholeWordsTest(absltest.TestCase):
    def test_white_space_is_that_of_python(self):
        """All of it and nothing else parts words, bytes of any number."""
        every = [chr(i) for i in range(0x11000) if not 0xD800 <= i < 0xE000]
        texts = [f'the{c}the' for c in every]
        _, starts, ends = small('words').tokenize_with_offsets(texts)
        size = np.array([len(c.encode()) for c in every])
        parted = np.array([c.isspace() for c in every])
        same(starts.row_lengths(), 1 + parted)
        same(starts[:, -1:].values > 0, parted)
        same(starts.values[starts.values > 0], 3 + size[parted])
        same(ends[:, :1].values, np.where(parted, 3, 6 + size))

    def test_by_count_then_by_characters(self):
        actual = wholewords.learn(LEARNED)
        self.assertEqual(actual, [*SPECIALS, 'a', 'b', 'B', 'c', 'c\u00e9'])
        self.assertEqual(wholewords.learn(LEARNED, 7), actual[:7])
        self.assertEqual(
            wholewords.learn(LEARNED, lower_case=True),
            [*SPECIALS, 'a', 'b', '[mask]', 'c', 'c\u00e9'],
        )
