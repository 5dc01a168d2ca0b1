"""A run that was stopped, killed or damaged goes on as if nothing had been."""

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import signal
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import checkpoint, errors, files
from infoword_tf.choices import RunChoices
from infoword_tf.config import TokenizerConfig
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.training import loop, optim, record
from tests import places, quick, runs
from tests.near import assert_near
from tests.refused import refused
from tests.runs import arguments, python, records, run_here, untimed, weights


def setUpModule():
    runs.set_up()


@functools.cache
def finished():
    """The workdir of a run, to be copied."""
    workdir = places.make(cache=False) / 'run'
    run_here(workdir, '--steps=4')
    return workdir


class CleanTest(places.Folder, absltest.TestCase):
    def test_what_is_seen_of_a_good_run(self):
        """Ours alone, and what XLA says once: that it compiled.

        XLA heeds no level of messages that could be set beforehand. In Python,
        and then of the command.
        """
        code = (
            'import runpy, sys, infoword_tf\n'
            'model = infoword_tf.load(sys.argv.pop(1))\n'
            'model.encode(["a text"], progress=False)\n'
            'runpy.run_module("infoword_tf.train", run_name="__main__")'
        )
        environment = dict(os.environ)
        del environment['TF_CPP_MIN_LOG_LEVEL']  # of all tests
        flags = arguments(self.folder, '--objectives=mlm', '--steps=1')
        done = python('-c', code, finished(), *flags, env=environment)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, output)
        once = re.compile(
            r'WARNING: All log messages before absl::InitializeLog.*\n'
            r'I\d{4} .*Compiled cluster using XLA!.*\n'
        )
        self.assertNotRegex(
            once.sub('', output, 1),
            r'WARNING|Warning|AutoGraph|(?i:xla)|tensorflow|[IWEF]\d{4} ',
        )


class DamageTest(places.Folder, absltest.TestCase):

    def setUp(self):
        super().setUp()
        self.workdir = self.folder / 'run'
        shutil.copytree(finished(), self.workdir)

    def test_a_run_that_is_older_than_a_choice(self):
        """It was as it is by default, and once it has ended it stays."""
        path = self.workdir / 'config.json'
        config = json.loads(path.read_text())
        for name in ('layer_decay', 'pair_weights', 'bert_nce.drop_hits'):
            del config['run'][name]
        path.write_text(json.dumps(config))
        files_of = ('config.json', 'flags.txt', 'weights.safetensors')
        before = [(self.workdir / name).read_bytes() for name in files_of]
        run_here(self.workdir, '--steps=4')
        after = [(self.workdir / name).read_bytes() for name in files_of]
        self.assertEqual(before, after)
        for more, value in (
            ('--layer_decay=0.5', 'layer_decay was 1.0, is 0.5'),
            ('--bert_nce.drop_hits', 'drop_hits was False, is True'),
        ):
            with refused('run_other_flags', value):
                run_here(self.workdir, '--steps=4', more)

    def test_a_cut_checkpoint_is_skipped_and_said(self):
        before = weights(self.workdir)
        newest = sorted((self.workdir / 'checkpoints').iterdir())[-1]
        data = newest.read_bytes()
        newest.write_bytes(data[: len(data) // 2])
        log = run_here(self.workdir, '--steps=4')
        self.assertRegex(log, 'skipped a damaged checkpoint: .*step-000000004')
        self.assertRegex(log, 'resuming from .*step 2')
        self.assertEqual(weights(self.workdir), before)

    def test_all_checkpoints_cut(self):
        for path in (self.workdir / 'checkpoints').iterdir():
            path.write_bytes(b'\x10')
        with refused('unreadable_checkpoints', 'step-000000004'):
            run_here(self.workdir, '--steps=4')

    def test_other_flags_are_listed(self):
        with refused(
            'run_other_flags', '--optimizer was infoword, is transformer_xl',
            '--weight_decay was 0.01, is 0.0; --clip_norm was 1.0, is 0.25',
        ):  # fmt: skip
            run_here(self.workdir, '--steps=4', '--optimizer=transformer_xl')
        # What changes no weight may differ, and so may the spelling.
        run_here(
            self.workdir, '--steps=4', '--log_every=2', '--masking=spans',
            '--objectives=bert_nce:1.0', '--precision=auto',
            '--weight_decay=0.01',
        )  # fmt: skip

    def test_two_runs_on_one_workdir(self):
        with (
            files.locked(self.workdir),
            self.assertRaisesRegex(RuntimeError, 'another run is writing'),
        ):
            run_here(self.workdir, '--steps=4')

    def test_a_full_disk_while_saving_loses_nothing(self):
        before = {
            path.name: path.read_bytes()
            for path in (self.workdir / 'checkpoints').iterdir()
        }
        workdir = self.workdir.parent / 'full'
        real = files.os.replace

        def full(source, target):
            if 'step-000000004' in str(target):
                raise OSError(errno.ENOSPC, 'No space left on device')
            real(source, target)

        with (
            mock.patch.object(files.os, 'replace', full),
            self.assertRaisesRegex(
                OSError, 'step-000000004.*No space left.*make room'
            ),
        ):
            run_here(workdir, '--steps=4')
        self.assertEqual(
            [path.name for path in (workdir / 'checkpoints').iterdir()],
            ['step-000000002.safetensors'],
        )
        run_here(workdir, '--steps=4')
        for name, data in before.items():
            self.assertEqual(
                (workdir / 'checkpoints' / name).read_bytes(), data
            )


class WeightsTest(places.Folder, absltest.TestCase):
    """weights.safetensors is the last checkpoint, whenever a run stopped."""

    def test_a_kill_between_the_checkpoint_and_the_weights(self):
        workdir = self.folder / 'run'
        real = checkpoint.write_weights

        def killed(folder, tensors, step):
            if step == 4:
                raise KeyboardInterrupt
            real(folder, tensors, step)

        with (
            mock.patch.object(checkpoint, 'write_weights', killed),
            self.assertRaises(KeyboardInterrupt),
        ):
            run_here(workdir, '--steps=4')
        self.assertEqual(checkpoint.weights_step(workdir), 2)
        self.assertEqual(checkpoint.last_step(workdir), 4)
        run_here(workdir, '--steps=4')  # there is nothing left to train
        self.assertEqual(checkpoint.weights_step(workdir), 4)
        actual = files.read_tensors(workdir / 'weights.safetensors')
        last = files.read_tensors(
            workdir / 'checkpoints' / 'step-000000004.safetensors'
        )
        del actual['unigram'], actual['step']
        assert_near(last, {f'model/{path}': x for path, x in actual.items()})

    def test_cut_weights_are_written_anew(self):
        workdir = self.folder / 'run'
        run_here(workdir, '--steps=2')
        whole = weights(workdir)
        (workdir / 'weights.safetensors').write_bytes(whole[:-100])
        run_here(workdir, '--steps=2')
        self.assertEqual(weights(workdir), whole)


class FlagsTest(parameterized.TestCase):
    @parameterized.parameters(
        *(('transformer_xl', name, {name: value}) for name, value in (
            ('objectives', 'transformer_xl:2'), ('positions', 1024),
            ('dropout', 0.5), ('activation', 'gelu_erf'), ('untie', False),
            ('clamp', 7), ('same_length', True), ('memory_length', 3),
            ('warmup_steps', 2), ('precision', 'mixed_bfloat16'),
            ('tokenizer', 'sentencepiece'), ('lower_case', False),
            ('vocab_size', 700), ('size', 'mini'),
        )),
        *((row, name, {'settings': {flag: value}})
          for row, name, flag, value in (
            ('mlm', 'mlm.transform', 'mlm.transform', True),
            ('bert_nce', 'bert_nce.drop_hits', 'bert_nce.drop_hits', True),
            ('dim', 'dim.critic', 'dim.critic', 'cosine'),
            ('plm', 'plm.k', 'permuted.k', 5),  # by row
        )),
        ('mlm', 'masking', {'masking': 'words'}),
        ('mlm', 'mask_share', {'mask_share': 0.3}),
        ('ict', 'encoder', {'encoder': 'lookup'}, True),
    )  # fmt: skip
    def test_what_flags_lead_to_is_compared(
        self, row, name, chosen, has_arguments=False
    ):
        """By the choices of a run: each alone changes the record."""

        def written(objectives=row, **chosen):
            kinds = ModelChoices, TokenizerConfig
            model, tokenizer = (
                {k: v for k, v in chosen.items()
                 if k in kind.__dataclass_fields__} for kind in kinds
            )  # fmt: skip
            kind = chosen.get('tokenizer', 'wordpiece')
            config = resolve(
                ModelChoices(objectives, seq_len=64, **model)
            ).config(
                chosen.get('vocab_size', 600),
                TokenizerConfig(kind, **{'lower_case': True, **tokenizer}),
                chosen.get('precision', 'float32'),
            )
            warmup = chosen.get('warmup_steps', 1)
            return record.run_record(
                RunChoices(), config, 'text', 'pieces',
                more={'warmup_steps': warmup},
            )  # fmt: skip

        one, two = written(), written(**chosen)
        different = {k for k in one if one[k] != two[k]}
        if has_arguments:
            different &= {name}
        self.assertEqual(different, {name})


class ExactResumeTest(places.Folder, parameterized.TestCase):
    """Stopped at a step and gone on with: the same bytes, of every kind."""

    @parameterized.named_parameters(
        # At such a rate the best weights are the first, not the last.
        ('mixed', '--objectives=bert_nce:1,ict:1', '--best', '--eval_every=1',
         '--precision=mixed_bfloat16', '--learning_rate=10',
         '--warmup_steps=1000', '--shuffle_block=300'),
        ('directions', '--objectives=elmo', '--precision=mixed_bfloat16'),
    )  # fmt: skip
    def test_the_same_bytes(self, *more):
        folder = self.folder

        def go_on(name):
            run_here(
                folder / name, '--steps=2', '--checkpoint_every=1',
                '--seq_len=16', *more,
            )  # fmt: skip

        with quick.copy_before(folder / 'complete', folder / 'broken', at=2):
            go_on('complete')
        self.assertEqual(checkpoint.last_step(folder / 'broken'), 1)
        go_on('broken')
        for name in ('weights', 'checkpoints/step-000000002'):
            complete, broken = (
                (folder / run / f'{name}.safetensors').read_bytes()
                for run in ('complete', 'broken')
            )
            self.assertEqual(complete, broken)
        step = 1 if '--best' in more else 2
        self.assertEqual(checkpoint.weights_step(folder / 'broken'), step)
        complete, broken = (untimed(folder / x) for x in ('complete', 'broken'))
        self.assertEqual(complete, broken)
        seconds = [r['seconds'] for r in records(folder / 'broken')]
        self.assertEqual(seconds, sorted(seconds), 'they never fall')


BERT = '--encoder=transformer'  # its loss breaks before its gradients do


class NonFiniteTest(places.Folder, absltest.TestCase):
    @contextlib.contextmanager
    def broken(self, *steps):
        """A learning rate of 1e30 in some updates."""
        real = optim.schedule

        def schedule(step, *rest, **more):
            bad = [tf.where(tf.equal(step, x), 1e30, 0.0) for x in steps]
            return real(step, *rest, **more) + tf.add_n(bad)

        with mock.patch.object(optim, 'schedule', schedule):
            yield

    def test_the_run_goes_around_what_is_not_finite(self):
        """Update 5 breaks update 6: on with 7 from the weights of step 4."""
        asked = '--steps=7', '--keep_checkpoints=3', BERT
        broken, by_hand, copy = map(
            self.folder.joinpath, ('broken', 'by_hand', 'copy')
        )
        with self.broken(4):
            shown = run_here(broken, *asked, '--on_nonfinite=rewind')
        self.assertIn(
            'step 6: bert_nce is not finite; on with step 7 from the weights '
            'of step 4 (1 of 3)',
            shown,
        )
        # By hand: the checkpoint of step 4, called that of step 6.
        with quick.copy_before(by_hand, copy, 6):
            run_here(by_hand, *asked)
        saved = copy / 'checkpoints'
        self.assertEqual(checkpoint.last_step(copy), 4)
        tensors = files.read_tensors(saved / 'step-000000004.safetensors')
        tensors['step'] = np.asarray(6, np.int64)
        files.write_tensors(saved / 'step-000000006.safetensors', tensors)
        run_here(copy, *asked)
        self.assertEqual(weights(copy), weights(broken))
        actual = [(r['step'], r.get('rewinds')) for r in records(broken)]
        self.assertEqual(actual, [(n, None) for n in range(1, 5)] + [(7, 1)])
        # What was saved before the checkpoint of step 4 is there still, and
        # that one is no other than the one of step 6.
        left = (broken / 'checkpoints').glob('step*')
        self.assertEqual(sorted(x.name[-13] for x in left), ['2', '6', '7'])

    def test_not_more_often_than_is_asked(self):
        """Nor where there is no checkpoint, or no batch after it."""
        again = '--steps=9', '--on_nonfinite=rewind', '--rewinds=1'
        for broken, more, step, why in (
            ((2, 4), again, 6, 'has gone back 1 times'),
            ((0,), again, 2, 'there is no checkpoint'),
            ((4,), ('--steps=6', again[1]), 6, 'there is no batch after it'),
        ):
            with (
                self.broken(*broken),
                self.assertRaisesRegex(
                    loop.NonFiniteLoss, f'^step {step}: .*, since .*{why}'
                ),
            ):
                run_here(self.folder / '_'.join(map(str, broken)), *more)
        # The same command goes on from there, and knows how often it was.
        with (
            self.broken(4),
            self.assertRaisesRegex(loop.NonFiniteLoss, 'gone back 1 times'),
        ):
            run_here(self.folder / '2_4', *again)


class PreemptedTest(places.Folder, absltest.TestCase):
    """SIGTERM: the state is saved, and the exit status says go on."""

    def test_it_goes_on_to_the_same_weights(self):
        folder = self.folder
        real, steps = checkpoint.Metrics.append, ('--steps=5',)

        def append(metrics, one):
            real(metrics, one)
            if one['step'] == 3:
                os.kill(os.getpid(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        with (
            mock.patch.object(checkpoint.Metrics, 'append', append),
            self.assertRaisesRegex(errors.Preempted, 'from step 3'),
        ):
            run_here(folder / 'stopped', *steps)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)
        self.assertEqual(checkpoint.last_step(folder / 'stopped'), 3)
        shown = run_here(folder / 'stopped', *steps)
        self.assertRegex(shown, r'resuming from .*step 3\)')
        run_here(folder / 'whole', *steps)
        self.assertEqual(weights(folder / 'whole'), weights(folder / 'stopped'))

    def test_a_step_without_an_end(self):
        """After the time there is the process ends, saved or not."""
        code = (
            'import ctypes, os, signal\n'
            'from infoword_tf.training import fit\n'
            'with fit.stop_on_sigterm(0.2) as asked:\n'
            '    os.kill(os.getpid(), signal.SIGTERM)\n'
            '    print(asked.is_set(), flush=True)\n'
            '    ctypes.CDLL(None).sleep(600)\n'  # no Python meanwhile
        )
        done = python('-c', code, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (42, 'True\n'))
        self.assertRegex(done.stderr, r'SIGTERM, 0\.2 s .* without saving: ')
