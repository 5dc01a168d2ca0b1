"""Packed examples by hand; each equals the example alone."""

import numpy as np
from absl.testing import absltest

from infoword_tf.views.examples import Labelled, by_example, examples
from tests import zoo
from tests.refused import refused
from tests.views.texts import assert_view, same
from tests.zoo import CLS, MASK, SEP, UNK


def three():
    """T = 8: examples 0 and 2 in one sequence, example 1 alone."""
    ids = np.full((3, 1, 5), -7, np.int32)  # beyond `lengths` is anything
    segments = np.full((3, 1, 5), 9, np.int32)
    for i, (text, kinds) in enumerate((
        ([CLS, 10, SEP], [0, 0, 0]),
        ([CLS, 20, 21, 22, SEP], [0, 0, 1, 1, 1]),
        ([CLS, 30, 31, SEP], [0, 0, 0, 1]),
    )):  # fmt: skip
        ids[i, 0, : len(text)], segments[i, 0, : len(text)] = text, kinds
    return Labelled(
        ids, segments, lengths=np.int32([[3], [5], [4]]),
        places=np.int32([[2], [4], [3]]), numbers=np.int32([7, 9, 5]),
        targets={
            'label': np.int32([1, 0, 2]), 'score': np.float32([0.5, -1, 3]),
            'span': np.int32([[1, 1], [2, 3], [2, 2]]),
        },
        candidates={'span': np.int32([[1, 2], [1, 4], [2, 3]])},
        slots=np.int32([[0, 2], [1, -1]]), width=8,
    )  # fmt: skip


def make(text, **rows):
    return examples(text, None, rows, zoo.SPECIALS)


class WrittenOutTest(absltest.TestCase):
    def test_tokens(self):
        text = three()
        assert_view(
            make(text, label='example'),
            ids=[[CLS, 10, SEP, CLS, 30, 31, SEP, SEP],
                 [CLS, 20, 21, 22, SEP, SEP, SEP, SEP]],
            positions=[[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 0, 0, 0]],
            segment_ids=[[0, 0, 0, 0, 0, 0, 1, 0], [0, 0, 1, 1, 1, 0, 0, 0]],
            block_ids=[[0, 0, 0, 1, 1, 1, 1, 2], [0, 0, 0, 0, 0, 2, 2, 2]],
            sequences=[[7, 5], [9, -1]], padding=[1, 3],
        )  # fmt: skip
        same(text.tokens, [7, 5])
        self.assertEqual(text.tokens.dtype, np.int32)

    def test_what_is_said(self):
        view = make(three(), label='example', score='example')
        for row in ('label', 'score'):
            same(view.places[row], [[2, 6], [4, 0]])
            same(view.weights[row], [[1, 1], [1, 0]])
        real = view.weights['label'] > 0
        self.assertEqual(view.targets['label'][real].tolist(), [1, 2, 0])
        self.assertEqual(view.targets['label'].dtype, np.int32)
        self.assertEqual(view.targets['score'][real].tolist(), [0.5, 3, -1])
        self.assertEqual(view.targets['score'].dtype, np.float32)
        self.assertEqual(view.candidates, {})

    def test_several_labels_are_known_together(self):
        """All labels are known, or none: -1 is unknown."""
        text = three()
        targets = np.int32([[1, 0, 1], [-1, -1, -1], [0, 0, 0]])
        text.targets['label'] = targets
        view = make(text, label='example')
        weights = view.weights['label']
        self.assertEqual(weights.sum(), 2)
        numbers = [list(text.numbers).index(n) for n in
                   view.sequences[weights > 0]]  # fmt: skip
        self.assertCountEqual(numbers, [0, 2])
        same(view.targets['label'][weights > 0], targets[numbers])
        self.assertEqual(view.targets['label'].min(), 0)

    def test_places_of_the_text(self):
        """Targets move with their text; candidates are of its slot."""
        view = make(three(), span='text')
        self.assertEqual(view.places, {})
        same(view.targets['span'], [[[1, 1], [5, 5]], [[2, 3], [0, 0]]])
        same(
            view.candidates['span'],
            [[-1, 0, -1, -1, -1, 1, -1, -1], [-1, 0, 0, 0, -1, -1, -1, -1]],
        )

    def test_a_context_that_comes_first(self):
        """Padding of a sequence is no candidate."""
        begins = np.array([[0, 2], [0, 3], [0, 2]], np.int32)
        view = make(three()._replace(candidates={'span': begins}), span='text')
        same(
            view.candidates['span'],
            [[0, 0, -1, 1, 1, -1, -1, -1], [0, 0, 0, -1, -1, -1, -1, -1]],
        )

    def test_what_follows(self):
        """Every token of a text but its first is a b, of that text alone;
        what stands between texts and behind them is of the loss alone.
        """
        text = three()
        for i, ids in enumerate((
            [CLS, 10, MASK], [CLS, 20, SEP, 22, MASK], [CLS, 30, UNK, MASK]
        )):  # fmt: skip
            text.ids[i, 0, : len(ids)] = ids
        nobody = text._replace(targets={'label': np.full(3, -1, np.int32)})
        view = make(nobody, label='example', gpt='following')
        same(
            view.ids, [[CLS, 10, MASK, CLS, 30, UNK, MASK, SEP],
                       [CLS, 20, SEP, 22, MASK, SEP, SEP, SEP]])  # fmt: skip
        for actual, expected in (
            (view.targets['gpt'], [[10, MASK, 0, 30, UNK, MASK, 0, 0],
                                   [20, SEP, 22, MASK, 0, 0, 0, 0]]),
            (view.weights['gpt'], [[1, 1, 0, 1, 1, 1, 0, 0],
                                   [1, 1, 1, 1, 0, 0, 0, 0]]),
            (view.measured['gpt'], [[1, 0, 0, 1, 1, 0, 0, 0],
                                    [1, 0, 1, 0, 0, 0, 0, 0]]),
        ):  # fmt: skip
            has_next = view.weights['gpt'] > 0
            same(np.where(has_next, actual, 0), expected)
        self.assertEqual(view.targets['gpt'].dtype, np.int32)
        self.assertEqual(list(view.places), ['label'])
        self.assertEqual(list(view.measured), ['gpt'])
        self.assertFalse(view.weights['label'].any())  # nobody said it

    def test_two_texts_of_an_example(self):
        """Each is a block; the example has one target, and two places."""
        text = Labelled(
            ids=np.arange(12, dtype=np.int32).reshape(2, 2, 3),
            segments=np.zeros((2, 2, 3), np.int32),
            lengths=np.int32([[2, 1], [1, 3]]),
            places=np.int32([[1, 0], [0, 2]]),
            numbers=np.int32([0, 1]), targets={'label': np.int32([4, 5])},
            candidates={}, slots=np.int32([[1, 0]]), width=8,
        )  # fmt: skip
        view = make(text, label='example')
        assert_view(
            view, 'label', ids=[[6, 9, 10, 11, 0, 1, 3, SEP]],
            block_ids=[[0, 1, 1, 1, 2, 2, 3, 4]],
            positions=[[0, 0, 1, 2, 0, 1, 0, 0]], places=[[0, 3, 5, 6]],
            targets=[[5, 4]], sequences=[[1, 0]],
        )  # fmt: skip

    def test_by_example(self):
        view = make(three()._replace(numbers=np.array([2, 0, 1], np.int32)),
                    label='example')  # fmt: skip
        same(view.sequences, [[2, 1], [0, -1]])
        values = np.array([[[20.0, 21], [10, 11]], [[0, 1], [np.nan, 99]]])
        same(by_example(values, view), [[0, 1], [10, 11], [20, 21]])
        same(by_example(view.targets['label'], view), [0, 2, 1])

    def test_a_row_that_they_are_not_labelled_for(self):
        text = three()._replace(targets={'label': np.zeros(3, np.int32)})
        with refused('examples_of_other_rows', 'score', 'label'):
            make(text, label='example', score='example')
