"""The work of a step: written out by hand, counted by JAX, and trained."""

import importlib.util
import json
import re
import unittest

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from benchmarks import work
from infoword_tf.model import Model
from infoword_tf.objectives import SUMS, TABLE, parse
from infoword_tf.training import loop, optim
from infoword_tf.training.state import State
from tests import test_jax, zoo
from tests.eager import eagerly
from tests.refused import refused

# tiny has 2 blocks, D = 128.
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 22, 'vocab_size': 500}
# All pieces of 44 tokens are read: ten digits and marks, with seven more for
# the longest filter.
PIECE = (
    16 * (12 * 4 + 11 * 2 * 4 + 10 * 3 * 8 + 9 * 4 * 16 + 8 * 5 * 32
          + 7 * 6 * 64 + 6 * 7 * 128)
    + 2 * 256 * 512 + 256 * 64
)  # fmt: skip
# Two layers and directions, 64 wide, of 512 cells.
ELMO = (
    2 * 4 * 22 * (2 * 64 * 4 * 512 + 512 * 64) + 44 * PIECE
    + 2 * 2 * 22 * 64 * 500
)  # fmt: skip

# Every product of a whole step as JAX traces it, but for sums over rows; then
# what the optimizer of the command is, and the command.
UNDER_JAX = """
import json
from benchmarks import gpu, work

def products(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        times = 1
        if equation.primitive.name == 'scan':
            times = equation.params['length']
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                part = getattr(part, 'jaxpr', part)
                if hasattr(part, 'eqns'):
                    total += times * products(part)
        if equation.primitive.name == 'dot_general':
            left, right = (v.aval.shape for v in equation.invars)
            if len(left) == 2 and left[0] == 1:
                continue
            (contracted, _), _ = equation.params['dimension_numbers']
            each = 2
            for axis in contracted:
                each *= left[axis]
            total += each * equation.outvars[0].aval.size
    return total

small = json.loads(sys.argv[2])
for objectives in sys.argv[1].split(','):
    own = work.Work(objectives, **small)
    program = gpu.make_program(own, 'float32')
    traced = program.step.trace(program.state, program.batch)
    print(objectives, products(traced.jaxpr.jaxpr), program.operations)
print(json.dumps([gpu.ADAMW, gpu.DECAYING]))
gpu.run(**small, precision='float32', rounds=2, steps=1, peak_tflops=0.5)
try:
    gpu.checked(float('nan'), 7)
except FloatingPointError as error:
    print(error)
"""


# The others read labelled examples, or have a benchmark of their own.
ELSEWHERE = {'examples', 'words', 'sentences', 'translated', 'crossed'}
READING = [
    name
    for name in (*TABLE, *SUMS)
    if not any(ELSEWHERE & set(TABLE[row].views) for row in parse(name))
]


class OperationsTest(parameterized.TestCase):
    def test_by_hand(self):
        """Two operations a multiplication, three products for each."""
        one_work = work.Work('elmo', **SMALL)
        self.assertEqual(one_work.operations(one_work.make_views()), 6 * ELMO)
        # Texts of 22 tokens and sentences of 5, two of each, pooled.
        ict = work.Work('ict', **SMALL)
        self.assertEqual(
            ict.score_operations('ict', ict.make_views()),
            2 * 128 * (2 * (2 * 22 + 2 * 5) + 2 * 2 * 2),
        )

    @parameterized.parameters(
        ('skip_gram', 'work_makes_no_source'),
        ('simcse', 'work_makes_no_source'),
        ('label', 'work_reads_labels'),
    )
    def test_text_that_is_not_made(self, row, id):
        with refused(id, row):
            work.Work(row, **SMALL).make_views()

    def test_more_pairs_than_words_are_scored_as_words(self):
        one_work = work.Work('bert_nce', 'tiny', 8, 62, 64)  # 8 x 9 pairs
        actual = one_work.score_operations('bert_nce', one_work.make_views())
        self.assertEqual(actual, 2 * 72 * 128 * 64)

    def test_memory_is_keys(self):
        """Doubles keys, and what looks at them, by as many tokens again."""
        without, one_work = (
            work.Work('transformer_xl', **SMALL, memory_length=length)
            for length in (0, 22)
        )
        more = 2 * 2 * (22 * 128 * 256 + 22 * (2 * 22 * 128 + 22 * 128))
        self.assertEqual(
            one_work.operations(one_work.make_views())
            - without.operations(without.make_views()),
            6 * more + 4 * 2 * 22 * 128 * 128,
        )

    def test_long_texts_ask_in_blocks(self):
        """Gives each of 64 tokens its distances and those of the block."""
        sizes = {'d': 128, 'heads': 2, 'queries': 0}
        for t, columns in ((64, 128), (96, 192), (128, 160), (256, 320)):
            actual = work.relative_operations(3, t, content=t, **sizes)
            each = 10 * 128 * 128 + 2 * t * 128 + columns * 128
            self.assertEqual(
                actual,
                6 * 3 * (t * 128 * 256 + t * each) + 4 * 2 * t * 128 * 128,
            )


@unittest.skipUnless(importlib.util.find_spec('jax'), 'JAX is not installed')
class JaxTest(absltest.TestCase):
    def test_all(self):
        """In one test, so that JAX starts once."""
        # Sums with a name, and all rows that are in none of them; how much
        # `elmo` reads depends on the text.
        named = [name for name in SUMS if name in READING]
        sums = ['elmo', *(row for name in named for row in parse(name))]
        rows = [row for row in READING if row not in (*sums, *named)]
        printed = test_jax.run_forbidden(
            UNDER_JAX, ','.join([*named, *rows]), json.dumps(SMALL)
        ).splitlines()
        for name, line in zip([*named, *rows], printed, strict=False):
            name_printed, traced, counted = line.split()
            self.assertEqual((name_printed, traced), (name, counted))
        optimizer, *lines, failed = printed[len(named) + len(rows) :]
        rules, (adamw, decaying) = optim.preset(), json.loads(optimizer)
        self.assertEqual(tuple(decaying), rules.decaying)
        self.assertEqual(adamw, {
            'weight_decay': rules.weight_decay, 'beta_1': rules.beta_1,
            'beta_2': rules.beta_2, 'epsilon': rules.epsilon,
            'global_clipnorm': rules.clip_norm,
        })  # fmt: skip
        lines = dict(re.split(' {2,}', line, maxsplit=1) for line in lines)
        self.assertIn('of 0.5 TFLOP/s (as --peak', lines['utilisation'])
        self.check_losses(re.findall(r'\d\.\d+', lines['loss']))
        self.assertEqual(failed, 'the loss of step 7 is nan')

    def check_losses(self, actual):
        """They are the trainer's: model, dropout, gradients and AdamW."""
        one_work = work.Work('infoword', **SMALL)
        strategy = zoo.strategy(1)
        with strategy.scope():
            model = Model(
                one_work.config('float32'), one_work.specials, work.SEED
            )
            optimizer = optim.AdamW(model.trainable)
        trainer = loop.Trainer(
            zoo.dataset([one_work.make_views()]).repeat(),
            State(model, strategy, one_work.batch_size), optimizer,
            lambda step: tf.constant(1e-4), one_work.statistics, seed=work.SEED,
        )  # fmt: skip
        losses = []
        for _ in range(4):
            with eagerly():
                report = trainer.train(tf.constant(1))
            losses.append(sum(w * float(report[f'{row}/loss'])
                              for row, w in one_work.rows.items()))  # fmt: skip
        expected = losses[0], losses[-1]
        np.testing.assert_allclose(np.float64(actual), expected, rtol=1e-5)
