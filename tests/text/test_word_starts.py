"""Where words begin in texts of several scripts."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.text import words


def parted(*texts):
    """Words of texts whose characters are the tokens."""
    ragged = tf.strings.unicode_split_with_offsets(texts, 'UTF-8')
    solid = tf.ragged.boolean_mask(
        ragged[1], tf.strings.strip(ragged[0]) != tf.constant('')
    )
    starts = words.starts(tf.constant(texts), solid).numpy()
    places = solid.values.numpy()
    number = solid.value_rowids().numpy()
    actual = []
    for i, text in enumerate(texts):
        raw = text.encode()
        begins = places[(number == i) & starts].tolist()
        ends = [*begins[1:], len(raw)][: len(begins)]
        actual.append([
            raw[a:b].decode().strip() for a, b in zip(begins, ends, strict=True)
        ])
    return actual


class WordsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("Don't stop: U.S. $5!", "Don ' t stop : U . S . $ 5 !"),
        ('naïve cafe\u0301 x', 'naïve cafe\u0301 x'),
        ('\u6771\u4eac is 東京', '\u6771 \u4eac is 東 京'),
        ('カナ漢', 'カ ナ 漢'),
        ('ไทยab', 'ไ ท ย ab'),
        ('นี่ ab', 'นี่ ab'),
        ('नमस्ते दुनिया', 'नमस्ते दुनिया'),
        ('a\tb\u3000c\u00a0d', 'a b c d'),
        ('«да» — нет', '« да » — нет'),
    )
    def test_words_of_a_text(self, text, expected):
        self.assertEqual(parted(text), [expected.split()])

    def test_texts_do_not_touch(self):
        self.assertEqual(
            parted('ab', '', 'cd.', 'e'), [['ab'], [], ['cd', '.'], ['e']]
        )

    def test_every_code_point_has_a_kind(self):
        changes, kinds = words.kinds()
        self.assertEqual(changes[0], 0)
        self.assertTrue((np.diff(changes) > 0).all())
        self.assertEqual(set(kinds.tolist()), set(range(4)))
