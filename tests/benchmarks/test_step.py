"""The benchmarks that run under TensorFlow, at sizes that say nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent
# Complaints, ratios of made-up speeds, then the command. In a process of its
# own, since benchmarks.step has flags of the same names as the trainer.
CODE = '''
import json, sys
import numpy as np
import tensorflow as tf
from absl import flags
from benchmarks import step
from infoword_tf import commands

tf.config.run_functions_eagerly(True)  # what is timed is no matter here
for rows in ('dim,nothing', 'dim,dim'):
    try:
        flags.FLAGS(['step', f'--rows={rows}'])
    except flags.IllegalFlagValueError as error:
        print(error)

def ratios():
    names = (step.PEER, 'bert_nce', 'dim')
    made = [step.Contestant(n, 'float32', None, 1, 1, 8) for n in names]
    speeds = np.array([[1.0, 4.0, 2.0], [1.0, 6.0, 2.0], [1.0, 8.0, 2.0]])
    rates = {'float32': 1.0}
    for some in ([0, 1, 2], [0, 2]):
        scores = step.score([made[i] for i in some], speeds[:, some], rates)
        print(json.dumps({s.name: [s.ratio, s.cost] for s in scores}))
        step.print_table(scores, rates)

def main():
    ratios()
    step.main()

commands.start(main)
'''
# A program, without the graph of a step: what is timed is no matter here.
WITHOUT_GRAPHS = '''
import runpy, sys
import tensorflow as tf

tf.config.run_functions_eagerly(True)
runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)
'''


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, 'KERAS_BACKEND': 'tensorflow'},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f'{done.stdout}\n{done.stderr}')
    return done.stdout


class StepTest(absltest.TestCase):
    def test_command(self):
        """All of it in one test, so that TensorFlow starts once."""
        printed = run(
            '-c', CODE, '--size=tiny', '--rows=transformer_xl',
            '--precisions=float32', '--batch_size=2', '--seq_len=16',
            '--memory_length=8', '--vocab_size=500', '--rounds=1',
            '--steps=1', '--json',
        )
        self.check_command(printed)
        self.check_ratios(printed)
        self.assertIn("no row or sum 'nothing'; known are ", printed)
        self.assertIn('one of them is there twice', printed)

    def check_command(self, printed):
        scores = {
            s['name']: s
            for s in json.loads(printed.splitlines()[-1])['scores']
        }
        self.assertEqual(
            list(scores),
            ['Model Garden', 'transformer_xl', 'transformer_xl+8'],
        )
        for name, one in scores.items():
            self.assertGreater(one['tokens_per_second'], 0, name)
            self.assertRegex(printed, f'(?m)^float32 +{re.escape(name)} ')
        _, row, longer = scores.values()
        self.assertEqual(row['cost'], 1.0)
        self.assertAlmostEqual(
            longer['cost'], longer['microseconds'] / row['microseconds']
        )
        self.assertGreater(longer['operations'], row['operations'])
        self.assertEqual(longer['weights'], row['weights'])

    def check_ratios(self, printed):
        lines = printed.splitlines()
        found = [json.loads(x) for x in lines if x.startswith('{')]
        self.assertEqual(
            found[0],
            {'Model Garden': [1, 6], 'bert_nce': [6, 1], 'dim': [2, 3]},
        )
        self.assertEqual(
            found[1], {'Model Garden': [1, 2], 'dim': [2, 1]}
        )
        self.assertRegex(printed, r'dim +2 +2-2 +2\.00 +[\d,]+ +3\.00')
        self.assertRegex(printed, r'dim +2 +2-2 +2\.00 +[\d,]+ +1\.00')


class PipelineTest(absltest.TestCase):
    def test_command(self):
        printed = run(
            '-c', WITHOUT_GRAPHS, 'benchmarks.pipeline', '--megabytes=0.5',
            '--vocab_size=300', '--batch_size=2', '--seq_len=16',
            '--batches=2', '--steps=1', '--precision=float32',
        )
        for what in ('tokenizing', 'batches 2 x 16, spans', 'training'):
            self.assertTrue(
                re.search(f'^{what}.* tokens/s$', printed, re.M), printed
            )


if __name__ == '__main__':
    absltest.main()
