"""Scores against a whole table."""

import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.layers import vocabulary_scores as module
from infoword_tf.layers.fused import compiled, rounded
from infoword_tf.layers.vocabulary_scores import vocabulary_scores
from tests.eager import LANES, eagerly
from tests.layers.operations import (
    BFLOAT16,
    KEY,
    assert_close,
    value_and_gradients,
)


class VocabularyScoresTest(parameterized.TestCase):
    N, V, D = 7, 11, 5

    def make_inputs(self, bias):
        random = np.random.default_rng(1)
        inputs = {
            'states': random.standard_normal((self.N, self.D)),
            'table': random.standard_normal((self.V, self.D)),
        }
        if bias:
            inputs['bias'] = random.standard_normal(self.V)
        targets = random.integers(self.V, size=self.N).astype(np.int32)
        return {
            k: tf.constant(v, tf.float32) for k, v in inputs.items()
        }, targets

    def run_operation(self, inputs, targets, key, dtype='float32'):
        return vocabulary_scores(
            inputs['states'],
            inputs['table'],
            inputs.get('bias'),
            tf.constant(targets),
            dtype=dtype,
            key=key,
        )

    def test_scores_are_float32_where_gradients_are_bfloat16(self):
        inputs, targets = self.make_inputs(True)
        exact = self.run_operation(inputs, targets, KEY)
        mixed = self.run_operation(inputs, targets, KEY, 'bfloat16')
        for one, two in zip(mixed, exact, strict=True):
            np.testing.assert_array_equal(one, two)

    @parameterized.parameters(
        *itertools.product(
            (KEY,), (False, True), (1, 2, 15, 47, 16, 17, 32, 100)
        ),
        (None, True, 11), (None, False, 11),
    )  # fmt: skip
    def test_any_number_of_columns(self, key, bias, v):
        """Runs of columns and the columns beyond them add up to all.

        Two are compiled: fewer columns than runs, and columns beyond them.
        """
        with mock.patch.object(self, 'V', v, create=True):
            inputs, targets = self.make_inputs(bias)
        x, table, *rest = (
            i.numpy().astype(np.float64) for i in inputs.values()
        )
        scores = x @ table.T + (rest[0] if bias else 0.0)
        target = scores[np.arange(self.N), targets]
        p = special.softmax(scores, axis=1)
        with eagerly(not bias or v not in (2, 47), LANES):
            (positive, log_sum, rank), gradients = value_and_gradients(
                lambda i: self.run_operation(i, targets, key), inputs
            )
        self.assertEqual({x.dtype for x in (positive, log_sum, rank)},
                         {tf.float32})  # fmt: skip
        np.testing.assert_allclose(positive, target, atol=2e-6)
        np.testing.assert_allclose(
            log_sum, special.logsumexp(scores, axis=1), atol=2e-6
        )
        np.testing.assert_array_equal(
            rank, (scores >= target[:, None]).sum(axis=1) - 1
        )
        # `value_and_gradients` weighs results by these.
        random = np.random.default_rng(99)
        weights = [random.standard_normal(self.N) for _ in range(2)]
        total = weights[0][:, None] * np.eye(v)[targets]
        total = total + weights[1][:, None] * p
        for k, exact in {
            'states': total @ table,
            'table': total.T @ x,
            'bias': total.sum(axis=0),
        }.items():
            if k in inputs:
                assert_close(gradients[k], exact, 1e-5, k)

    @parameterized.product(width=(4, 128, 130), dtype=('float32', 'bfloat16'))
    def test_gradients_of_any_width(self, width, dtype):
        """Narrow tables' gradients are another product than wide ones'."""
        with mock.patch.object(self, 'D', width, create=True):
            inputs, targets = self.make_inputs(True)
        inputs['states'] = inputs['states'] / width**0.5
        plain, fused = (
            value_and_gradients(
                lambda i, key=key, dtype=dtype: self.run_operation(
                    i, targets, key, dtype
                )[:2],
                inputs,
            )[1]
            for key, dtype in ((None, 'float32'), (KEY, dtype))
        )
        tolerance = 1e-5 if dtype == 'float32' else 4 * BFLOAT16
        for k, gradient in fused.items():
            self.assertEqual(gradient.dtype, tf.float32)
            self.assertEqual(gradient.shape, plain[k].shape)
            assert_close(gradient, plain[k], tolerance, k)

    @parameterized.parameters(
        (None, 'float32', 64), (KEY, 'float32', 64),
        (KEY, 'bfloat16', 26 * 16 - 1),
    )  # fmt: skip
    def test_no_more_scores_at_once_than_are_allowed(self, key, dtype, limit):
        """In parts, of which the last is smaller, with their gradients."""
        self.enterContext(eagerly(lanes=LANES))
        with mock.patch.multiple(self, N=26, V=16, D=4, create=True):
            inputs, targets = self.make_inputs(True)

            def results(key, dtype):
                return value_and_gradients(
                    lambda i: self.run_operation(i, targets, key, dtype), inputs
                )

            plain, gradients = results(None, 'float32')
            with (
                mock.patch.object(module, 'SCORES_AT_ONCE', limit),
                mock.patch.object(
                    module, '_score', wraps=module._score
                ) as score,
            ):
                chunked, others = results(key, dtype)
        sizes = [16 * len(call.args[0]) for call in score.call_args_list]
        self.assertNotEmpty(sizes)
        self.assertLessEqual(max(sizes), limit)
        for one, two in zip(chunked, plain, strict=True):
            np.testing.assert_allclose(one, two, atol=2e-6)
        tolerance = 1e-5 if dtype == 'float32' else 4 * BFLOAT16
        for name, gradient in others.items():
            assert_close(gradient, gradients[name], tolerance, name)

    @parameterized.parameters((None,), (KEY,))
    def test_rank_counts_ties(self, key):
        table = tf.constant([[1.0], [2.0], [2.0], [2.0], [0.0], [3.0]])
        _, _, rank = vocabulary_scores(
            tf.constant([[1.0], [1.0], [0.0], [1.0], [-1.0]]),
            table,
            None,
            tf.constant([1, 5, 3, 4, 4]),
            key=key,
        )
        # Two other 2s and the 3; none; all five; all five; none.
        np.testing.assert_array_equal(rank, [3, 0, 5, 5, 0])

    @parameterized.parameters((None,), (KEY,))
    def test_large_scores_stay_finite(self, key):
        inputs = {
            'states': tf.constant([[100.0], [-100.0]]),
            'table': tf.constant([[10.0], [0.0], [-10.0]]),
        }
        actual, gradients = value_and_gradients(
            lambda i: self.run_operation(i, np.int32([0, 0]), key)[:2], inputs
        )
        np.testing.assert_allclose(actual[0], [1000.0, -1000.0])
        np.testing.assert_allclose(actual[1], [1000.0, 1000.0])
        for gradient in gradients.values():
            self.assertTrue(np.isfinite(gradient).all())

    def test_rank_has_no_gradient(self):
        inputs, targets = self.make_inputs(False)
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(inputs['states'])
                rank = self.run_operation(inputs, targets, key)[2]
            gradient = tape.gradient(
                rank,
                inputs['states'],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            np.testing.assert_array_equal(gradient, np.zeros((self.N, self.D)))


class RoundedTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_is_a_cast(self, in_kernel):
        random = np.random.default_rng(3)
        bits = random.integers(0, 2**32, 100_000, dtype=np.uint32)
        halves = bits & np.uint32(0xFFFF0000) | np.uint32(0x8000)
        x = np.concatenate([bits, halves]).view(np.float32)
        special_ones = [0.0, -0.0, 3.4e38, -3.4e38, np.inf, -np.inf]
        x = np.append(x[np.isfinite(x)], np.float32(special_ones))
        operation = compiled(rounded) if in_kernel else rounded
        actual = operation(tf.constant(x), 'bfloat16')
        self.assertEqual(actual.dtype, tf.bfloat16)
        np.testing.assert_array_equal(
            tf.cast(actual, tf.float32),
            tf.cast(tf.cast(x, tf.bfloat16), tf.float32),
        )
        nan = operation(tf.constant([np.nan, -np.nan], tf.float32), 'bfloat16')
        self.assertTrue(np.isnan(tf.cast(nan, tf.float32)).all())

    def test_float32_stays(self):
        x = tf.constant([1.0 + 2.0**-20])
        np.testing.assert_array_equal(rounded(x, 'float32'), x)
