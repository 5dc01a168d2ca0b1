"""Faults that are drawn: which there are, and what becomes of them."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from tests import mutants, places

TOY = """
def is_below(a, b):
    return a < b


def unseen(x):
    return -x if x else x
"""
TESTS = """
import sys, time
import pytest
from infoword_tf.toy import is_below


def test_below():
    assert is_below(1, 2) and not is_below(2, 2)


def test_slow():
    time.sleep(0 if is_below(1, 2) else 60)


@pytest.mark.second
def test_second():
    assert not sys.modules['infoword_tf.toy'].unseen(0)
    raise AssertionError
"""
# Tests of a toy in a process that has no TensorFlow: it forks.
PROGRAM = """
import pathlib, sys
from tests import mutants

mutants.ROOT = pathlib.Path(sys.argv[1])
mutants.ALSO = {'infoword_tf/toy.py': 'toys'}
mutants.imported = lambda: None
print('late:', mutants.outcome(('tests/test_late.py',), None, 0.3)[1])
sys.exit(mutants.main(*sys.argv[2:]))
"""


def contents(code):
    """Returns a line of code with each of its faults."""
    faults = mutants.faults_of('a.py', code.encode()).values()
    return [x.of(code.encode()).decode() for of in faults for x in of]


class FaultsOfCodeTest(parameterized.TestCase):
    @parameterized.parameters(
        ('x = a >= b != c', ['x = a > b != c', 'x = a >= b == c']),
        ('x = a not  in b', ['x = a in b']),
        ('x = (a // (b))', ['x = (a % b)']),
        ('x -= a * b', ['x += a * b', 'x -= a / b']),
        ('x = a and b and c', ['x = a or b or c']),
        ('x = not (a)', ['x = not (not a)']),
        ('if a < b:\n    c', ['if not a < b:\n    c', 'if a <= b:\n    c']),
        ('x = a if b else c', ['x = a if not b else c']),
        ('x = [a for a in b if a]', ['x = [a for a in b if not a]']),
        ('x = 7, -1', ['x = 8, -1', 'x = 7, -2']),
        ('x = 0.25, 0.0', ['x = 0.5, 0.0', 'x = 0.25, 1.0']),
        ('x = True', ['x = False']),
        ('f(axis=1)', ['f()', 'f(axis=0)', 'f(axis=2)']),
        ("x['é'] = y", ["x['é_'] = y"]),
        ("x = {'a': y, **z}", ["x = {'a_': y, **z}"]),
        ('f(a, b=c, **d)', ['f(a, **d)']),
        ('f((a), g(b), c)', ['f(g(b), a, c)', 'f(a, c, g(b))']),
        ('def f(x=1): pass', ['def f(x=2): pass']),
    )
    def test_what_changes(self, code, expected):
        self.assertCountEqual(contents(code), expected)

    @parameterized.parameters(
        '"""Not 1 < 2."""',
        'x: dict["a", 1]',
        'def f(x: list[1]) -> list[2]:\n    """1 < 2."""',
        '@f(1, 2)\nclass A(B[0]):\n    "1 < 2"',
        "raise ValueError('a', 1)",
        "x = errors.InputError('a', y)",
        "logging.info('a', 1)",
        "x = f'{a + 1}'",
        "x = 'a' % b",
        "f(a, 'a text')",
        'f(a, a)',
        'maximum(a, b)',
        'x = a @ b | c',
        'if TYPE_CHECKING:\n    x = 1\nelse:\n    x = 2',
        "if __name__ == '__main__':\n    f(1)",
    )
    def test_what_stays(self, code):
        self.assertEmpty(contents(code))

    def test_functions(self):
        code = b'class A:\n    x = 1\n    def f(self):\n        def g(y=2): 0'
        faults = mutants.faults_of('a.py', code)
        self.assertCountEqual(faults, ['A', 'A.f.g'])


class DrawTest(absltest.TestCase):
    def test_a_draw_is_of_its_seed(self):
        root = pathlib.Path(self.create_tempdir().full_path)
        (root / 'a.py').write_text(
            ''.join(f'def f{i}(x):\n    return x < {i}\n' for i in range(6))
        )
        self.enter_context(mock.patch.object(mutants, 'ROOT', root))
        actual = mutants.drawn(['a.py'], 4, 71)
        self.assertEqual(
            [(x.line, x.after) for x in actual],
            [(6, 'x <= 2'), (10, 'x <= 4'), (2, '1'), (4, 'x <= 1')],
        )
        self.assertLen(mutants.drawn(['a.py'], 40, 0), 6)

    def test_every_file_has_tests(self):
        for name in 'infoword_tf', 'tasks', 'export':
            for path in (mutants.ROOT / name).rglob('*.py'):
                mutants.tests_of(str(path.relative_to(mutants.ROOT)))
        for file, names in mutants.ALSO.items():
            self.assertTrue((mutants.ROOT / file).exists(), file)
            for name in names.split():
                path = mutants.ROOT / 'tests' / name
                self.assertTrue(
                    path.is_dir() or path.with_suffix('.py').is_file(), name
                )
        with self.assertRaisesRegex(SystemExit, 'infoword_tf/new.py'):
            mutants.tests_of('infoword_tf/new.py')

    def test_the_mirror_is_first(self):
        first, second, *_ = mutants.tests_of('infoword_tf/layers/crf.py')
        self.assertEqual(first, 'tests/layers/test_crf.py')
        self.assertEqual(second, 'tests/layers/test_attention.py')
        mirror, *others = mutants.tests_of('infoword_tf/lazy.py')
        self.assertEqual(mirror, 'tests/test_lazy.py')
        self.assertIn('tests/test_adapters.py', others)

    def test_few_that_import_a_file_count_too(self):
        for file, importing, near in (
            ('infoword_tf/views/examples.py', 'tasks/test_tag_command', True),
            ('infoword_tf/commands.py', 'inference/test_by_role', False),
        ):
            tests = mutants.tests_of(file)
            self.assertEqual(f'tests/{importing}.py' in tests, near)


class PlantedTest(absltest.TestCase):
    def test_one_is_killed_and_one_survives(self):
        root = pathlib.Path(self.create_tempdir().full_path)
        places.write(root, {
            'infoword_tf/__init__.py': '', 'infoword_tf/toy.py': TOY,
            'tests/toys/test_toy.py': TESTS,
            'tests/test_late.py': 'import time\ntime.sleep(60)',
        })  # fmt: skip
        done = subprocess.run(
            [sys.executable, '-c', PROGRAM, str(root),
             '--files=infoword_tf/*.py'],
            capture_output=True, text=True, check=False, cwd=mutants.ROOT,
            env=os.environ | {'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'},
        )  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        killed = 'a <= b: killed by tests/toys/test_toy.py::test_below'
        self.assertIn(killed, done.stdout)
        self.assertIn('late: time', done.stdout)
        survivors = done.stdout.split('1 of 2 survived:')[1]
        self.assertIn('toy.py:7: ', survivors)
