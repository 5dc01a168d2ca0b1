"""tasks.classify on small tables of real sentences: what a run leaves."""

import contextlib
import io
import itertools
import json
import pathlib
import shutil
import types
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import checkpoint, commands, files
from infoword_tf.config import Config
from infoword_tf.data import labelling, tables
from infoword_tf.data.labelling import TableColumns
from infoword_tf.evaluation import measures
from tasks import classify, distill, finetune
from tests import places, quick
from tests.eager import eagerly
from tests.refused import refused
from tests.runs import records
from tests.tasks import finetuning
from tests.tasks.command import Checks, succeeded
from tests.tasks.finetuning import last_line, write

KINDS = 'class', 'loop', 'text'


def setUpModule():
    global FOLDER, TRAIN, DEV, TEST, TEXTS
    FOLDER = places.make()
    rows = finetuning.sentences()
    TEST = write(FOLDER / 'test.tsv', ('text', 'label'), rows[75:94])
    TEXTS = FOLDER / 'texts.csv'
    TEXTS.write_text('id,text\n\n' + ''.join(
        f'{i},"{text}"\n' for i, (text, _) in enumerate(rows[94:101])
    ))  # fmt: skip
    TRAIN = write(FOLDER / 'train.tsv', ('text', 'label'), rows[:26])
    DEV = write(FOLDER / 'dev.tsv', ('text', 'label'), rows[50:75])
    finetuning.init()


def run(name, *more, tables=None, **ways):
    """The command; tables: train and dev."""
    tables = tables or (TRAIN, DEV)
    return finetuning.run(
        classify, f'--init={finetuning.init()}', f'--train={tables[0]}',
        f'--dev={tables[1]}', f'--workdir={FOLDER / name}', *more, **ways,
    )  # fmt: skip


def rows_of(path, **columns):
    table = tables.open_table(str(path))
    return labelling.examples_of(table, TableColumns(**columns))


def predictions(name):
    """The names of a file's columns, and its rows."""
    text = (FOLDER / name / classify.PREDICTIONS).read_text()
    names, *rows = (line.split('\t') for line in text.splitlines())
    return names, rows


def tensors(name, file='weights.safetensors'):
    return files.read_tensors(FOLDER / name / file)


class ClassesTest(Checks, absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.done = run('classes', '--label.pooler=tanh', pictures=True)

    def test_metrics_are_of_predictions_for_the_whole_dev_set(self):
        printed = last_line(self.done)
        self.assertEqual(printed['task'], 'classify')
        rows = rows_of(DEV, text='text', label='label')
        loaded = infoword_tf.load(FOLDER / 'classes')
        self.assertEqual(loaded.config.labels, KINDS)
        p = loaded.classify(rows.first)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
        true = labelling.known_labels(rows, loaded.config.labels)
        actual = p.argmax(axis=1)
        for name in ('accuracy', 'matthews'):
            expected = measures.MEASURES[name](actual, true)
            self.assertEqual(printed[name], round(expected, 6))
        # MI comes from sums, over the same weights and the same rows.
        share = np.bincount(true) / len(true)
        entropy = -(share @ np.log(share))
        self.assertAlmostEqual(printed['ceiling'], entropy, delta=2e-6)
        loss = -np.log(p[np.arange(len(p)), true]).mean()
        self.assertAlmostEqual(printed['loss'], loss, delta=2e-5)
        self.assertAlmostEqual(printed['mi'], entropy - loss, delta=2e-5)
        with self.assertRaisesRegex(ValueError, 'on examples of one text'):
            loaded.classify(rows.first, rows.first)

    def test_the_best_record_and_its_weights_stay(self):
        printed, actual = last_line(self.done), records(FOLDER / 'classes')
        name = 'heldout/label/accuracy'
        scores = {r['step']: r[name] for r in actual if name in r}
        self.assertEqual(list(scores), [3, 6])  # 26 // 8 updates an epoch
        best = max(scores, key=scores.get)
        self.assertEqual(printed['step'], best)
        self.assertEqual(checkpoint.weights_step(FOLDER / 'classes'), best)
        self.assertEqual(printed['accuracy'], round(scores[best], 6))
        self.assertIn('heldout/label/mi', actual[2])
        saved = json.loads((FOLDER / 'classes' / 'metrics.json').read_text())
        self.assertEqual(saved, {**actual[best - 1], **printed})

    def test_pictures_and_the_progress(self):
        for file in ('confusion.png', 'bounds.png'):
            picture = (FOLDER / 'classes' / file).read_bytes()
            self.assertEqual(picture[:4], b'\x89PNG')
        self.assertRegex(
            self.done.out, r'step 3/6 .*label MI .* nats \| accuracy 0\.\d{4}'
        )

    def test_what_serves_it_is_what_it_was_trained_on(self):
        config = Config.read(FOLDER / 'classes')
        self.assertEqual(config.max_length, 24)
        self.assertEqual(config.pooling, 'cls')  # of --init
        self.assertEqual(config.rows['label'].settings['classes'], 3)
        self.assertEqual(config.run['task'], 'classify')

    def test_again_it_trains_nothing(self):
        """And answers further tables, and forgets them when none is named."""
        before = tensors('classes')
        lines = len(records(FOLDER / 'classes'))
        with mock.patch('orbit.Controller.train') as trained:
            more = run('classes', '--label.pooler=tanh', f'--test={TEST}',
                       f'--predict={TEXTS}')  # fmt: skip
            self.check_further(more)
            done = run('classes', '--label.pooler=tanh')
        for call in trained.call_args_list:
            self.assertEqual(call.args[0], 6)  # where it is
        self.assertEqual(last_line(done), last_line(self.done))
        self.assertLen(records(FOLDER / 'classes'), lines)
        np.testing.assert_equal(tensors('classes'), before)

    def check_further(self, done):
        loaded = infoword_tf.load(FOLDER / 'classes')
        rows = rows_of(TEST, text='text', label='label')
        actual = loaded.classify(rows.first).argmax(axis=1)
        true = labelling.known_labels(rows, loaded.config.labels)
        more = {
            f'test_{name}': round(measures.MEASURES[name](actual, true), 6)
            for name in ('accuracy', 'matthews')
        }
        self.assertEqual(last_line(done), {**last_line(self.done), **more})
        saved = json.loads((FOLDER / 'classes' / 'metrics.json').read_text())
        self.assertEqual({**saved, **more}, saved)
        rows = rows_of(TEXTS, text='text')
        p = loaded.classify(rows.first)
        names, cells = predictions('classes')
        self.assertEqual(
            names, ['line', 'label', 'p(class)', 'p(loop)', 'p(text)']
        )
        self.assertEqual(
            [row[:2] for row in cells],
            [[str(3 + i), loaded.config.labels[k]]  # behind a blank line
             for i, k in enumerate(p.argmax(axis=1))],
        )  # fmt: skip
        np.testing.assert_allclose(
            np.float64([row[2:] for row in cells]), p, atol=1e-6
        )
        self.assertIn(f'predictions.tsv: 7 predictions for {TEXTS}', done.out)

    def test_a_workdir_of_other_flags_or_rows(self):
        self.assert_refused(
            run('classes'), None, '--label.pooler was tanh, is none'
        )
        rows = finetuning.sentences()[:26]
        labels = [label for _, label in rows]
        turned = write(  # as many of each
            FOLDER / 'turned.tsv', ('text', 'label'),
            [(text, labels[-i]) for i, (text, _) in enumerate(rows)],
        )  # fmt: skip
        for pair in ((DEV, TRAIN), (turned, DEV)):
            self.assert_refused(
                run('classes', '--label.pooler=tanh', tables=pair), None,
                'holds a run with other flags', 'corpus',
            )  # fmt: skip

    def test_a_fine_tuned_workdir_is_a_start(self):
        """Takes its head for the same classes alone."""
        for labels, taken in ((KINDS, True), (KINDS[::-1], False)):
            labelled = self.prepare(labels).labelled
            rows = labelled.started.model.objectives
            self.assertEqual('label' in rows, taken)
            self.assertEqual(labelled.config_fields['labels'], labels)

    def test_rows_beyond_the_length_are_counted(self):
        sizes = self.prepare(KINDS).labelled.heldout.sizes
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.prepare(KINDS, 12)
        self.assertIn(
            f'dev.tsv: {(sizes > 12).sum()} of 25 rows are truncated to '
            '--seq_len=12 tokens', shown.getvalue(),
        )  # fmt: skip

    def prepare(self, labels, length=24):
        rows = rows_of(DEV, text='text', label='label')
        task = classify.Classify(
            labels=labels, splits={'train': rows, 'heldout': rows}
        )
        init = str(FOLDER / 'classes')
        choices = finetune.FinetuneChoices(init=init, seq_len=length)
        return finetune.prepare(task, choices)


class WaysTest(Checks, parameterized.TestCase):
    """Other rows and settings, an epoch each."""

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())  # graphs take seconds

    def test_a_probe_leaves_the_encoder_as_it_was(self):
        succeeded(run('probe', '--freeze', '--label.mix', '--epochs=1'))
        actual, before = tensors('probe'), tensors(finetuning.init())
        encoder = [path for path in actual if path.startswith('encoder/')]
        self.assertNotEmpty(encoder)
        for path in encoder:
            np.testing.assert_array_equal(actual[path], before[path])
        head = {p for p in actual if p.startswith('objectives/label/')}
        self.assertLen(head, 4)  # scores, and the mix
        self.assertTrue(actual['objectives/label/bias'].any())
        scales = next(p for p in head if p.endswith('scales'))
        self.assertTrue(actual[scales].any())
        # There are no moments of what is not trained, and no dropout.
        (last,) = (FOLDER / 'probe/checkpoints').glob('step-*3.safetensors')
        slots = {p for p in files.read_tensors(last) if '/m/' in p}
        self.assertEqual(slots, {f'optimizer/m/{path}' for path in head})
        self.assertEqual(Config.read(FOLDER / 'probe').run['dropout'], 0.0)

    def test_layers_learn_less_the_lower_they_are(self):
        succeeded(run('decayed', '--layer_decay=0.01', '--steps=1',
                   '--optimizer=infoword', '--weight_decay=0'))  # fmt: skip
        actual, before = tensors('decayed'), tensors(finetuning.init())

        def largest(path):
            return np.abs(actual[path] - before[path]).max()

        # Adam's first update is the rate, of whatever gradient.
        self.assertAlmostEqual(
            largest('encoder/layer_0/inner_kernel'), 3e-3, delta=2e-5
        )
        self.assertAlmostEqual(
            largest('encoder/word_embeddings'), 3e-5, delta=2e-6
        )

    def test_numbers_in_both_orders(self):
        """Spearman chooses; what is said is what `rate` says."""
        texts = [text for text, _ in finetuning.sentences()]
        rows = [
            (a, b, round(len(a) / 10 + i % 3, 2))
            for i, (a, b) in enumerate(zip(texts, texts[7:], strict=False))
        ]
        names = ('a', 'b', 'grade')
        pair = (write(FOLDER / 'grades.tsv', names, rows[:40]),
                write(FOLDER / 'grades_dev.tsv', names, rows[40:60]))
        done = run(
            'grades', '--text=a', '--pair=b', '--label=grade', '--regress',
            '--score.texts=both_ways', '--epochs=1', f'--test={pair[1]}',
            f'--predict={pair[0]}', tables=pair,
        )  # fmt: skip
        printed = last_line(done)
        dev = rows_of(pair[1], text='a', pair='b', label='grade', regress=True)
        loaded = infoword_tf.load(FOLDER / 'grades')
        numbers = loaded.rate(dev.first, dev.second)
        for name in ('spearman', 'pearson'):
            actual = measures.MEASURES[name](numbers, dev.scores)
            self.assertAlmostEqual(printed[name], actual, delta=1e-5)
            self.assertAlmostEqual(printed[f'test_{name}'], actual, delta=1e-5)
        other = rows_of(pair[0], text='a', pair='b')
        names, cells = predictions('grades')
        self.assertEqual(names, ['line', 'score'])
        expected = loaded.rate(other.first, other.second)
        actual = np.float64([row[1] for row in cells])
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        error = np.square(numbers - dev.scores).mean()
        self.assertAlmostEqual(printed['loss'], error, delta=1e-4)
        self.assertNotIn('mi', printed)
        np.testing.assert_allclose(
            numbers, loaded.rate(dev.second, dev.first), atol=1e-5
        )
        self.assertFalse((FOLDER / 'grades' / 'confusion.png').exists())
        with self.assertRaisesRegex(ValueError, 'on examples of two texts'):
            loaded.rate(dev.first)
        with self.assertRaisesRegex(TypeError, 'list of texts'):
            loaded.rate('one', 'string')
        with self.assertRaisesRegex(TypeError, r'pairs\[1\] is None, and no'):
            loaded.rate(['one', 'two'], ['three', None])
        self.assertEqual(loaded.rate([], []).shape, (0,))
        with self.assertRaisesRegex(ValueError, 'know no labels'):
            loaded.classify(dev.first)

    def test_choices(self):
        """The label is a column, or its number."""
        texts = [text for text, _ in finetuning.sentences()]
        columns = ('one', 'two', 'three')
        rows = [(*texts[4 * i : 4 * i + 4], columns[i % 3]) for i in range(24)]
        table = write(FOLDER / 'choices.tsv', ('text', *columns, 'label'), rows)
        flag = '--choices=one,two,three'
        done = run('choices', flag, '--steps=1', f'--predict={table}',
                   f'--test={table}', tables=(table, table))  # fmt: skip
        loaded = infoword_tf.load(FOLDER / 'choices')
        self.assertEqual(loaded.config.labels, columns)
        actual = rows_of(table, text='text', choices=columns, label='label')
        p = loaded.choose(actual.first, actual.choices)
        scores = np.exp(np.concatenate(
            [loaded.text_scores(actual.first, x) for x in actual.choices], 1
        ))  # fmt: skip
        np.testing.assert_allclose(
            p, scores / scores.sum(axis=1, keepdims=True), atol=1e-5
        )
        self.assertEqual(loaded.choose([], [[]] * 3).shape, (0, 3))
        with self.assertRaisesRegex(TypeError, r'choices\[2\]\[0\] is 0.5 \('):
            loaded.choose(['a'], [['b'], ['c'], [0.5]])
        right = np.mean(p.argmax(axis=1) == np.arange(24) % 3)
        self.assertEqual(last_line(done)['accuracy'], round(float(right), 6))
        self.assertEqual(
            last_line(done)['test_accuracy'], last_line(done)['accuracy']
        )
        names, cells = predictions('choices')
        self.assertEqual(names[1:], ['label', *(f'p({c})' for c in columns)])
        best = p.argmax(axis=1)
        self.assertEqual([row[1] for row in cells], [columns[k] for k in best])
        with mock.patch.object(measures, 'draw_confusion') as drawn:
            task = classify.Classify(labels=columns, splits={'heldout': actual})
            task.write(FOLDER / 'choices', FOLDER)
        _, shown, true, taken = drawn.call_args.args
        self.assertEqual(shown, columns)
        np.testing.assert_array_equal(true, np.arange(24) % 3)
        np.testing.assert_array_equal(taken, best)
        options = classify.ClassifyChoices(choices=columns)
        for labels, known in (
            (['two', 'one'], columns), (['2', '0'], ('0', '1', '2')),
        ):  # fmt: skip
            one = classify.kinds_of(actual._replace(labels=labels), options)
            self.assertEqual(one, (known, ('accuracy',)))

    def test_a_sum_reads_the_texts_of_the_examples(self):
        succeeded(run('sum', '--objectives=label:1,mlm:0.1', '--steps=2',
                      '--warmup_steps=1'))  # fmt: skip
        last = records(FOLDER / 'sum')[-1]
        self.assertIn('heldout/mlm/mi', last)
        self.assertIn('heldout/label/accuracy', last)
        config = Config.read(FOLDER / 'sum')
        self.assertEqual(config.rows['mlm'].weight, 0.1)
        (written,) = (FOLDER / 'cache' / 'examples').glob('*/train.txt')
        self.assertEqual(
            written.read_text().split('\n\n')[:-1],
            [text for text, _ in finetuning.sentences()[:26]],
        )

    def test_text_of_a_corpus_that_is_named(self):
        corpus = f'text:{TRAIN}'
        with mock.patch.object(
            finetune, 'train_all', side_effect=KeyboardInterrupt
        ) as train_all:
            run('named', '--objectives=label:1,mlm:0.1', f'--corpus={corpus}')
        self.assertEqual(train_all.call_args.args[1].choices.corpus, [corpus])

    def test_next_words_are_of_the_examples_where_no_corpus_is_named(self):
        for objectives, corpus, chosen, actual in (
            ('label:1,gpt:0.5', None, None, {'gpt.reads': 'examples'}),
            ('label:1,gpt:0.5', None, 'stream', {'gpt.reads': 'stream'}),
            ('label:1,gpt:0.5', 'pydocs', None, {}),
            ('label:1,gpt:0', None, None, {}),
            ('label:1,mlm:0.1', None, None, {}),
        ):
            choices = finetune.FinetuneChoices(
                corpus=corpus, settings={'gpt.reads': chosen}
            )
            expected = finetune.read_examples(objectives, choices)
            self.assertEqual(expected, actual)


class SeveralTest(absltest.TestCase):
    def test_the_best_of_all_and_what_each_says(self):
        """The best run is neither the first nor of the best mean."""
        scores = [0.2, 0.9, 0.6, 0.7]
        start = finetuning.tuned(FOLDER / 'start', KINDS, layers=1)
        weights = files.read_tensors(start / 'weights.safetensors')
        calls = []

        def train_(choices, *_):
            """A run that says one kind of everything."""
            folder = pathlib.Path(choices.workdir)
            shutil.copytree(start, folder)
            (folder / checkpoint.FOLDER).mkdir()
            bias = 1e3 * np.eye(3, dtype=np.float32)[len(calls) % 3]
            files.write_tensors(
                folder / 'weights.safetensors',
                {**weights, 'objectives/label/bias': bias},
            )
            best = {'step': 1, 'heldout/label/accuracy': scores[len(calls)],
                    'heldout/label/matthews': 0.0}  # fmt: skip
            files.write_json(folder / 'metrics.json', best)
            calls.append(folder)
            return best

        grid = {'learning_rate': (1.0, 2.0)}
        with (
            mock.patch.dict(finetune.GRIDS, infoword=grid),
            mock.patch.object(finetune, 'check_and_run', side_effect=train_),
        ):
            done = run('several', '--sweep=infoword', '--seeds=2',
                       f'--test={TEST}', f'--predict={TEXTS}')  # fmt: skip
        printed = last_line(done)
        self.assertEqual(printed['best'], 'learning_rate=1-seed=1')
        self.assertEqual(printed['accuracy'], 0.9)
        labels = rows_of(TEST, text='text', label='label').labels
        tested = []
        for number, folder in enumerate(calls):
            kind = KINDS[number % 3]
            name = str(folder.relative_to(FOLDER))
            _, cells = predictions(name)
            self.assertEqual({row[1] for row in cells}, {kind})
            tested.append(round(labels.count(kind) / len(labels), 6))
            saved = json.loads((folder / 'metrics.json').read_text())
            self.assertEqual(saved['test_accuracy'], tested[-1])
            # The commonest label is that of 9 of 25.
            sentence = saved[finetune.NOTHING_LEARNED]
            self.assertEqual(
                'no better' in sentence, scores[number] < 0.36 + 0.096
            )
            self.assertEqual('where the defaults make 30:' in sentence,
                             'no better' not in sentence)  # fmt: skip
            if not number:
                self.assertIn('0.2000 is no better', sentence)
                self.assertIn('for every text, 0.3600 +- 0.0960', sentence)
                self.assertEndsWith(sentence, 'without --sweep')
        self.assertEqual(printed['test_accuracy'], tested[1])
        self.assertEqual(
            predictions('several'), predictions('several/' + printed['best'])
        )
        for name, both, test in (
            ('learning_rate=1', scores[:2], tested[:2]),
            ('learning_rate=2', scores[2:], tested[2:]),
        ):
            self.assertEqual(
                printed['runs'][name],
                {'mean': round(np.mean(both), 6),
                 'spread': round(np.std(both, ddof=1), 6),
                 'test_mean': round(np.mean(test), 6),
                 'test_spread': round(np.std(test, ddof=1), 6)},
            )  # fmt: skip
        self.assertIn('test_accuracy 0.', done.out)
        # Without --test nothing is left of the one before.
        old = {finetune.NOTHING_LEARNED: 'it was not better'}
        finetune.update_metrics(FOLDER / 'several', old)
        finetune.update_metrics(FOLDER / 'several', {'step': 2})
        saved = json.loads((FOLDER / 'several' / 'metrics.json').read_text())
        del printed[finetune.NOTHING_LEARNED]
        self.assertEqual({**printed, 'step': 2}, {**saved, **{
            k: v for k, v in printed.items() if k.startswith('test_')
        }})  # fmt: skip
        self.assertNotIn('test_accuracy', saved)
        self.assertNotIn(finetune.NOTHING_LEARNED, saved)

    def test_a_name_that_would_part_a_line(self):
        path = FOLDER / 'odd.tsv'
        rows = labelling.TableExamples(
            ['a'], None, None, None, 'a.csv', np.arange(1, 2)
        )
        classify.write_predictions(
            path, classify.Classify(labels=('a\tb', 'c\nd')), rows,
            np.float32([[0.75, 0.25]]),
        )  # fmt: skip
        self.assertEqual(
            path.read_text(),
            'line\tlabel\tp(a b)\tp(c d)\n1\ta b\t0.750000\t0.250000\n',
        )


class LabelSetsTest(Checks, absltest.TestCase):
    """Texts of two sentences, of one and of none of three kinds."""

    NAMES = ('text', 'loop', 'class')  # in the order of a public head

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(eagerly())
        sentences = finetuning.sentences()
        cls.examples = []
        for i in range(64):
            (one, kind), (two, other) = sentences[i], sentences[2 * i // 3]
            labels = sorted({kind, other})
            if i % 4 == 3:
                one, two, labels = f'{i} ' * 9, '', []
            cls.examples.append((f'{one} {two}'.strip(), labels))
        lines = [json.dumps({'text': a, 'of': b}) for a, b in cls.examples]
        paths = [FOLDER / f'several_{i}.jsonl' for i in range(3)]
        for path, (begin, end) in zip(
            paths, itertools.pairwise((0, 26, 48, 64)), strict=True
        ):
            path.write_text('\n'.join([*lines[begin:end], '']))
        # As a folder of transformers comes in, with three labels.
        cls.init = finetuning.tuned(
            FOLDER / 'public', cls.NAMES, ('mlm', 'label'),
            {'label.multilabel': True}, layers=1,
        )  # fmt: skip
        cls.done = run(
            'sets', f'--init={cls.init}', '--label=of', '--seq_len=40',
            '--learning_rate=0.001', f'--test={paths[2]}',
            f'--predict={paths[2]}', pictures=True, tables=paths[:2],
        )  # fmt: skip

    def true(self, begin, end):
        return np.array([
            [name in labels for name in self.NAMES]
            for _, labels in self.examples[begin:end]
        ])  # fmt: skip

    def test_metrics_are_of_predictions_for_the_whole_dev_set(self):
        values = last_line(self.done)
        loaded = infoword_tf.load(FOLDER / 'sets')
        self.assertEqual(loaded.config.labels, self.NAMES)
        self.assertTrue(loaded.config.rows['label'].settings['multilabel'])
        for before, begin, end in (('test_', 48, 64), ('', 26, 48)):
            true = self.true(begin, end)
            p = loaded.classify([x for x, _ in self.examples[begin:end]])
            for name in ('f1_micro', 'f1_macro'):
                expected = measures.MEASURES[name](p >= 0.5, true)
                self.assertAlmostEqual(
                    values[before + name], expected, delta=1e-6
                )
        # Means over texts and labels, as BCEWithLogitsLoss has it.
        loss = -np.log(np.where(true, p, 1 - p)).mean()
        self.assertAlmostEqual(values['loss'], loss, delta=2e-5)
        share = np.stack([true.mean(axis=0), 1 - true.mean(axis=0)])
        entropy = -(share * np.log(share)).sum(axis=0).mean()
        self.assertAlmostEqual(values['ceiling'], entropy, delta=2e-6)
        self.assertAlmostEqual(values['mi'], entropy - loss, delta=2e-5)
        metrics = json.loads((FOLDER / 'sets/metrics.json').read_text())
        self.assertAlmostEqual(
            metrics['heldout/label/chance'], share.max(axis=0).mean(), places=6
        )
        self.assertRegex(
            self.done.out, r'label MI .* nats \| f1_micro 0\.\d{4}'
        )
        self.assertFalse((FOLDER / 'sets/confusion.png').exists())

    def test_the_head_of_a_public_model_is_taken(self):
        """Whose labels are the same, in an order of their own."""
        self.assertIn('taken encoder, objectives/label and', self.done.out)
        kernel, head = (
            tensors(folder)['objectives/label/kernel']
            for folder in ('sets', self.init)
        )
        self.assertGreater(np.abs(head).max(), 0.1)
        self.assertLess(np.abs(kernel - head).max(), 0.02)

    def test_predictions_are_a_table_to_read(self):
        names, rows = predictions('sets')
        self.assertEqual(
            names, ['line', 'labels', *(f'p({x})' for x in self.NAMES)]
        )
        p = np.array([row[2:] for row in rows], float)
        self.assertLen(rows, 16)
        for (_, labels, *_), odds in zip(rows, p, strict=True):
            self.assertEqual(json.loads(labels), [
                x for x, odd in zip(self.NAMES, odds, strict=True)
                if odd >= 0.5
            ])  # fmt: skip
        read_again = labelling.examples_of(
            tables.open_table(str(FOLDER / 'sets/predictions.tsv')),
            TableColumns('labels', label='labels', lists=True),
        )  # fmt: skip
        self.assertEqual(
            read_again.label_sets,
            [frozenset(json.loads(row[1])) for row in rows],
        )


class ColumnsTest(Checks, absltest.TestCase):
    def test_files_without_a_line_of_names(self):
        """As with one; texts that nobody labelled may lack the label."""
        texts = [text for text, _ in finetuning.sentences()]
        rows = [(texts[i], 'ab'[i % 2], texts[-i]) for i in range(12)]
        names = ('one', 'kind', 'two')
        named = write(FOLDER / 'named.tsv', names, rows)
        bare = FOLDER / 'bare.tsv'
        bare.write_text(named.read_text().partition('\n')[2])
        short = FOLDER / 'short.csv'
        short.write_text(''.join(f'"{a}","{b}"\n' for a, _, b in rows))
        choices = (f'--columns={",".join(names)}', '--text=one', '--pair=two',
                 '--label=kind')  # fmt: skip
        options = quick.choices(
            *choices, f'--train={bare}', f'--dev={named}', f'--extra={short}',
            kind=distill.DistillChoices,
        )  # fmt: skip
        task = classify.Classify.read(options).with_texts(options)
        parts, extra = task.splits, task.extra
        for actual in (*parts.values(), extra):
            self.assertEqual(actual.first, [row[0] for row in rows])
            self.assertEqual(actual.second, [row[2] for row in rows])
        for actual in parts.values():
            self.assertEqual(actual.labels, [row[1] for row in rows])
        np.testing.assert_array_equal(parts['train'].lines, range(1, 13))
        np.testing.assert_array_equal(parts['heldout'].lines, range(2, 14))
        options = quick.choices(
            *choices, f'--test={bare}', f'--predict={short}',
            kind=classify.ClassifyChoices,
        )  # fmt: skip
        task = classify.Classify(labels=('a', 'b')).with_others(options)
        self.assertEqual(task.tests[''].labels, parts['train'].labels)
        self.assertEqual(task.unknown.second, extra.second)
        self.assertIsNone(task.unknown.labels)


    def test_labels_of_columns(self):
        """Also one that no text has, in the order of the flag."""
        path = write(FOLDER / 'columns.tsv', ('text', 'a', 'b', 'c', 'by'), [
            ('x', 1, 0, 0, 'en'), ('y', 1, 1, 0, 'en'), ('z', 0, 0, 0, 'de'),
        ])  # fmt: skip
        choices = classify.ClassifyChoices(label_columns=('c', 'b', 'a'))
        rows = classify.read(str(path), choices)
        self.assertEqual(
            classify.kinds_of(rows, choices),
            (('c', 'b', 'a'), ('f1_micro', 'f1_macro')),
        )
        task = classify.Classify(labels=('c', 'b', 'a'), multilabel=True)
        np.testing.assert_array_equal(
            task.targets(rows), [[0, 0, 1], [0, 1, 1], [0, 0, 0]]
        )

    def test_rows_that_are_left_out_are_said(self):
        path = write(FOLDER / 'drop.tsv', ('text', 'label'), [
            ('x', 'a'), ('y', '-'), ('z', 'b'),
        ])  # fmt: skip
        choices = classify.ClassifyChoices(drop_label='-')
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            rows = classify.read(str(path), choices)
        self.assertEqual((rows.first, rows.labels), (['x', 'z'], ['a', 'b']))
        self.assertRegex(shown.getvalue(), r'drop.tsv.*\b1\b.*-')


class ClassifyPartsTest(places.Folder, Checks, parameterized.TestCase):
    """XNLI's forms: one file of all languages, or a file for each."""

    def setUp(self):
        super().setUp()
        (self.folder / 'xnli.test.tsv').write_text(finetuning.XNLI)
        self.rows = {}
        for line in finetuning.XNLI.splitlines()[1:]:
            language, label, _, *texts, _ = line.split('\t')
            self.rows.setdefault(language, []).append([*texts, label])
        for language, rows in self.rows.items():
            lines = ['\t'.join(row) + '\n' for row in rows]
            (self.folder / f'test-{language}.tsv').write_text(''.join(lines))

    def options(self, *more):
        return quick.choices(
            '--text=sentence1', '--pair=sentence2', '--label=gold_label',
            *more, kind=classify.ClassifyChoices,
        )  # fmt: skip

    @parameterized.parameters(
        ('xnli.test.tsv', ['--test_by=language'], ['fr', 'de']),
        ('xnli.test.tsv', ['--test_by=language', '--test_only=de'], ['de']),
        ('../{}/test-*.tsv', ['--columns=sentence1,sentence2,gold_label'],
         ['de', 'fr']),
        ('test-*.tsv', ['--columns=sentence1,sentence2,gold_label',
                        '--test_only=fr,de'], ['fr', 'de']),
    )  # fmt: skip
    def test_rows_of_each_language(self, test, more, languages):
        name = test.format(self.folder.name)
        actual = classify.tests_of(
            self.options(f'--test={self.folder}/./{name}', *more)
        )
        self.assertEqual(list(actual), languages)
        for language, rows in actual.items():
            expected = zip(*self.rows[language], strict=True)
            self.assertEqual(
                [rows.first, rows.second, rows.labels],
                list(map(list, expected)),
            )

    def test_parts_of_a_test_are_scored_apart(self):
        """Takes the mean of the parts of a table, whatever their size."""
        tests = {
            name: labelling.TableExamples(
                [*texts], None, true.split(), None, name, np.arange(len(texts))
            )
            for name, texts, true in (
                ('fr', 'ynnn', 'yes yes no no'), ('de', 'ny', 'yes no')
            )
        }  # fmt: skip
        task = classify.Classify(
            labels=('no', 'yes'), metrics=('accuracy', 'matthews'), tests=tests
        )
        model = mock.Mock(classify=lambda texts, _: np.array(
            [[text == 'n', text == 'y'] for text in texts], float
        ))  # fmt: skip
        with (
            mock.patch.object(infoword_tf, 'load', lambda _: model),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            actual = task.test(self.folder)
        # Of yes 1 of 2 is right, of no both: 2 / sqrt(1 * 2 * 2 * 3).
        self.assertEqual(actual, {
            'test_accuracy': 0.375, 'test_matthews': -0.211325,
            'test_by': {
                'fr': {'accuracy': 0.75, 'matthews': 0.57735, 'rows': 4},
                'de': {'accuracy': 0.0, 'matthews': -1.0, 'rows': 2},
            },
        })  # fmt: skip
        text, *lines = shown.getvalue().splitlines()
        self.assertIn('the weights with the best accuracy on --dev', text)
        self.assertEqual([line.split() for line in lines], [
            ['accuracy', 'matthews', 'rows'], ['fr', '0.7500', '0.5774', '4'],
            ['de', '0.0000', '-1.0000', '2'], ['mean', '0.3750', '-0.2113'],
        ])  # fmt: skip


class ClassifyKilledTest(Checks, absltest.TestCase):
    @mock.patch.object(finetuning, 'SMALL', finetuning.SMALL[1:-1])
    def test_begun_with_fewer_epochs(self):
        """Runs keep 3 steps; one that begins now would have 10."""
        two, large = '--seeds=2', '--batch_size=24'
        with mock.patch.object(finetune, 'LEAST_UPDATES', 1):
            done = succeeded(run('fewer', two, large))
            self.assertNotIn('epochs, since', done.out)
            with mock.patch.object(
                checkpoint, 'write_weights', side_effect=KeyboardInterrupt
            ):
                stopped = run('stopped', large)
        # Between the checkpoint and the first weights.
        self.assertEqual(stopped.status, commands.INTERRUPTED)
        self.assertEqual(checkpoint.last_step(FOLDER / 'stopped'), 1)
        self.assertIsNone(checkpoint.weights_step(FOLDER / 'stopped'))
        with mock.patch.object(
            finetune, 'check_and_run', side_effect=AssertionError
        ):
            again = succeeded(run('fewer', two, large))
        self.assertEqual(last_line(again), last_line(done))
        done = succeeded(run('stopped', large))
        self.assertNotIn('epochs, since', done.out)
        self.assertEqual(Config.read(FOLDER / 'stopped').run['steps'], 3)
        self.assertIsNotNone(checkpoint.weights_step(FOLDER / 'stopped'))
        more = succeeded(run('fewer', '--seeds=3', large))
        self.assertIn('over 3 seeds', more.out)
        self.assertEqual(Config.read(FOLDER / 'fewer/seed=2').run['steps'], 3)
        done = run('fewer', two, large, '--epochs=10')
        self.assert_refused(done, 'sweep_other_flags', '--steps was 3, is 10')


class BegunTest(places.Folder, absltest.TestCase):
    """Runs whose folders are there."""

    def write(self, name, chosen, **run):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        Config.read(finetuning.init()).replace(run=run).write(folder)
        (folder / 'flags.txt').write_text(commands.flagfile(chosen))
        return folder

    def test_a_run_that_has_ended_is_not_made_again(self):
        data = {'steps': 3, 'learning_rate': 0.5, 'init': 'x'}
        choices = finetune.FinetuneChoices(**data)
        chosen = {'batch_size': 8, 'seed': 1, 'epochs': 2.0}
        folder = self.write('one', chosen, **data, examples='f00')

        def finished(chosen=chosen, fingerprint='f00', **changes):
            labelled = types.SimpleNamespace(fingerprint=fingerprint)
            return finetune.finished_run(
                folder, types.SimpleNamespace(labelled=labelled),
                choices.decided(**changes), chosen,
            )  # fmt: skip

        self.assertIsNone(finished())
        files.write_json(folder / 'metrics.json', {'mi': 0.25})
        self.assertEqual(finished(), {'mi': 0.25})
        free = {'seed': 7, 'seeds': 2, 'test': 'x.tsv', 'log_every': 1}
        self.assertEqual(finished({'batch_size': 8, **free}), {'mi': 0.25})
        for more, *values in (
            ({'steps': 4}, '--steps was 3, is 4'),
            ({'init': 'y'}, '--init was x, is y'),
            ({'learning_rate': 0.1}, '--learning_rate was 0.5, is 0.1'),
            ({'fingerprint': 'f01'}, 'other examples'),
            ({'chosen': {'batch_size': 9}}, '--batch_size=9 is new',
             '--batch_size=8 is gone'),
        ):  # fmt: skip
            with refused('sweep_other_flags', folder, *values):
                finished(**more)

    def test_a_rate_that_nobody_chose_stays(self):
        """Keeps that of a begun run; adapters have ten times as much."""
        choices = finetune.FinetuneChoices(workdir=str(self.folder))
        folder = self.write('seed=0', {'seed': 1}, learning_rate=0.25)
        self.assertEqual(finetune.with_rate(choices, 768).learning_rate, 3e-5)
        actual = finetune.with_rate(choices.decided(adapter='lora'), 768)
        self.assertEqual(actual.learning_rate, 3e-4)
        files.write_json(folder / 'metrics.json', {})
        self.assertEqual(finetune.with_rate(choices, 768).learning_rate, 0.25)
        self.write('seed=0', {'learning_rate': 0.25}, learning_rate=0.25)
        self.assertEqual(finetune.with_rate(choices, 768).learning_rate, 3e-5)


class PaceTest(absltest.TestCase):
    def test_several_runs_that_cannot_be(self):
        for changes, id, flag in (
            ({'sweep': 'bert', 'steps': 3}, 'sweep_of_steps', '--sweep=bert'),
            ({'strategy': 'multiworker', 'seeds': 2}, 'multiworker_sweep',
             '--seeds'),
            ({'strategy': 'multiworker', 'sweep': 'infoword'},
             'multiworker_sweep', '--sweep'),
        ):  # fmt: skip
            choices = finetune.FinetuneChoices(workdir='w', **changes)
            prepared = types.SimpleNamespace(choices=choices)
            with refused(id, flag):
                finetune.train_all(mock.Mock(), prepared, {})

    def test_more_epochs_than_usual_are_said(self):
        """Nobody chose them: 26 examples have one update of 16 an epoch."""
        choices = finetune.FinetuneChoices(batch_size=16)
        labelled = types.SimpleNamespace(train=types.SimpleNamespace(size=26))
        line = '26 examples: 10 epochs, since 3 have only 3 updates; --epochs '
        for changes, steps in (
            ({}, 10), ({'epochs': 10.0}, 10), ({'steps': 9}, 9),
        ):  # fmt: skip
            prepared = finetune.PreparedTask(
                labelled, choices.decided(**changes)
            )
            with (
                mock.patch.object(finetune, 'check_and_run') as trained,
                contextlib.redirect_stdout(io.StringIO()) as shown,
            ):
                finetune.train_once(prepared, {})
            self.assertEqual(trained.call_args.args[0].steps, steps)
            self.assertEqual(line in shown.getvalue(), not changes)
        labelled.train.size = 16 * 134  # three epochs are enough
        with (
            mock.patch.object(finetune, 'check_and_run') as trained,
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            finetune.train_once(finetune.PreparedTask(labelled, choices), {})
        self.assertEqual(trained.call_args.args[0].steps, 3 * 134)
        self.assertEqual(shown.getvalue(), '')

    def pace(self, examples, epochs, **more):
        choices = finetune.FinetuneChoices(batch_size=32, epochs=epochs, **more)
        return finetune.with_steps(choices, examples)

    def test_epochs_are_updates(self):
        """Has 4 of 100 examples left over."""
        actual = self.pace(100, 3)
        self.assertEqual((actual.steps, actual.eval_every), (9, 3))
        self.assertEqual(self.pace(100, 0.5).steps, 2)
        self.assertEqual(self.pace(100, 0).steps, 1)
        actual = self.pace(100, 3, steps=50, eval_every=7)
        self.assertEqual((actual.steps, actual.eval_every), (50, 7))
        self.assertEqual(self.pace(67_349, 3).log_every, 100)

    def test_narrow_encoders_have_a_higher_rate(self):
        """3e-5 at the width of BERT base, times its square over the width's."""
        choices = finetune.FinetuneChoices()
        self.assertIsNone(choices.learning_rate)
        for width, rate in (
            (768, 3e-5), (1024, 1.7e-5), (384, 1.2e-4), (256, 2.7e-4),
            (128, 1.1e-3),
        ):  # fmt: skip
            actual = finetune.with_rate(choices, width)
            self.assertEqual(actual.learning_rate, rate)
        chosen = finetune.FinetuneChoices(learning_rate=0.5)
        self.assertIs(finetune.with_rate(chosen, 768).learning_rate, 0.5)

    def test_small_tables_are_read_more_often(self):
        """Until 500 updates, 10 epochs at most; what is chosen is exact."""
        limits = {'EPOCHS': 3.0, 'MOST_EPOCHS': 10.0, 'LEAST_UPDATES': 500}
        with mock.patch.multiple(finetune, **limits):
            for examples, steps in (
                (64, 10 * 2), (1_500, 10 * 46), (2_490, 7 * 77),
                (3_668, 5 * 114), (5_344, 3 * 167), (8_551, 3 * 267),
            ):  # fmt: skip
                self.assertEqual(self.pace(examples, None).steps, steps)
            self.assertEqual(self.pace(3_668, 3).steps, 342)
            self.assertEqual(self.pace(3_668, None, steps=7).steps, 7)
            self.assertEqual(
                self.pace(67_349, None), self.pace(67_349, 3).decided(
                    epochs=None))

    def test_spread(self):
        self.assertEqual(finetune.spread([3.0]), (3.0, 0.0))
