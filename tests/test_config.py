"""The format of config.json, and older versions of it."""

import dataclasses
import json

from absl.testing import absltest, parameterized

from infoword_tf.config import (
    EXPORTED,
    AdapterConfig,
    Config,
    DenseConfig,
    EncoderConfig,
    FlowConfig,
    Layout,
    RowConfig,
    TaskConfig,
    TeacherConfig,
    TokenizerConfig,
    read_exported,
)
from infoword_tf.critics.cross import CrossConfig
from infoword_tf.critics.late import LateConfig, LateCritic
from infoword_tf.critics.lexical import LexicalConfig
from infoword_tf.encoders import ENCODERS
from tests import places
from tests.refused import refused

# No value is a default.
WHOLE = {
    'encoder': EncoderConfig('lookup', {'width': 8}),
    'rows': {'mlm': RowConfig(0.5, {'transform': True})}, 'max_length': 32,
    'tokenizer': TokenizerConfig('words', False, {'x': 1}),
    'precision': 'mixed_bfloat16', 'masking': 'words', 'mask_share': 0.3,
    'memory_length': 4, 'layout': Layout(
        ('cls',), ('sep',), 2, True, ('sep', 'sep'), 1, (('a',), ('b', 'c'))),
    'pooling': 'cls', 'similarity': 'dot', 'dense': (
        DenseConfig(4, 'tanh', False), FlowConfig(4, 2, 1, 8, 'reversal')),
    'dims': 3, 'normalize': True, 'prompts': {'query': 'q'}, 'prompt': 'query',
    'critics': {'late': LateConfig(
        (DenseConfig(4, 'identity'),), True, True, (',',), False, True,
    ).written(), 'lexical': LexicalConfig('token', True, 'relu', 5).written(),
        'cross': CrossConfig('tanh').written()},
    'query_length': 8, 'passage_length': 16,
    'labels': ('a', 'b'), 'null_threshold': 0.5, 'task': TaskConfig(
        'classify', 'label', True, ('f1',), {'train': 'a'}, {'train': 3}),
    'teacher': TeacherConfig('t', 'd', 2, 9, 'f1', 0.5),
    'adapter': AdapterConfig('lora', 2, 4.0, 'all', 'float32', 'b', 'd'),
    'vocabulary': 'v', 'replicas': 2, 'run': {'steps': 3},
}  # fmt: skip


def version_2(name, arguments, gelu):
    """Returns a config as version 2 wrote it."""
    return {
        'version': 2,
        'encoder': {'name': name, 'arguments': arguments},
        'rows': {'label': {'weight': 1.0, 'settings': {'pooler': 'tanh'}}},
        'max_length': 32,
        'tokenizer': {'kind': 'words', 'lower_case': False},
        'run': {'gelu': gelu, 'clamp': None, 'label.pooler': 'tanh'},
    }


class Version2Test(parameterized.TestCase):
    @parameterized.parameters(
        ('transformer', {'gelu': 'tanh'}, 'tanh', 'gelu_tanh'),
        ('transformer', {'gelu': 'erf'}, 'erf', 'gelu_erf'),
        ('transformer', {'gelu': 'relu'}, 'relu', 'relu'),
        ('relative', {'activation': 'gelu_erf'}, 'gelu_erf', 'gelu_erf'),
        ('lookup', {}, None, None),
    )
    def test_an_activation_is_called_so(self, name, arguments, gelu, expected):
        values = version_2(name, {'width': 8, **arguments}, gelu)
        actual = Config.from_json(values)
        more = {'activation': expected} if expected else {}
        self.assertEqual(actual.encoder.arguments, {'width': 8, **more})
        self.assertEqual(
            actual.run,
            {'activation': expected, 'clamp': None, 'label.pooler': 'tanh'},
        )
        self.assertEqual(actual.rows['label'].settings, {'pooler': 'tanh'})
        self.assertEqual(actual.to_json()['version'], 4)
        self.assertEqual(Config.from_json(actual.to_json()), actual)
        ENCODERS[name](**actual.encoder.arguments)

    @parameterized.parameters(1, 5, None, '2')
    def test_other_versions(self, version):
        values = version_2('transformer', {}, None) | {'version': version}
        with refused('config_of_other_version', f'version {version}'):
            Config.from_json(values)

    def test_without_an_encoder(self):
        values = version_2('transformer', {}, None)
        del values['encoder']['arguments']
        with refused('broken_config', 'version 4'):
            Config.from_json(values)


class Version3Test(parameterized.TestCase):
    """Had a field for the head of each critic."""

    @parameterized.parameters(
        ({}, {'cosine': None}),
        ({'critic': 'cosine', 'late': None, 'cross': None}, {'cosine': None}),
        ({'critic': 'cross', 'cross': None}, {'cross': None}),
        ({'critic': 'cross', 'cross': {'pooler': 'tanh'}},
         {'cross': {'pooler': 'tanh'}}),
        ({'critic': 'lexical', 'lexical': {'head': 'tokens'}, 'late': None},
         {'lexical': {'head': 'tokens'}}),
        ({'critic': 'cosine', 'lexical': {'top_k': 3}, 'late': {'dense': []}},
         {'cosine': None, 'late': {'dense': []}, 'lexical': {'top_k': 3}}),
    )  # fmt: skip
    def test_critics(self, fields, expected):
        values = version_2('lookup', {'width': 8}, None)
        actual = Config.from_json({**values, 'version': 3, **fields})
        self.assertEqual([*actual.critics.items()], [*expected.items()])
        self.assertEqual(actual.critic, next(iter(expected)))
        self.assertEqual(Config.from_json(actual.to_json()), actual)

    def test_an_entry_says_what_it_does_not_have(self):
        dense = [{'width': 4, 'activation': 'tanh', 'bias': True}]
        values = version_2('lookup', {'width': 8}, None)
        values |= {'version': 3, 'critic': 'late', 'late': {'dense': dense}}
        self.assertEqual(
            LateCritic.of(Config.from_json(values)),
            LateConfig((DenseConfig(4, 'tanh'),)),
        )


class LayoutTest(absltest.TestCase):
    def test_what_is_shown_and_stands_around_two(self):
        two = ('cls', 'x'), ('sep', 'sep')
        for layout, shown, around in (
            (Layout(('cls',), ('sep',)), '[CLS] text [SEP]',
             (('cls',), ('sep',))),
            (Layout(('ask:',), (), around_two=two), 'ask: text', two),
        ):  # fmt: skip
            self.assertEqual((layout.shown, layout.two), (shown, around))


class ConfigFilesTest(places.Folder, absltest.TestCase):
    def test_every_part_comes_back(self):
        config = Config(**WHOLE)
        defaults = Config(*(WHOLE[x] for x in ('encoder', 'rows')), 0)
        for field in dataclasses.fields(Config):
            if field.name not in ('encoder', 'rows', 'version'):
                name = field.name
                self.assertNotEqual(WHOLE[name], getattr(defaults, name), name)
        config.write(self.folder)
        self.assertEqual(Config.read(self.folder), config)

    def test_a_name_of_the_hub_without_its_mark(self):
        message = 'o/m has no .*no such folder.* is hf://OWNER/NAME$'
        with self.assertRaisesRegex(FileNotFoundError, message):
            Config.read('o/m')

    def test_that_of_an_export(self):
        with self.assertRaisesRegex(FileNotFoundError, 'no version of an exp'):
            read_exported(self.folder)
        path, config = self.folder / EXPORTED, Config(**WHOLE)
        path.parent.mkdir(parents=True)
        values = {**config.to_json(), 'export': {'precision': 'float32'}}
        path.write_text(json.dumps(values))
        actual = read_exported(self.folder)
        self.assertEqual(actual, (config, {'precision': 'float32'}))
        path.write_text('{}')
        with refused('broken_exported_config', path, 'export'):
            read_exported(self.folder)
