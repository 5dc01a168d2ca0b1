"""tasks.glue on small files of GLUE's layout, with real sentences."""

import contextlib
import dataclasses
import io
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf import files
from infoword_tf.config import Config
from infoword_tf.data import glue_layout, labelling
from infoword_tf.evaluation import measures
from tasks import finetune, glue
from tests import places
from tests.runs import untimed
from tests.tasks import finetuning
from tests.tasks.command import succeeded
from tests.tasks.finetuning import write

PAIR = ('index', 'sentence1', 'sentence2')
LABELS = {
    'RTE': ('entailment', 'not_entailment'),
    'MNLI': ('neutral', 'contradiction', 'entailment'),
}
GRID = {'learning_rate': (1e-9, 0.01), 'batch_size': (8,)}


def setUpModule():
    global FOLDER, DATA, run
    FOLDER = places.make()
    DATA = FOLDER / 'glue'
    texts = [text for text, _ in finetuning.sentences()]
    for folder, label, splits in (
        ('RTE', 'label', ('train', 'dev', 'test')),
        ('MNLI', 'gold_label',
         ('train', 'dev_matched', 'dev_mismatched', 'test_matched',
          'test_mismatched')),
    ):  # fmt: skip
        for number, split in enumerate(splits):
            sizes = (32, 12, 9, 9, 5)
            rows = [
                (i, texts[i + number], texts[-i - 1],
                 LABELS[folder][i % len(LABELS[folder])])
                for i in range(sizes[number])
            ]  # fmt: skip
            tested = split.startswith('test')
            write(
                DATA / folder / f'{split}.tsv',
                PAIR if tested else (*PAIR, label),
                [row[:3] for row in rows] if tested else rows,
            )
    run = finetuning.runner(
        glue, FOLDER, f'--init={finetuning.init()}', f'--data_dir={DATA}'
    )


def predictions(path):
    """Returns what a file says, by number of its lines."""
    names, *lines = pathlib.Path(path).read_text().splitlines()
    assert names == 'index\tprediction', names
    numbers, cells = zip(*(line.split('\t') for line in lines), strict=True)
    assert numbers == tuple(map(str, range(len(lines))))
    return list(cells)


class GluePartsTest(places.Folder, absltest.TestCase):
    def test_further_files_of_mnli(self):
        """A second dev file is measured, and both test files are predicted."""
        labels = glue_layout.TASKS['mnli'].labels

        def classify(first, second):
            classes = [(len(a) + 2 * len(b)) % 3
                       for a, b in zip(first, second, strict=True)]  # fmt: skip
            return np.eye(3)[classes]

        def answers(split):
            rows = glue_layout.read('mnli', str(DATA), split)
            classes = classify(rows.first, rows.second).argmax(axis=1)
            return rows.labels, [labels[i] for i in classes]

        model = mock.Mock(classify=classify)
        with (
            mock.patch.object(infoword_tf, 'load', return_value=model),
            mock.patch.object(measures, 'draw_confusion'),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            task = glue.Glue.read(glue.TaskChoices('mnli', str(DATA)))
            scores = task.write(FOLDER, self.folder)
        true, predicted = answers('dev_mm')
        right = np.mean(np.array(true) == predicted)
        self.assertBetween(right, 0.1, 0.9)
        self.assertEqual(scores, {'mm_accuracy': round(right, 6)})
        for split, file, name in (
            ('test', 'predictions.tsv', 'MNLI-m.tsv'),
            ('test_mm', 'predictions_mm.tsv', 'MNLI-mm.tsv'),
        ):
            actual = predictions(self.folder / file)
            self.assertEqual(actual, answers(split)[1])
            line = f'{len(actual)} predictions; GLUE wants them as {name}'
            self.assertIn(line, shown.getvalue())

    def test_files_that_are_not_there(self):
        for split in ('train', 'dev_matched', 'test_matched'):
            source = DATA / 'MNLI' / f'{split}.tsv'
            path = self.folder / 'MNLI' / source.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(source.read_bytes())
        options = glue.TaskChoices('mnli', str(self.folder))
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            actual = glue.Glue.read(options).splits
        self.assertEqual(list(actual), ['train', 'heldout', 'test'])
        self.assertEqual(
            shown.getvalue(),
            'mnli has no dev_mm file: left out\n'
            'mnli has no test_mm file: left out\n',
        )
        options = dataclasses.replace(options, test=False)
        actual = glue.Glue.read(options).splits
        self.assertEqual(list(actual), ['train', 'heldout'])


@mock.patch.dict(finetune.GRIDS, infoword=GRID)
class GlueSweepTest(absltest.TestCase):
    def test_a_cell_is_the_run_alone(self):
        """Whatever it shares with those before it; bit for bit."""
        flags = '--task=rte', '--epochs=1', '--label.pooler=tanh'
        succeeded(run('sweep', *flags, '--sweep=infoword', '--seeds=2'))
        succeeded(run('alone', *flags, '--learning_rate=0.01', '--seed=1'))
        last = 'sweep/learning_rate=0.01-batch_size=8-seed=1'
        cell, alone = (
            files.read_tensors(FOLDER / x / 'weights.safetensors')
            for x in (last, 'alone')
        )
        np.testing.assert_equal(cell, alone)
        cell, alone = (Config.read(FOLDER / x).run for x in (last, 'alone'))
        self.assertEqual(cell, alone)

    def test_a_cell_of_more_epochs_is_the_run_alone(self):
        choices = ('--task=rte', '--examples=8', '--warmup_steps=1')
        with mock.patch.dict(finetune.GRIDS, infoword={'epochs': (1, 2)}):
            succeeded(run('epochs', *choices, '--sweep=infoword'))
        succeeded(run('two', *choices, '--epochs=2'))
        alone = untimed(FOLDER / 'two')
        self.assertLen(alone, 2)
        self.assertEqual(untimed(FOLDER / 'epochs/epochs=2-seed=0'), alone)


class GridsTest(absltest.TestCase):
    def test_grids_are_those_of_the_papers(self):
        """Kong et al. 2019, App. B, Devlin et al. 2019, App. A.3, and Sun et
        al. 2019, section 4.2.
        """
        self.assertEqual(finetune.GRIDS['infoword'], {
            'learning_rate': (5e-6, 1e-5, 2e-5, 3e-5, 5e-5),
            'batch_size': (16, 32),
        })  # fmt: skip
        self.assertEqual(finetune.GRIDS['bert'], {
            'learning_rate': (5e-5, 3e-5, 2e-5), 'batch_size': (16, 32),
            'epochs': (2, 3, 4),
        })  # fmt: skip
        self.assertEqual(finetune.GRIDS['pkd'], {
            'temperature': (5, 10, 20), 'alpha': (0.2, 0.5, 0.7),
            'beta': (10, 100, 500, 1000), 'learning_rate': (5e-5, 2e-5, 1e-5),
        })  # fmt: skip


class SomeExamplesTest(absltest.TestCase):
    def test_fewer_are_part_of_more(self):
        few, again, more = (labelling.subset(99, n) for n in (9, 9, 30))
        np.testing.assert_array_equal(few, again)
        self.assertLen(few, 9)
        self.assertContainsSubset(few, more)
        np.testing.assert_array_equal(more, np.sort(more))
