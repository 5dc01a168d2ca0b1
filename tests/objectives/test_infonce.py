"""Eq. 1: identities, and distributions whose mutual information is known."""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special, stats

from infoword_tf.objectives import infonce
from tests.near import near, same
from tests.objectives.eq1 import check, mean, sums

N, M = 6, 9

# p(a, b) of 4 contexts and 5 words, in hundredths.
JOINT = np.array([
    [12, 1, 2, 4, 1],
    [1, 15, 3, 1, 5],
    [6, 2, 8, 2, 2],
    [10, 4, 1, 12, 8],
]) / 100.0  # fmt: skip
P_A, P_B = JOINT.sum(axis=1), JOINT.sum(axis=0)
GIVEN = JOINT / P_A[:, None]  # p(b|a)
KNOWN = float((JOINT * np.log(JOINT / np.outer(P_A, P_B))).sum())  # I(A; B)
CONTEXT, WORD = (x.ravel() for x in np.indices(JOINT.shape))


def marginal(log_ratio, unigram=0.0, commonest=None):
    """Returns p(b) of N pairs; where none is given, no b is the commonest."""
    if commonest is None:
        commonest = np.zeros(np.shape(log_ratio) or N)
    fields = log_ratio, unigram, commonest
    return infonce.Marginal(*(tf.constant(x, tf.float32) for x in fields))


def over_multiset(*arrays):
    return infonce.over_multiset(infonce.Comparison(*arrays))


class OutcomeTest(absltest.TestCase):
    """Two pairs, written out: scores 0 against 0, log 3 against 0 and 0."""

    def setUp(self):
        super().setUp()
        self.candidates = over_multiset(
            tf.constant([0.0, math.log(3.0)]),
            tf.zeros((2, 2)),
            tf.constant([[1.0, 0.0], [1.0, 1.0]]),
            tf.zeros((2, 2), tf.bool),
        )
        self.losses = [math.log(2), math.log(5 / 3)]
        self.sizes = [math.log(2), math.log(3)]

    def test_weights(self):
        actual = infonce.infonce(self.candidates, tf.constant([2.0, 0.5]))
        loss = 2 * self.losses[0] + 0.5 * self.losses[1]
        size = 2 * self.sizes[0] + 0.5 * self.sizes[1]
        chance = 2 / 2 + 0.5 / 3
        expected = [loss, 2.5, size - loss, size, size, 0, 0.5, chance, 2.5]
        near(sums(actual), expected, rtol=1e-5)

    def test_what_is_known_of_b(self):
        """Pair by pair: p / q, the frequencies' MI, whether it is commonest."""
        known = marginal([0.25, -1.0], [-0.5, 2.0], [0.0, 1.0])
        actual = infonce.infonce(
            self.candidates, tf.constant([2.0, 0.5]), known
        )
        loss = 2 * self.losses[0] + 0.5 * self.losses[1]
        size = 2 * self.sizes[0] + 0.5 * self.sizes[1]
        ceiling = size - 2 * 0.25 + 0.5 * 1.0
        near(
            sums(actual),
            [loss, 2.5, ceiling - loss, ceiling, size, 0, 0.5, 0.5, 2.5],
            rtol=1e-5,
        )

    def test_pairs_that_show_b_count_in_the_loss_alone(self):
        actual = infonce.infonce(
            self.candidates,
            tf.constant([2.0, 0.5]),
            marginal([9.0, 0.1], [9.0, 0.2], [1.0, 0.0]),
            measured=tf.constant([0.0, 1.0]),
        )
        loss = 2 * self.losses[0] + 0.5 * self.losses[1]
        ceiling, size = 0.5 * (self.sizes[1] - 0.1), 0.5 * self.sizes[1]
        mi = ceiling - 0.5 * self.losses[1]
        expected = [loss, 2.5, mi, ceiling, size, 0.1, 0.5, 0, 0.5]
        near(sums(actual), expected, rtol=1e-5)

    def test_scalar_size(self):
        candidates = self.candidates._replace(log_size=1.5)
        actual = infonce.infonce(candidates, tf.constant([2.0, 0.5]))
        check(actual, 5e-6, ceiling=2.5 * 1.5, log_candidates=2.5 * 1.5,
              chance=2.5 * math.exp(-1.5))  # fmt: skip


class CountedTest(absltest.TestCase):
    def test_counts_are_repeated_columns(self):
        random = np.random.default_rng(3)
        positive = random.standard_normal(N)
        scores = random.standard_normal((N, M))
        counts = random.integers(0, 4, size=(N, M))
        identical = np.arange(M) == np.arange(N)[:, None]

        arrays = [tf.constant(x, tf.float32) for x in (positive, scores)]
        columns = tf.constant(counts, tf.float32), tf.constant(identical)
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            actual = over_multiset(*arrays, *columns)
            total = tf.reduce_sum(actual.log_sum)
        d_positive, d_scores = tape.gradient(total, arrays)
        for i in range(N):
            literal = np.repeat(scores[i], counts[i])
            everyone = np.append(literal, positive[i])
            self.assertAlmostEqual(
                float(actual.log_sum[i]), special.logsumexp(everyone), places=5
            )
            self.assertAlmostEqual(
                float(actual.log_size[i]), math.log(len(everyone)), places=5
            )
            p = np.exp(everyone - special.logsumexp(everyone))
            self.assertAlmostEqual(float(d_positive[i]), p[-1], places=6)
            columns = np.repeat(np.arange(M), counts[i])
            summed = np.bincount(columns, p[:-1], minlength=M)
            near(d_scores[i], summed, atol=1e-6)
            copies = math.log(1 + counts[i][identical[i]].sum())
            near(actual.log_copies[i], copies, 0, 5e-7)
            # A rival is a column, however many copies of it there are.
            rivals = (scores[i] >= positive[i]) & (counts[i] > 0)
            rank = (rivals & ~identical[i]).sum()
            self.assertEqual(int(actual.rank[i]), rank)

    def test_ties_are_rivals_unless_identical(self):
        actual = over_multiset(
            tf.constant([1.0]),
            tf.constant([[1.0, 1.0, 0.5, 2.0, 3.0]]),
            tf.constant([[1.0, 1.0, 1.0, 1.0, 0.0]]),
            tf.constant([[True, False, False, False, False]]),
        )
        self.assertEqual(float(actual.rank[0]), 2)

    def test_no_candidates_at_all(self):
        positive, scores = tf.constant([2.0]), tf.constant([[5.0, -5.0]])
        with tf.GradientTape() as tape:
            tape.watch([positive, scores])
            actual = over_multiset(
                positive, scores, tf.zeros((1, 2)), tf.zeros((1, 2), tf.bool)
            )
            outcome = infonce.infonce(actual, tf.ones(1))
        same(sums(outcome), [0, 1, 0, 0, 0, 0, 1, 1, 1])
        d_positive, d_scores = tape.gradient(outcome.loss, [positive, scores])
        same(d_positive, [0.0])
        same(d_scores, [[0.0, 0.0]])


class ContrastTest(parameterized.TestCase):
    """Scores log 3 against 0 twice, and a copy of the positive."""

    @parameterized.parameters((False, 8 / 3), (True, 5 / 3))
    def test_copies_of_the_positive(self, dropped, odds):
        actual = infonce.contrast(
            infonce.Comparison(
                tf.constant([math.log(3.0)]),
                tf.constant([[0.0, math.log(3.0), 9.0]]),
                tf.constant([[2.0, 1.0, 0.0]]),
                tf.constant([[False, True, False]]),
            ),
            tf.ones(1),
            drop_identical=dropped,
        )
        mi, most, size = math.log(4 / (8 / 3)), math.log(4 / 2), math.log(4)
        expected = [math.log(odds), 1, mi, most, size, 0, 1, 0.25, 1]
        near(sums(actual), expected, rtol=1e-6)


class KnownInformationTest(parameterized.TestCase):
    """Bounds where the truth is known: JOINT."""

    def over_vocabulary(self, scores):
        """[20, 5] scores of all pairs (a, b), weighted by p(a, b)."""
        positive = scores[np.arange(20), WORD]
        candidates = infonce.Candidates(
            tf.constant(positive, tf.float32),
            tf.constant(special.logsumexp(scores, axis=1), tf.float32),
            math.log(5),
            tf.zeros(20),
        )
        weights = tf.constant(JOINT.ravel(), tf.float32)
        known = marginal(np.log(5 * P_B)[WORD])
        return mean(infonce.infonce(candidates, weights, known))

    def test_vocabulary_reports_the_truth(self):
        actual = self.over_vocabulary(np.log(GIVEN)[CONTEXT])
        self.assertAlmostEqual(actual.mi, KNOWN, places=5)
        self.assertAlmostEqual(actual.ceiling, stats.entropy(P_B), places=5)

    def test_frequencies_alone_are_no_information(self):
        actual = self.over_vocabulary(np.tile(np.log(P_B), (20, 1)))
        self.assertAlmostEqual(actual.mi, 0.0, places=5)

    def test_one_candidate_written_out(self):
        """M = 1, of p(b): log 2 + E log p / (p + p~), by sums of Python."""
        critic = np.log(GIVEN / P_B)  # [4, 5]
        candidates = over_multiset(
            tf.constant(np.tile(critic[CONTEXT, WORD], 5), tf.float32),
            tf.constant(np.tile(critic[CONTEXT], (5, 1)), tf.float32),
            tf.constant(np.repeat(np.eye(5), 20, axis=0), tf.float32),
            tf.constant(np.arange(5) == np.tile(WORD, 5)[:, None]),
        )
        weights = np.outer(P_B, JOINT.ravel()).ravel()
        actual = infonce.infonce(
            candidates, tf.constant(weights, tf.float32),
            marginal(np.zeros(100)),
        )  # fmt: skip
        total = 0.0
        for a, b, other in itertools.product(range(4), range(5), range(5)):
            r, r_other = GIVEN[a, b] / P_B[b], GIVEN[a, other] / P_B[other]
            total += JOINT[a, b] * P_B[other] * math.log(2 * r / (r + r_other))
        self.assertAlmostEqual(mean(actual).mi, total, places=5)
