"""A setting: what it takes, and what it says of the rest."""

from absl.testing import parameterized

from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.objectives import TABLE
from infoword_tf.settings import Configurable, Setting
from tests.refused import refused


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(
        (6, {}, float('nan'), 'setting_of_wrong_type', 'int'),
        (6, {}, 'six', 'setting_of_wrong_type', 'int'),
        (0.5, {}, 'half', 'setting_of_wrong_type', 'float'),
        ('dot', {'choices': ('dot', 'cosine')}, 'sine',
         'unknown_setting_value', 'dot, cosine'),
        *((6, {'at_least': 2}, value, 'setting_too_small', 2)
          for value in (1, 0, -3)),
        *((0.05, {'at_least': 1e-6}, value, 'setting_too_small', 1e-6)
          for value in (0.0, -1.0, float('nan'))),
        (0.5, {'at_most': 0.9}, 1.0, 'setting_too_large', 0.9),
    )  # fmt: skip
    def test_complaints(self, default, bounds, value, id, bound):
        with refused(id, '--x.y', value, bound):
            Setting(default, 'One.', **bounds).check('x.y', value)

    def test_unknown_names(self):
        with self.assertRaisesRegex(TypeError, "no setting 'nosuch'"):
            Configurable().set_values({'nosuch': 1})

    def test_the_type_is_the_defaults(self):
        actual = Setting(0.05, 'T.', at_least=1e-6).check('x', 1)
        self.assertEqual((type(actual), actual), (float, 1.0))
        self.assertIs(Setting(False, 'S.').check('x', 1), True)

    @parameterized.parameters(*TABLE)
    def test_defaults_are_what_they_allow(self, row):
        for name, setting in TABLE[row].settings.items():
            self.assertEqual(
                setting.check(f'{row}.{name}', setting.default),
                setting.default,
            )
            self.assertEndsWith(setting.help, '.')
            if setting.needs:
                other, values = setting.needs
                self.assertNotEmpty(values)
                for value in values:
                    TABLE[row].settings[other].check(f'{row}.{other}', value)

    @parameterized.parameters(*FLAGS)
    def test_a_flag_is_one_argument_of_all_encoders(self, flag):
        actual = [
            (name, ENCODERS[encoder].settings[name])
            for encoder, name in FLAGS[flag].items()
        ]
        self.assertEqual(actual, [actual[0]] * len(actual))
