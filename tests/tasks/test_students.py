"""tasks.distill on small tables: what is kept of a teacher, its students."""

import json
import math
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import special

import infoword_tf
from infoword_tf import files
from infoword_tf.config import Config
from infoword_tf.data import labelling, tables
from infoword_tf.data.examples import format_texts
from infoword_tf.data.labelling import TableColumns
from infoword_tf.evaluation import measures
from tasks import classify, distill, finetune, teacher
from tests import places
from tests.eager import eagerly
from tests.export import workdirs
from tests.runs import records
from tests.tasks import finetuning, squad_files
from tests.tasks.command import Checks, succeeded
from tests.tasks.finetuning import last_line, write

LABELS = ('class', 'loop', 'text')
TASK = classify.Classify('classify', ('accuracy', 'matthews'), LABELS)


def make(name, labels=LABELS, **more):
    return finetuning.tuned(FOLDER / name, labels, **more)


def setUpModule():
    global FOLDER, TRAIN, DEV, EXTRA, TEACHER, run
    FOLDER = places.make()
    rows = finetuning.sentences()
    TRAIN = write(FOLDER / 'train.tsv', ('text', 'label'), rows[:50])
    DEV = write(FOLDER / 'dev.tsv', ('text', 'label'), rows[50:75])
    EXTRA = write(FOLDER / 'extra.tsv', ('text',), [r[:1] for r in rows[75:99]])
    TEACHER = make('teacher')
    run = finetuning.runner(
        distill, FOLDER, f'--teacher={TEACHER}', f'--train={TRAIN}',
        f'--dev={DEV}', '--layers=2', '--steps=1',
    )  # fmt: skip


def texts_of(way):
    """K times (24 first texts, 24 second ones or None)."""
    first = [text for text, _ in finetuning.sentences()[:24]]
    turned = [first[k:] + first[:k] for k in (7, 8, 9)]
    return {
        'joined': [(first, None)],
        'both_ways': [(first, turned[0]), (turned[0], first)],
        'choices': [(first, second) for second in turned],
    }[way]


def examples_of(loaded):
    """The texts to train on, as a model reads them."""
    table = tables.open_table(str(TRAIN))
    rows = labelling.examples_of(table, TableColumns('text'))
    targets = {'label': np.zeros(len(rows.first), np.int32)}
    actual, _ = format_texts(loaded.template, [(rows.first, None)], 24, targets)
    return actual


class StudentsKeptTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(
            mock.patch.dict('os.environ', INFOWORD_CACHE=self.folder())
        )
        self.enterContext(mock.patch.object(teacher, 'CHUNK', 16))
        self.enterContext(mock.patch.object(teacher, 'BATCH', 8))
        self.teacher = teacher.Teacher(str(TEACHER), TASK)

    def folder(self):
        return self.create_tempdir().full_path

    @parameterized.named_parameters(
        ('one_text', 'label', {}),
        ('a_number', 'score', {'texts': 'both_ways'}),
        ('all_states', 'label', {'texts': 'both_ways', 'bilstm': True}),
        ('choices', 'label', {'texts': 'choices'}),
        # Training reads rows of several texts, `classify` each alone.
        ('a_table', 'label', {'texts': 'both_ways'}, 'lookup'),
    )
    def test_scores_and_states_are_those_of_the_model(
        self, row, settings, encoder='transformer'
    ):
        self.enterContext(eagerly(bool(settings)))  # graphs take seconds
        folder, way = TEACHER, settings.get('texts', 'joined')
        layers = () if encoder == 'lookup' else (1, 3)
        if settings:
            named = {f'{row}.{name}': x for name, x in settings.items()}
            folder = make(
                f'{row}_{way}_{encoder}', rows=(row,), settings=named,
                encoder=encoder,
            )  # fmt: skip
        labels = LABELS if row == 'label' else ()
        task = classify.Classify(labels=labels)
        one, texts = teacher.Teacher(str(folder), task), texts_of(way)
        targets = {row: np.zeros(24, np.int32)}
        examples, _ = format_texts(one.loaded.template, texts, 24, targets)
        alone = one.computed(examples, np.array([3]))  # makes the graph
        scores, states = one.outputs(examples, layers)
        np.testing.assert_allclose(alone['scores'], scores[3:4], atol=1e-5)
        self.assertEqual(scores.dtype, np.float32)
        self.assertEqual(states.dtype, np.float16)
        self.assertEqual(states.shape, (24, len(texts), len(layers), 64))
        loaded = infoword_tf.load(folder)
        first, second = texts[0]
        if row == 'score':
            expected = loaded.rate(first, second)
        elif way == 'choices':
            expected = loaded.choose(first, [choice for _, choice in texts])
        else:
            expected = loaded.classify(first, second)
        actual = special.softmax(scores, axis=1) if labels else scores
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        for k, (first, second) in enumerate(texts):
            ids, lengths, where = loaded.format_texts(first, second, 24)
            for i, layer in enumerate(layers):
                expected = loaded.states(ids, lengths, [layer], second=where)
                expected = expected.numpy()[:, 0]
                expected /= np.linalg.norm(expected, axis=1, keepdims=True)
                np.testing.assert_allclose(states[:, k, i], expected, atol=3e-4)

    def test_a_pass_that_was_stopped_goes_on(self):
        self.assertEqual(
            self.teacher.digest,
            files.digest_of(TEACHER / 'weights.safetensors'),
        )
        examples = examples_of(self.teacher.loaded)
        compute, done = self.teacher.computed, []

        def twice(examples, numbers):
            if len(done) == 2:
                raise KeyboardInterrupt
            done.append(len(numbers))
            return compute(examples, numbers)

        with mock.patch.object(self.teacher, 'computed', twice):
            with self.assertRaises(KeyboardInterrupt):
                self.teacher.outputs(examples, (2,))
        self.assertEqual(done, [16, 16])
        with mock.patch.object(
            self.teacher, 'computed', side_effect=compute
        ) as rest:
            actual = self.teacher.outputs(examples, (2,))
        sizes = [len(call.args[1]) for call in rest.call_args_list]
        self.assertEqual(sizes, [16, 2])
        # Bit for bit what a pass that nothing stopped computes.
        with mock.patch.dict('os.environ', INFOWORD_CACHE=self.folder()):
            whole = self.teacher.outputs(examples, (2,))
        for one, other in zip(actual, whole, strict=True):
            np.testing.assert_array_equal(one, other)
        # Now all is there, for other layers too.
        with mock.patch.object(self.teacher, 'computed') as none:
            again = self.teacher.outputs(examples, (2, 3))
        none.assert_not_called()
        np.testing.assert_array_equal(actual[0], again[0])
        np.testing.assert_array_equal(actual[1][:, :, 0], again[1][:, :, 0])


class ShortenedTest(absltest.TestCase):
    def test_layers_and_nothing_else(self):
        loaded = infoword_tf.load(TEACHER)
        actual = distill.start_of(str(TEACHER), 2, 'every')
        self.assertEqual(actual.encoder.depth, 2)
        self.assertEqual(actual.config.encoder.arguments['layers'], 2)
        self.assertEqual(list(actual.model.objectives), [])
        old = loaded.model.variables
        for path, variable in actual.model.variables.items():
            origin = path.replace('layer_1/', 'layer_3/')
            origin = origin.replace('layer_0/', 'layer_1/')
            np.testing.assert_array_equal(variable, old[origin], path)
        # The first two compute what the teacher's second layer is.
        first = distill.start_of(str(TEACHER), 2, 'first')
        ids, lengths, _ = loaded.format_texts(['a short text'])
        expected = loaded.states(ids, lengths, [2])
        actual = first.states(ids, lengths)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        whole = distill.start_of(str(TEACHER), None, 'first')
        self.assertEqual(list(whole.model.objectives), ['label'])
        with self.assertRaisesRegex(ValueError, 'layers 0, 5 are asked for'):
            loaded.shortened([0, 5])


class PreparedStudentTest(absltest.TestCase):
    """Rows of a student of two tasks, of which neither is trained."""

    def test_a_task_of_glue(self):
        labels = 'entailment', 'not_entailment'
        rte = make('rte', labels)
        names = 'index', 'sentence1', 'sentence2', 'label'
        rows = [(i, f'a {i}', f'b {i}', labels[i % 2]) for i in range(30)]
        for split in ('train', 'dev'):
            write(FOLDER / 'glue' / 'RTE' / f'{split}.tsv', names, rows)
        extra = write(FOLDER / 'pairs.tsv', names[1:3], [('c', 'd')] * 9)
        prepared = finetuning.prepared(
            distill, f'--teacher={rte}', '--task=rte',
            f'--data_dir={FOLDER}/glue', f'--extra={extra}',
            f'--workdir={FOLDER}/rte2',
        )  # fmt: skip
        self.assertEqual(prepared.labelled.config_fields['task'].name, 'rte')
        # All are taught, and the last 9 are not labelled.
        train = prepared.labelled.train
        np.testing.assert_array_equal(
            train.targets['label'], [0, 1] * 15 + [-1] * 9
        )
        self.assertEqual(train.counts['label'].tolist(), [15, 15])

    def test_several_labels(self):
        """Learns all the teacher's labels, in its order; also of no label."""
        sets = make('sets', settings={'label.multilabel': True})
        table = FOLDER / 'sets.jsonl'
        table.write_text(''.join(
            json.dumps({'text': text, 'label': [kind]}) + '\n'
            for text, kind in finetuning.sentences()[:30]
        ))  # fmt: skip
        labelled = finetuning.prepared(
            distill, f'--teacher={sets}', f'--train={table}', f'--dev={table}',
            f'--extra={EXTRA}', f'--workdir={FOLDER}/taught',
            '--seq_len=64',  # as long as the teacher's
        ).labelled  # fmt: skip
        self.assertEqual(labelled.config_fields['labels'], LABELS)
        self.assertEqual(labelled.train.size, 30 + 24)


class StudentTest(Checks, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())  # graphs take seconds

    def test_what_a_run_leaves(self):
        flags = ('--patience=skip', '--alpha=0.6', '--beta=0.3',
                 '--temperature=5', '--epochs=1')  # fmt: skip
        printed = last_line(run('student', *flags))
        config = Config.read(FOLDER / 'student')
        self.assertEqual(
            {row: entry.weight for row, entry in config.rows.items()},
            {'label': 0.4, 'soft': 0.6, 'patience': 0.3},
        )
        self.assertEqual(config.rows['soft'].settings['temperature'], 5)
        self.assertEqual(config.encoder.arguments['layers'], 2)
        self.assertEqual(config.labels, LABELS)
        self.assertStartsWith(config.run['teacher'], f'{TEACHER} (weights ')
        self.assertEqual(config.run['take'], 'first')
        (record,) = records(FOLDER / 'student')
        for row in ('label', 'soft', 'patience'):
            self.assertGreater(record[f'{row}/loss'], 0)
            self.assertTrue(math.isfinite(record[f'heldout/{row}/loss']))
        # How good the teacher is on the dev set, and what the student says.
        rows = labelling.examples_of(
            tables.open_table(str(DEV)), TableColumns('text', label='label')
        )
        true = labelling.known_labels(rows, LABELS)
        for name, folder in (
            ('teacher_accuracy', TEACHER), ('accuracy', FOLDER / 'student')
        ):  # fmt: skip
            actual = infoword_tf.load(folder).classify(rows.first)
            right = measures.accuracy(actual.argmax(axis=1), true)
            self.assertAlmostEqual(printed[name], right, places=6)
        # Another teacher is another run.
        other = make('other')
        path, bias = other / 'weights.safetensors', 'objectives/label/bias'
        weights = files.read_tensors(path)
        files.write_tensors(path, {**weights, bias: weights[bias] + 1})
        self.assert_refused(
            run('student', *flags, f'--teacher={other}'), None,
            'holds a run with other flags', f'--teacher was {TEACHER} (weights',
        )  # fmt: skip

    def test_who_equals_its_teacher_has_nothing_to_learn(self):
        """All layers and the head, and a rate of nothing; nor of texts without
        labels, as 24 of 74 are.
        """
        done = run('equal', '--layers=4', '--learning_rate=0', '--alpha=1',
                   '--weight_decay=0', f'--extra={EXTRA}', '--batch_size=72',
                   '--dropout=0')  # fmt: skip
        config = Config.read(FOLDER / 'equal')
        weights = {row: entry.weight for row, entry in config.rows.items()}
        self.assertEqual(weights, {'label': 0, 'soft': 1, 'patience': 0.1})
        self.assertEqual(config.task.sizes, {'train': 74, 'heldout': 25})
        (record,) = records(FOLDER / 'equal')
        for part in ('', 'heldout/'):
            self.assertEqual(record[f'{part}soft/accuracy'], 1)
            for row in ('soft', 'patience'):
                loss = record[f'{part}{row}/loss']
                self.assertAlmostEqual(loss, 0, delta=1e-5)
        printed = last_line(done)
        self.assertEqual(printed['accuracy'], printed['teacher_accuracy'])

    def test_plain_fine_tuning_asks_no_teacher(self):
        with mock.patch.object(teacher.Teacher, 'outputs') as asked:
            prepared = run('plain', '--patience=none', '--alpha=0',
                           run=finetuning.prepared)  # fmt: skip
        asked.assert_not_called()
        self.assertEqual(prepared.choices.objectives, 'label:1')

    def test_a_narrower_student_whose_encoder_stays(self):
        """Its states are projected, and adapters learn."""
        narrow = workdirs.write(
            FOLDER / 'narrow', rows=('mlm',), pooling='cls', layers=3, width=32
        )
        done = finetuning.run(
            distill, f'--teacher={TEACHER}', f'--train={TRAIN}',
            f'--dev={DEV}', f'--init={narrow}', '--patience=last',
            '--adapter=lora', '--steps=1', f'--workdir={FOLDER}/projected',
        )  # fmt: skip
        self.assertIn('teacher_accuracy', last_line(done))
        config = Config.read(FOLDER / 'projected')
        self.assertEqual(config.rows['patience'].settings['width'], 64)
        self.assertEqual(config.adapter.base, str(narrow.resolve()))
        self.assertEqual(config.teacher.name, str(TEACHER))
        tensors = files.read_tensors(
            FOLDER / 'projected' / 'weights.safetensors'
        )
        self.assertEqual(tensors['objectives/patience/kernel'].shape, (32, 64))
        self.assertFalse([x for x in tensors if x.startswith('encoder/')])
        self.assertIn('adapters/encoder/layer_0/inner_kernel/a', tensors)
        infoword_tf.load(FOLDER / 'projected')

    def test_numbers(self):
        scored = make('scored', (), rows=('score',))
        rows = [(t, i / 7) for i, (t, _) in enumerate(finetuning.sentences())]
        pair = [write(FOLDER / f'{name}.tsv', ('text', 'label'), group)
                for name, group in (('n', rows[:40]), ('nd', rows[40:60]))]
        choices = (f'--teacher={scored}', f'--train={pair[0]}',
                 f'--dev={pair[1]}', '--regress')  # fmt: skip
        done = run(
            'numbers', *choices, f'--extra={EXTRA}', '--layers=4',
            '--batch_size=64', '--learning_rate=0', '--weight_decay=0',
            '--dropout=0',
        )  # fmt: skip
        # Texts without a number are taught, and no part of its loss.
        (record,) = records(FOLDER / 'numbers')
        printed = infoword_tf.load(scored).rate([text for text, _ in rows[:40]])
        error = np.square(printed - [number for _, number in rows[:40]])
        np.testing.assert_allclose(
            record['score/loss'], error.mean(), rtol=1e-5
        )
        self.assertGreater(record['score/loss'], 1)
        # As it begins it says what its teacher says.
        for row in ('soft_score', 'patience'):
            self.assertAlmostEqual(record[f'{row}/loss'], 0, delta=1e-5)
        numbers = infoword_tf.load(scored).rate([t for t, _ in rows[40:60]])
        expected = measures.spearman(numbers, [x for _, x in rows[40:60]])
        self.assertAlmostEqual(
            last_line(done)['teacher_spearman'], expected, places=6
        )

    def test_answers(self):
        paragraphs = ('the cat saw the dog on a mat', 'dogs saw two')
        files_ = [
            squad_files.write(FOLDER / f'{part}.json', *(
                (text, squad_files.asked(text, 'saw', name=f'{part}{i}'))
                for i, text in enumerate(paragraphs * 2)
            ))
            for part in ('asked', 'dev')
        ]  # fmt: skip
        tutor = make('tutor', (), rows=('span',), max_length=32)
        tensors = files.read_tensors(tutor / 'weights.safetensors')
        for path in tensors:
            if path.startswith('objectives/'):
                tensors[path] = 20 * tensors[path]  # of which it is sure
        files.write_tensors(tutor / 'weights.safetensors', tensors)
        choices = (
            f'--teacher={tutor}', '--task=squad', f'--train={files_[0]}',
            f'--dev={files_[1]}', '--batch_size=2', '--steps=1', '--layers=4',
            '--temperature=1', f'--workdir={FOLDER}/answers',
        )  # fmt: skip
        done = finetuning.run(
            distill, *choices, '--learning_rate=0', '--weight_decay=0'
        )
        # Who equals its teacher has nothing to learn of it.
        (record,) = records(FOLDER / 'answers')
        self.assertAlmostEqual(record['heldout/soft_span/loss'], 0, delta=1e-4)
        self.assertAlmostEqual(record['heldout/patience/loss'], 0, delta=1e-5)
        printed = last_line(done)
        self.assertAlmostEqual(printed['f1'], printed['teacher_f1'], places=3)
        # Where nothing else is said a student reads windows as long as its
        # teacher's, three times, however few the questions are.
        small = [x for x in finetuning.SMALL
                 if not x.startswith(('--seq_len', '--epochs'))]  # fmt: skip
        with mock.patch.object(finetuning, 'SMALL', small):
            asked = finetuning.prepared(distill, *choices).choices
        self.assertEqual((asked.epochs, asked.seq_len), (3, 32))
        done = finetuning.run(distill, *choices, '--version2')
        self.assert_refused(done, 'teacher_other_setting', '--span.null=False',
                            'this is True')  # fmt: skip

    def test_labels_of_words(self):
        """Texts of any length; who equals its teacher learns nothing of it,
        nor of words without labels.
        """
        tagged, plain = FOLDER / 'words.conll', FOLDER / 'plain.txt'
        plain.write_text('a\nword\n\nof\nno\nlabel\n')
        tagged.write_text(''.join(
            ''.join(f'{word} {"B-X" if word[0] in "aeiou" else "O"}\n'
                    for word in text.split()[:number % 9 + 1]) + '\n'
            for number, (text, _) in enumerate(finetuning.sentences()[:40])
        ))  # fmt: skip
        labels = 'O', 'B-X', 'I-X', 'E-X', 'S-X'
        tutor = make('tagger', labels, rows=('tag',),
                     settings={'tag.classes': 5})  # fmt: skip
        flags = (
            f'--teacher={tutor}', '--task=tag', f'--train={tagged}',
            f'--dev={tagged}', '--scheme=bioes', '--steps=1', '--layers=4',
            '--temperature=1', '--learning_rate=0', '--weight_decay=0',
            f'--extra={plain}', f'--workdir={FOLDER}/words',
        )  # fmt: skip
        train = finetuning.prepared(distill, *flags).labelled.train
        labels, begin = train.of_tokens['tag'], train.begins[-3]
        self.assertEqual(np.sum(labels[begin:] == -2), 2 + 3)
        self.assertEqual(np.sum(labels[:begin] >= 0), train.counts['tag'].sum())
        printed = last_line(finetuning.run(distill, *flags))
        self.assertAlmostEqual(printed['f1'], printed['teacher_f1'], places=3)
        (record,) = records(FOLDER / 'words')
        for row in ('soft_tag', 'patience'):
            self.assertAlmostEqual(record[f'heldout/{row}/loss'], 0, delta=1e-4)


class StudentsSweepTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.runs = []
        grid = {'temperature': (5, 20), 'alpha': (0.2, 1), 'beta': (10,),
                'learning_rate': (5e-5, 1e-5)}  # fmt: skip
        self.enterContext(mock.patch.dict(finetune.GRIDS, pkd=grid))
        self.enterContext(
            mock.patch.object(finetune, 'check_and_run', side_effect=self.train)
        )
        self.enterContext(mock.patch.object(classify.Classify, 'write'))
        self.enterContext(mock.patch.object(finetune, 'finish'))

    def train(self, choices, *_):
        self.runs.append(choices)
        (pathlib.Path(choices.workdir) / 'checkpoints').mkdir(parents=True)
        best = {'accuracy': len(self.runs) / 10, 'matthews': 0}
        named = {f'heldout/label/{k}': v for k, v in best.items()}
        return {**named, 'step': 1}

    def test_every_cell_is_a_run_of_its_own(self):
        succeeded(run('sweep', '--sweep=pkd'))
        self.assertLen(self.runs, 8)
        self.assertEqual(
            [(d.settings['soft.temperature'], d.objectives, d.learning_rate)
             for d in self.runs[:4]],
            [(5, 'label:0.8,soft:0.2,patience:10', 5e-5),
             (5, 'label:0.8,soft:0.2,patience:10', 1e-5),
             (5, 'label:0,soft:1,patience:10', 5e-5),
             (5, 'label:0,soft:1,patience:10', 1e-5)],
        )  # fmt: skip
        self.assertEqual(self.runs[-1].settings['soft.temperature'], 20)
        for choices in self.runs:
            # The grid's betas are of the code.
            self.assertEqual(choices.settings['soft.reduction'], 'code')
            self.assertEqual(choices.settings['patience.reduction'], 'code')
        self.assertLen({d.workdir for d in self.runs}, 8)

    def test_a_grid_wins_over_what_was_chosen(self):
        choices = finetune.FinetuneChoices(
            learning_rate=0.1, workdir=f'{FOLDER}/typed', sweep='bert'
        )
        prepared = finetune.PreparedTask(mock.MagicMock(), choices)
        prepared.labelled.train.size = 50
        finetune.train_all(TASK, prepared, {})
        grid = finetune.GRIDS['bert']
        self.assertLen(self.runs, 18)
        for name in ('learning_rate', 'batch_size'):
            self.assertEqual(
                {getattr(d, name) for d in self.runs}, set(grid[name]), name
            )
        self.assertEqual(
            {round(d.steps / (50 // d.batch_size)) for d in self.runs},
            {2, 3, 4},
        )


class SumTest(absltest.TestCase):
    def test_weights_of_rows(self):
        self.assertEqual(
            distill.sum_of('label', 0.7, 0.1), 'label:0.3,soft:0.7,patience:0.1'
        )
        self.assertEqual(distill.sum_of('label', 1, 0), 'label:0,soft:1')
        self.assertEqual(distill.sum_of('score', 0, 2), 'score:1,patience:2')
