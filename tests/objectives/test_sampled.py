"""Candidates that are drawn from the vocabulary, against all of it."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.encoders import Lookup
from infoword_tf.layers import dropout
from infoword_tf.objectives import Statistics
from infoword_tf.objectives.lm import NextTokens
from infoword_tf.objectives.mlm import inclusion
from infoword_tf.views import View
from tests import zoo
from tests.eager import eagerly
from tests.objectives.eq1 import EagerCase, batch_of, drawn, sums

V, D, B, T = zoo.V, 6, 4, 9
ROW, VIEW = 'transformer_xl', 'streamed'


def make_objective(sampled, scale=1.0):
    encoder = drawn(Lookup(vocab_size=V, width=D), 0, scale)
    objective = NextTokens(ROW, encoder, zoo.SPECIALS, sampled=sampled)
    return drawn(objective, scale=scale)


def make_view():
    random = np.random.default_rng(1)
    targets = random.choice(V, (B, T), p=zoo.frequencies()).astype(np.int32)
    targets[0, 3] = zoo.SEP
    weights = np.ones((B, T), np.float32)
    weights[1, 2] = 0
    measured = (targets != zoo.SEP).astype(np.float32)
    return View(
        ids=targets, sequences=np.arange(B), targets={ROW: targets},
        weights={ROW: weights}, measured={ROW: measured},
    )  # fmt: skip


STATES = np.random.default_rng(2).standard_normal((B, T, D))
STATES = STATES.astype(np.float32)


def outcome(objective, key):
    batch = batch_of({VIEW: make_view()}, {VIEW: STATES}, key)
    return objective.score(batch, objective.candidates(batch))


class InclusionTest(parameterized.TestCase):
    COUNTS = np.array([3, 50, 0, 7, 7, 1000, 1, 0])

    @parameterized.parameters(1, 3, 5, 7, 8)
    def test_in_proportion_and_one_at_most(self, size):
        actual = inclusion(self.COUNTS, size)
        self.assertAlmostEqual(actual.sum(), size)
        order = [5, 1, 3, 4, 0, 6, 2, 7]  # equal ones as they stand
        q = np.log(np.arange(2, 10) / np.arange(1, 9))
        certain = (actual[order] == 1).sum()
        rest = (actual[order] / q)[certain:]
        np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape))
        self.assertTrue((np.diff(actual[order]) <= 0).all())
        self.assertGreater(actual.min(), 0)
        if certain:  # none is, that would not have to be
            scale = (size - certain + 1) / q[certain - 1 :].sum()
            self.assertGreaterEqual(scale * q[certain - 1], 1 - 1e-9)

    def test_by_hand(self):
        """Sums 1, log 2, log 3/2, log 4/3 ... up to log 9; of 8, all."""
        actual = inclusion(self.COUNTS, 1)
        self.assertAlmostEqual(actual[5], math.log(2) / math.log(9))
        self.assertAlmostEqual(actual[7], math.log(9 / 8) / math.log(9))
        np.testing.assert_array_equal(inclusion(self.COUNTS, 8), np.ones(8))


class SampledTest(EagerCase):
    def test_all_of_the_vocabulary_is_the_whole_loss(self):
        """Its gradients too."""
        actual = []
        for size in (0, V, 5 * V):
            objective = make_objective(size)
            weights = [objective.encoder.embedding_table, objective.token_bias]
            with tf.GradientTape() as tape:
                result = outcome(objective, dropout.new_key(size))
            gradients = tape.gradient(result.loss, [w.value for w in weights])
            actual.append([sums(result), *map(tf.convert_to_tensor, gradients)])
        for others in actual[1:]:
            for one, two in zip(actual[0], others, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)

    @parameterized.parameters(12, 3)
    def test_every_pair_by_itself(self, size):
        objective, view = make_objective(size), make_view()
        key = dropout.new_key(5)
        batch = batch_of({VIEW: view}, {VIEW: STATES}, key)
        ids, marks, w = objective.candidates(batch)
        drawn = np.asarray(ids)[np.asarray(marks) > 0]
        counts = np.array(zoo.statistics().training)
        counts[zoo.SEP] = counts.max() + 1
        np.testing.assert_allclose(w, inclusion(counts, size))
        scores = STATES @ np.asarray(objective.encoder.embedding_table).T
        scores = scores + np.asarray(objective.token_bias) - np.log(w)
        p = counts / zoo.statistics().measured.sum()
        likely = zoo.statistics().p / w  # a separator is never measured
        expected = np.zeros(9)
        hits = 0
        for i, j in np.argwhere(view.weights[ROW] > 0):
            b = view.targets[ROW][i, j]
            hits += b in drawn
            others = scores[i, j, drawn[drawn != b]]
            positive = scores[i, j, b]
            loss = special.logsumexp([positive, *others]) - positive
            expected[:2] += loss, 1
            if b == zoo.SEP:
                continue
            most = math.log(w[b] / p[b])
            expected[2:5] += most - loss, most, math.log(size)
            expected[6] += (others < positive).all()
            expected[7] += (likely[drawn[drawn != b]] < likely[b]).all()
            expected[8] += 1
        actual = sums(objective.score(batch, objective.candidates(batch)))
        for place in (0, 1, 2, 3, 4, 6, 7, 8):
            np.testing.assert_allclose(
                actual[place], expected[place], rtol=1e-5
            )
        self.assertBetween(hits, 1, actual[1] - 1)

    def test_held_out_text_is_scored_against_all(self):
        batch = batch_of({VIEW: make_view()}, {VIEW: STATES})
        self.assertIsNone(make_objective(12).candidates(batch))
        whole, drawn = (outcome(make_objective(m), None) for m in (0, 12))
        np.testing.assert_array_equal(sums(whole), sums(drawn))

    def test_another_step_draws_others(self):
        """As often as is said, and with room for all."""
        self.enterContext(eagerly(False))  # many of the same
        objective = make_objective(10)
        counts = np.zeros(V)
        sizes = []
        for i in range(100):
            batch = batch_of(
                {VIEW: make_view()}, {VIEW: STATES}, dropout.new_key(i)
            )
            ids, marks, w = objective.candidates(batch)
            drawn = np.asarray(ids)[np.asarray(marks) > 0]
            self.assertLen(set(np.asarray(ids).tolist()), len(ids))
            counts[drawn] += 1
            sizes.append(len(drawn))
        error = np.sqrt(w * (1 - w) / 100)
        self.assertLess((np.abs(counts / 100 - w) - 5 * error).max(), 1e-9)
        self.assertLess(max(sizes), len(ids))
        self.assertAlmostEqual(np.mean(sizes), 10, delta=0.7)

    def test_a_vocabulary_of_one_count(self):
        """Text of which nothing is counted still draws everything."""
        nothing = Statistics(np.zeros(V), np.zeros(V))
        batch = batch_of(
            {VIEW: make_view()}, {VIEW: STATES}, dropout.new_key(0),
            statistics=nothing,
        )
        objective = make_objective(3)
        actual = objective.score(batch, objective.candidates(batch))
        self.assertTrue(np.isfinite(sums(actual)).all())
