"""Whole words: what they are, their bytes, and a run with them."""

import json
import pathlib
import random
from pydoc_data import topics

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export import bundle, comparison, serving_ops
from infoword_tf.commands import UsageError
from infoword_tf.data import store
from infoword_tf.data.documents import Document
from infoword_tf.data.opened import TextChoices, choose_tokenizer
from infoword_tf.text import wholewords
from infoword_tf.text.wholewords import WholeWords
from tests import corpus, places, quick
from tests.text import exported

SPECIALS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
WORDS = [*SPECIALS, 'the', 'The', '.', 'caf\u00e9', '@-@', 'a,']


def read(tokenizer, *strings):
    """The words of each string, [UNK] for what is not known."""
    return [
        [tokenizer.vocabulary[i] for i in row]
        for row in tokenizer.tokenize(list(strings)).to_list()
    ]


class TokenizeTest(parameterized.TestCase):
    @parameterized.parameters(
        ('the The THE', 'the The [UNK]'),
        ('the. the .', '[UNK] the .'),
        ('caf\u00e9 cafe\u0301 cafe', 'caf\u00e9 [UNK] [UNK]'),
        ('a, @-@ a ,', 'a, @-@ [UNK] [UNK]'),
        (' \tthe \n .\u3000the\u00a0', 'the . the'),
        ('<unk> the <unk>', '[UNK] the [UNK]'),
        ('[PAD] [CLS] [SEP] [MASK] [UNK]', ' '.join(['[UNK]'] * 5)),
        ('', ''),
        (' \n', ''),
        (b'\xff the', '[UNK] the'),
    )
    def test_words(self, text, wanted):
        (found,) = read(WholeWords(WORDS), text)
        self.assertEqual(found, wanted.split())

    def test_case_is_folded_where_it_is_wanted(self):
        words = [*SPECIALS, 'the', '\u00e9mil', '\u03c3\u03b1\u03c2']
        tokenizer = WholeWords(words, lower_case=True)
        (found,) = read(tokenizer, 'THE \u00c9mil \u03a3\u0391\u03a3')
        self.assertEqual(found, words[5:])
        self.assertTrue(tokenizer.lower_case)
        self.assertFalse(WholeWords(words).lower_case)

    def test_white_space_is_that_of_python(self):
        """All of it and nothing else parts words, bytes of any number."""
        every = [chr(i) for i in range(0x11000) if not 0xD800 <= i < 0xE000]
        texts = [f'the{c}the' for c in every]
        _, starts, ends = WholeWords(WORDS).tokenize_with_offsets(texts)
        size = np.array([len(c.encode()) for c in every])
        parted = np.array([c.isspace() for c in every])
        np.testing.assert_array_equal(starts.row_lengths(), 1 + parted)
        np.testing.assert_array_equal(starts[:, -1:].values > 0, parted)
        np.testing.assert_array_equal(
            starts.values[starts.values > 0], 3 + size[parted]
        )
        np.testing.assert_array_equal(
            ends[:, :1].values, np.where(parted, 3, 6 + size)
        )

    def test_in_a_graph(self):
        tokenizer = WholeWords(WORDS)
        graph = tf.function(
            tokenizer.tokenize_with_offsets,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        # Bytes of the text as it was given.
        ids, starts, ends = graph([' the  caf\u00e9 x\n', '', 'The'])
        self.assertEqual(ids.to_list(), [[5, 8, 1], [], [6]])
        self.assertEqual(ids.dtype, tf.int32)
        self.assertEqual(starts.to_list(), [[1, 6, 12], [], [0]])
        self.assertEqual(ends.to_list(), [[4, 11, 13], [], [3]])
        for part in graph(tf.zeros([0], tf.string)):
            self.assertEqual(part.to_list(), [])

    def test_nasty_strings(self):
        texts = list(comparison.NASTY)
        tokenizer = WholeWords(WORDS, lower_case=True)
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
        np.testing.assert_array_equal(
            ids.flat_values, tokenizer.tokenize(texts).flat_values
        )
        for text, begins, after in zip(
            texts, starts.to_list(), ends.to_list(), strict=True
        ):
            for b, e in zip(begins, after, strict=True):
                self.assertBetween(b, 0, e - 1)
                self.assertLessEqual(e, len(text))

    def test_specials(self):
        tokenizer = WholeWords(WORDS)
        self.assertEqual(tokenizer.specials[:4], (2, 3, 4, len(WORDS)))
        self.assertEqual(tokenizer.control_ids, (0, 2, 3, 4))
        self.assertEqual((tokenizer.pad_id, tokenizer.unk_id), (0, 1))

    def test_files(self):
        path = pathlib.Path(self.create_tempdir().full_path) / 'words.txt'
        with self.assertRaisesRegex(FileNotFoundError, 'no such vocabulary'):
            WholeWords.read(path)
        tokenizer = WholeWords(WORDS)
        tokenizer.write(path)
        again = WholeWords.read(path)
        self.assertEqual(again.identity, tokenizer.identity)
        self.assertEqual(again.vocabulary, tuple(WORDS))
        self.assertNotEqual(again.identity, WholeWords(WORDS[:-1]).identity)
        path.write_text('[PAD]\nthe\n')
        with self.assertRaisesRegex(ValueError, r'words.txt: .* lacks \[UNK\]'):
            WholeWords.read(path)


class PiecesTest(parameterized.TestCase):
    def test_real_text(self):
        """Every word is a piece of its own, and known: nothing is lost."""
        texts = [' '.join(text.split()) for text in topics.topics.values()]
        tokenizer = WholeWords.learn(texts)
        found = tokenizer.pieces([text.encode() for text in texts])
        self.assertTrue(found.word_starts.all())
        read = [tokenizer.vocabulary[i] for i in found.ids]
        self.assertEqual(' '.join(read), ' '.join(texts))
        np.testing.assert_array_equal(
            np.diff(found.row_splits), [len(text.split()) for text in texts]
        )
        self.assertEqual(found.ids.dtype, np.int32)
        self.assertEqual(found.word_starts.dtype, bool)

    @parameterized.parameters([[]], [[b'']], [[b'', b'']])
    def test_nothing(self, strings):
        found = WholeWords(WORDS).pieces(strings)
        self.assertLen(found.ids, 0)
        self.assertLen(found.word_starts, 0)
        np.testing.assert_array_equal(
            found.row_splits, [0] * (len(strings) + 1)
        )

    def test_in_a_store(self):
        """A line end is one token, and `<unk>` a type like any other."""
        made = store.write_store(
            pathlib.Path(self.create_tempdir().full_path) / 'store',
            [
                Document(('The <unk> .', 'the'), ''),
                Document((), ''),
                Document(('x',), ''),
            ],
            WholeWords(WORDS),
            progress=False,
        )
        self.assertEqual(
            [WORDS[i] for i in made.ids],
            ['The', '[UNK]', '.', 'the', '[SEP]', '[SEP]', '[UNK]', '[SEP]'],
        )
        self.assertEqual(made.flags.tolist(), [3, 1, 1, 3, 5, 5, 3, 5])
        self.assertEqual(made.counts[1], 2)


class LearnTest(absltest.TestCase):
    TEXTS = ('b a c', 'a <unk> [MASK] B', 'c\u00e9 a b')

    def test_by_count_then_by_characters(self):
        found = wholewords.learn(self.TEXTS)
        self.assertEqual(found, [*SPECIALS, 'a', 'b', 'B', 'c', 'c\u00e9'])
        self.assertEqual(wholewords.learn(self.TEXTS, 7), found[:7])
        self.assertEqual(
            wholewords.learn(self.TEXTS, lower_case=True),
            [*SPECIALS, 'a', 'b', '[mask]', 'c', 'c\u00e9'],
        )

    def test_the_same_from_the_same_texts(self):
        texts = list(topics.topics.values())
        found = wholewords.learn(texts, 500)
        random.Random(1).shuffle(texts)
        self.assertEqual(wholewords.learn(texts, 500), found)

    def test_complaints(self):
        for texts in ([], ['', ' \t '], ['<unk>']):
            with self.assertRaisesRegex(ValueError, 'holds no text'):
                wholewords.learn(texts, lower_case=True)
        with self.assertRaisesRegex(ValueError, 'vocab_size=5 has no room'):
            wholewords.learn(['a'], 5)


class RunTest(absltest.TestCase):
    """The real command, and what follows it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup)
        cls.text = corpus.write_topics(cls.folder / 'text')
        cls.workdir = cls.folder / 'run'
        cls.train('run', '--tokenizer=words', '--vocab_size=600')
        cls.loaded = infoword_tf.load(cls.workdir)

    @classmethod
    def train(cls, name, *more):
        quick.run(
            f'--corpus={cls.text[0]}', f'--heldout={cls.text[1]}',
            '--objectives=mlm:1,dim:1', '--steps=3', '--batch_size=8',
            '--seq_len=32', '--precision=float32',
            f'--workdir={cls.folder / name}', *more,
        )  # fmt: skip

    def test_the_workdir(self):
        self.assertTrue((self.workdir / 'words.txt').is_file())
        self.assertFalse((self.workdir / 'vocab.txt').exists())
        config = json.loads((self.workdir / 'config.json').read_text())
        self.assertEqual(
            config['tokenizer'],
            {'kind': 'words', 'lower_case': False, 'options': {}},
        )
        self.assertIsInstance(self.loaded.tokenizer, WholeWords)
        self.assertLen(self.loaded.tokenizer, 600)

    def test_a_given_vocabulary_and_init(self):
        """By its name or by the flag; the same store and weights."""
        other = self.folder / 'list.txt'
        other.write_bytes((self.workdir / 'words.txt').read_bytes())
        self.train('given', f'--vocab={other}', '--tokenizer=words')
        self.train('later', f'--init={self.workdir}', '--steps=1')
        run, given, later = (
            (self.folder / name / 'words.txt').read_bytes()
            for name in ('run', 'given', 'later')
        )
        self.assertEqual(run, given)
        self.assertEqual(run, later)
        self.assertEqual(
            (self.workdir / 'weights.safetensors').read_bytes(),
            (self.folder / 'given' / 'weights.safetensors').read_bytes(),
        )
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

    def test_complaints(self):
        for more, message in (
            ((f'--vocab={self.workdir}/words.txt', '--tokenizer=wordpiece'),
             'words.txt is for words'),
            (('--vocab=a.model', '--tokenizer=words'), 'is for sentencepiece'),
            ((f'--init={self.workdir}', '--tokenizer=words'),
             '--tokenizer is decided by --init'),
            (('--tokenizer=words', '--vocab_size=3'), 'has no room'),
        ):  # fmt: skip
            with self.assertRaisesRegex((UsageError, ValueError), message):
                self.train('bad', *more)

    def test_back_to_text(self):
        tokenizer = self.loaded.tokenizer
        text = ' '.join(tokenizer.vocabulary[5:9])
        ids = tokenizer.tokenize([text])[0].numpy().tolist()
        self.assertEqual(tokenizer.text([*ids, tokenizer.sep_id]), text)

    def test_encode_and_fill_mask(self):
        texts = ['A list is a sequence.', '', 'x ' * 50]
        vectors = self.loaded.encode(texts)
        self.assertEqual(vectors.shape, (3, quick.TINY['width']))
        (found,) = self.loaded.fill_mask('a list of [MASK] .', 3)
        self.assertContainsSubset(
            [word for word, _ in found], self.loaded.tokenizer.vocabulary
        )
        self.assertLen(found, 3)

    def test_export(self):
        """An export answers what Python does, by operations servers link."""
        output = self.folder / 'model'
        model = bundle.write(self.workdir, output)
        self.assertEqual(serving_ops.unservable(model), [])
        gaps = exported.gaps(model, self.loaded, self.folder)
        self.assertNotEmpty(gaps)
        for name, gap in gaps.items():
            self.assertLess(gap, 1e-5, name)
        card = ' '.join((output / 'MODEL_CARD.md').read_text().split())
        self.assertIn('a words vocabulary of 600 pieces, with case.', card)
        self.assertIn('punctuation stands apart only where', card)


if __name__ == '__main__':
    absltest.main()
