"""Fused pieces against plain operations and their automatic gradients."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import dropout, fused

B, T, H, D, EPSILON, RATE = 3, 5, 2, 12, 1e-6, 0.1
KEY = dropout.new_key(17)
BFLOAT16 = 2.0**-8  # half a unit in the last place, relative

# What each takes: which inputs are in the compute dtype, which float32.
SHAPES = {
    'add_norm': {'x': (B, T, D), 'bias': (D,), 'residual': (B, T, D),
                 'gamma': (D,), 'beta': (D,)},
    'norm': {'x': (B, T, D), 'gamma': (D,), 'beta': (D,)},
    'gelu_tanh': {'x': (B, T, D), 'bias': (D,)},
    'gelu_erf': {'x': (B, T, D), 'bias': (D,)},
    'gelu_relu': {'x': (B, T, D), 'bias': (D,)},
    'drop': {'x': (B, T, D)},
    'add_norm_only': {'x': (B, T, D), 'residual': (B, T, D),
                      'gamma': (D,), 'beta': (D,)},
    'heads_3': {'x': (B, T, 3 * D), 'bias': (3 * D,)},
    'heads_2': {'x': (B, T, 2 * D), 'bias': (2 * D,)},
    'heads_1': {'x': (B, T, D), 'bias': (D,)},
    'heads_only_2': {'x': (B, T, 2 * D)},
    'queries': {'x': (B, 6, D), 'u': (D,), 'v': (D,)},
    'queries_signed': {'x': (B, 6, D), 'u': (D,), 'v': (D,)},
    # 6 tokens and 2 of memory: 8 keys, 14 distances, or 9 to the left.
    'relative': {'content': (B, H, 6, 8), 'position': (H, 1, 6 * B, 14)},
    'relative_causal': {'content': (B, H, 6, 8),
                        'position': (H, 1, 6 * B, 9)},
    'relative_blocks': {'content': (B, H, 6, 8),
                        'position': (H, 3, 2 * B, 10), 'segment': (B, H, 6)},
    'relative_places': {'content': (B, H, 4, 8),
                        'position': (H, 1, 4 * B, 14), 'segment': (B, H, 4)},
    'softmax': {'scores': (B, H, T, T + 2)},
}
DROPPING = ('add_norm', 'add_norm_only', 'norm', 'softmax', 'drop',
            'gelu_tanh', 'gelu_erf', 'gelu_relu')
PLACES = np.int32([[5, 0, 2, 2], [1, 1, 3, 4], [0, 1, 2, 3]])
DIFFERENT = np.random.default_rng(2).random((B, 1, 6, 8)) < 0.5


def run(name, inputs, key, rate=0.0):
    """A list of the piece's results."""
    values = list(inputs.values())
    dtype = values[0].dtype.name
    if name.startswith('add_norm'):
        if name == 'add_norm_only':
            values.insert(1, None)
        return [fused.add_norm(*values, epsilon=EPSILON, key=key, rate=rate)]
    if name == 'drop':
        return [fused.drop(*values, key=key, rate=rate)]
    if name.startswith('queries'):
        signs = tf.constant([1.0, -1.0, 1.0]) if name[7:] else None
        blocks = 3 if name[7:] else 1
        return list(
            fused.split_queries(*values, signs, heads=H, blocks=blocks, key=key)
        )
    if name.startswith('relative'):
        given = {}
        if name == 'relative_places':
            given['places'] = tf.constant(PLACES)
        if 'segment' in inputs:
            asking = values[0].shape[2]
            given['different'] = tf.constant(DIFFERENT[:, :, :asking])
        return [fused.relative_scores(*values, length=6, key=key, **given)]
    if name == 'norm':
        return [
            fused.norm(
                *values, epsilon=EPSILON, dtype=dtype, key=key, rate=rate
            )
        ]
    if name.startswith('gelu'):
        form = name.removeprefix('gelu_')
        return [fused.bias_gelu(*values, form=form, key=key, rate=rate)]
    if name.startswith('heads'):
        parts = int(name[-1])
        if name == 'heads_only_2':
            values.append(None)
        return list(fused.split_heads(*values, heads=H, parts=parts, key=key))
    return [fused.softmax_dropout(*values, key=key, rate=rate)]


def with_mask(name, inputs, rate):
    """Plain operations with the mask of KEY written in."""
    if name.startswith('add_norm'):
        x = inputs['x'] + inputs.get('bias', 0.0)
        kept = dropout.keep_mask(KEY, tuple(x.shape), rate)
        x = tf.where(kept, x / (1 - rate), 0.0)
        given = {**inputs, 'x': x, 'bias': tf.zeros(D)}
        return run('add_norm', {k: given[k] for k in SHAPES['add_norm']}, None)
    (y,) = run(name, inputs, None)
    kept = dropout.keep_mask(KEY, tuple(y.shape), rate)
    return [tf.where(kept, y / (1 - rate), 0.0)]


def make_inputs(name, dtype='float32'):
    random = np.random.default_rng(len(name))
    wide = ('x', 'residual', 'scores', 'content', 'position')
    return {
        key: tf.cast(
            tf.constant(
                random.standard_normal(shape) * 1.5 + (key == 'gamma'),
                tf.float32,
            ),
            dtype if key in wide else 'float32',
        )
        for key, shape in SHAPES[name].items()
    }


def value_and_gradients(function, inputs):
    """Results, and gradients of their product with fixed numbers."""
    random = np.random.default_rng(99)
    with tf.GradientTape() as tape:
        tape.watch(list(inputs.values()))
        results = function(inputs)
        total = 0.0
        for result in results:
            weights = random.standard_normal(result.shape).astype('f')
            total += tf.reduce_sum(tf.cast(result, tf.float32) * weights)
    return results, tape.gradient(total, inputs)


def assert_close(actual, expected, tolerance, what=''):
    """Within `tolerance` of the largest expected value."""
    expected = np.asarray(tf.cast(expected, tf.float64))
    np.testing.assert_allclose(
        np.asarray(tf.cast(actual, tf.float64)),
        expected,
        rtol=0,
        atol=tolerance * np.abs(expected).max(),
        err_msg=what,
    )


class PieceTest(parameterized.TestCase):
    @parameterized.parameters(*SHAPES)
    def test_rate_0_is_the_plain_piece(self, name):
        inputs = make_inputs(name)
        plain, plain_gradients = value_and_gradients(
            lambda i: run(name, i, None), inputs
        )
        found, gradients = value_and_gradients(
            lambda i: run(name, i, KEY), inputs
        )
        for one, two in zip(found, plain, strict=True):
            self.assertEqual(one.dtype, tf.float32)
            self.assertEqual(one.shape, two.shape)
            assert_close(one, two, 1e-6)
        for key, gradient in gradients.items():
            self.assertEqual(gradient.shape, inputs[key].shape)
            assert_close(gradient, plain_gradients[key], 1e-5, key)

    @parameterized.parameters(*DROPPING)
    def test_dropout_is_the_mask_of_the_key(self, name):
        inputs = make_inputs(name)
        plain, plain_gradients = value_and_gradients(
            lambda i: with_mask(name, i, RATE), inputs
        )
        found, gradients = value_and_gradients(
            lambda i: run(name, i, KEY, RATE), inputs
        )
        assert_close(found[0], plain[0], 1e-6)
        for key, gradient in gradients.items():
            assert_close(gradient, plain_gradients[key], 1e-5, key)
        (whole,) = run(name, inputs, KEY)
        self.assertGreater(float(tf.reduce_max(abs(found[0] - whole))), 0.05)

    @parameterized.parameters(*DROPPING)
    def test_inference_drops_nothing(self, name):
        inputs = make_inputs(name)
        (with_rate,) = run(name, inputs, None, RATE)
        (without,) = run(name, inputs, None)
        np.testing.assert_array_equal(with_rate, without)

    @parameterized.product(name=list(SHAPES), key=(None, KEY))
    def test_bfloat16(self, name, key):
        inputs = make_inputs(name, 'bfloat16')
        exact = {k: tf.cast(v, tf.float32) for k, v in inputs.items()}
        expected, expected_gradients = value_and_gradients(
            lambda i: run(name, i, None), exact
        )
        found, gradients = value_and_gradients(
            lambda i: run(name, i, key), inputs
        )
        for one, two in zip(found, expected, strict=True):
            self.assertEqual(one.dtype, tf.bfloat16)
            assert_close(one, two, 2 * BFLOAT16)
        for k, gradient in gradients.items():
            self.assertEqual(gradient.dtype, inputs[k].dtype, k)
            assert_close(gradient, expected_gradients[k], 8 * BFLOAT16, k)

    def test_norm_from_float32_to_bfloat16(self):
        """How the embeddings of mixed_bfloat16 begin."""
        inputs = make_inputs('norm')
        expected, expected_gradients = value_and_gradients(
            lambda i: run('norm', i, None), inputs
        )
        for key in (None, KEY):
            found, gradients = value_and_gradients(
                lambda i, key=key: [
                    fused.norm(
                        *i.values(), epsilon=EPSILON, dtype='bfloat16', key=key
                    )
                ],
                inputs,
            )
            self.assertEqual(found[0].dtype, tf.bfloat16)
            assert_close(found[0], expected[0], BFLOAT16)
            for k, gradient in gradients.items():
                self.assertEqual(gradient.dtype, tf.float32)
                assert_close(
                    gradient, expected_gradients[k], 2 * BFLOAT16, k
                )

    def test_norm_written_out(self):
        x = [[1.0, 2.0, 3.0, 6.0]]  # mean 3, variance 3.5
        gamma, beta = [1.0, 2.0, 1.0, -1.0], [0.0, 1.0, 5.0, 0.0]
        expected = [
            [
                -2 / math.sqrt(4),
                1 - 2 / math.sqrt(4),
                5.0,
                -3 / math.sqrt(4),
            ]
        ]
        for key in (None, KEY):
            y = fused.norm(
                tf.constant(x),
                tf.constant(gamma),
                tf.constant(beta),
                epsilon=0.5,
                dtype='float32',
                key=key,
            )
            np.testing.assert_allclose(y, expected, atol=1e-6)


class GeluTest(parameterized.TestCase):
    X = (-3.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0)
    VALUES = {
        'erf': (-0.00404969, -0.15865525, -0.15426877, 0.34573123, 0.84134475,
                1.95449974, 2.99595031),
        'tanh': (-0.00363739, -0.15880801, -0.15428599, 0.34571401, 0.84119199,
                 1.95459769, 2.99636261),
    }

    @parameterized.parameters((None,), (KEY,))
    def test_relu(self, key):
        y = fused.bias_gelu(
            tf.constant([[-2.0, 0.5, 3.0]]),
            tf.constant([1.0, -1.0, 1.0]),
            form='relu',
            key=key,
        )
        np.testing.assert_array_equal(y, [[0.0, 0.0, 4.0]])

    @parameterized.product(form=('erf', 'tanh'), key=(None, KEY))
    def test_values(self, form, key):
        x = tf.constant(self.X)[None]
        y = fused.bias_gelu(x, tf.zeros(7), form=form, key=key)
        np.testing.assert_allclose(
            y[0], self.VALUES[form], rtol=1e-6, atol=2e-7
        )
        shifted = fused.bias_gelu(
            x - 0.25, tf.fill([7], 0.25), form=form, key=key
        )
        np.testing.assert_allclose(shifted, y, atol=1e-6)

    @parameterized.parameters('erf', 'tanh')
    def test_far_out_it_is_relu_with_a_finite_slope(self, form):
        inputs = {'x': tf.constant([[-60.0, 60.0]]), 'bias': tf.zeros(2)}
        for key in (None, KEY):
            (y,), gradients = value_and_gradients(
                lambda i, key=key: [
                    fused.bias_gelu(*i.values(), form=form, key=key)
                ],
                inputs,
            )
            np.testing.assert_allclose(y, [[0.0, 60.0]], atol=1e-6)
            weights = np.random.default_rng(99).standard_normal((1, 2))
            np.testing.assert_allclose(
                gradients['x'], weights * [0, 1], atol=1e-6
            )


class SplitHeadsTest(parameterized.TestCase):
    @parameterized.parameters((None,), (KEY,))
    def test_where_each_number_goes(self, key):
        """[0 .. 11] for each token, then 2 heads of 3 for two projections."""
        x = tf.reshape(tf.range(24.0), (1, 2, 12))
        bias = tf.concat([tf.zeros(6), tf.ones(6)], 0)
        q, k = fused.split_heads(x, bias, heads=2, parts=2, key=key)
        np.testing.assert_array_equal(
            q,
            [[[[0, 1, 2], [12, 13, 14]], [[3, 4, 5], [15, 16, 17]]]],
        )
        np.testing.assert_array_equal(
            k,
            [[[[7, 8, 9], [19, 20, 21]], [[10, 11, 12], [22, 23, 24]]]],
        )


class SplitQueriesTest(parameterized.TestCase):
    @parameterized.parameters((None,), (KEY,))
    def test_where_each_number_goes(self, key):
        """[0 .. 3] for each of 4 tokens, 2 heads of 2, 2 blocks of 2 tokens.

        The second row is reversed.
        """
        x = tf.reshape(tf.range(32.0), (2, 4, 4))
        near, away = fused.split_queries(
            x,
            tf.constant([0.5, 0.5, 0.25, 0.25]),
            tf.constant([0.0, 0.0, 1.0, 1.0]),
            tf.constant([1.0, -1.0]),
            heads=2,
            blocks=2,
            key=key,
        )
        self.assertEqual(near.shape, (2, 2, 4, 2))
        np.testing.assert_array_equal(
            near[1],
            [
                [[16.5, 17.5], [20.5, 21.5], [24.5, 25.5], [28.5, 29.5]],
                [[18.25, 19.25], [22.25, 23.25], [26.25, 27.25],
                 [30.25, 31.25]],
            ],
        )
        self.assertEqual(away.shape, (2, 2, 4, 4))
        # Head 0, tokens 0 and 1 of both rows; head 1, tokens 2 and 3.
        np.testing.assert_array_equal(
            away[0, 0],
            [[0, 1, 0, 1], [4, 5, 4, 5],
             [16, 17, -16, -17], [20, 21, -20, -21]],
        )
        np.testing.assert_array_equal(
            away[1, 1],
            [[11, 12, 11, 12], [15, 16, 15, 16],
             [27, 28, -27, -28], [31, 32, -31, -32]],
        )


class RelativeScoresTest(parameterized.TestCase):
    T, K = 6, 8

    def loops(self, position, places):
        """What distance K - column is to key j of a token, one by one."""
        found = np.zeros((B, H, places.shape[1], self.K), np.float32)
        for b, h, q, j in np.ndindex(*found.shape):
            distance = self.K - self.T + places[b, q] - j
            row = position[h].reshape(B, places.shape[1], -1)[b, q]
            found[b, h, q, j] = row[self.K - distance]
        return found

    @parameterized.parameters((None,), (KEY,))
    def test_shift_is_gather_is_the_loop(self, key):
        inputs = make_inputs('relative')
        everywhere = np.tile(np.arange(6, dtype=np.int32), (B, 1))
        expected = self.loops(inputs['position'].numpy(), everywhere)
        content = tf.zeros((B, H, 6, 8))
        for places in (None, everywhere):
            found = fused.relative_scores(
                content, inputs['position'], places=places, length=6, key=key
            )
            np.testing.assert_array_equal(found, expected)
        inputs = make_inputs('relative_places')
        found = fused.relative_scores(
            content[:, :, :4],
            inputs['position'],
            places=tf.constant(PLACES),
            length=6,
            key=key,
        )
        np.testing.assert_array_equal(
            found, self.loops(inputs['position'].numpy(), PLACES)
        )

    @parameterized.parameters((None,), (KEY,))
    def test_the_shift_is_wrong_on_gathered_rows(self, key):
        """Why there are two ways."""
        position = make_inputs('relative_places')['position']
        content = tf.zeros((B, H, 4, 8))
        found = fused.relative_scores(content, position, length=4, key=key)
        expected = self.loops(position.numpy(), PLACES)
        self.assertGreater(np.abs(found - expected).max(), 1.0)

    @parameterized.product(count=(2, 3), key=(None, KEY))
    def test_blocks_are_the_whole(self, count, key):
        position = make_inputs('relative')['position'].numpy()
        whole = position.reshape(H, B, 6, 14)
        t = 6 // count
        parts = [
            whole[:, :, i * t : (i + 1) * t][..., 6 - (i + 1) * t :][
                ..., : 8 + t
            ].reshape(H, B * t, 8 + t)
            for i in range(count)
        ]
        content = make_inputs('relative')['content']
        found, expected = (
            fused.relative_scores(content, tf.constant(x), length=6, key=key)
            for x in (np.stack(parts, axis=1), position)
        )
        np.testing.assert_array_equal(found, expected)

    @parameterized.parameters((None,), (KEY,))
    def test_masked_and_different(self, key):
        inputs = make_inputs('relative_blocks')
        allowed = np.random.default_rng(3).random((1, 1, 6, 8)) < 0.5
        bare = fused.relative_scores(
            inputs['content'], inputs['position'], length=6, key=key
        )
        found = fused.relative_scores(
            *inputs.values(),
            different=tf.constant(DIFFERENT),
            allowed=tf.constant(allowed),
            length=6,
            key=key,
        )
        segment = inputs['segment'].numpy()[..., None]
        expected = np.where(DIFFERENT, bare + segment, bare)
        expected = np.where(allowed, expected, np.float32(-1e30))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


class SoftmaxDropoutTest(absltest.TestCase):
    def test_blocked_places_get_nothing(self):
        scores = tf.constant([[[[1.0, -1e30, 2.0], [-1e30, -1e30, -1e30]]]])
        e = math.e
        expected = [[1 / (1 + e), 0, e / (1 + e)], [1 / 3, 1 / 3, 1 / 3]]
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                weights = fused.softmax_dropout(scores, key=key)
                total = tf.reduce_sum(weights * [1.0, 2.0, 3.0])
            np.testing.assert_allclose(weights[0, 0], expected, atol=1e-6)
            gradient = tape.gradient(total, scores).numpy()
            self.assertTrue(np.isfinite(gradient).all())
            self.assertEqual(gradient[0, 0, 0, 1], 0.0)


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

    def run_piece(self, inputs, targets, key, dtype='float32'):
        return fused.vocabulary_scores(
            inputs['states'],
            inputs['table'],
            inputs.get('bias'),
            tf.constant(targets),
            dtype=dtype,
            key=key,
        )

    @parameterized.product(bias=(False, True), key=(None, KEY))
    def test_is_log_softmax(self, bias, key):
        inputs, targets = self.make_inputs(bias)
        exact = {k: v.numpy().astype(np.float64) for k, v in inputs.items()}
        scores = exact['states'] @ exact['table'].T + exact.get('bias', 0.0)
        log_sum = np.log(np.exp(scores).sum(axis=1))
        own = scores[np.arange(self.N), targets]
        rivals = (scores >= own[:, None]).sum(axis=1) - 1

        found = self.run_piece(inputs, targets, key)
        self.assertEqual([f.dtype for f in found], [tf.float32] * 3)
        np.testing.assert_allclose(found[0], own, atol=2e-6)
        np.testing.assert_allclose(found[1], log_sum, atol=2e-6)
        np.testing.assert_array_equal(found[2], rivals)
        self.assertGreater(rivals.max(), 0)

    @parameterized.parameters(False, True)
    def test_gradients(self, bias):
        inputs, targets = self.make_inputs(bias)

        def gradients(key, dtype='float32'):
            return value_and_gradients(
                lambda i: self.run_piece(i, targets, key, dtype)[:2], inputs
            )[1]

        plain = gradients(None)
        for k, gradient in gradients(KEY).items():
            assert_close(gradient, plain[k], 1e-5, k)
        for k, gradient in gradients(KEY, 'bfloat16').items():
            self.assertEqual(gradient.dtype, tf.float32)
            assert_close(gradient, plain[k], 4 * BFLOAT16, k)

    def test_scores_are_float32_where_gradients_are_bfloat16(self):
        inputs, targets = self.make_inputs(True)
        exact = self.run_piece(inputs, targets, KEY)
        mixed = self.run_piece(inputs, targets, KEY, 'bfloat16')
        for one, two in zip(mixed, exact, strict=True):
            np.testing.assert_array_equal(one, two)

    @parameterized.parameters((None,), (KEY,))
    def test_rivals_count_ties(self, key):
        table = tf.constant([[1.0], [2.0], [2.0], [2.0], [0.0], [3.0]])
        _, _, rivals = fused.vocabulary_scores(
            tf.constant([[1.0], [1.0], [0.0], [1.0], [-1.0]]),
            table,
            None,
            tf.constant([1, 5, 3, 4, 4]),
            key=key,
        )
        # Two other 2s and the 3; none; all five; all five; none.
        np.testing.assert_array_equal(rivals, [3, 0, 5, 5, 0])

    @parameterized.parameters((None,), (KEY,))
    def test_large_scores_stay_finite(self, key):
        inputs = {
            'states': tf.constant([[100.0], [-100.0]]),
            'table': tf.constant([[10.0], [0.0], [-10.0]]),
        }
        found, gradients = value_and_gradients(
            lambda i: self.run_piece(i, np.int32([0, 0]), key)[:2], inputs
        )
        np.testing.assert_allclose(found[0], [1000.0, -1000.0])
        np.testing.assert_allclose(found[1], [1000.0, 1000.0])
        for gradient in gradients.values():
            self.assertTrue(np.isfinite(gradient).all())

    def test_rivals_have_no_gradient(self):
        inputs, targets = self.make_inputs(False)
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(inputs['states'])
                rivals = self.run_piece(inputs, targets, key)[2]
            gradient = tape.gradient(
                rivals,
                inputs['states'],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            np.testing.assert_array_equal(gradient, np.zeros((self.N, self.D)))


if __name__ == '__main__':
    absltest.main()
