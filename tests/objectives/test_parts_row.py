"""`parts` against Eq. 1 written out in NumPy, one part after the other."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE, infonce
from infoword_tf.objectives.parts import NEGATIVES
from tests import zoo
from tests.objectives.given import F, batch_of, mean, of_pair, sums

D, S, T = 6, 4, 24
KEY = dropout.new_key(31)
TEMPERATURE = 0.5


def make(b, seed=0):
    """States [B, T, D], blocks [B, T], numbers [B, S], weights [B, S].

    Rows of two parts of 12 tokens, and of four of 6, by turns; some parts are
    equal, some count nothing.
    """
    random = np.random.default_rng(seed)
    states = random.standard_normal((b, T, D)).astype(np.float32)
    count = np.where(np.arange(b) % 2, 4, 2)[:, None]
    blocks = np.arange(T) // (T // count)
    weights = (np.arange(S) < count) & (random.random((b, S)) < 0.8)
    weights[:2] = np.arange(S) < count[:2]
    numbers = random.integers(20, size=(b, S))
    return states, blocks, numbers.astype(np.int32), weights


def view_of(blocks, numbers, weights):
    b = len(blocks)
    return views.View(
        tf.zeros((b, T), tf.int32),
        tf.range(b),
        block_ids=tf.constant(blocks, tf.int32),
        targets={'parts': tf.constant(numbers)},
        weights={'parts': tf.constant(weights, tf.float32)},
    )


def score(objective, made, key=None, limit=None):
    """An outcome, and its gradient by the states."""
    states, *given = made
    view = view_of(*given)
    x = tf.constant(states)
    with tf.GradientTape() as tape:
        tape.watch(x)
        batch = batch_of({'parts': view}, {'parts': x}, key, limit)
        outcome = objective.score(batch, objective.candidates(batch))
    return outcome, tape.gradient(outcome.loss, x), objective.weight(batch)


def literal(made, negatives='others', limit=None):
    """Eq. 1 over the parts of one length, in NumPy."""
    states, blocks, numbers, weights = made
    vectors = {}
    for i, s in np.argwhere(weights):
        x = states[i][blocks[i] == s].astype(np.float64).mean(axis=0)
        vectors[i, s] = x / np.linalg.norm(x)
    total = np.zeros(F)
    for (i, s), a in vectors.items():
        b = i, s ^ 1
        if b not in vectors:
            continue
        alike = [(j, q) for j, q in vectors if j % 2 == i % 2]  # of its length
        others = [c for c in alike if c[0] != i][:limit]
        if negatives == 'all':
            known = numbers[i, s], numbers[b]
            others += [
                c for c in alike if c[0] == i and numbers[c] not in known
            ]
        total += of_pair(
            a @ vectors[b] / TEMPERATURE,
            [a @ vectors[c] / TEMPERATURE for c in others],
            [numbers[c] == numbers[b] for c in others],
            drop_copies=True,
        )
    return infonce.Outcome(*total)


class PartsTest(parameterized.TestCase):
    def objective(self, negatives='others'):
        return TABLE['parts'].objective(
            'parts', None, zoo.SPECIALS, temperature=TEMPERATURE,
            negatives=negatives,
        )  # fmt: skip

    @parameterized.product(
        negatives=NEGATIVES, b=(2, 9, 16), key=(None, KEY), limit=(None, 5)
    )
    def test_is_what_is_written_out(self, negatives, b, key, limit):
        made = make(b, seed=b)
        found, _, weight = score(self.objective(negatives), made, key, limit)
        expected = literal(made, negatives, limit)
        np.testing.assert_allclose(
            sums(found), sums(expected), rtol=2e-6, atol=2e-5
        )
        self.assertEqual(float(weight), expected.weight)

    def test_states_of_parts_that_count_nothing_have_no_gradient(self):
        made = make(10)
        _, gradient, _ = score(self.objective(), made)
        _, blocks, _, weights = made
        counted = np.take_along_axis(weights, blocks, axis=1)
        self.assertGreater(np.abs(gradient.numpy()[counted]).min(), 0)
        np.testing.assert_array_equal(gradient.numpy()[~counted], 0)

    def test_what_knows_nothing_has_no_information(self):
        states, blocks, numbers, weights = make(16)
        numbers = np.arange(numbers.size, dtype=np.int32).reshape(16, S)
        same = np.ones_like(states), blocks, numbers, weights
        found, *_ = score(self.objective(), same)
        self.assertAlmostEqual(mean(found).mi, 0, delta=1e-5)

    def test_neighbours_that_are_alike_reach_the_ceiling(self):
        """The log of the parts of a length in other texts, and of b itself."""
        states, blocks, numbers, weights = make(8)
        numbers = np.arange(numbers.size, dtype=np.int32).reshape(8, S)
        weights = np.arange(S) < np.where(np.arange(8) % 2, 4, 2)[:, None]
        own = np.eye(16)[2 * np.arange(8)[:, None] + blocks // 2]
        apart = np.zeros((8, T, D + 10), np.float32)
        apart[..., :16] = 40 * own
        found, *_ = score(
            TABLE['parts'].objective('parts', None, zoo.SPECIALS),
            (apart, blocks, numbers, weights),
        )
        expected = (8 * np.log(1 + 3 * 2) + 16 * np.log(1 + 3 * 4)) / 24
        self.assertAlmostEqual(mean(found).ceiling, expected, delta=1e-5)
        self.assertAlmostEqual(mean(found).mi, expected, delta=1e-4)


if __name__ == '__main__':
    absltest.main()
