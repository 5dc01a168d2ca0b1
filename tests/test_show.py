"""What the pictures say is so, and every row has one."""

import contextlib
import io
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import pictures, show, views
from infoword_tf.config import (
    Config,
    EncoderConfig,
    RowConfig,
    TokenizerConfig,
)
from infoword_tf.objectives import SUMS, TABLE
from infoword_tf.text.sentencepiece import SentencePiece
from tests.tasks import command

ROOT = pathlib.Path(__file__).parent.parent
FOX = 'The quick brown fox jumps over the lazy dog, and nobody notices it.'
TWO = ('Reads a file into a table.', 'The separator may be any character.')
LABELLED = [
    row
    for row in TABLE
    if 'examples' in TABLE[row].reads(
        {name: setting.default for name, setting in TABLE[row].settings.items()}
    )
]
SPECIALS = views.Specials(2, 3, 4, 9)
WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b', 'c', 'd']


def one(ids, **fields):
    """A view of one text."""
    fields = {
        name: np.array([x]) if not isinstance(x, dict) else x
        for name, x in fields.items()
    }
    return views.View(
        ids=np.array([ids], np.int32), sequences=np.zeros(1), **fields
    )


def make_config(kind='wordpiece', masking=None, **rows):
    """What a workdir says; rows: the settings of each."""
    return Config(
        EncoderConfig('transformer', {}),
        {row: RowConfig(1.0, settings) for row, settings in rows.items()},
        32,
        tokenizer=TokenizerConfig(kind, lower_case=True),
        masking=masking,
    )


class SeenTest(absltest.TestCase):
    def check(self, found, wanted):
        np.testing.assert_array_equal(found.astype(int), wanted)

    def test_everything(self):
        self.check(pictures.seen(one([2, 5, 3])), np.ones((3, 3)))

    def test_blocks(self):
        self.check(
            pictures.seen(one([2, 5, 2, 6, 3], block_ids=[0, 0, 1, 1, 2])),
            [
                [1, 1, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [0, 0, 1, 1, 0],
                [0, 0, 1, 1, 0],
                [0, 0, 0, 0, 1],
            ],
        )

    def test_looking_back_with_memory(self):
        self.check(
            pictures.seen(one([5, 6, 7]), causal=True, memory=2),
            [
                [1, 1, 1, 0, 0],
                [1, 1, 1, 1, 0],
                [1, 1, 1, 1, 1],
            ],
        )

    def test_both_streams_in_the_papers_order(self):
        """3, 1, 5, 2, 4 with x4 as target, as in test_permuted.py."""
        strict = one(
            [5, 6, 7, 8, 5], ranks=[1, 3, 0, 4, 2], sees=[2, 4, 1, 4, 3]
        )
        self.check(
            pictures.seen(strict),
            [
                [1, 0, 1, 0, 0],
                [1, 1, 1, 0, 1],
                [0, 0, 1, 0, 0],
                [1, 1, 1, 1, 1],
                [1, 0, 1, 0, 1],
            ],
        )
        self.check(
            pictures.seen(strict, queries=[3, 0], memory=1),
            [[1, 1, 1, 1, 0, 1], [1, 1, 0, 1, 0, 0]],
        )

    def test_one_of_several_texts(self):
        ids = np.array([[[2, 5, 3], [2, 6, 3]], [[2, 7, 3], [2, 8, 3]]])
        blocks = np.array([[[0, 0, 0]] * 2, [[0, 0, 1], [0, 1, 1]]])
        view = views.View(ids=ids, sequences=None, block_ids=blocks)
        self.check(pictures.seen(view), np.ones((3, 3)))
        self.check(
            pictures.seen(view, number=1), [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
        )


class PictureTest(absltest.TestCase):
    def numbers(self, mask):
        return [[pictures.NAMES[n] for n in row] for row in mask]

    def test_hidden_words(self):
        view = one(
            [2, 5, 4, 3],
            places={'mlm': np.array([[2, 1]])},
            targets={'mlm': np.array([[7, 5]])},
            weights={'mlm': np.array([[1, 0]])},
        )
        made = pictures.picture(
            'masked', view, {'mlm': 'pieces'}, WORDS, SPECIALS
        )
        self.assertEqual(made.tokens, ['[CLS]', 'a', '[MASK]', '[SEP]'])
        self.assertEqual(made.asked, {2: 'c'})  # the other is padding
        self.assertEqual(made.kinds, ['special', 'word', 'asked', 'special'])
        self.assertEqual(
            self.numbers(made.content),
            [
                ['self', 'word', 'asked', 'special'],
                ['special', 'self', 'asked', 'special'],
                ['special', 'word', 'self', 'special'],
                ['special', 'word', 'asked', 'self'],
            ],
        )
        self.assertIsNone(made.queries)
        self.assertFalse(made.left_over.any())

    def test_queries(self):
        """a b [SEP], then memory: b before a, and [SEP] sees neither."""
        view = one(
            [5, 6, 3],
            ranks=[1, 0, 0],
            sees=[1, 0, 0],
            places={'plm': np.array([[0, 1]])},
            targets={'plm': np.array([[5, 6]])},
            weights={'plm': np.array([[1, 1]])},
        )
        made = pictures.picture(
            'permuted', view, {'plm': 'queries'}, WORDS, SPECIALS, memory=[8]
        )
        self.assertEqual(made.memory, ['d'])
        self.assertEqual(made.numbers, {1: 1, 0: 2})
        self.assertEqual(
            self.numbers(made.content),
            [
                ['memory', 'self', 'asked', 'special'],
                ['memory', 'nothing', 'self', 'nothing'],
                ['memory', 'nothing', 'nothing', 'self'],
            ],
        )
        self.assertEqual(
            self.numbers(made.queries),
            [
                ['memory', 'blind', 'asked', 'special'],
                ['memory', 'nothing', 'blind', 'nothing'],
            ],
        )

    def test_packed_texts(self):
        view = one(
            [2, 5, 3, 3],
            block_ids=[0, 0, 0, 2],
            places={'dim': np.array([[0, 0]])},
            weights={'dim': np.array([[1.0, 0.0]])},
            targets={'dim': np.array([[0, 1]])},
        )
        made = pictures.picture(
            'ngrams', view, {'dim': 'start'}, WORDS, SPECIALS
        )
        self.assertEqual(made.starts, [0])
        np.testing.assert_array_equal(made.left_over, [0, 0, 0, 1])
        self.assertEqual(made.asked, {})

    def test_next_words(self):
        view = one([5, 6, 7], targets={'lm': np.array([[6, 7, 8]])})
        made = pictures.picture(
            'streamed', view, {'lm': 'text'}, WORDS, SPECIALS, causal=True
        )
        self.assertEqual(made.asked, {0: 'b', 1: 'c', 2: 'd'})
        self.assertEqual(made.kinds, ['word'] * 3)
        self.assertEqual(
            self.numbers(made.content)[1], ['word', 'self', 'nothing']
        )

    def test_backward(self):
        view = one([5, 6], directions=-1)
        made = pictures.picture('streamed', view, {}, WORDS, SPECIALS)
        self.assertIn('This row reads backward.', made.lines)


class TextTest(parameterized.TestCase):
    def test_words_are_pieces(self):
        words = show.WordTokenizer(["Don't stop, ok?", 'ok'])
        self.assertEqual(
            words.vocabulary[5:], ['Don', "'", 't', 'stop', ',', 'ok', '?']
        )
        found = words.pieces([b"Don't stop,", b'', b'ok?'])
        np.testing.assert_array_equal(
            found.ids, [5, 6, 7, 8, 9, 10, 11]
        )
        np.testing.assert_array_equal(
            found.word_starts, [1, 0, 0, 1, 0, 1, 0]
        )
        np.testing.assert_array_equal(found.row_splits, [0, 5, 5, 7])

    @parameterized.parameters(
        (['one two three four'], ['one two', 'three four']),
        (['One two. Three.'], ['One two.', 'Three.']),
        (['  One\n two.', 'Three  four.'], ['One two.', 'Three four.']),
    )
    def test_sentences(self, texts, wanted):
        self.assertEqual(show.sentences_of(texts), wanted)

    @parameterized.parameters([[]], [['']], [['word']])
    def test_too_little(self, texts):
        with self.assertRaisesRegex(show.UsageError, 'two words or more'):
            show.sentences_of(texts)


class CommandTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.output = pathlib.Path(self.create_tempdir().full_path) / 'x.png'

    def run_here(self, *given):
        """The command in this process; returns what it printed and drew.

        Raises:
            SystemExit: it complained.
        """
        drawn = mock.Mock(side_effect=pictures.draw)
        with mock.patch.object(pictures, 'draw', drawn):
            done = command.run(
                show, f'--output={self.output}', *given, words='the sentences'
            )
        if done.status:
            print(done.err, file=sys.stderr)
            raise SystemExit(done.status)
        return done.out, drawn.call_args[0][2]

    def test_labels_are_not_drawn(self):
        for row in LABELLED:
            with self.assertRaises(SystemExit):
                self.run_here(f'--objectives={row}', *TWO)
        with self.assertRaises(SystemExit):
            self.run_here('--objectives=gpt', '--gpt.reads=examples', *TWO)

    @parameterized.parameters(
        *(name for name in (*TABLE, *SUMS) if name not in LABELLED)
    )
    def test_every_row(self, objectives):
        printed, made = self.run_here(f'--objectives={objectives}', *TWO)
        self.assertEqual(printed, f'{self.output}\n')
        self.assertTrue(self.output.read_bytes().startswith(b'\x89PNG'))
        self.assertNotEmpty(made)
        for one_view in made:
            self.assertIn(one_view.title, views.VIEWS)
            self.assertNotEqual(one_view.title, 'joined')

    def test_one_mask_for_an_ngram(self):
        """The views of `dim` then, and no other's."""
        _, made = self.run_here('--objectives=infoword', '--dim.one_mask', *TWO)
        found = {one_view.title: one_view for one_view in made}
        self.assertEqual(set(found), {'masked', 'joined', 'ngrams'})
        joined, masked = (found[x].tokens for x in ('joined', 'masked'))
        text = ~found['joined'].left_over
        masks = [token == '[MASK]' for token in joined]
        self.assertEqual(sum(masks), len(found['ngrams'].starts))
        self.assertLess(sum(masks), masked.count('[MASK]'))
        self.assertEqual(
            sum(text), len(masked) - masked.count('[MASK]') + sum(masks)
        )
        _, made = self.run_here('--objectives=dim', '--dim.one_mask', *TWO)
        self.assertEqual(
            [one_view.title for one_view in made], ['joined', 'ngrams']
        )

    def test_text_begins_at_the_beginning(self):
        _, (made,) = self.run_here('--objectives=mlm', FOX)
        words = show.WordTokenizer([FOX]).vocabulary[5:]
        shown = [
            made.asked.get(place, token)
            for place, token in enumerate(made.tokens)
        ]
        self.assertEqual(shown[:4], ['[CLS]', *words[:3]])
        self.assertEqual(shown[-2:], ['.', '[SEP]'])

    def test_memory_is_what_was_read_before(self):
        _, (made,) = self.run_here(
            '--objectives=transformer_xl',
            '--memory_length=30',
            '--seq_len=16',
            FOX,
        )
        self.assertLen(made.memory, 30)
        self.assertEqual(made.content.shape, (16, 46))
        words = show.WordTokenizer([FOX])
        numbers = words.pieces([FOX.encode()]).ids
        text = [words.vocabulary[i] for i in numbers] + ['[SEP]']
        read = made.memory + made.tokens
        # Two steps of 16 and this one: tokens 2 to 47 of the text's circle.
        self.assertEqual(read, (text * 4)[2:48])
        _, (made,) = self.run_here(
            '--objectives=transformer_xl', '--memory_length=0', FOX
        )
        self.assertEqual(made.memory, [])

    def test_half_of_a_permuted_text_is_remembered(self):
        _, (made,) = self.run_here(
            '--objectives=plm', '--memory_length=12', '--seq_len=24', FOX
        )
        _, (before,) = self.run_here(
            '--objectives=plm', '--memory_length=0', '--seq_len=24', FOX
        )
        self.assertEqual(made.memory, before.tokens[:12])
        self.assertLen(made.queried, 4)

    def test_settings(self):
        _, (partial,) = self.run_here('--objectives=plm', '--plm.k=3', FOX)
        _, (strict,) = self.run_here(
            '--objectives=plm', '--plm.k=3', '--plm.order=strict', FOX
        )
        self.assertEqual(partial.asked, strict.asked)
        self.assertLen(partial.queried, len(partial.tokens) // 3)
        self.assertFalse(np.array_equal(partial.content, strict.content))

    def test_seed_and_length(self):
        _, (first,) = self.run_here('--objectives=mlm', '--seq_len=64', FOX)
        _, (again,) = self.run_here('--objectives=mlm', '--seq_len=64', FOX)
        _, (other,) = self.run_here(
            '--objectives=mlm', '--seq_len=64', '--seed=1', FOX
        )
        self.assertLen(first.tokens, 64)
        self.assertEqual(first.asked, again.asked)
        self.assertNotEqual(first.asked, other.asked)

    def test_a_long_text(self):
        """Without labels, and not every token."""
        self.run_here('--objectives=plm', '--seq_len=256', FOX)
        self.assertTrue(self.output.read_bytes().startswith(b'\x89PNG'))

    def test_a_workdir(self):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        make_config(
            masking='words', mlm={'transform': True}
        ).write(workdir)
        pieces = [*WORDS[:5], 'the', 'fo', '##x', '.']
        (workdir / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
        _, (made,) = self.run_here(
            f'--init={workdir}', 'The fox the fox. The fox.'
        )
        self.assertContainsSubset(
            {'the', 'fo', '##x'}, set(made.tokens)
        )
        _, (made,) = self.run_here(
            '--objectives=mlm', f'--vocab={workdir}/vocab.txt', FOX
        )
        self.assertIn('[UNK]', made.tokens)

    def test_settings_of_a_workdir(self):
        """Those of its run, where no others are given."""
        workdir = pathlib.Path(self.create_tempdir().full_path)
        make_config(plm={'k': 3, 'order': 'strict'}).write(workdir)
        words = [*WORDS[:5], *FOX.lower().replace(',', '').split()]
        (workdir / 'vocab.txt').write_text('\n'.join(dict.fromkeys(words)))
        given = f'--init={workdir}', '--seq_len=48'
        _, (made,) = self.run_here(*given, FOX)
        self.assertLen(made.queried, 48 // 3)
        same = '--objectives=plm', '--plm.k=3', '--plm.order=strict', *given
        _, (again,) = self.run_here(*same, FOX)
        np.testing.assert_array_equal(made.content, again.content)
        _, (other,) = self.run_here(*given, '--plm.order=partial', FOX)
        self.assertLen(other.queried, 48 // 3)
        self.assertFalse(np.array_equal(made.content, other.content))
        _, (other,) = self.run_here(*given, '--plm.k=4', FOX)
        self.assertLen(other.queried, 48 // 4)

    def test_a_sentencepiece_workdir(self):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        pieces = SentencePiece.learn([FOX, *TWO], 60)
        pieces.write(workdir / pieces.file)
        make_config('sentencepiece', mlm={'transform': False}).write(workdir)
        for given in (
            f'--init={workdir}',
            f'--vocab={workdir}/{pieces.file}',
        ):
            _, (made,) = self.run_here('--objectives=mlm', given, FOX)
            self.assertContainsSubset(
                {'[CLS]', '[SEP]', '[MASK]'}, set(made.tokens)
            )
            self.assertTrue(any(t[0] == '\u2581' for t in made.tokens))

    @parameterized.parameters(
        ([], 'objectives is missing'),
        (['--objectives=nothing', FOX], "no row 'nothing'"),
        (['--objectives=mlm'], 'two words or more'),
        (['--objectives=mlm', '--plm.k=3', FOX], '--plm.k is for plm, not f'),
        (['--objectives=dim', '--masking=tokens', FOX], 'not for dim, which'),
        (['--objectives=plm', '--seq_len=25', FOX], 'seq_len=25.*even'),
        (['--objectives=plm', '--plm.k=99', '--seq_len=32', FOX], 'k 99: .*t'),
        (['--objectives=mlm', '--memory_length=5', FOX], 'has no memory'),
        (['--init=nowhere', FOX], 'nowhere has no config.json'),
        (['--init=a', '--vocab=b', '--objectives=mlm', FOX], 'out --vocab'),
    )
    def test_complaints(self, given, message):
        err = io.StringIO()
        with (
            contextlib.redirect_stderr(err),
            self.assertRaises(SystemExit) as caught,
        ):
            self.run_here(*given)
        self.assertEqual(caught.exception.code, 1)
        self.assertRegex(err.getvalue(), f'^error: .*({message})')
        self.assertFalse(self.output.exists())

    def test_the_command(self):
        """In a process of its own, where TensorFlow is not imported."""
        code = (
            'import runpy, sys; '
            f"sys.argv = ['show', '--objectives=mlm', {FOX!r}, "
            f"'--output={self.output}']; "
            'import atexit; '
            "atexit.register(lambda: print('tensorflow' in sys.modules)); "
            "runpy.run_module('infoword_tf.show', run_name='__main__')"
        )
        done = subprocess.run(
            [sys.executable, '-c', code],
            cwd=ROOT,
            env={'PATH': '', 'PYTHONPATH': str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.stdout, f'{self.output}\nFalse\n', done.stderr)


if __name__ == '__main__':
    absltest.main()
