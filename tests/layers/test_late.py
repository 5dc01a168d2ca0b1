"""`late_scores` and `highest_scores` against NumPy in float64."""

import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import late, lexical
from infoword_tf.layers.dense import Dense
from tests import eager

KEYS = None, eager.new_key(1)
N, M, TA, TB, W = 3, 5, 4, 6, 3


def gradients(function, weights, *inputs):
    """Returns a function's results, and the gradients of a weighted sum."""
    inputs = [tf.constant(x, tf.float32) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        actual = function(*inputs)
        loss = tf.reduce_sum(weights * actual)
    return actual, tape.gradient(loss, inputs)


class LateTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.a = random.standard_normal((N, TA, W))
        self.b = random.standard_normal((M, TB, W))
        self.a_real = random.random((N, TA)) < 0.7
        self.b_real = random.random((M, TB)) < 0.7
        self.a_real[1] = self.b_real[3] = False  # texts without tokens
        self.upstream = random.standard_normal((N, M)).astype(np.float32)

    def expected(self, a, b):
        """MaxSim pair by pair, and its gradients."""
        scores, d_a, d_b = np.zeros((N, M)), np.zeros_like(a), np.zeros_like(b)
        for n, m in itertools.product(range(N), range(M)):
            columns = np.flatnonzero(self.b_real[m])
            for i in np.flatnonzero(self.a_real[n]) if len(columns) else ():
                products = b[m, columns] @ a[n, i]
                j = columns[products.argmax()]
                scores[n, m] += products.max()
                d_a[n, i] += self.upstream[n, m] * b[m, j]
                d_b[m, j] += self.upstream[n, m] * a[n, i]
        return scores, d_a, d_b

    @parameterized.product(key=KEYS, at_once=(128, 5, 1))
    def test_scores_and_gradients(self, key, at_once):
        """All tokens of a at once, and a few."""
        with mock.patch.object(late, 'TOKENS_AT_ONCE', at_once):
            actual, (d_a, d_b) = gradients(
                lambda a, b: late.late_scores(
                    a, self.a_real, b, self.b_real, key=key
                ),
                self.upstream, self.a, self.b,
            )  # fmt: skip
        scores, *expected = self.expected(self.a, self.b)
        np.testing.assert_allclose(actual, scores, atol=2e-6)
        np.testing.assert_allclose(d_a, expected[0], atol=2e-6)
        np.testing.assert_allclose(d_b, expected[1], atol=2e-6)
        self.assertFalse(np.any(actual[1]))
        self.assertFalse(np.any(actual[:, 3]))

    def test_pairs_alone_and_the_first_of_equal_tokens(self):
        b, b_real = self.b[:N].copy(), self.b_real[:N].copy()
        b_real[0] = True
        b[0, 4] = b[0, 1]
        a, b = (tf.constant(x, tf.float32) for x in (self.a, b))
        actual = late.paired_scores(a, self.a_real, b, b_real)
        for key in KEYS:
            scores = late.late_scores(a, self.a_real, b, b_real, key=key)
            np.testing.assert_allclose(np.diag(scores), actual, atol=2e-6)


class TokenVectorsTest(parameterized.TestCase):
    def test_every_state_has_a_vector(self):
        """Applies one layer after the other, in any number of dimensions."""
        dense = [Dense(2, 4, 'identity', bias=False),
                 Dense(4, 3, 'identity', bias=False)]  # fmt: skip
        layer = late.TokenVectors(dense)
        layer.build()
        matrices = np.arange(8.0).reshape(2, 4), np.arange(12.0).reshape(4, 3)
        for each, matrix in zip(dense, matrices, strict=True):
            each.kernel.assign(matrix)
        states = np.float32(np.arange(20).reshape(1, 2, 5, 2))
        expected = states @ matrices[0] @ matrices[1]
        np.testing.assert_array_equal(layer.projected(states), expected)
        self.assertEqual(layer.width, 3)


class HighestTest(parameterized.TestCase):
    """Scores of two sequences with two texts each, one without a token."""

    def setUp(self):
        super().setUp()
        random = np.random.default_rng(1)
        # Halves: tokens of a text score the same, of which the first one wins.
        self.states = random.integers(-4, 5, (2, 24, 3)) / 2
        self.states[0, 17] *= 2  # the last of the fourth group
        self.table = random.integers(-4, 5, (11, 3)) / 2
        self.bias = random.standard_normal(11)
        of = np.array([[0] * 9 + [1] * 9 + [2] * 6, [1] * 19 + [3] * 5])
        self.real = of[:, None] == np.arange(2)[:, None]  # [B, J, T]
        self.upstream = random.standard_normal((2, 2, 11)).astype(np.float32)

    def expected(self, bias):
        best = np.full((2, 2, 11), -1e30)
        d_states, d_table = np.zeros((2, 24, 3)), np.zeros((11, 3))
        d_bias = np.zeros(11)
        for b, j, v in np.ndindex(best.shape):
            places = np.flatnonzero(self.real[b, j])
            if len(places):
                scores = self.states[b, places] @ self.table[v] + bias[v]
                t, best[b, j, v] = places[scores.argmax()], scores.max()
                d_states[b, t] += self.upstream[b, j, v] * self.table[v]
                d_table[v] += self.upstream[b, j, v] * self.states[b, t]
                d_bias[v] += self.upstream[b, j, v]
        return best, d_states, d_table, d_bias

    @parameterized.parameters(
        *itertools.product(KEYS, (10**6, 150), (True,), (False,)),
        *itertools.product(KEYS, (10**6,), (True, False), (True,)),
    )
    def test_scores_and_gradients(self, key, at_once, biased, few):
        """Whole, and in chunks of the vocabulary; and where most are 0."""
        if few:
            self.upstream *= self.upstream == self.upstream[0].max()

        def run(states, table, bias):
            return lexical.highest_scores(
                states, table, bias if biased else None, self.real, key=key
            )

        filling = 8 if at_once > 150 else 1  # groups of 2 tokens, or of 8
        sizes = {'SCORES_AT_ONCE': at_once, 'TEXTS_AT_ONCE': 3}
        with mock.patch.multiple(lexical, **sizes, FILLING=filling):
            actual, slopes = gradients(
                run, self.upstream, self.states, self.table, self.bias
            )
        best, *expected = self.expected(self.bias * biased)
        np.testing.assert_allclose(actual, best, rtol=1e-5, atol=2e-6)
        for slope, of_x in zip(slopes, expected, strict=True):
            if slope is not None:
                np.testing.assert_allclose(slope, of_x, atol=5e-6)
        self.assertEqual(slopes[2] is None, not biased)

    def test_of_unknown_shapes(self):
        """Each sequence is one text."""
        graph = tf.function(
            lambda states, real: lexical.highest_scores(
                states, tf.constant(self.table, tf.float32), None, real
            ),
            input_signature=[
                tf.TensorSpec((None, None, 3)),
                tf.TensorSpec((None, 1, None), tf.bool),
            ],
            autograph=False,
        )
        best, *_ = self.expected(np.zeros(11))
        for text in range(2):
            real = self.real[:, text : text + 1]
            present = real.any(axis=(1, 2))
            actual = graph(self.states.astype(np.float32), real)[present]
            np.testing.assert_allclose(
                actual[:, 0], best[present, text], rtol=1e-5, atol=2e-6
            )

    @parameterized.parameters(
        ('relu', [0, 1, np.e - 1, 3]), ('log1p_relu', [0, np.log(2), 1, 0]),
        ('log1p_log1p_relu', [0, np.log1p(np.log(2)), np.log(2), 0]),
    )  # fmt: skip
    def test_weights(self, activation, expected):
        """Scores are -1, 1, e - 1 and 3; two of four stay by top_k."""
        layer = lexical.Lexical(None, activation=activation)
        scores = tf.constant([-1, 1, np.e - 1, 3], tf.float32)
        actual = layer.weights_of(scores).numpy()
        np.testing.assert_allclose(actual[:3], expected[:3], rtol=1e-6)
        layer.top_k = 2
        np.testing.assert_allclose(
            layer.weights_of(scores), [0, 0, *actual[2:]]
        )
        np.testing.assert_array_equal(
            layer.weights_of(tf.constant([-1.0, 2, -3])) > 0, [0, 1, 0]
        )

    @parameterized.parameters(
        (1, [0, 0, 3, 0, 0]), (2, [2, 0, 3, 0, 0]), (3, [2, 2, 3, 0, 0]),
        (4, [2, 2, 3, 2, 0]),
    )  # fmt: skip
    def test_of_equal_weights_the_first_stay(self, top_k, expected):
        layer = lexical.Lexical(None, activation='relu', top_k=top_k)
        scores = tf.constant([[2.0, 2, 3, 2, 1], [0, 5, 5, 5, 5]])
        actual = layer.weights_of(scores).numpy()
        np.testing.assert_array_equal(actual[0], expected)
        self.assertEqual(actual[1].tolist(), [0, *[5] * top_k, *[0] * 4][:5])
