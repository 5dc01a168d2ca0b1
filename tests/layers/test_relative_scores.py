"""Relative scores by their terms."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers.relative_scores import relative_scores, split_queries
from tests.layers.operations import (
    KEY,
    B,
    D,
    H,
    Operation,
    make_inputs,
    operation_test,
)

PLACES = np.int32([[5, 0, 2, 2], [1, 1, 3, 4], [0, 1, 2, 3]])
DIFFERENT = np.random.default_rng(2).random((B, 1, 6, 8)) < 0.5
# 6 tokens and 2 of memory: 8 keys, 14 distances, or 9 to the left.
SCORES = {
    'relative': {'content': (B, H, 6, 8), 'position': (H, 1, 6 * B, 14)},
    'relative_causal': {'content': (B, H, 6, 8),
                        'position': (H, 1, 6 * B, 9)},
    'relative_blocks': {'content': (B, H, 6, 8),
                        'position': (H, 3, 2 * B, 10), 'segment': (B, H, 6)},
    'relative_places': {'content': (B, H, 4, 8),
                        'position': (H, 1, 4 * B, 14), 'segment': (B, H, 4)},
    'disentangled_blocks': {'content': (B, H, 6, 6),
                            **dict.fromkeys(('position', 'of_keys'),
                                            (H, 3, 2 * B, 8))},
    'disentangled_places': {'content': (B, H, 4, 6),
                            'position': (H, 1, 4 * B, 12),
                            'of_keys': (H, 1, 6 * B, 12)},
}


def queries_operation(signs=None, blocks=1):
    def run(inputs, key, rate=0.0):
        return list(
            split_queries(
                *inputs.values(),
                None if signs is None else tf.constant(signs),
                heads=H,
                blocks=blocks,
                key=key,
            )
        )

    return Operation({'x': (B, 6, D), 'u': (D,), 'v': (D,)}, run)


def scores_operation(name):
    def run(inputs, key, rate=0.0):
        extra = dict(inputs)
        if name.endswith('places'):
            extra['places'] = tf.constant(PLACES)
        if 'segment' in inputs:
            queries = inputs['content'].shape[2]
            extra['different'] = tf.constant(DIFFERENT[:, :, :queries])
        return [relative_scores(**extra, length=6, key=key)]

    return Operation(SCORES[name], run)


def inputs_of(name):
    return make_inputs(SCORES[name], len(name))


OperationTest = operation_test({
    'queries': queries_operation(),
    'queries_signed': queries_operation([1.0, -1.0, 1.0], blocks=3),
    **{name: scores_operation(name) for name in SCORES},
})


class SplitQueriesTest(parameterized.TestCase):
    @parameterized.parameters((None,), (KEY,))
    def test_where_each_number_goes(self, key):
        """[0 .. 3] for each of 4 tokens, 2 heads of 2, 2 blocks of 2 tokens.

        The second row is reversed.
        """
        x = tf.reshape(tf.range(32.0), (2, 4, 4))
        q_content, q_position = split_queries(
            x,
            tf.constant([0.5, 0.5, 0.25, 0.25]),
            tf.constant([0.0, 0.0, 1.0, 1.0]),
            tf.constant([1.0, -1.0]),
            heads=2,
            blocks=2,
            key=key,
        )
        self.assertEqual(q_content.shape, (2, 2, 4, 2))
        np.testing.assert_array_equal(
            q_content[1],
            [
                [[16.5, 17.5], [20.5, 21.5], [24.5, 25.5], [28.5, 29.5]],
                [[18.25, 19.25], [22.25, 23.25], [26.25, 27.25],
                 [30.25, 31.25]],
            ],
        )
        self.assertEqual(q_position.shape, (2, 2, 4, 4))
        # Head 0, tokens 0 and 1 of both rows; head 1, tokens 2 and 3.
        np.testing.assert_array_equal(
            q_position[0, 0],
            [[0, 1, 0, 1], [4, 5, 4, 5],
             [16, 17, -16, -17], [20, 21, -20, -21]],
        )
        np.testing.assert_array_equal(
            q_position[1, 1],
            [[11, 12, 11, 12], [15, 16, 15, 16],
             [27, 28, -27, -28], [31, 32, -31, -32]],
        )


class RelativeScoresTest(parameterized.TestCase):
    T, K = 6, 8

    def loops(self, position, places):
        """Shifts distances to keys, one number after another."""
        actual = np.zeros((B, H, places.shape[1], self.K), np.float32)
        for b, h, q, j in np.ndindex(*actual.shape):
            distance = self.K - self.T + places[b, q] - j
            row = position[h].reshape(B, places.shape[1], -1)[b, q]
            actual[b, h, q, j] = row[self.K - distance]
        return actual

    @parameterized.parameters((None,), (KEY,))
    def test_shift_is_gather_is_the_loop(self, key):
        inputs = inputs_of('relative')
        everywhere = np.tile(np.arange(6, dtype=np.int32), (B, 1))
        expected = self.loops(inputs['position'].numpy(), everywhere)
        content = tf.zeros((B, H, 6, 8))
        for places in (None, everywhere):
            actual = relative_scores(
                content, inputs['position'], places=places, length=6, key=key
            )
            np.testing.assert_array_equal(actual, expected)
        inputs = inputs_of('relative_places')
        actual = relative_scores(
            content[:, :, :4],
            inputs['position'],
            places=tf.constant(PLACES),
            length=6,
            key=key,
        )
        np.testing.assert_array_equal(
            actual, self.loops(inputs['position'].numpy(), PLACES)
        )

    @parameterized.parameters((None,), (KEY,))
    def test_the_shift_is_wrong_on_gathered_rows(self, key):
        """Queries at places need a gather instead of the shift."""
        position = inputs_of('relative_places')['position']
        content = tf.zeros((B, H, 4, 8))
        actual = relative_scores(content, position, length=4, key=key)
        expected = self.loops(position.numpy(), PLACES)
        self.assertGreater(np.abs(actual - expected).max(), 1.0)

    @parameterized.product(count=(2, 3), key=(None, KEY))
    def test_blocks_are_the_whole(self, count, key):
        position = inputs_of('relative')['position'].numpy()
        whole = position.reshape(H, B, 6, 14)
        t = 6 // count
        parts = [
            whole[:, :, i * t : (i + 1) * t][..., 6 - (i + 1) * t :][
                ..., : 8 + t
            ].reshape(H, B * t, 8 + t)
            for i in range(count)
        ]
        content = inputs_of('relative')['content']
        actual, expected = (
            relative_scores(content, tf.constant(x), length=6, key=key)
            for x in (np.stack(parts, axis=1), position)
        )
        np.testing.assert_array_equal(actual, expected)

    @parameterized.parameters((None,), (KEY,))
    def test_masked_and_different(self, key):
        inputs = inputs_of('relative_blocks')
        allowed = np.random.default_rng(3).random((1, 1, 6, 8)) < 0.5
        bare = relative_scores(
            inputs['content'], inputs['position'], length=6, key=key
        )
        actual = relative_scores(
            *inputs.values(),
            different=tf.constant(DIFFERENT),
            allowed=tf.constant(allowed),
            length=6,
            key=key,
        )
        segment = inputs['segment'].numpy()[..., None]
        expected = np.where(DIFFERENT, bare + segment, bare)
        expected = np.where(allowed, expected, np.float32(-1e30))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


if __name__ == '__main__':
    absltest.main()
