"""Keras models: the numbers of `load`, trained and saved by Keras."""

import contextlib
import csv
import json
import runpy
import shutil
import zipfile
from pydoc_data import topics
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import keras_models
from infoword_tf.keras_models import Backbone, TextEncoder, Tokenizer
from tests import pages, places, zoo
from tests.eager import eagerly
from tests.export import workdirs
from tests.near import assert_near
from tests.objectives.eq1 import EagerCase
from tests.refused import refused

T = 24
NEAR = {'rtol': 1e-6, 'atol': 1e-6}
TEXTS = [
    'Names refer to objects. Names are introduced by name binding.',
    '',
    'x',
    'A list, a tuple and a string are sequences. ' * 9,  # it is cut
]
# By name, arguments of `workdirs.write`.
MODELS = {
    'mean': {},
    'cls': {'pooling': 'cls', 'arguments': {'segments': 1}},
    'first_last': {'pooling': 'first_last', 'layers': 2},
    'weighted': {'rows': ('ict', 'mlm'), 'pooling': 'weighted'},
    'words': {
        'rows': ('ict',), 'pooling': 'words', 'settings': {'ict.words': 8},
    },
    'causal': {'rows': ('gpt',), 'pooling': 'last'},
    'rotary': {
        'rows': ('gpt',), 'encoder': 'modern', 'pooling': 'last',
        'arguments': zoo.QWEN,
    },
    'lookup': {'rows': ('ict',), 'encoder': 'lookup'},
    'rnn': {'rows': ('rnn_lm',), 'encoder': 'rnn', 'pooling': 'last'},
    'elmo': {'rows': ('elmo',), 'encoder': 'elmo', 'pooling': 'mix'},
    'relative': {
        'rows': ('plm',), 'encoder': 'relative', 'pooling': 'last',
        'kind': 'sentencepiece',
    },
}  # fmt: skip


def setUpModule():
    global FOLDER
    FOLDER = places.make()


def preset(name):
    folder = FOLDER / name
    if not folder.exists():
        workdirs.write(folder, max_length=T, width=16, **MODELS[name])
    return folder


def labelled():
    """Real sentences, of two kinds: about statements, and about the rest."""
    actual = [[], []]
    for name, text in sorted(topics.topics.items()):
        for line in text.split('.'):
            words = line.split()
            if len(words) > 6:
                kind = ' statement' in f'{name} {line}'
                actual[kind].append(' '.join(words)[:120])
    count = 24
    texts = [x for part in actual for x in part[:: len(part) // count][:count]]
    return np.array(texts, object), np.repeat([0, 1], count)


def compiled(inputs, scores, rate=1e-2, optimizer='Adam'):
    model = keras.Model(inputs, scores)
    model.compile(
        getattr(keras.optimizers, optimizer)(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def weights_of(model):
    return np.concatenate([np.ravel(w) for w in model.trainable_weights])


class SameNumbersTest(EagerCase):
    @parameterized.parameters(*MODELS)
    def test_states_and_vectors(self, name):
        """Vectors equal those of `load`, for every encoder and pooling."""
        loaded = infoword_tf.load(preset(name))
        ids, lengths, _ = loaded.format_texts(tf.constant(TEXTS))
        fields = Tokenizer.from_preset(preset(name))(TEXTS)
        np.testing.assert_array_equal(fields['token_ids'], ids)
        np.testing.assert_array_equal(
            np.sum(fields['padding_mask'], axis=1), lengths
        )
        actual = Backbone.from_preset(preset(name))(fields)
        expected = loaded.embed(ids, lengths)
        assert_near(actual, {
            'sequence_output': loaded.states(ids, lengths),
            'pooled_output': expected,
        }, rtol=1e-6, of_each=1e-6)  # fmt: skip
        self.assertEqual({x.dtype for x in actual.values()}, {tf.float32})
        encoder = TextEncoder.from_preset(preset(name))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            encoder(np.array(TEXTS)), loaded.encode(TEXTS), 1e-6, 1e-6 * scale
        )

    def test_pairs(self):
        """Segments too, which say where the second text begins."""
        first, second = TEXTS[:2], TEXTS[2:]
        for name, last in ('mean', 1), ('cls', 1), ('relative', 2):
            loaded = infoword_tf.load(preset(name))
            ids, lengths, begins = loaded.format_texts(
                tf.constant(first), tf.constant(second)
            )
            tokenizer = Tokenizer.from_preset(preset(name))
            fields = tokenizer((first, second))
            self.assertEqual(np.max(fields['segment_ids']), last)
            fields['padding_mask'] = fields['padding_mask'] > 0  # KerasHub's
            actual = Backbone.from_preset(preset(name))(fields)
            expected = loaded.states(ids, lengths, second=begins)
            for row, length in enumerate(lengths):
                np.testing.assert_allclose(
                    actual['sequence_output'][row, :length],
                    expected[row, :length], rtol=1e-5, atol=1e-5,
                )  # fmt: skip

    def test_another_pooling_and_what_is_put_before(self):
        loaded = infoword_tf.load(preset('mean'))
        config = loaded.config.replace(
            prompts={'query': 'query: '}, normalize=True
        )
        loaded.with_config(config).write(FOLDER / 'prompts')
        plain = TextEncoder.from_preset(FOLDER / 'prompts')(TEXTS)
        np.testing.assert_allclose(np.linalg.norm(plain, axis=1), 1, **NEAR)
        asked = TextEncoder.from_preset(
            FOLDER / 'prompts', prompt='query', pooling='cls'
        )
        expected = loaded.encode([f'query: {x}' for x in TEXTS], pooling='cls')
        np.testing.assert_allclose(asked(TEXTS), expected, rtol=1e-5, atol=1e-5)
        asked.to_workdir(FOLDER / 'asked')
        again = infoword_tf.load(FOLDER / 'asked')
        np.testing.assert_array_equal(
            again.encode(TEXTS, prompt='query'), expected
        )


class TokenizerTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.tokenizer = Tokenizer.from_preset(
            preset('mean'), sequence_length=12
        )

    def test_shapes(self):
        """One text, several, a column of them, a dataset, and none."""
        expected = self.tokenizer(TEXTS)
        self.assertEqual(expected['token_ids'].shape, (4, 12))
        one = self.tokenizer(TEXTS[0])
        column = self.tokenizer(tf.constant(TEXTS)[:, None])
        none = self.tokenizer(tf.constant([], tf.string))
        texts = tf.data.Dataset.from_tensor_slices(TEXTS)
        mapped = next(iter(texts.map(self.tokenizer).batch(4)))
        # A list of tensors of no known value.
        (listed, *_) = texts.map(lambda text: self.tokenizer([text]))
        self.assertEqual(listed['token_ids'].shape, (1, 12))
        for name, value in expected.items():
            np.testing.assert_array_equal(one[name], value[0])
            np.testing.assert_array_equal(column[name], value)
            np.testing.assert_array_equal(mapped[name], value)
            self.assertEqual(none[name].shape, (0, 12))
            self.assertEqual(mapped[name].shape, (4, 12))
            self.assertEqual(value.dtype, 'int32')

    def test_vocabulary(self):
        vocabulary = self.tokenizer.get_vocabulary()
        self.assertLen(vocabulary, self.tokenizer.vocabulary_size())
        ids = self.tokenizer('objects')['token_ids'].numpy()
        tokens = [vocabulary[i] for i in ids]
        self.assertEqual([tokens[0], tokens[-1]], ['[CLS]', '[PAD]'])

    def test_functional(self):
        texts = keras.Input((1,), dtype='string')
        backbone = Backbone.from_preset(preset('mean'))
        names = [x.name for x in backbone.inputs]
        self.assertCountEqual(names, self.tokenizer(TEXTS))
        model = keras.Model(texts, backbone(self.tokenizer(texts)))
        self.assertEqual(model.output['pooled_output'].shape, (None, 16))
        self.assertEqual(model.output['sequence_output'].shape, (None, 12, 16))
        actual = model.predict(tf.constant(TEXTS)[:, None], verbose=0)
        assert_near(actual, backbone(self.tokenizer(TEXTS)), **NEAR)

    @parameterized.parameters(
        (['a', None], r'texts\[1\] is None, and no string'),
        (np.array([['a'], [np.nan]], object), r'\[1\] is nan'),
        ([1, 2], 'string'),
        (['\ud83c'], 'half a surrogate pair'),
        ([['a', 'b']], r'texts .* \(1, 2\)'),
        ((['a'], ['b'], ['c']), 'two texts .* 3'),
    )
    def test_what_is_no_text(self, inputs, message):
        """Keras makes the error anew, with more words and without the id."""
        with self.assertRaisesRegex((TypeError, ValueError), message):
            self.tokenizer(inputs)

    def test_bad_arguments(self):
        with refused('sequence_too_short', '3', '4'):
            Tokenizer.from_preset(preset('mean'), sequence_length=3)
        with refused('config_unknown_prompt', "'query'"):
            Tokenizer.from_preset(preset('mean'), prompt='query')


class TrainingTest(parameterized.TestCase):
    @parameterized.parameters(*MODELS)
    def test_gradients_reach_all_that_is_trained(self, name):
        """Only weights that no vector depends on are not trained."""
        encoder = TextEncoder.from_preset(preset(name), seed=1)
        weights = encoder.trainable_weights
        with eagerly(), tf.GradientTape() as tape:
            vectors = encoder(TEXTS, training=True)
            loss = tf.reduce_sum(vectors * tf.cos(vectors))
        gradients = tape.gradient(loss, [w.value for w in weights])
        for weight, gradient in zip(weights, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            total = np.abs(tf.convert_to_tensor(gradient)).sum()
            self.assertGreater(total, 0, weight.path)
        fixed = {w.path for w in encoder.non_trainable_weights}
        self.assertContainsSubset(
            fixed, {'objectives/ict/log_scale', 'encoder/mask_embedding'}
        )
        self.assertEqual('encoder/mask_embedding' in fixed, name == 'relative')
        encoder.trainable = False
        self.assertEmpty(encoder.trainable_weights)

    def test_in_a_sequential_without_an_input(self):
        """As a `TextVectorization`: built by the first strings that come, from
        memory and from `tf.data`, saved, loaded where the workdir is no more,
        and trained on.
        """
        self.enterContext(eagerly())
        folder = shutil.copytree(preset('weighted'), FOLDER / 'moved')
        encoder = TextEncoder.from_preset(folder, sequence_length=12)
        shutil.rmtree(folder)
        dense = keras.layers.Dense(1, kernel_initializer='zeros')
        model = keras.Sequential([encoder, dense])
        model.compile(keras.optimizers.SGD(3e-3), 'mse')
        texts, targets = np.array(TEXTS, object), np.arange(4.0)[:, None]
        before = encoder(texts)
        data = tf.data.Dataset.from_tensor_slices((TEXTS, targets)).batch(3)

        def fit(model, *arrays):
            model.fit(*arrays, epochs=2, verbose=0, shuffle=False)
            return model.evaluate(data, verbose=0)

        self.assertEqual(model.evaluate(data, verbose=0), 14 / 4)
        fit(model, data)
        second = fit(model, texts, targets)
        self.assertLess(second, 2.5)
        self.assertGreater(np.abs(encoder(texts) - before).max(), 1e-4)
        expected = model.predict(texts, verbose=0)
        self.assertEqual(expected.shape, (4, 1))
        np.testing.assert_allclose(
            second, np.mean((expected - targets) ** 2), rtol=1e-5
        )
        path = FOLDER / 'sequential.keras'
        model.save(path)
        again = keras.saving.load_model(path)
        np.testing.assert_array_equal(again.predict(texts, verbose=0), expected)
        self.assertNotEqual(fit(again, data), second)
        again.layers[0].to_workdir(FOLDER / 'written')
        written = infoword_tf.load(FOLDER / 'written')
        self.assertEqual(list(written.model.objectives), ['ict'])
        self.assertEmpty(written.config.run)
        np.testing.assert_allclose(
            written.encode(['x']), again.layers[0](['x']), **NEAR
        )
        with self.assertRaisesRegex(FileExistsError, 'written'):
            again.layers[0].to_workdir(FOLDER / 'written')

    def test_no_texts(self):
        """(0, E), eager, in training, and in a graph."""
        encoder = TextEncoder.from_preset(preset('mean'))
        spec = tf.TensorSpec([None], tf.string)
        for actual in (
            encoder(tf.constant([], tf.string)), encoder([], training=True),
            tf.function(encoder, input_signature=[spec])(
                tf.constant([], tf.string)
            ),
        ):  # fmt: skip
            self.assertEqual(actual.shape, (0, 16))

    @parameterized.parameters('mean', 'cls')
    def test_states_and_vectors_of_training_are_of_one_text(self, name):
        """At dropout 0 those of inference, by the fused operations."""
        fields = Tokenizer.from_preset(preset(name))(TEXTS)
        backbone = Backbone.from_preset(preset(name), dropout=0.0)
        with eagerly():
            expected, actual = (
                backbone(fields, training=t) for t in (False, True)
            )
        assert_near(actual, expected, rtol=1e-5, atol=1e-5)

    def test_dropout(self):
        """Each step has another mask, inference has none."""

        def results():
            keras.utils.set_random_seed(5)
            backbone = Backbone.from_preset(preset('mean'))
            fields = Tokenizer.from_preset(preset('mean'))(TEXTS)
            with eagerly():
                return [
                    backbone(fields, training=dropped)['pooled_output'].numpy()
                    for dropped in (True, True, False, False, True)
                ]

        first, second, plain, again, third = results()
        np.testing.assert_array_equal(plain, again)
        for x, y in ((first, second), (second, third), (first, plain)):
            self.assertGreater(np.abs(x - y).max(), 0.01)
        np.testing.assert_array_equal(
            results(), [first, second, plain, again, third]
        )
        # Rows of a batch are dropped each in its own way.
        backbone = Backbone.from_preset(preset('mean'), seed=1)
        fields = Tokenizer.from_preset(preset('mean'))(TEXTS[:1] * 2)
        with eagerly():
            x, y = backbone(fields, training=True)['pooled_output'].numpy()
        self.assertGreater(np.abs(x - y).max(), 0.01)

    def test_two_devices_are_one(self):
        """Dropout too: masks are those of the global batch.

        Texts are tokenized before, since Keras gives replicas no strings.
        """
        texts, kinds = labelled()
        fields = Tokenizer.from_preset(preset('cls'))(texts)
        trained = []
        for strategy in (tf.distribute.get_strategy(), zoo.strategy(2)):
            with strategy.scope():
                keras.utils.set_random_seed(3)
                backbone = Backbone.from_preset(preset('cls'))
                x = keras.layers.Dense(2)(backbone.output['pooled_output'])
                model = compiled(backbone.input, x, 0.1, 'SGD')
            before = weights_of(model)
            data = tf.data.Dataset.from_tensor_slices((fields, kinds))
            model.fit(
                data.batch(8), steps_per_epoch=3, shuffle=False, verbose=0
            )
            trained.append(weights_of(model))
        np.testing.assert_allclose(*trained, rtol=0, atol=1e-5)
        self.assertGreater(np.abs(trained[0] - before).max(), 1e-3)

    @parameterized.parameters(True, False)
    def test_mixed_precision(self, everywhere):
        expected = TextEncoder.from_preset(preset('mean'))(TEXTS)
        with contextlib.ExitStack() as stack:
            dtype = 'mixed_bfloat16'
            if everywhere:
                keras.config.set_dtype_policy(dtype)
                stack.callback(keras.config.set_dtype_policy, 'float32')
                dtype = None
            encoder = TextEncoder.from_preset(preset('mean'), dtype=dtype)
            actual = encoder(TEXTS)
            self.assertEqual(actual.dtype, 'float32')
            apart = np.abs(actual - expected).max()
            self.assertBetween(apart, 1e-5, 0.1)
            strings = keras.Input((), dtype='string')
            model = compiled(strings, keras.layers.Dense(2)(encoder(strings)))
            texts, kinds = labelled()
            with eagerly():
                model.fit(texts[:8], kinds[:8], verbose=0)
        for weight in encoder.weights:
            if 'seed' not in weight.path:
                self.assertEqual(weight.dtype, 'float32')
        config = encoder.get_config()
        self.assertEqual(config['dtype'], 'mixed_bfloat16')


class SavedTest(EagerCase):
    @parameterized.parameters(*MODELS)
    def test_a_backbone(self, name):
        """Current weights, the preset's tokenizer and token counts."""
        backbone = Backbone.from_preset(preset(name))
        for weight in backbone.trainable_weights:
            weight.assign(weight + 0.01)
        fields = Tokenizer.from_preset(preset(name))(TEXTS)
        expected = backbone(fields)
        path = FOLDER / f'{name}.keras'
        backbone.save(path)
        again = keras.saving.load_model(path)
        self.assertIsInstance(again, Backbone)
        assert_near(again(fields), expected)

    @parameterized.parameters(
        (('version', 0), 'keras_other_version', '0', '1'),
        (('config', 'version', 99), 'config_of_other_version', '99'),
        (('files', '../vocab.txt', ''), 'keras_strange_file', '../vocab.txt'),
        (('config', 'vocabulary', 'other'), 'workdir_other_vocabulary'),
        (('config', 'encoder', 'name', 'later'), 'workdir_unknown_name',
         'later'),
    )  # fmt: skip
    def test_of_another_version(self, changed, id, *values):
        path = FOLDER / 'changed.keras'
        Backbone.from_preset(preset('mean')).save(path)
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in file.namelist()}
        config = json.loads(parts['config.json'])
        inner = config['config']['made_of']
        *where, name, value = changed
        for key in where:
            inner = inner[key]
        inner[name] = value
        parts['config.json'] = json.dumps(config).encode()
        with zipfile.ZipFile(path, 'w') as file:
            for name, data in parts.items():
                file.writestr(name, data)
        with refused(id, *values):
            keras.saving.load_model(path)


class DocumentTest(absltest.TestCase):
    def test_its_python_runs(self):
        """On a workdir and on real sentences of ours."""
        blocks = pages.python_of('docs/keras.md')
        self.assertLen(blocks, 5)
        self.assertLess(len(blocks[0].splitlines()), 40)
        texts, kinds = labelled()
        names, folder = {}, FOLDER / 'document'
        folder.mkdir()
        with open(folder / 'questions.csv', 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(['text', 'label'])
            writer.writerows(zip(texts, kinds, strict=True))
        with contextlib.chdir(folder), eagerly():
            for block in blocks:
                block = block.replace('MiniLM', str(preset('mean')))
                exec(block.replace('500', '8'), names)
        self.assertEqual(names['probabilities'].shape, (1, 2))
        np.testing.assert_allclose(names['probabilities'].sum(), 1, **NEAR)
        self.assertTrue((folder / 'runs/questions_encoder').is_dir())
        # What is made of a backbone is saved, loaded and cloned by Keras.
        for name in ('model', 'tagger'):
            model, path = names[name], folder / f'{name}.keras'
            model.save(path)
            again = keras.saving.load_model(path)
            clone = keras.models.clone_model(model)
            clone.set_weights(model.get_weights())
            with eagerly():
                expected = model(names['inputs'])
                for other in (again, clone):
                    np.testing.assert_array_equal(
                        other(names['inputs']), expected
                    )
        backbone = names['backbone']
        backbone.trainable = False
        frozen = keras.Model(backbone.input, backbone.output)
        again = keras.Model.from_config(frozen.get_config())
        self.assertEmpty(again.trainable_weights)
        tokens, labels = names['inputs']['token_ids'].numpy(), names['labels']
        words = [names['tokenizer'].get_vocabulary()[i].lower()
                 for i in tokens[labels > 0]]  # fmt: skip
        initials = [word[0] for word in words]
        self.assertEqual((initials, (labels >= 0).sum()), (['a', 'l', 't'], 7))


class ComplaintsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'dtype': 'mixed_float16'}, 'keras_dtype', 'mixed_float16'),
        ({'pooling': 'median'}, 'vectors_unknown_pooling', "'median'"),
        ({'pooling': 'weighted'}, 'pooling_not_learned', 'weighted'),
    )
    def test_bad_arguments(self, arguments, id, *values):
        for kind in (Backbone, TextEncoder):
            with refused(id, *values):
                kind.from_preset(preset('mean'), **arguments)

    def test_no_model_and_too_long(self):
        for kind in (Tokenizer, Backbone, TextEncoder):
            with self.assertRaises(FileNotFoundError):
                kind.from_preset(FOLDER / 'nowhere')
        tokenizer = Tokenizer.from_preset(preset('mean'), sequence_length=65)
        backbone = Backbone.from_preset(preset('mean'))
        with self.assertRaisesRegex(ValueError, '64 positions'):
            backbone(tokenizer(TEXTS))

    def test_another_backend(self):
        with (
            mock.patch.object(keras.backend, 'backend', return_value='jax'),
            self.assertRaisesRegex(ImportError, 'set KERAS_BACKEND=tensorflow'),
        ):
            runpy.run_path(keras_models.__file__)
