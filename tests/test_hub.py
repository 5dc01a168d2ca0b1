"""Names of the Hub, asked of a server on this machine."""

import contextlib
import errno
import hashlib
import io
import json
import os
import pathlib
from unittest import mock

from absl.testing import parameterized

from export import card
from infoword_tf import files, folders, hub
from infoword_tf.config import Config
from infoword_tf.data import corpora
from infoword_tf.training import begin
from tasks import sts
from tests import hubserver, places
from tests.corpus import file_of
from tests.eager import eagerly
from tests.refused import refused
from tests.tasks import command
from tests.weights import folders as public

FILES = {
    'config.json': b'{"model_type": "bert"}', 'vocab.txt': b'a\nb\n',
    'model.safetensors': b'abc' * 3000, 'pytorch_model.bin': b'x' * 9000,
    'onnx/config.json': b'{}', 'onnx/model.onnx': b'y', 'tf_model.h5': b'z',
    '1_Pooling/config.json': b'{"word_embedding_dimension": 4}',
}  # fmt: skip
DATA = {
    f'data/train-{i}.csv': b'text,label\n' + 9 * (b'good %d,y\nbad,n\n' % i)
    for i in range(3)
}


class NamesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('hf://a/b', ('model', 'a/b', None, '')),
        ('hf:/a/b-1.0', ('model', 'a/b-1.0', None, '')),
        ('hf://a/b@v1.2', ('model', 'a/b', 'v1.2', '')),
        ('hf://a/b@refs%2Fpr%2F1/sub', ('model', 'a/b', 'refs/pr/1', 'sub')),
        ('hf://datasets/a/b@m/x/*.csv', ('dataset', 'a/b', 'm', 'x/*.csv')),
        ('hf://datasets/a/b/', ('dataset', 'a/b', None, '')),
        ('hf://gpt2@v1', ('model', 'gpt2', 'v1', '')),
    )
    def test_parts(self, name, expected):
        self.assertTrue(files.is_of_hub(name))
        self.assertEqual(tuple(hub.parse(name)), expected)

    @parameterized.parameters(
        'hf://', 'hf://a/b@', 'hf://datasets/', 'hf://a/b/../c', 'hf://a b/c',
    )  # fmt: skip
    def test_other_forms(self, name):
        with refused('hub_name', name, 'hf://OWNER/NAME'):
            hub.parse(name)

    def test_other_names(self):
        for name in ('runs/a', 'hfl/a', pathlib.Path('hf'), '/hf:/a'):
            self.assertFalse(files.is_of_hub(name))


class HubCase(places.Folder, parameterized.TestCase):
    """Test with a Hub that has a model and a data set."""

    def setUp(self):
        super().setUp()
        self.hub = self.enterContext(hubserver.serving(self.folder / 'hf'))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.hub.add('models/o/m', places.write(self.folder / 'm', FILES))
        self.hub.add('datasets/o/d', places.write(self.folder / 'd', DATA))

    def downloaded(self):
        """Lists the files that were asked for with their content."""
        by_digest = {
            hashlib.sha256(content).hexdigest(): name
            for name, content in (FILES | DATA).items()
        }
        gets = [path for kind, path, _ in self.hub.requests if kind == 'GET']
        names = [x.partition('/resolve/')[2].partition('/')[2] for x in gets]
        names += [by_digest.get(path.removeprefix('/cdn/')) for path in gets]
        # A large file is asked for once, where the redirect leads.
        return sorted(x for x in names if x)


class ModelTest(HubCase):
    def test_only_what_is_read(self):
        folder = hub.folder_of('hf://o/m')
        read = ['1_Pooling/config.json', 'config.json', 'model.safetensors',
                'vocab.txt']  # fmt: skip
        self.assertEqual(self.downloaded(), read)
        for name in read:
            self.assertEqual((folder / name).read_bytes(), FILES[name])
        self.hub.requests.clear()
        self.assertEqual(hub.folder_of('hf://o/m'), folder)
        self.assertEmpty(self.downloaded())

    def test_other_weights_where_there_are_no_safetensors(self):
        files = {k: x for k, x in FILES.items() if 'safetensors' not in k}
        self.hub.add('models/o/b', places.write(self.folder / 'b', files))
        folder = hub.folder_of('hf://o/b')
        content = (folder / 'pytorch_model.bin').read_bytes()
        self.assertEqual(content, FILES['pytorch_model.bin'])
        self.assertNotIn('tf_model.h5', self.downloaded())

    def test_revisions(self):
        changed = {**FILES, 'vocab.txt': b'c\n'}
        self.hub.add('models/o/m', places.write(self.folder / 'new', changed))
        self.hub.names['models/o/m']['v1'] = 0
        first = hubserver.commit_of('models/o/m', 0)
        for revision, vocab in (
            ('', b'c\n'), ('@v1', b'a\nb\n'), (f'@{first}', b'a\nb\n'),
        ):  # fmt: skip
            folder = hub.folder_of(f'hf://o/m{revision}')
            self.assertEqual((folder / 'vocab.txt').read_bytes(), vocab)
        self.assertEqual(hub.commit_of(folder), f'hf://o/m@{first}')
        self.assertEqual(hub.commit_of(self.folder), '')

    def test_a_folder_within(self):
        files = {f'small/{name}': content for name, content in FILES.items()}
        self.hub.add('models/o/two', places.write(self.folder / 'two', files))
        folder = hub.folder_of('hf://o/two/small')
        self.assertTrue((folder / 'model.safetensors').is_file())

    def test_a_connection_that_breaks_off(self):
        """The file is whole, and asked for twice."""
        content = FILES['model.safetensors']
        path = f'/cdn/{hashlib.sha256(content).hexdigest()}'
        self.hub.cut.add(path)
        folder = hub.folder_of('hf://o/m')
        self.assertEqual((folder / 'model.safetensors').read_bytes(), content)
        self.assertEqual(self.downloaded().count('model.safetensors'), 2)

    @parameterized.parameters(
        ('hf://o/none', 'hub_repository', 'no such model'),
        ('hf://o/m@v7', 'hub_revision', 'v7'),
        ('hf://o/closed', 'hub_gated', 'hf://o/closed', 'HF_TOKEN'),
        ('hf://o/g', 'hub_without_weights', 'hf://o/g', 'model.gguf'),
    )
    def test_what_there_is_not(self, name, id, *words):
        files = {'config.json': b'{}', 'model.gguf': b'x'}
        for repository in ('models/o/g', 'models/o/closed'):
            self.hub.add(repository, places.write(self.folder / 'g', files))
        self.hub.gated.add('models/o/closed')
        with refused(id, 'o/', *words):
            hub.folder_of(name)

    def test_without_a_network(self):
        folder = hub.folder_of('hf://o/m')
        with hubserver.out_of_reach():
            self.assertEqual(hub.folder_of('hf://o/m'), folder)
            commit = hubserver.commit_of('models/o/m', 0)
            with refused('hub_out_of_reach', 'hf://o/m@v2', commit):
                hub.folder_of('hf://o/m@v2')
            with refused('hub_out_of_reach', 'hf://o/n', 'nothing of it'):
                hub.folder_of('hf://o/n')


class CacheTest(command.Checks, HubCase):
    """A cache that takes no file."""

    @contextlib.contextmanager
    def unwritable(self, number, after=0):
        """Lets files of a download take some bytes, then an error."""
        opened = io.open

        class Full(io.FileIO):
            def write(self, data):
                if self.tell() >= after:
                    raise OSError(number, os.strerror(number))
                return super().write(data[: after - self.tell()])

        def open_(path, mode='r', *more, **named):
            if not str(path).endswith('.incomplete'):
                return opened(path, mode, *more, **named)
            if number in (errno.EACCES, errno.EROFS):
                raise OSError(number, os.strerror(number), path)
            return io.BufferedWriter(Full(path, 'w'))

        with mock.patch.object(io, 'open', open_):
            yield

    @parameterized.parameters(
        (errno.ENOSPC, 'free space'), (errno.EDQUOT, 'free space'),
        (errno.EACCES, 'make it writable'), (errno.EROFS, 'make it writable'),
    )  # fmt: skip
    def test_it_is_said(self, number, words):
        """A later run fetches what is missing; no half of a file is read."""
        cache = self.folder / 'hf'
        for name, open_ in (
            ('hf://o/m', hub.folder_of), ('hf://datasets/o/d', hub.path_of)
        ):
            with self.unwritable(number, after=100), refused(
                'hub_cache', name, cache, os.strerror(number), words, 'HF_HOME'
            ):
                open_(name)
            self.check_whole(cache)
            self.assertNotEmpty(self.check_whole(pathlib.Path(open_(name))))
            self.assertEmpty(list(cache.rglob('*.incomplete')))

    def check_whole(self, folder):
        """Checks all files of snapshots; returns them."""
        paths = [
            x for x in folder.rglob('*.*')
            if 'snapshots' in x.parts and x.is_file()
        ]  # fmt: skip
        for path in paths:
            name = path.as_posix().partition('/snapshots/')[2]
            known = (FILES | DATA)[name.partition('/')[2]]
            self.assertEqual(path.read_bytes(), known)
        return paths

    def test_what_is_whole_is_read(self):
        folder = hub.folder_of('hf://o/m')
        with self.unwritable(errno.EROFS):
            self.assertEqual(hub.folder_of('hf://o/m'), folder)

    def test_as_xet_says_it(self):
        """In a line, when a command asks."""
        why = 'Data processing error: No space left on device (os error 28)'
        with mock.patch(
            'huggingface_hub.snapshot_download', side_effect=RuntimeError(why)
        ):
            done = command.run(
                sts, '--init=hf://o/m', '--data=hf://datasets/o/d/data/*.csv'
            )
        self.assert_refused(
            done, 'hub_cache', 'free space', 'hf://', self.folder / 'hf'
        )


class LoadTest(HubCase):
    def test_the_commit_is_recorded(self):
        """So that equal files of two revisions are told apart."""
        source = public.write(self.folder / 'bert', 'bert')
        for number in range(2):
            self.hub.add('models/o/bert', source)
            with eagerly():
                workdir = folders.workdir_of('hf://o/bert', begin.convert)
            commit = hubserver.commit_of('models/o/bert', number)
            self.assertEqual(
                Config.read(workdir).run, {'source': f'hf://o/bert@{commit}'}
            )
        # A model card has it as it is, no path of this machine.
        source = Config.read(workdir).run['source']
        self.assertEqual(card.portable(source), source)

    def test_adapters_of_a_model_there(self):
        """The base of adapters of the Hub is there; a folder names hf://."""
        base = public.write(self.folder / 'bert', 'bert')
        self.hub.add('models/o/bert', base)
        self.hub.names['models/o/bert']['v2'] = 0
        settings = {'base_model_name_or_path': 'o/bert', 'revision': 'v2'}
        files = {
            'adapter_config.json': json.dumps(settings).encode(),
            'adapter_model.safetensors': b'abc',
        }
        self.hub.add('models/o/lora', places.write(self.folder / 'lora', files))
        named = {'base_model_name_or_path': 'hf://o/bert@v2'}
        local = places.write(self.folder / 'here', {
            'adapter_config.json': json.dumps(named).encode()
        })  # fmt: skip
        for folder in (hub.folder_of('hf://o/lora'), local):
            actual = folders.adapted_by(folder)
            self.assertEqual(
                hub.commit_of(actual),
                f'hf://o/bert@{hubserver.commit_of("models/o/bert", 0)}',
            )
            name = base / 'config.json'
            self.assertEqual(
                (actual / 'config.json').read_bytes(), name.read_bytes()
            )


def records(number):
    return [
        {'body': f'Some words of {i}. And {i % 7} more.', 'other': 'x' * 99}
        for i in range(number)
    ]


class CorpusTest(HubCase):
    """Texts that are read where they are."""

    def add(self, end='jsonl', numbers=(300, 200)):
        """Adds two files to the Hub; returns the folder with the same."""
        files = {
            f'text/part-{i}.{end}': file_of(end, records(number))
            for i, number in enumerate(numbers)
        }
        folder = places.write(self.folder / 't', files)
        self.hub.add('datasets/o/t', folder)
        self.hub.requests.clear()
        return folder

    @parameterized.parameters(
        ('parquet', 'parquet:{}/text/*.parquet:body'),
        ('jsonl', 'jsonl:{}/**/*.jsonl:body'),
        ('jsonl.gz', 'jsonl:{}/text/part-?.jsonl.gz:body'),
        ('jsonl.zst', 'jsonl:{}/text/part-[01].jsonl.zst:body'),
        ('txt', 'text:{}/text/*.txt'),
        ('arrow', 'arrow:{}/text/*.arrow:body'),
    )
    def test_documents_are_those_of_the_files(self, end, name):
        """Reads both splits, in chunks too, and leaves no copy on the disk."""
        folder = self.add(end)
        local, remote = (
            corpora.open_corpus(name.format(x))
            for x in (folder, 'hf://datasets/o/t')
        )
        for split in ('train', 'heldout'):
            one, two = (
                [x.sentences for x in getattr(corpus, split)()]
                for corpus in (local, remote)
            )
            self.assertNotEmpty(one)
            self.assertEqual(one, two)
        one, two = (
            [[x.sentences for x in chunk.read()] for chunk in chunks]
            for chunks in (corpora.chunks_of(x, 5000) for x in (local, remote))
        )
        self.assertEqual(one, two)
        is_kept = any((self.folder / 'hf').rglob('part-*'))
        self.assertEqual(is_kept, end == 'arrow')

    def test_heldout_files(self):
        folder = self.add()
        texts = []
        for place in (folder, 'hf://datasets/o/t'):
            corpus = corpora.open_corpus(
                f'jsonl:{place}/text/part-0.jsonl:body',
                f'{place}/text/part-1.jsonl',
            )
            texts.append([x.text for x in corpus.heldout()])
        self.assertLen(texts[0], 200)
        self.assertEqual(*texts)

    def test_the_first_is_read_before_the_last(self):
        """Fetches of a large file no more than the reader needs."""
        folder = self.add(numbers=(60_000, 300))
        size = (folder / 'text/part-0.jsonl').stat().st_size
        corpus = corpora.open_corpus(
            'jsonl:hf://datasets/o/t/text/*.jsonl:body'
        )
        next(corpus.every())
        asked = ' '.join(path for _, path, _ in self.hub.requests)
        self.assertIn('part-0', asked)
        self.assertNotIn('part-1', asked)
        [(_, where, bytes_asked)] = [
            x for x in self.hub.requests if x[2] and x[0] == 'GET'
        ][-1:]
        self.assertIn('/cdn/', where)
        first, last = bytes_asked.removeprefix('bytes=').split('-')
        self.assertEqual(first, '0')
        self.assertLess(int(last), size - 1)

    def test_the_commit_is_the_key(self):
        """Another revision is other text, a download of the same is not."""
        def key(revision=''):
            name = f'jsonl:hf://datasets/o/t{revision}/text/*.jsonl:body'
            return corpora.open_corpus(name).fingerprint

        self.add()
        first, commit = key(), f'@{hubserver.commit_of("datasets/o/t", 0)}'
        hub.path_of('hf://datasets/o/t')
        self.assertEqual({key(), key('@main'), key(commit)}, {first})
        self.add()
        self.assertNotEqual(key(), first)
        self.assertEqual(key(commit), first)

    def test_without_a_network(self):
        """Reads what was downloaded, and refuses what was not."""
        self.add()
        name = 'jsonl:hf://datasets/o/t/text/*.jsonl:body'
        with hubserver.out_of_reach(), refused('hub_out_of_reach', 'o/t'):
            corpora.open_corpus(name)
        remote = corpora.open_corpus(name)
        expected = [x.sentences for x in remote.every()]
        hub.path_of('hf://datasets/o/t/text/*.jsonl')
        with hubserver.out_of_reach():
            local = corpora.open_corpus(name)
            self.assertEqual([x.sentences for x in local.every()], expected)
            self.assertEqual(local.fingerprint, remote.fingerprint)
            self.assertLen(corpora.chunks_of(local, 10**6), 1)

    @parameterized.parameters(
        ('o/none/*.jsonl', 'hub_repository', 'o/none'),
        ('o/t/text/*.txt', 'hub_without_file', 'text/part-0.jsonl'),
        ('o/t/text', 'hub_without_file', 'text/part-0.jsonl'),
        ('../o/t/a.jsonl', 'hub_no_data_set', 'hf://datasets/'),
    )
    def test_what_there_is_not(self, path, id, words):
        self.add()
        name = f'hf://datasets/{path}'.replace('datasets/../', '')
        with refused(id, words):
            corpora.open_corpus(f'jsonl:{name}:body')

    @parameterized.parameters('jsonl', 'parquet', 'jsonl.gz')
    def test_a_connection_that_breaks_off(self, end):
        """Once: it is read again. Always: that is said, in one line."""
        folder, kind = self.add(end), end.partition('.')[0]
        corpus = corpora.open_corpus(
            f'{kind}:hf://datasets/o/t/text/*.{end}:body'
        )
        name = f'text/part-1.{end}'
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        self.hub.cut |= {name, f'/cdn/{digest}'}
        with mock.patch('time.sleep'):
            self.assertLen([*corpus.every()], 500)
            self.hub.lost |= {name, f'/cdn/{digest}'}
            with refused('hub_download', 'hf://datasets/o/t@'):
                list(corpus.every())


class DataTest(HubCase):
    def test_paths(self):
        folder = pathlib.Path(hub.path_of('hf://datasets/o/d'))
        self.assertTrue((folder / 'data/train-2.csv').is_file())
        for path in ('data/train-1.csv', 'data/*.csv', 'data'):
            name = f'hf://datasets/o/d@main/{path}'
            self.assertEqual(hub.path_of(name), f'{folder}/{path}')

    def test_only_what_matches(self):
        hub.path_of('hf://datasets/o/d/data/train-[01].csv')
        self.assertEqual(
            self.downloaded(), ['data/train-0.csv', 'data/train-1.csv']
        )

    def test_no_such_file(self):
        name = 'hf://datasets/o/d/data/*.parquet'
        with refused('hub_without_file', name, 'data/train-0.csv'):
            hub.path_of(name)
