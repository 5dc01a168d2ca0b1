"""Every command as it is typed: what needs no model is said at once.

All run in one process where nothing that takes seconds can be imported; each
has a fork of it to itself, since flags are made when a command is imported.
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
from unittest import mock

from absl.testing import absltest

import export
import tasks
from infoword_tf.resolve import ModelChoices, resolve
from tests import places
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


def answer(module, *words):
    """Status, id and errors of a command, in this process."""
    try:
        done = command.run(importlib.import_module(module), *words)
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
        cwd=cwd,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        input=json.dumps(typed),
        capture_output=True,
        text=True,
        check=True,
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


class TypedTest(places.Folder, absltest.TestCase):
    def test_complaints(self):
        """Names what is missing before TensorFlow is imported."""
        (self.folder / 'empty').mkdir()
        for name in ('one', 'two'):
            text = 'One document alone, no other.\n' * 9
            (self.folder / f'{name}.txt').write_text(text)
        for name, choices in (
            ('run', ModelChoices()), ('ict', ModelChoices(objectives='ict')),
        ):  # fmt: skip
            (self.folder / name).mkdir()
            resolve(choices).config(100).write(self.folder / name)
        flags = '--objectives=simcse:1,diffcse:1 --diffcse.generator'
        no_run = 'error: nowhere has no config.json: it is not the workdir'
        typed = {
            'infoword_tf.train': 'error: --workdir is missing',
            'infoword_tf.train tiny': "error: 'tiny' is no flag",
            'infoword_tf.train --stepps=3':
                "FATAL Flags parsing error: Unknown command line flag 'stepps'",
            'infoword_tf.train --workdir=w --corpus=text:*.txt --best=no.tsv':
                'error: --best=no.tsv: expected sts:FILE',
            'infoword_tf.train --workdir=w --corpus=text:no*':
                'error: .*no\\*',
            'infoword_tf.train --workdir=w --init=nowhere': no_run,
            f'infoword_tf.train --workdir=w {flags}=nowhere': no_run,
            f'infoword_tf.train --workdir=w {flags}=ict':
                r'error: generator begins with ict, whose rows \(ict\) fill no '
                'blanks: that takes mlm or mmlm or tlm or bert_nce or '
                'overlap; name another workdir',
            'infoword_tf.train --workdir=w --objectives=label --init=run':
                'error: .*reads labelled examples; train it with tasks.class',
            'infoword_tf.convert --source=empty --workdir=w':
                'error: --source=empty has no config.json',
            'infoword_tf.convert --init=nowhere --output=w': no_run,
            'tasks.lm --init=nowhere --sample': no_run,
            'export.savedmodel': 'error: --init is missing',
            'export.savedmodel --init=nowhere --output=w': no_run,
            'export.litert --init=nowhere --output=w': no_run,
            'export.verify': 'error: --model is missing',
            'export.verify --model=empty --init=run':
                'error: empty is no version of an export',
            'export.compat --python=/none': 'error: --python=/none',
            'export.search a query': 'error: --model is missing',
            'export.search --model=empty --corpus=text:one.txt query':
                'error: empty is no version of an export',
        }
        actual = answers([line.split() for line in typed], self.folder)
        for line, (status, out, err) in zip(typed, actual, strict=True):
            with self.subTest(line):
                self.assertEqual((status, out), (1, ''), err)
                self.assertRegex(err, f'^{typed[line]}')
                if err.startswith('error'):
                    self.assertLen(err.splitlines(), 1)
        self.assertFalse((self.folder / 'w').exists())
