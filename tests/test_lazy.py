"""Imports of a command's process, and of others."""

import importlib.util
import json
import os
import sys
import unittest
from unittest import mock

from absl.testing import absltest

from infoword_tf import lazy
from tests.runs import python

# In the order of what happens: what is there, of those, and once they are asked
# for by somebody else.
COMMAND = '''
import gc, json, sys
from infoword_tf import commands, lazy
commands.own_process()
before = sorted(set(sys.modules) & {'tensorflow', 'keras'})
lazy.import_keras()
import infoword_tf.inference.loaded
found = sorted(set(sys.modules) & set(lazy.FOR_OTHERS))
from matplotlib import pyplot
print(json.dumps([before, found, pyplot.__name__, gc.get_threshold()[0]]))
'''
# That of somebody else, who calls us.
OTHERS = '''
import json, os, sys
from infoword_tf import commands
os.environ.pop('TF_ENABLE_ONEDNN_OPTS', None)
commands.hush_tensorflow()
onednn = os.environ['TF_ENABLE_ONEDNN_OPTS']
print(json.dumps(['matplotlib' in sys.modules, onednn]))
'''
# With Keras over JAX.
OVER_JAX = '''
import json
from infoword_tf import commands, lazy
commands.own_process()
lazy.import_keras()
import keras
print(json.dumps(keras.backend.backend()))
'''
# Without TensorFlow, told not to multiply by oneDNN, and with TensorFlow.
ONEDNN = '''
import json, os, sys
from infoword_tf import commands
NAME, chosen = 'TF_ENABLE_ONEDNN_OPTS', []
for told, imported in ((None, False), ('0', False), (None, True)):
    os.environ.pop(NAME, None)
    if told:
        os.environ[NAME] = told
    if imported:
        sys.modules['tensorflow'] = sys
    commands.prefer_onednn()
    chosen.append(os.environ.get(NAME))
print(json.dumps(chosen))
'''
# Of a saved graph alone.
GRAPH = '''
import json, sys
from infoword_tf import lazy
tf = lazy.tensorflow()
found = sorted(set(sys.modules) & {'keras', 'jax', 'matplotlib'})
import keras
print(json.dumps([found, float(tf.constant(2)), keras.__name__]))
'''


def answer(code, **environment):
    """Runs a program; returns the last line as JSON."""
    done = python('-c', code, env={**os.environ, **environment})
    return json.loads(done.stdout.splitlines()[-1])


class ImportTest(absltest.TestCase):
    def test_what_keras_imports_for_others_is_not_imported(self):
        self.assertEqual(
            answer(COMMAND), [[], [], 'matplotlib.pyplot', 100_000]
        )

    def test_a_process_of_others_imports_what_keras_does(self):
        self.assertEqual(answer(OTHERS), [True, '1'])

    def test_onednn_multiplies_unless_told_or_too_late(self):
        self.assertEqual(answer(ONEDNN), ['1', '0', None])

    @unittest.skipUnless(importlib.util.find_spec('jax'), 'there is no JAX')
    def test_a_backend_is_found(self):
        self.assertEqual(answer(OVER_JAX, KERAS_BACKEND='jax'), 'jax')

    def test_a_graph_needs_operations_of_text(self):
        self.assertIs(lazy.tensorflow(), sys.modules['tensorflow'])
        with (
            mock.patch.object(importlib.util, 'find_spec', return_value=None),
            self.assertRaisesRegex(ModuleNotFoundError, 'tensorflow_text'),
        ):
            lazy.tensorflow()

    def test_a_graph_needs_no_keras(self):
        self.assertEqual(answer(GRAPH), [[], 2.0, 'keras'])
