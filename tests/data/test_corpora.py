import os
import pathlib
from unittest import mock

from absl.testing import parameterized

from infoword_tf import files
from infoword_tf.data import corpora, pydocs
from infoword_tf.data.documents import Document
from tests.data import texts
from tests.refused import refused


class OpenCorpusTest(texts.Temporary):
    @parameterized.parameters(
        ('unknown_corpus', "'wiki'", 'wiki'),
        ('pydocs_with_heldout', "'x.txt'", 'pydocs', 'x.txt'),
        ('pydocs_with_colon', "'x'", 'pydocs:x'),
    )
    def test_complaints(self, id, value, *arguments):
        with refused(id, value):
            corpora.open_corpus(*arguments)

    def test_pydocs(self):
        folder = self.folder / 'pydocs-0123'
        document = Document(('Größe is the size.', 'So it is.'), 'p/a.py:f')
        folder.mkdir()
        pydocs._write(folder / 'train.jsonl', [document])
        held = Document(('It is held out.',), 'p/a.py:g')
        pydocs._write(folder / 'heldout.jsonl', [held])
        with mock.patch.object(pydocs, 'prepare', return_value=folder):
            corpus = corpora.open_corpus('pydocs', cache=self.folder)
        self.assertEqual(corpus[:2], ('pydocs', '0123'))
        for _ in range(2):
            self.assertEqual(list(corpus.train()), [document])
            self.assertEqual(list(corpus.heldout()), [held])
            self.assertEqual(list(corpus.every()), [document, held])

    def test_lines_beside_no_others(self):
        """A text that is trained on needs what is held out."""
        path = self.folder / 'x.txt'
        path.write_text('one\n\ntwo\n')
        corpus = corpora.open_corpus(f'lines:{path}', whole=True)
        self.assertLen(list(corpus.every()), 3)
        self.assertEmpty(list(corpus.heldout()))
        with refused('corpus_without_heldout', 'x.txt ', '--heldout='):
            corpora.open_corpus(f'lines:{path}')

    def test_one_corpus_after_another(self):
        def corpus(name, every=None):
            train, held = ([f'{name} {x}'] for x in ('train', 'held'))
            return corpora.Corpus(name, name * 2, train.copy, held.copy, every)

        one, two = corpus('a'), corpus('b', ['b'].copy)
        self.assertIs(corpora.chained([one]), one)
        both = corpora.chained([one, two])
        self.assertEqual(both[:2], ('a and b', 'aa-bb'))
        self.assertIsNone(both.every)
        self.assertEqual(list(corpora.chained([two, two]).every()), ['b'] * 2)
        for chunk, name in zip(
            corpora.chunks_of(both, 1), ('train', 'held'), strict=True
        ):
            self.assertStartsWith(chunk.kind, name)
            for _ in range(2):
                self.assertEqual(list(chunk.read()), [f'a {name}', f'b {name}'])

    def test_cache_dir(self):
        with mock.patch.dict(os.environ, HOME='/h', clear=True):
            path = pathlib.Path('/h/.cache/infoword_tf')
            self.assertEqual(files.cache_dir(), path)
            os.environ['XDG_CACHE_HOME'] = '/x'
            path = pathlib.Path('/x/infoword_tf')
            self.assertEqual(files.cache_dir(), path)
            os.environ['INFOWORD_CACHE'] = '~/c'
            self.assertEqual(files.cache_dir(), pathlib.Path('/h/c'))
