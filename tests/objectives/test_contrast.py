"""`ict` against a plain implementation, and its pooling."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from scipy import special

from infoword_tf.model import Model
from infoword_tf.views import View
from tests import zoo
from tests.objectives.given import batch_of

B, T, D = 4, 5, 16


def make_view(random, side, lengths, numbers, weights, kept):
    return View(
        ids=np.zeros((B, T), np.int32),
        sequences=np.arange(B, dtype=np.int32),
        block_ids=(np.arange(T) >= lengths[:, None]).astype(np.int32),
        targets={'ict': np.array(numbers, np.int32)[:, None]},
        weights={'ict': np.array(weights, np.float32)[:, None]},
        measured={'ict': 1 - np.array(kept, np.float32)[:, None]},
    )


def pooled(states, lengths, w):
    rows = []
    for x, n in zip(states.astype(np.float64), lengths, strict=True):
        p = special.softmax(x[:n] @ w)
        v = p @ x[:n]
        rows.append(v / np.linalg.norm(v))
    return np.array(rows)


class ContrastTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        config = zoo.config('ict', rate=0.0)
        self.objective = Model(config, zoo.SPECIALS).objectives['ict']
        self.w = random.standard_normal(D)
        self.objective.pooling_kernel.assign(self.w)
        self.objective.log_scale.assign(-1.0)
        self.lengths = {
            'passage': np.array([5, 4, 3, 5]),
            'sentence': np.array([2, 3, 1, 2]),
        }
        self.numbers = {'passage': [0, 1, 2, 3], 'sentence': [0, 1, 1, 2]}
        self.weights = [1, 1, 1, 0]
        self.kept = [0, 1, 0, 0]
        self.views = {
            side: make_view(
                random, side, self.lengths[side], self.numbers[side],
                self.weights, self.kept,
            )
            for side in ('passage', 'sentence')
        }  # fmt: skip
        self.states = {
            side: random.standard_normal((B, T, D)).astype(np.float32)
            for side in self.views
        }

    def outcome(self, states=None, limit=None):
        states = self.states if states is None else states
        batch = batch_of(self.views, states, limit=limit)
        candidates = self.objective.candidates(batch)
        return self.objective.score(batch, candidates)

    def test_both_directions_written_plainly(self):
        vectors = {
            side: pooled(self.states[side], self.lengths[side], self.w)
            for side in self.views
        }
        scale = 20 * np.exp(-1.0)
        sums = np.zeros(5)  # loss, MI, ceiling, accuracy, chance
        for a, b in (('passage', 'sentence'), ('sentence', 'passage')):
            scores = scale * vectors[a] @ vectors[b].T
            for i in range(3):  # the fourth weighs nothing
                others = [j for j in range(3) if j != i]
                distinct = [
                    j for j in others
                    if self.numbers[b][j] != self.numbers[b][i]
                ]  # fmt: skip
                loss = special.logsumexp(scores[i, [i, *distinct]])
                sums[0] += loss - scores[i, i]
                if self.kept[i]:
                    continue
                all_of_them = special.logsumexp(scores[i, [i, *others]])
                sums[1] += np.log(3) - all_of_them + scores[i, i]
                sums[2] += np.log(3)
                sums[3] += (scores[i, distinct] < scores[i, i]).all()
                sums[4] += 1 / 3
        found = self.outcome()
        np.testing.assert_allclose(
            [found.loss, found.mi, found.ceiling, found.accuracy,
             found.chance], sums / 2, rtol=1e-5,
        )  # fmt: skip
        self.assertEqual(float(found.weight), 3)
        self.assertEqual(float(found.measured), 2)

    def test_padding_changes_nothing(self):
        states = {
            side: np.where(
                np.arange(T)[:, None] >= self.lengths[side][:, None, None],
                np.float32(1e3), x,
            )
            for side, x in self.states.items()
        }  # fmt: skip
        np.testing.assert_allclose(self.outcome(states), self.outcome())

    def test_heldout_candidates_are_counted(self):
        found = self.outcome(limit=1)
        self.assertAlmostEqual(
            float(found.ceiling / found.measured), np.log(2), places=6
        )

    def test_gradient_reaches_both_views_and_its_own_weights(self):
        states = {k: tf.constant(v) for k, v in self.states.items()}
        own = [v.value for v in self.objective.weights]
        with tf.GradientTape() as tape:
            tape.watch(list(states.values()))
            loss = self.outcome(states).loss
        gradients = tape.gradient(loss, [*states.values(), *own])
        for gradient in gradients:
            self.assertGreater(float(tf.reduce_max(tf.abs(gradient))), 1e-3)

    def test_equal_scores_know_nothing(self):
        """Other texts in the same states: also where their norm is 0."""
        numbers = np.arange(B, dtype=np.int32)[:, None]
        self.views = {
            side: view._replace(
                targets={'ict': numbers},
                weights={'ict': np.ones((B, 1), np.float32)},
                measured={'ict': np.ones((B, 1), np.float32)},
            )
            for side, view in self.views.items()
        }
        for scale in (1.0, 0.0):
            # Sums of one term: exact, in whatever order.
            states = np.zeros((B, T, D), np.float32)
            states[..., 0] = scale
            states = {side: tf.constant(states) for side in self.views}
            with tf.GradientTape() as tape:
                tape.watch(list(states.values()))
                found = self.outcome(states)
            self.assertAlmostEqual(float(found.mi), 0.0, places=4)
            self.assertAlmostEqual(
                float(found.loss), float(found.ceiling), places=4
            )
            self.assertAlmostEqual(
                float(found.ceiling), B * np.log(B), places=4
            )
            self.assertEqual(float(found.accuracy), 0.0)
            for gradient in tape.gradient(found.loss, list(states.values())):
                self.assertTrue(np.isfinite(gradient).all())

    def test_the_scale_ends_at_100(self):
        self.objective.log_scale.assign(50.0)
        at_limit = self.outcome()
        self.objective.log_scale.assign(np.log(5.0))
        np.testing.assert_allclose(at_limit, self.outcome(), rtol=1e-5)


if __name__ == '__main__':
    absltest.main()
