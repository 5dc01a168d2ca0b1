"""Several processes as one: workers that stop, resume and end together."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf import commands, files
from infoword_tf.training import distribution
from tasks import distill, finetune
from tests import places, runs, zoo
from tests.near import assert_near
from tests.refused import refused

NO_SERVER = 'Could not start gRPC server'  # of TensorFlow: the port is taken
# Memory of each replica's rows, and an end that the chief alone sees coming.
FLAGS = (
    '--objectives=transformer_xl', '--dropout=0', '--steps=24',
    '--eval_every=1', '--checkpoint_every=24', '--best',
    '--patience_evals=24', '--batch_size=8',
)  # fmt: skip


def setUpModule():
    runs.set_up()


def start(*words):
    """Starts two workers with a module and flags; returns the launcher."""
    return subprocess.Popen(
        [sys.executable, '-m', 'tests.workers', '--workers=2', '--', *words],
        cwd=runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def train(workdir, signalled=None, *more):
    """Runs two workers; returns status and output.

    Args:
        workdir: of the run.
        signalled: a signal to the second worker after the second step.
        *more: flags after FLAGS.
    """
    for _ in range(3):  # until both ports are still free
        shown = ''
        with start(
            'tests.quick', '--graphs',
            *runs.arguments(workdir, '--strategy=multiworker', *FLAGS, *more),
        ) as launcher:  # fmt: skip
            for line in launcher.stdout:
                shown += line
                if signalled and '[0] step 2/' in line:
                    second = re.search(r'worker 1: process (\d+)', shown)[1]
                    os.kill(int(second), signalled)
            launcher.wait()
        if NO_SERVER not in shown:
            break
    return launcher.returncode, shown


class RunTest(places.Folder, absltest.TestCase):
    def test_two_workers_stop_and_go_on_as_one_device(self):
        status, shown = train(self.folder / 'two', signal.SIGTERM)
        self.assertEqual(status, 42, shown)
        for worker in range(2):
            self.assertRegex(
                shown, rf'\[{worker}\] stopped by SIGTERM: the same command '
                r'goes on from step \d+\n',
            )  # fmt: skip
        status, shown = train(self.folder / 'two')
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, r'\[1\] resuming from .*step-0000000\d\d')
        self.assertNotIn('starts empty', shown)
        runs.run_here(self.folder / 'one', *FLAGS)
        self.assertEqual(
            {path.name for path in (self.folder / 'two').iterdir()},
            {path.name for path in (self.folder / 'one').iterdir()},
        )
        two, one = (runs.untimed(self.folder / name) for name in ('two', 'one'))
        self.assertLen(one, 24)
        for ours, alone in zip(two, one, strict=True):
            for name, value in alone.items():
                self.assertAlmostEqual(ours[name], value, delta=1e-4)
        weights, alone = (
            files.read_tensors(self.folder / name / 'weights.safetensors')
            for name in ('two', 'one')
        )
        assert_near(weights, alone, rtol=1e-7, atol=1e-4)

    def test_a_worker_that_is_killed(self):
        """None waits for it: all end, and say what to do."""
        row = '--objectives=cbow'
        status, shown = train(self.folder / 'run', signal.SIGKILL, row)
        self.assertEqual(status, 42, shown)
        self.assertIn('worker 1 ended with -9', shown)
        self.assertRegex(
            shown, r'\[0\] stopped (since another worker is gone: start the '
            'same command on all|by SIGTERM: the same command goes on)',
        )  # fmt: skip
        self.assertNotIn('Traceback', shown)


class TasksTest(absltest.TestCase):
    def test_one_worker_says_what_was_learned(self):
        strategy = zoo.strategy(1)
        prepared = mock.Mock()
        prepared.labelled.shared.strategy = strategy
        finetune.leave_to_chief(prepared)
        with mock.patch.object(
            distribution, 'is_chief', return_value=False
        ), self.assertRaises(SystemExit) as left:
            finetune.leave_to_chief(prepared)
        self.assertEqual(left.exception.code, 0)

    def test_several_models_are_of_one_machine(self):
        with refused('multiworker_makes_models', '--strategy=multiworker'):
            distill.run(strategy='multiworker')


class AgreementTest(absltest.TestCase):
    def gather_numbers(self, *others):
        """Patches the exchange with another process that has these numbers."""
        others = iter(others)

        def exchanged(strategy, *numbers):
            return np.asarray([numbers, next(others) or numbers])

        return mock.patch.object(distribution, 'gather_numbers', exchanged)

    def test_any(self):
        with self.gather_numbers((0, 1, 0)):
            self.assertEqual(
                distribution.any_process(None, True, False, False),
                (True, True, False),
            )

    def test_alone(self):
        strategy = zoo.strategy(2)
        self.assertEqual(
            distribution.any_process(strategy, True, False), (True, False)
        )
        self.assertEqual(distribution.local_replicas(strategy), [0, 1])
        self.assertEmpty(distribution.differing(strategy, {'a': 1}))

    def test_what_differs(self):
        record = {'text': 'a', 'seed': 1, 'steps': 3}
        with self.gather_numbers(None, None):
            self.assertEmpty(distribution.differing(None, record))
        note = mock.Mock(side_effect=lambda _, *numbers: np.array([numbers]))
        with mock.patch.object(distribution, 'gather_numbers', note):
            distribution.differing(None, {**record, 'seed': 2, 'text': 'b'})
        _, *numbers = note.mock_calls[1].args
        with self.gather_numbers(None, numbers):
            self.assertEqual(
                distribution.differing(None, record), ['seed', 'text']
            )
        with self.gather_numbers((5,)):
            (actual,) = distribution.differing(None, record)
            self.assertIn('code is not the same', actual)


class TogetherTest(absltest.TestCase):
    def test_who_fails_says_so_and_others_end_too(self):
        disk = self.assertRaisesRegex(OSError, 'full')
        for fails, expected in (True, disk), (False, refused(
            'other_worker_failed'
        )):  # fmt: skip
            answer = mock.Mock(return_value=(True,))
            with (
                mock.patch.object(distribution, 'any_process', answer),
                expected, distribution.failing_together(None),
            ):  # fmt: skip
                if fails:
                    raise OSError('the disk is full')
            answer.assert_called_once_with(None, fails)


class LostTest(absltest.TestCase):
    def test_other_errors_stay(self):
        import tensorflow as tf

        for error, expected in (
            (tf.errors.UnavailableError(None, None, 'x'), 42),
            (tf.errors.InternalError(
                None, None, 'Collective ops is aborted by: y'), 42),
            (tf.errors.InternalError(None, None, 'z'), None),
        ):  # fmt: skip

            def fail(error=error):
                with distribution.ended_by_lost_workers():
                    raise error

            if expected is None:
                with self.assertRaises(tf.errors.InternalError):
                    fail()
                continue
            stderr = io.StringIO()
            with contextlib.redirect_stderr(stderr), self.assertRaises(
                SystemExit
            ) as left:
                commands.guard(fail, [''])
            self.assertEqual(left.exception.code, expected)
            self.assertEqual(
                stderr.getvalue(),
                'stopped since another worker is gone: start the same command '
                'on all\n',
            )
