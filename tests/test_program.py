"""The program `infoword`, from a checkout; test_packaging.py installs it."""

import contextlib
import io
import sys
from unittest import mock

from absl.testing import parameterized

from infoword_tf import __main__ as program
from tests.refused import refused
from tests.runs import python
from tests.tasks.test_typed import commands

# Needs what `make serving-compat` sets up.
OF_A_CHECKOUT = 'export.compat'


def printed(*typed):
    """Exit status, output and errors of the program, in this process."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program.main(typed)
        except SystemExit as done:
            status = done.code
    return status, out.getvalue(), err.getvalue()


class ProgramTest(parameterized.TestCase):
    def test_has_every_command(self):
        expected = {
            module for module in commands()
            if not module.startswith('benchmarks.')
        } - {OF_A_CHECKOUT}  # fmt: skip
        actual = [module for module, _ in program.COMMANDS.values()]
        self.assertCountEqual(actual, expected)

    @parameterized.parameters('', 'help', '-h', '--help')
    def test_lists_all(self, typed):
        status, out, err = printed(*typed.split())
        self.assertEqual((status, err), (0, ''))
        lines = out.splitlines()[1:]
        self.assertEqual(
            [line.split()[0] for line in lines],
            [*program.COMMANDS, *program.FOLDERS],
        )
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_a_list_needs_no_library(self):
        code = (
            'import sys; from infoword_tf import __main__ as program; '
            'program.main(["help"]); '
            'print([x for x in ("absl", "keras", "numpy", "tensorflow") '
            'if x in sys.modules])'
        )
        self.assertEndsWith(python('-c', code).stdout, '[]\n')

    @parameterized.parameters(
        ('clasify', 'the nearest is classify'),
        ('--init=runs/books', "'--init=runs/books'; infoword alone"),
    )
    def test_unknown(self, name, expected):
        with refused('unknown_command', repr(name), expected):
            program.check(name)
        status, out, err = printed(name)
        self.assertEqual((status, out), (1, ''))
        self.assertStartsWith(err, f'error: infoword has no command {name!r}')
        self.assertLen(err.splitlines(), 1)

    @parameterized.parameters(
        ('flags', 'quickstart.flags'), ('serving', 'client.py')
    )
    def test_folders(self, name, file):
        status, out, _ = printed(name)
        self.assertEqual(status, 0)
        folder = program.folder_of(name)
        self.assertEqual(out, f'{folder}\n')
        self.assertTrue((folder / file).is_file())

    def test_examples_of_an_install(self):
        """What --help shows can be typed there."""
        text = 'python -m tasks.tag --init=x; python -m infoword_tf.train.a'
        self.assertEqual(program.as_installed(text), text)
        with mock.patch.object(program, 'INSTALLED', True):
            self.assertEqual(
                program.as_installed(text),
                'infoword tag --init=x; python -m infoword_tf.train.a',
            )

    @parameterized.parameters(
        ('classify', False, 'tasks.classify'),
        ('classify', True, 'infoword_tf.tasks.classify'),
        ('train', False, 'infoword_tf.train'),
        ('train', True, 'infoword_tf.train'),
    )
    def test_a_command_is_its_module(self, name, installed, module):
        typed = [name, '--init=x', '--', 'word']
        with (
            mock.patch.object(program, 'INSTALLED', installed),
            mock.patch.object(program.runpy, 'run_module') as run,
            mock.patch.object(sys, 'argv', ['infoword', *typed]),
        ):
            program.main()
            self.assertEqual(sys.argv[1:], typed[1:])
        run.assert_called_once_with(
            module, run_name='__main__', alter_sys=True
        )
