"""Clients that ask at once, of a program that is none."""

import threading
import time
from unittest import mock

from absl.testing import absltest

from benchmarks import encode, kept
from benchmarks.peers import side


class Side:
    """Answers in 10 ms of two thirds of a core, at first in a second."""

    facts = {}

    def __init__(self, first):
        self.left = first  # turns of the first round

    def ask(self, asked):
        waited = [0.01] * asked['clients'] * 10 if self.left <= 0 else [1.0]
        self.left -= 1
        return {'seconds': sum(waited) / asked['clients'], 'waited': waited,
                'amount': len(waited), 'processor': 0.02 / 3}  # fmt: skip

    def used(self):
        return kept.Used(0.0, 10**9)


class ClientsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.calls, self.lock = [], threading.Lock()

    def run_texts(self, texts, _):
        time.sleep(0.002)
        with self.lock:
            self.calls.append(list(texts))

    def test_the_first_turn_does_not_count(self):
        given = encode.Choices(rounds=2, clients=('1', '4'))
        sides = {'savedmodel 1': Side(4), 'onnxruntime 1': Side(4)}
        with mock.patch.object(encode, 'PAUSE', 0):
            record = encode.of_clients(given, sides, ['word'] * 3000)
        self.assertEqual(record['basis'], 'savedmodel 1, batches by 2')
        first, last = record['rows'][0], record['rows'][-1]
        self.assertLen(first['amounts'], 2)
        self.assertAlmostEqual(last['percentiles'][1], 0.01)
        self.assertAlmostEqual(last['amounts'][0] / last['seconds'][0], 400)
        self.assertAlmostEqual(last['cores'], 400 * 0.02 / 3)

    def test_requests_share_calls(self):
        before = threading.active_count()
        side.at_once(self.run_texts, ['a', 'b'], 8, 0.1, 2)
        sizes = [len(texts) for texts in self.calls]
        self.assertBetween(max(sizes), 2, 8)
        self.assertEqual({t for texts in self.calls for t in texts}, {'a', 'b'})
        self.assertEqual(threading.active_count(), before)  # they have ended


if __name__ == '__main__':
    absltest.main()
