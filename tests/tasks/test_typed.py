"""Every command as it is typed, and complaints without TensorFlow.

All run in one process where nothing that takes seconds can be imported; what
they print has a fork of it to itself, since flags are made on import.
"""

import ast
import importlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import types
from unittest import mock

from absl.testing import absltest

import export
import tasks
from tests.tasks import command

ROOT = pathlib.Path(__file__).parent.parent.parent
HEAVY = ('tensorflow', 'tensorflow_text', 'keras', 'tf_keras', 'jax', 'scipy',
         'matplotlib', 'pandas', 'safetensors.tensorflow')  # fmt: skip


class TypedForbid:
    """An import hook that forbids what takes seconds."""

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name.split('.')[0] in HEAVY:
            raise ModuleNotFoundError(f'{name} is forbidden here', name=name)


def run_all():
    """The other process: runs [module, flags] of standard input, each forked.

    Prints a line of JSON for each: exit status, output, errors.
    """
    sys.meta_path.insert(0, TypedForbid())
    # Once for all that follow.
    import infoword_tf.data.corpora
    import infoword_tf.resolve
    import infoword_tf.training.record
    del infoword_tf

    for module, *arguments in json.load(sys.stdin):
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        out, err, status = io.StringIO(), io.StringIO(), None
        printing, sys.stdout, sys.stderr = sys.stdout, out, err
        sys.argv = [module, *arguments]
        try:
            runpy.run_module(module, run_name='__main__', alter_sys=True)
        except SystemExit as done:
            status = done.code or 0
        except BaseException as error:
            err.write(f'{type(error).__name__}: {error}')
        print(
            json.dumps([status, out.getvalue(), err.getvalue()]),
            file=printing, flush=True,
        )  # fmt: skip
        os._exit(0)


def answer(name, *words):
    """Status, id and errors of a command, in this process."""
    try:
        module = importlib.import_module(name)
        run = getattr(module, 'run', None) or module.train
        command_of = types.SimpleNamespace(__name__=name, run=run)
        queries = 'queries' if name == 'export.search' else None
        done = command.run(command_of, *words, words=queries)
    except Exception as error:
        return 1, None, f'{type(error).__name__}: {error}'
    return done.status, done.id, done.err


def answer_all():
    """The other process: answers [module, *flags] of standard input."""
    sys.meta_path.insert(0, TypedForbid())
    print(json.dumps([answer(*words) for words in json.load(sys.stdin)]))


def answers(typed, cwd):
    """Returns what each of [module, flags] came to: status, output, errors."""
    done = subprocess.run(
        [sys.executable, '-c',
         'from tests.tasks import test_typed; test_typed.run_all()'],
        cwd=cwd, env={**os.environ, 'PYTHONPATH': str(ROOT)}, text=True,
        input=json.dumps(typed), capture_output=True, check=True,
    )  # fmt: skip
    actual = list(map(json.loads, done.stdout.splitlines()))
    assert len(actual) == len(typed), done.stderr
    return actual


def commands():
    """The modules that end with `commands.start(...)`."""
    for folder in ('infoword_tf', 'tasks', 'export', 'benchmarks'):
        for path in sorted((ROOT / folder).glob('*.py')):
            last = ast.parse(path.read_text()).body[-1]
            if isinstance(last, ast.If) and 'start(' in ast.unparse(last):
                yield f'{folder}.{path.stem}'


class BackendTest(absltest.TestCase):
    def test_commands_are_of_tensorflow(self):
        """Whatever Keras has been told by whoever types them."""
        for package in export, tasks:
            with mock.patch.dict(os.environ, KERAS_BACKEND='jax'):
                importlib.reload(package)
                self.assertEqual(os.environ['KERAS_BACKEND'], 'tensorflow')
