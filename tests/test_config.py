"""What config.json holds, and held."""

from absl.testing import absltest, parameterized

from infoword_tf.config import Config
from infoword_tf.encoders import ENCODERS

LATER = {'untie': None, 'clamp': None, 'same_length': None}


def version_2(name, arguments, run):
    """As it was written then."""
    return {
        'version': 2,
        'encoder': {'name': name, 'arguments': {'width': 8, **arguments}},
        'rows': {'mlm': {'weight': 1.0, 'settings': {'transform': True}}},
        'max_length': 32,
        'tokenizer': {
            'kind': 'wordpiece', 'lower_case': True, 'options': {}
        },
        'run': {'steps': 3, 'width': None, **run},
    }  # fmt: skip


class Version2Test(parameterized.TestCase):
    @parameterized.parameters(
        (
            'transformer', {'gelu': 'erf'}, {'gelu': 'erf', **LATER},
            {'activation': 'gelu_erf'}, {'activation': 'gelu_erf'},
        ),
        (
            'transformer', {'gelu': 'relu'}, {'gelu': 'relu', **LATER},
            {'activation': 'relu'}, {'activation': 'relu'},
        ),
        (
            'relative', {'activation': 'gelu_tanh', 'clamp': -1},
            {'gelu': 'gelu_tanh', **LATER},
            {'activation': 'gelu_tanh'}, {'activation': 'gelu_tanh'},
        ),
        (
            'relative',
            {'activation': 'relu', 'causal': True, 'untie': False, 'clamp': 12,
             'same_length': True},
            {'gelu': 'relu', 'untie': False, 'clamp': 12, 'same_length': True},
            {'activation': 'relu', 'causal': True, 'untie': False, 'clamp': 12,
             'same_length': True},
            {'activation': 'relu', 'untie': False, 'clamp': 12,
             'same_length': True},
        ),
        ('lookup', {'width': 9}, {'gelu': None, **LATER}, {'width': 9}, {}),
    )  # fmt: skip
    def test_what_it_means_today(self, name, arguments, run, wanted, record):
        found = Config.from_json(version_2(name, arguments, run))
        self.assertEqual(found.encoder.arguments, {'width': 8, **wanted})
        self.assertEqual(found.run, {'steps': 3, 'width': None, **record})
        self.assertEqual(found.to_json()['version'], 3)
        self.assertEqual(Config.from_json(found.to_json()), found)
        made = ENCODERS[name](**found.encoder.arguments)
        self.assertEqual(made.arguments, {**made.arguments, **wanted})

    @parameterized.parameters(1, 4, None, '2')
    def test_other_versions(self, version):
        values = version_2('transformer', {}, {}) | {'version': version}
        with self.assertRaisesRegex(ValueError, f'has version {version}'):
            Config.from_json(values)

    def test_without_an_encoder(self):
        values = version_2('transformer', {}, {})
        del values['encoder']['arguments']
        with self.assertRaisesRegex(ValueError, 'is no config of version 3'):
            Config.from_json(values)


if __name__ == '__main__':
    absltest.main()
