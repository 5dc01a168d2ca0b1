"""LSTMs of both directions over packed texts."""

import numpy as np
from absl.testing import absltest

from infoword_tf.layers.bilstm import BiLstm

WIDTH, F = 5, 7
# Texts of 3, 4 and 1 tokens, then padding; a row of one text.
BLOCKS = np.array([[0, 0, 0, 1, 1, 1, 1, 2, 3, 3], [0] * 10], np.int32)
X = np.random.default_rng(2).standard_normal((*BLOCKS.shape, F))
X = X.astype(np.float32)


def make():
    layer = BiLstm(WIDTH)
    layer.build(F)
    random = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(random.standard_normal(weight.shape))
    return layer


class BiLstmTest(absltest.TestCase):
    def test_a_text_is_its_last_states_wherever_it_stands(self):
        layer, x = make(), X
        actual = layer(x, BLOCKS, texts=3).numpy()
        self.assertEqual(actual.shape, (2, 3, 2 * WIDTH))
        for row, text in ((0, 0), (0, 1), (0, 2), (1, 0)):
            alone = x[row][BLOCKS[row] == text][None]
            left, _ = layer.left(alone)
            right, _ = layer.right(alone)
            expected = np.concatenate([left[0, -1], right[0, 0]])
            np.testing.assert_allclose(actual[row, text], expected, atol=1e-6)
