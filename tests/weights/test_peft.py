"""Folders of PEFT come in merged, and workdirs of adapters go out."""

import contextlib
import io
import json
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.config import WEIGHTS, AdapterConfig
from infoword_tf.folders import ADAPTER, is_public
from infoword_tf.model import Model
from infoword_tf.weights import peft as subject
from infoword_tf.workdir import Workdir
from tests import places
from tests.eager import eagerly
from tests.oracles import frozen, huggingface, peft
from tests.refused import refused
from tests.weights import folders

NEAR = 1e-5
# By case, the parts of kernels whose adapters go out.
OUT = (
    ('bert_classes', 'query_value', 'SEQ_CLS'),
    ('qwen3_classes', 'all', 'SEQ_CLS'),
    ('bert', 'attention', None),
    ('bert_tags', 'query_value', 'TOKEN_CLS'),
    ('bert_spans', 'query_value', 'QUESTION_ANS'),
)


def setUpModule():
    places.make()


def of(*path):
    """Returns what PEFT said of a case, from JSON."""
    arrays = frozen.read(frozen.FOLDER / 'peft.npz')
    return frozen.from_bytes(arrays['/'.join(path)])


def write(folder, case, **changes):
    """A folder of PEFT, over a folder of the case's model beside it.

    What the model is for is said by the adapters alone.
    """
    root = pathlib.Path(folder)
    task = {'architectures': ['Model']}
    if case == 'bert_tags':
        task |= {'id2label': {'0': 'no', '1': 'yes'}}
    folders.write(root / 'base', case, **task)
    (root / 'adapters').mkdir()
    config = of(case, 'config')
    config['base_model_name_or_path'] = str(root / 'base')
    adapters = root / 'adapters'
    files.write_json(adapters / 'adapter_config.json', {**config, **changes})
    drawn = {
        name: huggingface.weight(name, tuple(shape))
        for name, shape in of(case, 'weights').items()
    }
    folders.save(adapters / 'adapter_model.safetensors', drawn)
    return adapters


def answer(loaded, case):
    """Logits of classes, or states of the last layer."""
    kind = huggingface.CASES[case][1]['model_type']
    arrays = huggingface.inputs(kind)
    ids = tf.constant(arrays['input_ids'], tf.int32)
    real = arrays.get('attention_mask', np.ones_like(ids))
    lengths = tf.constant(real.sum(axis=1), tf.int32)
    segments = arrays.get('token_type_ids')
    if loaded.rows_that('classes'):
        second = None if segments is None else tf.constant([4, 4])
        return loaded.classes.class_scores(ids, lengths, second)
    segments = None if segments is None else tf.constant(segments, tf.int32)
    states = loaded.states(ids, lengths, segment_ids=segments)
    objectives = loaded.model.objectives
    if 'tag' in objectives:
        states = objectives['tag'].scores_of(states, None, None)
    elif 'span' in objectives:
        states = tf.stack(objectives['span'].ends(states), -1)
    return states * real[..., None]


class InTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(*zip(peft.CASES))
    def test_merged(self, case):
        source = write(self.folder, case)
        convert.convert(source, self.folder / 'workdir')
        loaded = infoword_tf.load(self.folder / 'workdir')
        arrays = frozen.read(frozen.FOLDER / 'peft.npz')
        expected = arrays[f'{case}/answer']
        np.testing.assert_allclose(answer(loaded, case), expected, atol=NEAR)
        rows = {'bert_tags': ['tag'], 'bert_spans': ['span'], 'gpt2': ['gpt'],
                'qwen3_lm': []}  # fmt: skip
        self.assertEqual([*loaded.model.objectives], rows.get(case, ['label']))
        if case == 'bert_tags':
            self.assertLen(loaded.config.labels, 3)

    def test_every_key_of_the_library(self):
        """It is followed, without effect, or refused beside its default."""
        source = write(self.folder, 'gpt2')
        self.assertEqual({*of('keys')}, {*subject.KEYS})
        inits = 'pissa pissa_niter_4 olora corda eva loftq'.split()
        for key, usual in of('keys').items():
            if not isinstance(known := subject.KEYS[key], tuple):
                continue
            self.assertIn('LORA' if key == 'peft_type' else usual, known, key)
            for value in inits if key == 'init_lora_weights' else ['other']:
                folders.change(source / ADAPTER, **{key: value})
                named = f'{key} {value!r}', 'merge_and_unload'
                with refused('value_not_convertible', *named):
                    subject.read(self.folder / 'base', source)
            folders.change(source / ADAPTER, **{key: known[0]})

    @parameterized.parameters(
        ({'base_model_name_or_path': 'org/model'}, 'no_base_of_adapter',
         'org/model'),
        ({'base_model_name_or_path': '../adapters'}, 'no_base_of_adapter',
         'adapters'),
        ({'base_model_name_or_path': 'gpt'}, 'adapter_of_other_model',
         'h.0.attn'),
        ({}, 'unknown_adapter_weight', 'merge_and_unload'),
        ({}, 'adapter_of_other_shape', '(16, 40)'),
    )  # fmt: skip
    def test_complaints(self, changes, id, value):
        source = write(self.folder, 'gpt2', **changes)
        folders.write(source / 'gpt', 'bert')
        path, first = source / subject.WEIGHTS, 'base_model.model.h.0.attn'
        tensors = files.read_tensors(path)
        if id == 'unknown_adapter_weight':
            tensors['base_model.model.wte.lora_embedding_A'] = np.ones((2, 9))
        if id == 'adapter_of_other_shape':
            tensors[f'{first}.c_attn.lora_B.weight'] = np.ones((40, 2))
        folders.save(path, tensors)
        with refused(id, value):
            convert.convert(source, self.folder / 'workdir')

    def test_what_a_kernel_is_decides_how_it_lies(self):
        """Whatever `fan_in_fan_out` says; and from a pickle as well."""
        source = write(self.folder, 'gpt2', fan_in_fan_out=False, later=1)
        tensors = files.read_tensors(source / subject.WEIGHTS)
        (source / subject.WEIGHTS).unlink()
        folders.write_pickled(source / subject.PICKLED, tensors)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            convert.convert(source, self.folder / 'workdir')
        self.assertRegex(printed.getvalue(), 'nothing here knows later of')
        actual = answer(infoword_tf.load(self.folder / 'workdir'), 'gpt2')
        arrays = frozen.read(frozen.FOLDER / 'peft.npz')
        np.testing.assert_allclose(actual, arrays['gpt2/answer'], atol=NEAR)

    def test_a_folder_of_sentence_transformers(self):
        """Adapters lie in its root; it says pooling and has a tokenizer."""
        source = write(self.folder, 'bert_classes')
        convert.convert(source, self.folder / 'plain')
        folders.modules(source, 'Transformer', 'Pooling')
        folders.pooling(source, pooling_mode='cls')
        words = folders.vocabulary()
        words[-1] = 'a!'
        (source / 'vocab.txt').write_text('\n'.join(words))
        limit = {'model_max_length': 7}
        files.write_json(source / 'tokenizer_config.json', limit)
        self.assertTrue(is_public(source))
        convert.convert(source, self.folder / 'workdir')
        plain, loaded = (infoword_tf.load(self.folder / x)
                         for x in ('plain', 'workdir'))  # fmt: skip
        with eagerly():
            actual = loaded.encode(['a cab'])
            expected = plain.encode(['a cab'], pooling='cls')
        np.testing.assert_allclose(actual, expected, atol=NEAR)
        self.assertEqual(loaded.config.max_length, 7)
        self.assertIn('a!', loaded.tokenizer.vocabulary)

    def test_a_head_of_other_classes(self):
        source = write(self.folder, 'bert_classes')
        path = source / 'adapter_model.safetensors'
        tensors = files.read_tensors(path)
        for part, shape in (('weight', (2, 16)), ('bias', (2,))):
            name = f'base_model.model.classifier.{part}'
            self.assertIn(name, tensors)
            tensors[name] = huggingface.weight(name, shape)
        folders.save(path, tensors)
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
        out, base = (self.folder / name for name in ('out', 'public'))
        (workdir / 'flags.txt').write_text(f'--freeze\n--init={base}\n')
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
        self.assertEqual(values['base_model_name_or_path'], str(base))
        convert.convert(out, self.folder / 'again')
        expected = answer(infoword_tf.load(workdir), case)
        actual = answer(infoword_tf.load(self.folder / 'again'), case)
        np.testing.assert_allclose(actual, expected, atol=NEAR)

    def test_what_does_not_go_out(self):
        """Nor the base, where the run began with a workdir."""
        workdir = write_workdir(self.folder / 'bert', 'bert_classes')
        (workdir / 'flags.txt').write_text('--init=../base\n')
        config = json.loads((workdir / 'config.json').read_text())
        config['rows']['label']['settings'] |= {
            'multilabel': True, 'pooler': 'relu'
        }  # fmt: skip
        files.write_json(workdir / 'config.json', config)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            convert.write(workdir, self.folder / 'bert' / 'out', 'peft')
        self.assertRegex(
            printed.getvalue(),
            r'the row label \(there it has --label.pooler=tanh\); the base: ',
        )
        workdir = write_workdir(self.folder, 'modern_classes')
        with refused('adapters_of_parts', 'attn.Wqkv', 'qkv_kernel'):
            convert.write(workdir, self.folder / 'out', 'peft')
        with refused('workdir_without_adapters', self.folder / 'base'):
            convert.write(self.folder / 'base', self.folder / 'out', 'peft')
