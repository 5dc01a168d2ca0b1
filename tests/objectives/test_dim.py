"""`dim` against J_DIM written out in NumPy, one pair after the other."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf import views
from infoword_tf.objectives import TABLE, infonce
from infoword_tf.objectives.dim import CRITICS
from tests import eager, zoo
from tests.near import near, same
from tests.objectives.eq1 import EagerCase, F, batch_of, of_pair, sums

D, S, M = 6, 3, 128
KEY = eager.new_key(31)


def make_objective(critic='dot', temperature=0.5):
    return TABLE['dim'].objective(
        'dim', None, zoo.SPECIALS, critic=critic, temperature=temperature
    )


def make_batch(b, seed=0, s=S):
    """a [B, D], b [B, S, D], targets, weights: few n-grams, many twice."""
    random = np.random.default_rng(seed)
    starts = random.standard_normal((b, D)).astype(np.float32)
    spelled = random.standard_normal((7, D)).astype(np.float32)
    targets = random.integers(7, size=(b, s)).astype(np.int32)
    weights = np.arange(s) < random.integers(0, s + 1, size=(b, 1))
    weights[0] = True
    # States of padding are as large as others.
    return starts, spelled[targets], targets, weights.astype(np.float32)


def lengths_of(targets):
    """How many pieces n-grams have: 1 to 3."""
    return 1 + np.asarray(targets) % 3


def make_views(targets, weights, sequences=None):
    b, s = targets.shape
    sizes = np.where(weights > 0, lengths_of(targets) + 2, 0)
    ends = np.cumsum(sizes, axis=1)
    blocks = (np.arange(5 * s) >= ends[:, :, None]).sum(axis=1)  # [B, T]
    if sequences is None:
        sequences = np.arange(b)
    sequences = tf.constant(sequences, tf.int32)
    places = {'dim': tf.zeros((b, s), tf.int32)}
    return {
        'masked': views.View(
            tf.zeros((b, 9), tf.int32), sequences,
            places={'dim': tf.zeros((b, 1), tf.int32)},
        ),
        'ngrams': views.View(
            tf.zeros((b, 5 * s), tf.int32), sequences, places=places,
            block_ids=tf.constant(blocks, tf.int32),
            targets={'dim': tf.constant(targets, tf.int32)},
            weights={'dim': tf.constant(weights, tf.float32)},
        ),
    }  # fmt: skip


def score(objective, batch, sequences=None, limit=None, key=None):
    """An outcome, gradients by a, by b as positives and as candidates."""
    a, b, targets, weights = batch
    all_views = make_views(targets, weights, sequences)
    a, b, copy = (tf.constant(x, tf.float32) for x in (a, b, b))
    with tf.GradientTape() as tape:
        tape.watch([a, b, copy])
        states = {'masked': a[:, None], 'ngrams': copy}
        candidates = objective.candidates(
            batch_of(all_views, states, key, limit)
        )
        states = {**states, 'ngrams': b}
        outcome = objective.score(batch_of(all_views, states, key), candidates)
    return outcome, [g.numpy() for g in tape.gradient(
        outcome.loss, [a, b, copy],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )]  # fmt: skip


def literal(batch, critic='dot', temperature=0.5, sequences=None, limit=None):
    """J_DIM in NumPy, float64: an outcome, of held-out text."""
    a, b, targets, weights = batch
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    sequences = range(len(a)) if sequences is None else sequences

    def f(x, y):
        if critic == 'scaled':
            return x @ y / math.sqrt(D)
        if critic == 'cosine':
            lengths = np.linalg.norm(x) * np.linalg.norm(y)
            return x @ y / lengths / temperature
        return x @ y

    total, alike = np.zeros(F), np.zeros(F)
    for i, s in np.argwhere(weights > 0):
        positive = f(a[i], b[i, s])
        others = [
            (f(a[i], b[j, q]), targets[j, q])
            for j, q in np.argwhere(weights > 0)
            if sequences[j] != sequences[i]
        ][:limit]
        total += of_pair(
            positive, [x for x, _ in others],
            [t == targets[i, s] for _, t in others], drop_copies=True,
        )  # fmt: skip
        # The bound once more, over candidates of the same length.
        length = lengths_of(targets[i, s])
        others = [(x, t) for x, t in others if lengths_of(t) == length]
        alike += of_pair(
            positive, [x for x, _ in others],
            [t == targets[i, s] for _, t in others],
        )  # fmt: skip
    outcome = infonce.Outcome(*total)
    bounds = infonce.Outcome(*alike)
    more = {'same_length_mi': bounds.mi, 'same_length_ceiling': bounds.ceiling}
    return outcome._replace(more=more)


def assert_same(actual, expected, rtol=2e-6, atol=2e-5):
    near(sums(actual), sums(expected), rtol, atol)
    for name, value in actual.more.items():
        near(float(value), expected.more[name], rtol, atol, message=name)


class LiteralTest(EagerCase):
    @parameterized.product(critic=CRITICS, b=(4, 20), key=(None, KEY))
    def test_is_the_formula(self, critic, b, key):
        batch = make_batch(b)
        self.assertGreater(len(set(batch[3].sum(axis=1))), 1)
        actual, _ = score(make_objective(critic), batch, key=key)
        assert_same(actual, literal(batch, critic))
        self.assertEqual(bool(actual.more), key is None)
        # Which n-grams are left out matters, and how texts are compared.
        self.assertGreater(
            float(actual.log_candidates - actual.mi), float(actual.loss) + 0.1
        )
        for other in {*CRITICS} - {critic}:
            loss = literal(batch, other).loss
            self.assertNotAlmostEqual(float(actual.loss), loss, delta=0.1)

    @parameterized.product(critic=CRITICS, limit=(None, 1, 7, M))
    def test_temperature_and_the_first_of_other_sequences(self, critic, limit):
        """The temperature is of the cosine alone."""
        batch, t = make_batch(12), 0.05 if limit == 7 else 2.0
        actual, _ = score(make_objective(critic, t), batch, limit=limit)
        expected = literal(batch, critic, t, limit=limit)
        assert_same(actual, expected, rtol=1e-5, atol=1e-4)

    @parameterized.parameters(*CRITICS)
    def test_gradients_are_differences(self, critic):
        """Central differences of the formula, along drawn directions."""
        a, b, targets, weights = batch = make_batch(4, s=2)
        _, (by_a, by_b, by_candidates) = score(make_objective(critic), batch)
        both = np.concatenate([a.ravel(), b.ravel()]).astype(np.float64)

        def loss(states):
            parts = np.split(states, [a.size])
            return literal(
                (parts[0].reshape(a.shape), parts[1].reshape(b.shape),
                 targets, weights),
                critic,
            ).loss  # fmt: skip

        ways = np.random.default_rng(5).standard_normal((6, both.size))
        expected = [
            (loss(both + way) - loss(both - way)) / 2e-5 for way in 1e-5 * ways
        ]
        actual = np.append(by_a.ravel(), (by_b + by_candidates).ravel())
        near(ways @ actual, expected, rtol=0, atol=1e-4)

    def test_rows_of_one_text_are_no_candidates_of_each_other(self):
        batch, sequences = make_batch(8), np.arange(8) // 2 * 5
        actual, _ = score(make_objective(), batch, sequences)
        assert_same(actual, literal(batch, sequences=sequences))


class EdgeTest(EagerCase):
    def assert_nothing(self, actual, gradients, pairs):
        """No rivals: every pair is sure, and nothing is known."""
        near(
            sums(actual), [0, pairs, 0, 0, 0, 0, pairs, pairs, pairs], atol=1e-6
        )
        for gradient in gradients:
            same(gradient, np.zeros(gradient.shape))

    @parameterized.product(
        critic=CRITICS, limit=(None, M), sequences=((1, 1), (5, 1), (5, 0))
    )
    def test_others_hide_nothing(self, critic, limit, sequences):
        """One sequence alone, one of several that hides, and none."""
        count, hiding = sequences
        batch = make_batch(count)
        batch[3][hiding:] = 0
        actual = score(make_objective(critic), batch, limit=limit)
        self.assert_nothing(*actual, S * hiding)

    @parameterized.parameters(*CRITICS)
    def test_equal_scores_know_nothing(self, critic):
        """Other texts in the same states: also where their norm is 0."""
        for scale in (1.0, 0.0):
            a, b, targets, weights = make_batch(6)
            # Sums of one term: exact, in whatever order.
            a[:], b[:] = scale * np.eye(D)[0], scale * np.eye(D)[0]
            targets[:] = np.arange(6 * S).reshape(6, S)
            actual, gradients = score(
                make_objective(critic), (a, b, targets, weights)
            )
            self.assertAlmostEqual(float(actual.mi), 0.0, places=4)
            self.assertAlmostEqual(
                float(actual.loss), float(actual.ceiling), places=4
            )
            self.assertEqual(float(actual.accuracy), 0.0)
            self.assertTrue(all(np.isfinite(x).all() for x in gradients))

    @parameterized.product(critic=('dot', 'scaled'), limit=(None, 4))
    def test_large_scores(self, critic, limit):
        a, b, targets, weights = make_batch(8)
        a, b = 100 * a, 100 * b
        self.assertGreater(np.abs(np.einsum('bd,bsd->bs', a, b)).max(), 1e4)
        actual, gradients = score(
            make_objective(critic), (a, b, targets, weights), limit=limit
        )
        expected = literal((a, b, targets, weights), critic, limit=limit)
        assert_same(actual, expected, rtol=1e-5, atol=0.1)
        self.assertTrue(all(np.isfinite(x).all() for x in gradients))

    def test_the_critic_of_the_paper(self):
        self.assertEqual(TABLE['dim'].settings['critic'].default, 'dot')
        self.assertEqual(TABLE['dim'].heldout_candidates, M)
