"""Windows over contexts, against BERT's loop in plain Python."""

import collections
import types

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.inference import context_windows
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.template import Template

Span = collections.namedtuple('Span', ['start', 'length'])
SIZES = [0, 1, 9, 10, 11, 25, 40, 41]


def plainly(size, room, stride):
    """First piece and length of each window (run_squad.py)."""
    actual, begin = [], 0
    while begin < size:
        length = min(size - begin, room)
        actual.append(Span(begin, length))
        if begin + length == size:
            break
        begin += min(length, stride)
    return actual


class WindowsTest(parameterized.TestCase):
    @parameterized.parameters(1, 3, 8, 10, 30)
    def test_against_a_loop(self, stride):
        from official.nlp.data import squad_lib

        rooms = [10, 9, 10, 10, 10, 7, 10, 11]
        sizes = tf.constant(SIZES, tf.int64)
        actual = context_windows.windows(
            sizes, tf.constant(rooms, tf.int64), stride
        )
        most = context_windows.most_context(actual, sizes).numpy().tolist()
        expected, best = [], []
        for i, (size, room) in enumerate(zip(SIZES, rooms, strict=True)):
            spans = plainly(size, room, stride)
            expected += [(i, *span) for span in spans]
            for number, (begin, length) in enumerate(spans):
                best += [
                    squad_lib._check_is_max_context(spans, number, token)
                    for token in range(begin, begin + length)
                ]
        self.assertEqual(
            list(zip(*(x.numpy().tolist() for x in actual), strict=True)),
            expected,
        )
        self.assertEqual(most, best)
        # Each piece is read best in one window.
        self.assertEqual(sum(most), sum(SIZES))

    def test_no_contexts(self):
        none = tf.zeros([0], tf.int64)
        actual = context_windows.windows(none, none, 3)
        self.assertEqual(actual.contexts.shape, [0])
        self.assertEqual(context_windows.most_context(actual, none).shape, [0])

    @parameterized.parameters((384, 64), (40, 18), (5, 1))
    def test_half_a_row_is_the_context_s(self, max_length, expected):
        self.assertEqual(
            context_windows.question_limit(max_length, 3, 64), expected
        )

    @parameterized.parameters(
        ('bert', [2, 7, 8, 3, 9, 3], 4, 4),
        ('roberta', [2, 7, 8, 3, 3, 9, 3], 5, 5),
        ('end', [7, 8, 3, 9, 3], 3, 3),
        ('xlnet', [9, 3, 7, 8, 3, 2], 2, 0),
    )
    def test_layouts(self, name, expected, second, context):
        tokens = types.SimpleNamespace(cls_id=2, sep_id=3, mask_id=4)
        rows, seconds, contexts = context_windows.add_questions(
            tf.ragged.constant([[7, 8]] * 2, tf.int32),
            tf.ragged.constant([[9], []], tf.int32),
            Template(tokens, LAYOUTS[name]),
        )
        self.assertEqual(rows[0].numpy().tolist(), expected)
        self.assertEqual(rows[1].numpy().tolist(),
                         [i for i in expected if i != 9])  # fmt: skip
        self.assertEqual(int(seconds[0]), second)
        self.assertEqual(contexts.numpy().tolist(), [context] * 2)
