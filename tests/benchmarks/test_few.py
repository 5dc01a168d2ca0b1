"""Few labels and much text: what is drawn, what runs, and the table."""

import contextlib
import json
from unittest import mock

from absl.testing import absltest

from benchmarks import few, kept
from infoword_tf.data.glue_layout import GlueTask
from tests import places


class ExamplesTest(absltest.TestCase):
    def test_labels_of_some_and_no_text_twice(self):
        """Columns by name, wherever they stand; 10,000 without a label."""
        folder = places.make()
        task = few.GlueExamples(GlueTask('own', ('x', 'y', 'mark')))
        lines = [f'{n}\tb {n}\t{n % 3}\ta "{n}' for n in range(10_050)]
        write(folder / 'glue/own/train.tsv', ['number\ty\tmark\tx', *lines])
        drawn = []
        for seed in 0, 1:
            with contextlib.chdir(folder):
                few.write_examples(task, folder / str(seed), 20, seed)
            names, *train = read(folder / str(seed) / 'train.tsv')
            self.assertEqual(names, ['x', 'y', 'mark'])
            self.assertLen(train, 20)
            for x, y, mark in train:
                n = int(y[2:])
                self.assertEqual((x, mark), (f'a "{n}', str(n % 3)))
            names, *extra = read(folder / str(seed) / 'extra.tsv')
            self.assertEqual(names, ['x', 'y'])
            pairs = {(x, y) for x, y, *_ in [*train, *extra]}
            self.assertLen(pairs, 20 + 10_000)
            drawn.append(train)
        self.assertNotEqual(*drawn)

    def test_tags(self):
        folder, task = places.make(), few.TASKS['wnut17']
        write(folder / task.path('train'), ['a\tO', 'b\tB-x', '', 'c\tO'])
        with contextlib.chdir(folder):
            examples = task.examples('train')
        labelled, plain = (task.written(examples, x) for x in (True, False))
        self.assertEqual(labelled, 'a\tO\nb\tB-x\n\nc\tO\n')
        self.assertEqual(plain, 'a\nb\n\nc\n')


class RunTest(absltest.TestCase):
    def test_runs_and_their_table(self):
        """A teacher of labels of pairs, and students of each method."""
        folder = places.make()
        for name in 'train', 'dev_matched':
            write(
                folder / f'glue/MNLI/{name}.tsv',
                ['sentence1\tsentence2\tgold_label', *['a\tb\tneutral'] * 300],
            )
        ran = []
        scores = iter(range(100))

        def trained(module, log, *typed):
            flags = dict(x.strip('-').split('=', 1) for x in typed)
            workdir = folder / flags['workdir']
            ran.append((module, flags['workdir'], flags))
            (workdir / 'checkpoints').mkdir(parents=True)
            (workdir / 'metrics.json').write_text('{}')
            (workdir / 'weights.safetensors').write_bytes(bytes(2_000_000))
            write(workdir / 'metrics.jsonl', [
                json.dumps({'heldout/label/accuracy': x})
                for x in (0.9, next(scores) / 100)
            ])  # fmt: skip

        loaded, asked = mock.Mock(), []
        loaded.classify = lambda *texts: asked.append(texts)
        choices = few.FewChoices(
            init='m', lookup='t', layers=('3',), task='mnli', labels=('200',),
            seeds=2, workdir='w', typed='--precision=float32',
        )  # fmt: skip
        with contextlib.chdir(folder), \
                mock.patch('infoword_tf.load', lambda _: loaded), \
                mock.patch.object(kept, 'run', trained):  # fmt: skip
            for _ in range(2):  # finished runs stay
                few.run.__wrapped__(choices, {})
        here = 'w/mnli/200/seed=0'
        self.assertEqual(
            [(module, where) for module, where, _ in ran[:7]],
            [('tasks.classify', f'{here}/teacher'), *(
                ('tasks.distill', f'{here}/{x}')
                for x in (
                    '3_layers/labels_alone', '3_layers/KD', '3_layers/PKD-last',
                    '3_layers/PKD-skip', 'word_table/labels_alone',
                    'word_table/KD',
                )
            )],
        )  # fmt: skip
        self.assertLen(ran, 14)
        lookup = {'init': 't', 'steps': '1320', 'learning_rate': '1e-3'}
        for _, _, flags in ran[5:7]:
            self.assertLessEqual(lookup.items(), flags.items())
        every = {
            'text': 'sentence1', 'pair': 'sentence2', 'label': 'gold_label',
            'dev': 'glue/MNLI/dev_matched.tsv', 'init': 'm', 'seed': '0',
            'train': f'{here}/train.tsv', 'precision': 'float32',
        }  # fmt: skip
        for _, where, flags in ran[:5]:
            self.assertFalse((folder / where / 'checkpoints').exists())
            self.assertLessEqual(every.items(), flags.items())
            self.assertEqual(flags['steps'], flags['eval_every'])
        teacher, alone, *taught = [flags for *_, flags in ran[:5]]
        self.assertEqual((teacher['steps'], alone['steps']), ('200', '330'))
        self.assertEqual(
            [x.get('patience') for x in (alone, *taught)],
            ['none', 'none', 'last', 'skip'],
        )
        self.assertEqual(alone['alpha'], '0')
        self.assertNotIn('extra', alone)
        student = {'extra': f'{here}/extra.tsv', 'teacher': f'{here}/teacher'}
        for flags in taught:
            self.assertNotIn('alpha', flags)
            self.assertLessEqual(student.items(), flags.items())
        self.assertEqual(asked[0], (['a'], ['b']))
        lines = (folder / 'w/table.md').read_text().splitlines()
        cells = [[x.strip() for x in line.split('|')[1:-1]] for line in lines]
        self.assertEqual([[*row[:3], *row[4:]] for row in cells[2:5]], [
            ['200', 'teacher', '2', '0.035 (0.000-0.070)', '', '', ''],
            ['200', '3 layers', '2', '0.045 (0.010-0.080)',
             '0.055 (0.020-0.090)', '0.065 (0.030-0.100)',
             '0.075 (0.040-0.110)'],
            ['200', 'word table', '2', '0.085 (0.050-0.120)',
             '0.095 (0.060-0.130)', '', ''],
        ])  # fmt: skip


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join([*lines, '']))


def read(path):
    return [x.split('\t') for x in path.read_text().splitlines()]
