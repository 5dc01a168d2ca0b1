"""Every key of config.json that transformers has is followed, refused or
without effect.
"""

from absl.testing import absltest

from infoword_tf.weights import architectures
from infoword_tf.weights.huggingface import labels_of
from infoword_tf.weights.kinds import ARCHITECTURES, keys
from tests.oracles import frozen, huggingface
from tests.weights import folders

# A value of what is read elsewhere; of the others one is made up.
_ROPE = {'rope_type': 'linear', 'factor': 2.0, 'rope_theta': 77.0}
_BOTH = {'full_attention': _ROPE | {'rope_type': 'default'}}
OTHER = {
    'layer_types': ['sliding_attention'] * 3, 'pad_token_id': 5,
    'rope_parameters': _ROPE, 'rope_scaling': _ROPE, 'sliding_window': 6,
    'sliding_window_pattern': 2, 'use_bidirectional_attention': False,
    'classifier_activation': 'relu', 'partial_rotary_factor': 0.5,
}  # fmt: skip
# What decides names, labels or heads, as tests of these know.
ELSEWHERE = {
    'architectures', 'classifier_pooling', 'id2label', 'label2id', 'legacy',
    'model_type', 'num_labels', 'problem_type', 'tie_word_embeddings',
}  # fmt: skip
# Keys that are read where the newer ones are not there.
NEWER = {'layer_types', 'rope_parameters'}
OLDER = {'rope_local_base_freq', 'rope_scaling', 'rope_theta',
         'sliding_window_pattern'}  # fmt: skip
BY_SHAPE = {('gte', 'head_dim'), ('nomic_bert', 'head_dim')}


class KeysTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        arrays = frozen.read(folders.FROZEN)
        cls.by_kind = frozen.from_bytes(arrays['keys'])
        cls.configs = {}
        for _, config in huggingface.CASES.values():
            cls.configs.setdefault(config['model_type'], config)

    def fates(self):
        for kind, names in self.by_kind.items():
            for key in names:
                yield kind, key, keys.fate(kind, key)

    def test_every_key_is_known(self):
        self.assertEqual(set(self.by_kind), set(self.configs))
        known = {key for _, key, _ in self.fates()}
        listed = set().union(*keys.READ.values(), *keys.IGNORED.values())
        self.assertEqual(listed - known, {'partial_rotary_factor'})
        with self.assertRaises(KeyError):
            keys.fate('bert', 'new_key')

    def test_what_is_followed_changes_the_encoder_or_is_refused(self):
        for kind, key, fate in self.fates():
            config = self.configs[kind]
            if fate != keys.FOLLOWED or key in ELSEWHERE:
                continue
            if key in OLDER:
                config = {k: x for k, x in config.items() if k not in NEWER}
            if key == 'pad_token_id' and not ARCHITECTURES[kind].padded:
                continue  # a head may read it
            if (kind, key) in BY_SHAPE:
                continue  # other shapes of weights are refused
            self.assertNotEqual(
                self.read({**config, **changed(kind, key, config)}),
                self.read(config), f'{kind}: {key}',
            )  # fmt: skip

    def test_what_is_without_effect_changes_nothing(self):
        for kind, key, fate in self.fates():
            if fate == keys.NO_EFFECT:
                config = self.configs[kind]
                self.assertEqual(
                    self.read({**config, key: 3}), self.read(config),
                    f'{kind}: {key}',
                )  # fmt: skip

    def read(self, config):
        """Returns what a config.json makes, or the complaint."""
        try:
            encoder = architectures.encoder_of(config, 'config.json')
        except ValueError as error:
            return str(error)
        return encoder, labels_of(config)


def changed(kind, key, config):
    """Returns other keys of a config.json, of which one is another value."""
    if key in OTHER:
        value = OTHER[key]
        if key == 'rope_parameters' and kind in ('modernbert', 'gemma3_text'):
            value = _BOTH
        return {key: value}
    ours = {x: name for name, x in ARCHITECTURES[kind].keys.items()}
    if ours.get(key) == 'activation':
        return {key: 'silu' if config.get(key) == 'relu' else 'relu'}
    value = config.get(key) or 2
    return {key: value // 2 if value > 1 else 3 * value}
