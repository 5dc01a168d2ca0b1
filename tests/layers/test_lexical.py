"""The head of lexical vectors, written out."""

import types

import numpy as np
from absl.testing import parameterized
from scipy import special

from infoword_tf.layers.lexical import NEVER, Lexical
from tests.eager import new_key
from tests.objectives.eq1 import EagerCase, drawn

B, T, D, E, V = 2, 5, 4, 3, 7
BLOCKS = np.int32([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])  # 2 is padding


class LexicalTest(EagerCase):
    @parameterized.parameters((None,), (new_key(2),))
    def test_the_transform(self, key):
        """max of LayerNorm(gelu(x W + b)) E^T + c, in inference and a step.

        Formal et al. 2021, over the output layer of Devlin et al. 2019.
        """
        random = np.random.default_rng(0)
        x = random.standard_normal((B, T, D)).astype(np.float32)
        table = random.standard_normal((V, E)).astype(np.float32)
        encoder = types.SimpleNamespace(
            width=D, embedding_width=E, vocab_size=V, biased=True,
            embedding_table=table,
            arguments={'activation': 'gelu_tanh', 'epsilon': 0.5},
        )  # fmt: skip
        layer = drawn(Lexical(
            encoder, transform=True, transform_activation='gelu_erf',
            transform_epsilon=0.1,
        ))  # fmt: skip
        h = x @ np.array(layer.kernel) + np.array(layer.bias)
        h = h * special.ndtr(h)
        h -= h.mean(axis=-1, keepdims=True)
        h /= np.sqrt((h**2).mean(axis=-1, keepdims=True) + 0.1)
        h = h * np.array(layer.gamma) + np.array(layer.beta)
        scores = h @ table.T + np.array(layer.token_bias)
        expected = [
            row[blocks == text].max(axis=0)
            for row, blocks in zip(scores, BLOCKS, strict=True)
            for text in range(2)
        ]
        ids = np.zeros((B, T), np.int32)
        actual = layer.highest(x, ids, BLOCKS, 2, key)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)

    def test_a_number_a_token(self):
        """The largest of equal tokens of a text; -1e30 of all that it lacks.

        Special tokens are left out, unless there are none. The third text of
        each row has no token.
        """
        encoder = types.SimpleNamespace(width=1, vocab_size=V)
        ids = np.int32([[4, 4, 5, 2, 5], [5, 6, 6, 4, 4]])
        states = np.float32([[3, -1, 2, 9, 4], [7, 1, 2, 8, 8]])[..., None]
        blocks = np.where(BLOCKS < 2, BLOCKS, 3)
        for left_out in ([], [2]):
            layer = drawn(Lexical(encoder, 'tokens', left_out=left_out))
            layer.kernel.assign([[2]])
            layer.bias.assign([1])
            expected = np.full((6, V), -np.inf)
            expected[0, 4] = 7
            expected[1, [2, 5]] = [-np.inf if left_out else 19, 9]
            expected[3, 5] = 15
            expected[4, 6] = 5
            actual = np.array(layer.highest(states, ids, blocks, 3))
            actual[actual <= NEVER] = -np.inf
            np.testing.assert_allclose(actual, expected)
