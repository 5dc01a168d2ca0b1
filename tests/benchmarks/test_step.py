"""The benchmarks that run under TensorFlow, at sizes that say nothing."""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent
# Complaints, then all contestants. In a process of its own, since
# benchmarks.step has flags of the same names as the trainer.
CODE = '''
import json, sys
import tensorflow as tf
from absl import flags
from benchmarks import step
from infoword_tf import commands

tf.config.run_functions_eagerly(True)  # what is timed is no matter here
step.PRODUCT_SIZE, step.COPIED = 64, 1024
for rows in ('dim,nothing', 'dim,dim'):
    try:
        flags.FLAGS(['step', f'--rows={rows}'])
    except flags.IllegalFlagValueError as error:
        print(error)

def main():
    print(step.lengths_of('transformer_xl'), step.lengths_of('mlm'))
    for serve, length in (
        (step.PEER, 0), ('transformer_xl', 0), ('transformer_xl', 8),
        (step.PRODUCTS, 0), (step.COPIES, 0),
    ):
        flags.FLAGS.serve, flags.FLAGS.memory_length = serve, length
        turn, said = step.contestant()
        print(json.dumps({'name': serve, 'turn': turn(), **said}))

commands.start(main)
'''
# A program, without the graph of a step: what is timed is no matter here.
WITHOUT_GRAPHS = '''
import runpy, sys
import tensorflow as tf

tf.config.run_functions_eagerly(True)
runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)
'''


def run(*arguments, given=''):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        input=given,
        env={**os.environ, 'KERAS_BACKEND': 'tensorflow'},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f'{done.stdout}\n{done.stderr}')
    return done.stdout


class StepTest(absltest.TestCase):
    def test_contestants(self):
        """All of them in one test, so that TensorFlow starts once."""
        printed = run(
            '-c', CODE, '--size=tiny', '--precisions=float32',
            '--batch_size=2', '--seq_len=16', '--memory_length=8',
            '--vocab_size=500', '--steps=2', '--rows=transformer_xl',
        )  # fmt: skip
        self.assertIn("no row or sum 'nothing'; known are ", printed)
        self.assertIn('one of them is there twice', printed)
        self.assertIn('[0, 8] [0]', printed)
        lines = printed.splitlines()
        found = [json.loads(x) for x in lines if x.startswith('{')]
        peer, row, longer, products, copies = found
        for one in (peer, row, longer):
            self.assertIsNone(one['turn'], one['name'])
            self.assertEqual(one['amount'], 2 * one['tokens'])
        self.assertEqual(row['tokens'], 2 * 16)  # none is special
        self.assertGreater(longer['operations'], row['operations'])
        self.assertGreater(longer['traffic'], row['traffic'])
        self.assertEqual(longer['weights'], row['weights'])
        self.assertEqual(products['amount'], 2 * 64**3)
        self.assertEqual(copies['amount'], 3 * 4 * 1024)
        for one in (products, copies):
            self.assertGreater(one['turn']['seconds'], 0)


class PipelineTest(absltest.TestCase):
    def test_contestants(self):
        for serve, amount in (('spans', 64), ('training', 32)):
            printed = run(
                '-c', WITHOUT_GRAPHS, 'benchmarks.pipeline', '--megabytes=0.5',
                '--vocab_size=300', '--batch_size=2', '--seq_len=16',
                '--batches=2', '--steps=1', '--precision=float32',
                '--rounds=1', f'--serve={serve}', given='{}\n',
            )  # fmt: skip
            ready, answer = map(json.loads, printed.splitlines())
            self.assertEqual(ready, {}, serve)
            self.assertEqual(answer['amount'], amount, serve)


if __name__ == '__main__':
    absltest.main()
