"""The benchmarks that run under TensorFlow, at sizes that say nothing."""

import json
import subprocess
import sys

from absl.testing import absltest

from benchmarks import pipeline, report, step
from tests import places
from tests.eager import eagerly
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
SIZES = {'batch_size': 2, 'seq_len': 16, 'steps': 1, 'size': 'tiny'}


class ServedTest(places.Folder, absltest.TestCase):
    def test_a_pipeline_that_trains(self):
        """All places of its texts count."""
        choices = pipeline.PipelineChoices(
            megabytes=0.5, vocab_size=300, precision='float32',
            serve=pipeline.TRAINING, **SIZES,
        )  # fmt: skip
        with eagerly():
            turn, facts = pipeline.contestant(choices, self.folder / 'x')
            turn()
        self.assertEqual(facts, {'amount': 32})

    def test_the_peer(self):
        """Of a step tokens of text count."""
        command = [
            sys.executable, '-c', WITHOUT_GRAPHS, 'benchmarks.step',
            '--precisions=float32', f'--serve={step.PEER}', '--vocab_size=300',
            *(f'--{name}={value}' for name, value in SIZES.items()),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, input='{}\n', capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        _, answer = map(json.loads, done.stdout.splitlines())
        self.assertEqual(answer['amount'], 28)

    def test_a_contest(self):
        """Whole processes, their answers, the record, the table."""
        record = step.contest(step.StepChoices(
            **SIZES, vocab_size=100, rows=('mlm',), precisions=('float32',),
            rounds=2, no_peer=True,
        ))  # fmt: skip
        (row,) = record['rows']
        self.assertNotIn('failed', row)
        self.assertEqual(row['amounts'], [2 * 14] * 2)  # none is special
        self.assertGreater(record['products']['float32'], 1e8)
        self.assertStartsWith(report.lines_of(record)[2], '| float32 | mlm |')


if __name__ == '__main__':
    absltest.main()
