"""Operations of a step, written out by hand and counted by JAX itself."""

import importlib.util
import json
import unittest

from absl.testing import absltest, parameterized

from benchmarks import work
from infoword_tf.objectives import SUMS, TABLE, parse
from tests import test_jax

# 2 x 22 tokens, of which 20 are text: P = 3 places, S = 3 n-grams of a
# sequence, packed into 3 + 2 * 3 = 9 positions. tiny has 2 blocks, D = 128.
SMALL = {'size': 'tiny', 'batch_size': 2, 'seq_len': 22, 'vocab_size': 500}
# Multiplications of a block in one sequence, its four kinds of product:
# keys and values; queries and output; attention; feed-forward.
MASKED_ALL = 22 * 128 * 256 + 22 * 128 * 256 + 2 * 22 * 22 * 128 + (
    2 * 22 * 128 * 512)
MASKED_AT = {
    q: 22 * 128 * 256 + 2 * q * 128 * 128 + 2 * q * 22 * 128
    + 2 * q * 128 * 512
    for q in (1, 3, 4)
}
NGRAMS_ALL = 9 * 128 * 256 + 9 * 128 * 256 + 2 * 9 * 9 * 128 + (
    2 * 9 * 128 * 512)
NGRAMS_AT_3 = 9 * 128 * 256 + 2 * 3 * 128 * 128 + 2 * 3 * 9 * 128 + (
    2 * 3 * 128 * 512)
# A sentence is cut to a quarter, 5 tokens; both whole texts are wanted.
SENTENCES_ALL = 5 * 128 * 256 + 5 * 128 * 256 + 2 * 5 * 5 * 128 + (
    2 * 5 * 128 * 512)
# Relative attention of 22 tokens. Of next words all ask, with 23 distances; of
# permuted text 22 and 3 queries, then the queries alone, with 44 distances,
# each in two parts, and 2 heads of segments.
STREAMED = 22 * 128 * 256 + 22 * (
    2 * 128 * 128 + 2 * 22 * 128 + 23 * 128 + 2 * 128 * 512)
PERMUTED_AT = {
    q: 22 * 128 * 256 + q * (
        2 * 128 * 128 + 2 * 22 * 128 + 2 * 44 * 128 + 128 * 2
        + 2 * 128 * 512)
    for q in (25, 3)
}
# 6 = 2 x 3 pairs; dim scores 2 texts, ict 2 x 2 both ways, after it has
# pooled both views, twice: as a and as candidates.
SCORES = {
    'mlm': 6 * 128 * 500,
    'bert_nce': 6 * 128 * 6,
    'dim': 2 * 128 * 6,
    'ict': 2 * 2 * 128 * 2 + 2 * 2 * (2 * 22 + 2 * 5) * 128,
    # A pooler and two classes; psi, and four pairs of pieces for each text.
    'nsp': 2 * 128 * 130,
    'nsp_nce': 8 * 128,
    'gpt': 2 * 22 * 128 * 500,
    'transformer_xl': 2 * 22 * 128 * 500,
    'rnn_lm': 2 * 22 * 128 * 500,
    'elmo': 2 * 2 * 22 * 64 * 500,
    'plm': 6 * 128 * 500,
    'parts': 4 * 128 * 4,
}
# Input and state, four gates each.
LSTM = 2 * 22 * (128 + 128) * 4 * 128
# Two directions, 64 wide, of 512 cells.
BOTH = 2 * 2 * 22 * (2 * 64 * 4 * 512 + 512 * 64)
# Of 44 tokens more than 22 pieces: all 44 are read. Numbers of three digits and
# two marks, with seven more for the longest filter.
PIECE = (
    16 * (12 * 4 + 11 * 2 * 4 + 10 * 3 * 8 + 9 * 4 * 16 + 8 * 5 * 32
          + 7 * 6 * 64 + 6 * 7 * 128)
    + 2 * 256 * 512 + 256 * 64
)  # fmt: skip
BY_HAND = {
    'mlm': 2 * (MASKED_ALL + MASKED_AT[3]) + SCORES['mlm'],
    'bert_nce': 2 * (MASKED_ALL + MASKED_AT[3]) + SCORES['bert_nce'],
    'dim': 2 * (MASKED_ALL + MASKED_AT[1] + NGRAMS_ALL + NGRAMS_AT_3)
    + SCORES['dim'],
    'ict': 2 * 2 * (MASKED_ALL + SENTENCES_ALL) + SCORES['ict'],
    'nsp': 2 * (MASKED_ALL + MASKED_AT[1]) + SCORES['nsp'],
    'nsp_nce': 8 * (MASKED_ALL + MASKED_AT[1]) + SCORES['nsp_nce'],
    # The sum has BERT's transform, one product of the width before scores.
    'bert': 2 * (MASKED_ALL + MASKED_AT[4])
    + SCORES['mlm'] + 6 * 128 * 128 + SCORES['nsp'],
    'infoword': 2 * (MASKED_ALL + MASKED_AT[4] + NGRAMS_ALL + NGRAMS_AT_3)
    + SCORES['bert_nce'] + SCORES['dim'],
    'gpt': 2 * 2 * MASKED_ALL + SCORES['gpt'],
    'transformer_xl': 2 * 2 * STREAMED + SCORES['transformer_xl'],
    'rnn_lm': 2 * LSTM + SCORES['rnn_lm'],
    'elmo': 2 * BOTH + 44 * PIECE + SCORES['elmo'],
    'plm': 2 * (PERMUTED_AT[25] + PERMUTED_AT[3]) + SCORES['plm'],
}
BY_HAND['xlnet'] = BY_HAND['plm']
BY_HAND['mmlm'] = BY_HAND['part_words'] = BY_HAND['mlm']
BY_HAND['overlap'] = BY_HAND['mlm']
BY_HAND['same_text'] = BY_HAND['nsp']
BY_HAND['parts'] = 2 * 2 * MASKED_ALL + SCORES['parts']
# Distances are the same for all rows of a batch, and need no gradient; nor do
# the weights of means, of two parts and twice.
DISTANCES = {
    'transformer_xl': 2 * 23 * 128 * 128,
    'plm': 2 * 44 * 128 * 128,
    'xlnet': 2 * 44 * 128 * 128,
    'parts': 2 * 2 * 2 * 22 * 128,
}


def by_hand(name):
    """Two operations a multiplication, three products for most of them."""
    return 6 * BY_HAND[name] + 4 * DISTANCES.get(name, 0)


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
    def test_bytes_of_a_step(self):
        """44 a weight; what two blocks keep, twice; 16 a score."""
        one = work.Work('mlm', 'tiny', 2, 16, 500)
        batch = one.make_views()
        pairs = batch['masked'].targets['mlm'].size
        kept = 2 * 2 * (2 * 16) * (58 * 128 + 5.8 * 2 * 16)
        self.assertEqual(
            one.traffic(batch, 1000),
            44 * 1000 + round(kept) + 16 * pairs * 500,
        )

    @parameterized.parameters(*READING)
    def test_by_hand(self, objectives):
        own = work.Work(objectives, **SMALL)
        self.assertEqual(own.operations(own.make_views()), by_hand(objectives))

    @parameterized.parameters(('skip_gram', 'words'), ('simcse', 'sentences'))
    def test_what_is_measured_elsewhere(self, row, name):
        own = work.Work(row, **SMALL)
        with self.assertRaisesRegex(ValueError, f'benchmarks.{name} measures'):
            own.make_views()

    def test_labels_are_no_text(self):
        own = work.Work('label', **SMALL)
        with self.assertRaisesRegex(ValueError, 'reads labelled examples'):
            own.make_views()

    def test_more_pairs_than_words_are_scored_as_words(self):
        own = work.Work('bert_nce', 'tiny', 8, 62, 64)  # 8 x 9 pairs
        found = own.score_operations('bert_nce', own.make_views())
        self.assertEqual(found, 2 * 72 * 128 * 64)

    def test_memory_is_keys(self):
        """Of as many tokens again: twice the keys and what looks at them."""
        own = work.Work('transformer_xl', **SMALL, memory_length=22)
        more = 2 * 2 * (22 * 128 * 256 + 22 * (2 * 22 * 128 + 22 * 128))
        self.assertEqual(
            own.operations(own.make_views()),
            by_hand('transformer_xl') + 6 * more + 4 * 2 * 22 * 128 * 128,
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
        # How much `elmo` reads depends on the text.
        sums.append('elmo')
        sums += named
        names = [*named, *(row for row in READING if row not in sums)]
        printed = test_jax.run_forbidden(
            COUNT, ','.join(names), json.dumps(SMALL)
        )
        for name, line in zip(names, printed.splitlines(), strict=True):
            wanted = by_hand(name)
            self.assertEqual(line, f'{name} {wanted} {wanted}')


class WorkTest(absltest.TestCase):
    def test_rows_without_a_weight_are_not_built(self):
        own = work.Work('mlm:0,bert_nce:2', **SMALL)
        self.assertEqual(own.rows, {'bert_nce': 2.0})
        self.assertEqual(
            own.config('float32').rows['bert_nce'].weight, 2.0
        )

    def test_an_unknown_row_is_named(self):
        with self.assertRaisesRegex(ValueError, "no row 'nothing'; rows"):
            work.rows_of('nothing')

    def test_the_same_batch_every_time(self):
        own = work.Work('infoword', **SMALL)
        one, again = own.make_views()['masked'], own.make_views()['masked']
        self.assertEqual(one.ids.shape, (2, 22))
        self.assertTrue((one.ids == again.ids).all())
        self.assertLess(one.ids.max(), 500)
        self.assertFalse((one.ids == own.make_views(1)['masked'].ids).all())


if __name__ == '__main__':
    absltest.main()
