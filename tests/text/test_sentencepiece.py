"""SentencePiece: its pieces, their bytes and words."""

import pathlib
from pydoc_data import topics
from unittest import mock

import numpy as np
import sentencepiece as sentencepiece_library
import tensorflow as tf
import tensorflow_text as tf_text
from absl.testing import absltest, parameterized
from sentencepiece import sentencepiece_model_pb2

from infoword_tf.data import store
from infoword_tf.data.documents import Document
from infoword_tf.text.sentencepiece import SentencePiece
from tests.text.learned import SPECIALS, TEXTS, learned, words_of

PIECES = (
    '▁', '▁un', 'want', 'ed', ',', 'run', 'ning', '▁a', 'a', 'b', '▁the',
    '▁b', 'cafe', 'é', '.', '(', ')', 'c', '▁c', 'mask', '[', ']', '1', 'i',
    '▁f',
)  # fmt: skip


def make(specials=SPECIALS, types=None, pieces=PIECES, **trainer):
    """A model in which the fewest pieces win."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(
        learned('sentencepiece').model
    )
    del proto.pieces[:]
    for name in specials:
        kind = proto.SentencePiece.CONTROL
        if name in ('[UNK]', '<unk>'):
            kind = proto.SentencePiece.UNKNOWN
        proto.pieces.add(
            piece=name, score=0, type=(types or {}).get(name, kind)
        )
    for piece in pieces:
        proto.pieces.add(piece=piece, score=-1)
    for name, value in trainer.items():
        setattr(proto.trainer_spec, name, value)
    return proto.SerializeToString()


def pieces_of(tokenizer, text):
    (ids,) = tokenizer.tokenize([text]).to_list()
    return [tokenizer.vocabulary[i] for i in ids]


class TokenizeTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = SentencePiece(make())

    def test_outlives_the_seed_of_tensorflow(self):
        """Which throws away all kernels, and with them what is theirs."""
        graph = tf.function(lambda x: self.tokenizer.tokenize(x).flat_values)
        text = tf.constant(['the cafe'])
        expected = graph(text)
        another = SentencePiece(make(pieces=PIECES[:12]))
        tf.random.set_seed(1)
        np.testing.assert_array_equal(graph(text), expected)
        actual = self.tokenizer.tokenize(text).flat_values
        np.testing.assert_array_equal(actual, expected)
        self.assertNotEqual(
            another.tokenize(text).to_list()[0], expected.numpy().tolist()
        )

    @parameterized.parameters(
        ('UNwanted,running', '▁un want ed , run ning'),
        (' \tUNwanted , \n running ', '▁un want ed ▁ , ▁ run ning'),
        ('a b ab ba', '▁a ▁b ▁a b ▁b a'),
        ('caf\u00e9 cafe\u0301 cafe', '▁c a [UNK] é ▁c a [UNK] é ▁ cafe'),
        ('\uff41, \u24d0', '▁a , ▁a'),  # NFKC
        ('the 漢字', '▁the ▁ [UNK]'),
        ('', ''),
        (' \u200b ', ''),
    )
    def test_pieces(self, text, pieces):
        self.assertEqual(pieces_of(self.tokenizer, text), pieces.split())

    def test_the_text_of_a_special_piece_is_text(self):
        tokenizer = self.tokenizer
        self.assertEqual(
            pieces_of(tokenizer, '[MASK] a'), ['▁', '[', 'mask', ']', '▁a']
        )
        actual = tokenizer.tokenize(['[PAD][CLS] [SEP] [UNK] [MASK]'])
        self.assertNoCommonElements(
            tokenizer.control_ids, actual.flat_values.numpy().tolist()
        )

    def test_batches_are_ragged_int32(self):
        ragged = self.tokenizer.tokenize(['a b', '', 'unwanted'])
        self.assertEqual(ragged.dtype, tf.int32)
        self.assertEqual(ragged.to_list(), [[12, 16], [], [6, 7, 8]])

    def test_in_a_graph(self):
        graph = tf.function(
            self.tokenizer.tokenize_with_offsets,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        ids, starts, ends = graph([' a  b', ''])
        self.assertEqual(ids.to_list(), [[12, 16], []])
        self.assertEqual(starts.to_list(), [[1, 4], []])
        self.assertEqual(ends.to_list(), [[2, 5], []])
        for part in graph(tf.zeros([0], tf.string)):
            self.assertEqual(part.to_list(), [])

    def test_the_names_of_xlnet(self):
        names = ('<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>')
        tokenizer = SentencePiece(make(names))
        self.assertEqual(tokenizer.specials[:4], (3, 4, 6, 32))
        self.assertEqual((tokenizer.pad_id, tokenizer.unk_id), (5, 0))
        self.assertEqual(tokenizer.control_ids, (1, 2, 3, 4, 5, 6))

    def test_bytes_instead_of_unknown_characters(self):
        """A model with byte_fallback gives its own pieces for bytes."""
        proto = sentencepiece_model_pb2.ModelProto.FromString(make())
        for byte in range(256):
            proto.pieces.add(
                piece=f'<0x{byte:02X}>', type=proto.SentencePiece.BYTE
            )
        proto.trainer_spec.byte_fallback = True
        tokenizer = SentencePiece(proto.SerializeToString())
        self.assertLen(tokenizer, 286)
        self.assertEqual(
            pieces_of(tokenizer, 'a ß'), ['▁a', '▁', '<0xC3>', '<0x9F>']
        )
        ids, starts, ends = tokenizer.tokenize_with_offsets(['a ß.'])
        self.assertEqual(starts.to_list(), [[0, 2, 2, 2, 4]])
        self.assertEqual(ends.to_list(), [[1, 2, 2, 4, 5]])
        self.assertEqual(
            words_of(tokenizer, 'ß ß'),
            ['▁ <0xC3> <0x9F>', '▁ <0xC3> <0x9F>'],
        )

    def test_scores_and_normalisation_tell_models_apart(self):
        self.assertNotEqual(
            self.tokenizer.identity, SentencePiece(make(vocab_size=7)).identity
        )

    @parameterized.parameters(
        (make(SPECIALS[:-1]), r'x.model: the model lacks \[MASK\] or <mask>'),
        (make(('[UNK]', '[PAD]')), r'\[CLS\] or <cls> or <s>, \[SEP\] or '),
        (make(types={'[MASK]': 4}), r'\[MASK\] is a token that text can spell'),
        (make(treat_whitespace_as_suffix=True), 'marks the ends of words'),
        (make(pieces=('a', 'a')), 'x.model is no SentencePiece model'),
        (learned('sentencepiece').model[:1000],
         'x.model is no SentencePiece model'),
        (b'', 'it has no pieces'),
        (b'[PAD]\n[UNK]\n', 'is no SentencePiece model'),
    )
    def test_models_that_cannot_be_used(self, model, message):
        with self.assertRaisesRegex(ValueError, message):
            SentencePiece(model, 'x.model')


class OffsetsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = SentencePiece(make())

    @parameterized.parameters(
        # Bytes, of the text before normalisation; spaces are of no piece.
        ('Aé bé', [('▁a', 0, 1), ('é', 1, 3), ('▁b', 4, 5), ('é', 5, 7)]),
        ('  a \t b ', [('▁a', 2, 3), ('▁b', 6, 7)]),
        ('e\u0301, a', [('▁', 0, 0), ('é', 0, 3), (',', 3, 4), ('▁a', 5, 6)]),
        ('\uff41\uff42', [('▁a', 0, 3), ('b', 3, 6)]),
        ('a\u200bb', [('▁a', 0, 1), ('▁b', 1, 5)]),
        # Two pieces of one character: the last has its bytes.
        ('a ﬁ a', [('▁a', 0, 1), ('▁f', 2, 2), ('i', 2, 5), ('▁a', 6, 7)]),
        # Unknown neighbours are one piece.
        ('漢字, 漢', [('▁', 0, 0), ('[UNK]', 0, 6), (',', 6, 7), ('▁', 8, 8),
                  ('[UNK]', 8, 11)]),
        (b'a \xff\0b', [('▁a', 0, 1), ('▁', 2, 2), ('[UNK]', 2, 4),
                        ('b', 4, 5)]),
    )  # fmt: skip
    def test_bytes_of_the_original(self, text, expected):
        ids, starts, ends = (
            part.to_list()[1]
            for part in self.tokenizer.tokenize_with_offsets(['b ', text, ''])
        )
        actual = [
            (self.tokenizer.vocabulary[i], start, end)
            for i, start, end in zip(ids, starts, ends, strict=True)
        ]
        self.assertEqual(actual, expected)

    def test_real_text_is_covered(self):
        tokenizer = learned('sentencepiece')
        texts = [text.encode() for text in topics.topics.values()]
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
        np.testing.assert_array_equal(
            ids.flat_values, tokenizer.tokenize(texts).flat_values
        )
        for text, row, begins, after in zip(
            texts, ids.to_list(), starts.to_list(), ends.to_list(), strict=True
        ):
            covered = b''.join(
                text[b:e] for b, e in zip(begins, after, strict=True)
            )
            self.assertEqual(covered, b''.join(text.split()))
            for i, b, e in zip(row, begins, after, strict=True):
                piece = tokenizer.vocabulary[i].removeprefix('▁')
                if text[b:e].isascii() and i != tokenizer.unk_id:
                    self.assertEqual(text[b:e].decode().lower(), piece)

    def test_sentencepiece_itself_joins_nothing(self):
        """It would by copying, in a time that grows with the square.

        Of unknown neighbours it gives each byte; a megabyte of them takes
        half a second, and as one piece half a minute.
        """
        sizes, text = [], 'x' * 1000 + '漢' * 1000
        for name in ('tokenize', 'tokenize_with_offsets'):
            real = getattr(tf_text.SentencepieceTokenizer, name)

            def spy(tokenizer, strings, real=real):
                actual = real(tokenizer, strings)
                ids = actual[0] if isinstance(actual, tuple) else actual
                sizes.append(ids.flat_values.shape[0])
                return actual

            with mock.patch.object(tf_text.SentencepieceTokenizer, name, spy):
                getattr(self.tokenizer, name)([text])
        self.assertEqual(sizes, [1 + len(text.encode())] * 2)


class PartsTest(parameterized.TestCase):
    @parameterized.parameters(
        (('the ', '.'), ['▁the', '.']),
        (('the', ' a,  b '), ['▁the', '▁a , ▁b']),
        (('', 'ed (', ') \t', ''), ['', 'ed ▁ (', ')', '']),
        (('  a \u3000 b', '\u3000a'), ['▁a ▁b', '▁a']),
    )
    def test_only_after_a_space_is_there_a_mark(self, parts, expected):
        tokenizer = SentencePiece(make())
        actual = tokenizer.tokenize_between_masks(
            tf.constant(parts), tf.range(len(parts)) > 0
        )
        read = [
            ' '.join(tokenizer.vocabulary[i] for i in row)
            for row in actual.to_list()
        ]
        self.assertEqual(read, expected)

    def test_a_text_without_a_mask_is_as_ever(self):
        tokenizer = learned('sentencepiece')
        texts = [*topics.topics.values(), '', ' x ']
        actual = tokenizer.tokenize_between_masks(
            tf.constant(texts), tf.zeros(len(texts), tf.bool)
        )
        self.assertEqual(
            actual.to_list(), tokenizer.tokenize(texts).to_list()
        )


class PiecesTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = SentencePiece(make())

    def test_fields(self):
        actual = self.tokenizer.tokenize_flat([b'unwanted, a.', b'', b'(b)'])
        np.testing.assert_array_equal(
            actual.ids, [6, 7, 8, 9, 12, 19, 5, 20, 14, 21]
        )
        np.testing.assert_array_equal(
            actual.word_starts, [1, 0, 0, 0, 1, 0, 1, 0, 0, 0]
        )
        np.testing.assert_array_equal(actual.row_splits, [0, 6, 6, 10])
        self.assertEqual(actual.ids.dtype, np.int32)
        self.assertEqual(actual.word_starts.dtype, bool)

    @parameterized.parameters(
        # Punctuation stays with its word; a mark may stand alone before it.
        (('unwanted, (running).',), ['▁un want ed ,', '▁ ( run ning ) .']),
        (('a . b',), ['▁a', '▁ .', '▁b']),
        # A new string is a new word, with empty ones between or around.
        (('a', 'b'), ['▁a', '▁b']),
        (('', 'a', '', '', 'b a', ''), ['▁a', '▁b', '▁a']),
        # What normalisation deletes, or makes a space, parts no word and
        # hides no space beside it.
        (('a\u200bb a',), ['▁a ▁b', '▁a']),
        (('a,\u200bb a',), ['▁a , ▁b', '▁a']),
        (('a \u200bb',), ['▁a', '▁b']),
        (('a\u200b b',), ['▁a', '▁b']),
        (('\u200b a', '\u200b', 'b'), ['▁a', '▁b']),
        (('a\u00a8b \u00a8 a',), ['▁a ▁ [UNK] b', '▁ [UNK]', '▁a']),
        # Of the pieces of one character all are in its word.
        (('ﬁ ﬁ', 'ﬁ'), ['▁f i', '▁f i', '▁f i']),
        (('a漢字 漢b',), ['▁a [UNK]', '▁ [UNK] b']),
    )
    def test_word_starts(self, strings, words):
        self.assertEqual(words_of(self.tokenizer, *strings), words)

    @parameterized.parameters(True, False)
    def test_words_of_real_text_begin_with_marks(self, lower_case):
        tokenizer = learned('sentencepiece', lower_case)
        actual = tokenizer.tokenize_flat([text.encode() for text in TEXTS])
        marked = np.char.startswith(np.array(tokenizer.vocabulary), '▁')
        np.testing.assert_array_equal(actual.word_starts, marked[actual.ids])

    def test_in_a_store(self):
        stored = store.write_store(
            pathlib.Path(self.create_tempdir().full_path) / 'store',
            [
                Document(('the b.', '', 'a (b)'), ''),
                Document(('unwanted',), ''),
            ],
            self.tokenizer,
            progress=False,
        )
        read = [self.tokenizer.vocabulary[i] for i in stored.ids]
        self.assertEqual(
            read,
            ['▁the', '▁b', '.', '▁a', '▁', '(', 'b', ')', '[SEP]',
             '▁un', 'want', 'ed', '[SEP]'],
        )  # fmt: skip
        word, sentence, end = (
            store.WORD_START, store.SENTENCE_START, store.SEPARATOR
        )  # fmt: skip
        both = word | sentence
        np.testing.assert_array_equal(
            stored.flags,
            [both, word, 0, both, word, 0, 0, 0, word | end,
             both, 0, 0, word | end],
        )  # fmt: skip


class LearnTest(absltest.TestCase):
    def test_a_small_corpus_gives_fewer(self):
        tokenizer = SentencePiece.learn(['a few words\tof text'], 5000)
        self.assertBetween(len(tokenizer), 6, 40)

    def test_a_long_text_is_neither_skipped_nor_slow(self):
        """No line is so long that learning takes hours, and all are there."""
        texts = ['x' * 50_000, 'zebra ' * 50_000]
        lines, trainer = [], sentencepiece_library.SentencePieceTrainer
        real = trainer.train

        def spy(sentence_iterator, **options):
            lines.extend(sentence_iterator)
            return real(sentence_iterator=iter(lines), **options)

        with mock.patch.object(trainer, 'train', spy):
            tokenizer = SentencePiece.learn(texts, 100)
        self.assertLessEqual(max(map(len, lines)), 512)
        self.assertEqual(
            ''.join(lines).replace(' ', ''), ''.join(texts).replace(' ', '')
        )
        self.assertIn('▁zebra', tokenizer.vocabulary)
        self.assertIn('x', ''.join(tokenizer.vocabulary))


if __name__ == '__main__':
    absltest.main()
