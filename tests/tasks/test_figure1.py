"""tasks.figure1 on small files: which runs there are, and what they come to."""

import contextlib
import json
import statistics
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import checkpoint, files
from infoword_tf.data import tables
from tasks import figure1, finetune, glue, squad_data
from tests import places
from tests.runs import untimed
from tests.tasks import finetuning, squad_files
from tests.tasks.command import Checks
from tests.tasks.finetuning import last_line

TOTAL = 40


def setUpModule():
    global FOLDER
    FOLDER = places.make()
    rows = [
        (0, number % 2, '', f'{text} {number}')
        for number, (text, _) in enumerate(finetuning.sentences())
    ]
    for name, some in (('train', rows[:TOTAL]), ('dev', rows[TOTAL:60])):
        lines = ['\t'.join(map(str, row)) for row in some]
        path = FOLDER / 'glue' / 'CoLA' / f'{name}.tsv'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('\n'.join(lines) + '\n')


def run(name, *more):
    """The command; later flags win."""
    return finetuning.run(
        figure1, '--task=cola', f'--data_dir={FOLDER / "glue"}',
        f'--workdir={FOLDER / name}', *more,
    )  # fmt: skip


class Runs:
    """Stands for `finetune`: keeps what each run was given, trains nothing.

    The score of a run says its seed, its share and where it started.
    """

    def __init__(self):
        self.made = {}  # by folder: (init, seed, first texts)

    def prepare(self, task, parts, given):
        labelled = mock.Mock(fingerprint='', shared=None)
        labelled.train.size = len(parts['train'].first)
        labelled._replace.return_value = labelled
        labelled.parts = parts
        return finetune.PreparedTask(labelled, given)

    def done(self, folder, prepared, steps, chosen):
        del prepared, chosen
        assert steps > 0
        path = folder / 'best.json'
        return json.loads(path.read_text()) if path.exists() else None

    def read(self, folder):
        return mock.Mock(run=json.loads((folder / 'run.json').read_text()))

    def train_once(self, prepared, chosen):
        del chosen
        given = prepared.given
        init, seed, workdir = given.init, given.seed, given.workdir
        first = prepared.labelled.parts['train'].first
        name = workdir.rpartition('/')[2]
        self.made[name] = (init, seed, first)
        score = len(first) / 100 + seed / 1000 + len(init) / 1e4
        best = {
            'step': 1,
            'heldout/label/matthews': score,
            'heldout/label/mi': score / 2,
        }
        folder = FOLDER / workdir
        (folder / checkpoint.FOLDER).mkdir(parents=True)
        (folder / 'best.json').write_text(json.dumps(best))
        (folder / 'run.json').write_text(json.dumps({'init': init}))
        return best

    def __enter__(self):
        self.patches = contextlib.ExitStack()
        self.patches.enter_context(
            mock.patch.multiple(
                finetune,
                prepare=self.prepare,
                done=self.done,
                train_once=self.train_once,
                check_inits=mock.DEFAULT,
            )
        )
        self.patches.enter_context(mock.patch.object(figure1, 'Config', self))
        return self

    def __exit__(self, *error):
        self.patches.__exit__(*error)


class FigureTest(Checks, parameterized.TestCase):
    def tried(self, *given):
        """What the command said, and the runs that it made."""
        with Runs() as runs:
            done = run(*given)
        return last_line(done), runs.made

    def test_all_means_and_spreads(self):
        given = (
            '--inits=one=a,two=bbb', '--fractions=1,0.25', '--seeds=3',
            '--seed=5',
        )  # fmt: skip
        said, made = self.tried('all', *given, '--lambdas=0.4=cc,0.8=a')
        self.assertEqual(
            (said['task'], said['metric'], said['seeds']),
            ('cola', 'matthews', 3),
        )
        for row, init, count in (
            (said['fractions']['one']['0.25'], 'a', 10),
            (said['fractions']['two']['0.25'], 'bbb', 10),
            (said['fractions']['two']['1'], 'bbb', TOTAL),
            (said['lambdas']['0.4'], 'cc', TOTAL),
            (said['lambdas']['0.8'], 'a', TOTAL),
        ):
            scores = [
                count / 100 + seed / 1000 + len(init) / 1e4
                for seed in (5, 6, 7)
            ]
            self.assertEqual(row['examples'], count)
            self.assertAlmostEqual(
                row['matthews']['mean'], statistics.mean(scores), places=5
            )
            self.assertAlmostEqual(
                row['matthews']['spread'], statistics.stdev(scores), places=5
            )
            self.assertAlmostEqual(
                row['mi']['mean'], statistics.mean(scores) / 2, places=5
            )
        # What both plots want is run once.
        self.assertLen(made, 2 * 2 * 3 + 3)
        self.assertIn('lambda=0.4-fraction=1-seed=7', made)
        for name, (init, seed, first) in made.items():
            self.assertEndsWith(name, f'seed={seed}')
            whole = 'fraction=1-' in name
            self.assertLen(first, TOTAL if whole else 10)
            self.assertEqual(init, {'one': 'a', 'two': 'bbb'}.get(
                name.split('-')[0], 'cc'
            ))  # fmt: skip
        kept = json.loads((FOLDER / 'all/metrics.json').read_text())
        self.assertEqual(kept, said)
        picture = (FOLDER / 'all/figure1.png').read_bytes()
        self.assertStartsWith(picture, b'\x89PNG')
        # More seeds: what is there is not run again.
        _, made = self.tried('all', *given[:2], '--seeds=4', '--seed=5')
        self.assertLen(made, 4)
        self.assertEqual({seed for _, seed, _ in made.values()}, {8})

    def test_shares_are_nested_and_drawn_by_the_seed(self):
        _, made = self.tried(
            'nested', '--inits=one=a,two=b', '--fractions=0.2,0.4,1',
            '--seeds=2',
        )  # fmt: skip

        def texts(name, share, seed):
            return made[f'{name}-fraction={share:g}-seed={seed}'][2]

        for seed in (0, 1):
            self.assertContainsSubset(
                texts('one', 0.2, seed), texts('one', 0.4, seed)
            )
            # All start from the same examples, in the order of the file.
            self.assertEqual(texts('one', 0.4, seed), texts('two', 0.4, seed))
            order = [texts('one', 1, 0).index(x)
                     for x in texts('one', 0.4, seed)]  # fmt: skip
            self.assertEqual(order, sorted(order))
        self.assertNotEqual(texts('one', 0.4, 0), texts('one', 0.4, 1))

    def test_examples_bound_both(self):
        _, made = self.tried(
            'bounded', '--inits=one=a', '--fractions=0.5,1', '--examples=20',
            '--seeds=1',
        )  # fmt: skip
        sizes = [len(first) for _, _, first in made.values()]
        self.assertEqual(sizes, [10, 20])

    def test_questions_are_drawn_too(self):
        questions = [
            squad_files.question(f'q{i}', f'who saw the cat {i}', ('cat', 4))
            for i in range(20)
        ]
        path = squad_files.write(
            FOLDER / 'train-v1.1.json', ('the cat on the mat', *questions)
        )
        found = squad_data.read(path, False)
        few, more, other = (
            {drawn.texts.raw(i) for i in range(len(drawn.ids))}
            for drawn in (
                found.some(5, 1), found.some(10, 1), found.some(10, 2)
            )
        )  # fmt: skip
        self.assertLen(few, 5)
        self.assertLess(few, more)
        self.assertNotEqual(more, other)
        squad_files.write(
            FOLDER / 'dev-v1.1.json', ('the cat on the mat', questions[0])
        )
        asked = figure1.asked('squad', str(FOLDER))
        self.assertEqual(asked.total, 20)
        self.assertEqual(asked.task.metrics[0], 'f1')
        self.assertLen(asked.parts['train'].some(5, 3).ids, 5)

    def test_a_subset_is_of_its_seed(self):
        found = [tuple(tables.subset(99, 9, seed)) for seed in (0, 1, 2, 1)]
        self.assertLen(set(found), 3)
        self.assertEqual(found[1], found[3])
        self.assertEqual(found[0], tuple(tables.subset(99, 9)))

    @parameterized.parameters(
        ((), '--inits is missing: name workdirs to compare'),
        (('--inits=runs/a',), "--inits: 'runs/a' is no NAME=WORKDIR"),
        (('--inits=a=b,a=c',), '--inits names a twice'),
        (('--inits=a=b', '--init=c'), '--init and --sweep are of one'),
        (('--inits=a=b', '--sweep=bert'), '--init and --sweep are of one'),
        (('--inits=a=b', '--fractions=0.1,half'), "'half' is no number from"),
        (('--inits=a=b', '--fractions=1.5'), "'1.5' is no number from 0 to 1"),
        (('--inits=a=b', '--fractions=nan'), "'nan' is no number from 0 to 1"),
        (('--inits=a=b', '--fractions=0.1,1'),
         '0.1 of 40 examples are 4, fewer than --batch_size=8'),
        (('--inits=a=b', '--lambdas=high=c'), "'high' is no number from"),
    )  # fmt: skip
    def test_complaints(self, given, message):
        with mock.patch.object(finetune, 'check_inits'):
            self.assert_complains(run('none', *given), message)

    def test_the_picture(self):
        def cells(*means):
            return {
                share: figure1.SeedRuns(
                    round(share * 100), {'matthews': [m - 0.1, m, m + 0.1]}
                )
                for share, m in zip((0.1, 0.3, 1.0), means, strict=True)
            }

        two = {'one': cells(0.1, 0.2, 0.3), 'two': cells(0.2, 0.3, 0.5)}
        task = glue.task_of('cola')
        figure = figure1.picture(task, 3, two, {0.8: two['one'][1.0]})
        left, right = figure.axes
        for bars, means in zip(
            left.containers, ((0.1, 0.2, 0.3), (0.2, 0.3, 0.5)), strict=True
        ):
            line, _, (spread,) = bars
            np.testing.assert_allclose(np.float64(line.get_ydata()), means)
            for (low, high), mean in zip(
                (segment[:, 1] for segment in spread.get_segments()), means,
                strict=True,
            ):  # fmt: skip
                self.assertAlmostEqual(mean - low, 0.1)
                self.assertAlmostEqual(high - mean, 0.1)
        labels = [text.get_text() for text in left.get_xticklabels()]
        self.assertEqual(labels, ['0.1\n10', '0.3\n30', '1\n100'])
        names = [text.get_text() for text in left.get_legend().get_texts()]
        self.assertEqual(names, ['one', 'two'])
        self.assertEqual(list(right.containers[0][0].get_xdata()), [0.8])
        alone = figure1.picture(task, 1, {'one': two['one']}, {})
        self.assertLen(alone.axes, 1)
        self.assertIsNone(alone.axes[0].get_legend())


class RealTest(Checks, absltest.TestCase):
    def test_a_study_goes_on(self):
        """Two runs of the real command, which then are there."""
        given = (
            f'--inits=one={finetuning.init()}', '--fractions=0.5',
            '--seeds=2', '--steps=2',
        )  # fmt: skip
        done = run('real', *given)
        said = last_line(done)
        cell = said['fractions']['one']['0.5']
        self.assertEqual(cell['examples'], 20)
        mi = []
        for seed in range(2):
            folder = FOLDER / 'real' / f'one-fraction=0.5-seed={seed}'
            self.assertFalse((folder / checkpoint.FOLDER).exists())
            best = json.loads((folder / 'metrics.json').read_text())
            mi.append(best['heldout/label/mi'])
        self.assertAlmostEqual(cell['mi']['mean'], np.mean(mi), places=5)
        # Each knows its own examples' classes, as the run alone; bit for bit.
        drawn = FOLDER / 'drawn' / 'CoLA'
        drawn.mkdir(parents=True)
        for part, rows in (('train', tables.subset(TOTAL, 20, 1)),
                           ('dev', range(20))):  # fmt: skip
            lines = (FOLDER / 'glue/CoLA' / f'{part}.tsv').read_text()
            lines = lines.splitlines(keepends=True)
            (drawn / f'{part}.tsv').write_text(''.join(lines[i] for i in rows))
        alone = finetuning.run(
            glue, '--task=cola', f'--data_dir={drawn.parent}', '--steps=2',
            f'--init={finetuning.init()}', f'--workdir={FOLDER / "alone"}',
            '--seed=1',
        )  # fmt: skip
        self.assertEqual(alone.status, 0, alone.err)
        np.testing.assert_equal(*(
            files.read_tensors(at / 'weights.safetensors')
            for at in (folder, FOLDER / 'alone')
        ))  # fmt: skip
        self.assertEqual(untimed(folder), untimed(FOLDER / 'alone'))
        with mock.patch.object(finetune, 'train_once', side_effect=OSError):
            again = run('real', *given)
            self.assertEqual(last_line(again), said)
            other = run('real', *given, '--learning_rate=0.5')
            self.assert_complains(
                other, r'holds a run with other flags: --learning_rate=0\.5 '
            )
            link = FOLDER / 'elsewhere'
            link.symlink_to(finetuning.init())
            other = run('real', f'--inits=one={link}', *given[1:])
            self.assert_complains(other, 'began with .*, not .*/elsewhere; ta')

    def test_a_class_that_no_example_has(self):
        rows = tables.TableExamples(
            ['a', 'b'], None, ['0', '0'], None, 'few.tsv', np.arange(2)
        )
        task = glue.task_of('cola')
        with self.assertRaisesRegex(
            ValueError, "few.tsv: none of the 2 examples is 'acceptable', whi"
        ):
            finetune.prepare(
                task,
                {'train': rows, 'heldout': rows._replace(labels=['0', '1'])},
                finetune.Choices(init='none'),
            )
