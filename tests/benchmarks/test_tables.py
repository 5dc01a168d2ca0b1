"""Tables of made-up runs: steps of equal time, and what runs are worth."""

import contextlib
import dataclasses
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import kept, shares, tables, worth
from infoword_tf.data import glue_layout
from tests.tasks import command

RATES = {'slow': 16.0, 'fast': 64.0}  # steps a second
SCORES = {1e-4: 0.5, 3e-4: 0.75, 1e-3: 0.625}  # by learning rate
LINES = [
    '| `slow` | `mlm` | 0.875 (0.750-1.000) | -0.090 | 6.900 | - | - '
    '| 0.550 (0.500-0.600) | 480 | 0.5 | 1,600 |',
    '| `fast` | `mlm` | 0.875 (0.750-1.000) | -0.090 | 6.900 | - | - '
    '| 0.550 (0.500-0.600) | 1,920 | 0.5 | 6,400 |',
]


def trained(choices):
    seed, steps = int(choices.get('seed', 0)), int(choices['steps'])
    every, rate = int(choices.get('log_every', 5)), RATES[choices['flagfile']]
    for step in range(every, steps + 1, every):
        first = step == every and 'seed' not in choices
        yield json.dumps({
            'step': step, 'tokens_per_second': 100 * rate,
            'steps_per_second': 1.0 if first else rate,  # warms up
            'heldout/mlm/mi': step / steps - seed / 4,
            'heldout/mlm/unigram_mi': -0.09, 'heldout/mlm/ceiling': 6.9,
        })  # fmt: skip


def run(module, log, *typed):
    """Makes up what a command leaves."""
    choices = dict(flag[2:].split('=') for flag in typed if '=' in flag)
    CALLS.append(choices)
    place = pathlib.Path(choices.get('workdir', log.parent))
    place.mkdir(parents=True, exist_ok=True)
    actual = {'f1': 40.0, 'accuracy': 60.0}
    if module == 'benchmarks.worth':
        answers = {'short': 0.5 + int(choices['init'][-1]) / 10}
        (place / 'short.json').write_text(json.dumps(answers))
    elif module == 'infoword_tf.train':
        config = {'rows': {'mlm': {}}, 'precision': 'float32'}
        (place / 'config.json').write_text(json.dumps(config))
        (place / 'metrics.jsonl').write_text('\n'.join(trained(choices)))
    elif 'task' in choices:
        task, score = worth.Glue.of(choices['task']), SCORES[
            float(choices['learning_rate'])]  # fmt: skip
        actual['runs'] = {'all': {'mean': score, 'spread': 0.25}}
        # By a part of CoLA's examples the other rate is the best.
        if choices['task'] == 'cola' and choices['data_dir'] != 'glue':
            score = 1 - score
        actual[task.metrics[0]] = score
        last = {f'heldout/label/{task.metrics[0]}': score - 0.25}
        (place / 'metrics.jsonl').write_text(json.dumps(last))
    (place / 'metrics.json').write_text(json.dumps(actual))


class BenchmarkTablesTest(absltest.TestCase):
    def setUp(self):
        global CALLS
        super().setUp()
        CALLS = []
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.enterContext(mock.patch.object(kept, 'run', run))

    def test_equal_time(self):
        asked = (
            '--table=overlap', '--minutes=0.5', '--lanes=2', '--seeds=2',
            f'--workdir={self.folder}',
        )  # fmt: skip
        table = tables.RunTable(('slow', 'fast'), 'short')
        self.enterContext(mock.patch.dict(tables.TABLES, overlap=table))
        self.enterContext(
            mock.patch.dict(worth.ASKS, short=worth.Ask(worth.short))
        )
        done = command.succeeded(command.run(tables, *asked))
        table = (self.folder / 'table.md').read_text().splitlines()
        self.assertEqual(table[2:4], LINES)
        self.assertRegex(
            table[-1], r'Commit ([0-9a-f]{7,}\+?|unknown), seeds 0 to 1, float3'
        )
        picture = (self.folder / 'curves.png').read_bytes()
        self.assertEqual(picture[:4], b'\x89PNG')
        # What is finished is not run again.
        before = len(CALLS)
        self.assertIn('\n'.join(LINES), command.run(tables, *asked).out)
        self.assertLen(CALLS, before)
        (self.folder / 'commit').write_text('0123abc')
        done = command.run(tables, *asked)
        self.assertIn('was begun at commit 0123abc', done.err)

    def test_spread(self):
        for values, expected in (
            ([0.5], '0.500'), ([0.25, 0.5], '0.375 (0.250-0.500)'),
            ([-0.2, 0.1], '-0.050 (-0.200 to 0.100)'), ([120.0], '120.0'),
            ([None], '-'),
        ):  # fmt: skip
            self.assertEqual(tables.spread(values), expected)

    def test_steps_of_an_entry(self):
        """They stand; the rate of the other entry alone is measured."""
        table = tables.RunTable(('slow --steps=7', 'fast'))
        choices = tables.TablesChoices(minutes=0.5)
        actual = [*tables.plan(choices, table, self.folder)]
        self.assertEqual(actual[0], ('slow --steps=7', 0, 'slow --steps=7', ''))
        self.assertStartsWith(actual[1][3], '--steps=')
        self.assertLen(CALLS, 1)
        chosen = dataclasses.replace(choices, steps=3)
        steps = {x[3] for x in tables.plan(chosen, table, self.folder)}
        self.assertEqual(steps, {'--steps=3'})

    def test_worth(self):
        """Every task has the rate that is best on a tenth of its examples."""

        def judged(workdir, pooling=None):
            del workdir
            sts = {None: 40.0, 'mean': 60.0, 'first_last': 50.0}[pooling]
            return {worth.MEAN: sts, worth.SCIFACT: 0.2 if pooling else 0.9}

        self.enterContext(contextlib.chdir(self.folder))
        for task in worth.TUNED_TASKS:
            about = glue_layout.TASKS[task]
            path = pathlib.Path('glue', about.folder, 'train.tsv')
            path.parent.mkdir(parents=True)
            header = '' if about.header else 'head\n'
            lines = ''.join(f'{i}\n' for i in range(21))
            path.write_text(header + lines)
        workdir = pathlib.Path('mine')
        with mock.patch.object(worth, 'vectors', judged):
            actual = worth.worth(workdir)
        scores = {task: 75.0 for task in worth.TASKS} | {'cola': 62.5}
        self.assertEqual(actual | scores, actual)
        self.assertEqual(actual['mean of GLUE'], 72.5)
        self.assertEqual(actual['mean of STS and SciFact'], 40)
        self.assertEqual(actual['SQuAD F1'], 40)
        for task, head in ('CoLA', ''), ('MRPC', 'head\n'):
            held = workdir / 'held_out' / task
            self.assertEqual(
                (held / 'dev.tsv').read_text(), f'{head}0\n10\n20\n'
            )
            trained = (held / 'train.tsv').read_text()
            self.assertEqual(len(trained.split()), 18 + bool(head))
        expected = dict.fromkeys(worth.TUNED_TASKS, [50.0] * 3)  # at the end
        expected |= {'cola': [37.5] * 3, worth.ONE_TEXT: [43.75] * 3}
        expected |= dict.fromkeys((worth.PROBED, 'MR', 'TREC'), 60.0)
        expected[worth.TWO_TEXTS] = [50.0] * 3
        self.assertEqual(worth.ASKS['tuned'].of(workdir), expected)
        whole = [x for x in CALLS if x.get('seed') == '2']
        self.assertEqual({x['data_dir'] for x in whole}, {'glue'})
        self.assertEqual(
            {x['task']: float(x['learning_rate']) for x in whole},
            {**dict.fromkeys(worth.TUNED_TASKS, 3e-4), 'cola': 1e-3},
        )

    def test_shares(self):
        command.succeeded(command.run(
            shares, '--inits=0=a,0.8=b', '--examples=600,6000',
            '--data_dir=glue', '--typed=--learning_rate=3e-4',
            f'--workdir={self.folder}',
        ))  # fmt: skip
        table = (self.folder / 'table.md').read_text().splitlines()
        cells = '| 0.750 +- 0.250 | 0.750 +- 0.250 |'
        self.assertEqual(table[2:], [f'| 0 {cells}', f'| 0.8 {cells}'])
        asked = [choices['init'] + choices['examples'] for choices in CALLS]
        self.assertEqual(asked, ['a600', 'a6000', 'b600', 'b6000'])
