"""Commands in this process, as whoever types them meets them."""

import contextlib
import io
import json
import os
import pathlib
import sys
from typing import Any, NamedTuple
from unittest import mock

from absl import flags

from infoword_tf import commands, errors


class CommandDone(NamedTuple):
    """End of a command, and what it has left.

    status: its exit status; result: what `run` returned; out, err: what it
    printed; id: of the error that ended it, if that is ours.
    """

    status: int
    result: Any
    out: str
    err: str
    id: str | None


def run(module, *arguments, words=None, stdin=''):
    """Runs a command; arguments are strings, `words` is as in `start`.

    Raises:
        flags.Error: there is no such flag.
    """
    result, status, id = None, 0, None
    out, err = io.StringIO(), io.StringIO()
    values = flags.FlagValues()
    commands.define(module.run.choices, values)
    argv = values([module.__name__, *arguments])

    def run_with_flags(*arguments):
        nonlocal result, id
        chosen = commands.chosen(module.run.choices, values)
        try:
            result = module.run(*arguments, **chosen)
        except (errors.UsageError, errors.InputError) as error:
            id = error.id
            raise
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
    return CommandDone(status, result, out.getvalue(), err.getvalue(), id)


def succeeded(done):
    """Returns what a command has left, which succeeded."""
    assert done.status == 0, done.err
    return done


def left(done, workdir):
    """Returns the result: what the last line says, and metrics.json."""
    last = json.loads(succeeded(done).out.splitlines()[-1])
    metrics = json.loads((pathlib.Path(workdir) / 'metrics.json').read_text())
    assert last == done.result == metrics, (last, done.result, metrics)
    return last


class Checks:
    """Assertions about commands, for a TestCase."""

    def assert_complains(self, done, message):
        """One line, the last on standard error, and exit status 1."""
        self.assertEqual(done.status, 1, done)
        *progress, complaint = done.err.splitlines()
        self.assertRegex(complaint, f'^error: .*{message}')
        self.assertNotIn('error: ', ' '.join(progress))

    def assert_refused(self, done, id, *values):
        """One line that names all values, as `assert_complains`.

        The id is that of the error; None: of an error that has none, or of
        another room.
        """
        self.assert_complains(done, '')
        if id is not None:
            self.assertEqual(done.id, id, done.err)
        for value in values:
            self.assertIn(str(value), done.err.splitlines()[-1])
