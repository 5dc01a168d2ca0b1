"""The command on texts whose figures are known by hand."""

import contextlib
import io
import json
import math
import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, flagsaver, parameterized

import infoword_tf
from infoword_tf.data import store as stores
from infoword_tf.model import Model
from infoword_tf.text.wordpiece import WordPiece
from tasks import lm
from tests import remembering

VOCABULARY = [
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]',
    'the', 'cat', 'sat', '##s', '.', 'on', 'mat', '=',
]  # fmt: skip
V, D = len(VOCABULARY), 4
WIKITEXT = pathlib.Path(os.environ.get('WIKITEXT', 'absent'))
# Three lines, one of them blank: 4, 0 and 6 words and three line ends.
TEXT = ' = The cats = \n \n The <unk> sat on the <unk> \n'
WORDS = 13
# = the cat ##s = | | the [UNK] sat on the [UNK] |
PIECES = 14
CHARACTERS = 46


class StandIn:
    """What the command uses of a loaded model."""

    def __init__(self, uniform=False, row='transformer_xl'):
        self.config = {
            'encoder': {
                'name': remembering.NAME,
                'arguments': {
                    'vocab_size': V, 'width': D, 'causal': True, 'rate': 0.0,
                },
            },
            'rows': {row: {'weight': 1.0, 'settings': {}}},
            'precision': 'float32',
            'max_length': 4,
            'memory_length': 6,
        }  # fmt: skip
        self.tokenizer = WordPiece(VOCABULARY)
        self.model = Model(self.config, self.tokenizer.specials)
        random = np.random.default_rng(2)
        for variable in self.model.variables.values():
            drawn = random.standard_normal(variable.shape)
            variable.assign(drawn * (not uniform))


class CommandCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(remembering.row())
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.text = self.folder / 'text.txt'
        self.text.write_text(TEXT)
        (self.folder / 'train.txt').write_text('the cat sat\n')

    def run_here(self, *more, model=None, text=True):
        """Returns the record and what was printed."""
        given = ['--init=somewhere', f'--workdir={self.folder}/out']
        if text:
            given += [f'--corpus=lines:{self.folder}/train.txt',
                      f'--heldout={self.text}']
        saved = flagsaver.save_flag_values(lm.FLAGS)
        out = io.StringIO()
        try:
            lm.FLAGS(['lm', *given, *more])
            with (
                mock.patch.object(
                    infoword_tf, 'load', lambda *_: model or StandIn()
                ),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                record = lm.run()
        finally:
            flagsaver.restore_flag_values(saved, lm.FLAGS)
        return record, out.getvalue()


class FiguresTest(CommandCase):
    @parameterized.parameters(
        (), ('--seq_len=1',), ('--seq_len=100',), ('--memory_length=0',),
        ('--batch_size=3',),
    )  # fmt: skip
    def test_by_hand(self, *more):
        """Equal scores: every piece costs log V."""
        self.assertLen(TEXT, CHARACTERS)
        record, printed = self.run_here(*more, model=StandIn(uniform=True))
        nats = PIECES * math.log(V)
        for name, value in (
            ('pieces', PIECES),
            ('words', WORDS),
            ('characters', CHARACTERS),
            ('unknown_pieces', 2),
            ('unknown_words_of_the_text', 2),
        ):
            self.assertEqual(record[name], value, name)
        self.assertAlmostEqual(record['nats'], nats, places=4)
        self.assertAlmostEqual(record['perplexity_per_piece'], V, places=4)
        self.assertAlmostEqual(
            record['perplexity_per_word'], V ** (PIECES / WORDS), places=3
        )
        self.assertAlmostEqual(
            record['bits_per_character'],
            nats / math.log(2) / CHARACTERS,
            places=5,
        )
        self.assertEqual(json.loads(printed.splitlines()[-1]), record)
        self.assertEqual(
            json.loads((self.folder / 'out' / 'metrics.json').read_text()),
            record,
        )
        self.assertIn('[UNK]: 2 of the pieces, 2 of them written so', printed)

    def test_defaults_are_the_run_s(self):
        record, _ = self.run_here()
        self.assertEqual(record['seq_len'], 4)
        self.assertEqual(record['memory_length'], 6)

    @parameterized.product(length=(1, 3, 5, 40), memory=(0, 2, 6, 50))
    def test_each_piece_given_what_it_sees(self, length, memory):
        """Against the encoder on each context by itself."""
        model = StandIn()
        record, _ = self.run_here(
            f'--seq_len={length}', f'--memory_length={memory}', model=model
        )
        words = model.tokenizer
        line = words.tokenize(['= The cats =', 'The', 'sat on the'])
        first, second, third = line.to_list()
        ids = [3, *first, 3, 3, *second, 1, *third, 1, 3]
        self.assertLen(ids, PIECES + 1)
        encoder = model.model.encoder
        bias = model.model.objectives['transformer_xl'].word_bias
        total = 0.0
        for begin in range(0, PIECES, length):
            end = min(begin + length, PIECES)
            context = ids[max(0, begin - memory) : end]
            states = encoder(np.array([context], 'int32')).states[0]
            scores = states[begin - end :] @ tf.transpose(encoder.words) + bias
            total += tf.reduce_sum(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    ids[begin + 1 : end + 1], scores
                )
            ).numpy()
        self.assertAlmostEqual(record['nats'], total, places=3)

    def test_of_documents(self):
        """Words and characters as the corpus has them."""
        self.text.write_text('The cat sat.\nThe mat.\n\nThe cats\n')
        record, _ = self.run_here(
            f'--corpus=text:{self.folder}/train.txt',
            f'--heldout={self.text}',
            text=False,
        )
        self.assertEqual(record['words'], 5 + 1 + 2 + 1)
        self.assertEqual(
            record['characters'], len('The cat sat. The mat.|The cats|')
        )
        self.assertEqual(record['pieces'], 7 + 1 + 3 + 1)

    @absltest.skipUnless(
        WIKITEXT.is_dir(), 'WIKITEXT names no folder of WikiText-2'
    )
    def test_wikitext_has_the_published_size(self):
        from infoword_tf.data import corpora

        opened = corpora.open_corpus(
            f'lines:{WIKITEXT}/valid.txt', f'{WIKITEXT}/test.txt'
        )
        for documents, words, unknown in (
            (opened.train, 217_646, 11_718),
            (opened.heldout, 245_569, 15_218),
        ):
            counted = lm.Counted(documents())
            for _ in counted:
                pass
            self.assertEqual(counted.words, words)
            self.assertEqual(counted.unknown, unknown)
        self.assertEqual(counted.characters, 1_255_018)


class BadInputTest(CommandCase):
    @parameterized.parameters(
        ('init', '--init is missing'),
        ('corpus', '--corpus is missing'),
        ('workdir', '--workdir is missing'),
    )
    def test_missing(self, flag, message):
        given = {'init': 'x', 'corpus': 'pydocs', 'workdir': 'y'}
        del given[flag]
        saved = flagsaver.save_flag_values(lm.FLAGS)
        try:
            lm.FLAGS(['lm', *(f'--{k}={v}' for k, v in given.items())])
            with self.assertRaisesRegex(lm.UsageError, message):
                lm.run()
        finally:
            flagsaver.restore_flag_values(saved, lm.FLAGS)

    def test_a_workdir_that_holds_a_model(self):
        (self.folder / 'out').mkdir()
        (self.folder / 'out' / 'config.json').write_text('{}')
        with self.assertRaisesRegex(lm.UsageError, 'holds a model'):
            self.run_here()

    def test_a_model_of_other_rows(self):
        with remembering.row('mlm'):
            model = StandIn(row='mlm')
        with self.assertRaisesRegex(
            lm.UsageError, 'was trained on mlm, which score no next word'
        ):
            self.run_here(model=model)

    def test_no_memory(self):
        model = StandIn()
        model.model.config['encoder'] = {'name': 'transformer'}
        model.config['encoder'] = {'name': 'transformer'}
        with self.assertRaisesRegex(
            lm.UsageError, '--memory_length=8: the encoder transformer has no'
        ):
            self.run_here('--memory_length=8', model=model)

    def test_no_text(self):
        with self.assertRaisesRegex(ValueError, 'name held-out files with'):
            self.run_here(f'--corpus=lines:{self.text}', text=False)
        self.text.write_text('\n\n')
        with self.assertRaisesRegex(ValueError, 'no text in the 1 file'):
            self.run_here()

    def test_words_that_no_piece_spells(self):
        self.text.write_text('zebra the\n')
        record, printed = self.run_here()
        self.assertEqual(record['unknown_pieces'], 1)
        self.assertEqual(record['unknown_words_of_the_text'], 0)
        self.assertIn('[UNK]: 1 of the pieces, 0 of them', printed)


class UnknownTest(parameterized.TestCase):
    """`<unk>` on the way into a store."""

    @parameterized.parameters(
        ('the cat', ['the', 'cat'], [3, 1]),
        ('<unk>', ['[UNK]'], [3]),
        ('<unk> cats', ['[UNK]', 'cat', '##s'], [3, 1, 0]),
        ('cats <unk>', ['cat', '##s', '[UNK]'], [3, 0, 1]),
        ('a <unk> <unk> on', ['[UNK]'] * 3 + ['on'], [3, 1, 1, 1]),
        ('<unk>s', ['[UNK]'] * 4, None),
    )
    def test_one_piece(self, sentence, pieces, flags):
        from infoword_tf.data.documents import Document

        tokenizer = WordPiece(VOCABULARY)
        documents = [
            Document(('the mat', sentence), 'x'),
            Document((), 'x'),
            Document((sentence,), 'x'),
        ]
        ids, found, lengths = next(stores.tokenized(documents, tokenizer))
        names = [VOCABULARY[i] for i in ids]
        n = len(pieces)
        self.assertEqual(
            names,
            ['the', 'mat', *pieces, '[SEP]', '[SEP]', *pieces, '[SEP]'],
        )
        self.assertEqual(lengths.tolist(), [n + 3, 1, n + 1])
        if flags is not None:
            self.assertEqual(
                found.tolist(), [3, 1, *flags, 5, 5, *flags, 5]
            )


if __name__ == '__main__':
    absltest.main()
