"""DeBERTa's encoder: size, buckets, and attention by content and distance.

That its numbers are those of transformers is in tests/weights.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.layers.disentangled import buckets_of, distances_of
from tests.encoders.calls import KEY, count, make, make_ids, near, run
from tests.objectives.eq1 import EagerCase


class SizeTest(absltest.TestCase):
    def test_the_base_size_has_86_million_without_words(self):
        """He et al. 2023, Table 7: a backbone of 86M, 98M of words."""
        actual = count(
            'disentangled', vocab_size=128_100, layers=12, width=768, heads=12
        )
        d, words = 768, 128_100 * 768
        layers = 12 * (12 * d * d + 13 * d)
        self.assertEqual(actual, words + layers + (512 + 4) * d)
        self.assertEqual(actual, 183_831_552)


class BucketsTest(EagerCase):
    def test_of_eight(self):
        """Beyond 4: 4 + ceil(3 log(d / 4) / log(19 / 4)), by hand.

        3 / log 4.75 is 1.925, times log of 5/4 0.43, 6/4 0.78, 7/4 1.08, 8/4
        1.33, 9/4 1.56, 10/4 1.76, 11/4 1.95, 12/4 2.12, 18/4 2.90, 19/4 3.
        """
        rows = dict.fromkeys(range(7, 12), 14) | {5: 13, 6: 13}
        rows |= dict.fromkeys(range(12, 20), 15) | {20: 15, 1000: 15}
        for distance in range(5):
            rows[distance] = 8 + distance
        for distance, row in rows.items():
            # The last bucket has a row on one side alone.
            other = 0 if distance >= 20 else 16 - row
            self.assertEqual(
                buckets_of(np.array([distance, -distance]), 8, 20).tolist(),
                [row, other],
            )

    def test_of_published_models(self):
        """By hand: 127 / log(511 / 128) is 91.74, log 2 of it 63.59."""
        distances = [0, 128, 129, 256, 510, 511, 512, 9999]
        rows = [256, 384, 385, 448, 511, 511, 511, 511]
        self.assertEqual(
            buckets_of(np.array(distances), 256, 512).tolist(), rows
        )
        self.assertEqual(
            buckets_of(-np.array(distances), 256, 512).tolist(),
            [256, 128, 127, 64, 1, 1, 0, 0],
        )

    def test_rows_that_occur(self):
        """Counts exactly to 3, then 3 + ceil(2 log(d / 3) / log(8 / 3)).

        2 / log(8 / 3) is 2.04, times log of 4/3 0.59, 5/3 1.04, 7/3 1.73.
        """
        actual = distances_of(7, 6, 9, vectors=None)
        self.assertEqual(actual.used, (1, 12))
        rows = [10, 10, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
        self.assertEqual(actual.rows.tolist(), rows)
        self.assertEqual(actual.mirrored.tolist(), [0, *rows[:0:-1]])
        # Where a distance of 1 is all there is, neither are the others.
        self.assertEqual(distances_of(2, 6, 9, vectors=None).used, (4, 9))

    def test_a_length_that_no_graph_knows(self):
        """Rows of the whole table; from a distance of 9 on the outermost."""
        actual = distances_of(tf.constant(12), 6, 9, vectors=None)
        self.assertIsNone(actual.used)
        after = [6, 7, 8, 9, 10, 11, 11, 11, 11, 11, 11, 11]
        before = [6, 5, 4, 3, 2, 1, 1, 1, 1, 0, 0, 0]
        self.assertEqual([*actual.rows], [11, *after[::-1], *before[1:]])
        self.assertEqual([*actual.mirrored], [0, *before[::-1], *after[1:]])


class AttentionTest(EagerCase):
    @parameterized.product(key=(None, KEY), places=(None, [6, 0, 3, 3]))
    def test_all_pairs_one_after_another(self, key, places):
        """7 tokens, of which those more than 3 apart share buckets."""
        encoder = make('disentangled', layers=1)
        block, heads, e = encoder.blocks[0], 2, 8
        states = run(encoder, make_ids(2, 7), all_layers=True).layers[0].numpy()
        rows = encoder._vectors_of_distances(None).numpy()
        attention = block.attention
        kernels, biases = (
            np.split(weight.numpy(), 3, axis=-1)
            for weight in (attention.kernel, attention.bias)
        )

        def projected(x):
            """By q, k, v: [..., H, E]."""
            return [
                (x @ kernel + bias).reshape(*x.shape[:-1], heads, e)
                for kernel, bias in zip(kernels, biases, strict=True)
            ]

        (q, k, v), (q_rows, k_rows, _) = projected(states), projected(rows)
        bucket = [0, 1, 2, 3, 4, 5, 5]
        expected = np.zeros((2, 7, heads, e))
        for b, i, h in np.ndindex(2, 7, heads):
            scores = []
            for j in range(7):
                row = 6 + np.sign(i - j) * bucket[abs(i - j)]
                score = q[b, i, h] @ (k[b, j, h] + k_rows[row, h])
                score += q_rows[row, h] @ k[b, j, h]
                scores.append(score / math.sqrt(3 * e))
            expected[b, i, h] = special.softmax(scores) @ v[b, :, h]
        expected = expected.reshape(2, 7, 16) @ attention.output_kernel.numpy()
        distances = distances_of(7, 6, 9, encoder._vectors_of_distances)
        queries = None
        if places is not None:
            queries, expected = states[:, places], expected[:, places]
            places = np.int32([places] * 2)
            distances = dataclasses.replace(distances, places=places)
        actual = attention(states, None, queries, key, distances=distances)
        near(actual, expected)
