"""Corpora of tensorflow-datasets, from builders of our own."""

import pathlib
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.data import corpora, prepared
from infoword_tf.data.documents import Document
from tests import places
from tests.data import datasets
from tests.data.texts import in_one_line
from tests.refused import refused

TEXT = datasets.kinds.Text()
MANY = [f'Number {n} is here. So it is.' for n in range(300)]
FOLDER = None


def texts(*actual):
    return [{'text': text} for text in actual]


def setUpModule():
    """Data sets of every kind, prepared once."""
    global FOLDER
    FOLDER = places.make()
    plain = {'text': TEXT}
    prepare = datasets.prepare
    many = texts(*MANY)
    held = texts('Ämter are held. Twice.\n\nBelow.', '  \n')
    prepare(FOLDER, 'both', plain, {
        'train': many, 'validation': texts('V.'), 'test': held})  # fmt: skip
    prepare(FOLDER, 'validated', plain, {
        'validation': texts('V.'), 'train': many})  # fmt: skip
    prepare(FOLDER, 'alone', plain, {'train': many})
    prepare(FOLDER, 'parts', plain, {'en': texts('A.'), 'de': texts('B.')})
    prepare(FOLDER, 'named', {
        'id': tf.int64,
        'more': {'title': TEXT, 'body': TEXT},
    }, {'train': [
        {'id': n, 'more': {'title': f'Title {n}. A.', 'body': f'Body {n}. A.'}}
        for n in range(2)
    ]}, config='one')  # fmt: skip
    prepare(FOLDER, 'numbers', {
        'x': tf.float32, 'y': datasets.kinds.Tensor(shape=(2,), dtype=tf.string)
    }, {'train': [{'x': 1.0, 'y': ['a', 'b']}]})  # fmt: skip
    prepare(FOLDER, 'spoilt', plain, {'train': texts('fine', b'a\xff')})
    prepare(FOLDER, 'records', plain, {'train': many, 'test': held},
            file_format='array_record')  # fmt: skip


class PreparedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(datasets.only(FOLDER))

    @parameterized.parameters('both', 'records')
    def test_documents(self, name):
        """The test split is held out; blank texts are no documents."""
        corpus = corpora.open_corpus(f'tfds:{name}')
        self.assertEqual(corpus.name, f'tfds:{name}')
        sentences = ('Ämter are held.', 'Twice.', 'Below.')
        for _ in range(2):
            (actual,) = corpus.heldout()
            self.assertEqual(actual.sentences, sentences)
            self.assertRegex(actual.source, f'^tfds:{name}, test [01]$')
            self.assertEqual(
                {document.sentences for document in corpus.train()},
                {(f'Number {n} is here.', 'So it is.') for n in range(300)},
            )

    def test_long_texts_go_on_in_the_next_document(self):
        """Counts anew there: 6 letters are no more than 6."""
        corpus = corpora.open_corpus('tfds:both')
        with mock.patch.object(prepared, 'LONGEST', 6):
            actual = [document.sentences for document in corpus.heldout()]
        self.assertEqual(actual, [('Ämter are held.',), ('Twice.', 'Below.')])

    @parameterized.parameters('records', 'alone')
    def test_parts_are_the_whole(self, name):
        """In its order, with the numbers that examples have there."""
        corpus = corpora.open_corpus(f'tfds:{name}')
        held = 0 if name == 'alone' else 1
        kinds = ['train', 'heldout'] if held else ['every']
        whole = [[*getattr(corpus, kind)()] for kind in kinds]
        for size, count in ((4000, 4), (10**9, 1)):
            parts = corpora.chunks_of(corpus, size)
            self.assertLen(parts, count + held)
            self.assertEqual([*dict.fromkeys(x.kind for x in parts)], kinds)
            actual = [
                [x for part in parts if part.kind == kind for x in part.read()]
                for kind in kinds
            ]
            self.assertEqual(actual, whole)  # and in the same order

    @parameterized.parameters(
        ('both', 'validation', 'V.'),
        ('validated', None, 'V.'),
        ('validated', 'validation', 'V.'),
    )
    def test_what_is_held_out(self, name, heldout, sentence):
        corpus = corpora.open_corpus(f'tfds:{name}', heldout)
        (actual,) = corpus.heldout()
        self.assertEqual(actual.sentences, (sentence,))

    def test_held_out_by_hash(self):
        """As of text: the same documents are held out."""
        corpus = corpora.open_corpus('tfds:alone')
        train = {d.text for d in corpus.train()}
        heldout = {d.text for d in corpus.heldout()}
        self.assertLen(train | heldout, 300)
        self.assertEmpty(train & heldout)
        path = pathlib.Path(self.create_tempdir().full_path) / 'a.txt'
        path.write_text('\n\n'.join(MANY))
        same = corpora.open_corpus(f'text:{path}')
        self.assertEqual(heldout, {d.text for d in same.heldout()})

    @parameterized.parameters(
        ('named/one:more/title', 'Title'),
        ('named/one:1.0.0:more/body', 'Body'),
        ('validated:text', 'Number'),
    )
    def test_features(self, spec, begin):
        corpus = corpora.open_corpus(f'tfds:{spec}')
        self.assertEqual(corpus.name, f'tfds:{spec}')
        self.assertEqual({d.text.split()[0] for d in corpus.train()}, {begin})

    def test_fingerprints_differ(self):
        """By data set, by feature, by what is held out; not by call."""
        both, same, *others = (
            corpora.open_corpus(*arguments).fingerprint
            for arguments in (
                ('tfds:both',), ('tfds:both', 'test'),
                ('tfds:both', 'validation'), ('tfds:alone',),
                ('tfds:named/one:more/body',), ('tfds:named/one:more/title',),
            )
        )  # fmt: skip
        self.assertEqual(both, same)
        self.assertLen({both, *others}, 5)

    def test_it_streams(self):
        """The first document comes without the others being read."""
        corpus = corpora.open_corpus('tfds:spoilt')
        actual = prepared.open_prepared('spoilt')
        self.assertLen(list(prepared.read(actual, 'train', ['text'])), 2)
        with refused('tfds_not_utf8', ', train '):
            list(corpus.train())

    def test_long_texts_go_on(self):
        actual = prepared.TfdsDataset('tfds:x', None, {})
        with (
            mock.patch.object(prepared, 'LONGEST', 10),
            mock.patch.object(prepared, 'read', lambda *_: [(
                b'Six of. Six of. Six of.\nSix of.',)]),
        ):  # fmt: skip
            parts = list(prepared.read_documents(actual, 'train', 'text'))
        half = Document(('Six of.', 'Six of.'), 'tfds:x, train 0')
        self.assertEqual(parts, [half, half])

    @parameterized.parameters(
        ('', 'wrong_tfds_name', 'tfds:NAME'),
        ('a:b:c', 'wrong_tfds_name', 'tfds:a:b:c '),
        ('alon', 'unknown_tfds_name', 'tfds:alon:'),
        ('huggingface:squad', 'unknown_tfds_name'),
        ('imbd_reviews', 'unknown_tfds_name', 'imdb_reviews'),
        ('glue/rte', 'tfds_never_prepared', 'glue/rte/2.0.0 ',
         "builder('glue/rte').download_and_prepare()", 'TFDS_DATA_DIR'),
        ('glue/xx', 'tfds_cannot_open', 'glue/xx ', 'BuilderConfig xx '),
        ('glue/rte:0.0.1', 'tfds_cannot_open', 'glue/rte:0.0.1 '),
        ('a b', 'tfds_cannot_open', 'a b'),
        ('numbers', 'tfds_without_text', ' x, y'),
        ('alone:words', 'unknown_tfds_feature', "'words'", ' text'),
        ('named/one', 'several_tfds_features', 'more/body, more/title '),
        ('parts', 'unknown_tfds_split', "'train'", 'de', 'en'),
        ('both', 'unknown_tfds_split', "'dev'", {'heldout': 'dev'}),
        ('both', 'heldout_is_train_split', {'heldout': 'train'}),
        ('alone', 'heldout_is_train_split', {'heldout': 'train'}),
    )  # fmt: skip
    def test_complaints(self, spec, id, *values):
        more = [value for value in values if isinstance(value, dict)]
        values = [value for value in values if isinstance(value, str)]
        with refused(id, *values), in_one_line():
            corpora.open_corpus(f'tfds:{spec}', **(more or [{}])[0])

    def test_without_tensorflow_datasets(self):
        with (
            mock.patch.dict(sys.modules, {'tensorflow_datasets': None}),
            refused('no_tensorflow_datasets', 'pip install'),
        ):
            corpora.open_corpus('tfds:both')

    def test_values_of_all_kinds(self):
        actual = prepared.open_prepared('named/one')
        self.assertEqual(actual.splits, ('train',))
        names = ['id', 'more/title', 'more/body']
        self.assertCountEqual(actual.features, names)
        rows = list(prepared.read(actual, 'train', ['id', 'more/title']))
        self.assertCountEqual(rows, [(0, b'Title 0. A.'), (1, b'Title 1. A.')])
