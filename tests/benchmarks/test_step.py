"""The benchmarks that run under TensorFlow, at sizes that say nothing."""

import json

from absl.testing import parameterized

from benchmarks import report, step
from tests.runs import python

# A program, without the graph of a step: what is timed is no matter here.
WITHOUT_GRAPHS = '''
import runpy, sys
import tensorflow as tf
from benchmarks import step

tf.config.run_functions_eagerly(True)
sys.argv[:] = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
'''
STEP = 'benchmarks.step', '--size=tiny', '--precisions=float32'
PIPELINE = (
    'benchmarks.pipeline', '--megabytes=0.5', '--batches=2', '--rounds=1',
    '--precision=float32',
)  # fmt: skip


class ServedTest(parameterized.TestCase):
    @parameterized.parameters(
        (28, *STEP, f'--serve={step.PEER}'),
        (32, *PIPELINE, '--serve=training'),
    )
    def test_contestants(self, amount, *typed):
        """Counts a step in tokens of text, the pipeline in places."""
        done = python(
            '-c', WITHOUT_GRAPHS, *typed, '--batch_size=2', '--seq_len=16',
            '--vocab_size=300', '--steps=1', input='{}\n',
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        _, answer = map(json.loads, done.stdout.splitlines())
        self.assertEqual(answer['amount'], amount)

    def test_a_contest(self):
        record = step.contest(step.StepChoices(
            size='tiny', batch_size=2, seq_len=16, vocab_size=100, steps=1,
            rows=('mlm',), precisions=('float32',), rounds=2, no_peer=True,
        ))  # fmt: skip
        (row,) = record['rows']
        self.assertNotIn('failed', row)
        self.assertEqual(row['amounts'], [2 * 14] * 2)  # none is special
        self.assertGreater(record['products']['float32'], 1e8)
        self.assertStartsWith(report.lines_of(record)[2], '| float32 | mlm |')
