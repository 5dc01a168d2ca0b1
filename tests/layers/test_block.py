"""A block, post-norm or pre-norm, against NumPy in float64."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import dropout
from infoword_tf.layers.block import Block
from tests import eager
from tests.layers.operations import fed_forward, normed
from tests.layers.test_attention import loops, make_x

B, T, H, D, F, EPSILON = 2, 5, 3, 12, 20, 1e-6
KEY = eager.new_key(5)
PLACES = np.int32([[4, 0, 2], [1, 1, 3]])
ROWS = np.arange(B)[:, None]
MASKS = {
    'all': None,
    'causal': np.tril(np.ones((1, 1, T, T), bool)),
    # Two texts in a row, of which both are causal.
    'packed': np.stack([
        np.tril(np.ones((T, T), bool))
        & np.equal.outer(np.arange(T) < first, np.arange(T) < first)
        for first in (2, 3)
    ])[:, None],
}


def make_block(pre_norm, rate=0.0):
    """Makes a block with random weights, gammas around 1."""
    block = Block(D, H, F, rate, 'gelu_tanh', EPSILON, pre_norm=pre_norm)
    block.build()
    random = np.random.default_rng(3)
    for weight in block.weights:
        drawn = 0.4 * random.standard_normal(weight.shape)
        weight.assign(drawn + weight.path.endswith('gamma'))
    return block


def in_numpy(block, x, allowed):
    """Returns all states, [B, T, D] float64."""
    weights = {
        weight.path.removeprefix('block/'): weight.numpy().astype(np.float64)
        for weight in block.weights
    }
    x = x.astype(np.float64)

    def normalise(x, name):
        return normed(x, weights, name, EPSILON)

    def attend(x):
        mixed = loops(block.attention, x, allowed)
        return mixed + weights['attention_bias']

    if block.pre_norm:
        x = x + attend(normalise(x, 'attention_norm'))
        return x + fed_forward(normalise(x, 'outer_norm'), weights)
    x = normalise(x + attend(x), 'attention_norm')
    return normalise(x + fed_forward(x, weights), 'outer_norm')


class BlockTest(parameterized.TestCase):
    @parameterized.product(
        pre_norm=(False, True),
        mask=list(MASKS),
        places=(None, PLACES),
        key=(None, KEY),
    )
    def test_equals_numpy(self, pre_norm, mask, places, key):
        block, x, allowed = make_block(pre_norm), make_x(), MASKS[mask]
        expected = in_numpy(block, x, allowed)
        if places is not None:
            expected = expected[ROWS, places]
        actual = block(
            tf.constant(x),
            allowed=None if allowed is None else tf.constant(allowed),
            places=None if places is None else tf.constant(places),
            key=key,
        )
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)

    def test_pre_norm_dropout_written_out(self):
        """Where attention gives 0, sums and their two masks remain."""
        block, x = make_block(True, rate=0.5), make_x()
        for weight in (block.attention.output_kernel, block.outer_kernel):
            weight.assign(tf.zeros_like(weight))
        expected = x.copy()
        for site, bias in ((1, block.attention_bias), (2, block.outer_bias)):
            key = dropout.fold_in(KEY, site)
            keep = dropout.keep_mask(key, x.shape, 0.5).numpy()
            expected += np.where(keep, 2 * bias.numpy(), 0)
        np.testing.assert_allclose(
            block(tf.constant(x), key=KEY), expected, atol=1e-5
        )
