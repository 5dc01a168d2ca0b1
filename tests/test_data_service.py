"""Batches that others make are the run's own, whoever of them is killed."""

import contextlib
import io
import pathlib
import signal
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.data import service
from infoword_tf.data.batches import Batches, open_sources
from infoword_tf.resolve import ModelChoices, resolve
from tests import runs, zoo
from tests.refused import refused


def setUpModule():
    runs.set_up()


def batches(objectives='mlm', seed=0, batch_size=6):
    plan = resolve(
        ModelChoices(objectives, seq_len=24, batch_size=batch_size)
    ).plan
    sources = open_sources(zoo.make_store(), plan, batch_size, seed)
    return Batches(sources, plan, zoo.SPECIALS, seed)


class ServiceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.printed = io.StringIO()
        self.enterContext(contextlib.redirect_stderr(self.printed))
        self.asked = []

    def serve(self, maker, address='localhost:0'):
        """Serves until the test ends; steps asked for are noted."""
        flat = maker.views

        def noted(step):
            self.asked.append(step)
            return flat(step)

        server, port = service.serve(maker, b'x' * 16, address)
        maker.views = noted
        self.addCleanup(server.stop, None)
        return server, f'localhost:{port}'

    def served(self, addresses, *more, **choices):
        """Batches that these make."""
        maker = batches(*more, **choices)
        maker.service = service.Service(addresses, b'x' * 16)
        return maker

    def check(self, maker, steps, *more, **choices):
        plain = batches(*more, **choices)
        for step in steps:
            actual = maker.flat(step)
            expected = views.flatten(plain.views(step))
            self.assertEqual(set(actual), set(expected))
            for name, array in expected.items():
                self.assertEqual(actual[name].dtype, array.dtype, name)
                np.testing.assert_array_equal(actual[name], array, name)

    @parameterized.parameters(
        'mlm', 'nsp', 'simcse', 'skip_gram', 'transformer_xl', 'plm', 'ict'
    )
    def test_the_same_batches(self, row):
        _, address = self.serve(batches(row))
        maker = self.served([address], row)
        with mock.patch.object(maker, 'views', None):  # none is made here
            self.check(maker, (0, 1, 99), row)
        self.assertEqual(self.asked, [0, 1, 99])

    def test_one_that_is_stopped_is_passed_over_and_asked_again(self):
        """Each step is made once, by whoever is there."""
        server, address = self.serve(batches())
        _, other = self.serve(batches())
        maker = self.served([address, other])
        here = []
        real = maker.views
        maker.views = lambda step: here.append(step) or real(step)
        self.check(maker, range(4))
        server.stop(None).wait()
        self.check(maker, range(4, 10))
        self.assertEqual(self.asked, [*range(10)])
        self.assertIn(f'{address} does not answer', self.printed.getvalue())
        self.assertLen(self.printed.getvalue().splitlines(), 1)
        self.asked.clear()
        server, _ = self.serve(batches(), address)
        self.check(maker, range(4))
        maker.service._silent[address] = 0.0  # its time is over
        maker.service._ask[address](b'0' * 5, wait_for_ready=True)
        self.asked.clear()
        self.check(maker, [8])
        self.assertIn(f'{address} answers again', self.printed.getvalue())
        self.assertEqual(self.asked, [8])
        self.assertEmpty(here)

    def test_one_that_is_silent_is_left_alone_for_a_while(self):
        """For 20 s by the clock, not for a step: asking may take 30."""
        maker = service.Service(['localhost:1'], b'x' * 16)
        error = maker._error()
        error.code, error.details = mock.Mock(), mock.Mock(return_value='gone')
        ask = maker._ask['localhost:1'] = mock.Mock(side_effect=error)
        clock = self.enterContext(mock.patch.object(service, 'time'))
        for now, asked in ((100, 1), (100, 1), (119.9, 1), (120.1, 2),
                           (140, 2), (140.2, 3)):  # fmt: skip
            clock.monotonic.return_value = now
            self.assertIsNone(maker.batch(0))
            self.assertEqual(ask.call_count, asked, now)

    def test_an_answer_that_was_damaged(self):
        _, address = self.serve(batches())
        maker = self.served([address])
        ask = maker.service._ask[address]

        def damaged(request, timeout):
            answer = bytearray(ask(request, timeout=timeout))
            answer[-1] ^= 1
            return bytes(answer)

        maker.service._ask[address] = damaged
        self.assertIsNone(maker.service.batch(0))
        self.assertIn('was damaged on the way', self.printed.getvalue())
        self.check(maker, [0])

    def test_of_another_run(self):
        def digest(*share, **other):
            return service.digest(batches(**other), *share)

        for other in ({'seed': 1}, {'batch_size': 8}, {'objectives': 'dim'}):
            self.assertNotEqual(digest(**other), digest())
        self.assertNotEqual(digest(0.7), digest(1.0))
        self.assertEqual(digest(0.7), digest(0.7))
        _, address = self.serve(batches())
        asking = service.Service([address], b'y' * 16)
        with refused('service_other_run', f'--data_service={address}'):
            asking.batch(0)

    def test_what_it_complains_of(self):
        """A step that is none, too."""
        maker = batches()
        _, address = self.serve(maker)
        maker.views = mock.Mock(side_effect=ValueError('ids.bin is damaged'))
        asking = service.Service([address], b'x' * 16)
        with refused('service_refuses', address, 'ids.bin is damaged'):
            asking.batch(3)
        maker.views.reset_mock()
        with self.assertRaisesRegex(asking._error, 'is no step'):
            asking._ask[address](bytes([255] * 9))
        maker.views.assert_not_called()


class CommandTest(absltest.TestCase):
    def test_killed_on_the_way(self):
        """kill -9: the same weights as without it."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        flags = (
            '--objectives=mlm', '--shuffle_block=200', '--steps=4',
            '--eval_every=4', '--checkpoint_every=4',
        )  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, '-m', 'infoword_tf.data_service',
             *runs.arguments(folder / 'run', *flags),
             '--listen=localhost:0'],
            cwd=runs.ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        runs.run_here(folder / 'alone', *flags)
        for line in process.stdout:
            if line.startswith('making batches at '):
                break
        address = line.split()[-1]
        real, done = service.Service.batch, {}
        two = threading.Event()

        def asked(self, step):
            if step >= 2:  # when those before it have come
                two.wait(60)
                process.send_signal(signal.SIGKILL)
                process.wait()
            actual = done[step] = real(self, step)
            if {0, 1} <= set(done):
                two.set()
            return actual

        printed = io.StringIO()
        with (
            mock.patch.object(service.Service, 'batch', asked),
            contextlib.redirect_stderr(printed),
        ):
            runs.run_here(folder / 'run', *flags, f'--data_service={address}')
        others = [step for step, actual in sorted(done.items()) if actual]
        self.assertEqual(others, [0, 1])
        self.assertLen(done, 4)
        self.assertIn(f'{address} does not answer', printed.getvalue())
        alone, run = folder / 'alone', folder / 'run'
        self.assertEqual(runs.weights(alone), runs.weights(run))
