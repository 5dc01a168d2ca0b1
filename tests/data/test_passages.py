import pathlib

import numpy as np
from absl.testing import absltest

from infoword_tf.data import passages
from infoword_tf.data import store as stores


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
        np.array(ids, np.uint32),
        np.array(flags, np.uint8),
        np.array(begins),
        np.ones(max(ids) + 1, np.int64),
        pathlib.Path('nowhere'),
    )


class DocumentSourceTest(absltest.TestCase):
    def test_a_batch_written_out(self):
        store = make_store([[2, 3], [4], [1, 1, 2]])
        source = passages.DocumentSource(store, 6, 2, seed=0)
        self.assertEqual(source.single, 1)
        text = source.batch(0)
        order = np.argsort(text.ids[:, 0])
        np.testing.assert_array_equal(
            text.ids[order], [[0, 1, 2, 3, 4, 0], [11, 12, 13, 14, 0, 0]]
        )
        np.testing.assert_array_equal(text.lengths[order], [5, 4])
        np.testing.assert_array_equal(
            text.sentence_starts[order].astype(int),
            [[1, 0, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0]],
        )

    def test_every_document_once_an_epoch_in_another_order(self):
        store = make_store([[2, 3]] * 12 + [[3]] * 5)
        source = passages.DocumentSource(store, 8, 4, seed=1)
        epochs = []
        for epoch in range(2):
            seen = [
                source.batch(3 * epoch + step).ids[:, 0] for step in range(3)
            ]
            epochs.append(np.concatenate(seen))
            self.assertLen(set(epochs[-1].tolist()), 12)
        self.assertFalse(np.array_equal(*epochs))
        again = passages.DocumentSource(store, 8, 4, seed=1).batch(4)
        np.testing.assert_array_equal(again.ids, source.batch(4).ids)

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

    def test_too_few_documents(self):
        store = make_store([[2, 3], [4], [1, 1]])
        with self.assertRaisesRegex(
            ValueError, '2 of 3 documents have two sentences.*takes 3'
        ):
            passages.DocumentSource(store, 6, 3, seed=0)
        self.assertEqual(passages.DocumentSource.room(store, 6), 2)


if __name__ == '__main__':
    absltest.main()
