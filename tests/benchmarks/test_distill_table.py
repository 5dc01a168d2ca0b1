"""The table of students, with made-up runs."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

from tests.test_house import ROOT

# In a process of its own, since the benchmark has flags of the trainer's names.
CODE = '''
import json
from benchmarks import distill, kept
from infoword_tf import commands

SCORES = {'teacher': 0.75, 'fine-tuning': 0.5, 'KD': 0.5625,
          'PKD-last': 0.625, 'PKD-skip': 0.6875}

def run(module, log, *given):
    """Made-up figures of a run."""
    given = dict(
        flag[2:].split('=') if '=' in flag else (flag[2:], '')
        for flag in given
    )
    workdir = log.with_suffix('')
    print('CALL', module, sorted(given.items()))
    for seed in range(int(given.get('seeds', 1))):
        folder = workdir / f'seed={seed}' if 'seeds' in given else workdir
        folder.mkdir(parents=True)
        score = SCORES[workdir.name]
        slower = 1.0 if given.get('alpha') == '0' else 1.25
        lines = [
            {'step': step, 'steps_per_second': rate / slower,
             'heldout/label/accuracy': score + seed / 8 - worse}
            for step, rate, worse in (
                (5, 1.0, 0.25), (10, 4.0, 0.0), (15, 4.0, 0.125))
        ]
        (folder / 'metrics.jsonl').write_text(
            '\\n'.join(map(json.dumps, lines)))
    (workdir / 'metrics.json').write_text(
        json.dumps({'task': 'rte', 'accuracy': SCORES[workdir.name]}))

kept.run = run
distill.served = lambda workdirs, folder, task: [
    f'{name}: {path.name}' for name, path in workdirs.items()]
commands.start(distill.run)
'''
LINE = (
    '| rte | accuracy | 0.750 | 0.562 (0.500-0.625) | 0.625 (0.562-0.688) '
    '| 0.688 (0.625-0.750) | 0.750 (0.688-0.812) | 1.25, 1.25, 1.25 |'
)


class StudentsTableTest(absltest.TestCase):
    def ran(self, folder, *given):
        return subprocess.run(
            [
                sys.executable, '-c', CODE, '--tasks=rte', '--seeds=2',
                '--init=W', '--data_dir=glue', f'--workdir={folder}', *given,
            ],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip

    def test_command(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        done = self.ran(folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(LINE, done.stdout)
        self.assertIn('teacher: teacher\nstudent: seed=0\n', done.stdout)
        self.assertEqual(done.stdout.count('CALL tasks.distill'), 4)
        self.assertIn(f"('teacher', '{folder}/rte/teacher')", done.stdout)
        self.assertIn("('layers', '3')", done.stdout)
        self.assertIn(LINE, (folder / 'table.md').read_text())
        # What is finished is not run again.
        again = self.ran(folder).stdout
        self.assertNotIn('CALL', again)
        self.assertIn(LINE, again)

    def test_a_task_without_classes(self):
        done = self.ran(self.create_tempdir().full_path, '--tasks=sts-b')
        self.assertEqual(done.returncode, 1)
        self.assertIn('error: --tasks=sts-b: take tasks of GLUE', done.stderr)


if __name__ == '__main__':
    absltest.main()
