"""Clients that ask at once, of a program that is none."""

import threading
import time

from absl.testing import absltest

from benchmarks.peers import side


class ClientsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.calls, self.lock = [], threading.Lock()

    def run_texts(self, texts, _):
        time.sleep(0.002)
        with self.lock:
            self.calls.append(list(texts))

    def test_every_client_calls(self):
        found = side.at_once(self.run_texts, ['a', 'b'], 3, 0.1)
        self.assertEqual({len(texts) for texts in self.calls}, {1})
        # Those of the time before are not counted.
        self.assertBetween(len(found['waited']), 3, len(self.calls))
        self.assertGreaterEqual(min(found['waited']), 0.002)
        self.assertGreaterEqual(found['processor'], 0)

    def test_requests_share_calls(self):
        side.at_once(self.run_texts, ['a', 'b'], 8, 0.1, 1, 0.01)
        sizes = [len(texts) for texts in self.calls]
        self.assertGreater(max(sizes), 1)
        self.assertLessEqual(max(sizes), 8)
        self.assertEqual({t for texts in self.calls for t in texts}, {'a', 'b'})

    def test_threads_that_batch_end(self):
        before = threading.active_count()
        side.at_once(self.run_texts, ['a'], 4, 0.05, 2)
        self.assertEqual(threading.active_count(), before)


if __name__ == '__main__':
    absltest.main()
