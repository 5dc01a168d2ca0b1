"""Tables of made-up runs: steps of equal time, and what runs are worth."""

import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import kept, shares, tables, worth
from tests.tasks import command

RATES = {'slow': 16.0, 'fast': 64.0}  # steps a second
SCORES = {1e-4: 0.5, 3e-4: 0.75, 1e-3: 0.625}  # by learning rate
METRICS = {  # GLUE's own, Wang et al. 2019, table 1
    'sst-2': 'accuracy', 'cola': 'matthews', 'mrpc': 'f1', 'qnli': 'accuracy',
    'sts-b': 'spearman',
}  # fmt: skip
LINES = [
    '| `slow` | `mlm` | 0.875 (0.750-1.000) | -0.090 | 6.900 | 0.500 | 0.250 '
    '| 0.550 (0.500-0.600) | 480 | 0.5 | 1,600 |',
    '| `slow` | `nsp` | - | - | - | 0.500 | 0.250 | | 480 | 0.5 | 1,600 |',
    '| `fast` | `dim` | 0.875 (0.750-1.000) | -0.090 | 6.900 | 0.500 | 0.250 '
    '| 0.550 (0.500-0.600) | 1,920 | 0.5 | 6,400 |',
]


def trained(given, workdir):
    """Writes what the trainer leaves."""
    name, seed = given['flagfile'], int(given.get('seed', 0))
    steps, every = int(given['steps']), int(given.get('log_every', 5))
    rows = ['mlm', 'nsp'] if name == 'slow' else ['dim']
    (workdir / 'config.json').write_text(json.dumps(
        {'rows': dict.fromkeys(rows), 'precision': 'float32'}
    ))  # fmt: skip
    lines = []
    for step in range(every, steps + 1, every):
        rate = RATES[name]
        line = {'step': step, 'steps_per_second': rate,
                'tokens_per_second': 100 * rate}  # fmt: skip
        if step == every and 'seed' not in given:
            line['steps_per_second'] = 1.0  # of a warm-up
        for row in rows:
            line |= {f'heldout/{row}/accuracy': 0.5,
                     f'heldout/{row}/chance': 0.25}  # fmt: skip
            if row != 'nsp':
                line |= {f'heldout/{row}/mi': step / steps - seed / 4,
                         f'heldout/{row}/unigram_mi': -0.09,
                         f'heldout/{row}/ceiling': 6.9}  # fmt: skip
        lines.append(json.dumps(line))
    (workdir / 'metrics.jsonl').write_text('\n'.join(lines))


class Runs:
    """Stands for `kept.run`: made-up figures of a run, or of what is asked."""

    def __init__(self):
        self.calls = []

    def __call__(self, module, log, *typed):
        given = dict(flag[2:].split('=') for flag in typed if '=' in flag)
        self.calls.append((module, given))
        if module == 'benchmarks.worth':
            seed = int(given['init'][-1])
            log.with_suffix('.json').write_text(
                json.dumps({'short': 0.5 + seed / 10})
            )
            return
        workdir = pathlib.Path(given['workdir'])
        workdir.mkdir(parents=True, exist_ok=True)
        found = {'f1': 40.0, 'tests': {'EN-WS-353-ALL': {'spearman': 30.0}}}
        if module == 'infoword_tf.train':
            trained(given, workdir)
        elif 'task' in given:
            score = SCORES[float(given['learning_rate'])]
            row = 'score' if given['task'] == 'sts-b' else 'label'
            found['runs'] = {'all': {'mean': score, 'spread': 0.25}}
            found[METRICS[given['task']]] = score
            for seed in range(int(given['seeds'])):
                place = workdir / f'seed={seed}'
                place.mkdir()
                key = f'heldout/{row}/{METRICS[given["task"]]}'
                files = {key: score + seed / 10}
                (place / 'metrics.json').write_text(json.dumps(files))
        (workdir / 'metrics.json').write_text(json.dumps(found))


class Made(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.runs = self.enterContext(mock.patch.object(kept, 'run', Runs()))


class TablesTest(Made):
    def ran(self, *typed):
        table = tables.Table(('slow', 'fast'), 'short')
        with (
            mock.patch.dict(tables.TABLES, {'overlap': table}),
            mock.patch.dict(worth.ASKS, {'short': worth.Ask(worth.short)}),
        ):
            return command.run(
                tables, '--seeds=2', f'--workdir={self.folder}', *typed
            )

    def test_equal_time(self):
        asked = '--table=overlap', '--minutes=0.5', '--lanes=2'
        done = self.ran(*asked)
        # 30 s at 16 and 64 steps a second.
        self.assertIn('slow: 480 steps', done.out, done.err)
        self.assertIn('fast: 1,920 steps', done.out)
        table = (self.folder / 'table.md').read_text().splitlines()
        self.assertEqual(table[2:5], LINES)
        self.assertRegex(
            table[-1], r'Commit ([0-9a-f]{7,}\+?|unknown), seeds 0 to 1, float3'
        )
        picture = (self.folder / 'curves.png').read_bytes()
        self.assertEqual(picture[:4], b'\x89PNG')
        # What is finished is not run again.
        before = len(self.runs.calls)
        self.assertIn('\n'.join(LINES), self.ran(*asked).out)
        self.assertLen(self.runs.calls, before)
        (self.folder / 'commit').write_text('0123abc')
        self.assertIn('was begun at commit 0123abc', self.ran(*asked).err)

    def test_equal_steps(self):
        """No rate is measured; both train for them."""
        self.ran('--table=overlap', '--steps=30')
        steps = [given.get('steps') for _, given in self.runs.calls]
        self.assertCountEqual(steps, ['30'] * 4 + [None] * 4)

    def test_complaints(self):
        for typed, message in (
            ((), 'give --table, or --flagfiles'),
            (('--table=rows', '--flagfiles=slow'), 'give --table, or'),
            (('--flagfiles=slow', '--minutes=1', '--steps=2'),
             'give --minutes or --steps, not both'),
            (('--table=recipe',), 'texts: this table reads it and it is'),
        ):  # fmt: skip
            self.assertIn(f'error: {message}', self.ran(*typed).err)


class WorthTest(Made):
    def test_worth(self):
        """The best rate of the short task is every task's; so is a pooling."""
        def judged(workdir, pooling=None):
            del workdir
            sts = {None: 40.0, 'mean': 60.0, 'first_last': 50.0}[pooling]
            return {worth.MEAN: sts, worth.SCIFACT: 0.2 if pooling else 0.9}

        with mock.patch.object(worth, 'vectors', judged):
            found = worth.worth(self.folder)
        given = {pathlib.Path(given['workdir']).name: given
                 for _, given in self.runs.calls}  # fmt: skip
        self.assertAlmostEqual(found['learning rate x 1e4'], 3)
        self.assertEqual(given['rate_0.0001']['task'], 'sst-2')
        self.assertEqual(given['cola']['learning_rate'], '0.0003')
        self.assertEqual(given['squad']['learning_rate'], '0.0003')
        # Two looks at the dev set at least: 10,000 texts twice, 32 at a time.
        self.assertEqual(given['sst-2']['eval_every'], '313')
        for name in ('mean of GLUE', *worth.TASKS):
            for one, wanted in zip(found[name], (75, 85, 95), strict=True):
                self.assertAlmostEqual(one, wanted, msg=name)
        self.assertEqual(found[worth.MEAN], 60)
        self.assertAlmostEqual(found['mean of STS and SciFact'], 40)
        self.assertEqual((found['SQuAD F1'], found['WS-353']), (40, 30))


class SharesTest(Made):
    def test_table(self):
        done = command.run(
            shares, '--inits=0=a,0.8=b', '--examples=600,6000',
            '--data_dir=glue', '--typed=--learning_rate=3e-4',
            f'--workdir={self.folder}',
        )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        table = (self.folder / 'table.md').read_text().splitlines()
        self.assertEqual(table[0], '| | 600 | 6,000 |')
        cells = '| 0.750 +- 0.250 | 0.750 +- 0.250 |'
        self.assertEqual(table[2:], [f'| 0 {cells}', f'| 0.8 {cells}'])
        picture = (self.folder / 'shares.png').read_bytes()
        self.assertEqual(picture[:4], b'\x89PNG')
        asked = [(given['init'], given['examples'], given['seeds'])
                 for _, given in self.runs.calls]  # fmt: skip
        self.assertEqual(asked, [('a', '600', '3'), ('a', '6000', '3'),
                                 ('b', '600', '3'), ('b', '6000', '3')])


if __name__ == '__main__':
    absltest.main()
