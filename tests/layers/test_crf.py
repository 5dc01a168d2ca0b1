"""A CRF against sums over all labellings, written out."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import crf
from infoword_tf.layers.dropout import new_key
from tests.objectives import eq1

C = 3
WORD = np.array([
    [0, 1, 1, 0, 1, 0, 1, 1, 0], [0, 1, 0, 0, 1, 0, 0, 0, 0],
], bool)  # fmt: skip
BLOCK = np.array([[0, 0, 0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 1, 1, 1, 2, 2, 2]])
PLAIN, FUSED = None, 0


def drawn():
    random = np.random.default_rng(0)
    layer = eq1.drawn(crf.Crf(C))
    scores = random.standard_normal((*WORD.shape, C)).astype(np.float32)
    targets = random.integers(0, C, WORD.shape).astype(np.int32)
    return layer, scores, targets


def chains():
    return crf.chains_of(tf.constant(WORD), tf.constant(BLOCK, tf.int32))


def labellings(layer, scores):
    """log p~ of all labellings of a chain of scores [W, C], by labels."""
    moves, starts, ends = (
        w.numpy() for w in (layer.transitions, layer.starts, layer.ends)
    )
    return {
        y: starts[y[0]] + ends[y[-1]]
        + sum(row[label] for row, label in zip(scores, y, strict=True))
        + sum(moves[pair] for pair in itertools.pairwise(y))
        for y in itertools.product(range(C), repeat=len(scores))
    }  # fmt: skip


def places():
    """Rows and columns of the words of each chain."""
    for row, block in itertools.product(range(2), range(3)):
        columns = np.flatnonzero(WORD[row] & (BLOCK[row] == block))
        if len(columns):
            yield row, columns


class CrfTest(parameterized.TestCase):
    @parameterized.parameters(PLAIN, FUSED)
    def test_sums_over_all_labellings(self, seed):
        """Gradients are counts that are expected, less those that are true."""
        layer, scores, targets = drawn()
        key = None if seed is None else new_key(seed, 1)
        weights = layer.transitions, layer.starts, layer.ends
        x = tf.constant(scores)
        with tf.GradientTape() as tape:
            tape.watch(x)
            log_p, loss = layer.posteriors(
                x, tf.constant(targets), chains(), key
            )
        actual = tape.gradient(loss, [x, *(w.value for w in weights)])
        counts = [np.zeros(g.shape) for g in actual]
        labels, moves, starts, ends = counts
        expected = 0.0
        for row, columns in places():
            every = labellings(layer, scores[row, columns])
            log_z = np.logaddexp.reduce(list(every.values()))
            true = tuple(targets[row, columns].tolist())
            expected += log_z - every[true]
            shares = {y: np.exp(value - log_z) for y, value in every.items()}
            for y, share in (*shares.items(), (true, -1)):
                labels[row, columns, y] += share
                starts[y[0]] += share
                ends[y[-1]] += share
                for pair in itertools.pairwise(y):
                    moves[pair] += share
        self.assertAlmostEqual(float(loss), expected, places=4)
        for one, other in zip(actual, counts, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        labels[WORD, targets[WORD]] += 1
        np.testing.assert_allclose(
            log_p.numpy()[WORD], np.log(labels[WORD]), atol=1e-5
        )

    def test_the_best_labels_are_those_of_the_best_labelling(self):
        layer, scores, _ = drawn()
        free = tf.function(
            lambda scores, word, block: layer.best(
                scores, crf.chains_of(word, block)
            ),
            input_signature=[
                tf.TensorSpec((None, None, C)),
                tf.TensorSpec((None, None), tf.bool),
                tf.TensorSpec((None, None), tf.int32),
            ],
        )
        for best in (
            layer.best(tf.constant(scores), chains()),
            free(scores, WORD, BLOCK.astype(np.int32)),
        ):
            for row, columns in places():
                every = labellings(layer, scores[row, columns])
                self.assertEqual(
                    tuple(best.numpy()[row, columns].tolist()),
                    max(every, key=every.get),
                )
