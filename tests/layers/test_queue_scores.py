"""`queue_scores` against plain operations and their automatic gradient."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.layers import queue_scores
from infoword_tf.layers.pooling import unit
from tests import eager

B, S, D = 3, 29, 6


class QueueScoresTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.queries = random.standard_normal((B, D)).astype(np.float32)
        self.rows = random.standard_normal((S, D)).astype(np.float32)
        self.ids = random.integers(0, 9, S).astype(np.int32)
        self.filled = np.arange(S) < 23

    @parameterized.product(
        [{'pairs': 1, 'sharpness': 0.0, 'at_once': 10**6},
         {'pairs': 1, 'sharpness': 0.3, 'at_once': 40},
         {'pairs': 2, 'sharpness': 0.0, 'at_once': 40},
         {'pairs': 2, 'sharpness': 0.3, 'at_once': 10**6}],
        key=(None, eager.new_key(1)),
    )  # fmt: skip
    def test_sums_and_gradient(self, pairs, sharpness, at_once, key):
        """Neither copies nor empty slots count."""
        n = B * pairs
        targets = np.arange(n, dtype=np.int32)
        self.rows[targets] *= 40  # far above others
        self.ids[targets] = targets

        def finish(rows):
            return unit(rows[:, :4]) * 5

        queries = tf.constant(self.queries[:, :4])
        with (
            mock.patch.object(queue_scores, 'SCORES_AT_ONCE', at_once),
            tf.GradientTape() as tape,
        ):
            tape.watch(queries)
            actual = queue_scores.queue_scores(
                queries, self.rows, self.ids, self.filled, targets,
                sharpness=sharpness, finish=finish, key=key,
            )  # fmt: skip
            weights = np.arange(1.0, n + 1, dtype=np.float32)
            loss = tf.reduce_sum(weights * actual.others)
        gradient = tape.gradient(loss, queries)

        rows = finish(self.rows).numpy().astype(np.float64)
        scores = np.repeat(self.queries[:, :4] @ rows.T, pairs, axis=0)
        same = self.ids == targets[:, None]
        expected = np.zeros((n, 4))
        for i in range(n):
            others = scores[i][self.filled & ~same[i]]
            weigh = np.exp(sharpness * others)
            for name, value in {
                'others': special.logsumexp((1 + sharpness) * others),
                'weight': weigh.sum(),
                'size': len(others),
            }.items():
                np.testing.assert_allclose(
                    getattr(actual, name)[i], value, rtol=2e-5, err_msg=name
                )
            p = special.softmax((1 + sharpness) * others)
            expected[i] = weights[i] * (p @ rows[self.filled & ~same[i]])
        expected = expected.reshape(B, pairs, 4).sum(axis=1)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
        self.assertLess(actual.size.numpy().max(), 23)

    @parameterized.product(key=(None, eager.new_key(1)))
    def test_an_empty_queue_adds_nothing(self, key):
        """Nor does a queue of copies alone add to the loss."""
        queries = tf.constant(self.queries)
        ids = np.zeros_like(self.ids)
        for filled in (np.zeros(S, bool), self.filled):
            with tf.GradientTape() as tape:
                tape.watch(queries)
                actual = queue_scores.queue_scores(
                    queries, self.rows, ids, filled, np.zeros(B, np.int32),
                    sharpness=0.5, key=key,
                )  # fmt: skip
                total = tf.reduce_sum(
                    tf.reduce_logsumexp(
                        tf.stack([actual.others, tf.ones(B)]), axis=0
                    )
                )
            self.assertEqual(float(total), B)
            np.testing.assert_array_equal(
                tape.gradient(total, queries), np.zeros((B, D))
            )
            np.testing.assert_array_equal(actual.weight, np.zeros(B))
            np.testing.assert_array_equal(actual.size, np.zeros(B))
