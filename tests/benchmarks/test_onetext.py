"""Clients that ask at once, of a program that is none."""

import json
import pathlib
import subprocess
import sys
import threading
import time

from absl.testing import absltest

from benchmarks.peers import side

ROOT = pathlib.Path(__file__).parent.parent.parent
# In a process of its own, since benchmarks.onetext has flags of the same names
# as others. A side that answers in 10 ms of two thirds of a core, at first in a
# second; nobody else is there.
CODE = '''
import json
from absl import flags
from benchmarks import kept, onetext, report, turns

class Side:
    facts = {'ready': 0.1}

    def __init__(self, first):
        self.left = first  # turns of the first round

    def ask(self, asked):
        waited = [0.01] * asked['clients'] * 10 if self.left <= 0 else [1.0]
        self.left -= 1
        return {'seconds': sum(waited) / asked['clients'], 'waited': waited,
                'amount': len(waited), 'processor': 0.02 / 3}

    def used(self):
        return kept.Used(0.0, 10**9)

flags.FLAGS(['onetext', '--turns=2', '--clients=1,4'])
onetext.PAUSE, turns._LISTENED = 0, 0.01
sides = {'savedmodel 1': Side(6), 'onnxruntime 1': Side(4)}
report.show(onetext.contest(sides, ['word'] * 3000))
'''


class ContestTest(absltest.TestCase):
    def test_the_first_turn_does_not_count(self):
        done = subprocess.run(
            [sys.executable, '-c', CODE],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr[-1000:])
        (record,) = json.loads(done.stdout.splitlines()[-1])['records']
        self.assertEqual(record['basis'], 'savedmodel 1, batches by 2')
        self.assertEqual(
            [row['group'] for row in record['rows']],
            ['1 client'] * 5 + ['4 clients'] * 5,
        )
        first, last = record['rows'][0], record['rows'][-1]
        self.assertLen(first['amounts'], 2)
        self.assertAlmostEqual(last['percentiles'][1], 0.01)
        self.assertAlmostEqual(last['amounts'][0] / last['seconds'][0], 400)
        self.assertAlmostEqual(last['cores'], 400 * 0.02 / 3)


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
