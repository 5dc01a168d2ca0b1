"""tasks.distill --task=embed: vectors that are kept, and who learns them."""

import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export.signatures import Signatures
from infoword_tf import files
from infoword_tf.choices import TextChoices
from infoword_tf.config import Config, DenseConfig
from infoword_tf.inference.loaded import Loaded
from infoword_tf.model import Model
from infoword_tf.workdir import Workdir
from tasks import distill, embedding, student, teacher
from tests import places
from tests.export import workdirs
from tests.runs import records
from tests.tasks import finetuning
from tests.tasks.command import Checks, succeeded
from tests.tasks.finetuning import last_line

LOOKUP = '--student=lookup'
TEXTS = ['a text', 'another text of this kind', '', 'names ' * 99]


def make(name, sizes=(), **served):
    """A workdir whose texts become vectors; served: fields of its config."""
    return workdirs.write(
        FOLDER / name, rows=('mlm',), fields={'normalize': True, **served},
        **dict(sizes),
    )  # fmt: skip


def setUpModule():
    global FOLDER, TEXT, HELDOUT, TEACHER, TYPED, run
    FOLDER = places.make()
    lines = [text for text, _ in finetuning.sentences()]
    TEXT, HELDOUT = FOLDER / 'train.txt', FOLDER / 'heldout.txt'
    TEXT.write_text('\n'.join(lines[:60] + lines[:9]) + '\n')
    HELDOUT.write_text('\n'.join(lines[50:80]) + '\n')
    TEACHER = make('teacher')
    TYPED = ('--task=embed', f'--teacher={TEACHER}', f'--corpus=lines:{TEXT}',
             f'--heldout={HELDOUT}', f'--workdir={FOLDER}')  # fmt: skip
    run = finetuning.runner(distill, FOLDER, *TYPED, '--steps=1')


class EmbeddingKeptTest(absltest.TestCase):
    def test_what_encode_gives_once(self):
        one = teacher.Embedder(str(TEACHER))
        digest = files.digest_of(TEACHER / 'weights.safetensors')
        self.assertEqual(one.digest, digest)
        texts = TEXT.read_text().splitlines()[:40]
        actual = one.vectors(texts)
        self.assertEqual(actual.dtype, np.float16)
        expected = infoword_tf.load(TEACHER).encode(texts)
        np.testing.assert_allclose(actual, expected, atol=3e-4)
        with mock.patch.object(one.loaded, 'encode') as none:
            np.testing.assert_array_equal(one.vectors(texts), actual)
        none.assert_not_called()

    def test_prompts_by_turns(self):
        folder = make('prompted', prompts={'query': 'q: ', 'passage': 'p: '})
        one = teacher.Embedder(str(folder))
        self.assertEqual(
            one.prompted(['a', 'b', 'c']), ['q: a', 'p: b', 'q: c']
        )
        self.assertEqual(teacher.Embedder(str(TEACHER)).prompted(['a']), ['a'])


class EmbeddingStartTest(parameterized.TestCase):
    def test_principal_components(self):
        x = np.random.default_rng(0).standard_normal((50, 12)).cumsum(axis=1)
        centred = x - x.mean(axis=0)
        _, _, expected = np.linalg.svd(centred, full_matrices=False)
        actual, directions = student.principal(x, 5)
        signs = np.sign((directions * expected[:5]).sum(axis=1))
        np.testing.assert_allclose(
            directions * signs[:, None], expected[:5], atol=1e-5
        )
        np.testing.assert_allclose(actual, centred @ directions.T, atol=1e-4)
        largest = np.abs(directions).argmax(axis=1)
        self.assertGreater(directions[np.arange(5), largest].min(), 0)
        # As wide as they are, they stay where they are.
        actual, directions = student.principal(x, 12)
        np.testing.assert_allclose(actual, centred, atol=1e-6)
        np.testing.assert_array_equal(directions, np.eye(12))

    @parameterized.parameters(
        ('bert', 'cls', 'cls'), ('xlnet', 'cls', 'last'),
        ('xlnet', 'last', 'last'), ('bert', 'mean', 'mean'),
        ('xlnet', 'mean', 'mean'), ('bert', 'max', 'mean'),
    )  # fmt: skip
    def test_states_become_a_vector_as_the_teacher_s(
        self, layout, pooling, actual
    ):
        config = types.SimpleNamespace(layout=layout, pooling=pooling)
        self.assertEqual(student.pooling_of(config), actual)

    def test_weights(self):
        counts = np.array([0, 999, 1, 0])
        for kind, expected in (
            ('sif', np.array([0, 1e-3 / (1e-3 + 0.999), 0.5, 1])),
            ('zipf', np.log([1, 3, 4, 5])),
        ):
            actual = student.weights_of(kind, [0], counts)
            expected /= expected.mean()
            np.testing.assert_allclose(actual, expected, rtol=1e-5)

    @parameterized.parameters(16, 64)
    def test_a_table_of_the_teacher_s_own_vectors(self, width):
        one = teacher.Embedder(str(TEACHER))
        texts = TEXT.read_text().splitlines()
        actual = student.lookup_of(one, width, 'sif', texts, {})
        loaded = one.loaded
        # Of each piece alone, by another way.
        ids = np.array([[loaded.tokenizer.cls_id, i, loaded.tokenizer.sep_id]
                        for i in range(len(loaded.tokenizer))])  # fmt: skip
        pieces = loaded.embed(ids, np.full(len(ids), 3)).numpy()
        centred = pieces - pieces.mean(axis=0)
        table = actual.encoder.embedding_table.numpy()
        _, _, basis = np.linalg.svd(centred, full_matrices=False)
        pc = centred @ basis[:width].T
        np.testing.assert_allclose(table @ table.T, pc @ pc.T, atol=2e-3)
        # A text is the mean of its pieces with their weights.
        weights = actual.encoder.piece_weights.numpy()
        text = TEXTS[1]
        ids = loaded.tokenizer.tokenize([text]).flat_values.numpy()
        expected = (table[ids] * weights[ids, None]).sum(axis=0) / (
            len(ids) + 2
        )
        np.testing.assert_allclose(
            actual.encode([text])[0], expected, atol=1e-5
        )
        self.assertEqual(weights[loaded.tokenizer.cls_id], 0)
        counts = np.zeros(len(loaded.tokenizer), np.int64)
        for text in texts:
            ids = loaded.tokenizer.tokenize([text]).flat_values.numpy()
            np.add.at(counts, ids, 1)
        np.testing.assert_array_equal(actual.unigram, counts)


class TableTest(absltest.TestCase):
    """Without padding the same comes out."""

    def test_encode_and_export(self):
        """With a layer behind the mean, and of any length."""
        one = teacher.Embedder(str(TEACHER))
        lookup = student.lookup_of(one, 64, 'sif', TEXTS[:2], {})
        config = lookup.config.replace(
            normalize=False, dense=(DenseConfig(32, 'identity'),)
        )
        model = Model(config, lookup.tokenizer.specials)
        actual = Loaded(Workdir(model, lookup.tokenizer, config))
        random = np.random.default_rng(0)
        for variable in actual.model.variables.values():
            variable.assign(random.standard_normal(variable.shape))
        ids, lengths = map(np.array, actual.format_texts(TEXTS)[:2])
        padded = actual.embed(ids, lengths).numpy()
        vectors = actual.encode(TEXTS)
        self.assertEqual(actual.cut, 1)
        np.testing.assert_allclose(vectors, padded, atol=1e-5)
        np.testing.assert_allclose(
            actual.encode(TEXTS[::-1])[::-1], vectors, atol=1e-6
        )
        self.assertIs(actual.folded.folded, actual.folded)
        self.assertEqual(
            list(actual.folded.model.variables),
            ['encoder/word_embeddings', 'dense_0/kernel', 'dense_0/bias'],
        )
        lookup = Signatures.of(actual)
        self.assertEqual(
            list(lookup.weights), list(actual.folded.model.variables)
        )
        embed = lookup.functions['embed']
        np.testing.assert_allclose(
            embed(tf.constant(TEXTS))['embeddings'], vectors, atol=1e-5
        )
        none = embed(tf.constant([], tf.string))['embeddings']
        self.assertEqual(none.shape, (0, 32))
        self.assertEqual(actual.encode([]).shape, (0, 32))
        # Other poolings go the other way.
        whole = actual.embed(ids, lengths, 'max')
        np.testing.assert_allclose(
            actual.encode(TEXTS, pooling='max'), whole, atol=1e-5
        )


class EmbeddingCommandTest(Checks, parameterized.TestCase):
    def test_lookup(self):
        done = run('lookup', LOOKUP, '--width=16',
                   '--objectives=embed:1,embed_distance:0.5')  # fmt: skip
        printed = last_line(done)
        self.assertEqual(printed['task'], 'embed')
        (record,) = records(FOLDER / 'lookup')
        self.assertAlmostEqual(record['heldout/embed/mi'], printed['embed/mi'],
                               delta=1e-5)  # fmt: skip
        self.assertIn('embed_distance/cosine', printed)
        config = Config.read(FOLDER / 'lookup')
        self.assertEqual(config.encoder.name, 'lookup')
        self.assertEqual(config.run['student'], 'lookup')
        self.assertTrue(config.encoder.arguments['weighted'])
        self.assertTrue(config.normalize)
        self.assertEqual(config.max_length, 24)
        self.assertEqual(config.rows['embed'].settings['width'], 64)
        self.assertStartsWith(config.run['teacher'], f'{TEACHER} (weights ')
        loaded = infoword_tf.load(FOLDER / 'lookup')
        vectors = loaded.encode(TEXTS[:2])
        self.assertEqual(vectors.shape, (2, 16))
        np.testing.assert_allclose(
            np.linalg.norm(vectors, axis=1), 1, rtol=1e-5
        )
        self.assertEqual(
            loaded.model.objectives['embed'].kernel.shape, (16, 64)
        )
        self.assertGreater(loaded.unigram.sum(), 100)

    def prepared(self, *more):
        """Returns what the command would train where nothing else is said."""
        with mock.patch.object(finetuning, 'SMALL', ('--seq_len=24',)):
            return finetuning.prepared(distill, *TYPED, *more)

    def test_what_is_trained_where_nothing_else_is_said(self):
        prepared = self.prepared(
            LOOKUP, '--weighting=zipf', '--examples=20',
            '--objectives=embed_distance:1,embed:1',
        )  # fmt: skip
        choices, labelled = prepared.choices, prepared.labelled
        self.assertEqual(choices.learning_rate, 1e-3)
        self.assertEqual((choices.batch_size, choices.dropout), (256, 0))
        self.assertEqual(choices.epochs, 3)  # however few sentences
        self.assertEqual(labelled.record['weighting'], 'zipf')
        self.assertEqual(labelled.train.size, 20)
        self.assertEqual(labelled.goal.name, 'heldout/embed/mi')
        loaded = labelled.started
        around = [*loaded.before, *loaded.after]
        np.testing.assert_array_equal(
            loaded.encoder.piece_weights,
            student.weights_of('zipf', around, loaded.unigram),
        )
        # What is said counts.
        choices = self.prepared(LOOKUP, '--batch_size=9').choices
        self.assertEqual(choices.batch_size, 9)

    def test_it_begins_as_it_was_made(self):
        done = succeeded(run(
            'untrained', LOOKUP, '--width=16', '--learning_rate=0'
        ))  # fmt: skip
        self.assertIn(f'tokens of --teacher={TEACHER}: taken enc', done.out)
        self.assertNotIn('--init', done.out)
        one = teacher.Embedder(str(TEACHER))
        texts = embedding.read(TextChoices(f'lines:{TEXT}', str(HELDOUT)))
        # Each once, and none that is held out.
        train, heldout = (texts[part].student for part in ('train', 'heldout'))
        self.assertEqual(texts['train'].sentences, train)
        train, heldout = set(train), set(heldout)
        self.assertBetween(len(train), 50, 60)
        self.assertNoCommonElements(train, heldout)
        start = student.lookup_of(one, 16, 'sif', texts['train'].student, {})
        loaded = infoword_tf.load(FOLDER / 'untrained')
        for path, variable in start.model.variables.items():
            np.testing.assert_array_equal(
                loaded.model.variables[path], variable
            )
        _, directions = student.principal(one.token_vectors(), 16)
        np.testing.assert_array_equal(
            loaded.model.objectives['embed_distance'].kernel, directions
        )

    def test_who_equals_its_teacher_has_nothing_to_learn(self):
        succeeded(run(
            'equal', '--objectives=embed_distance', '--weight_decay=0',
            '--embed_distance.distance=mse', '--learning_rate=0',
        ))  # fmt: skip
        (record,) = records(FOLDER / 'equal')
        cosine = record['heldout/embed_distance/cosine']
        self.assertAlmostEqual(cosine, 1, delta=1e-5)

    def test_layers_of_a_teacher_with_prompts(self):
        folder = make('asked', {'layers': 4}, prompts={'query': 'query: '},
                      prompt='query', pooling='cls', normalize=False,
                      similarity='dot')  # fmt: skip
        done = succeeded(run('layers', f'--teacher={folder}', '--layers=2',
                   '--take=every', '--objectives=embed'))  # fmt: skip
        config = Config.read(FOLDER / 'layers')
        self.assertEqual(config.encoder.arguments['layers'], 2)
        self.assertEqual(config.pooling, 'cls')
        self.assertEqual(config.rows['embed'].settings['pooling'], 'cls')
        self.assertEqual(config.prompts, {'query': 'query: '})
        self.assertEqual(config.prompt, 'query')
        self.assertEqual(config.similarity, 'dot')
        self.assertFalse(config.normalize)
        self.assertIn(f'--init={folder}: taken encoder and the', done.out)
        infoword_tf.load(FOLDER / 'layers').encode(TEXTS, prompt='query')
        # A table is compared as its teacher is, too.
        prepared = self.prepared(f'--teacher={folder}', LOOKUP)
        self.assertEqual(prepared.labelled.started.config.similarity, 'dot')
        self.assertEqual(prepared.labelled.config_fields['prompt'], 'query')

    def test_a_narrower_student_with_a_vocabulary_of_its_own(self):
        """The teacher reads strings; the projection is left behind."""
        other = make(
            'other', {'kind': 'sentencepiece', 'width': 32}, similarity='dot'
        )
        succeeded(run(
            'narrow', f'--init={other}', '--objectives=embed_distance'
        ))  # fmt: skip
        loaded = infoword_tf.load(FOLDER / 'narrow')
        self.assertEqual(loaded.tokenizer.kind, 'sentencepiece')
        self.assertEqual(loaded.encode(TEXTS).shape, (4, 32))
        self.assertEqual(loaded.config.similarity, 'cosine')  # its teacher's
