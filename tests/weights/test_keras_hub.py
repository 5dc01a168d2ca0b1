"""Presets of KerasHub: what it answers, we answer."""

import pathlib
import shutil

import h5py
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files, folders
from infoword_tf.config import WEIGHTS
from infoword_tf.encoders import Inputs
from tests import places
from tests.eager import eagerly
from tests.near import near, same
from tests.oracles import frozen, keras_hub
from tests.refused import refused

NEAR = 1e-5
# Names of the oracle's folders: class and task.
FOLDERS = tuple(
    f'{case}/{task}'
    for case in keras_hub.CASES
    for task in ('backbone', 'TextClassifier', 'MaskedLM')
    if task == 'backbone' or not case.startswith('electra')
)
POOLERS = {
    'bert': 'layers/dense/', 'electra_wide': 'layers/dense/',
    'albert': 'layers/dense_1/', 'electra': 'layers/dense_1/',
}  # fmt: skip


def arrays_of(folder):
    """The weights of a backbone, by their names in the file."""
    arrays = {}
    with h5py.File(folder / 'model.weights.h5') as file:
        file.visititems(
            lambda name, node: arrays.update({name: node[()]})
            if isinstance(node, h5py.Dataset) else None
        )  # fmt: skip
    return arrays


class KerasHubTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = places.make(cls.addClassCleanup, cache=False)
        cls.known = frozen.read(keras_hub.FILE)

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def source(self, name):
        """A folder of the oracle, made once."""
        root = self.root / name / 'source'
        return root if root.exists() else keras_hub.unpacked(root, name)

    def workdir(self, name):
        """The workdir of a folder, made once."""
        workdir = self.root / name / 'workdir'
        if not workdir.exists():
            convert.convert(self.source(name), workdir)
        return workdir

    def new_folder(self):
        """A path where nothing is yet."""
        return pathlib.Path(self.create_tempdir().full_path) / 'new'

    def copied(self, name):
        """A copy of a folder, to be changed."""
        return shutil.copytree(self.source(name), self.new_folder())

    def test_the_oracle_has_these_folders(self):
        names = {'/'.join(key.split('/')[:2]) for key in self.known}
        self.assertEqual(names, {*FOLDERS})

    @parameterized.parameters(*FOLDERS)
    def test_ids_states_and_scores_are_those_of_keras_hub(self, name):
        loaded = infoword_tf.load(self.workdir(name))
        rows = {'backbone': [], 'TextClassifier': ['label'],
                'MaskedLM': ['mlm']}  # fmt: skip
        self.assertEqual([*loaded.config.rows], rows[name.split('/')[1]])
        for i, text in enumerate(keras_hub.TEXTS):
            expected = self.known[f'{name}/ids/{i}']
            tokens = loaded.tokenizer.tokenize(tf.constant([text]))
            ids = loaded.template.one(tokens, 48).to_tensor()
            same(ids[0], expected)
            states = loaded.encoder(Inputs(ids)).states
            actual = states
            if 'mlm' in loaded.config.rows:
                row = loaded.model.objectives['mlm']
                actual = row.token_scores(states, None)
            elif 'label' in loaded.config.rows:
                actual = loaded.classes.class_scores(
                    ids, tf.constant([ids.shape[1]]), None
                )
            near(actual[0], self.known[f'{name}/answer/{i}'], atol=NEAR)

    def test_a_preset_is_loaded_as_it_is(self):
        folder = self.copied('roberta/TextClassifier')
        self.assertTrue(folders.is_public(folder))
        workdir = folders.workdir_of(folder, convert.convert)
        self.assertEqual([*infoword_tf.load(folder).config.rows], ['label'])
        (folder / 'other.h5').write_bytes(b'')
        self.assertEqual(folders.workdir_of(folder), workdir)
        masked = self.source('roberta/MaskedLM')
        shutil.copy(masked / 'task.weights.h5', folder)
        again = folders.workdir_of(folder, convert.convert)
        self.assertNotEqual(again, workdir)
        self.assertEqual([*infoword_tf.load(again).config.rows], ['mlm'])

    def refuses(self, code, folder, *parts):
        workdir = self.new_folder()
        with refused(code, *parts):
            convert.convert(folder, workdir)
        self.assertFalse(workdir.exists())

    @parameterized.parameters(
        ('config.json', {'class_name': 'GemmaBackbone'}, {},
         'unknown_preset', 'GemmaBackbone'),
        ('config.json', {}, {'hidden_dim': None},
         'preset_lacks_key', 'hidden_dim'),
        ('config.json', {}, {'num_groups': 2},
         'value_not_convertible', 'num_groups'),
        ('tokenizer.json', {}, {'split': False},
         'value_not_convertible', 'split'),
        ('tokenizer.json', {}, {'suffix_indicator': '@@'},
         'value_not_convertible', 'suffix_indicator'),
        ('task.json', {}, {'activation': 'tanh'}, 'preset_activation', 'tanh'),
        ('task.json', {}, {'num_classes': None}, 'preset_activation', 'None'),
        ('task.json', {}, {'hidden_dim': 9}, 'preset_hidden_dim', '9', '8'),
    )  # fmt: skip
    def test_what_has_no_place(self, file, changes, settings, code, *parts):
        folder = self.copied('distil_bert/TextClassifier')
        described = files.read_json(folder / file) | changes
        for key, value in settings.items():
            described['config'][key] = value
            if value is None:
                del described['config'][key]
        files.write_json(folder / file, described)
        self.refuses(code, folder, file, *parts)

    @parameterized.parameters('model.weights.h5', 'task.weights.h5')
    def test_damaged_weights(self, file):
        folder = self.copied('distil_bert/TextClassifier')
        path = folder / file
        path.write_bytes(path.read_bytes()[:1000])
        self.refuses('preset_weights_damaged', folder, file)

    @parameterized.parameters(
        'model.weights.h5', 'assets/tokenizer/vocabulary.txt'
    )
    def test_files_that_are_lacking(self, file):
        folder = self.copied('distil_bert/TextClassifier')
        (folder / file).unlink()
        with self.assertRaisesRegex(FileNotFoundError, file):
            convert.convert(folder, self.new_folder())

    @parameterized.parameters(
        ('sigmoid', 3, 'label', True), ('linear', 1, None, None)
    )
    def test_what_a_classifier_answers(self, activation, count, row, several):
        folder = self.copied('bert/TextClassifier')
        described = files.read_json(folder / 'task.json')
        described['config'] |= {
            'activation': activation, 'num_classes': count
        }  # fmt: skip
        files.write_json(folder / 'task.json', described)
        if count == 1:
            with h5py.File(folder / 'task.weights.h5', 'a') as file:
                for x in ('layers/dense/vars/0', 'layers/dense/vars/1'):
                    array = file[x][..., :1]
                    del file[x]
                    file[x] = array
        loaded = infoword_tf.load(folders.workdir_of(folder, convert.convert))
        ((actual, about),) = loaded.config.rows.items()
        self.assertEqual(actual == 'label', row == 'label')
        self.assertEqual(about.settings.get('multilabel'), several)

    @parameterized.parameters(*keras_hub.CASES)
    def test_what_is_written_is_what_was_read(self, case):
        """`make oracles` loads these folders with KerasHub."""
        source, output = self.source(f'{case}/backbone'), self.new_folder()
        convert.write(self.workdir(f'{case}/backbone'), output, 'keras_hub')
        actual, expected = map(arrays_of, (output, source))
        self.assertEqual({*actual}, {*expected})
        pooler = POOLERS.get(case, 'none')
        for name in expected:
            if name.startswith(pooler):  # no row has read it
                self.assertLess(np.abs(actual[name]).max(), 0.2)
                self.assertEqual(actual[name].any(), name.endswith('0'))
            else:
                same(actual[name], expected[name], name)
        if case == 'electra_wide':  # the same layers as BERT's
            return
        for file in ('config.json', 'tokenizer.json'):
            actual, expected = (
                files.read_json(x / file) for x in (output, source)
            )
            settings = actual.pop('config')
            theirs = expected.pop('config')
            self.assertEqual(actual, expected)
            for key, value in settings.items():
                default = key == 'split_on_cjk' or None
                self.assertEqual(value, theirs.get(key, default), key)
        for path in (source / 'assets').rglob('*.*'):
            written = output / path.relative_to(source)
            if path.suffix == '.json':
                self.assertEqual(files.read_json(written),
                                 files.read_json(path))  # fmt: skip
            elif case != 'deberta_v3':  # whose [MASK] is now in the model
                self.assertEqual(written.read_bytes().rstrip(),
                                 path.read_bytes().rstrip())  # fmt: skip

    def test_a_pooler_goes_out_with_its_backbone(self):
        output = self.new_folder()
        workdir = self.workdir('bert/TextClassifier')
        convert.write(workdir, output, 'keras_hub')
        expected = arrays_of(self.source('bert/TextClassifier'))
        for name, array in arrays_of(output).items():
            same(array, expected[name], name)

    def changed(self, case, arguments, tensors=None):
        """A copy of a workdir with other arguments, and other weights."""
        workdir = self.new_folder()
        shutil.copytree(self.workdir(case), workdir)
        described = files.read_json(workdir / 'config.json')
        described['encoder']['arguments'] |= arguments
        files.write_json(workdir / 'config.json', described)
        weights = files.read_tensors(workdir / WEIGHTS) | (tensors or {})
        files.write_tensors(workdir / WEIGHTS, weights)
        return workdir

    def test_positions_hold_the_only_segment(self):
        known = arrays_of(self.source('bert/backbone'))
        segment = known['layers/embedding/vars/0'][:1]
        workdir = self.changed(
            'bert/backbone', {'segments': 1, 'activation': 'gelu_erf'},
            {'encoder/segment_embeddings': segment},
        )  # fmt: skip
        output = self.new_folder()
        convert.write(workdir, output, 'keras_hub')
        described = files.read_json(output / 'config.json')
        self.assertEqual(described['class_name'], 'DistilBertBackbone')
        self.assertNotIn('num_segments', described['config'])
        place = 'token_and_position_embedding/position_embedding'
        same(
            arrays_of(output)[f'layers/{place}/vars/0'],
            known['layers/position_embedding/vars/0'] + segment,
        )

    @parameterized.parameters(
        (True, {}, True), (False, {}, False),
        (True, {'strip_accents': False}, False),
    )  # fmt: skip
    def test_accents(self, lower_case, options, strips):
        """A tokenizer trained here strips them where letters are lower."""
        workdir, output = self.changed('bert/backbone', {}), self.new_folder()
        described = files.read_json(workdir / 'config.json')
        described['tokenizer'] |= {
            'lower_case': lower_case, 'options': options
        }  # fmt: skip
        files.write_json(workdir / 'config.json', described)
        convert.write(workdir, output, 'keras_hub')
        settings = files.read_json(output / 'tokenizer.json')['config']
        self.assertEqual(settings['lowercase'], lower_case)
        self.assertEqual(settings['strip_accents'], strips)

    def test_a_vocabulary_with_other_special_tokens(self):
        workdir, output = self.changed('bert/backbone', {}), self.new_folder()
        path = workdir / 'vocab.txt'
        path.write_text(path.read_text().replace('[MASK]', '[BLANK]'))
        with self.assertRaisesRegex(ValueError, 'BLANK|MASK'):
            convert.write(workdir, output, 'keras_hub')
        self.assertFalse(output.exists())

    @parameterized.parameters(
        ({'activation': 'relu'}, 'activation', 'relu', 'gelu_tanh'),
        ({'epsilon': 1e-6}, 'epsilon', '1e-06', '1e-12'),
    )
    def test_encoders_without_a_preset(self, changes, *parts):
        workdir = self.changed('bert/backbone', changes)
        output = self.new_folder()
        with refused('no_preset', *parts):
            convert.write(workdir, output, 'keras_hub')
        self.assertFalse(output.exists())
