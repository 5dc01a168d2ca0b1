"""The tables of docs/speed.md: turns, what is kept, what is written."""

import json
import pathlib
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks import bench, growth, kept, replicas, report, turns
from infoword_tf import commands, files
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
        {'name': 'ours', 'group': 'float32', 'seconds': [1.0, 1.0, 1.0],
         'amounts': [12, 12, 12], 'cores': 2.0, 'others': 0.0,
         'bytes': 1_000_000_000, 'tokens': 2, 'operations': 16,
         'apart': 2e-7},
        {'name': 'third', 'group': 'float32', 'seconds': [], 'amounts': [],
         'cores': 0.0, 'others': 0.0, 'failed': 'third ended: x\nno `room`'},
    ],
}  # fmt: skip
TABLE = [
    '| | | tokens/s (lowest-highest) | x peer | of matrix products | apart '
    '| cores | GB | others |',
    '|---|---|---|---|---|---|---|---|---|',
    '| float32 | peer | 6.00 (3.00-12.00) | 1 | 25% | | 2.0 | 1.53 | 0% |',
    '| | ours | 12.0 (12.0-12.0) | 2.00 (1.00-4.00) | 100% | 2e-07 | 2.0 '
    '| 1.00 | 0% |',
    '',
    "**third failed**: `no 'room'`",
]
CURVE = {
    'kind': 'growth', 'unit': 'tokens', 'x': 'T', 'before': 0.0,
    'rows': [
        {'name': f'mlm {x}', 'group': 'mlm', 'x': x, 'seconds': [seconds],
         'amounts': [4096], 'tokens': 1024, 'operations': 10**9,
         'traffic': 10**7, 'products': 10**11, 'copies': 10**10,
         'cores': 2.0, 'others': others, 'bytes': 10**9}
        for x, seconds, others in ((64, 0.08, 0.0), (1024, 0.088, 0.31))
    ],
}  # fmt: skip
CURVE_TABLE = [
    '| | T | tokens/s (lowest-highest) | ms a step | formula, ms '
    '| measured / formula | GB | others |',
    '|---|---|---|---|---|---|---|---|',
    '| mlm | 64 | 51,200 | 20.0 | 11.0 | 1.82 | 1.00 | 0% |',
    '| mlm | 1,024 | 46,545 | 22.0 | 11.0 | 2.00 | 1.00 | **31%** |',
    '',
    '**The machine was busy**: others took 0% of it before, and up to 31% '
    'meanwhile. Ratios are of this machine at that time, not of the programs: '
    'threads that wait for each other lose most.',
]


class ReportTest(absltest.TestCase):
    def test_tables(self):
        self.assertEqual(report.lines_of(RECORD), TABLE)
        self.assertEqual(report.lines_of(CURVE), CURVE_TABLE)

    def test_others_are_compared_with_a_basis_that_is_named(self):
        lines = report.lines_of({**RECORD, 'basis': 'ours'})
        self.assertIn('| x ours |', lines[0])
        self.assertIn('| 0.50 (0.25-1.00) |', lines[2])

    def test_percentiles_of_many_turns(self):
        row = {**RECORD['rows'][0], 'seconds': [0.01] * 99 + [0.5],
               'amounts': [1] * 100}  # fmt: skip
        lines = report.lines_of({**RECORD, 'rows': [row]})
        self.assertIn('| p50, ms | p99, ms |', lines[0])
        self.assertIn('| 10.0 | 500.0 |', lines[2])

    def test_documents_are_filled_between_markers(self):
        text = 'a\n<!-- bench: x -->\nold\n\nold\n<!-- end -->\nb\n'
        text += '<!-- bench: y -->\n<!-- end -->\n'
        filled = report.fill(text, {'x': [r'\1 | new']})
        self.assertEqual(report.between(filled), {'x': '\\1 | new\n', 'y': ''})
        self.assertStartsWith(filled, 'a\n<!--')
        self.assertEqual(report.fill(filled, {'x': ['old', '', 'old']}), text)
        with self.assertRaisesRegex(ValueError, "0 pairs of markers of 'z'"):
            report.fill(text, {'z': []})


class TurnsTest(absltest.TestCase):
    def compete(self, *, warm_up=0, **fakes):
        started = [
            turns.Served(name, [sys.executable, '-c', FAKE, *seconds.split()])
            for name, seconds in fakes.items()
        ]
        with turns.ended(started), mock.patch.object(turns, '_LISTENED', 0.01):
            record = turns.compete(started, 'tokens', [{}] * 3, warm_up)
        return {row['name']: row for row in record['rows']}

    def test_turns_and_who_fails(self):
        rows = self.compete(one='1 2 3', two='2 0', three='4 4 4')
        self.assertEqual(rows['one']['seconds'], [1.0, 2.0, 3.0])
        self.assertEqual(rows['three']['amounts'], [12, 12, 12])
        self.assertEqual(rows['one']['operations'], 8)
        self.assertGreater(rows['one']['bytes'], 1_000_000)
        self.assertEqual(rows['two']['seconds'], [])
        self.assertEqual(rows['two']['failed'], 'two ended: it is broken')
        self.assertNotIn('failed', rows['one'])

    def test_what_warms_up_does_not_count(self):
        rows = self.compete(one='9 2 3', two='9 5 6', warm_up=1)
        self.assertEqual(rows['one']['seconds'], [2.0, 3.0])

    def test_a_peer_that_is_not_installed_fails_alone(self):
        side = turns.Served('peer', ['/nowhere/python'])
        with turns.ended([side]):
            with self.assertRaisesRegex(RuntimeError, 'make bench-peers'):
                side.ask({})

    def test_others_are_what_the_contestant_did_not_take(self):
        class Busy:
            name, group, facts, spent = 'x', '', {}, 0.0

            def ask(self, asked):
                del asked
                self.spent += 1.5
                return {'seconds': 1.0, 'amount': 1}

            def used(self):
                return kept.Used(self.spent, 5)

        with (
            mock.patch.object(turns, 'listen', return_value=0.5),
            mock.patch.object(turns, '_busy', side_effect=[0, 2, 2, 4]),
            mock.patch.object(turns.os, 'cpu_count', return_value=2),
            mock.patch.object(
                turns.time, 'perf_counter', side_effect=[0, 1, 1, 2]
            ),
        ):
            record = turns.compete([Busy()], 'x', [{}, {}])
        (row,) = record['rows']
        self.assertEqual((row['cores'], row['others']), (1.5, 0.25))
        self.assertEqual(record['before'], 0.5)


class BenchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        names = [*bench.PARTS, bench.MACHINE]
        self.docs, self.readme = self.folder / 'docs', self.folder / 'R.md'
        self.docs.mkdir()
        (self.docs / 'speed.md').write_text(
            ''.join(f'<!-- bench: {x} -->\n<!-- end -->\n' for x in names)
        )
        self.readme.write_text('<!-- bench: summary -->\n<!-- end -->\nx\n')
        self.ran = []

    def run_bench(self, *given, fails=()):
        def run(module, log, *flags):
            self.ran.append((module, *flags))
            if module in fails:
                raise RuntimeError('log: no\nroom is left')
            record = CURVE if module == 'benchmarks.growth' else RECORD
            log.write_text('x\n' + json.dumps({'records': [record]}))

        parts = {
            'step': bench.PARTS['step'],
            'streams': bench.PARTS['streams'],
            'length': bench.PARTS['length'],
        }
        with (
            mock.patch.object(kept, 'run', run),
            mock.patch.object(kept, 'commit', return_value='abc'),
            mock.patch.object(bench, 'PARTS', parts),
            mock.patch.object(turns, '_LISTENED', 0.01),
        ):
            return command.run(
                bench, f'--workdir={self.folder / "w"}', '--weights=x',
                f'--docs={self.docs}', f'--readme={self.readme}', *given,
            )  # fmt: skip

    def test_a_run_goes_on_and_says_what_failed(self):
        first = self.run_bench('--quick', fails=['benchmarks.growth'])
        self.assertEqual(first.status, 0, first.err)
        self.assertRegex(first.out, r'length: \d+ s, room is left\n')
        self.assertLen(self.ran, 2)  # streams is no part of a quick run
        self.assertIn('--rounds=3', self.ran[0])
        found = report.between((self.docs / 'speed.md').read_text())
        self.assertEqual(found['step'].splitlines(), TABLE)
        self.assertEqual(found['length'], '**Failed**: `room is left`\n')
        self.assertEqual(found['streams'], 'Not measured by this run.\n')
        self.assertIn('\n| run | quick |\n', found['machine'])
        self.assertIn('\n| one large matrix product |', found['machine'])

        second = self.run_bench('--quick')
        self.assertEqual(second.status, 0, second.err)
        self.assertLen(self.ran, 3)
        found = report.between((self.docs / 'speed.md').read_text())
        self.assertEqual(found['length'].splitlines(), CURVE_TABLE)
        self.assertEqual((self.docs / 'speed.png').read_bytes()[1:4], b'PNG')

        self.run_bench()  # with other flags: all is measured anew
        self.assertLen(self.ran, 6)

    def test_parts_alone_write_no_document(self):
        self.run_bench('--quick', '--only=length')
        self.assertEqual([m for m, *_ in self.ran], ['benchmarks.growth'])
        self.assertNotIn('| T |', (self.docs / 'speed.md').read_text())
        done = self.run_bench('--only=lenght')
        self.assertEqual(done.status, 1)
        self.assertIn('error: --only=lenght: there is no such part', done.err)

    def test_the_readme_has_medians_of_the_table(self):
        record = json.loads(json.dumps(RECORD))
        record['rows'][1]['name'] = 'mlm'
        machine = {'processor': 'Abacus', 'cores': 2}
        (line,) = bench.summary_lines(machine, record)
        self.assertIn('(Abacus, 2 cores): `mlm` 2.00 in float32. ', line)
        (line,) = bench.summary_lines(machine, {**record, 'before': 0.2})
        self.assertIn('(Abacus, 2 cores, beside other work): ', line)

    def test_a_commit_holds_a_folder(self):
        self.run_bench('--quick', '--only=length')
        (self.folder / 'w' / 'commit').write_text('other')
        done = self.run_bench('--quick')
        self.assertEqual(done.status, 1)
        self.assertIn('was begun at commit other, and this is abc', done.err)


class GrowthTest(absltest.TestCase):
    def test_points(self):
        """Of a length as many tokens; all else stays."""
        wanted = {
            ('length', 256): {'--seq_len=256', '--batch_size=16'},
            ('batch', 8): {'--seq_len=128', '--batch_size=8'},
            ('vocabulary', 99): {'--vocab_size=99', '--batch_size=32'},
            ('candidates', 50): {'--queue=50', '--serve=queue'},
        }
        for (of, x), flags in wanted.items():
            with mock.patch.object(turns, 'Served') as served:
                growth.point(growth.Choices(of=of, steps=3), 'simcse', x)
            name, command, group = served.call_args.args
            self.assertEqual((name, group), (f'simcse {x}', 'simcse'))
            self.assertContainsSubset({*flags, '--steps=3'}, command)

    def test_replicas(self):
        """Each updates all weights."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        files.write_tensors(
            folder / 'weights.safetensors',
            {'a': np.zeros((3, 5)), 'b': np.zeros(7)},
        )
        encoder = mock.Mock(arguments={'vocab_size': 500})
        with mock.patch.object(replicas.Config, 'read') as read:
            read.return_value = mock.Mock(encoder=encoder)
            one, two = (replicas.costs('tiny', folder, n) for n in (1, 2))
        self.assertEqual(two['traffic'] - one['traffic'], 44 * 22)
        self.assertEqual(two['operations'], one['operations'])


class InputsTest(absltest.TestCase):
    def test_what_is_half_made_is_made_anew(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        made = []

        def make(path, weights):
            made.append(weights)
            path.mkdir()
            if len(made) == 1:
                raise RuntimeError('stopped')

        with mock.patch.dict(bench.INPUTS, {'glue': make}):
            with self.assertRaises(RuntimeError):
                bench.make_input(folder, 'glue', 'w')
            for _ in range(2):
                bench.make_input(folder, 'glue', 'w')
        self.assertEqual(made, ['w', 'w'])

    def test_without_weights(self):
        with mock.patch.object(bench.peers, 'ROOT', pathlib.Path('/nowhere')):
            with self.assertRaisesRegex(commands.UsageError, 'make bench-pee'):
                bench.peers.weights()


if __name__ == '__main__':
    absltest.main()
