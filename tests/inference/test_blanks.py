"""Places of [MASK] in texts, and what of a text is near them."""

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.inference import blanks
from tests.text.learned import small

MASK = 4
TOKENS = [[5, MASK, 6, 7, MASK], [8, 9], [MASK, MASK, MASK]]
FAR = -(2**30)


class BlanksTest(parameterized.TestCase):
    def test_where_masks_are(self):
        masks = blanks.masks_of(tf.ragged.constant(TOKENS), MASK)
        self.assertEqual(masks.to_list(), [[1, 4], [], [0, 1, 2]])
        first = blanks.first_masks(masks, 2)
        self.assertEqual(first.dtype, tf.int32)
        self.assertEqual(first.numpy().tolist(), [[1, 4], [FAR, FAR], [0, 1]])

    @parameterized.parameters(
        (1, [[MASK], [8], [MASK]]),
        (3, [[5, MASK, MASK], [8, 9], [MASK] * 3]),  # 5 is before 6 and 7
        (4, [[5, MASK, 6, MASK], [8, 9], [MASK] * 3]),
        (9, TOKENS),
    )
    def test_what_is_near_stays(self, limit, expected):
        tokens = tf.ragged.constant(TOKENS)
        masks = tf.constant([[1, 4], [FAR, FAR], [0, 1]])
        actual = blanks.near_masks(tokens, masks, limit)
        self.assertEqual(actual.to_list(), expected)

    @parameterized.parameters(
        ('wordpiece', 'a [MASK]b[MASK]', 'a [MASK] b [MASK]'),
        ('sentencepiece', 'a [MASK]b[MASK]', '▁a [MASK] b [MASK]'),
        ('sentencepiece', '[MASK] b', '[MASK] ▁b'),
    )
    def test_texts_are_split_at_masks(self, kind, text, expected):
        tokenizer = small(kind)
        (ids,) = blanks.with_masks(tokenizer, tf.constant([text])).to_list()
        self.assertEqual(
            [tokenizer.vocabulary[i] for i in ids], expected.split()
        )
