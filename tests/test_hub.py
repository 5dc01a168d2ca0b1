"""Names of the Hub, asked of a server on this machine."""

import contextlib
import hashlib
import io
import json
import pathlib

import numpy as np
from absl.testing import parameterized

import infoword_tf
from export import card
from infoword_tf import folders, hub
from infoword_tf.config import WEIGHTS, Config
from infoword_tf.data import corpora
from infoword_tf.training import begin
from tasks import classify
from tests import hubserver, places
from tests.eager import eagerly
from tests.refused import refused
from tests.tasks import finetuning
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


def write(folder, files):
    """Writes files by path; returns the folder."""
    for name, content in files.items():
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return pathlib.Path(folder)


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
        self.assertTrue(hub.is_name(name))
        self.assertEqual(tuple(hub.parse(name)), expected)

    @parameterized.parameters(
        'hf://', 'hf://a/b@', 'hf://datasets/', 'hf://a/b/../c', 'hf://a b/c',
    )  # fmt: skip
    def test_other_forms(self, name):
        with refused('hub_name', name, 'hf://OWNER/NAME'):
            hub.parse(name)

    def test_other_names(self):
        for name in ('runs/a', 'hfl/a', pathlib.Path('hf'), '/hf:/a'):
            self.assertFalse(hub.is_name(name))


class HubCase(places.Folder, parameterized.TestCase):
    """Test with a Hub that has a model and a data set."""

    def setUp(self):
        super().setUp()
        self.hub = self.enterContext(hubserver.serving(self.folder / 'hf'))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.hub.add('models/o/m', write(self.folder / 'm', FILES))
        self.hub.add('datasets/o/d', write(self.folder / 'd', DATA))

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
        self.hub.add('models/o/b', write(self.folder / 'b', files))
        folder = hub.folder_of('hf://o/b')
        content = (folder / 'pytorch_model.bin').read_bytes()
        self.assertEqual(content, FILES['pytorch_model.bin'])
        self.assertNotIn('tf_model.h5', self.downloaded())

    def test_revisions(self):
        changed = {**FILES, 'vocab.txt': b'c\n'}
        self.hub.add('models/o/m', write(self.folder / 'new', changed))
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
        self.hub.add('models/o/two', write(self.folder / 'two', files))
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
    )
    def test_what_there_is_not(self, name, id, words):
        with refused(id, 'o/', words):
            hub.folder_of(name)

    def test_without_permission(self):
        self.hub.gated.add('models/o/m')
        with refused('hub_gated', 'hf://o/m', 'HF_TOKEN'):
            hub.folder_of('hf://o/m')

    def test_without_weights(self):
        files = {'config.json': b'{}', 'model.gguf': b'x'}
        self.hub.add('models/o/g', write(self.folder / 'g', files))
        with refused('hub_without_weights', 'hf://o/g', 'model.gguf'):
            hub.folder_of('hf://o/g')

    def test_without_a_network(self):
        folder = hub.folder_of('hf://o/m')
        with hubserver.out_of_reach():
            self.assertEqual(hub.folder_of('hf://o/m'), folder)
            commit = hubserver.commit_of('models/o/m', 0)
            with refused('hub_out_of_reach', 'hf://o/m@v2', commit):
                hub.folder_of('hf://o/m@v2')
            with refused('hub_out_of_reach', 'hf://o/n', 'nothing of it'):
                hub.folder_of('hf://o/n')


class LoadTest(HubCase):
    def test_vectors_are_those_of_the_folder(self):
        self.enterContext(eagerly())
        source = public.write(self.folder / 'bert', 'bert')
        self.hub.add('models/o/bert', source)
        vectors = []
        for name in ('hf://o/bert', source):
            workdir = folders.workdir_of(name, begin.convert)
            loaded = infoword_tf.load(workdir)
            vectors.append(loaded.encode(['a cab', 'bad'], progress=False))
        np.testing.assert_array_equal(*vectors)
        self.assertTrue((workdir / WEIGHTS).is_file())

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
        self.hub.add('models/o/lora', write(self.folder / 'lora', files))
        named = {'base_model_name_or_path': 'hf://o/bert@v2'}
        local = write(self.folder / 'here', {
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

    def test_a_corpus(self):
        lines = [f'{{"body": "Some words of {i}."}}\n' for i in range(40)]
        files = {'text/a.jsonl': ''.join(lines).encode()}
        self.hub.add('datasets/o/t', write(self.folder / 't', files))
        name = 'jsonl:hf://datasets/o/t/text/*.jsonl:body'
        corpus = corpora.open_corpus(hub.with_paths(name))
        local = f'jsonl:{self.folder}/t/text/*.jsonl:body'
        expected = corpora.open_corpus(local)
        self.assertEqual(
            [x.sentences for x in corpus.train()],
            [x.sentences for x in expected.train()],
        )

    def test_figures_are_those_of_the_files(self):
        """Results of a command are equal; flags.txt has the typed names."""
        figures = []
        for number, folder in enumerate(
            ('hf://datasets/o/d', self.folder / 'd')
        ):
            workdir = self.folder / f'run{number}'
            done = finetuning.run(
                classify, f'--init={finetuning.init()}',
                f'--train={folder}/data/train-0.csv', f'--workdir={workdir}',
                f'--dev={folder}/data/train-1.csv', '--epochs=1',
            )  # fmt: skip
            figures.append(finetuning.last_line(done))
            typed = (workdir / 'flags.txt').read_text()
            self.assertIn(f'--train={folder}/data/train-0.csv', typed)
        one, two = ({**x, 'seconds': 0} for x in figures)
        self.assertEqual(one, two)
