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

# The command, and what its optimizer is.
COMMAND = '''
import json
from benchmarks import gpu

gpu.run(**json.loads(sys.argv[1]))
print(json.dumps([gpu.ADAMW, gpu.DECAYING]))
try:
    gpu.checked(float('nan'), 7)
except FloatingPointError as error:
    print(error)
'''
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 32, 'vocab_size': 500}


@unittest.skipUnless(importlib.util.find_spec('jax'), 'JAX is not installed')
class GpuTest(absltest.TestCase):
    def test_command(self):
        """All in one test, so that JAX starts once."""
        typed = {'precision': 'float32', 'rounds': 2, 'steps': 1}
        *printed, optimizer, failed = test_jax.run_forbidden(
            COMMAND, json.dumps({**SMALL, **typed})
        ).splitlines()
        self.assertEqual(failed, 'the loss of step 7 is nan')
        lines = dict(re.split(' {2,}', line, maxsplit=1) for line in printed)
        rules, (adamw, decaying) = optim.chosen(), json.loads(optimizer)
        self.assertEqual(tuple(decaying), rules.decaying)
        self.assertEqual(adamw, {
            'weight_decay': rules.weight_decay, 'beta_1': rules.beta_1,
            'beta_2': rules.beta_2, 'epsilon': rules.epsilon,
            'global_clipnorm': rules.clip_norm,
        })  # fmt: skip
        self.check_losses(re.findall(r'\d\.\d+', lines['loss']))

    def check_losses(self, found):
        """They are the trainer's: model, dropout, gradients and AdamW."""
        own = work.Work('infoword', **SMALL)
        strategy = zoo.strategy(1)
        with strategy.scope():
            model = Model(own.config('float32'), own.specials, work.SEED)
            optimizer = optim.AdamW(model.trainable)
        trainer = loop.Trainer(
            model,
            zoo.dataset([own.make_views()]).repeat(),
            strategy,
            optimizer,
            tf.Variable(0, dtype=tf.int64, trainable=False),
            lambda step: tf.constant(1e-4),
            own.statistics, work.SEED, own.batch_size,
        )  # fmt: skip
        losses = []
        for _ in range(4):
            with eagerly():
                report = trainer.train(tf.constant(1))
            losses.append(sum(w * float(report[f'{row}/loss'])
                              for row, w in own.rows.items()))  # fmt: skip
        wanted = losses[0], losses[-1]
        np.testing.assert_allclose(np.float64(found), wanted, rtol=1e-5)


if __name__ == '__main__':
    absltest.main()
