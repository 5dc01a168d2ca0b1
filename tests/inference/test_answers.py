"""The best spans and answers, against loops in plain Python."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.inference import answers
from infoword_tf.inference.answers import NOWHERE, SURE
from infoword_tf.objectives.infonce import NEVER

W, T, S = 7, 13, 4


def windows(seed=0):
    random = np.random.default_rng(seed)
    first, last = random.standard_normal((2, W, T)).astype(np.float32)
    sizes = random.integers(1, T + 1, W).astype(np.int32)
    sizes[:2] = 1, T
    return first, last, random.random((W, T)) < 0.7, sizes


def same(test, actual, expected):
    """Spans of a window: (score, first, last), the best first."""
    for row, spans in enumerate(expected):
        spans = sorted(spans, key=lambda span: -span[0])
        scores = actual.scores[row].numpy()
        spans = spans[: len(scores)]
        np.testing.assert_allclose(
            scores[: len(spans)], [score for score, *_ in spans], rtol=1e-6
        )
        test.assertTrue((scores[len(spans) :] < NEVER / 2).all())
        for part, column in (('firsts', 1), ('lasts', 2)):
            test.assertEqual(
                getattr(actual, part)[row, : len(spans)].numpy().tolist(),
                [span[column] for span in spans],
            )


class SpansTest(parameterized.TestCase):
    @parameterized.product(longest=(1, 4, 30), count=(3, 200))
    def test_two_ends_that_are_added(self, longest, count):
        first, last, most, sizes = windows()
        actual = answers.spans(first, last, most, sizes, longest, count)
        expected = [
            [
                (first[row, i] + last[row, j], i, j)
                for i, j in itertools.product(range(sizes[row]), repeat=2)
                if most[row, i] and 0 <= j - i < longest
            ]
            for row in range(W)
        ]
        same(self, actual, expected)
        self.assertEqual(actual.scores.shape, [W, count])

    @parameterized.product(longest=(1, 4, 30), count=(3, 200))
    def test_last_ones_after_first_ones(self, longest, count):
        _, _, most, sizes = windows()
        random = np.random.default_rng(1)
        starts = np.stack([
            np.resize(random.permutation(size), S) for size in sizes
        ]).astype(np.int32)  # fmt: skip
        first = random.standard_normal((W, S)).astype(np.float32)
        first[np.arange(S) >= sizes[:, None]] = NEVER
        last = random.standard_normal((W, T, S)).astype(np.float32)
        actual = answers.spans_after(
            starts, first, last, most, sizes, longest, count
        )
        expected = [
            [
                (first[row, k] + last[row, j, k], starts[row, k], j)
                for k in range(min(S, sizes[row]))
                for j in range(
                    starts[row, k], min(starts[row, k] + longest, sizes[row])
                )
                if most[row, starts[row, k]]
            ]
            for row in range(W)
        ]
        same(self, actual, expected)


class AnswersTest(absltest.TestCase):
    CONTEXTS = ['a cat, a café', 'a cat', '', 'x \U0001f600 y']

    def answers(self, spans, count=3):
        """Spans are (question, score, begin, end), one window each."""
        questions, *rest = map(np.array, zip(*spans, strict=True))
        scores, begins, ends = (x[:, None] for x in rest)
        actual = answers.answers(
            tf.constant(self.CONTEXTS), tf.constant(questions, tf.int64),
            tf.constant(scores, tf.float32), tf.constant(begins, tf.int32),
            tf.constant(ends, tf.int32), count,
        )  # fmt: skip
        return actual, [
            [text.decode() for text in row] for row in actual.texts.numpy()
        ]

    def test_the_best_of_equal_texts(self):
        spans = [
            (0, 1.0, 0, 1), (0, 2.0, 7, 8), (0, 3.0, 9, 14), (0, 0.0, 2, 5),
            (0, -1.0, 2, 6), (1, 5.0, 0, 1), (3, 1.0, 2, 6), (0, NEVER, 0, 3),
            (1, 6.0, 3, 3),
        ]  # fmt: skip
        actual, texts = self.answers(spans)
        self.assertEqual(
            texts,
            [['café', 'a', 'cat'], ['a', '', ''], [''] * 3,
             ['\U0001f600', '', '']],
        )  # fmt: skip
        np.testing.assert_allclose(
            actual.scores,
            [[3, 2, 0], [5, NEVER, NEVER], [NEVER] * 3, [1, NEVER, NEVER]],
        )
        self.assertEqual(
            actual.begins.numpy().tolist(),
            [[9, 7, 2], [0, NOWHERE, NOWHERE], [NOWHERE] * 3,
             [2, NOWHERE, NOWHERE]],
        )  # fmt: skip
        self.assertEqual(actual.ends[0].numpy().tolist(), [14, 8, 5])

    def test_of_equal_scores_the_first(self):
        _, texts = self.answers([(0, 1.0, 2, 5), (0, 1.0, 0, 1)], 2)
        self.assertEqual(texts[0], ['cat', 'a'])

    def test_many_spans_of_a_long_context(self):
        """Copies no megabyte for each of thousands."""
        context = 'ab ' * 300_000
        places = 3 * np.arange(3000, dtype=np.int32)[:, None]
        scores = np.arange(3000, dtype=np.float32)[:, None]
        actual = answers.answers(
            tf.constant([context]), tf.zeros(3000, tf.int64),
            *map(tf.constant, (scores, places, places + 5)),
        )  # fmt: skip
        self.assertEqual(actual.texts[0, :2].numpy().tolist(), [b'ab ab', b''])
        self.assertEqual(int(actual.begins[0, 0]), 3 * 2999)

    def test_no_answer_is_the_lowest_of_all_windows(self):
        actual = answers.lowest(
            tf.constant([3.0, 1.0, 5.0]), tf.constant([0, 0, 2], tf.int64), 3
        )
        np.testing.assert_allclose(actual, [1, SURE, 5])
