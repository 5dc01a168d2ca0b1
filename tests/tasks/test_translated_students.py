"""Students of several languages, whose teacher reads one of them."""

import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf.inference.loaded import Loaded
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tasks import distill, embedding, student, teacher
from tests import places, quick
from tests.export import workdirs
from tests.refused import refused
from tests.runs import records
from tests.tasks import finetuning
from tests.tasks.command import Checks, succeeded

NOUNS = {'the dog': 'der Hund', 'the cat': 'die Katze', 'the man': 'der Mann',
         'the woman': 'die Frau', 'the child': 'das Kind',
         'the bird': 'der Vogel'}  # fmt: skip
VERBS = {'sleeps': 'schläft', 'runs': 'läuft', 'eats': 'isst',
         'sings': 'singt', 'waits': 'wartet'}  # fmt: skip
WHERE = {'here': 'hier', 'today': 'heute', 'at home': 'zu Hause'}
PAIRS = [
    tuple(' '.join(column) for column in zip(*words, strict=True))
    for words in itertools.product(NOUNS.items(), VERBS.items(), WHERE.items())
]  # English, German
ENGLISH, GERMAN = map(list, zip(*PAIRS, strict=True))


def setUpModule():
    global FOLDER, PARALLEL, HELDOUT, TEACHER, OWN, run
    FOLDER = places.make()
    PARALLEL, HELDOUT = FOLDER / 'deu-eng.tsv', FOLDER / 'deu-eng-held.tsv'
    held = set(PAIRS[::7])
    for path, pairs in (
        (PARALLEL, [pair for pair in PAIRS if pair not in held]),
        (HELDOUT, held),
    ):  # fmt: skip
        path.write_text(''.join(f'{a}\t{b}\n' for a, b in sorted(pairs)))
    # Its words are these, not those of what this Python documents.
    known = WordPieceTokenizer.learn(ENGLISH, 200)
    with mock.patch.object(workdirs, 'tokenizer_of', lambda _: known):
        TEACHER = workdirs.write(
            FOLDER / 'teacher', rows=('mlm',), fields={'normalize': True}
        )
    OWN = SentencePiece.learn(ENGLISH + GERMAN, 120)
    run = finetuning.runner(
        distill, FOLDER, '--task=embed', f'--teacher={TEACHER}',
        f'--parallel={PARALLEL}', f'--heldout_parallel={HELDOUT}',
        '--tokenizer=sentencepiece', '--vocab_size=120', '--steps=1',
    )  # fmt: skip


class TextsTest(absltest.TestCase):
    def options(self, *more):
        return quick.choices(
            f'--parallel={PARALLEL}', f'--heldout_parallel={HELDOUT}', *more,
            kind=distill.DistillChoices,
        )  # fmt: skip

    def test_both_texts_have_what_the_teacher_reads(self):
        parts = embedding.read(self.options(), None, 'en')
        german = dict(PAIRS)
        for part, texts in parts.items():
            self.assertLen(texts.student, 2 * len(texts.sentences))
            for vectors_of, taught, language in zip(*texts, strict=True):
                expected = taught if language == 'en' else german[taught]
                self.assertEqual(vectors_of, expected, part)
        held = set(parts['heldout'].sentences)
        self.assertEqual(held, {a for a, _ in PAIRS[::7]})
        self.assertNoCommonElements(parts['train'].sentences, held)
        # The other way round, where the teacher reads German.
        actual = embedding.read(self.options(), None, 'de')['train']
        self.assertEqual(
            set(actual.teacher), set(GERMAN) - {b for _, b in PAIRS[::7]}
        )

    def test_some_sentences_with_all_their_translations(self):
        """And a sentence that several texts translate is read once."""
        more = FOLDER / 'deu-eng-more.tsv'
        more.write_text('the dog runs here\tda rennt der Hund\n')
        choices = self.options(f'--parallel=en-de={more}')
        whole = embedding.read(choices, None, 'en')['train']
        self.assertLen(whole.student, 2 * len(whole.sentences) + 1)
        subset = embedding.read(choices, 20, 'en')['train']
        self.assertLen(subset.sentences, 20)
        rows = set(zip(*whole, strict=True))
        self.assertEqual(
            set(zip(*subset, strict=True)),
            {row for row in rows if row[1] in subset.sentences},
        )

    def test_sentences_of_a_corpus_beside_them(self):
        corpus, held = FOLDER / 'corpus.txt', FOLDER / 'corpus_held.txt'
        corpus.write_text(f'more text\n{ENGLISH[0]}\n{ENGLISH[1]}\n')
        held.write_text('held out\n')
        choices = self.options(f'--corpus=lines:{corpus}', f'--heldout={held}')
        texts = embedding.read(choices, None, 'en')['train']
        self.assertEqual(
            list(zip(*texts, strict=True))[:2],
            [('more text', 'more text', ''), (ENGLISH[1], ENGLISH[1], '')],
        )  # the other is held out
        self.assertEqual(texts.student.count(ENGLISH[1]), 1)


class TranslatedStudentsStartTest(absltest.TestCase):
    def test_a_table_whose_means_are_like_the_vectors(self):
        """Least squares, solved at once."""
        random = np.random.default_rng(0)
        vectors = random.standard_normal((len(GERMAN), 5)).astype(np.float16)
        weights = random.uniform(0.5, 2, len(OWN)).astype(np.float32)
        with (
            mock.patch.object(student, 'CHUNK', 7),
            mock.patch.object(student, 'ROUNDS', 200),
        ):
            actual = student.fit_table(OWN, GERMAN, vectors, weights)
        means = np.zeros((len(GERMAN), len(OWN)))
        for row, ids in zip(means, OWN.tokenize(GERMAN).to_list(), strict=True):
            np.add.at(row, ids, weights[ids] / len(ids))
        expected = np.float64(vectors)
        expected = np.linalg.solve(
            means.T @ means + student.PENALTY * np.eye(len(OWN)),
            means.T @ (expected - expected.mean(axis=0)),
        )
        np.testing.assert_allclose(actual, expected, atol=2e-3)
        self.assertGreater(np.abs(expected).max(), 1)
        none = means.sum(axis=0) == 0
        self.assertTrue(none.any())
        np.testing.assert_array_equal(actual[none], 0)
        # As many rounds as are taken come near.
        few = student.fit_table(OWN, GERMAN, vectors, weights)
        left = np.linalg.norm(few - expected) / np.linalg.norm(expected)
        self.assertLess(left, 0.3)

    def test_pieces_that_are_spelled_alike(self):
        new, old = map(workdirs.tokenizer_of, ('sentencepiece', 'wordpiece'))
        known = student.known_tokens(new, old)
        self.assertEqual(
            [known[i] for i in new.special_ids], list(old.special_ids)
        )
        spelled = {
            new.vocabulary[i]: old.vocabulary[j] for i, j in known.items()
        }
        self.assertEqual(spelled['▁the'], 'the')
        self.assertEqual(spelled['s'], '##s')
        self.assertEqual(spelled[','], ',')  # there it begins a word
        for one, other in spelled.items():
            if not one.startswith('['):
                self.assertEqual(one.strip('▁'), other.removeprefix('##'))
        self.assertGreater(len(known), 200)
        self.assertEqual(
            student.known_tokens(old, old), {i: i for i in range(len(old))}
        )
        new = workdirs.tokenizer_of('bytes')
        spelled = {
            new.vocabulary[i]: old.vocabulary[j]
            for i, j in student.known_tokens(new, old).items()
        }
        self.assertEqual(spelled['Ġthe'], 'the')
        self.assertEqual(spelled['ing'], '##ing')
        self.assertEqual(spelled['[SEP]'], '[SEP]')
        # Of characters the end of a word is marked, not what goes on with it.
        new, old = (
            mock.MagicMock(
                kind=kind, vocabulary=['[PAD]', *tokens], lower_case=True,
                special_ids=[0], control_ids=[0], __len__=lambda _: 3,
            )
            for kind, *tokens in (
                ('characters', 'the</w>', 'the'), ('wordpiece', 'the', '##the')
            )
        )  # fmt: skip
        self.assertEqual(student.known_tokens(new, old), {0: 0, 1: 1, 2: 2})

    def test_layers_with_another_vocabulary(self):
        loaded = infoword_tf.load(TEACHER)
        actual = student.with_vocabulary(loaded, OWN, GERMAN, ENGLISH)
        self.assertEqual(actual.config.tokenizer.kind, 'sentencepiece')
        self.assertEqual(actual.config.rows, {})
        self.assertEqual(actual.encode(GERMAN[:2]).shape, (2, 64))
        np.testing.assert_array_equal(
            actual.unigram, student.counts_of(OWN, GERMAN)
        )
        old, new = loaded.model.variables, actual.model.variables
        path = actual.encoder.embedding_table.path
        for name, variable in new.items():
            if name != path:
                np.testing.assert_array_equal(variable, old[name], name)
        table, rows = old[path].numpy(), new[path].numpy()
        known = student.known_tokens(OWN, loaded.tokenizer)
        for piece, origin in known.items():
            np.testing.assert_array_equal(rows[piece], table[origin])
        # All others are fitted to texts, as long as these on average.
        old = table[list(known.values())]
        means = [table[ids].mean(axis=0)
                 for ids in loaded.tokenizer.tokenize(ENGLISH).to_list()]
        means = student.fit_table(OWN, GERMAN, np.array(means))
        fresh = np.setdiff1d(np.arange(len(OWN)), list(known))
        more = rows - old.mean(axis=0)
        norms = np.linalg.norm(means, axis=1)
        scale = np.linalg.norm(old - old.mean(axis=0), axis=1).mean()
        scale /= norms[norms > 0].mean()
        np.testing.assert_allclose(more[fresh], scale * means[fresh], atol=1e-5)
        self.assertGreater(np.abs(more[fresh]).max(), 0.01)

    def test_a_table_has_no_layers(self):
        one = teacher.Embedder(str(TEACHER))
        vectors_of = OWN, np.ones((len(ENGLISH), 64))
        table = student.lookup_of(one, 64, 'sif', ENGLISH, {}, vectors_of)
        with refused('encoder_keeps_vocabulary', 'lookup'):
            student.with_vocabulary(table, OWN, GERMAN, ENGLISH)


class TranslatedStudentsCommandTest(Checks, parameterized.TestCase):
    def test_a_table_of_two_languages(self):
        """Finds the translation of each sentence, none of them trained on."""
        started = Loaded(run(
            'two', '--student=lookup', run=finetuning.prepared
        ).labelled.started)  # fmt: skip
        self.assertEqual(started.tokenizer.kind, 'sentencepiece')
        english, german = zip(*PAIRS[::7], strict=True)
        similar = started.encode(german) @ started.encode(english).T
        nearest = similar.argmax(axis=1)
        self.assertGreater(np.mean(nearest == np.arange(len(german))), 0.8)

    def test_layers(self):
        done = succeeded(run('layers', '--objectives=embed:1,embed_distance:1'))
        self.assertIn('de-en: 77 pairs to train on, 13 held out', done.out)
        self.assertIn(
            f'--init={TEACHER}, with other tokens: taken enc', done.out
        )
        (record,) = records(FOLDER / 'layers')
        for row in ('embed', 'embed_distance'):
            for language in ('de', 'en'):
                self.assertIn(f'heldout/{row}/cosine_{language}', record)
        # Two texts of each b: of 26 candidates one is another's copy.
        self.assertAlmostEqual(
            record['heldout/embed/ceiling'], np.log(26 / 2), delta=1e-4
        )
        loaded = infoword_tf.load(FOLDER / 'layers')
        self.assertEqual(loaded.encoder.depth, 1)
        self.assertEqual(loaded.tokenizer.kind, 'sentencepiece')
        english, german = zip(*PAIRS[::7], strict=True)
        taught = infoword_tf.load(TEACHER).encode(english)
        for language, texts in (('en', english), ('de', german)):
            vectors = loaded.encode(texts, normalize=True)
            self.assertAlmostEqual(
                record[f'heldout/embed_distance/cosine_{language}'],
                (vectors * taught).sum(axis=1).mean(), delta=1e-3,
            )  # fmt: skip

    @parameterized.named_parameters(
        ('of_init', ['--init={}'], 'wordpiece'),
        ('its_own', [], 'wordpiece'),
        ('chosen', ['--init={}', '--tokenizer=words'], 'words'),
    )
    def test_whose_vocabulary(self, more, kind):
        """--init brings one; translations alone want one."""
        tokenizer = finetuning.prepared(
            distill, '--task=embed', f'--teacher={TEACHER}',
            f'--parallel={PARALLEL}', f'--workdir={FOLDER / "whose"}',
            *(flag.format(TEACHER) for flag in more),
        ).labelled.started.tokenizer  # fmt: skip
        self.assertEqual(tokenizer.kind, kind)
        known = infoword_tf.load(TEACHER).tokenizer.vocabulary
        self.assertEqual(tokenizer.vocabulary == known, len(more) == 1)
