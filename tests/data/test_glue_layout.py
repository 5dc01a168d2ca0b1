"""data.glue_layout on small files of GLUE's layout, and on TFDS's."""

import contextlib
import io
import pathlib

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized

from infoword_tf.data import glue_layout
from infoword_tf.evaluation import measures
from tests import places
from tests.data import datasets, texts
from tests.refused import refused

# By task: the columns of its training and dev file and two lines of cells, then
# of its test file. None: no line of names.
LAYOUTS = {
    'cola': (None, ['gj04\t1\t\tIt runs.', 'gj04\t0\t*\tRuns "it.'],
             'index\tsentence', ['0\tA.', '1\tB.']),
    'sst-2': ('sentence\tlabel', ['fine \t1', 'bad \t0'],
              'index\tsentence', ['0\tA.', '1\tB.']),
    'mrpc': ('\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String',
             ['1\t10\t11\t" He said .\tHe said .', '0\t10\t12\tA .\tB .'],
             'index\t#1 ID\t#2 ID\t#1 String\t#2 String',
             ['0\t1\t2\tA.\tA2.', '1\t1\t3\tB.\tB2.']),
    'qqp': ('id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate',
            ['7\t1\t2\tWhat?\tWhat "now?\t1', '9\t3\t4\tA?\tB?\t0'],
            'id\tquestion1\tquestion2', ['0\tA.\tA2.', '1\tB.\tB2.']),
    'sts-b': ('index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t'
              'sentence1\tsentence2\tscore',
              ['0\tg\tf\ty\t1\tnone\tnone\tA plane.\tA plane\t5.000',
               '1\tg\tf\ty\t1\tnone\tnone\tA man.\tA flute.\t3.800'],
              'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t'
              'sentence1\tsentence2',
              ['0\tg\tf\ty\t1\tnone\tnone\tA.\tA2.',
               '1\tg\tf\ty\t1\tnone\tnone\tB.\tB2.']),
    'mnli': ('index\tpromptID\tpairID\tgenre\tsentence1_parse\t'
             'sentence1\tsentence2\tlabel1\tgold_label',
             ['0\t1\t1n\tg\t(x)\tWell.\tYes.\tneutral\tneutral',
              '1\t1\t1e\tg\t(x)\tNo.\tYes.\tneutral\tcontradiction'],
             'index\tpromptID\tpairID\tgenre\tsentence1_parse\t'
             'sentence1\tsentence2',
             ['0\t1\t1n\tg\t(x)\tA.\tA2.', '1\t1\t1n\tg\t(x)\tB.\tB2.']),
    'qnli': ('index\tquestion\tsentence\tlabel',
             ['0\tWho?\tHe.\tentailment', '1\tWho?\tNow.\tnot_entailment'],
             'index\tquestion\tsentence', ['0\tA.\tA2.', '1\tB.\tB2.']),
    'rte': ('index\tsentence1\tsentence2\tlabel',
            ['0\tNo.\tYes.\tnot_entailment', '1\tA.\tA.\tentailment'],
            'index\tsentence1\tsentence2', ['0\tA.\tA2.', '1\tB.\tB2.']),
    'wnli': ('index\tsentence1\tsentence2\tlabel',
             ['0\tA pin.\tIt had a hole.\t1', '1\tJohn.\tBilly.\t0'],
             'index\tsentence1\tsentence2', ['0\tA.\tA2.', '1\tB.\tB2.']),
}  # fmt: skip
# What the lines above say.
EXPECTED = {
    'cola': (['It runs.', 'Runs "it.'], None, ['1', '0']),
    'sst-2': (['fine ', 'bad '], None, ['1', '0']),
    'mrpc': (['" He said .', 'A .'], ['He said .', 'B .'], ['1', '0']),
    'qqp': (['What?', 'A?'], ['What "now?', 'B?'], ['1', '0']),
    'sts-b': (['A plane.', 'A man.'], ['A plane', 'A flute.'], [5.0, 3.8]),
    'mnli': (['Well.', 'No.'], ['Yes.', 'Yes.'], ['neutral', 'contradiction']),
    'qnli': (['Who?', 'Who?'], ['He.', 'Now.'],
             ['entailment', 'not_entailment']),
    'rte': (['No.', 'A.'], ['Yes.', 'A.'], ['not_entailment', 'entailment']),
    'wnli': (['A pin.', 'John.'], ['It had a hole.', 'Billy.'], ['1', '0']),
}  # fmt: skip
# How TFDS says it.
FEATURES = {
    'cola': ('sentence', None, ['unacceptable', 'acceptable']),
    'sst2': ('sentence', None, ['negative', 'positive']),
    'mrpc': ('sentence1', 'sentence2', ['not_equivalent', 'equivalent']),
    'qqp': ('question1', 'question2', ['not_duplicate', 'duplicate']),
    'stsb': ('sentence1', 'sentence2', None),
    'mnli': ('premise', 'hypothesis',
             ['entailment', 'neutral', 'contradiction']),
    'qnli': ('question', 'sentence', ['entailment', 'not_entailment']),
    'rte': ('sentence1', 'sentence2', ['entailment', 'not_entailment']),
    'wnli': ('sentence1', 'sentence2', ['not_entailment', 'entailment']),
}  # fmt: skip
# Measures other than accuracy (Wang et al. 2019).
MEASURES = {
    'cola': ('matthews',), 'sts-b': ('spearman', 'pearson'),
    **dict.fromkeys(('mrpc', 'qqp'), ('f1', 'accuracy')),
}  # fmt: skip
NUMBERS = {'mnli': [1, 2], 'qnli': [0, 1], 'rte': [1, 0]}  # else [1, 0]


def check(test, rows, name):
    """Compares two rows with what they are expected to be."""
    first, second, labels = EXPECTED[name]
    test.assertEqual(rows.first, first)
    test.assertEqual(rows.second, second)
    if name == 'sts-b':
        test.assertIsNone(rows.labels)
        np.testing.assert_array_equal(rows.scores, np.float32(labels))
    else:
        test.assertEqual(rows.labels, labels)
        test.assertIsNone(rows.scores)


class GlueLayoutFilesTest(texts.Temporary):
    def lay_out(self, name, split, path=None):
        header, lines, test_header, test_lines = LAYOUTS[name]
        if split.startswith('test'):
            header, lines = test_header, test_lines
        task = glue_layout.TASKS[name]
        path = path or f'{task.folder}/{task.files[split][0]}'
        lines = lines if header is None else [header, *lines]
        return self.write(path, '\n'.join(lines) + '\n')

    def read(self, name, split):
        return glue_layout.read(name, str(self.folder), split)

    @parameterized.product(
        name=list(glue_layout.TASKS), split=['train', 'dev', 'test']
    )
    def test_files(self, name, split):
        path = self.lay_out(name, split)
        rows = self.read(name, split)
        self.assertEqual(rows.where, str(path))
        if split != 'test':
            check(self, rows, name)
            first = 1 if name == 'cola' else 2
            np.testing.assert_array_equal(rows.lines, [first, first + 1])
            return
        self.assertEqual(rows.first, ['A.', 'B.'])
        self.assertEqual(rows.second, EXPECTED[name][1] and ['A2.', 'B2.'])
        self.assertIsNone(rows.labels)
        self.assertIsNone(rows.scores)

    @parameterized.parameters('dev_mm', 'test_mm')
    def test_mismatched(self, split):
        path = self.lay_out('mnli', split)
        self.assertIn('mismatched', path.name)
        self.assertLen(self.read('mnli', split).first, 2)

    def test_mrpc_as_microsoft_has_it(self):
        """Its test file has labels, which are not read."""
        self.lay_out('mrpc', 'dev', 'MRPC/msr_paraphrase_test.txt')
        rows = self.read('mrpc', 'test')
        self.assertEqual(rows.first, EXPECTED['mrpc'][0])
        self.assertIsNone(rows.labels)
        with self.assertRaises(FileNotFoundError):  # it holds the dev rows
            self.lay_out('mrpc', 'dev', 'MRPC/msr_paraphrase_train.txt')
            self.read('mrpc', 'train')

    def test_broken_lines_of_qqp(self):
        """Left out of its training file; elsewhere no line may be lost."""
        for name, split in (('qqp', 'train'), ('qqp', 'dev'), ('rte', 'train')):
            path = self.lay_out(name, split)
            lines = path.read_text().split('\n')
            lines[2:2] = ['8\t1\t2']
            path.write_text('\n'.join(lines))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            rows = self.read('qqp', 'train')
        self.assertRegex(output.getvalue(), '1 broken line.* line 3: 3 cell')
        check(self, rows, 'qqp')
        np.testing.assert_array_equal(rows.lines, [2, 4])
        for name, split in (('qqp', 'dev'), ('rte', 'train')):
            with refused('unequal_cells', f'{split}.tsv, line 3: 3 cell'):
                self.read(name, split)

    def test_the_table(self):
        """Measures and submissions are GLUE's, labels have names."""
        submissions = []
        for name, task in glue_layout.TASKS.items():
            self.assertContainsSubset(task.measures, measures.MEASURES)
            published = MEASURES.get(name, ('accuracy',))
            self.assertEqual(task.measures, published, name)
            if task.names:
                self.assertLen(task.names, len(task.labels))
            self.assertEqual(set(task.files), set(task.tfds_splits))
            tests = {s for s in task.files if s.startswith('test')}
            self.assertEqual(tests, set(task.submission))
            submissions += task.submission.values()
        self.assertCountEqual(
            [name.removesuffix('.tsv') for name in submissions],
            ['CoLA', 'SST-2', 'MRPC', 'QQP', 'STS-B', 'MNLI-m', 'MNLI-mm',
             'QNLI', 'RTE', 'WNLI'],
        )  # fmt: skip


class GlueLayoutTfdsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup)
        kinds = datasets.kinds
        for name, task in glue_layout.TASKS.items():
            first, second, labels = EXPECTED[name]
            text, pair, classes = FEATURES[task.config]
            features = {text: kinds.Text(), 'idx': tf.int32,
                        'label': tf.float32 if classes is None
                        else kinds.ClassLabel(names=classes)}  # fmt: skip
            if pair:
                features[pair] = kinds.Text()
            numbers = NUMBERS.get(task.config, [1, 0])
            examples = []
            for n in (1, 0):
                example = {text: first[n], 'idx': n,
                           'label': numbers[n] if classes else labels[n]}
                if pair:
                    example[pair] = second[n]
                examples.append(example)
            unlabelled = [{**e, 'label': -1} for e in examples]
            splits = {
                split: unlabelled if 'test' in split else examples
                for split in task.tfds_splits.values()
            }
            datasets.prepare(
                cls.folder, 'glue', features, splits, config=task.config,
                version='2.0.0',
            )  # fmt: skip

    def setUp(self):
        super().setUp()
        self.enterContext(datasets.only(self.folder))

    @parameterized.parameters(*glue_layout.TASKS)
    def test_the_same_rows(self, name):
        """In GLUE's order, with GLUE's labels."""
        check(self, glue_layout.read(name, 'tfds:glue', 'train'), name)
        if name not in ('cola', 'sts-b', 'mnli'):
            return
        check(self, glue_layout.read(name, 'tfds:glue', 'dev'), name)
        rows = glue_layout.read(name, 'tfds:glue', 'test')
        self.assertEqual(rows.first, EXPECTED[name][0])
        self.assertIsNone(rows.labels)
        self.assertIsNone(rows.scores)

    def test_names_are_those_of_tfds(self):
        glue = tfds.builder_cls('glue').builder_configs
        for task in glue_layout.TASKS.values():
            *columns, classes = FEATURES[task.config]
            actual = glue[task.config]
            self.assertEqual(actual.label_classes, classes)
            self.assertCountEqual(actual.text_features, filter(None, columns))
            self.assertCountEqual(task.names or task.labels, classes or [])


class PredictionsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / 'p.tsv'

    @parameterized.parameters(
        ('rte', [1, 0], ['not_entailment', 'entailment']),
        ('mnli', [2, 0], ['neutral', 'contradiction']),
        ('cola', [1, 0], ['1', '0']),
        ('sts-b', np.float32([-0.2, 3.14159, 7]), ['0.000', '3.142', '5.000']),
    )
    def test_lines(self, name, predictions, cells):
        glue_layout.write_predictions(self.path, name, np.array(predictions))
        lines = [f'{index}\t{cell}\n' for index, cell in enumerate(cells)]
        text = 'index\tprediction\n' + ''.join(lines)
        self.assertEqual(self.path.read_bytes().decode(), text)

    def test_no_score(self):
        with refused('glue_score_not_finite', self.path):
            nan = np.array([1.0, np.nan])
            glue_layout.write_predictions(self.path, 'sts-b', nan)
        self.assertEmpty(list(self.path.parent.iterdir()))
