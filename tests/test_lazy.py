"""What a process that is one command's imports, and how it ends."""

import json
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from infoword_tf import lazy
from tests.runs import ROOT

# In the order of what happens: what is there, of those and once they are asked
# for by somebody else.
CODE = '''
import gc, json, sys
from infoword_tf import commands, lazy
commands.own_process()
before = sorted(set(sys.modules) & {'tensorflow', 'keras'})
import tensorflow, keras
import infoword_tf.training.run
found = sorted(set(sys.modules) & set(lazy._Lean.NAMES))
from matplotlib import pyplot
print(json.dumps([before, found, pyplot.__name__, gc.get_threshold()[0]]))
'''


def answer(code):
    """What a program prints in the end."""
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=ROOT,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


class LeanTest(parameterized.TestCase):
    def test_what_tensorflow_imports_for_others_is_not_imported(self):
        before, found, pyplot, threshold = answer(CODE)
        self.assertEqual(before, [])
        self.assertEqual(found, [])
        self.assertEqual(pyplot, 'matplotlib.pyplot')
        self.assertEqual(threshold, 100_000)

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
