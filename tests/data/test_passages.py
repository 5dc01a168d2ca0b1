import pathlib

import numpy as np
from absl.testing import absltest

from infoword_tf import views
from infoword_tf.data import batches, passages
from infoword_tf.data import store as stores
from infoword_tf.plan import make_plan
from infoword_tf.views import cloze
from infoword_tf.views.masked import fewest_sequences
from tests import zoo
from tests.near import same


def make_store(documents):
    """A store in memory; documents: for each, the pieces of its sentences."""
    ids, flags, begins = [], [], [0]
    for sentences in documents:
        for pieces in sentences:
            first = stores.WORD_START | stores.SENTENCE_START
            flags += [first] + [stores.WORD_START] * (pieces - 1)
            ids += range(len(ids), len(ids) + pieces)
        ids.append(0)
        flags.append(stores.WORD_START | stores.SEPARATOR)
        begins.append(len(ids))
    return stores.Store(
        np.array(ids, np.uint32), np.array(flags, np.uint8), np.array(begins),
        np.ones(max(ids) + 1, np.int64), pathlib.Path('nowhere'),
    )  # fmt: skip


class DocumentSourceTest(absltest.TestCase):
    def test_a_batch_written_out(self):
        store = make_store([[2, 3], [4], [1, 1, 2]])
        source = passages.DocumentSource(store, 6, 2, seed=0)
        self.assertEqual(source.single, 1)
        text = source.batch(0)
        order = np.argsort(text.ids[:, 0])
        same(text.ids[order], [[0, 1, 2, 3, 4, 0], [11, 12, 13, 14, 0, 0]])
        same(text.lengths[order], [5, 4])
        same(
            text.sentence_starts[order].astype(int),
            [[1, 0, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]],
        )

    def test_all_of_a_long_document_is_read(self):
        store = make_store([[5] * 40, [2, 2]])
        source = passages.DocumentSource(store, 20, 2, seed=0)
        begins = set()
        for step in range(400):
            text = source.batch(step)
            row = int(np.argmax(text.lengths))
            first = int(text.ids[row, 0])
            self.assertEqual(first % 5, 0)
            self.assertTrue(text.sentence_starts[row, 0])
            self.assertGreaterEqual(text.sentence_starts[row].sum(), 2)
            begins.add(first // 5)
        self.assertEqual(begins, set(range(38)))

    def test_rows_that_passages_share(self):
        """Where it pays, and of the text that is trained on alone."""
        short = make_store([[6, 7]] * 12 + [[25, 22]] * 4)
        source = passages.DocumentSource(short, 50, 8, seed=0, packed=True)
        self.assertBetween(source.rows, 4, 6)
        text = source.batch(7)
        self.assertEqual(text.sequences, source.rows)
        alone = passages.DocumentSource(short, 50, 8, seed=0)
        self.assertIsNone(alone.batch(7).sequences)
        same(text.ids, alone.batch(7).ids)
        full = make_store([[10, 10, 10, 15]] * 9)
        source = passages.DocumentSource(full, 46, 8, seed=0, packed=True)
        self.assertIsNone(source.rows)

    def test_all_of_the_first_batches_fit(self):
        random = np.random.default_rng(0)
        store = make_store(random.integers(1, 20, (100, 3)).tolist())
        source = passages.DocumentSource(store, 62, 16, seed=0, packed=True)
        sizes = []
        for step in range(passages.SAMPLE):
            text = source.batch(step)
            draw = cloze.cloze(text, np.random.default_rng(step))
            view = cloze.passage(
                text, draw, {'ict': 'text'}, views.Specials(1, 2, 3, 10)
            )
            self.assertEqual(view.counts['cut_passages'].sum(), 0)
            sizes.append(cloze.passage_sizes(text, draw))
        self.assertEqual(fewest_sequences(np.array(sizes), 64), source.rows)

    def test_held_out_text_shares_none(self):
        """Its figures are of the same candidates as ever."""
        store = zoo.make_store(longest=7)
        plan = make_plan({'ict': {'words': 0, 'momentum': 0.0}}, 48)
        training = batches.open_sources(store, plan, 8, 0)
        result = batches.Batches(training, plan, zoo.SPECIALS, 0).views(0)
        self.assertEqual(result['passage'].sequences.shape[1:], (2,))
        self.assertLess(len(result['passage'].ids), 8)
        result = batches.heldout_views(store, plan, zoo.SPECIALS)
        for view in result.values():
            same(view.sequences, np.arange(len(view.ids)))
