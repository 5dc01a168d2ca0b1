"""Rows of pairs against plain implementations, and their passes."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.encoders import Inputs
from infoword_tf.layers import dropout
from infoword_tf.views import View
from tests import zoo
from tests.objectives.eq1 import EagerCase, batch_of, check, states_of

B, K, D = 5, 3, 16


def objective_of(row):
    return zoo.make_model(row, rate=0.0).objectives[row]


class NextSentenceTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.objective = objective_of('nsp')
        self.states = random.standard_normal((B, 1, D)).astype(np.float32)
        self.labels = np.array([0, 1, 1, 0, 1])
        self.weights = np.array([1, 1, 1, 1, 0], np.float32)
        self.statistics = zoo.statistics()

    def outcome(self, states=None, labels=None):
        labels = self.labels if labels is None else labels
        view = View(
            ids=np.zeros((B, 4), np.int32),
            sequences=np.arange(B),
            targets={'nsp': labels[:, None].astype(np.int32)},
            weights={'nsp': self.weights[:, None]},
        )
        states = self.states if states is None else states
        batch = batch_of(
            {'masked': view}, {'masked': states}, statistics=self.statistics
        )
        return self.objective.score(batch, self.objective.candidates(batch))

    def test_written_plainly(self):
        w = {v.name: v.numpy().astype(np.float64)
             for v in self.objective.weights}  # fmt: skip
        x = self.states[:, 0].astype(np.float64)
        pooled = np.tanh(x @ w['pooler_kernel'] + w['pooler_bias'])
        scores = pooled @ w['kernel'] + w['bias']
        loss = -special.log_softmax(scores, axis=1)[np.arange(B), self.labels]
        right = scores.argmax(axis=1) == self.labels
        actual = self.outcome()
        check(actual, 5e-5, loss=loss[:4].sum())
        check(actual, 0, weight=4, mi=0, ceiling=0, chance=2, measured=4,
              accuracy=right[:4].sum())  # fmt: skip
        self.assertBetween(right[:4].sum(), 1, 3)

    def test_chance_is_the_commoner_label(self):
        """Where it is known; in training label 0."""
        self.labels = np.array([0, 1, 1, 1, 1])
        check(self.outcome(), 0, chance=1)
        for answer, chance in ((0, 1), (1, 3)):
            self.statistics = zoo.statistics()._replace(answers={'nsp': answer})
            check(self.outcome(), 0, chance=chance)

    def test_scores_that_know_nothing(self):
        self.objective.kernel.assign(np.zeros((D, 2)))
        self.objective.bias.assign([0.0, 0.0])
        actual = self.outcome()
        check(actual, 5e-6, loss=4 * math.log(2))
        check(actual, 0, accuracy=0)

    def test_huge_scores_stay_finite(self):
        self.objective.bias.assign([1e4, -1e4])
        states = tf.constant(self.states)
        with tf.GradientTape() as tape:
            tape.watch(states)
            loss = self.outcome(states).loss
        self.assertTrue(np.isfinite(loss))
        self.assertTrue(np.isfinite(tape.gradient(loss, states)).all())


class NextSentenceNceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(1)
        self.objective = objective_of('nsp_nce')
        self.states = {
            view: random.standard_normal(shape).astype(np.float32)
            for view, shape in (
                ('masked', (B, 1, D)), ('negatives', (B, K, 1, D))
            )
        }
        self.numbers = np.arange(B * (1 + K), dtype=np.int32).reshape(B, -1)
        self.weights = np.array([1, 1, 0, 1, 1], np.float32)

    def outcome(self, states=None):
        view = View(
            ids=np.zeros((B, K, 4), np.int32),
            sequences=np.arange(B),
            targets={'nsp_nce': self.numbers},
            weights={'nsp_nce': self.weights[:, None]},
        )
        batch = batch_of({'negatives': view}, states or self.states)
        self.assertEqual(self.objective.weight(batch), self.weights.sum())
        return self.objective.score(batch, self.objective.candidates(batch))

    def scores(self):
        """[B, 1 + K] float64, the true pair's first."""
        x = np.concatenate(
            [self.states['masked'][:, None], self.states['negatives']], axis=1
        )
        psi = self.objective.psi.numpy().astype(np.float64)
        self.assertEqual(psi.shape, (D, 1))
        return (x[:, :, 0] @ psi)[:, :, 0]

    @parameterized.parameters(False, True)
    def test_written_plainly(self, copies):
        scores = self.scores()
        if copies:  # the best rival of every pair is the true piece again
            best = scores[:, 1:].argmax(axis=1) + 1
            self.numbers[np.arange(B), best] = self.numbers[:, 0]
        loss = special.logsumexp(scores, axis=1) - scores[:, 0]
        same = self.numbers[:, 1:] == self.numbers[:, :1]
        right = ((scores[:, 1:] < scores[:, :1]) | same).all(axis=1)
        w, actual = self.weights, self.outcome()
        check(
            actual, 5e-5, loss=w @ loss, mi=w @ (math.log(4) - loss),
            ceiling=4 * math.log(4) - w @ np.log(1 + same.sum(axis=1)),
            log_candidates=4 * math.log(4),
        )  # fmt: skip
        check(actual, 5e-7, chance=1)
        check(actual, 0, accuracy=w @ right, weight=4, measured=4)


class ModelTest(EagerCase):
    def test_negatives_are_encoded_as_alone(self):
        model = zoo.make_model('mlm_nsp_nce', rate=0.0)
        all_views = zoo.make_views('mlm_nsp_nce')
        states, _ = model.encode(all_views, dropout.new_key(0))
        states = states_of(states, 'nsp_nce', 'negatives')
        self.assertEqual(states.shape, (8, K, 1, D))
        view = all_views['negatives']
        for row, k in ((0, 0), (3, 2), (7, 1)):
            real = view.block_ids[row, k] == 0
            alone = model.encoder(
                Inputs(
                    view.ids[row, k][real][None],
                    segment_ids=view.segment_ids[row, k][real][None],
                )
            ).states[0, 0]
            np.testing.assert_allclose(states[row, k, 0], alone, atol=1e-5)
