"""Answers and parts of an export, and the commands around it."""

import contextlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export import (
    branches,
    bundle,
    card,
    comparison,
    compat,
    savedmodel,
    serving_ops,
    verify,
    warmup,
)
from export.signatures import ANSWERS, MASKS, Signatures
from infoword_tf import config as configs
from infoword_tf import files
from infoword_tf.choices import RunChoices, flags_of
from infoword_tf.config import Config, DenseConfig, TaskConfig, read_exported
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.training import record
from tests import places, zoo
from tests.eager import eagerly
from tests.export import answers, many_requests, protos, workdirs
from tests.refused import refused
from tests.tasks import command

ROOT = pathlib.Path(__file__).parent.parent.parent
LAST = 'encoder/layer_0/outer_kernel'  # behind it all states lie


def setUpModule():
    global WORKDIR, MODEL, LOADED, SERVED
    WORKDIR, MODEL = workdirs.shared(), workdirs.exported()
    LOADED, SERVED = workdirs.loaded(), workdirs.served()


def ask(name, texts):
    return workdirs.answer(SERVED[name], texts)


class Case(places.Folder, command.Checks, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.model = self.folder / 'model'

    def write(self, *rows, **more):
        return workdirs.write(self.folder / 'run', rows, **more)


class SignaturesTest(Case):
    def test_names(self):
        self.assertEqual(
            set(SERVED), {'serving_default', 'embed', 'tokens', 'fill_mask'}
        )
        for name in SERVED:
            self.assertEqual(
                SERVED[name].structured_input_signature[1],
                {'texts': tf.TensorSpec((None,), tf.string, name='texts')},
            )

    def test_texts_are_a_list(self):
        """A server passes on any rank."""
        for name in sorted(SERVED):
            for texts in ('one text', [['of'], ['lists']]):
                with self.assertRaisesRegex(
                    tf.errors.InvalidArgumentError, 'Slice'
                ):
                    ask(name, texts)

    def test_requests_of_all_kinds(self):
        answered, _ = many_requests.tried(SERVED, 100, 1000, 64)
        self.assertEqual(answered.pop('refused'), 2)
        self.assertEqual(set(answered), set(SERVED))

    def test_a_word_that_is_no_utf8_is_unknown(self):
        actual = ask('embed', [b'a \xff b', 'a \u0c80 b'])['embeddings']
        np.testing.assert_allclose(actual[0], actual[1], atol=1e-6)

    def test_a_text_too_long_keeps_its_masks_and_what_is_near(self):
        tokenizer, room = LOADED.tokenizer, LOADED.max_length - 2
        random = np.random.default_rng(0)
        texts = []
        for masks in (0, 1, 2, 5, 8, 9, 20, 40):
            words = ['the', 'value', 'of', 'a', 'name'] * 16
            for place in random.choice(len(words), masks, replace=False):
                words[place] = '[MASK]'
            texts.append(' '.join(words))
        actual = ask('fill_mask', texts)
        for row, text in enumerate(texts):
            ids = []
            for number, part in enumerate(text.split('[MASK]')):
                if number:
                    ids.append(tokenizer.mask_id)
                ids += tokenizer.tokenize([part])[0].numpy().tolist()
            self.assertGreater(len(ids), room)
            masks = [i for i, x in enumerate(ids) if x == tokenizer.mask_id]
            answered = masks[:MASKS]
            far = [
                min((abs(i - m) for m in answered), default=i)
                for i in range(len(ids))
            ]
            nearest = sorted(range(len(ids)), key=lambda i, far=far: far[i])
            stays = sorted(nearest[:room])
            places = [stays.index(m) + 1 for m in answered]
            stays = [tokenizer.cls_id, *(ids[i] for i in stays),
                    tokenizer.sep_id]
            self.assertEqual(actual['count'][row], len(masks))
            self.assertTrue((actual['tokens'][row, len(answered) :] == b'')
                            .all())
            self.assertTrue((actual['scores'][row, len(answered) :] == 0).all())
            if places:
                with eagerly():
                    scores = LOADED.blanks.token_scores(
                        tf.constant([stays], tf.int32),
                        tf.constant([len(stays)]),
                        tf.constant([places], tf.int32),
                    )
                best = tf.math.top_k(scores[0], ANSWERS).values
                np.testing.assert_allclose(
                    actual['scores'][row, : len(places)], best, atol=1e-5
                )

    @parameterized.parameters(
        ('transformer', 'mlm', 'cls'),
        ('transformer', 'dim', 'first_last', 2),
        ('lookup', 'ict', 'weighted'),
        ('transformer', 'ict', 'words', 1, {'ict.words': 40}),
        ('rnn', 'rnn_lm', 'last', 2),
        ('rnn', 'rnn_lm', 'mean', 1, {'rnn_lm.cell': 'gru'}),
        ('elmo', 'elmo', 'mix', 2),
        ('modern', 'mlm', 'mean', 3),
        ('modern', 'ict', 'last', 1, None, zoo.QWEN),
        ('disentangled', 'mlm', 'cls'),
    )
    def test_other_encoders_rows_and_poolings(
        self, encoder, row, pooling, layers=1, settings=None, arguments=None
    ):
        workdir = self.write(
            row, encoder=encoder, pooling=pooling, layers=layers,
            settings=settings, arguments=arguments,
        )  # fmt: skip
        loaded = infoword_tf.load(workdir)
        signatures = Signatures.of(loaded)
        with workdirs.traced(signatures):
            model = bundle.write(workdir, self.model)
        self.assertEmpty(serving_ops.unservable(model))
        texts = ['one text', '', 'another text that is much longer ' * 3]
        actual = signatures.functions['embed'](tf.constant(texts))
        np.testing.assert_allclose(
            actual['embeddings'], loaded.encode(texts), atol=1e-5
        )
        self.assertEqual('fill_mask' in signatures.functions, row == 'mlm')
        self.assertNotIn('objectives/ict/log_scale', signatures.weights)

    @parameterized.parameters(
        ('transformer', {'relative_buckets': 8, 'shared_layers': True},
         'float32'),
        ('modern', zoo.QWEN | {'kv_heads': 2}, 'float32'),
        ('modern', {'global_every': 2}, 'bfloat16'),
    )  # fmt: skip
    def test_branches(self, encoder, arguments, precision):
        """Two branches compute the vectors of one, from as many numbers."""
        workdir = self.write(
            'mlm', encoder=encoder, layers=2, arguments=arguments
        )
        loaded = infoword_tf.load(workdir, bundle.POLICIES[precision])
        signatures = [Signatures.of(loaded, n) for n in (1, 2)]
        texts = tf.constant(['one text', '', 'another one, longer ' * 3])
        one, two = (
            x.functions['embed'](texts)['embeddings'] for x in signatures
        )
        np.testing.assert_allclose(
            two, one, atol=1e-6 if precision == 'float32' else 0.05
        )
        held = [
            {path: tuple(x.shape) for path, x in (each.weights | each.constants)
             .items() if '/layer_1/' in path or '/layer_0/' in path}
            for each in signatures
        ]  # fmt: skip
        kernels = [
            [x for path, x in shapes.items() if '_kernel' in path]
            for shapes in held
        ]
        self.assertLen(kernels[1], 2 * len(kernels[0]))
        numbers = [sum(map(np.prod, shapes.values())) for shapes in held]
        self.assertEqual(*numbers)

    def test_heads_of_a_branch(self):
        """Queries, keys and values of 4 heads of 1, and GeGLU of 2 numbers."""
        layer = 'encoder/layer_0'
        weights = {
            f'{layer}/attention/qkv_kernel': np.arange(12.0)[None],
            f'{layer}/attention/qkv_bias': np.arange(12.0),
            f'{layer}/attention/output_kernel': np.arange(4.0)[:, None],
            f'{layer}/inner_kernel': np.arange(4.0)[None],
            f'{layer}/inner_bias': np.arange(4.0),
            f'{layer}/outer_kernel': np.arange(2.0)[:, None],
            f'{layer}/outer_bias': np.zeros(1),
        }
        shapes = {path: value.shape for path, value in weights.items()}
        actual = {
            path.rpartition('/')[2]: [
                x.ravel().tolist()
                for x in branches.split(path, value, shapes, 2)
            ]
            for path, value in weights.items()
        }
        qkv = [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
        self.assertEqual(actual, {
            'qkv_kernel': qkv, 'qkv_bias': qkv,
            'output_kernel': [[0, 1], [2, 3]],
            'inner_kernel': [[0, 2], [1, 3]], 'inner_bias': [[0, 2], [1, 3]],
            'outer_kernel': [[0], [1]], 'outer_bias': [[0]],
        })  # fmt: skip

    @parameterized.parameters(
        ('rnn', {}, 2, 'the encoder rnn has none'),
        ('modern', {'heads': 4, 'kv_heads': 1, 'inner_width': 8}, 2,
         'does not divide 1 heads of keys'),
        ('transformer', {'heads': 6, 'inner_width': 8}, 3,
         'does not divide 8 inner numbers'),
    )
    def test_no_branches(self, encoder, arguments, count, words):
        with self.assertRaisesRegex(ValueError, words):
            branches.check(encoder, arguments, count)

    @parameterized.parameters(
        ('transformer_xl', 'text [SEP]', '[SEP]'),
        ('plm', 'text [SEP] [CLS]', '[CLS]'),
    )
    def test_rows_with_memory(self, row, layout, last):
        """Written, read again, and asked for real and nasty texts."""
        workdir = self.write(row, encoder='relative', pooling='cls')
        version = bundle.write(workdir, self.model)
        loaded = infoword_tf.load(workdir)
        served = workdirs.serve(str(version)).signatures
        expected = {'serving_default', 'embed', 'tokens'}
        expected |= {'next_token'} if row == 'transformer_xl' else set()
        self.assertEqual(set(served), expected)
        mixed = [x for x in comparison.texts(40) if len(x) < 100_000]
        answers.check(
            self, version, loaded, 'embed', mixed, [b'one text'], [b'']
        )
        answer = workdirs.answer(served['tokens'], ['a cat', ''])
        after = len(layout.split()) - 1
        specials = [loaded.tokenizer.sep_id, loaded.tokenizer.cls_id][:after]
        for ids, starts, length in zip(
            answer['ids'], answer['starts'], answer['lengths'], strict=True
        ):
            ids, starts = ids[:length], starts[:length]
            self.assertEqual(ids[-after:].tolist(), specials)
            self.assertEqual(starts[-after:].tolist(), [-1] * after)
            self.assertTrue((starts[:-after] >= 0).all())
        text = workdirs.card_of(version)
        for part in (
            f'A text is read as `{layout}`, and truncated at 24',
            f"A text's vector is the state of its {last};",
            'Every text is read alone',
            *(['the likeliest next tokens, best first',
               'than 24 tokens `next_token` reads the end']
              if 'next_token' in served else []),
        ):  # fmt: skip
            self.assertIn(part, text)

    @parameterized.parameters(
        # Counts of tokens stand with the weights.
        ('words', {'ict.words': 40}, 'unigram',
         'pooling words.* have learned no words'),
        ('weighted', {}, 'objectives/',
         'no objectives/ict/pooling_kernel.* learned no weights'),
    )  # fmt: skip
    def test_a_pooling_that_lacks_something(
        self, pooling, settings, without, message
    ):
        workdir = self.write(
            'ict', pooling=pooling, settings=settings, without=(without,)
        )
        with self.assertRaisesRegex(ValueError, message):
            bundle.write(workdir, self.model)
        self.assertFalse(self.model.exists())


class BundleTest(Case):
    def test_what_is_written(self):
        output = MODEL.parent
        self.assertEqual(
            {p.name for p in output.iterdir()}, {'1', 'MODEL_CARD.md'}
        )
        self.assertContainsSubset(
            {'saved_model.pb', 'variables', 'assets.extra'},
            {p.name for p in MODEL.iterdir()},
        )
        config, export = read_exported(MODEL)
        self.assertEqual(config, Config.read(WORKDIR))
        facts = {'version': 1, 'precision': 'float32', 'default': 'embed',
                 'tensorflow': tf.__version__}  # fmt: skip
        self.assertLessEqual(facts.items(), export.items())
        self.assertEqual(
            export['signatures']['embed']['embeddings'], ['float32', None, 64]
        )

    def test_correlations_of_models(self):
        """By name; two of three pairs in order, 100 x 0.5, and all."""
        table = self.folder / 'sts.tsv'
        table.write_text('score\tsentence1\tsentence2\n'
                         '1\ta\tb\n2\ta\tc\n3\ta\td\n')  # fmt: skip
        vectors = {
            'float32': {'a': [1, 0], 'b': [1, 9], 'c': [2, 9], 'd': [3, 9]},
            'bfloat16': {'a': [1, 0], 'b': [1, 0], 'c': [3, 0], 'd': [2, 0]},
        }
        models = {}
        for name, of in vectors.items():
            models[name] = mock.Mock()
            models[name].config.similarity = 'dot'
            models[name].encode = lambda texts, of=of, **_: np.float32(
                [of[text] for text in texts]
            )
        self.assertEqual(bundle.correlations(str(table), models), {
            'data': 'sts.tsv', 'pairs': 3, 'float32': 100.0, 'bfloat16': 50.0,
        })  # fmt: skip

    def test_only_what_is_read_is_saved(self):
        # Biases and what norms multiply by are constants of the graphs.
        expected = [
            list(variable.shape)
            for path, variable in LOADED.model.variables.items()
            if path.startswith('encoder/') and len(variable.shape) > 1
        ]
        names = tf.train.list_variables(str(MODEL / 'variables/variables'))
        shapes = [s for n, s in names if n.startswith('weights/')]
        self.assertCountEqual(shapes, expected)

    def test_a_failure_leaves_nothing(self):
        self.assertEmpty(serving_ops.unservable(MODEL))
        full = {'side_effect': OSError('full')}
        is_full = self.assertRaisesRegex(OSError, 'full')
        for module, part, how, refusal in (
            (card, 'render', full, is_full), (warmup, 'write', full, is_full),
            # What servers lack is refused.
            (serving_ops, 'TEXT', {'new': frozenset()},
             refused('unservable_graph', 'FastBertNormalize in while')),
        ):  # fmt: skip
            patched = mock.patch.object(module, part, **how)
            with patched, workdirs.traced(), refusal:
                bundle.write(WORKDIR, self.model)
            self.assertEmpty(list(self.model.iterdir()))

    def test_warm_up_requests_can_be_read(self):
        asked = []
        for name, inputs in protos.warmups(MODEL):
            self.assertEqual([*inputs], ['texts'])
            ask(name, inputs['texts'])
            asked.append((name, len(inputs['texts'])))
        self.assertCountEqual(
            asked, [(name, n) for name in SERVED for n in (1, 32)]
        )

    def test_the_card_says_what_the_run_wrote_down(self):
        text = (MODEL.parent / 'MODEL_CARD.md').read_text()
        for fact in (
            'version 1', 'Computes in float32', 'trained in mixed_bfloat16',
            'A transformer encoder (1 layers, 64 width, 2 heads',
            f'{len(LOADED.tokenizer):,} tokens', 'truncated at 24 tokens',
            'the mean of the states', 'averages of what', '--seed=7',
            '`text:books/*.txt`', '`books/held.txt`',
            f'{int(LOADED.unigram.sum()):,} tokens to train on',
            '1,234 updates; the run took 57 s.',
            '| `bert_nce` | masked text, masked token | 0.377 | 6.932 | '
            '6.556 |',
            '| `mlm` | masked text, masked token | - | - | - | - |',
            '| `states` | [B, T, 64] | float32 |',
            '`fill_mask` keeps its first 8 masks',
        ):  # fmt: skip
            self.assertIn(fact, text)
        for name in ('embed', 'tokens', 'fill_mask'):
            self.assertIn(f'### `{name}`', text)
            self.assertIn(f'{{"signature_name": "{name}"', text)
        for line in text.splitlines():
            self.assertFalse(line.endswith(' '), line)

    def test_the_card_has_a_line_of_each_speed(self):
        """The last one of a version, a precision and a processor stays."""

        def line(precision, processor, one):
            report = {'speed': {'one': one, 'many': 1234.4}}
            export = {'version': 1, 'precision': precision}
            return card.speed_line(export, report, processor)

        text = '# Title\n\nwords\n'
        for each in (('float32', 'A, 2 cores', 5), ('float32', 'B', 3),
                     ('bfloat16', 'A, 2 cores', 2),
                     ('float32', 'A, 2 cores', 4.126)):  # fmt: skip
            text = card.with_speed(text, line(*each))
        head, _, lines = text.partition('|---|---|---|---|---|\n')
        self.assertStartsWith(head, '# Title\n\nwords\n\n## Speed\n\n')
        self.assertEqual(lines.splitlines(), [
            '| 1 | bfloat16 | A, 2 cores | 2.00 ms | 1,234 texts/s |',
            '| 1 | float32 | A, 2 cores | 4.13 ms | 1,234 texts/s |',
            '| 1 | float32 | B | 3.00 ms | 1,234 texts/s |',
        ])  # fmt: skip

    def test_cards_of_other_runs(self):
        config, export = read_exported(MODEL)
        rows = {
            names: config.replace(
                rows=resolve(ModelChoices(objectives=names)).rows
            )
            for names in ('mlm', 'mlm,nsp', 'plm', 'bert', 'infoword', 'ict')
        }
        unbounded = 'The loss of `nsp` bounds no mutual information.'
        averages, empty = 'averages of what', 'accuracy 0.5000 is no better'
        task = config.replace(
            rows=resolve(ModelChoices(objectives='label')).rows,
            task=TaskConfig(
                'mails', 'label', False, ('accuracy',),
                *({'train': size, 'heldout': size} for size in ('a.tsv', 9)),
            ),
        )  # fmt: skip
        scored = {
            f'heldout/label/{name}': 0.5
            for name in ('accuracy', 'mi', 'ceiling')
        }

        def nats(mi):
            return {'heldout/label/mi': mi, 'heldout/label/ceiling': 1.08}

        for of, pieces, metrics, parts, others in (
            (config.replace(run={}), 0, {}, ['The run has recorded none.'],
             ['Text:']),
            (config.replace(dense=(DenseConfig(8, 'identity'),)), 1, {},
             ['of widths 8 (identity)'], []),
            (config, None, {}, ['Text: `text:books/*.txt` (text files, one'],
             ['to train on']),
            (rows['mlm'], 1, workdirs.METRICS, [], [unbounded, empty]),
            (task, 1, scored, ['| accuracy | 0.5000 |\n\nThe mutual'], [empty]),
            (task, 1, {**scored, 'nothing_learned': empty},
             [f'| accuracy | 0.5000 |\n\n{empty}\n\nThe mutual'], []),
            (task, 1, {**scored, **nats(0.27)},
             ['at least 0.270 nats, of 1.080 that are possible (25%)'], []),
            (task, 1, {**scored, **nats(-0.1)},
             ['at least 0.000 nats, of 1.080 that are possible (0%)'], []),
            (task, 1, {}, ['## Task'], ['text and label']),
            (rows['mlm,nsp'], 1, workdirs.METRICS, [unbounded], []),
            # Whether a row compares texts.
            (rows['plm'], 1, {}, [averages], []),
            (rows['bert'], 1, {}, [averages], []),
            (rows['infoword'], 1, {}, [], [averages]),
            (rows['ict'], 1, {}, [], [averages]),
        ):  # fmt: skip
            text = card.render(of, export, pieces, '', metrics)
            for part in parts:
                self.assertIn(part, text)
            for part in others:
                self.assertNotIn(part, text)


class OperationsTest(absltest.TestCase):
    def test_an_island_and_a_foreign_operation_are_found(self):
        folder = self.create_tempdir().full_path
        module = tf.Module()
        module.island = tf.function(tf.linalg.inv, jit_compile=True)
        shape = tf.TensorSpec((2, 2))
        outer = tf.function(lambda x: module.island(x), input_signature=[shape])
        tf.saved_model.save(module, folder, outer.get_concrete_function())
        actual = '\n'.join(serving_ops.unservable(pathlib.Path(folder)))
        self.assertIn('operation MatrixInverse in ', actual)
        self.assertIn('attribute _XlaMustCompile', actual)

    def test_no_graph(self):
        with self.assertRaisesRegex(FileNotFoundError, 'no saved_model.pb'):
            serving_ops.read(ROOT)


class DifferenceTest(absltest.TestCase):
    def test_what_counts(self):
        expected = {
            'a/tokens': np.array([[b'x', b'y', b'z', b'w']]),
            'a/scores': np.array([[-1.0, -1.000001, -5.0, -7.0]]),
            'a/count': np.array([1]),
        }
        # What is last may have changed places with what follows.
        near = {**expected, 'a/tokens': np.array([[b'y', b'x', b'z', b'v']])}
        far = {**expected, 'a/tokens': np.array([[b'z', b'y', b'x', b'w']])}
        count = {**expected, 'a/count': np.array([2])}
        less = {'a/scores': expected['a/scores'][:, :2]}
        for actual, name, gap in (
            (expected, 'a/tokens', 0.0), (near, 'a/tokens', 0.0),
            (far, 'a/tokens', np.inf), (count, 'a/count', np.inf),
            (less, 'a/scores', np.inf), (less, 'a/count', np.inf),
        ):  # fmt: skip
            gaps = comparison.difference(actual, expected, 1e-5)
            self.assertEqual(gaps[name], gap, name)

    def test_what_is_not_finite(self):
        value = np.array([[1.0, 2.0, np.nan]])  # NaN: Python has no answer
        expected = {'all': {'a/scores': value}, 'none': {'a/scores': value[:0]}}
        for answer, gap in (
            ([1.0, 2.25, 7.0], 0.25), ([np.nan, 2.0, 7.0], np.inf),
            ([1.0, np.inf, 7.0], np.inf), ([1.0, -np.inf, 7.0], np.inf),
            ([1.0, 2.0, np.nan], np.inf),
        ):  # fmt: skip
            batch = np.array([answer])
            actual = {
                'all': {'a/scores': batch}, 'none': {'a/scores': batch[:0]}
            }  # fmt: skip
            worst = comparison.largest(actual, expected, 1e-5)
            self.assertEqual(worst, {'a/scores': gap}, answer)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertFalse(comparison.show(worst, 1e-5))
            self.assertRegex(out.getvalue(), f'a/scores  {gap:.1e} +above')


class WarmUpTest(absltest.TestCase):
    def test_a_request_of_any_length(self):
        """Fields of 127 bytes have a length of one byte, of 128 of two."""
        read = protos.message('PredictionLog').FromString
        for length in range(60, 260):
            text = 'x' * length
            log = read(warmup.prediction_log('embed', ['texts'], [text]))
            tensor = log.predict_log.request.inputs['texts']
            self.assertEqual(tensor.string_val, [text.encode()])


class KilledTest(places.Folder, absltest.TestCase):
    def test_what_killed_exports_left(self):
        """Deletes that of a process of this machine that is gone alone."""
        gone = subprocess.Popen(['true'])
        gone.wait()
        ours = platform.node()
        names = (f'{ours}.{gone.pid}', f'{ours}.{os.getppid()}',
                 f'{ours}_not.{gone.pid}', f'{ours}.none')  # fmt: skip
        folders = [self.folder / f'.1.{name}' for name in names]
        for folder in folders:
            folder.mkdir()
        with self.assertRaisesRegex(RuntimeError, 'no graph'):
            with mock.patch.object(
                Signatures, 'save', side_effect=RuntimeError('no graph')
            ):
                bundle.write(WORKDIR, self.folder)
        self.assertEqual(
            [folder.exists() for folder in folders], [False, True, True, True]
        )


class CommandsTest(Case):
    def test_export_and_verify(self):
        """A second version, so nothing of the first may change."""
        output = self.folder / 'm'
        shutil.copytree(MODEL.parent, output)
        with workdirs.traced():
            done = self.run_it(savedmodel, f'--output={output}', '--version=3')
        self.assertRegex(
            done.out,
            r'm/3/: embed, fill_mask, serving_default, tokens; float32',
        )
        self.assertEqual(
            {p.name for p in output.iterdir()}, {'1', '3', 'MODEL_CARD.md'}
        )
        self.assertIn('version 3', (output / 'MODEL_CARD.md').read_text())
        before = {p: p.stat().st_mtime_ns for p in output.rglob('*')}
        self.check_gaps(self.verify_few(f'--model={output}/3'))
        self.assertEqual(
            {p: p.stat().st_mtime_ns for p in output.rglob('*')}, before
        )

    def test_verified_in_a_process(self):
        """Real and nasty texts, more than a chunk, where no project is."""
        done = self.run_it(verify, f'--model={MODEL}', '--texts=260')
        count = int(re.search(r': (\d+) texts, one and none', done.out)[1])
        self.assertGreater(count, 260)
        self.check_gaps(done)

    def verify_few(self, *flags, status=0):
        """Runs the command on two texts, in this process."""
        few = {'all': [b'a [MASK] of three', b'words'], 'none': []}
        with (
            answers.verified_here(),
            mock.patch.object(comparison, 'batches', lambda _: few),
        ):
            return self.run_it(verify, *flags, status=status)

    def check_gaps(self, done):
        gaps = dict(re.findall(r'^  (\w+/\w+) +(\S+)', done.out, re.M))
        expected = {
            f'{name}/{output}'
            for name, function in SERVED.items()
            for output in function.structured_outputs
        }
        self.assertEqual(set(gaps), expected)
        self.assertLessEqual(max(map(float, gaps.values())), 1e-5, gaps)

    def test_the_first_numbers_of_vectors(self):
        """As `encode` gives them; verified, and no version beside others."""
        output, cpuinfo = self.folder / 'few', self.folder / 'cpuinfo'
        cpuinfo.write_text('model name\t: Fast\nflags\t: avx512_bf16\n')
        with mock.patch.object(record, 'CPUINFO', cpuinfo):
            done = self.run_it(savedmodel, f'--output={output}', '--dims=3')
        self.assertIn('faster with --precision=bfloat16', done.out)
        card_text = (output / 'MODEL_CARD.md').read_text()
        self.assertIn('truncated to 3 numbers', card_text)
        embed = workdirs.serve(str(output / '1')).signatures['embed']
        texts = ['a class is an object', 'names']
        actual = workdirs.answer(embed, texts)['embeddings']
        expected = infoword_tf.load(WORKDIR).encode(texts, dims=3)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        with (
            answers.verified_here(),
            mock.patch.object(verify, 'TIMED', 12),
            mock.patch.object(record, 'CPUINFO', cpuinfo),
        ):
            self.run_it(verify, f'--model={output}/1', '--texts=20', '--speed')
        text = (output / 'MODEL_CARD.md').read_text()
        before, _, speed = text.partition('## Speed\n')
        self.assertEqual(before.rstrip(), card_text.rstrip())
        self.assertRegex(
            speed,
            r'\| 1 \| float32 \| Fast, \d+ cores \| '
            r'[\d.]+ ms \| [\d,]+ texts/s \|\n$',
        )

    def run_it(self, module, *arguments, status=0):
        done = command.run(module, f'--init={WORKDIR}', *arguments)
        self.assertEqual(done.status, status, done.out + done.err)
        return done

    def test_a_changed_weight_is_found(self):
        init = shutil.copytree(WORKDIR, self.folder / 'changed')
        path = init / configs.WEIGHTS
        tensors = files.read_tensors(path)
        tensors[LAST].flat[0] = 0.5
        files.write_tensors(path, tensors)
        done = self.verify_few(f'--model={MODEL}', f'--init={init}', status=1)
        self.assertEqual(done.err, '')
        above = re.findall(r'^  (\w+/\w+) .* above 1e-05$', done.out, re.M)
        states = {
            'embed/embeddings', 'serving_default/embeddings', 'tokens/states',
            'fill_mask/scores',
        }  # fmt: skip
        self.assertContainsSubset(states, above)
        self.assertLessEqual(set(above), {*states, 'fill_mask/tokens'})

    def test_complaints_are_one_sentence(self):
        other = self.folder / 'other'
        other.mkdir()
        Config.read(WORKDIR).replace(run={'seed': 3}).write(other)
        init, model = f'--init={WORKDIR}', f'--model={MODEL}'
        flags = (init, f'--output={MODEL.parent}')
        for module, arguments, message in (
            (savedmodel, flags, r'/1 is there already.*--version=2'),
            (savedmodel, flags[:1], '--output is missing'),
            (savedmodel, (*flags, 'more'), "'more' is no flag"),
            (verify, (model,), '--init is missing: name the workdir'),
            (verify, (model, '--init=/none'), 'no config.json: it is not the'),
            (verify, (model, f'--init={other}'), 'config.json differ'),
            (compat, ('--python=/none',), 'make serving-compat makes it'),
        ):
            done = command.run(module, *arguments)
            self.assert_complains(done, message)
        # The model that `compat` makes by itself needs such choices.
        self.assertContainsSubset(compat.SMALL, flags_of(RunChoices))
