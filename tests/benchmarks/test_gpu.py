"""The step under JAX: the command, and TensorFlow's trainer beside it."""

import importlib.util
import json
import re
import unittest

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks import work
from infoword_tf.model import Model
from infoword_tf.training import loop, optim
from tests import test_jax, zoo
from tests.eager import eagerly

# The command, then once more with other flags, and what its parts say.
COMMAND = '''
import json, runpy
more = json.loads(sys.argv.pop())
try:
    runpy.run_module('benchmarks.gpu', run_name='__main__', alter_sys=True)
except SystemExit as done:
    assert not done.code, done
print('again', flush=True)
from absl import flags
for name in list(flags.FLAGS):
    delattr(flags.FLAGS, name)
from benchmarks import gpu
flags.FLAGS(['gpu', *more])
gpu.main()
print('parts', flush=True)
print(json.dumps([gpu.ADAMW, gpu.DECAYING]))
gpu.checked(1.0, 1)
try:
    gpu.checked(float('nan'), 7)
except FloatingPointError as error:
    print(error)
'''
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 32, 'vocab_size': 500}


def run(first, second):
    """Runs the command twice where TensorFlow cannot be imported.

    Args:
        first, second: flags beside the sizes.

    Returns:
        What its parts say; of each run, by what, the rest of each line.
    """
    sizes = [f'--{name}={value}' for name, value in SMALL.items()]
    printed = test_jax.run_forbidden(
        COMMAND, *sizes, *first, json.dumps([*sizes, *second])
    )
    *runs, said = re.split('again\n|parts\n', printed)
    yield said
    for part in runs:
        lines = (
            re.fullmatch(r'([a-z/]+(?: [a-z]+)?) {2,}(.+)', line)
            for line in part.splitlines()
        )
        yield {line[1]: line[2] for line in lines}


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

    def test_command(self):
        """All in one test, so that JAX starts once."""
        said, infoword, mlm = run(
            ('--precision=float32', '--rounds=2', '--steps=1'),
            ('--objectives=mlm', '--rounds=1', '--steps=1',
             '--peak_tflops=0.5'),
        )  # fmt: skip
        self.assertIn('the loss of step 7 is nan', said)
        self.check_optimizer(*json.loads(said[: said.index('the loss')]))
        self.check_infoword(infoword)
        self.check_mlm(mlm)

    def check_infoword(self, lines):
        """The trainer's losses: model, dropout, gradients and AdamW."""
        own = work.Work('infoword', **SMALL)
        first, last = self.check(lines, own, steps=4)
        self.assertIn('2048 x 2048, measured', lines['utilisation'])

        strategy = zoo.strategy(1)
        with strategy.scope():
            model = Model(own.config('float32'), own.specials, work.SEED)
            optimizer = optim.AdamW(model.trainable)
        dataset = zoo.dataset([own.make_views()]).repeat()
        trainer = loop.Trainer(
            model,
            dataset,
            strategy,
            optimizer,
            tf.Variable(0, dtype=tf.int64, trainable=False),
            lambda step: tf.constant(1e-4),
            own.statistics,
            work.SEED,
            own.batch_size,
        )
        losses = []
        for _ in range(4):
            with eagerly():
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

    def check_mlm(self, lines):
        """In bfloat16."""
        own = work.Work('mlm', **SMALL)
        self.assertIn('mixed_bfloat16', lines['work'])
        first, _ = self.check(lines, own, steps=3)
        self.assertAlmostEqual(first, np.log(500), delta=0.5)
        self.assertIn('of 0.5 TFLOP/s (as --peak', lines['utilisation'])

    def check_optimizer(self, adamw, decaying):
        """It is the trainer's."""
        rules = optim.chosen()
        self.assertEqual(tuple(decaying), rules.decaying)
        self.assertEqual(
            adamw,
            {
                'weight_decay': rules.weight_decay,
                'beta_1': rules.beta_1,
                'beta_2': rules.beta_2,
                'epsilon': rules.epsilon,
                'global_clipnorm': rules.clip_norm,
            },
        )


if __name__ == '__main__':
    absltest.main()
