"""Vectors in fewer bytes: bounds, and that fewer bytes compare alike."""

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.evaluation import quantized, ranking

random = np.random.default_rng(0)
VECTORS = random.standard_normal((300, 70), np.float32)
QUERIES = random.standard_normal((9, 70), np.float32)
ALL = slice(None)


class Int8Test(absltest.TestCase):
    kind = quantized.KINDS['int8']

    def test_off_by_half_a_step_at_most(self):
        scales = np.exp(random.uniform(-60, 60, (300, 1)))
        vectors = (VECTORS * scales).astype(np.float32)
        arrays = self.kind.encode(vectors)
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        np.testing.assert_allclose(arrays['steps'], largest / 127, rtol=1e-6)
        error = np.abs(self.kind.decode(arrays) - vectors)
        self.assertTrue((error <= 0.5001 * arrays['steps']).all())
        self.assertGreater((error / arrays['steps']).max(), 0.49)

    def test_whole_steps_are_exact(self):
        codes = np.array([[127, -127, 0, 5], [-127, 1, 2, -64]], np.float32)
        arrays = self.kind.encode(codes / 4)
        np.testing.assert_array_equal(arrays['codes'], codes)
        self.assertEqual(arrays['codes'].dtype, np.int8)
        np.testing.assert_array_equal(self.kind.decode(arrays), codes / 4)

    def test_nothing_and_next_to_nothing(self):
        small = np.float32([[0, 0], [1e-45, -1e-45], [1e-38, 0]])
        arrays = self.kind.encode(small)
        np.testing.assert_array_equal(arrays['codes'][:2], 0)
        decoded = self.kind.decode(arrays)
        np.testing.assert_allclose(decoded, small, atol=1e-38)

    def test_scores_are_products_of_the_decoded(self):
        arrays = self.kind.encode(VECTORS)
        found = self.kind.scorer(QUERIES, arrays)(slice(2, 7))
        wanted = QUERIES[2:7] @ self.kind.decode(arrays).T
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


class BinaryTest(parameterized.TestCase):
    kind = quantized.KINDS['binary']

    @parameterized.parameters(1, 8, 63, 64, 65, 70)
    def test_scores_count_the_signs_that_differ(self, width):
        """Counted one by one; also where documents have more numbers."""
        for whole in (VECTORS, VECTORS[:, :width]):
            arrays = self.kind.encode(whole)
            queries = QUERIES[:, :width]
            found = self.kind.scorer(queries, arrays)(ALL)
            signs = (queries > 0)[:, None] != (whole[:, :width] > 0)
            np.testing.assert_array_equal(found, -signs.sum(axis=2))
            self.assertEqual(found.dtype, np.float32)

    def test_bits_are_packed(self):
        packed = quantized.pack(VECTORS)
        self.assertEqual(packed.shape, (300, 16))
        bits = np.unpackbits(packed, axis=1)
        np.testing.assert_array_equal(bits[:, :70], VECTORS > 0)
        self.assertFalse(bits[:, 70:].any())
        self.assertEqual(quantized.pack(np.zeros([1, 3])).tolist(), [[0] * 8])

    def test_a_vector_is_nearest_to_itself(self):
        arrays = self.kind.encode(VECTORS)
        blocks = [(np.arange(300), self.kind.scorer(VECTORS, arrays))]
        scores, numbers = ranking.scan(300, blocks, 2)
        np.testing.assert_array_equal(numbers[:, 0], np.arange(300))
        np.testing.assert_array_equal(scores[:, 0], 0)
        self.assertLess(scores[:, 1].max(), 0)


class ProductsTest(parameterized.TestCase):
    @parameterized.parameters(0, 1, quantized.FEW, quantized.FEW + 1)
    def test_of_few_and_of_many_queries(self, count):
        queries = random.standard_normal((count, 70), np.float32)
        found = quantized.products(queries, VECTORS)
        np.testing.assert_allclose(
            found, queries @ VECTORS.T, rtol=1e-4, atol=1e-5
        )
        self.assertEqual(found.shape, (count, 300))
        self.assertEqual(found.dtype, np.float32)


class KindsTest(parameterized.TestCase):
    @parameterized.parameters(*quantized.KINDS)
    def test_arrays_are_those_that_are_said(self, name):
        kind = quantized.KINDS[name]
        arrays = kind.encode(VECTORS)
        self.assertEqual(
            {n: (a.dtype, a.shape) for n, a in arrays.items()},
            {
                n: (np.dtype(part.dtype), (300, part.width(70)))
                for n, part in kind.parts.items()
            },
        )
        self.assertEqual({*kind.scanned, *kind.decoded}, set(kind.parts))
        some = {n: arrays[n] for n in kind.decoded}
        self.assertEqual(kind.decode(some).shape, (300, 70))
