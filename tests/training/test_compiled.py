"""The whole step of a row is a program of XLA, as a TPU wants it.

Down to HLO: every operation is one that XLA has, every shape is known. What a
device makes of HLO is compiled in test_train.py for one row.
"""

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.objectives import TABLE
from tests import zoo
from tests.training.test_distribution import BATCHES

# One of each kind of encoder, view and score; every_row.py has all. The third
# and sixth are those of `make test`, which XLA reads fastest.
SOME = (
    'transformer_xl', 'simcse_moco', 'cbow', 'plm', 'rnn_lm', 'bert',
    'soft_span_conditional',
)  # fmt: skip


def program(name, stage='hlo'):
    """Returns the HLO of an update: loss, gradient, clip, weights and state."""
    trainer = zoo.make_trainer(name, 1, steps=1)
    trainer.state.compiled = True
    batch = next(iter(trainer.train_dataset))

    @tf.function(jit_compile=True, autograph=False)
    def step(batch):
        return trainer.strategy.run(
            trainer._replica_step,
            args=(batch, tf.constant(3, tf.int64), tf.constant(True)),
        )

    return step.experimental_get_compiler_ir(batch)(stage=stage)


class ProgramTest(parameterized.TestCase):
    @parameterized.parameters(*SOME)
    def test_whole_step(self, name):
        actual = program(name)
        self.assertStartsWith(actual, 'HloModule')
        self.assertNotRegex(actual, r'[\[,]<=')  # no size is a bound alone
        self.assertIn('dot(', actual)

    def test_names(self):
        known = {name: zoo.CASES[name].rows for name, *_ in BATCHES}
        self.assertContainsSubset(SOME, known)
        self.assertEqual({r for rows in known.values() for r in rows},
                         set(TABLE))  # fmt: skip
