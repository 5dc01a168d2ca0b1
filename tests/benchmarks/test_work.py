"""Operations of a step, written out by hand and counted by JAX itself."""

import importlib.util
import json
import unittest

from absl.testing import absltest, parameterized

from benchmarks import work
from infoword_tf.objectives import SUMS, TABLE, parse
from tests import test_jax

# 2 x 22 tokens, of which 20 are text: P = 3 places. tiny has 2 blocks, D = 128.
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 22, 'vocab_size': 500}
# Multiplications of a block in one sequence where q tokens ask, its four kinds
# of product: keys and values; queries and output; attention; feed-forward.
BLOCK = {
    q: 22 * 128 * 256 + 2 * q * 128 * 128 + 2 * q * 22 * 128
    + 2 * q * 128 * 512
    for q in (22, 3)
}  # fmt: skip
# All pieces of 44 tokens are read: ten digits and marks, with seven more for
# the longest filter.
PIECE = (
    16 * (12 * 4 + 11 * 2 * 4 + 10 * 3 * 8 + 9 * 4 * 16 + 8 * 5 * 32
          + 7 * 6 * 64 + 6 * 7 * 128)
    + 2 * 256 * 512 + 256 * 64
)  # fmt: skip
BY_HAND = {
    'mlm': 2 * (BLOCK[22] + BLOCK[3]) + 6 * 128 * 500,  # 2 x 3 words
    # Two layers and directions, 64 wide, of 512 cells.
    'elmo': 2 * 4 * 22 * (2 * 64 * 4 * 512 + 512 * 64) + 44 * PIECE
    + 2 * 2 * 22 * 64 * 500,
}  # fmt: skip

# Every product of a whole step as JAX traces it, but for sums over rows.
COUNT = '''
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

for objectives in sys.argv[1].split(','):
    own = work.Work(objectives, **json.loads(sys.argv[2]))
    program = gpu.make_program(own, 'float32')
    traced = program.step.trace(program.state, program.batch)
    print(objectives, products(traced.jaxpr.jaxpr), program.operations)
'''


# The others read labelled examples, or have a benchmark of their own.
ELSEWHERE = {'examples', 'words', 'sentences', 'translated', 'crossed'}
READING = [
    name
    for name in (*TABLE, *SUMS)
    if not any(ELSEWHERE & set(TABLE[row].views) for row in parse(name))
]


class OperationsTest(parameterized.TestCase):
    @parameterized.parameters(*BY_HAND)
    def test_by_hand(self, objectives):
        """Two operations a multiplication, three products for each."""
        own = work.Work(objectives, **SMALL)
        self.assertEqual(
            own.operations(own.make_views()), 6 * BY_HAND[objectives]
        )

    @parameterized.parameters('skip_gram', 'simcse', 'label')
    def test_text_that_is_not_made(self, row):
        with self.assertRaisesRegex(ValueError, f'{row} reads '):
            work.Work(row, **SMALL).make_views()

    def test_more_pairs_than_words_are_scored_as_words(self):
        own = work.Work('bert_nce', 'tiny', 8, 62, 64)  # 8 x 9 pairs
        found = own.score_operations('bert_nce', own.make_views())
        self.assertEqual(found, 2 * 72 * 128 * 64)

    def test_memory_is_keys(self):
        """Of as many tokens again: twice the keys and what looks at them."""
        without, own = (
            work.Work('transformer_xl', **SMALL, memory_length=length)
            for length in (0, 22)
        )
        more = 2 * 2 * (22 * 128 * 256 + 22 * (2 * 22 * 128 + 22 * 128))
        self.assertEqual(
            own.operations(own.make_views())
            - without.operations(without.make_views()),
            6 * more + 4 * 2 * 22 * 128 * 128,
        )

    def test_long_texts_ask_in_blocks(self):
        """Of 64 tokens: each has its own distances and those of the block."""
        given = {'d': 128, 'heads': 2, 'queries': 0}
        for t, columns in ((64, 128), (96, 192), (128, 160), (256, 320)):
            found = work.relative_operations(3, t, content=t, **given)
            each = 10 * 128 * 128 + 2 * t * 128 + columns * 128
            self.assertEqual(
                found,
                6 * 3 * (t * 128 * 256 + t * each) + 4 * 2 * t * 128 * 128,
            )

    @unittest.skipUnless(
        importlib.util.find_spec('jax'), 'JAX is not installed'
    )
    def test_as_traced(self):
        """Sums with a name, and all rows that are in none of them."""
        named = [name for name in SUMS if name in READING]
        sums = [row for name in named for row in parse(name)]
        sums.append('elmo')  # how much it reads depends on the text
        rows = [row for row in READING if row not in (*sums, *named)]
        printed = test_jax.run_forbidden(
            COUNT, ','.join([*named, *rows]), json.dumps(SMALL)
        ).splitlines()
        self.assertLen(printed, len(named) + len(rows))
        for line in printed:
            name, traced, counted = line.split()
            self.assertEqual(traced, counted, name)


if __name__ == '__main__':
    absltest.main()
