"""What is imported, and what is not, for the sake of packages nobody uses."""

import sys
from unittest import mock

from absl.testing import absltest, parameterized

from infoword_tf import lazy


class LeanTest(parameterized.TestCase):
    @parameterized.parameters(
        ('keras.src.wrappers.fixes', 'json.tool', True),
        ('keras.src.wrappers.fixes', 'colorsys', False),
        ('tensorflow.lite.python.util', 'colorsys', False),
        ('tensorflow_datasets.core', 'colorsys', True),
        ('infoword_tf.training.report', 'colorsys', True),
    )
    def test_who_finds_what(self, importer, name, is_found):
        """`colorsys`, which nobody imports, stands for pandas."""
        lazy.lean()
        self.assertEqual(sys.meta_path.count(lazy._Lean), 1)
        with (
            mock.patch.object(lazy._Lean, 'NAMES', ('colorsys',)),
            mock.patch.dict(sys.modules),
        ):
            sys.modules.pop(name, None)
            call = f'import {name}', {'__name__': importer}
            if is_found:
                exec(*call)
                self.assertIn(name, sys.modules)
            else:
                with self.assertRaises(ImportError):
                    exec(*call)

    def test_a_backend_is_found(self):
        with mock.patch.dict('os.environ', KERAS_BACKEND='jax'):
            self.assertIsNone(lazy._Lean.find_spec('jax'))


if __name__ == '__main__':
    absltest.main()
