"""Steps of equal time, the table and the picture, with a made-up trainer."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent
# In a process of its own, since the benchmark has flags of the trainer's names.
CODE = '''
import json, pathlib
from absl import app
from benchmarks import equal_time

RATES = {'slow': 2048.0, 'fast': 8192.0}

def train(flagfile, workdir, *more):
    """8 x 16 tokens a step; the first record's rate is that of a warm-up."""
    given = dict(flag[2:].split('=') for flag in more)
    steps, every = int(given['steps']), int(given.get('log_every', 5))
    rows = ['mlm', 'nsp'] if flagfile == 'slow' else ['dim']
    workdir.mkdir(parents=True)
    (workdir / 'config.json').write_text(json.dumps(
        {'rows': {r: {} for r in rows}, 'run': {'batch_size': 8, 'seq_len': 16}}
    ))
    lines = []
    for step in range(every, steps + 1, every):
        line = {'step': step, 'tokens_per_second': RATES[flagfile]}
        if step == every and flagfile == 'slow' and 'seed' not in given:
            line['tokens_per_second'] = 1.0
        for row in rows:
            line[f'heldout/{row}/accuracy'] = 0.5
            line[f'heldout/{row}/chance'] = 0.25
            if row != 'nsp':
                line[f'heldout/{row}/mi'] = step / steps
                line[f'heldout/{row}/ceiling'] = 6.9
        lines.append(json.dumps(line))
    (workdir / 'metrics.jsonl').write_text('\\n'.join(lines))
    (workdir / 'metrics.json').write_text('{}')
    print('CALL', flagfile, sorted(more))

equal_time.train = train
app.run(equal_time.main)
'''


class EqualTimeTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def run_here(self):
        return subprocess.run(
            [
                sys.executable, '-c', CODE, '--flagfiles=slow,fast',
                '--minutes=0.5', '--rate_steps=20', '--seed=3',
                f'--workdir={self.folder}',
            ],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    def test_command(self):
        printed = self.run_here()
        # 30 s at 2,048 and 8,192 tokens/s, 128 tokens a step.
        self.assertIn('slow: 480 steps', printed)
        self.assertIn('fast: 1,920 steps', printed)
        self.assertIn("'--seed=3', '--steps=480'", printed)
        lines = [
            '| `slow` | 480 | 0.5 | 2,048 | `mlm` | 1.000 | 6.90 | 0.500 | '
            '0.2500 |',
            '| `slow` | 480 | 0.5 | 2,048 | `nsp` | - | - | 0.500 | 0.2500 |',
            '| `fast` | 1,920 | 0.5 | 8,192 | `dim` | 1.000 | 6.90 | 0.500 | '
            '0.2500 |',
        ]
        self.assertEqual(printed.splitlines()[-3:], lines)
        table = (self.folder / 'table.md').read_text()
        self.assertEqual(table.splitlines()[-3:], lines)
        picture = (self.folder / 'curves.png').read_bytes()
        self.assertEqual(picture[:4], b'\x89PNG')
        again = self.run_here()
        self.assertNotIn('CALL', again)
        self.assertEqual(again.splitlines()[-3:], lines)

    def test_a_run_that_fails_says_why(self):
        done = subprocess.run(
            [
                sys.executable, '-m', 'benchmarks.equal_time',
                '--flagfiles=nowhere', f'--workdir={self.folder}',
            ],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertStartsWith(done.stderr, 'error: nowhere: ')
        self.assertIn('Unable to open flagfile', done.stderr)


if __name__ == '__main__':
    absltest.main()
