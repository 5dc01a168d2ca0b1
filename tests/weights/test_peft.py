"""Folders of PEFT come in merged, and workdirs of adapters go out."""

import json
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.config import WEIGHTS, AdapterConfig
from infoword_tf.model import Model
from infoword_tf.workdir import Workdir
from tests import places
from tests.oracles import frozen, huggingface, peft
from tests.refused import refused
from tests.weights import folders

NEAR = 1e-5
# By case, the parts of kernels whose adapters go out.
OUT = (
    ('bert_classes', 'query_value', 'SEQ_CLS'),
    ('qwen3_classes', 'all', 'SEQ_CLS'),
    ('bert', 'attention', None),
)


def setUpModule():
    places.make()


def of(case, part):
    """Returns what PEFT said of a case, from JSON."""
    arrays = frozen.read(frozen.FOLDER / 'peft.npz')
    return json.loads(arrays[f'{case}/{part}'].tobytes())


def write(folder, case, **changes):
    """A folder of PEFT, over a folder of the case's model beside it."""
    root = pathlib.Path(folder)
    folders.write(root / 'base', case)
    (root / 'adapters').mkdir()
    config = of(case, 'config')
    config['base_model_name_or_path'] = str(root / 'base')
    files.write_json(
        root / 'adapters' / 'adapter_config.json', {**config, **changes}
    )
    drawn = {
        name: huggingface.weight(name, tuple(shape))
        for name, shape in of(case, 'weights').items()
    }
    files.write_tensors(
        root / 'adapters' / 'adapter_model.safetensors', drawn, {'format': 'pt'}
    )
    return root / 'adapters'


def answer(loaded, case):
    """Logits, or states of the last layer."""
    kind = huggingface.CASES[case][1]['model_type']
    arrays = huggingface.inputs(kind)
    ids = tf.constant(arrays['input_ids'], tf.int32)
    if loaded.rows_that('classes'):
        lengths = tf.constant([huggingface.T, huggingface.PADDED])
        second = [4, 4] if 'token_type_ids' in arrays else None
        second = second and tf.constant(second)
        return loaded.classes.class_scores(ids, lengths, second)
    return loaded.states(ids, tf.constant([huggingface.T] * 2))


class InTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(*zip(peft.CASES))
    def test_merged(self, case):
        source = write(self.folder, case)
        convert.convert(source, self.folder / 'workdir')
        loaded = infoword_tf.load(self.folder / 'workdir')
        arrays = frozen.read(frozen.FOLDER / 'peft.npz')
        expected = arrays[f'{case}/answer']
        np.testing.assert_allclose(answer(loaded, case), expected, atol=NEAR)

    @parameterized.parameters(
        ({'base_model_name_or_path': 'org/model'}, 'no_base_of_adapter',
         'org/model'),
        ({'peft_type': 'IA3'}, 'value_not_convertible', 'IA3'),
        ({'use_dora': True}, 'value_not_convertible', 'use_dora'),
        ({'alpha_pattern': {'h.0.attn': 9}}, 'value_not_convertible',
         'alpha_pattern'),
        ({'base_model_name_or_path': 'gpt'}, 'adapter_of_other_model',
         'h.0.attn'),
        ({'fan_in_fan_out': False}, 'adapter_of_other_shape', '(48, 16)'),
    )  # fmt: skip
    def test_complaints(self, changes, id, value):
        source = write(self.folder, 'gpt2', **changes)
        folders.write(source / 'gpt', 'bert')
        with refused(id, value):
            convert.convert(source, self.folder / 'workdir')


    def test_a_head_of_other_classes(self):
        source = write(self.folder, 'bert_classes')
        path = source / 'adapter_model.safetensors'
        tensors = files.read_tensors(path)
        for part, shape in (('weight', (2, 16)), ('bias', (2,))):
            name = f'base_model.model.classifier.{part}'
            self.assertIn(name, tensors)
            tensors[name] = huggingface.weight(name, shape)
        files.write_tensors(path, tensors, {'format': 'pt'})
        convert.convert(source, self.folder / 'workdir')
        loaded = infoword_tf.load(self.folder / 'workdir')
        self.assertEqual(loaded.config.labels, ('LABEL_0', 'LABEL_1'))
        self.assertEqual(loaded.classify(['a']).shape, (1, 2))


def write_workdir(root, case, where='all'):
    """A workdir of adapters with drawn weights; its base is ROOT/base."""
    folders.write(root / 'public', case)
    convert.convert(root / 'public', root / 'base')
    bare = Workdir.bare(root / 'base')
    digest = files.digest_of(root / 'base' / WEIGHTS)
    adapter = AdapterConfig(
        'lora', 2, 3.0, where, 'float32', str(root / 'base'), digest
    )
    config = bare.config.replace(adapter=adapter)
    model = Model(config, bare.tokenizer.specials, auxiliaries=False)
    tensors = {
        path: huggingface.weight(path, tuple(x.shape))
        for path, x in model.exported.items()
    }
    if case == 'qwen3_classes':  # there it has no place
        tensors['objectives/label/bias'] *= 0
    workdir = root / 'workdir'
    workdir.mkdir()
    config.write(workdir)
    bare.tokenizer.write(workdir / bare.tokenizer.file)
    files.write_tensors(workdir / WEIGHTS, tensors)
    return workdir


class OutTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(*OUT)
    def test_out_and_in(self, case, where, kind):
        workdir = write_workdir(self.folder, case, where)
        out = self.folder / 'out'
        convert.write(workdir, out, 'peft')
        values = files.read_json(out / 'adapter_config.json')
        self.assertEqual((values['r'], values['lora_alpha']), (2, 3.0))
        layers = 2 * {'query_value': 2, 'attention': 4, 'all': 7}[where]
        self.assertLen(values['target_modules'], layers)
        self.assertEqual(values['task_type'], kind)
        self.assertContainsSubset(
            {f'{module}.weight' for module in values['target_modules']},
            [*folders.state(case)],
        )
        values['base_model_name_or_path'] = str(self.folder / 'public')
        files.write_json(out / 'adapter_config.json', values)
        convert.convert(out, self.folder / 'again')
        expected = answer(infoword_tf.load(workdir), case)
        actual = answer(infoword_tf.load(self.folder / 'again'), case)
        np.testing.assert_allclose(actual, expected, atol=NEAR)

    def test_what_does_not_go_out(self):
        workdir = write_workdir(self.folder, 'modern_classes')
        with refused('adapters_of_parts', 'attn.Wqkv', 'qkv_kernel'):
            convert.write(workdir, self.folder / 'out', 'peft')
        with refused('workdir_without_adapters', self.folder / 'base'):
            convert.write(self.folder / 'base', self.folder / 'out', 'peft')
