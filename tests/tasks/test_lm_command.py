"""The command on texts whose figures are known by hand."""

import json
import math
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.data import corpora
from infoword_tf.data import store as stores
from infoword_tf.data.documents import Document
from infoword_tf.encoders import Inputs
from infoword_tf.model import Model
from infoword_tf.text.wholewords import WholeWords
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.training.record import FINGERPRINT
from tasks import lm
from tests import places
from tests.export import workdirs
from tests.tasks import command

VOCABULARY = [
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]',
    'the', 'cat', 'sat', '##s', '.', 'on', 'mat', '=',
]  # fmt: skip
V, D = len(VOCABULARY), 4
# Three lines, one of them blank: 4, 0 and 6 words and three line ends.
TEXT = ' = the cats = \n \n the <unk> sat on the <unk> \n'
WORDS = 13
# = the cat ##s = | | the [UNK] sat on the [UNK] |
PIECES = 14
CHARACTERS = 46


class LmStandIn:
    """Parts of a loaded model that the command uses.

    One layer, so that a memory is as good as the text that it is of.
    """

    def __init__(
        self, uniform=False, tokenizer=WordPieceTokenizer, lower_case=False
    ):
        sizes = {'vocab_size': V, 'width': D, 'max_length': 512, 'layers': 1,
                 'heads': 2, 'causal': True, 'epsilon': 1e-12}  # fmt: skip
        row = RowConfig(1.0, {'transform': False, 'sampled': 0})
        self.config = Config(
            EncoderConfig('relative', sizes), {'transformer_xl': row},
            max_length=4, memory_length=6,
        )  # fmt: skip
        self.tokenizer = tokenizer(VOCABULARY, lower_case)
        self.model = Model(self.config, self.tokenizer.specials)
        self.missing = {}
        random = np.random.default_rng(2)
        for variable in self.model.variables.values():
            drawn = random.standard_normal(variable.shape)
            variable.assign(drawn * (not uniform))


def score(folder, name, *more):
    """The command on a workdir in a folder: eight lines, 40 words."""
    text, train = folder / 'text.txt', folder / 'train.txt'
    text.write_text('names refer to objects\n' * 8)
    train.write_text('other names\n')
    return command.succeeded(command.run(
        lm, f'--init={folder / name}', f'--corpus=lines:{train}',
        f'--heldout={text}', f'--workdir={folder}/out', *more,
    ))  # fmt: skip


class LmCommandCase(places.Folder, command.Checks, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.text = self.folder / 'text.txt'
        self.text.write_text(TEXT)
        (self.folder / 'train.txt').write_text('the cat sat\n')

    def try_here(self, *more, model=None, text=True):
        choices = ['--init=somewhere', f'--workdir={self.folder}/out']
        if text:
            choices += [f'--corpus=lines:{self.folder}/train.txt',
                      f'--heldout={self.text}']
        with mock.patch.object(
            infoword_tf, 'load', lambda *_: model or LmStandIn()
        ):
            return command.run(lm, *choices, *more)

    def run_here(self, *more, **kwargs):
        done = command.succeeded(self.try_here(*more, **kwargs))
        return done.result, done.out


class FiguresTest(LmCommandCase):
    @parameterized.parameters(
        (), ('--seq_len=1',), ('--seq_len=100',), ('--memory_length=0',),
        ('--batch_size=3',),
    )  # fmt: skip
    def test_by_hand(self, *more):
        """Equal scores: every piece costs log V."""
        self.assertLen(TEXT, CHARACTERS)
        record, printed = self.run_here(*more, model=LmStandIn(uniform=True))
        nats = PIECES * math.log(V)
        self.assertLessEqual({
            'pieces': PIECES, 'words': WORDS, 'characters': CHARACTERS,
            'unknown_pieces': 2, 'unknown_words_of_the_text': 2,
        }.items(), record.items())  # fmt: skip
        self.assertAlmostEqual(record['nats'], nats, places=4)
        self.assertAlmostEqual(record['perplexity_per_piece'], V, places=4)
        self.assertAlmostEqual(
            record['perplexity_per_word'], V ** (PIECES / WORDS), places=3
        )
        bits = nats / math.log(2) / CHARACTERS
        self.assertAlmostEqual(record['bits_per_character'], bits, places=5)
        self.assertIn('[UNK]: 2 of the tokens, 2 of them written so', printed)
        self.assertIn(f'scored: --heldout={self.text}\n', printed)
        memory = record['memory_length']
        memory = f'{memory} tokens of memory' if memory else 'no memory'
        self.assertIn(f'at a time, {memory}\n', printed)

    def test_words_are_what_is_published(self):
        """Every piece is a word or a line end, and `<unk>` is a type."""
        record, printed = self.run_here(
            model=LmStandIn(uniform=True, tokenizer=WholeWords)
        )
        self.assertEqual(record['pieces'], WORDS)
        self.assertEqual(record['words'], WORDS)
        # cats is not in the vocabulary.
        self.assertEqual(record['unknown_pieces'], 3)
        self.assertEqual(record['unknown_words_of_the_text'], 2)
        self.assertIn('[UNK]: 3 of the tokens, 2 of them', printed)
        for name in ('perplexity_per_piece', 'perplexity_per_word'):
            self.assertAlmostEqual(record[name], V, places=4)

    def test_a_text_without_case_has_no_bits_per_character(self):
        for lower_case in (False, True):
            record, printed = self.run_here(
                model=LmStandIn(uniform=True, lower_case=lower_case)
            )
            self.assertEqual(record['lower_case'], lower_case)
            self.assertEqual('bits_per_character' in record, not lower_case)
            self.assertEqual('none: the text was lower' in printed, lower_case)

    def test_defaults_are_the_run_s(self):
        record, _ = self.run_here()
        self.assertEqual(record['seq_len'], 4)
        self.assertEqual(record['memory_length'], 6)

    @parameterized.parameters(
        (1, 2), (3, 0), (3, 50), (5, 2), (5, 6), (40, 0), (40, 6)
    )  # fmt: skip
    def test_each_piece_given_what_it_sees(self, length, memory):
        """Against the encoder on each context by itself."""
        model = LmStandIn()
        record, _ = self.run_here(
            f'--seq_len={length}', f'--memory_length={memory}', model=model
        )
        line = model.tokenizer.tokenize(['= the cats =', 'the', 'sat on the'])
        first, second, third = line.to_list()
        ids = [3, *first, 3, 3, *second, 1, *third, 1, 3]
        self.assertLen(ids, PIECES + 1)
        encoder = model.model.encoder
        table = encoder.embedding_table
        bias = model.model.objectives['transformer_xl'].token_bias
        total = 0.0
        for begin in range(0, PIECES, length):
            end = min(begin + length, PIECES)
            context = ids[max(0, begin - memory) : end]
            states = encoder(Inputs(np.array([context], 'int32'))).states[0]
            scores = states[begin - end :] @ tf.transpose(table) + bias
            total += tf.reduce_sum(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    ids[begin + 1 : end + 1], scores
                )
            ).numpy()
        self.assertAlmostEqual(record['nats'], total, places=3)

    def test_of_documents(self):
        self.text.write_text('the cat sat.\nThe mat.\n\nthe cats\n')
        record, _ = self.run_here(
            f'--corpus=text:{self.folder}/train.txt', f'--heldout={self.text}',
            text=False,
        )  # fmt: skip
        self.assertEqual(record['words'], 5 + 1 + 2 + 1)
        self.assertEqual(
            record['characters'], len('The cat sat. The mat.|The cats|')
        )
        self.assertEqual(record['pieces'], 7 + 1 + 3 + 1)

    def test_a_text_that_it_was_not_trained_on_is_scored_whole(self):
        """Scores of one that it was trained on what that run held out."""
        self.text.write_text('the cat\n\nthe mat .\n\non the cats\n')
        name = f'text:{self.text}'
        opened = corpora.open_corpus(name)
        # What a run says that began with the weights of another.
        model = LmStandIn(uniform=True)
        first = model.config.replace(run={'corpus': name, 'heldout': None})
        first.write(self.folder)
        other = {'corpus': 'pydocs', 'heldout': None}
        same_files = {FINGERPRINT: f'0123 {opened.fingerprint}'}
        rest = f'what is held out of {name}; runs/x was trained on the rest'
        every = f'all of {name}; runs/x was trained on'
        for run, expected in (
            ({}, f'all of {name}; runs/x does not say what it was trained on'),
            (other, f'{every} pydocs'),
            ({'corpus': name, 'heldout': 'x'}, f'{every} {name}'),
            # Of two languages one has held-out files.
            ({'corpus': [f'de={name}', 'en=pydocs'], 'heldout': 'en=x'}, rest),
            ({'corpus': [f'de={name}', 'en=pydocs'], 'heldout': 'de=x'},
             f'{every} {name}, pydocs'),
            (first.run, rest),
            (other | same_files, rest),
            (other | {'init': str(self.folder)}, rest),
            (other | {'init': 'nowhere'}, f'{every} pydocs'),
        ):
            read, part, what = lm.part_of(
                opened, first.replace(run=run), 'runs/x'
            )
            self.assertEqual(what, expected)
            self.assertEqual(part, 'heldout' if expected == rest else 'all')
            self.assertLen([*read()], 1 if expected == rest else 3)
        record, printed = self.run_here(
            f'--corpus={name}', model=model, text=False
        )
        self.assertEqual((record['words'], record['part']), (11, 'all'))
        self.assertIn(f'scored: all of {name}; somewhere does', printed)
        # Lines are one text, which needs no other beside it.
        self.text.write_text(TEXT)
        record, _ = self.run_here(
            f'--corpus=lines:{self.text}', model=model, text=False
        )
        self.assertEqual(record['words'], WORDS)
        self.assertEqual(record['pieces'], PIECES)

    def test_memory_alone_goes_on(self):
        """One graph reads all, whatever else rows keep."""
        model = LmStandIn()
        row = model.model.objectives['transformer_xl']
        with (
            mock.patch.object(row, 'empty_state', lambda: {'x': np.zeros(2)}),
            mock.patch.object(row, 'score', wraps=row.score) as score,
        ):
            self.run_here(model=model)
        score.assert_called_once()

    def test_a_model_that_cannot(self):
        missing = LmStandIn()
        missing.missing = {'transformer_xl': 'there is no bias'}
        self.assert_refused(
            self.try_here(model=missing), 'token_weights_missing',
            'there is no bias',
        )  # fmt: skip


class LmSampleTest(command.Checks, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup, cache=False)
        workdirs.write(cls.folder / 'run', ('gpt',))

    def run_here(self, *more):
        return command.run(lm, '--sample', f'--init={self.folder}/run', *more)

    def test_writes_on(self):
        choices = '--prompt=names refer to', '--tokens=6', '--top_p=0.9'
        first, again, other = (
            command.succeeded(self.run_here(*choices, f'--seed={seed}'))
            for seed in (1, 1, 2)
        )
        self.assertEqual(first.out, again.out)
        self.assertNotEqual(first.result['text'], other.result['text'])
        text, record = first.out.splitlines()
        self.assertEqual(json.loads(record), first.result)
        self.assertEqual(first.result['text'], text)
        self.assertStartsWith(text, 'names refer to')
        self.assertLessEqual(first.result['tokens'], 6)

    def test_flags_of_scoring(self):
        for flag in lm.SCORING:
            self.assert_refused(
                self.run_here(f'--{flag}=3'), None, f'--{flag} is not for'
            )

    def test_scores_a_text_without_memory(self):
        done = score(self.folder, 'run', '--seq_len=64')
        self.assertEqual(done.result['memory_length'], 0)
        self.assertIn('64 tokens at a time, no memory', done.out)
        self.assertEqual(done.result['words'], 40)

    def test_a_state_that_goes_on(self):
        """An LSTM has no memory of tokens, and does not begin anew."""
        workdirs.write(self.folder / 'rnn', ('rnn_lm',), 'rnn')
        nats = []
        for length in (2, 50):
            done = score(self.folder, 'rnn', f'--seq_len={length}')
            self.assertIn(
                f'{length} tokens at a time, a state that goes on\n', done.out
            )
            nats.append(done.result['nats'])
        np.testing.assert_allclose(*nats, rtol=1e-5)


class LmUnknownTest(parameterized.TestCase):
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
        tokenizer = WordPieceTokenizer(VOCABULARY)
        texts = ('the mat', sentence), (), (sentence,)
        documents = [Document(text, 'x') for text in texts]
        ids, actual, lengths = next(stores.tokenized(documents, tokenizer))
        names = [VOCABULARY[i] for i in ids]
        n = len(pieces)
        expected = ['the', 'mat', *pieces, '[SEP]', '[SEP]', *pieces, '[SEP]']
        self.assertEqual(names, expected)
        self.assertEqual(lengths.tolist(), [n + 3, 1, n + 1])
        if flags is not None:
            self.assertEqual(actual.tolist(), [3, 1, *flags, 5, 5, *flags, 5])
