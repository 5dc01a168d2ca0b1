"""Commands in this process, as whoever types them meets them."""

import contextlib
import io
import os
import sys
from typing import Any, NamedTuple
from unittest import mock

from absl import flags

from infoword_tf import commands


class CommandDone(NamedTuple):
    """What a command has left.

    status: its exit status; result: what `run` returned; out, err: what it
    printed.
    """

    status: int
    result: Any
    out: str
    err: str


def run(module, *arguments, words=None, stdin=''):
    """Runs a command; arguments are strings, `words` is as in `start`.

    Raises:
        flags.Error: there is no such flag.
    """
    result, status = None, 0
    out, err = io.StringIO(), io.StringIO()
    values = flags.FlagValues()
    commands.define(module.run.choices, values)
    argv = values([module.__name__, *arguments])

    def run_with_flags(*arguments):
        nonlocal result
        chosen = commands.chosen(module.run.choices, values)
        result = module.run(*arguments, **chosen)
        return result

    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, 'stdin', io.StringIO(stdin)),
        mock.patch.dict(os.environ),
    ):
        os.environ.pop(commands.TRACEBACK, None)
        try:
            commands.guard(run_with_flags, argv, words)
        except SystemExit as stopped:
            status = stopped.code
    return CommandDone(status, result, out.getvalue(), err.getvalue())


class Checks:
    """Assertions about commands, for a TestCase."""

    def assert_complains(self, done, message):
        """One line, the last on standard error, and exit status 1."""
        self.assertEqual(done.status, 1, done)
        *progress, complaint = done.err.splitlines()
        self.assertRegex(complaint, f'^error: .*{message}')
        self.assertNotIn('error: ', ' '.join(progress))
