"""Clients that ask at once, of a program that is none."""

import threading
import time

from absl.testing import absltest

from benchmarks.peers import side


class ClientsTest(absltest.TestCase):
    def test_requests_share_calls(self):
        calls, before = [], threading.active_count()

        def run(texts, _):
            time.sleep(0.002)
            calls.append(len(texts))

        alone = side.at_once(run, ['a', 'b'], 3, 0.1)
        self.assertEqual(set(calls), {1})
        # Those of the time before are not counted.
        self.assertBetween(alone['amount'], 3, len(calls))
        self.assertGreaterEqual(min(alone['waited']), 0.002)
        side.at_once(run, ['a', 'b'], 8, 0.1, 2)
        self.assertBetween(max(calls), 2, 8)
        self.assertEqual(threading.active_count(), before)  # they have ended
