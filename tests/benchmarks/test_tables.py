"""Steps of equal time, the table and the picture, with a made-up trainer."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

from tests.test_house import ROOT

# In a process of its own, since the benchmark has flags of the trainer's names.
CODE = '''
import json, sys
from infoword_tf import commands
from benchmarks import kept, tables

RATES = {'slow': 16.0, 'fast': 64.0}  # steps a second

def run(module, log, *given):
    """Made-up figures of a run, or of what it is asked."""
    given = dict(flag[2:].split('=') for flag in given)
    workdir = log.with_suffix('')
    print('CALL', module, sorted(given.items()))
    workdir.mkdir(parents=True)
    if module != 'infoword_tf.train':
        seed = int(given['init'][-1])
        found = {'mrr@10': 0.5 + seed / 10, 'recall@10': 0.75}
        (workdir / 'metrics.json').write_text(json.dumps(found))
        return
    name = given['flagfile']
    steps, seed = int(given.get('steps', 40)), int(given.get('seed', 0))
    every = int(given.get('log_every', 5))
    rows = ['mlm', 'nsp'] if name == 'slow' else ['dim']
    (workdir / 'config.json').write_text(json.dumps(
        {'rows': {r: {} for r in rows}, 'precision': 'float32'}
    ))
    lines = []
    for step in range(every, steps + 1, every):
        rate = RATES[name]
        line = {'step': step, 'steps_per_second': rate,
                'tokens_per_second': 100 * rate}
        if step == every and name == 'slow' and 'seed' not in given:
            line['steps_per_second'] = 1.0  # of a warm-up
        for row in rows:
            line[f'heldout/{row}/accuracy'] = 0.5
            line[f'heldout/{row}/chance'] = 0.25
            if row != 'nsp':
                line[f'heldout/{row}/mi'] = step / steps - seed / 4
                line[f'heldout/{row}/unigram_mi'] = -0.09
                line[f'heldout/{row}/ceiling'] = 6.9
        lines.append(json.dumps(line))
    (workdir / 'metrics.jsonl').write_text('\\n'.join(lines))
    (workdir / 'metrics.json').write_text('{}')

tables.run = kept.run = run
tables.TABLES['lacking'] = tables.ResultsTable(('slow',), data=('nowhere',))
tables.TABLES['two'] = tables.ResultsTable(('slow', 'fast'), tables.retrieval)
commands.start(tables.main)
'''
LINES = [
    '| `slow` | `mlm` | 0.875 (0.750-1.000) | -0.090 | 6.900 | 0.500 | 0.250 '
    '| 0.550 (0.500-0.600) | 0.750 | 480 | 0.5 | 1,600 |',
    '| `slow` | `nsp` | - | - | - | 0.500 | 0.250 |  |  | 480 | 0.5 | 1,600 |',
    '| `fast` | `dim` | 0.875 (0.750-1.000) | -0.090 | 6.900 | 0.500 | 0.250 '
    '| 0.550 (0.500-0.600) | 0.750 | 1,920 | 0.5 | 6,400 |',
]


class TablesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def ran(self, *given):
        return subprocess.run(
            [
                sys.executable, '-c', CODE, '--seeds=2',
                f'--workdir={self.folder}', *given,
            ],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip

    def test_command(self):
        asked = '--table=two', '--minutes=0.5'
        printed = self.ran(*asked).stdout
        # 30 s at 16 and 64 steps a second.
        self.assertIn('slow: 480 steps', printed)
        self.assertIn('fast: 1,920 steps', printed)
        self.assertIn("('seed', '1'), ('steps', '480')", printed)
        *_, one, two, three, _, note = printed.strip().split('\n')
        self.assertEqual([one, two, three], LINES)
        self.assertRegex(
            note, r'Commit ([0-9a-f]{7,}\+?|unknown), seeds 0 to 1, float32\.'
        )
        table = (self.folder / 'table.md').read_text().splitlines()
        self.assertEqual(table[2:5], LINES)
        picture = (self.folder / 'curves.png').read_bytes()
        self.assertEqual(picture[:4], b'\x89PNG')
        # What is finished is not run again.
        again = self.ran(*asked).stdout
        self.assertNotIn('CALL', again)
        self.assertIn('\n'.join(LINES), again)

    def test_two_at_a_time(self):
        """The same table, of runs that have a share of the processors each."""
        printed = self.ran('--table=two', '--minutes=0.5', '--lanes=2').stdout
        self.assertEqual(printed.strip().split('\n')[-5:-2], LINES)

    def test_equal_steps(self):
        """No rate is measured; both train for them."""
        printed = self.ran('--table=two', '--steps=30').stdout
        self.assertNotIn('_rate', printed)
        self.assertEqual(printed.count("('steps', '30')"), 4)
        ends = [
            line.split('|')[-4:-2]
            for line in (self.folder / 'table.md').read_text().splitlines()[2:5]
        ]
        self.assertEqual(
            ends, [[' 30 ', ' 0.0 '], [' 30 ', ' 0.0 '], [' 30 ', ' 0.0 ']]
        )

    def test_steps_as_the_flagfiles_say(self):
        """No rate is measured, and nothing is said of steps."""
        printed = self.ran('--table=two', '--as_written').stdout
        self.assertNotIn('_rate', printed)
        self.assertNotIn("'steps'", printed)
        table = (self.folder / 'table.md').read_text()
        self.assertIn('| 40 |', table)

    def test_a_table_is_of_one_commit(self):
        (self.folder / 'commit').write_text('0123abc')
        done = self.ran('--table=two')
        self.assertEqual(done.returncode, 1)
        self.assertIn('was begun at commit 0123abc, and this is', done.stderr)
        self.assertNotIn('CALL', done.stdout)

    def test_complaints(self):
        for given, message in (
            ((), 'give --table, or --flagfiles'),
            (('--table=three',), '--table=three: known are rows, search, '),
            (('--table=two', '--flagfiles=slow'), 'give --table, or'),
            (
                ('--table=two', '--minutes=1', '--steps=2'),
                'give --minutes or --steps, not both',
            ),
            (('--table=lacking',), 'nowhere: this table reads it and it is'),
        ):
            done = self.ran(*given)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'error: {message}', done.stderr)


if __name__ == '__main__':
    absltest.main()
