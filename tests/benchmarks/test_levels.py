"""Tables of levels and of students, of made-up runs."""

import contextlib
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import kept, levels
from tests import places
from tests.tasks import command, finetuning, squad_files

LEVELS = [
    '| mrpc | 3,668 | f1 | 0.857 | 0.562 (0.500-0.625) | 0.250 | 0.624 | 344 '
    '| 2.5 |',
    '| sts-b | 3,668 | spearman | 0.000 | 0.562 (0.500-0.625) | - | - | 344 '
    '| 2.5 |',
    '| squad | 3,668 | f1 | 0.500 | 0.562 (0.500-0.625) | 3.000 | 4.900 | 344 '
    '| 2.5 |',
]
STUDENTS = [
    '| mrpc | 3 | f1 | 0.875 | 0.500 | 0.531 | 0.562 | 0.594 |',
    '| mrpc | 2 | f1 | 0.875 | 0.375 | 0.406 | 0.438 | 0.469 |',
]
BOUNDS = {'label': (0.25, 0.624), 'span': (3.0, 4.9), 'score': ()}
WORSE = {'3': 0.0, '2': 0.125}  # by layers


def run(module, log, *typed):
    """Makes up what a command leaves."""
    CALLS.append([module, *typed])
    choices = dict(x[2:].split('=', 1) for x in typed if '=' in x)
    workdir, seed = pathlib.Path(choices['workdir']), int(choices['seed'])
    task = levels.task_of(choices.get('task', 'squad'))
    score = 0.5 + seed / 8
    if module == 'tasks.distill':
        method = list(levels.METHODS).index(workdir.parent.name)
        score += method / 32 - WORSE[choices['layers']]
    write(workdir, task, score)


def write(workdir, task, score):
    (workdir / 'checkpoints').mkdir(parents=True)
    key = f'heldout/{task.row}'
    bounds = zip(('mi', 'ceiling'), BOUNDS[task.row], strict=False)
    metric, whole = f'{key}/{task.metrics[0]}', 100 if task.row == 'span' else 1
    last = {f'{key}/{name}': value for name, value in bounds}
    last |= {metric: score * whole, 'step': 344}
    best = {**last, metric: whole, 'step': 228, 'seconds': 150.0}
    for name, values in (
        ('config', {'task': {'sizes': {'train': 3668}},
                    'precision': 'float32'}),
        ('metrics', best),
    ):  # fmt: skip
        (workdir / f'{name}.json').write_text(json.dumps(values))
    lines = ''.join(f'{json.dumps(record)}\n' for record in (best, last))
    (workdir / 'metrics.jsonl').write_text(lines)


class LevelsTest(places.Folder, absltest.TestCase):
    def setUp(self):
        global CALLS
        super().setUp()
        CALLS = []
        self.enterContext(mock.patch.object(kept, 'run', run))
        self.enterContext(contextlib.chdir(self.folder))
        finetuning.write(
            'glue/MRPC/dev.tsv', ('Quality', '#1 String', '#2 String'),
            [(label, 'a', 'b') for label in (1, 0, 1, 1)],
        )  # fmt: skip
        finetuning.write(
            'glue/STS-B/dev.tsv', ('sentence1', 'sentence2', 'score'),
            [('a', 'b', '1.5'), ('c', 'd', '4.5')],
        )  # fmt: skip
        (self.folder / 'squad').mkdir()
        context = 'one two three four five six'
        for path in levels.FILES.values():
            squad_files.write(
                self.folder / path,
                (context, *(squad_files.asked(context, answer, name=answer)
                            for answer in ('one two', 'six'))),
            )  # fmt: skip

    def ran(self, *typed):
        """Lines of a table, and how many commands ran."""
        before = len(CALLS)
        done = command.run(levels, '--init=MiniLM', '--workdir=out', *typed)
        self.assertEqual(done.status, 0, done.err)
        table = pathlib.Path('out/table.md').read_text()
        self.assertIn(table, done.out)
        return table.splitlines(), len(CALLS) - before

    def test_levels(self):
        """One task after the other, and all of them again without a run."""
        _, count = self.ran('--tasks=mrpc', '--seeds=2', '--typed=--x=1 --y')
        self.assertEqual(count, 2)
        module, *typed = CALLS[1]
        self.assertEqual(module, 'tasks.glue')
        self.assertContainsSubset(
            ('--task=mrpc', '--data_dir=glue', '--notest', '--init=MiniLM',
             '--seed=1', '--x=1', '--y', '--workdir=out/mrpc/seed=1'), typed,
        )  # fmt: skip
        every = '--tasks=mrpc,sts-b,squad', '--seeds=2', '--lanes=2'
        lines, count = self.ran(*every)
        self.assertEqual((lines[2:5], count), (LEVELS, 4))
        self.assertRegex(lines[-1], r'^Commit \S+, seeds 0 to 1, float32\.$')
        # Lanes begin their last runs in either order.
        squad = {'tasks.squad', '--train=squad/train-v1.1.json', '--epochs=1'}
        self.assertLen([call for call in CALLS if squad <= {*call}], 2)
        self.assertEqual(self.ran(*every), (lines, 0))
        self.assertEmpty(list(self.folder.glob('**/checkpoints')))

    def test_students(self):
        write(
            self.folder / 'runs/mrpc/seed=0', levels.task_of('mrpc'), 0.875)
        asked = ('--table=students', '--teachers=runs', '--tasks=mrpc',
                 '--seeds=1')  # fmt: skip
        lines, count = self.ran(*asked)
        self.assertEqual((lines[2:4], count), (STUDENTS, 8))
        self.assertContainsSubset(
            ('--alpha=0', '--patience=none', '--layers=3', '--task=mrpc',
             '--init=MiniLM', '--teacher=runs/mrpc/seed=0',
             '--workdir=out/mrpc/3/fine-tuning/seed=0'), CALLS[0],
        )  # fmt: skip
        self.assertEqual(self.ran(*asked), (lines, 0))

    def test_refused(self):
        for id, *typed in (
            ('unknown_level', '--tasks=mrpc,ner'),
            ('missing_flag', '--table=students'),
            ('benchmark_lacks_file', '--table=students', '--teachers=runs'),
        ):
            with self.subTest(id):
                done = command.run(
                    levels, '--init=MiniLM', '--workdir=out', *typed)
                self.assertEqual((done.status, done.id), (1, id))
