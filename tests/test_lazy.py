"""What a process that is one command's imports, and how it ends."""

import json
import os
import subprocess
import sys

from absl.testing import absltest

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
found = sorted(set(sys.modules) & set(lazy.FOR_OTHERS))
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


class LeanTest(absltest.TestCase):
    def test_what_tensorflow_imports_for_others_is_not_imported(self):
        before, found, pyplot, threshold = answer(CODE)
        self.assertEqual(before, [])
        self.assertEqual(found, [])
        self.assertEqual(pyplot, 'matplotlib.pyplot')
        self.assertEqual(threshold, 100_000)

    def test_it_is_hidden_from_those_alone_that_are_being_imported(self):
        lazy.lean()
        lazy.lean()
        self.assertEqual(sys.meta_path.count(lazy._Lean), 1)
        for name in lazy.FOR_OTHERS:
            self.assertIsNone(lazy._Lean.find_spec(name))


if __name__ == '__main__':
    absltest.main()
