"""Whole words: what they are, and their bytes."""

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.data import store
from infoword_tf.data.documents import Document
from infoword_tf.text import wholewords
from infoword_tf.text.wholewords import WholeWords
from tests.text.learned import TEXTS, learned

SPECIALS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
WORDS = [*SPECIALS, 'the', 'The', '.', 'caf\u00e9', '@-@', 'a,']


def read(tokenizer, *strings):
    """The words of each string, [UNK] for what is not known."""
    return [
        [tokenizer.vocabulary[i] for i in row]
        for row in tokenizer.tokenize(list(strings)).to_list()
    ]


class TokenizeTest(parameterized.TestCase):
    @parameterized.parameters(
        ('the The THE', 'the The [UNK]'),
        ('the. the .', '[UNK] the .'),
        ('caf\u00e9 cafe\u0301 cafe', 'caf\u00e9 [UNK] [UNK]'),
        ('a, @-@ a ,', 'a, @-@ [UNK] [UNK]'),
        (' \tthe \n .\u3000the\u00a0', 'the . the'),
        ('<unk> the <unk>', '[UNK] the [UNK]'),
        ('[PAD] [CLS] [SEP] [MASK] [UNK]', ' '.join(['[UNK]'] * 5)),
        ('', ''),
        (' \n', ''),
        (b'\xff the', '[UNK] the'),
    )
    def test_words(self, text, expected):
        (actual,) = read(WholeWords(WORDS), text)
        self.assertEqual(actual, expected.split())

    def test_case_is_folded_where_it_is_wanted(self):
        words = [*SPECIALS, 'the', '\u00e9mil', '\u03c3\u03b1\u03c2']
        tokenizer = WholeWords(words, lower_case=True)
        (actual,) = read(tokenizer, 'THE \u00c9mil \u03a3\u0391\u03a3')
        self.assertEqual(actual, words[5:])
        self.assertTrue(tokenizer.lower_case)
        self.assertFalse(WholeWords(words).lower_case)

    def test_white_space_is_that_of_python(self):
        """All of it and nothing else parts words, bytes of any number."""
        every = [chr(i) for i in range(0x11000) if not 0xD800 <= i < 0xE000]
        texts = [f'the{c}the' for c in every]
        _, starts, ends = WholeWords(WORDS).tokenize_with_offsets(texts)
        size = np.array([len(c.encode()) for c in every])
        parted = np.array([c.isspace() for c in every])
        np.testing.assert_array_equal(starts.row_lengths(), 1 + parted)
        np.testing.assert_array_equal(starts[:, -1:].values > 0, parted)
        np.testing.assert_array_equal(
            starts.values[starts.values > 0], 3 + size[parted]
        )
        np.testing.assert_array_equal(
            ends[:, :1].values, np.where(parted, 3, 6 + size)
        )

    def test_in_a_graph(self):
        tokenizer = WholeWords(WORDS)
        graph = tf.function(
            tokenizer.tokenize_with_offsets,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        # Bytes of the text as it was given.
        ids, starts, ends = graph([' the  caf\u00e9 x\n', '', 'The'])
        self.assertEqual(ids.to_list(), [[5, 8, 1], [], [6]])
        self.assertEqual(ids.dtype, tf.int32)
        self.assertEqual(starts.to_list(), [[1, 6, 12], [], [0]])
        self.assertEqual(ends.to_list(), [[4, 11, 13], [], [3]])
        for part in graph(tf.zeros([0], tf.string)):
            self.assertEqual(part.to_list(), [])

    def test_specials(self):
        tokenizer = WholeWords(WORDS)
        self.assertEqual(tokenizer.specials[:4], (2, 3, 4, len(WORDS)))
        self.assertEqual(tokenizer.control_ids, (0, 2, 3, 4))
        self.assertEqual((tokenizer.pad_id, tokenizer.unk_id), (0, 1))

    def test_a_file_without_special_pieces(self):
        path = pathlib.Path(self.create_tempdir().full_path) / 'words.txt'
        path.write_text('[PAD]\nthe\n')
        with self.assertRaisesRegex(ValueError, r'words.txt: .* lacks \[UNK\]'):
            WholeWords.read(path)


class PiecesTest(parameterized.TestCase):
    def test_real_text(self):
        """Every word is a piece of its own, and known: nothing is lost."""
        tokenizer = learned('words', lower_case=False)
        actual = tokenizer.tokenize_flat([text.encode() for text in TEXTS])
        self.assertTrue(actual.word_starts.all())
        read = [tokenizer.vocabulary[i] for i in actual.ids]
        self.assertEqual(' '.join(read), ' '.join(TEXTS))

    def test_in_a_store(self):
        """A line end is one token, and `<unk>` a type like any other."""
        stored = store.write_store(
            pathlib.Path(self.create_tempdir().full_path) / 'store',
            [
                Document(('The <unk> .', 'the'), ''),
                Document((), ''),
                Document(('x',), ''),
            ],
            WholeWords(WORDS),
            progress=False,
        )
        self.assertEqual(
            [WORDS[i] for i in stored.ids],
            ['The', '[UNK]', '.', 'the', '[SEP]', '[SEP]', '[UNK]', '[SEP]'],
        )
        self.assertEqual(stored.flags.tolist(), [3, 1, 1, 3, 5, 5, 3, 5])
        self.assertEqual(stored.counts[1], 2)


class LearnTest(absltest.TestCase):
    TEXTS = ('b a c', 'a <unk> [MASK] B', 'c\u00e9 a b')

    def test_by_count_then_by_characters(self):
        actual = wholewords.learn(self.TEXTS)
        self.assertEqual(actual, [*SPECIALS, 'a', 'b', 'B', 'c', 'c\u00e9'])
        self.assertEqual(wholewords.learn(self.TEXTS, 7), actual[:7])
        self.assertEqual(
            wholewords.learn(self.TEXTS, lower_case=True),
            [*SPECIALS, 'a', 'b', '[mask]', 'c', 'c\u00e9'],
        )

    def test_the_unknown_word_is_none(self):
        with self.assertRaisesRegex(ValueError, 'holds no text'):
            wholewords.learn(['<unk>'], lower_case=True)


if __name__ == '__main__':
    absltest.main()
