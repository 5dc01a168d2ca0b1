"""What every tokenizer promises, and runs of the real command with one."""

import json
import pathlib
import random

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export import bundle, comparison, runner, serving_ops
from infoword_tf.data.opened import TextChoices, choose_tokenizer
from infoword_tf.errors import UsageError
from infoword_tf.text.tokenizers import TOKENIZERS
from tests import corpus, places, quick
from tests.text.learned import LEARNED, SPECIALS, TEXTS, learned

NASTY = list(comparison.NASTY)
# Of real text, how many pieces may be unknown.
UNKNOWN = {'wordpiece': 1e-3, 'sentencepiece': 2e-3}
SIGNATURES = 'serving_default', 'embed', 'tokens', 'fill_mask'


class PromisesTest(parameterized.TestCase):
    @parameterized.product(kind=list(LEARNED), lower_case=(True, False))
    def test_pieces_of_real_text(self, kind, lower_case):
        tokenizer = learned(kind, lower_case)
        actual = tokenizer.tokenize_flat([text.encode() for text in TEXTS])
        self.assertEqual(actual.ids.dtype, np.int32)
        self.assertEqual(actual.word_starts.dtype, bool)
        ragged = tokenizer.tokenize(TEXTS)
        np.testing.assert_array_equal(actual.ids, ragged.flat_values)
        np.testing.assert_array_equal(actual.row_splits, ragged.row_splits)
        self.assertEqual(
            int(actual.word_starts.sum()), sum(len(t.split()) for t in TEXTS)
        )
        self.assertLessEqual(
            np.mean(actual.ids == tokenizer.unk_id), UNKNOWN.get(kind, 0)
        )

    @parameterized.product(
        kind=list(LEARNED), strings=([], [b''], [b'', b''])
    )
    def test_nothing(self, kind, strings):
        actual = learned(kind).tokenize_flat(strings)
        self.assertLen(actual.ids, 0)
        self.assertLen(actual.word_starts, 0)
        np.testing.assert_array_equal(
            actual.row_splits, [0] * (len(strings) + 1)
        )

    @parameterized.parameters(*LEARNED)
    def test_in_a_graph(self, kind):
        tokenizer = learned(kind)
        graph = tf.function(
            tokenizer.tokenize_with_offsets,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        for actual, expected in zip(
            graph(NASTY), tokenizer.tokenize_with_offsets(NASTY), strict=True
        ):
            self.assertEqual(actual.to_list(), expected.to_list())
        self.assertEqual(graph([''])[0].dtype, tf.int32)
        for part in graph(['']):
            self.assertEqual(part.to_list(), [[]])
        for part in graph(tf.zeros([0], tf.string)):
            self.assertEqual(part.to_list(), [])

    @parameterized.parameters(*LEARNED)
    def test_places_in_nasty_strings(self, kind):
        tokenizer = learned(kind)
        ids, starts, ends = tokenizer.tokenize_with_offsets(NASTY)
        np.testing.assert_array_equal(
            ids.flat_values, tokenizer.tokenize(NASTY).flat_values
        )
        for text, begins, after in zip(
            NASTY, starts.to_list(), ends.to_list(), strict=True
        ):
            if kind != 'bytes':  # whose pieces may be parts of a character
                self.assertEqual(begins, sorted(begins))
                self.assertEqual(after, sorted(after))
            for b, e in zip(begins, after, strict=True):
                self.assertBetween(b, 0, e - (kind in ('wordpiece', 'words')))
                self.assertLessEqual(e, len(text))
        self.assertEqual(ids[0].shape[0], 0)

    @parameterized.parameters(*LEARNED)
    def test_written_and_read(self, kind):
        tokenizer, cls = learned(kind), TOKENIZERS[kind]
        path = pathlib.Path(self.create_tempdir().full_path, cls.file)
        with self.assertRaisesRegex(FileNotFoundError, 'no such vocabulary'):
            cls.read(path)
        tokenizer.write(path)
        again = cls.read(path, tokenizer.lower_case, **tokenizer.options)
        self.assertEqual(again.identity, tokenizer.identity)
        self.assertEqual(again.vocabulary, tokenizer.vocabulary)
        self.assertEqual(again.config, tokenizer.config)
        self.assertEqual(again.config.kind, kind)
        self.assertEqual(
            again.tokenize(NASTY).to_list(), tokenizer.tokenize(NASTY).to_list()
        )
        self.assertNotEqual(again.identity, learned(kind, False).identity)

    @parameterized.parameters(*LEARNED)
    def test_special_pieces(self, kind):
        """They come first, and their text is text like any other."""
        tokenizer = learned(kind)
        size = LEARNED[kind] or len(tokenizer)
        self.assertEqual(tokenizer.vocabulary[:5], SPECIALS)
        self.assertLen(set(tokenizer.vocabulary), size)
        self.assertLen(tokenizer, size)
        self.assertEqual(tokenizer.special_ids, (0, 1, 2, 3, 4))
        self.assertContainsSubset((0, 2, 3, 4), tokenizer.control_ids)
        actual = tokenizer.tokenize(['[PAD][CLS] [SEP] [UNK] [MASK]'])
        self.assertNoCommonElements(
            tokenizer.control_ids, actual.flat_values.numpy().tolist()
        )

    @parameterized.parameters(*LEARNED)
    def test_case_is_folded_where_that_is_asked_for(self, kind):
        for lower_case in (True, False):
            tokenizer = learned(kind, lower_case)
            self.assertEqual(tokenizer.lower_case, lower_case)
            actual = tokenizer.tokenize(['The FILE', 'the file']).to_list()
            self.assertEqual(actual[0] == actual[1], lower_case)

    @parameterized.parameters(*LEARNED)
    def test_the_same_from_the_same_texts(self, kind):
        texts = list(TEXTS)
        random.Random(1).shuffle(texts)
        again = TOKENIZERS[kind].learn(texts, LEARNED[kind], True)
        self.assertEqual(again.identity, learned(kind).identity)

    @parameterized.parameters(
        ('wordpiece', (1, 5)), ('sentencepiece', (1, 5, 20)),
        ('bytes', (1, 5, 260)), ('words', (3, 5)),
    )  # fmt: skip
    def test_what_cannot_be_learned(self, kind, sizes):
        for texts in ([], ['', ' \t '], [' \n ']):
            with self.assertRaisesRegex(
                ValueError, 'holds no text .* check --corpus'
            ):
                TOKENIZERS[kind].learn(texts, 300)
        for size in sizes:
            with self.assertRaisesRegex(
                ValueError, f'--vocab_size={size} has no room'
            ):
                TOKENIZERS[kind].learn(TEXTS, size)


class Runs:
    """The real command with a kind of tokenizer, and what follows it."""

    kind = file = ''
    lower_case = False
    other = ''  # a kind that it is told apart from

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup)
        cls.text = corpus.write_topics(cls.folder / 'text')
        cls.workdir = cls.folder / 'run'
        cls.train('run', f'--tokenizer={cls.kind}', '--vocab_size=600')
        cls.loaded = infoword_tf.load(cls.workdir)

    @classmethod
    def train(cls, name, *more):
        quick.run(
            f'--corpus={cls.text[0]}', f'--heldout={cls.text[1]}',
            '--objectives=mlm:1,dim:1', '--steps=2', '--batch_size=8',
            '--seq_len=32', '--precision=float32',
            f'--workdir={cls.folder / name}', *more,
        )  # fmt: skip

    def test_the_workdir(self):
        path = self.workdir / self.file
        self.assertTrue(path.is_file())
        self.assertFalse((self.workdir / 'vocab.txt').exists())
        config = json.loads((self.workdir / 'config.json').read_text())
        self.assertEqual(
            config['tokenizer'],
            {'kind': self.kind, 'lower_case': self.lower_case, 'options': {}},
        )
        self.assertIsInstance(self.loaded.tokenizer, TOKENIZERS[self.kind])
        self.assertLen(self.loaded.tokenizer, 600)
        path.rename(self.folder / 'moved')
        try:
            with self.assertRaisesRegex(FileNotFoundError, f'no {self.file}'):
                infoword_tf.load(self.workdir)
        finally:
            (self.folder / 'moved').rename(path)

    def test_resuming_with_another_tokenizer_is_refused(self):
        with self.assertRaisesRegex(
            UsageError, f'--tokenizer was {self.kind}, is wordpiece'
        ):
            self.train('run', '--vocab_size=600', '--tokenizer=wordpiece')

    def test_a_given_vocabulary_and_init(self):
        """The same vocabulary, store and weights; by its name or the flag."""
        other = self.folder / f'list{pathlib.Path(self.file).suffix}'
        other.write_bytes((self.workdir / self.file).read_bytes())
        self.train('named', f'--vocab={other}', f'--tokenizer={self.kind}')
        self.train('later', f'--init={self.workdir}', '--steps=1')
        run, named, later = (
            (self.folder / name / self.file).read_bytes()
            for name in ('run', 'named', 'later')
        )
        self.assertEqual(run, named)
        self.assertEqual(run, later)
        self.assertEqual(
            (self.workdir / 'weights.safetensors').read_bytes(),
            (self.folder / 'named' / 'weights.safetensors').read_bytes(),
        )
        self.assertLen(list((self.folder / 'cache' / 'stores').iterdir()), 1)

    def test_complaints(self):
        vocabulary = f'--vocab={self.workdir}/{self.file}'
        for more, message in (
            ((vocabulary, '--tokenizer=wordpiece'),
             f'--tokenizer=wordpiece: --vocab=.*{self.file} is for '
             f'{self.kind}'),
            (('--vocab=a.model', '--tokenizer=words'), 'is for sentencepiece'),
            (('--vocab=vocab.txt', '--tokenizer=sentencepiece'),
             'vocab.txt is for wordpiece'),
            (('--vocab=/nowhere/' + self.file,), 'no such vocabulary'),
            ((f'--init={self.workdir}', f'--tokenizer={self.kind}'),
             '--tokenizer is decided by --init'),
            ((f'--tokenizer={self.kind}', '--vocab_size=3'), 'has no room'),
            *self.more_complaints(),
        ):  # fmt: skip
            with self.assertRaisesRegex(
                (UsageError, ValueError, OSError), message
            ):
                self.train('bad', *more)

    def more_complaints(self):
        return ()

    def test_encode(self):
        texts = ['A list is a sequence.', '', 'x ' * 50]
        vectors = self.loaded.encode(texts)
        self.assertEqual(vectors.shape, (3, quick.TINY['width']))
        self.assertTrue(np.isfinite(vectors).all())
        for text, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(
                self.loaded.encode([text])[0], vector, atol=1e-5
            )

    def test_fill_mask(self):
        tokenizer = self.loaded.tokenizer
        before, after = tokenizer.tokenize(['a list of', '.']).to_list()
        if self.kind == 'sentencepiece':  # a mark is only after a space
            after = [tokenizer.vocabulary.index('.')]
        ids = [tokenizer.cls_id, *before, tokenizer.mask_id, *after,
               tokenizer.sep_id]  # fmt: skip
        scores = self.loaded.blanks.token_scores(
            tf.constant([ids]),
            tf.constant([len(ids)]),
            tf.constant([[len(before) + 1]]),
        )[0, 0].numpy()
        self.assertLess(scores[list(tokenizer.control_ids)].max(), -1e9)
        blank = ' ' * (self.kind == 'words')
        (actual,) = self.loaded.fill_mask(f'a list of [MASK]{blank}.', 3)
        best = np.argsort(-scores)[:3]
        self.assertEqual(
            [piece for piece, _ in actual],
            [tokenizer.vocabulary[i] for i in best],
        )
        np.testing.assert_allclose(
            [value for _, value in actual], scores[best], atol=1e-5
        )

    def test_export(self):
        """An export answers what Python does, by operations servers link;
        tests/export/test_serving.py asks one where there is no Python at all.
        """
        output = self.folder / 'model'
        model = bundle.write(self.workdir, output)
        self.assertEqual(serving_ops.unservable(model), [])
        batches = comparison.batches(60)
        for batch, content in batches.items():
            runner.write_texts(self.folder / f'{batch}.texts', content)
        runner.main(str(model), str(self.folder))
        actual, expected = {}, {}
        for batch, texts in batches.items():
            with np.load(self.folder / f'{batch}.npz') as file:
                actual[batch] = dict(file)
            expected[batch] = comparison.in_python(
                self.loaded, texts, SIGNATURES
            )
        gaps = comparison.largest(actual, expected, 1e-5)
        self.assertNotEmpty(gaps)
        for name, gap in gaps.items():
            self.assertLess(gap, 1e-5, name)
        operations = {node.op for _, node in serving_ops.nodes(model)}
        card = ' '.join((output / 'MODEL_CARD.md').read_text().split())
        self.check_export(operations, card)


class SentencePieceTest(Runs, absltest.TestCase):
    kind, file, lower_case = 'sentencepiece', 'spm.model', True

    def more_complaints(self):
        other = self.folder / 'other.model'
        model = (self.workdir / self.file).read_bytes()
        other.write_bytes(model.replace(b'[MASK]', b'[mask]'))
        return (
            ((f'--vocab={self.workdir}/spm.model', '--nolower_case'),
             '--lower_case is decided by --vocab'),
            ((f'--vocab={other}',), r'other.model: the model lacks \[MASK\]'),
            ((f'--tokenizer={self.kind}', '--vocab_size=20'), 'no room'),
        )  # fmt: skip

    def test_back_to_text(self):
        tokenizer = self.loaded.tokenizer
        ids = tokenizer.tokenize(['A list of names.'])[0].numpy().tolist()
        self.assertEqual(
            tokenizer.detokenize([*ids, tokenizer.sep_id]), 'a list of names.'
        )
        self.assertEqual(tokenizer.detokenize([]), '')

    def check_export(self, operations, card):
        self.assertContainsSubset(
            {'SentencepieceTokenizeOp', 'SentencepieceTokenizeWithOffsetsOp'},
            operations,
        )
        self.assertIn(
            'a sentencepiece vocabulary of 600 tokens, lower-cased.', card
        )
        self.assertIn('its unknown token', card)
        self.assertNotIn('more than 100 bytes', card)


class WordsTest(Runs, absltest.TestCase):
    kind, file = 'words', 'words.txt'

    def test_the_kind_of_a_vocabulary(self):
        for vocab, kind in (
            ('words.txt', 'words'), ('runs/a/words.txt', 'words'),
            ('vocab.txt', 'wordpiece'), ('a.model', 'sentencepiece'),
        ):  # fmt: skip
            self.assertEqual(
                choose_tokenizer(TextChoices('', vocab=vocab)), kind
            )

    def test_learned_vocabularies_are_told_apart(self):
        """WordPiece of as many pieces from the same text."""
        self.train('pieces', '--vocab_size=600', '--nolower_case')
        self.assertTrue((self.folder / 'pieces' / 'vocab.txt').is_file())
        loaded = infoword_tf.load(self.folder / 'pieces')
        self.assertNotEqual(
            loaded.tokenizer.vocabulary, self.loaded.tokenizer.vocabulary
        )

    def test_without_a_size_every_word_is_learned(self):
        self.train('all', '--tokenizer=words', '--lower_case', '--steps=1')
        loaded = infoword_tf.load(self.folder / 'all')
        text = (self.folder / 'text' / 'train.txt').read_text()
        words = {word.lower() for word in text.split()}
        self.assertEqual(set(loaded.tokenizer.vocabulary[5:]), words)
        self.assertTrue(loaded.config.tokenizer.lower_case)

    def test_back_to_text(self):
        tokenizer = self.loaded.tokenizer
        text = ' '.join(tokenizer.vocabulary[5:9])
        ids = tokenizer.tokenize([text])[0].numpy().tolist()
        self.assertEqual(tokenizer.detokenize([*ids, tokenizer.sep_id]), text)

    def check_export(self, operations, card):
        self.assertIn('a words vocabulary of 600 tokens, with case.', card)
        self.assertIn('punctuation stands apart only where', card)


if __name__ == '__main__':
    absltest.main()
