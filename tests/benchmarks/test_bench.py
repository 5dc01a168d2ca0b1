"""The tables of benchmarks/tables/: turns, what is kept, what is written."""

import json
import os
import pathlib
import shutil
import sys
from unittest import mock

from absl import flags
from absl.testing import absltest

from benchmarks import bench, kept, report, turns
from infoword_tf.training import record
from tests.tasks import command

# Answers with the seconds that it was given, and ends where it should.
FAKE = '''
import json, sys
print(json.dumps({'tokens': 2, 'operations': 8}), flush=True)
for seconds in map(float, sys.argv[1:]):
    json.loads(sys.stdin.readline())
    if not seconds:
        sys.exit('it is broken')
    print(json.dumps({'seconds': seconds, 'amount': 12}), flush=True)
sys.stdin.read()
'''
RECORD = {
    'unit': 'tokens',
    'before': 0.01,
    'products': {'float32': 96.0},
    'rows': [
        {'name': 'peer', 'group': 'float32', 'seconds': [2.0, 1.0, 4.0],
         'amounts': [12, 12, 12], 'cores': 1.96, 'others': 0.002,
         'bytes': 1_530_000_000, 'tokens': 2, 'operations': 8},
        {'name': 'mlm', 'group': 'float32', 'seconds': [1.0, 1.0, 1.0],
         'amounts': [12, 12, 12], 'cores': 2.0, 'others': 0.31,
         'bytes': 1_000_000_000, 'tokens': 2, 'operations': 16,
         'apart': 2e-7},
        {'name': 'third', 'group': 'float32', 'others': 0.0,
         'failed': 'third ended: x\nno `room`'},
    ],
}  # fmt: skip
TABLE = """\
| | | tokens/s (lowest-highest) | x peer | of matrix products | apart \
| cores | GB | others |
|---|---|---|---|---|---|---|---|---|
| float32 | peer | 6.00 (3.00-12.00) | 1 | 25% | | 2.0 | 1.53 | 0% |
| | mlm | 12.0 | 2.00 (1.00-4.00) | 100% | 2e-07 | 2.0 \
| 1.00 | **31%** |

**third failed**: `no 'room'`

**The machine was busy**: others took 1% of it before, and up to 31% \
meanwhile. Ratios are of this machine at that time, not of the programs: \
threads that wait for each other lose most.
"""


class ReportTest(absltest.TestCase):
    def test_tables(self):
        self.assertEqual(report.lines_of(RECORD), TABLE.splitlines())
        lines = report.lines_of({**RECORD, 'basis': 'mlm'})
        self.assertIn('| x mlm |', lines[0])
        self.assertIn('| 0.50 (0.25-1.00) |', lines[2])
        many = {'seconds': [0.01] * 99 + [0.5], 'amounts': [1] * 100}
        row = {**RECORD['rows'][0], **many, 'scores': [0.5, 0.7, 0.6]}
        lines = report.lines_of({**RECORD, 'rows': [row]})
        self.assertIn('| score | p50, ms | p99, ms |', lines[0])
        self.assertIn('| 0.600 (0.500-0.700) | 10.0 | 500.0 |', lines[2])


class BenchTurnsTest(absltest.TestCase):
    def test_turns_and_who_fails(self):
        started = [
            turns.Served(name, [sys.executable, '-c', FAKE, *seconds.split()])
            for name, seconds in (
                ('one', '9 1 2 3'), ('two', '9 2 0'), ('three', '9 4 4 4')
            )
        ]  # fmt: skip
        with turns.closing(started):
            record = turns.compete(started, 'tokens', [{}] * 4, warm_up=1)
        one, two, three = record['rows']
        self.assertEqual(one['seconds'], [1.0, 2.0, 3.0])
        self.assertEqual(three['amounts'], [12, 12, 12])
        self.assertEqual(one['operations'], 8)
        self.assertGreater(one['bytes'], 1_000_000)
        self.assertEqual(two['seconds'], [])
        self.assertEqual(two['failed'], 'two ended: it is broken')

    def test_others_are_what_the_contestant_did_not_take(self):
        def run():
            return {'seconds': 1.0, 'amount': 1}, kept.Used(1.5, 5)

        with (
            mock.patch.object(turns, 'listen', return_value=0.5),
            mock.patch.object(turns, '_busy', side_effect=[0, 2, 2, 4]),
            mock.patch.object(turns.os, 'cpu_count', return_value=2),
            mock.patch.object(
                turns.time, 'perf_counter', side_effect=[0, 1, 1, 2]
            ),
        ):
            record = turns.compete([turns.Whole('x', run)], 'x', [{}, {}])
        (row,) = record['rows']
        self.assertEqual((row['cores'], row['others']), (1.5, 0.25))


class BenchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.ran, self.fails = [], set()
        names = ('step', 'calls_bfloat16', 'streams', 'pipeline')
        marks = {
            'speed': (*names, 'machine'),
            'speed_float32': ('step', 'streams', 'pipeline', 'machine'),
            'expected': ('expected',),
            'README': ('summary',),
        }
        for name, markers in marks.items():
            (self.folder / f'{name}.md').write_text(''.join(
                f'<!-- bench: {x} -->\n<!-- end -->\n' for x in markers
            ))  # fmt: skip
        parts = {name: bench.BENCHMARKS[name] for name in names}
        self.enterContext(mock.patch.object(bench, 'BENCHMARKS', parts))

        def run(module, log, *typed):
            self.ran.append(' '.join([module, *typed]))
            if module.removeprefix('benchmarks.') in self.fails:
                raise RuntimeError('log: no\nroom is left')
            log.write_text('x\n' + json.dumps(RECORD))

        self.enterContext(mock.patch.object(kept, 'run', run))

    def bench(self, instructions, *typed):
        with mock.patch.object(record, 'instructions', lambda: instructions):
            return command.run(
                bench, f'--workdir={self.folder / "w"}', '--weights=x',
                f'--tables={self.folder}',
                f'--speed={self.folder / "expected.md"}',
                f'--readme={self.folder / "README.md"}', *typed,
            )  # fmt: skip

    def page(self, name='speed'):
        return report.between((self.folder / f'{name}.md').read_text())

    def modules(self):
        return [x.split()[0].removeprefix('benchmarks.') for x in self.ran]

    def test_a_run_goes_on_and_says_what_failed(self):
        known = {'avx2', 'avx512f', 'avx512_bf16'}
        self.fails.add('pipeline')
        done = self.bench(known, '--quick')
        self.assertRegex(done.out, r'pipeline: \d+ s, room is left\n', done.err)
        # The others are for a full run.
        self.assertEqual(self.modules(), ['step', 'pipeline'])
        self.assertIn('--precisions=float32,mixed_bfloat16', self.ran[0])
        actual = self.page()
        self.assertEqual(actual['step'], TABLE)
        self.assertEqual(actual['pipeline'], '**Failed**: `room is left`\n')
        self.assertEqual(actual['streams'], 'Not measured by this run.\n')
        self.assertIn('\n| run | quick |\n', actual['machine'])
        self.assertIn('| AVX512 with BF16 |\n', actual['machine'])
        summary = self.page('README')['summary']
        self.assertIn(': `mlm` 2.00 in float32. ', summary)

        self.fails.clear()
        self.bench(known, '--quick')
        self.assertEqual(self.modules(), ['step', 'pipeline', 'pipeline'])
        self.assertEqual(self.page()['pipeline'], TABLE)
        self.assertEqual((self.folder / 'speed.png').read_bytes()[1:4], b'PNG')
        self.bench(known)  # with other flags: all is measured anew
        self.assertLen(self.ran, 7)
        with mock.patch.object(kept, 'commit', lambda: '0123abc'):
            self.bench(known, '--only=step', '--render')
        self.assertLen(self.ran, 8)
        self.assertIn('; step 0123abc |\n', self.page()['machine'])
        with self.assertRaisesRegex(
            flags.Error, "--only=pipelines: 'pipelines' is not any of step,"
        ):
            self.bench(known, '--only=pipelines')

    def test_kinds_of_processors_have_pages_and_columns(self):
        cores = f'{os.cpu_count()} cores'
        peer = {**RECORD['rows'][0], 'name': 'Model Garden'}
        record = {**RECORD, 'rows': [peer, RECORD['rows'][1]]}
        with mock.patch.dict(RECORD, record):
            self.bench({'avx512f', 'avx512_bf16'})
            before = {**self.page(), **self.page('expected')}
            shutil.rmtree(self.folder / 'w')
            self.ran.clear()
            done = self.bench({'avx2'})
        self.assertIn('left out: all tables in bfloat16', done.out, done.err)
        self.assertEqual(self.modules(), ['step', 'step', 'pipeline'])
        self.assertIn('--precisions=float32 ', self.ran[0])
        # One table has a further column, the second page the others.
        line = '| training step of `mlm`, float32 | Model Garden | '
        line += '**2.00**, 12.0 tokens/s |'
        self.assertIn(f'{line}\n', before['expected'])
        after = {**self.page(), **self.page('expected')}
        self.assertIn(f'{line} **2.00**, 12.0 tokens/s |\n', after['expected'])
        heads = f'| | beside | AVX512 with BF16, {cores} | AVX2, {cores} |\n'
        self.assertIn(heads, after['expected'])
        for name in ('step', 'machine', 'calls_bfloat16'):
            self.assertEqual(after[name], before[name])
        other = self.page('speed_float32')
        self.assertEqual(other['step'], after['step'])
        self.assertIn('| instructions | AVX2 |\n', other['machine'])
        self.assertTrue((self.folder / 'speed_float32.png').exists())
