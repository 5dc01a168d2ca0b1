"""What a user can mend is one sentence: what, where, what to do."""

import contextlib
import functools
import io
import pathlib
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import commands
from infoword_tf.choices import RunChoices
from tasks import bm25
from tests import runs
from tests.runs import arguments, run, run_here


def setUpModule():
    runs.set_up()


class BadInputTest(parameterized.TestCase):
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
    )
    def test_one_sentence(self, flag, message):
        workdir = self.create_tempdir().full_path
        with self.assertRaisesRegex(
            (commands.UsageError, ValueError, OSError), message
        ):
            run_here(workdir, flag)

    def test_a_missing_package_names_its_extra(self):
        said = (
            'search by words, BM25, needs Stemmer (import of Stemmer halted; '
            "None in sys.modules): pip install 'infoword_tf[tasks]'"
        )
        with (
            mock.patch.dict(sys.modules, {'Stemmer': None}),
            self.assertRaisesWithLiteralMatch(commands.UsageError, said),
        ):
            bm25.library.__wrapped__()

    @parameterized.named_parameters(
        ('unknown_flag', ('--stepps=3',), 'stepps'),
        ('temperature', ('--dim.temperature=0',), 'dim.temperature'),
        ('old_name', ('--critic=dot',), 'critic'),
        ('flag_value', ('--strategy=many',), 'mirrored'),
    )
    def test_flags_say_what_is_wrong_with_them(self, more, message):
        with self.assertRaisesRegex(commands.UsageError, message):
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
        shown = io.StringIO()
        with (
            contextlib.redirect_stderr(shown),
            self.assertRaises(SystemExit) as raised,
        ):
            commands.guard(infoword_tf.train, ['train', 'tiny'])
        self.assertEqual(raised.exception.code, 1)
        self.assertEqual(
            shown.getvalue(),
            "error: 'tiny' is no flag; flags begin with --\n",
        )

    @parameterized.parameters(
        MemoryError(), tf.errors.ResourceExhaustedError(None, None, 'OOM')
    )
    def test_too_little_memory(self, error):
        def greedy():
            raise error

        shown = io.StringIO()
        with (
            contextlib.redirect_stderr(shown),
            self.assertRaises(SystemExit) as raised,
        ):
            commands.guard(greedy, ['train'])
        self.assertEqual(raised.exception.code, 1)
        self.assertRegex(
            shown.getvalue(), r'\Aerror: [^\n]*lower --batch_size[^\n]*\n\Z'
        )

    def test_other_errors_are_seen_whole(self):
        def broken():
            raise KeyError('a fault of ours')

        with self.assertRaises(KeyError):
            commands.guard(broken, ['train'])

    def test_ctrl_c(self):
        def interrupted():
            raise KeyboardInterrupt

        shown = io.StringIO()
        with (
            contextlib.redirect_stderr(shown),
            self.assertRaises(SystemExit) as raised,
        ):
            commands.guard(interrupted, ['train'], stopped='it goes on')
        self.assertEqual(raised.exception.code, 130)
        self.assertEqual(shown.getvalue(), '\nstopped; it goes on\n')

    def test_workdir_is_missing(self):
        with self.assertRaisesRegex(
            commands.UsageError, '--workdir is missing'
        ):
            infoword_tf.train()

    @parameterized.named_parameters(
        (
            'masking',
            ('--objectives=infoword', '--masking=words'),
            'masking words is not for bert_nce, which masks spans',
        ),
        (
            'masking_of_dim',
            ('--objectives=dim', '--masking=tokens'),
            'masking tokens is not for dim, which masks spans',
        ),
        (
            'critic',
            ('--dim.critic=dot',),
            '--dim.critic is for dim, not for --objectives=bert_nce',
        ),
        (
            'critic_of_a_row_of_weight_0',
            ('--objectives=bert_nce:1,dim:0', '--dim.critic=scaled'),
            '--dim.critic is for dim, not for',
        ),
        (
            'temperature',
            ('--objectives=infoword', '--dim.temperature=0.1'),
            '--dim.temperature is for --dim.critic=cosine',
        ),
        (
            'temperature_of_another_critic',
            (
                '--objectives=dim',
                '--dim.critic=scaled',
                '--dim.temperature=0.1',
            ),
            '--dim.temperature is for --dim.critic=cosine',
        ),
        (
            'one_sequence',
            ('--objectives=dim', '--batch_size=1'),
            'the candidates of dim come from other sequences.*take 2',
        ),
    )
    def test_of_dim(self, more, message):
        """One sentence, and exit status 1."""
        workdir = self.create_tempdir().full_path
        shown = io.StringIO()
        chosen = commands.parse(RunChoices, arguments(workdir, *more))
        with (
            contextlib.redirect_stderr(shown),
            self.assertRaises(SystemExit) as raised,
        ):
            run = functools.partial(infoword_tf.train, **chosen)
            commands.guard(run, ['train'])
        self.assertEqual(raised.exception.code, 1)
        self.assertRegex(shown.getvalue(), r'\Aerror: [^\n]+\n\Z')
        self.assertRegex(shown.getvalue(), message)

    def test_vocabularies(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'vocab.txt'
        path.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n')
        with self.assertRaisesRegex(ValueError, r'lacks \[MASK\]'):
            run_here(folder / 'run', f'--vocab={path}')
        path.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n')
        with self.assertRaisesRegex(ValueError, 'line 6 and again on line 8'):
            run_here(folder / 'run', f'--vocab={path}')

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
