"""Bytes of pieces, widened to whole characters."""

import unicodedata

import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.text import characters, normalizers, wordpiece
from tests.near import same

VOCABULARY = [
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]',
    'cafe', 'a', 'b', '##b', '.', '中', 'क', '##ा',
]  # fmt: skip


def widened(texts, spans):
    """By text, its pieces after widening spans of bytes."""
    raw = [text.encode() for text in texts]
    starts, ends = (
        tf.ragged.constant(
            [[span[i] for span in row] for row in spans], tf.int64
        )
        for i in (0, 1)
    )
    starts, ends = characters.widened(tf.constant(raw), starts, ends)
    return [
        [row[a:b] for a, b in zip(*places, strict=True)]
        for row, *places in zip(
            raw, starts.to_list(), ends.to_list(), strict=True
        )
    ]


class WidenedTest(parameterized.TestCase):
    def test_marks(self):
        bounds = characters.marks()
        self.assertEqual(len(bounds) % 2, 0)
        codes = [0x2FF, 0x300, 0x36F, 0x370, 0xFE0F, ord('a')]
        inside = tf.searchsorted(bounds, codes, 'right')
        same(inside % 2, [0, 1, 1, 0, 1, 0])
        self.assertEqual(unicodedata.category(chr(bounds[0])), 'Mn')

    def test_what_is_whole_stays(self):
        spans = [[(0, 3), (4, 5)], [], [(0, 1)]]
        actual = widened(['abc d', '', 'x'], spans)
        self.assertEqual(actual, [[b'abc', b'd'], [], [b'x']])

    def test_accents_belong_to_what_they_follow(self):
        text = 'cafe\u0301\u0327 a'
        actual = widened([text, text], [[(0, 4), (9, 10)], [(0, 4)]])
        whole = 'cafe\u0301\u0327'.encode()
        self.assertEqual(actual, [[whole, b'a'], [whole]])

    def test_at_the_end_of_a_text(self):
        """The marks that the next text begins with are not this one's."""
        actual = widened(['a', '\u0301b'], [[(0, 1)], [(2, 3)]])
        self.assertEqual(actual, [[b'a'], [b'b']])

    def test_bytes_inside_a_character(self):
        text = '中a\U0001f600'
        actual = widened([text], [[(1, 2), (4, 5), (3, 4)]])
        expected = ['中'.encode(), '\U0001f600'.encode(), b'a']
        self.assertEqual(actual, [expected])

    def test_what_has_no_bytes_stays(self):
        self.assertEqual(widened(['a\u0301'], [[(1, 1)]]), [[b'']])

    @parameterized.parameters(
        ('cafe\u0301 a.', ['cafe\u0301', 'a', '.']),
        ('ab\u0308.', ['a', 'b\u0308', '.']),
        ('a\u200b b\ufe0f', ['a', 'b\ufe0f']),
        ('का', ['का', 'ा']),
    )
    def test_pieces_of_a_tokenizer(self, text, expected):
        tokenizer = wordpiece.WordPieceTokenizer(VOCABULARY)
        texts = tf.constant([text.encode()])
        _, *offsets = tokenizer.tokenize_with_offsets(texts)
        starts, ends = characters.widened(texts, *offsets)
        actual = [
            text.encode()[a:b].decode()
            for a, b in zip(starts.values, ends.values, strict=True)
        ]
        self.assertEqual(actual, expected)


class ReplacedTest(absltest.TestCase):
    def test_what_replaces_names_no_group(self):
        actual = normalizers.Replaced('(a)', r'\1')(tf.constant(['bab']))
        self.assertEqual(actual.numpy().tolist(), [rb'b\1b'])

    def test_bytes_of_each_character(self):
        """A replacement has the last character of a match, all others theirs.
        """
        replaced = normalizers.Replaced('a中+', 'xy')
        texts = ['cda中中e', '', 'a中']
        actual = replaced.characters(tf.constant([t.encode() for t in texts]))
        codes = ''.join(map(chr, actual.codes.numpy().tolist()))
        self.assertEqual(codes, 'cdxyexy')
        same(actual.splits, [0, 5, 5, 7])
        # c d a 中 中 e: bytes 0, 1, 2, 3 to 5, 6 to 8, 9.
        same(actual.starts, [0, 1, 6, 6, 9, 1, 1])
        same(actual.ends, [1, 2, 9, 9, 10, 4, 4])
