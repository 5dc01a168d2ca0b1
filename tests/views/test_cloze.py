"""The draw `cloze` and the views `passage` and `sentence` of it."""

import numpy as np
from absl.testing import absltest

from infoword_tf.views import cloze
from tests import zoo
from tests.refused import refused
from tests.views.texts import assert_view, same

CLS, SEP = zoo.CLS, zoo.SEP


def make_documents(lengths_of_sentences, room):
    """Makes documents of tokens numbered from 10 on."""
    b = len(lengths_of_sentences)
    ids = np.zeros((b, room), np.int32)
    starts = np.zeros((b, room), bool)
    lengths = np.array([sum(row) for row in lengths_of_sentences], np.int32)
    for row, sizes in enumerate(lengths_of_sentences):
        ids[row, : lengths[row]] = 10 * (row + 1) + np.arange(lengths[row])
        starts[row, np.cumsum([0, *sizes[:-1]])] = True
    return cloze.Documents(ids, lengths, starts)


class ClozeTest(absltest.TestCase):
    def test_shares(self):
        """The first sentence half the time, else a random one; 1 in 10
        keeps it."""
        documents = make_documents([[3, 2, 4, 1]] * 20_000, 12)
        draw = cloze.cloze(documents, np.random.default_rng(0))
        begins = np.array([0, 3, 5, 9])
        number = np.searchsorted(begins, draw.starts)
        same(begins[number], draw.starts)
        same(draw.ends - draw.starts, np.array([3, 2, 4, 1])[number])
        shares = np.bincount(number, minlength=4) / len(number)
        np.testing.assert_allclose(shares, [1 / 2] + [1 / 6] * 3, atol=0.015)
        self.assertAlmostEqual(draw.complete.mean(), 0.1, delta=0.01)
        self.assertTrue(draw.usable.all())
        first = number == 0
        self.assertAlmostEqual(draw.complete[first].mean(), 0.1, delta=0.015)

    def test_one_sentence_is_no_use(self):
        documents = make_documents([[4], [2, 2]], 6)
        for seed in range(20):
            draw = cloze.cloze(documents, np.random.default_rng(seed))
            same(draw.usable, [False, True])
            self.assertEqual((draw.starts[0], draw.ends[0]), (0, 4))


def both(documents, draw):
    """Returns the passages and the sentences."""
    arguments = (documents, draw, {'ict': 'text'}, zoo.SPECIALS)
    return cloze.passage(*arguments), cloze.sentence(*arguments)


class ViewsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.documents = make_documents([[2, 3], [1, 1, 2], [4, 2], [4]], 6)
        self.draw = cloze.Cloze(
            np.array([2, 0, 0, 0], np.int32),
            np.array([5, 1, 4, 4], np.int32),
            np.array([False, True, False, False]),
            np.array([True, True, True, False]),
        )
        self.passage, self.sentence = both(self.documents, self.draw)

    def test_passages_written_out(self):
        view = self.passage
        assert_view(
            view, 'ict',
            ids=[[CLS, 10, 11, *[SEP] * 5],
                 [CLS, 20, 21, 22, 23, *[SEP] * 3],  # kept
                 [CLS, 34, 35, *[SEP] * 5],
                 [CLS, *[SEP] * 7]],
            # What is whole is asked for by nobody.
            weights=[[1], [0], [1], [0]], measured=[[1], [0], [1], [1]],
            padding=[4, 2, 4, 6],
        )  # fmt: skip
        same((view.block_ids == 0).sum(axis=1), [4, 6, 4, 2])
        self.assertEmpty(view.places)

    def test_sentences_written_out(self):
        """T / 4 of 8 tokens has room for nothing: one token stays."""
        assert_view(
            self.sentence, 'ict',
            ids=[[CLS, number, SEP] for number in (12, 20, 30, 40)],
            weights=[[1], [1], [1], [0]], cut_sentences=[1, 0, 1, 0],
            padding=[0] * 4,
        )  # fmt: skip

    def test_longer_sentences(self):
        documents = make_documents([[9, 5], [3, 4]], 30)  # T / 4 - 2 = 6
        draw = cloze.Cloze(
            np.array([0, 3], np.int32), np.array([9, 7], np.int32),
            np.zeros(2, bool), np.ones(2, bool),
        )  # fmt: skip
        _, view = both(documents, draw)
        same(view.ids, [[CLS, *range(10, 16), SEP],
                        [CLS, *range(23, 27), SEP, SEP, SEP]])  # fmt: skip
        same(view.block_ids[1], [0] * 6 + [1, 1])

    def test_equal_texts_have_equal_numbers(self):
        ids = np.array([[7, 8, 9, 5], [7, 8, 6, 6], [7, 8, 9, 5]], np.int32)
        documents = make_documents([[2, 2]] * 3, 4)._replace(ids=ids)
        draw = cloze.Cloze(
            np.zeros(3, np.int32), np.full(3, 2, np.int32),
            np.zeros(3, bool), np.ones(3, bool),
        )  # fmt: skip
        bodies, asked = (
            x.targets['ict'][:, 0] for x in both(documents, draw)
        )
        self.assertEqual(bodies[0], bodies[2])
        self.assertNotEqual(bodies[0], bodies[1])
        self.assertLen(set(asked.tolist()), 1)

    def test_shared_rows_written_out(self):
        """Passages of 4, 6, 4 and 2 tokens in two sequences of 8."""
        view, sentences = both(self.documents._replace(sequences=2), self.draw)
        numbers = self.passage.targets['ict'][:, 0]
        assert_view(
            view, 'ict',
            ids=[[CLS, 20, 21, 22, 23, SEP, CLS, SEP],
                 [CLS, 10, 11, SEP, CLS, 34, 35, SEP]],
            positions=[[*range(6), 0, 1], [*range(4), *range(4)]],
            block_ids=[[0] * 6 + [1] * 2, [0] * 4 + [1] * 4],
            sequences=[[1, 3], [0, 2]], weights=[[0, 0], [1, 1]],
            measured=[[0, 1], [1, 1]], targets=numbers[view.sequences],
            padding=[0, 0], cut_passages=[0, 0],
        )  # fmt: skip
        assert_view(
            sentences, 'ict', sequences=[[1, 3], [0, 2]],
            ids=self.sentence.ids[sentences.sequences],
            weights=[[1, 0], [1, 1]], padding=[0, 0], cut_sentences=[0, 2],
        )  # fmt: skip

    def test_a_row_alone(self):
        documents = self.documents._replace(sequences=3)
        passage, sentence = both(documents, self.draw)
        for view in (passage, sentence):
            same(view.sequences, [[1, -1], [0, -1], [2, 3]])
            for field in (view.weights, view.measured, view.targets):
                same(field['ict'][:2, 1], [0, 0])
        blocks = [[0] * 6 + [2] * 2, [0] * 4 + [2] * 4, [0] * 4 + [1, 1, 2, 2]]
        assert_view(passage, block_ids=blocks, padding=[2, 4, 2])
        same(sentence.ids[:2, 1], [[SEP] * 3] * 2)
        same(sentence.block_ids[:2, 1], [[1] * 3] * 2)
        same(sentence.counts['padding'], [3, 3, 0])

    def test_what_does_not_fit_loses_its_end(self):
        """10 and 9 tokens in a sequence of 16, and 13 and 4."""
        documents = make_documents([[3, 8], [1, 7], [5, 2], [1, 2]], 14)
        draw = cloze.Cloze(
            np.zeros(4, np.int32), np.array([3, 1, 5, 1], np.int32),
            np.array([True, False, True, False]), np.ones(4, bool),
        )  # fmt: skip
        view, _ = both(documents._replace(sequences=2), draw)
        same(view.sequences, [[0, 3], [1, 2]])
        same(view.ids[0], [CLS, *range(10, 20), SEP, CLS, 41, 42, SEP])
        # 9 and 9: both keep half a row.
        same(view.ids[1], [CLS, *range(21, 27), SEP, CLS, *range(30, 36), SEP])
        same(view.counts['cut_passages'], [1, 2])
        same(view.counts['padding'], [0, 0])
        for passages in (view, both(documents, draw)[0]):
            numbers = passages.targets['ict'].ravel().tolist()
            self.assertLen(set(numbers), 4)

    def test_of_a_text_there_is_all_or_nothing(self):
        with refused('where_not_in_view', 'text', 'dim'):
            cloze.passage(
                self.documents, self.draw, {'dim': 'start'}, zoo.SPECIALS
            )
