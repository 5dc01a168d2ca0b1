"""The step under JAX: the command, and TensorFlow's trainer beside it."""

import importlib.util
import json
import re
import unittest

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks import work
from infoword_tf import views
from infoword_tf.model import Model
from infoword_tf.training import loop, optim
from tests import test_jax, zoo

COMMAND = '''
import runpy
runpy.run_module('benchmarks.gpu', run_name='__main__', alter_sys=True)
'''
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 32, 'vocab_size': 500}


def run(*given):
    """Runs the command where TensorFlow cannot be imported.

    Returns:
        By what, the rest of each line.
    """
    sizes = [f'--{name}={value}' for name, value in SMALL.items()]
    printed = test_jax.run_forbidden(COMMAND, *sizes, *given)
    lines = (
        re.fullmatch(r'([a-z/]+(?: [a-z]+)?) {2,}(.+)', line)
        for line in printed.splitlines()
    )
    return {line[1]: line[2] for line in lines}


def number(text):
    """The first number of a line."""
    return float(re.match(r'[\d.,]+', text)[0].replace(',', ''))


@unittest.skipUnless(importlib.util.find_spec('jax'), 'JAX is not installed')
class GpuTest(absltest.TestCase):
    def check(self, lines, own, steps):
        self.assertEqual(
            list(lines),
            ['device', 'work', 'weights', 'products', 'compiled in', 'memory',
             'tokens/s', 'step', 'utilisation', 'loss'],
        )
        self.assertIn('cpu', lines['device'])
        self.assertIn('2 x 32 tokens', lines['work'])
        self.assertAlmostEqual(
            number(lines['products']),
            own.operations(own.make_views()) / 1e12,
            places=6,
        )
        for what in ('compiled in', 'memory', 'tokens/s', 'step'):
            self.assertGreater(number(lines[what]), 0)
        median, lowest, highest = (
            float(x.replace(',', ''))
            for x in re.match(
                r'([\d,]+) \(([\d,]+)-([\d,]+)\)', lines['tokens/s']
            ).groups()
        )
        self.assertBetween(median, lowest, highest)
        first, last, step = re.fullmatch(
            r'([\d.]+) -> ([\d.]+), step 1 -> (\d+)', lines['loss']
        ).groups()
        self.assertEqual(int(step), steps)
        return float(first), float(last)

    def test_infoword_is_what_the_trainer_does(self):
        """The same losses: model, dropout, gradients and AdamW."""
        own = work.Work('infoword', **SMALL)
        lines = run('--precision=float32', '--rounds=2', '--steps=2')
        first, last = self.check(lines, own, steps=6)
        self.assertIn('2048 x 2048, measured', lines['utilisation'])

        strategy = zoo.strategy(1)
        with strategy.scope():
            model = Model(own.config('float32'), own.specials, work.SEED)
            optimizer = optim.AdamW(model.variables, 0.01, 1.0)
        flat = views.flatten(own.make_views())
        dataset = tf.data.Dataset.from_tensors(flat).repeat()
        trainer = loop.Trainer(
            model,
            dataset,
            strategy,
            optimizer,
            tf.Variable(0, dtype=tf.int64, trainable=False),
            lambda step: tf.constant(1e-4),
            model.kl(own.frequencies),
            work.SEED,
            own.batch_size,
        )
        losses = []
        for _ in range(6):
            report = trainer.train(tf.constant(1))
            losses.append(
                sum(w * float(report[f'{row}/loss'])
                    for row, w in own.rows.items())
            )
        self.assertEqual(
            sum(v.shape.num_elements() for v in optimizer.variables.values()),
            number(lines['weights']),
        )
        np.testing.assert_allclose(first, losses[0], rtol=1e-5)
        np.testing.assert_allclose(last, losses[-1], rtol=1e-5)

    def test_mlm_in_bfloat16(self):
        own = work.Work('mlm', **SMALL)
        lines = run(
            '--objectives=mlm', '--rounds=1', '--steps=1', '--peak_tflops=0.5'
        )
        first, _ = self.check(lines, own, steps=3)
        self.assertAlmostEqual(first, np.log(500), delta=0.5)
        self.assertIn('of 0.5 TFLOP/s (as --peak', lines['utilisation'])

    def test_an_infinite_loss_is_an_error(self):
        code = (
            'from benchmarks import gpu\n'
            'gpu.checked(1.0, 1)\n'
            "gpu.checked(float('nan'), 7)"
        )
        with self.assertRaisesRegex(
            RuntimeError, 'FloatingPointError: the loss of step 7 is nan'
        ):
            test_jax.run_forbidden(code)

    def test_the_optimizer_is_the_trainers(self):
        printed = test_jax.run_forbidden(
            'import json\n'
            'from benchmarks import gpu\n'
            'print(json.dumps([gpu.ADAMW, gpu.DECAYING]))'
        )
        adamw, decaying = json.loads(printed)
        self.assertEqual(tuple(decaying), optim.DECAYING)
        self.assertEqual(
            adamw,
            {
                'weight_decay': 0.01,
                'beta_1': optim.BETA_1,
                'beta_2': optim.BETA_2,
                'epsilon': optim.EPSILON,
                'global_clipnorm': 1.0,
            },
        )


if __name__ == '__main__':
    absltest.main()
