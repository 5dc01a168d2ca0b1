"""Presets of KerasHub: what it answers, we answer."""

import pathlib
import shutil

import h5py
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files, folders
from infoword_tf.encoders import Inputs
from tests import places
from tests.eager import eagerly
from tests.oracles import frozen, keras_hub
from tests.refused import refused

NEAR = 1e-5
# The norm of this head has the encoder's epsilon here, there 1e-5; states of
# these models are small.
NEAR_OTHER_EPSILON = 1e-2
# Names of the oracle's folders: class and task.
FOLDERS = tuple(
    f'{case}/{task}'
    for case in keras_hub.CASES
    for task in ('backbone', 'TextClassifier', 'MaskedLM')
    if task == 'backbone' or not case.startswith('electra')
)


def answers():
    """Everything in keras_hub.npz."""
    return frozen.read(keras_hub.FILE)


class KerasHubTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = places.make(cls.addClassCleanup, cache=False)
        cls.known = answers()

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def source(self, name):
        """A folder of the oracle, made once."""
        root = self.root / name / 'source'
        start = f'{name}/file/'
        for key in self.known if not root.exists() else ():
            if key.startswith(start):
                path = root / key.removeprefix(start)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.known[key].tobytes())
        return root

    def workdir(self, name):
        """The workdir of a folder, made once."""
        workdir = self.root / name / 'workdir'
        if not workdir.exists():
            convert.convert(self.source(name), workdir)
        return workdir

    def copied(self, name):
        """A copy of a folder, to be changed."""
        folder = pathlib.Path(self.create_tempdir().full_path) / 'preset'
        return pathlib.Path(shutil.copytree(self.source(name), folder))

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
            np.testing.assert_array_equal(ids[0], expected)
            states = loaded.encoder(Inputs(ids)).states
            actual = states
            if 'mlm' in loaded.config.rows:
                row = loaded.model.objectives['mlm']
                actual = row.token_scores(states, None)
            elif 'label' in loaded.config.rows:
                actual = loaded.classes.class_scores(
                    ids, tf.constant([ids.shape[1]]), None
                )
            epsilon = loaded.encoder.arguments['epsilon']
            other = 'mlm' in loaded.config.rows and epsilon != 1e-5
            np.testing.assert_allclose(
                actual[0], self.known[f'{name}/answer/{i}'],
                atol=NEAR_OTHER_EPSILON if other else NEAR,
            )  # fmt: skip

    def test_a_preset_is_loaded_as_it_is(self):
        folder = self.copied('roberta/TextClassifier')
        self.assertTrue(folders.is_public(folder))
        workdir = folders.workdir_of(folder, convert.convert)
        self.assertEqual(
            [*infoword_tf.load(folder).config.rows], ['label']
        )
        (folder / 'other.h5').write_bytes(b'')
        self.assertEqual(folders.workdir_of(folder), workdir)
        shutil.copy(
            self.source('roberta/MaskedLM') / 'task.weights.h5', folder
        )
        again = folders.workdir_of(folder, convert.convert)
        self.assertNotEqual(again, workdir)
        self.assertEqual([*infoword_tf.load(again).config.rows], ['mlm'])

    def refuses(self, code, folder, *parts):
        workdir = pathlib.Path(self.create_tempdir().full_path) / 'workdir'
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
        workdir = pathlib.Path(self.create_tempdir().full_path) / 'workdir'
        with self.assertRaisesRegex(FileNotFoundError, file):
            convert.convert(folder, workdir)

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
        (actual,) = loaded.config.rows
        if row is None:
            self.assertNotEqual(actual, 'label')
        else:
            settings = loaded.config.rows[row].settings
            self.assertEqual(settings['multilabel'], several)
