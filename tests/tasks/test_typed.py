"""Commands of tasks/ and export/ as they are typed."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent


class TypedTest(absltest.TestCase):
    def test_every_command_starts_and_complains(self):
        """All that a process of its own tells; the rest is tested without."""
        typed = {
            'tasks.distill': ((), 'error: --teacher is missing'),
            'tasks.lm': ((), 'error: --init is missing'),
            'tasks.retrieval': ((), 'error: --workdir is missing'),
            'tasks.squad': ((), 'error: --workdir is missing'),
            'tasks.figure1': ((), 'error: --task is missing'),
            'export.savedmodel': ((), 'error: --init is missing'),
            'export.verify': ((), 'error: --model is missing'),
            'export.compat': (('--python=/none',), 'error: --python=/none'),
            'export.search': (('a query',), 'error: --model is missing'),
        }
        started = {
            module: subprocess.Popen(
                [sys.executable, '-m', module, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for module, (arguments, _) in typed.items()
        }
        for module, process in started.items():
            out, err = process.communicate()
            self.assertEqual(process.returncode, 1, err)
            self.assertStartsWith(err, typed[module][1])
            self.assertLen(err.splitlines(), 1)
            self.assertEqual(out, '')


if __name__ == '__main__':
    absltest.main()
