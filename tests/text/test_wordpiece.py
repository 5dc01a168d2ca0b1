import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.text import wordpiece
from tests.text.learned import SPECIALS, words_of

UNCASED = [
    *SPECIALS, 'want', '##want', '##ed', 'wa', 'un', 'runn', '##ing', ',',
    'a', 'b', 'cafe', '中', '人', 'mask', '[', ']', '.', '(', ')', 'ab',
]  # fmt: skip
CASED = [
    *SPECIALS, 'UN', '##want', '##éd', ',', 'runn', '##ing', 'Café', 'cafe',
]  # fmt: skip


def ids_of(tokenizer, text):
    return tokenizer.tokenize([text]).to_list()[0]


class TokenizeTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.uncased = wordpiece.WordPieceTokenizer(UNCASED)
        cls.cased = wordpiece.WordPieceTokenizer(CASED, lower_case=False)

    @parameterized.parameters(
        ('UNwant\u00e9d,running', [9, 6, 7, 12, 10, 11]),
        (' \tUNwant\u00e9d , \n running ', [9, 6, 7, 12, 10, 11]),
        ('unwanted running', [9, 6, 7, 10, 11]),
        ('unwantedX running', [1, 10, 11]),
        ('a b ab ba', [13, 14, 24, 1]),
        ('CAFÉ cafe\u0301', [15, 15]),
        ('a中人b', [13, 16, 17, 14]),
        ('a' * 101, [1]),
        ('a\u00b4b', [1]),  # the accent is no mark, and stays
        ('', []),
        (' \u200b ', []),
    )
    def test_uncased(self, text, ids):
        self.assertEqual(ids_of(self.uncased, text), ids)

    @parameterized.parameters(
        ('UNwant\u00e9d,running', [5, 6, 7, 8, 9, 10]),
        ('unwant\u00e9d running', [1, 9, 10]),
        ('Caf\u00e9 cafe CAFE', [11, 12, 1]),
    )
    def test_cased(self, text, ids):
        self.assertEqual(ids_of(self.cased, text), ids)

    def test_the_text_of_a_special_piece_is_text(self):
        self.assertEqual(ids_of(self.uncased, '[MASK] a'), [19, 18, 20, 13])
        self.assertEqual(
            ids_of(self.uncased, '[SEP] [CLS] [PAD]'),
            [19, 1, 20, 19, 1, 20, 19, 1, 20],
        )

    def test_back_to_text(self):
        for text, expected in (
            ('unwanted running', 'unwanted running'),
            ('Café, a', 'cafe , a'),
            ('', ''),
        ):
            ids = ids_of(self.uncased, text)
            self.assertEqual(self.uncased.detokenize(ids), expected)
        names = self.uncased.vocabulary
        goes_on = next(i for i, x in enumerate(names) if x.startswith('##'))
        self.assertEqual(self.uncased.detokenize([goes_on]), names[goes_on][2:])
        specials = self.uncased.specials
        self.assertEqual(
            self.uncased.detokenize([specials.cls_id, 13, specials.sep_id]), 'a'
        )

    def test_batches_are_ragged_int32(self):
        ragged = self.uncased.tokenize(['a b', '', 'unwanted'])
        self.assertEqual(ragged.dtype, tf.int32)
        self.assertEqual(ragged.to_list(), [[13, 14], [], [9, 6, 7]])

    def test_ids_of_specials_are_read_from_the_vocabulary(self):
        tokenizer = wordpiece.WordPieceTokenizer(
            ['a', '[MASK]', '[SEP]', 'b', '[UNK]', '[CLS]', '[PAD]']
        )
        self.assertEqual(tokenizer.specials[:4], (5, 2, 1, 7))
        self.assertEqual((tokenizer.pad_id, tokenizer.unk_id), (6, 4))
        self.assertLen(tokenizer, 7)
        self.assertEqual(ids_of(tokenizer, 'b a c'), [3, 0, 4])

    def test_vocabulary_is_checked(self):
        with self.assertRaisesRegex(ValueError, r'lacks \[UNK\]'):
            wordpiece.WordPieceTokenizer(
                ['[PAD]', '[CLS]', '[SEP]', '[MASK]', 'a']
            )


class OffsetsTest(absltest.TestCase):
    def test_bytes_of_the_original(self):
        tokenizer = wordpiece.WordPieceTokenizer(UNCASED)
        ids, starts, ends = tokenizer.tokenize_with_offsets(
            ['Café a', 'UNwantéd,b', '中a', 'cafe\u0301 b']
        )
        self.assertEqual(
            ids.to_list(), [[15, 13], [9, 6, 7, 12, 14], [16, 13], [15, 14]]
        )
        self.assertEqual(
            starts.to_list(), [[0, 6], [0, 2, 6, 9, 10], [0, 3], [0, 7]]
        )
        self.assertEqual(
            [row[0] for row in ends.to_list()], [5, 2, 3, 4]
        )
        self.assertEqual(ends.to_list()[1], [2, 6, 9, 10, 11])


class PiecesTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = wordpiece.WordPieceTokenizer(UNCASED)

    def test_fields(self):
        actual = self.tokenizer.tokenize_flat([b'unwanted, a.', b'', b'(b)'])
        np.testing.assert_array_equal(
            actual.ids, [9, 6, 7, 12, 13, 21, 22, 14, 23]
        )
        np.testing.assert_array_equal(
            actual.word_starts, [1, 0, 0, 0, 1, 0, 1, 0, 0]
        )
        np.testing.assert_array_equal(actual.row_splits, [0, 6, 6, 9])
        self.assertEqual(actual.ids.dtype, np.int32)
        self.assertEqual(actual.word_starts.dtype, bool)

    @parameterized.parameters(
        # Punctuation stays with its word.
        (('unwanted, (running).',), ['un ##want ##ed ,', '( runn ##ing ) .']),
        (('a . b',), ['a', '.', 'b']),
        # A new string is a new word, with empty ones between or around.
        (('a', 'b'), ['a', 'b']),
        (('', 'a', '', '', 'b a', ''), ['a', 'b', 'a']),
        # Accents, composed or not, part nothing.
        (('Café cafe\u0301, b',), ['cafe', 'cafe ,', 'b']),
        # Characters that normalisation deletes part no word, and hide no
        # space beside them.
        (('a\u200bb a',), ['ab', 'a']),
        (('a,\u200bb a',), ['a , b', 'a']),
        (('a \u200bb',), ['a', 'b']),
        (('a\u200b b',), ['a', 'b']),
        (('\u200b a', '\u200b', 'b'), ['a', 'b']),
        # Each ideograph is a piece, but no word of its own.
        (('a中人 人b',), ['a 中 人', '人 b']),
    )
    def test_word_starts(self, strings, words):
        self.assertEqual(words_of(self.tokenizer, *strings), words)


if __name__ == '__main__':
    absltest.main()
