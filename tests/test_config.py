"""The format of config.json, and older versions of it."""

from absl.testing import parameterized

from infoword_tf.config import Config
from infoword_tf.encoders import ENCODERS
from tests.refused import refused


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
        self.assertEqual(actual.to_json()['version'], 3)
        self.assertEqual(Config.from_json(actual.to_json()), actual)
        ENCODERS[name](**actual.encoder.arguments)

    @parameterized.parameters(1, 4, None, '2')
    def test_other_versions(self, version):
        values = version_2('transformer', {}, None) | {'version': version}
        with refused('config_of_other_version', f'version {version}'):
            Config.from_json(values)

    def test_without_an_encoder(self):
        values = version_2('transformer', {}, None)
        del values['encoder']['arguments']
        with refused('broken_config', 'version 3'):
            Config.from_json(values)
