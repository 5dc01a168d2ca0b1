"""What a user can mend is one sentence: what, where, what to do."""

import contextlib
import io
import pathlib
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import commands, errors
from infoword_tf.choices import RunChoices
from tasks import bm25
from tests import places, runs
from tests.runs import run, run_here


def setUpModule():
    runs.set_up()


class BadInputTest(places.Folder, parameterized.TestCase):
    def stderr_of(self, status, function, argv=('train',), **more):
        """Returns the standard error of a command that ends with a status."""
        with (
            contextlib.redirect_stderr(io.StringIO()) as shown,
            self.assertRaises(SystemExit) as raised,
        ):
            commands.guard(function, [*argv], **more)
        self.assertEqual(raised.exception.code, status)
        return shown.getvalue()

    @parameterized.named_parameters(
        ('no_files', '--corpus=text:/nowhere/*.txt', '/nowhere/'),
        ('no_kind', '--corpus=wikipedia', 'pydocs'),
        ('no_heldout_files', '--heldout=/nowhere/*.txt', '/nowhere/'),
        ('row', '--objectives=berta', "no row 'berta'.*bert_nce"),
        ('weight', '--objectives=mlm:x', "'x' is no weight"),
        ('negative', '--objectives=mlm:-1', 'weights are 0 or more'),
        ('all_zero', '--objectives=mlm:0,bert_nce:0', 'every weight is 0'),
        ('twice', '--objectives=mlm,mlm', 'twice'),
        ('size', '--size=huge', 'tiny, mini, small'),
        ('encoder', '--encoder=lookup', 'bert_nce allows transformer'),
        ('masking', '--masking=words', 'bert_nce, which masks spans'),
        ('length', '--seq_len=600', '512 positions'),
        ('one_sequence', '--batch_size=1', 'take 2 or more'),
        ('transform', '--mlm.transform', '--mlm.transform is for mlm, not'),
        ('vocab', '--vocab=/nowhere/vocab.txt', 'no such vocabulary'),
        ('batch', '--batch_size=100000', 'a batch takes 100000'),
        ('init', '--init=/nowhere', 'not the workdir of a run'),
        ('vocab_size', '--vocab_size=5', 'no room'),
        ('nan', '--learning_rate=nan', '--learning_rate=nan is no finite'),
        ('sum', '--objectives=bert:1,dim:1', 'sum mlm:1,nsp:1 and stands'),
        ('logical', '--logical_cpus=2', 'is for --strategy=mirrored'),
        ('masking_of_infoword', '--objectives=infoword --masking=words',
         'masking words is not for bert_nce, which masks spans'),
        ('masking_of_dim', '--objectives=dim --masking=tokens',
         'masking tokens is not for dim, which masks spans'),
        ('critic', '--dim.critic=dot',
         '--dim.critic is for dim, not for --objectives=bert_nce'),
        ('critic_of_a_row_of_weight_0',
         '--objectives=bert_nce:1,dim:0 --dim.critic=scaled',
         '--dim.critic is for dim, not for'),
        ('temperature', '--objectives=infoword --dim.temperature=0.1',
         '--dim.temperature is for --dim.critic=cosine'),
        ('temperature_of_another_critic',
         '--objectives=dim --dim.critic=scaled --dim.temperature=0.1',
         '--dim.temperature is for --dim.critic=cosine'),
        ('one_sequence_of_dim', '--objectives=dim --batch_size=1',
         'the candidates of dim come from other sequences.*take 2'),
    )  # fmt: skip
    def test_one_sentence(self, typed, message):
        workdir = self.create_tempdir().full_path
        printed = self.stderr_of(1, lambda: run_here(workdir, *typed.split()))
        printed = printed.rpartition('tokens/s]\n')[2]  # behind a progress bar
        self.assertRegex(printed, r'\Aerror: [^\n]+\n\Z')
        self.assertRegex(printed, message)

    def test_a_missing_package_names_its_extra(self):
        printed = (
            'search by words, BM25, needs bm25s (import of bm25s halted; '
            "None in sys.modules): pip install 'infoword_tf[tasks]'"
        )
        with (
            mock.patch.dict(sys.modules, {'bm25s': None}),
            self.assertRaisesWithLiteralMatch(errors.UsageError, printed),
        ):
            bm25.library.__wrapped__()

    @parameterized.named_parameters(
        ('unknown_flag', ('--stepps=3',), 'stepps'),
        ('temperature', ('--dim.temperature=0',), 'dim.temperature'),
        ('old_name', ('--critic=dot',), 'critic'),
        ('flag_value', ('--strategy=many',), 'mirrored'),
    )
    def test_flags_say_what_is_wrong_with_them(self, more, message):
        with self.assertRaisesRegex(errors.UsageError, message):
            commands.parse(RunChoices, more)

    def test_the_command_says_it_and_fails(self):
        """In a process of its own: nothing but a sentence is seen."""
        status, output = run(
            self.create_tempdir().full_path,
            '--strategy=mirrored',
            '--logical_cpus=3',
        )
        self.assertEqual(status, 1)
        self.assertEqual(
            output,
            'error: --batch_size=8 cannot be shared by 3 replicas; take a '
            'multiple of 3\n',
        )

    def test_a_word_that_is_no_flag(self):
        self.assertEqual(
            self.stderr_of(1, infoword_tf.train, ['train', 'tiny']),
            "error: 'tiny' is no flag; flags begin with --\n",
        )

    @parameterized.parameters(
        MemoryError(), tf.errors.ResourceExhaustedError(None, None, 'OOM')
    )
    def test_too_little_memory(self, error):
        self.assertRegex(
            self.stderr_of(1, mock.Mock(side_effect=error)),
            r'\Aerror: [^\n]*lower --batch_size[^\n]*\n\Z',
        )

    def test_other_errors_are_seen_whole(self):
        broken = mock.Mock(side_effect=KeyError('a fault of ours'))
        with self.assertRaises(KeyError):
            commands.guard(broken, ['train'])

    def test_ctrl_c(self):
        interrupted = mock.Mock(side_effect=KeyboardInterrupt)
        printed = self.stderr_of(130, interrupted, stopped='it goes on')
        self.assertEqual(printed, '\nstopped; it goes on\n')

    def test_workdir_is_missing(self):
        with self.assertRaisesRegex(
            errors.UsageError, '--workdir is missing'
        ):
            infoword_tf.train()

    def test_vocabularies(self):
        path = self.folder / 'vocab.txt'
        begin = '[PAD]\n[UNK]\n[CLS]\n[SEP]\n'
        for more, message in (
            ('a\n', r'lacks \[MASK\]'),
            ('[MASK]\na\nb\na\n', 'line 6 and again on line 8'),
        ):
            path.write_text(begin + more)
            with self.assertRaisesRegex(ValueError, message):
                run_here(self.folder / 'run', f'--vocab={path}')

    def test_corpora(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'text.txt'
        for data, message in (
            (b'', 'no '),
            (b'abc\x00def' * 100, 'binary'),
            (b'Some words.\n' * 10 + b'caf\xe9\n', 'offset 123'),
            (b'One document alone, no other. ' * 500, 'held-out'),
        ):
            path.write_bytes(data)
            with self.assertRaisesRegex(ValueError, message):
                run_here(folder / 'run', f'--corpus=text:{path}', '--heldout=')
