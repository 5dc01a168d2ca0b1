"""Faults that are drawn: which there are, and what becomes of them."""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest, parameterized

from tests import mutants

TOY = """
def is_below(a, b):
    return a < b


def unseen(x):
    return -x if x else x
"""
TESTS = """
import time
from infoword_tf.toy import is_below


def test_below():
    assert is_below(1, 2) and not is_below(2, 2)


def test_slow():
    time.sleep(0 if is_below(1, 2) else 60)
"""
# Tests of a toy in a process that has no TensorFlow: it forks.
PROGRAM = """
import pathlib, sys
from tests import mutants

mutants.ROOT = pathlib.Path(sys.argv[1])
mutants.TESTS = {'infoword_tf': 'toys', 'infoword_tf/late.py': 'test_late'}
mutants.imported = lambda: None
late = mutants.Run(('tests/test_late.py',), None, 0.3)
(_, _, what), = mutants.ended(mutants.ROOT, [late], 1)
print('late:', what)
sys.exit(mutants.main(*sys.argv[2:]))
"""


def changed(code):
    """What a line of code becomes, by each of its faults."""
    faults = mutants.Source(code.encode()).faults('a.py').values()
    return [x.content.decode() for of in faults for x in of]


class FaultsOfCodeTest(parameterized.TestCase):
    @parameterized.parameters(
        ('x = a < b', ['x = a <= b']),
        ('x = a >= b != c', ['x = a > b != c', 'x = a >= b == c']),
        ('x = a not  in b', ['x = a in b']),
        ('x = (a) is (b)', ['x = (a) is not (b)']),
        ('x = a + (b)', ['x = a - (b)']),
        ('x = a // b', ['x = a % b']),
        ('x -= a * b', ['x += a * b', 'x -= a / b']),
        ('x = a and b and c', ['x = a or b and c', 'x = a and b or c']),
        ('x = (a  # or\n     or b)', ['x = (a  # or\n     and b)']),
        ('x = not (a)', ['x = (a)']),
        ('if a:\n    b', ['if not (a):\n    b']),
        ('if a == b:\n    c', ['if a != b:\n    c']),
        ('if not a:\n    b', ['if a:\n    b']),
        ('x = a if b else c', ['x = a if not (b) else c']),
        ('x = [a for a in b if a]', ['x = [a for a in b if not (a)]']),
        ('x = 0, 7, -1', ['x = 1, 7, -1', 'x = 0, 8, -1', 'x = 0, 7, 0']),
        ('x = 0.25, 0.0', ['x = 0.5, 0.0', 'x = 0.25, 1.0']),
        ('x = True', ['x = False']),
        ('f(axis=-1)', ['f()', 'f(axis=0)']),
        ('f(axis=1)', ['f()', 'f(axis=0)']),
        ('f(axis=0)', ['f()', 'f(axis=1)']),
        ("x['é'] = y", ["x['é_'] = y"]),
        ("x = {'a': y, **z}", ["x = {'a_': y, **z}"]),
        ('f(a, b=c, d=e)', ['f(a, d=e)', 'f(a, b=c)']),
        ('f(b=c, **d)', ['f(**d)']),
        ('f((a), b=(c))', ['f((a))']),
        ('f(a, g(b), *c)', ['f(g(b), a, *c)']),
        ('def f(x=1): pass', ['def f(x=2): pass']),
    )
    def test_what_changes(self, code, expected):
        self.assertCountEqual(changed(code), expected)

    @parameterized.parameters(
        '"""Not 1 < 2."""',
        'x: dict["a", 1]',
        'def f(x: list[1]) -> list[2]:\n    """1 < 2."""',
        'import a.b as c',
        "__all__ = ['a'][0]",
        '@f(1, 2)\nclass A(B[0]):\n    "1 < 2"',
        "raise ValueError('a', 1)",
        "x = errors.InputError('a', y)",
        "logging.info('a', 1)",
        "x = f'{a + 1}'",
        "x = 'a' % b",
        "x = a / 'b'",
        "f(help='1')",
        "f(a, 'a text of help')",
        'f(*a, b)',
        'maximum(a, b)',
        'x = a @ b | c',
        'if TYPE_CHECKING:\n    x = 1\nelse:\n    x = y',
        "if __name__ == '__main__':\n    f(1)",
    )
    def test_what_stays(self, code):
        self.assertEmpty(changed(code))

    def test_what_is_no_fault(self):
        source = mutants.Source(b'x = 1')
        self.assertFalse(source.differs(b'x = (1)  # the same'))
        self.assertFalse(source.differs(b'x = )'))
        self.assertTrue(source.differs(b'x = 2'))

    def test_functions(self):
        code = 'class A:\n    x = 1\n    def f(self):\n        def g(y=2): pass'
        faults = mutants.Source(code.encode()).faults('a.py')
        self.assertCountEqual(faults, ['A', 'A.f.g'])


class DrawTest(parameterized.TestCase):
    def _root(self, text):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / 'a.py').write_text(text)
        return folder

    def test_a_draw_is_of_its_seed(self):
        root = self._root(
            ''.join(f'def f{i}(x):\n    return x < {i}\n' for i in range(6))
        )
        actual = mutants.drawn(root, ['a.py'], 4, 71)
        self.assertEqual(
            [(x.line, x.function, x.after) for x in actual], [
                (6, 'f2', 'return x < 3'), (10, 'f4', 'return x <= 4'),
                (2, 'f0', 'return x <= 0'), (4, 'f1', 'return x < 2'),
            ],
        )  # fmt: skip
        self.assertEqual(actual[:2], mutants.drawn(root, ['a.py'], 2, 71))
        self.assertLen(mutants.drawn(root, ['a.py'], 40, 0), 6)

    def test_a_fault_is_where_its_lines_are(self):
        text = 'def f(x):\n    return x + (\n    3)\n'
        first, _ = mutants.Source(text.encode()).faults('a.py')['f']
        self.assertEqual(f'{first}', 'a.py:2: return x + ( -> return x - (')
        root = self._root('y = 0\n' + text)
        known = {**first._asdict(), 'line': 1, 'content': ''}
        actual = mutants.again(root, known)
        self.assertEqual(actual.line, 3)
        expected = 'y = 0\n' + text.replace('+', '-')
        self.assertEqual(actual.content.decode(), expected)
        known['before'] = 'return x * ('
        self.assertIsNone(mutants.again(root, known))

    def test_every_file_has_tests(self):
        root = mutants.ROOT
        for name in mutants.PRODUCT:
            for path in (root / name).rglob('*.py'):
                file = str(path.relative_to(root))
                tests = mutants.tests_of(root, file)
                for test in tests:
                    self.assertTrue((root / test).is_file(), (file, test))
        for name in mutants.LONG:
            self.assertTrue((root / f'tests/{name}.py').is_file(), name)
        for file in mutants.TESTS:
            self.assertTrue((root / file).exists(), file)
        with self.assertRaisesRegex(SystemExit, 'infoword_tf/new.py'):
            mutants.tests_of(root, 'infoword_tf/new.py')

    @parameterized.parameters(
        ('infoword_tf/layers/crf.py', 'layers'),
        ('infoword_tf/weights/kinds/bert.py', 'weights'),
        ('infoword_tf/model.py', 'root'),
        ('export/serving/model.py', 'export'),
    )
    def test_rooms(self, file, room):
        self.assertEqual(mutants.room_of(file), room)

    def test_the_mirror_is_first(self):
        first, second, *_ = mutants.tests_of(
            mutants.ROOT, 'infoword_tf/layers/crf.py'
        )
        self.assertEqual(first, 'tests/layers/test_crf.py')
        self.assertEqual(second, 'tests/layers/test_activation.py')


class PlantedTest(absltest.TestCase):
    def test_one_is_killed_and_one_survives(self):
        root = pathlib.Path(self.create_tempdir().full_path)
        for name, text in {
            'infoword_tf/__init__.py': '', 'infoword_tf/toy.py': TOY,
            'tests/toys/test_toy.py': TESTS,
            'tests/test_late.py': 'import time\ntime.sleep(60)',
        }.items():  # fmt: skip
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, '-c', PROGRAM, str(root), f'--write={root}/a.json',
             '--room=root'],
            capture_output=True, text=True, check=False, cwd=mutants.ROOT,
            env=os.environ | {'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'},
        )  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        killed = {
            x['function']: x['killed_by']
            for x in json.loads((root / 'a.json').read_text())
        }
        test = 'tests/toys/test_toy.py::test_below'
        self.assertEqual(killed, {'is_below': test, 'unseen': ''})
        self.assertIn('late: time', done.stdout)
        self.assertIn('| root | 2 | 1 | 1 |', done.stdout)
        self.assertIn('toy.py:7 unseen: ', done.stdout)
