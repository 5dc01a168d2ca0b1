"""Relative scores by their terms."""

import numpy as np
import tensorflow as tf

from infoword_tf.layers.relative_scores import relative_scores, split_queries
from tests.layers.operations import B, D, H, Operation, operation_test

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
            different = tf.constant(DIFFERENT[:, :, :queries])
            extra['segment'] = extra['segment'], different
        return [relative_scores(**extra, length=6, key=key)]

    return Operation(SCORES[name], run)


OperationTest = operation_test({
    'queries': queries_operation(),
    'queries_signed': queries_operation([1.0, -1.0, 1.0], blocks=3),
    **{name: scores_operation(name) for name in SCORES},
})
