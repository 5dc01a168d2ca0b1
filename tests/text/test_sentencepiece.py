"""SentencePiece: its pieces, their bytes and words."""

import pathlib
from pydoc_data import topics
from unittest import mock

import numpy as np
import sentencepiece as sentencepiece_library
import tensorflow as tf
import tensorflow_text as tf_text
from absl.testing import absltest, parameterized

from infoword_tf.text.sentencepiece import SentencePiece
from tests.text.learned import PIECES, learned, model, small


class TokenizeTest(parameterized.TestCase):
    def test_outlives_the_seed_of_tensorflow(self):
        """Which throws away all kernels, and with them what is theirs."""
        tokenizer = small('sentencepiece')
        graph = tf.function(lambda x: tokenizer.tokenize(x).flat_values)
        text = tf.constant(['the cafe'])
        expected = graph(text)
        another = SentencePiece(model(pieces=PIECES[:12]))
        tf.random.set_seed(1)
        np.testing.assert_array_equal(graph(text), expected)
        actual = small('sentencepiece').tokenize(text).flat_values
        np.testing.assert_array_equal(actual, expected)
        self.assertNotEqual(
            another.tokenize(text).to_list()[0], expected.numpy().tolist()
        )

    def test_scores_and_normalisation_tell_models_apart(self):
        other = SentencePiece(model(vocab_size=7)).identity
        self.assertNotEqual(small('sentencepiece').identity, other)


class OffsetsTest(parameterized.TestCase):
    def test_real_text_is_covered(self):
        tokenizer = learned('sentencepiece')
        texts = [text.encode() for text in [*topics.topics.values()][::4]]
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
        expected = tokenizer.tokenize(texts).flat_values
        np.testing.assert_array_equal(ids.flat_values, expected)
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
                getattr(small('sentencepiece'), name)([text])
        self.assertEqual(sizes, [1 + len(text.encode())] * 2)


class PartsTest(parameterized.TestCase):
    @parameterized.parameters(
        (('the ', '.'), ['▁the', '.']),
        (('the', ' a,  b '), ['▁the', '▁a , ▁b']),
        (('', 'ed (', ') \t', ''), ['', 'ed ▁ (', ')', '']),
        (('  a \u3000 b', '\u3000a'), ['▁a ▁b', '▁a']),
        (('the  b.',), ['▁the ▁b .']),  # as without a mask
        (('', ' '), ['', '']),
    )
    def test_only_after_a_space_is_there_a_mark(self, parts, expected):
        tokenizer = small('sentencepiece')
        actual = tokenizer.tokenize_between_masks(
            tf.constant(parts), tf.range(len(parts)) > 0
        )
        read = [
            ' '.join(tokenizer.vocabulary[i] for i in row)
            for row in actual.to_list()
        ]
        self.assertEqual(read, expected)


class StepsBeforeTest(parameterized.TestCase):
    @parameterized.parameters((None,), (
        {'rewrites': [], 'white': False, 'scheme': 'first', 'split': True},
    ))  # fmt: skip
    def test_ids_are_of_what_they_make_and_places_of_the_text(self, blanks):
        steps = [
            {'type': 'Replace', 'pattern': {'String': a}, 'content': b}
            for a, b in (('1', 'ed'), ('é', '1'), ('1', 'ed,'))
        ]
        path = pathlib.Path(self.create_tempdir().full_path, 'spm.model')
        SentencePiece(model()).write(path)
        first = SentencePiece(model(), before=steps, blanks=blanks)
        again = SentencePiece.read(path, **first.options)
        self.assertEqual(again.identity, first.identity)
        ids, starts, ends = again.tokenize_with_offsets(['want1 é'])
        names = [again.vocabulary[i] for i in ids.values]
        self.assertEqual(names, ['▁', 'want', 'ed', '▁', 'ed', ','])
        # Both tokens of a character have all of its bytes.
        self.assertEqual(starts.to_list(), [[0, 0, 4, 6, 6, 6]])
        self.assertEqual(ends.to_list(), [[0, 4, 5, 6, 8, 8]])
        alone = again.tokenize(['want1 é'])
        self.assertEqual(alone.to_list(), ids.to_list())


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
        actual, whole = (''.join(x).replace(' ', '') for x in (lines, texts))
        self.assertEqual(actual, whole)
        self.assertIn('▁zebra', tokenizer.vocabulary)
        self.assertIn('x', ''.join(tokenizer.vocabulary))
