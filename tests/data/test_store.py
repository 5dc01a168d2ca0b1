import errno
import fcntl
import json
import os
import shutil
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data import store
from infoword_tf.data.documents import Document
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tests import places
from tests.near import same
from tests.refused import refused

VOCABULARY = [
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]',
    'the', 'cat', 'sat', '##s', '.', 'on', 'mat',
]  # fmt: skip
DOCUMENTS = [
    Document(('The cats sat.', 'On the mat'), 'first'),
    Document(('Dog.',), 'second'),
]
# the cat ##s sat . | on the mat [SEP] || [UNK] . [SEP]
IDS = [5, 6, 8, 7, 9, 10, 5, 11, 3, 1, 9, 3]
# A word begins here (1), a sentence (2), a document has ended (4).
FLAGS = [3, 1, 0, 1, 0, 3, 1, 1, 5, 3, 0, 5]


class StoreCase(places.Folder, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / 'train'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = WordPieceTokenizer(VOCABULARY)

    def write(self, documents=DOCUMENTS):
        return store.write_store(
            self.path, documents, self.tokenizer, progress=False
        )


class WriteTest(StoreCase):
    def test_two_documents(self):
        actual = self.write()
        same(actual.ids, IDS)
        same(actual.flags, FLAGS)
        same(actual.documents, [0, 9, 12])
        same(actual.counts, [0, 1, 0, 0, 0, 2, 1, 1, 1, 2, 1, 1])
        self.assertEqual(actual.path, self.path)
        meta = json.loads((self.path / 'meta.json').read_text())
        names = ['counts.npy', 'documents.npy', 'flags.bin', 'ids.bin']
        self.assertEqual(sorted(meta.pop('crc32')), names)
        expected = {'dtype': 'uint16', 'tokens': 12, 'documents': 2}
        self.assertEqual(meta, expected)

    def test_reopened_is_mapped_and_equal(self):
        actual = self.write()
        opened = store.open_store(str(self.path), self.tokenizer)
        for field in ('ids', 'flags', 'documents', 'counts'):
            same(getattr(opened, field), getattr(actual, field))
        for array in (opened.ids, opened.flags):
            self.assertIsInstance(array, np.memmap)
            with self.assertRaises(ValueError):
                array[0] = 0  # read only
        self.assertEqual(opened.documents.dtype, np.int64)
        self.assertEqual(opened.counts.dtype, np.int64)

    @parameterized.parameters((None, 12), (4, 24), (3, 21), (2, 12), (1, 9))
    def test_joined(self, limit, tokens):
        """The first documents of two stores, each store's in its order."""
        stores = [self.write()] * (1 if limit is None else 2)
        path = self.folder / 'joined'
        actual = store.join(path, stores, limit, self.tokenizer)
        same(actual.ids, (IDS * 2)[:tokens])
        same(actual.flags, (FLAGS * 2)[:tokens])
        self.assertEqual(actual.documents[-1], tokens)

    @parameterized.parameters(1, 2, 3, 5)
    def test_documents_of_several_calls(self, sentences):
        documents = [*DOCUMENTS, Document(('Mat.', 'Cat', 'sat'), ''),
                     *DOCUMENTS[::-1]] * 3  # fmt: skip
        whole = self.write(documents)
        self.path = self.folder / 'parts'
        tokenize = self.tokenizer.tokenize_flat
        with (
            mock.patch.object(store, '_SENTENCES_A_CALL', sentences),
            mock.patch.object(
                self.tokenizer, 'tokenize_flat', wraps=tokenize
            ) as pieces,
        ):
            parts = self.write(documents)
        self.assertGreater(pieces.call_count, 4)
        for field in ('ids', 'flags', 'documents', 'counts'):
            same(getattr(parts, field), getattr(whole, field))

    def test_empty_sentences(self):
        texts = (), ('', 'the', '', '\u200b', 'cat', ''), ('\u200b',), ('mat',)
        actual = self.write([Document(x, '') for x in texts])
        same(actual.ids, [3, 5, 6, 3, 3, 11, 3])
        same(actual.flags, [5, 3, 3, 5, 5, 3, 5])
        same(actual.documents, [0, 1, 4, 5, 7])

    @parameterized.parameters(0, 1)
    def test_unknown_words_of_the_text(self, unk_id):
        """Whatever the number of [UNK], and where it opens a sentence."""
        names = ['[PAD]', '[UNK]'][:: 1 if unk_id else -1]
        self.tokenizer = WordPieceTokenizer(names + VOCABULARY[2:])
        actual = self.write([Document(('The <unk> sat.', '<unk> cat'), '')])
        same(actual.ids, [5, unk_id, 7, 9, unk_id, 6, 3])
        same(actual.flags, [3, 1, 1, 0, 3, 1, 5])

    @parameterized.parameters((2**16, np.uint16), (2**16 + 1, np.uint32))
    def test_type_of_ids(self, size, dtype):
        vocabulary = VOCABULARY[:5] + [f'w{i}' for i in range(size - 5)]
        self.tokenizer = WordPieceTokenizer(vocabulary)
        actual = self.write([Document((f'w0 w{size - 6}',), '')])
        self.assertEqual(actual.ids.dtype, dtype)
        same(actual.ids, [5, size - 1, 3])


class FailureTest(StoreCase):
    def left_behind(self):
        return sorted(p.name for p in self.folder.glob('*'))

    def test_what_raises_leaves_nothing(self):
        """Documents, or a tokenizer."""

        def documents():
            yield from DOCUMENTS * 20
            raise RuntimeError('no more')

        bad = RuntimeError('bad bytes')
        for texts, patch, message in (
            (documents(), mock.patch.object(store, '_SENTENCES_A_CALL', 2),
             'no more'),
            (DOCUMENTS,
             mock.patch.object(
                 self.tokenizer, 'tokenize_flat', side_effect=bad
             ),
             'bad bytes'),
        ):  # fmt: skip
            with patch, self.assertRaisesRegex(RuntimeError, message):
                self.write(texts)
            self.assertEqual(self.left_behind(), [])
        same(self.write().ids, IDS)

    def test_a_full_disk(self):
        written = []

        def append(file, array):
            if len(written) == 3:
                raise OSError(errno.ENOSPC, 'No space left on device')
            written.append(real(file, array))

        real = store._append
        with (
            mock.patch.object(store, '_append', append),
            mock.patch.object(store, '_SENTENCES_A_CALL', 1),
        ):
            with self.assertRaises(OSError) as caught:
                self.write(DOCUMENTS * 10)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.assertLen(written, 3)
        self.assertEqual(self.left_behind(), [])

    def test_one_that_another_process_made_first_is_used(self):
        def documents():
            yield DOCUMENTS[0]
            # Meanwhile, elsewhere; other text, to tell them apart.
            self.write(DOCUMENTS[1:])

        actual = self.write(documents())
        same(actual.ids, IDS[9:])
        self.assertEqual(self.left_behind(), ['train'])

    def test_what_a_kill_has_left_is_deleted(self):
        """And nothing of a process that is writing still."""
        for name in ('train.dead', 'train.alive', 'trained.dead'):
            (self.folder / name).mkdir()
            (self.folder / name / 'ids.bin').write_bytes(b'123')
        alive = os.open(self.folder / 'train.alive', os.O_RDONLY)
        self.addCleanup(os.close, alive)
        fcntl.flock(alive, fcntl.LOCK_EX)
        self.write()
        left = ['train', 'train.alive', 'trained.dead']
        self.assertEqual(self.left_behind(), left)

    def test_an_empty_folder_is_no_store_yet(self):
        self.path.mkdir(parents=True)
        same(self.write().ids, IDS)

    def damage(self, name, change, id):
        """Opens a new store of which one file has been changed."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.write()
        path = self.path / name
        data = change(path.read_bytes())
        path.unlink() if data is None else path.write_bytes(data)
        # Of the folder at least, and that it can be deleted.
        with refused(id, name, self.path, 'delete'):
            store.open_store(self.path, self.tokenizer)

    @parameterized.parameters(
        'ids.bin', 'flags.bin', 'documents.npy', 'counts.npy', 'meta.json'
    )
    def test_a_damaged_file_is_named(self, name):
        """Cut, missing, or with a bit that is another one."""
        is_mapped = name.endswith('.bin')
        id = 'tokens_cut' if is_mapped else 'tokens_cannot_be_read'
        end = -1 if is_mapped else None
        self.damage(name, lambda data: data[: end or len(data) // 2], id)
        self.damage(name, lambda data: None, id)
        if name != 'meta.json':
            self.damage(
                name, lambda data: data[:-1] + bytes([data[-1] ^ 1]),
                'tokens_damaged',
            )  # fmt: skip

    @parameterized.parameters(
        '{}', '[]', '1', '{"dtype": "uint16"}', '{"dtype": {}, "tokens": 1}',
        '{"dtype": "object", "tokens": 1}', '[' * 100_000,
    )  # fmt: skip
    def test_what_is_no_meta_data(self, text):
        self.damage(
            'meta.json', lambda data: text.encode(), 'tokens_cannot_be_read'
        )

    def test_a_store_of_older_code(self):
        """It has no sums."""
        self.write()
        meta = json.loads((self.path / 'meta.json').read_text())
        del meta['crc32']
        (self.path / 'meta.json').write_text(json.dumps(meta))
        opened = store.open_store(self.path, self.tokenizer)
        same(opened.ids, IDS)

    def test_no_store(self):
        with refused('tokens_cannot_be_read', self.path):
            store.open_store(self.path, self.tokenizer)


class PeekTest(absltest.TestCase):
    def test_the_same_documents_or_none(self):
        self.assertEqual(list(store.peek(iter(DOCUMENTS), 'x')), DOCUMENTS)
        with refused('no_documents', 'no documents here'):
            store.peek([], 'no documents here')
