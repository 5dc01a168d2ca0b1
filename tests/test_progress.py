"""How far work has come: what logs hold of it."""

import contextlib
import io
import json
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from infoword_tf import commands
from tests import places


class Terminal(io.StringIO):
    """Text that somebody watches."""

    def isatty(self):
        return True


class ProgressTest(absltest.TestCase):
    def shown(self, stream, seconds):
        """Returns what four steps write that take so long each."""
        clock = iter([0.0] + [i * seconds for i in range(40)])
        with (
            mock.patch.object(sys, 'stderr', stream),
            mock.patch('tqdm.std.time', lambda: next(clock)),
            commands.bar(total=4, desc='encoding', unit=' texts') as bar,
        ):
            for _ in range(4):
                bar.update()
        return stream.getvalue()

    def test_a_log_has_a_line_every_half_minute(self):
        lines = self.shown(io.StringIO(), 20).splitlines()
        self.assertRegex(lines[-1], r'^encoding: 100%.* 4/4 ')
        self.assertBetween(len(lines), 2, 3)
        for line in lines:
            self.assertRegex(line, '^encoding: +[0-9]+%.* [1-4]/4 ')
        self.assertNotIn('\r', ''.join(lines))

    def test_of_short_work_a_log_has_nothing(self):
        self.assertEqual(self.shown(io.StringIO(), 1), '')

    def test_a_terminal_has_a_bar(self):
        shown = self.shown(Terminal(), 1)
        self.assertGreater(shown.count('\rencoding: '), 4)
        self.assertIn(' 4/4 ', shown)

    def test_nothing_goes_around_it(self):
        """Other bars would fill logs."""
        root = pathlib.Path(commands.__file__).parent.parent
        around = [
            path.name
            for folder in ('infoword_tf', 'tasks', 'export')
            for path in (root / folder).rglob('*.py')
            if 'import tqdm' in path.read_text()
        ]
        self.assertEqual(around, ['commands.py'])


class RecordTest(places.Folder, absltest.TestCase):
    def test_the_last_result_stays(self):
        folder = self.folder / 'new' / 'workdir'
        for value in 0.5, 0.25:
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                commands.record(folder, {'mi': value})
            for text in (
                shown.getvalue(), (folder / 'metrics.json').read_text()
            ):  # fmt: skip
                self.assertEqual(json.loads(text), {'mi': value})
