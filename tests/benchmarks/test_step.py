"""The benchmarks that run under TensorFlow, at sizes that say nothing."""

import json
import subprocess
import sys

from absl.testing import absltest

from benchmarks import report, step
from tests.test_house import ROOT

# A program, without the graph of a step: what is timed is no matter here.
WITHOUT_GRAPHS = '''
import runpy, sys
import tensorflow as tf
from benchmarks import step

tf.config.run_functions_eagerly(True)
sys.argv[:] = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
'''
SIZES = '--batch_size=2', '--seq_len=16', '--steps=1'


def served(module, *typed):
    """What a contestant says of itself, and its answer to a line."""
    done = subprocess.run(
        [sys.executable, '-c', WITHOUT_GRAPHS, module, *SIZES, *typed],
        cwd=ROOT, input='{}\n', capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return map(json.loads, done.stdout.splitlines())


class StepTest(absltest.TestCase):
    def test_contestants(self):
        for serve, length in ((step.PEER, 0), ('transformer_xl', 8)):
            said, answer = served(
                'benchmarks.step', '--size=tiny', '--precisions=float32',
                '--vocab_size=500', f'--memory_length={length}',
                f'--serve={serve}',
            )  # fmt: skip
            self.assertEqual(answer['amount'], said['tokens'])
            self.assertGreater(said['operations'], 10**7, serve)

    def test_a_contest(self):
        """Whole processes, their answers, the record, the table."""
        record = step.contest(step.Choices(
            size='tiny', batch_size=2, seq_len=16, vocab_size=100, steps=1,
            rows=('mlm',), precisions=('float32',), rounds=2, no_peer=True,
        ))  # fmt: skip
        (row,) = record['rows']
        self.assertNotIn('failed', row)
        self.assertEqual(row['amounts'], [2 * 14] * 2)  # none is special
        self.assertGreater(record['products']['float32'], 1e8)
        self.assertStartsWith(report.lines_of(record)[2], '| float32 | mlm |')


class PipelineTest(absltest.TestCase):
    def test_contestants(self):
        for serve, amount in (('spans', 64), ('training', 32)):
            said, answer = served(
                'benchmarks.pipeline', '--megabytes=0.5', '--vocab_size=300',
                '--batches=2', '--precision=float32', '--rounds=1',
                f'--serve={serve}',
            )  # fmt: skip
            self.assertEqual(said, {}, serve)
            self.assertEqual(answer['amount'], amount, serve)


if __name__ == '__main__':
    absltest.main()
