"""One vector of a text, and vectors of length 1.

Means themselves are tested where they are used: of `ict` in
objectives/test_contrast.py, of `encode` in inference/test_loaded.py.
"""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers.pooling import (
    about_unit,
    pool,
    pool_by_position,
    rarity,
    unit,
)


class RarityTest(absltest.TestCase):
    def test_golden(self):
        """p of 0.001 weighs half, of 0.009 a tenth, of 0 one."""
        counts = np.array([10, 90, 0, 9900])
        np.testing.assert_allclose(
            np.exp(rarity(counts)), [1 / 2, 1 / 10, 1, 1 / 991], rtol=1e-6
        )
        np.testing.assert_array_equal(rarity(np.zeros(3)), np.zeros(3))

    def test_is_a_factor_of_the_weights(self):
        random = np.random.default_rng(0)
        x = random.standard_normal((2, 4, 3)).astype(np.float32)
        prior = np.log(random.random((2, 4))).astype(np.float32)
        kernel = random.standard_normal(3).astype(np.float32)
        real = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
        weights = np.exp(x @ kernel) * np.exp(prior) * real
        weights /= weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(
            pool(x, real, kernel, prior),
            np.einsum('bt,btd->bd', weights, x),
            rtol=1e-5,
        )


class PositionTest(absltest.TestCase):
    def test_the_nth_real_token_weighs_n(self):
        """Padding before, behind and alone."""
        x = np.float32([[[1, 0], [0, 6], [3, 3]]] * 3)
        real = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]], bool)
        np.testing.assert_allclose(
            pool_by_position(x, real), [[1 / 3, 4], [2, 4], [0, 0]], rtol=1e-6
        )


class SharedRowTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_texts_of_a_row_are_pooled_apart(self, weighted):
        """Also next to a text without tokens, whose vector is finite."""
        random = np.random.default_rng(0)
        x = random.standard_normal((2, 5, 3)).astype(np.float32)
        kernel = random.standard_normal(3).astype(np.float32)
        kernel = kernel if weighted else None
        block = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 1, 2]])
        real = block[:, None] == np.arange(2)[:, None]
        actual = pool(x, real, kernel)
        self.assertEqual(actual.shape, (4, 3))
        for i in range(4):
            row, mask = i // 2, real[i // 2, i % 2]
            alone = pool(x[row][None, mask], np.ones((1, mask.sum())), kernel)
            np.testing.assert_allclose(actual[i], alone[0], rtol=1e-5)
        if weighted:
            nothing = pool(x, np.zeros((2, 2, 5), bool), kernel)
            self.assertTrue(np.isfinite(nothing).all())


class UnitTest(parameterized.TestCase):
    # Rows beyond, within and at the ends of the vectors of a processor.
    @parameterized.product(
        rows=(1, 3, 5, 8, 17, 33, 64), width=(1, 5, 6, 16, 31, 64)
    )
    def test_equal_rows_give_equal_vectors(self, rows, width):
        """Equal vectors are scaled bit for bit equally, at any index."""
        random = np.random.default_rng([rows, width])
        for size in (1e-3, 1.0, 1e3):
            row = size * random.standard_normal(width).astype(np.float32)
            x = tf.tile(tf.constant(row, tf.float32)[None], [rows, 1])
            first = unit(x[:1]).numpy()
            for actual in (unit(x), unit(x[None])[0], unit(x[:, None])[:, 0]):
                np.testing.assert_array_equal(
                    actual, np.repeat(first, rows, axis=0)
                )

    @parameterized.parameters(False, True)
    def test_in_a_graph_too(self, compiled):
        """Where x / sqrt(y) becomes x * rsqrt(y), unless it is hindered."""
        random = np.random.default_rng(0)
        in_graph = tf.function(unit, jit_compile=compiled)
        for rows, width in ((17, 16), (17, 31), (33, 64)):
            row = random.standard_normal((1, width)).astype(np.float32)
            actual = in_graph(tf.constant(np.repeat(row, rows, axis=0)))
            np.testing.assert_array_equal(
                actual, np.repeat(actual[:1], rows, axis=0)
            )

    def test_the_length_is_1_and_the_direction_stays(self):
        random = np.random.default_rng(0)
        x = random.standard_normal((3, 7, 12))
        x *= np.float64([1e-6, 1.0, 1e6])[:, None, None]
        lengths = np.linalg.norm(x, axis=-1, keepdims=True)
        about = about_unit(tf.constant(x, tf.float32))
        np.testing.assert_allclose(about, x / lengths, rtol=0, atol=1e-6)
        actual = unit(tf.constant(x, tf.float32))
        np.testing.assert_allclose(actual, x / lengths, rtol=0, atol=3e-7)
        np.testing.assert_allclose(
            np.linalg.norm(actual, axis=-1), 1.0, atol=3e-7
        )

    def test_zero_stays_zero(self):
        x = tf.zeros((2, 5))
        with tf.GradientTape() as tape:
            tape.watch(x)
            actual = unit(x)
            total = tf.reduce_sum(actual)
        np.testing.assert_array_equal(actual, np.zeros((2, 5)))
        self.assertTrue(np.isfinite(tape.gradient(total, x)).all())

    def test_gradient(self):
        """(g - u (u . g)) / |x|: no part along x itself."""
        random = np.random.default_rng(1)
        x, g = random.standard_normal((2, 4, 9))
        inputs = tf.constant(x, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(unit(inputs) * tf.constant(g, tf.float32))
        length = np.linalg.norm(x, axis=1, keepdims=True)
        u = x / length
        expected = (g - u * (u * g).sum(axis=1, keepdims=True)) / length
        np.testing.assert_allclose(
            tape.gradient(total, inputs), expected, atol=1e-6
        )
