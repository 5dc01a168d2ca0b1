"""The Transformer: sizes, first weights, and norms.

That its numbers are those of Google and transformers is in tests/weights.
"""

import functools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import stats

from infoword_tf.assembly import initialise
from infoword_tf.encoders import Transformer
from infoword_tf.layers.attention import distance_buckets
from infoword_tf.model import Model
from infoword_tf.sizes import SIZES
from tests import zoo
from tests.encoders import calls
from tests.encoders.calls import KEY, V, make_ids, near, run
from tests.objectives.eq1 import EagerCase
from tests.refused import refused

POSITIONS = 32
# V D + 512 D + 2 D + 2 D + L (12 D^2 + 13 D), without a pooler.
WEIGHTS = {
    'tiny': 4_369_408, 'mini': 11_104_768, 'small': 28_500_992,
    'medium': 41_110_528, 'base': 108_891_648, 'large': 334_092_288,
}  # fmt: skip
make_encoder = functools.partial(calls.make, 'transformer')


class SizeTest(EagerCase):
    @parameterized.parameters(*WEIGHTS)
    def test_parameters(self, size):
        actual = calls.count('transformer', vocab_size=30_522, **SIZES[size])
        self.assertEqual(actual, WEIGHTS[size])

    def test_every_size_is_counted_and_heads_are_64_wide(self):
        self.assertEqual([*SIZES], [*WEIGHTS, 'elmo'])
        for size, sizes in SIZES.items():
            self.assertEqual(sizes['width'], 64 * sizes['heads'], size)


class WeightsTest(EagerCase):
    @parameterized.parameters((768, 0.02), (64, 0.0692820))
    def test_first_weights(self, width, deviation):
        """A normal cut at two deviations; vectors at 0 and 1."""
        encoder = Transformer(
            vocab_size=2000, layers=1, width=64, heads=2, max_length=POSITIONS
        )
        encoder.build()
        weights = {weight.path: weight for weight in encoder.weights}
        initialise(weights, 0, width)
        cut = stats.truncnorm(-2, 2, scale=deviation)
        self.assertAlmostEqual(cut.std(), 0.879626 * deviation, places=6)
        for path, weight in weights.items():
            values = weight.numpy()
            if values.ndim == 1:
                expected = float(path.endswith('gamma'))
                np.testing.assert_array_equal(values, expected, path)
                continue
            self.assertLessEqual(
                np.abs(values).max(), 2 * deviation + 1e-7, path
            )
            test = stats.kstest(values.ravel(), cut.cdf)
            self.assertGreater(test.pvalue, 1e-4, path)
        words = weights['encoder/word_embeddings'].numpy()
        self.assertAlmostEqual(words.std(), cut.std(), delta=0.005 * deviation)
        self.assertGreater(np.abs(words).max(), 1.995 * deviation)

    def test_a_deviation_that_is_given(self):
        """The same numbers, of another size."""
        path = 'encoder/word_embeddings'
        usual, scaled = (
            Model(zoo.config('mlm'), zoo.SPECIALS, deviation=deviation)
            .variables[path]
            .numpy()
            for deviation in (None, 0.02)
        )
        np.testing.assert_allclose(
            scaled, usual / math.sqrt(768 / 16), rtol=1e-6
        )
        self.assertLessEqual(np.abs(scaled).max(), 0.04)

    def test_first_weights_depend_on_seed_and_path_alone(self):
        def weights(seed, **sizes):
            encoder = Transformer(vocab_size=V, heads=2, **sizes)
            encoder.build()
            actual = {weight.path: weight for weight in encoder.weights}
            initialise(actual, seed, sizes['width'])
            return {path: w.numpy() for path, w in actual.items()}

        small = weights(3, layers=1, width=16)
        large = weights(3, layers=2, width=16)
        for path, value in small.items():
            np.testing.assert_array_equal(value, large[path], path)
        other = weights(4, layers=1, width=16)
        path = 'encoder/layer_0/inner_kernel'
        self.assertFalse(np.allclose(small[path], other[path]))
        self.assertFalse(
            np.allclose(
                small['encoder/word_embeddings'][:2],
                small['encoder/segment_embeddings'],
            )
        )


class StatesTest(EagerCase):
    def test_positions_and_segments_count_from_zero(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        zeros = np.zeros((2, 10), np.int32)
        positions = np.tile(np.arange(10, dtype=np.int32), (2, 1))
        expected = run(
            encoder,
            ids,
            positions=positions,
            segment_ids=zeros,
            block_ids=zeros,
        ).states
        actual = run(encoder, ids).states
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        for name in ('positions', 'segment_ids'):
            other = run(encoder, ids, **{name: zeros + 1}).states
            self.assertGreater(np.abs(other - expected).max(), 0.1)

    def trained(self, encoder, ids, **more):
        """States [2, 10, D], and the gradient of each weight."""
        with tf.GradientTape() as tape:
            states = run(encoder, ids, **more).states
            loss = tf.reduce_sum(states[..., :5] ** 3)
        weights = {weight.path: weight.value for weight in encoder.weights}
        actual = tape.gradient(loss, weights, unconnected_gradients='zero')
        gradients = {path: np.array(tf.convert_to_tensor(gradient))
                     for path, gradient in actual.items()}  # fmt: skip
        return states.numpy(), gradients

    @parameterized.parameters((None,), (KEY,))
    def test_shared_layers_are_layers_of_equal_weights(self, key):
        """Dropout too; the gradient is the sum of theirs."""
        ids, sizes = make_ids(2, 10), {'layers': 3, 'rate': 0.1}
        shared = make_encoder(shared_layers=True, **sizes)
        apart = make_encoder(**sizes)
        self.assertEqual((shared.depth, len({*shared.blocks})), (3, 1))
        values = {weight.path: weight.numpy() for weight in shared.weights}

        def first(path):
            return path.replace('layer_1', 'layer_0').replace(
                'layer_2', 'layer_0'
            )

        paths = [weight.path for weight in apart.weights]
        self.assertCountEqual(values, {first(path) for path in paths})
        for weight in apart.weights:
            weight.assign(values[first(weight.path)])
        expected, parts = self.trained(apart, ids, key=key)
        for remat in (False, True):
            shared.remat = remat
            states, gradients = self.trained(shared, ids, key=key)
            near(states, expected)
            for path, gradient in gradients.items():
                total = sum(parts[x] for x in paths if first(x) == path)
                np.testing.assert_allclose(
                    gradient, total, atol=1e-5 * np.abs(total).max()
                )

    def test_remat_keeps_the_gradient_of_the_buckets(self):
        ids = make_ids(2, 10)
        sizes = {'layers': 2, 'relative_buckets': 8, 'rate': 0.1}
        encoder = make_encoder(**sizes)
        more = {'key': KEY, 'block_ids': np.int32([[0] * 7 + [1] * 3] * 2)}
        _, stored = self.trained(encoder, ids, **more)
        encoder.remat = True
        _, again = self.trained(encoder, ids, **more)
        for path, gradient in stored.items():
            near(again[path], gradient, 1e-5 * np.abs(gradient).max(), path)
        (biases,) = (g for p, g in stored.items() if 'relative_bias' in p)
        used = biases[[0, 1, 2, 5, 6]]  # of distances below 10
        self.assertTrue((np.abs(used) > 1e-3).all())

    def test_buckets_of_distances(self):
        """MPNet's 32. From 8 on they are sqrt(2) times as wide each."""
        begins = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
        actual = distance_buckets(32)
        self.assertLen(actual, 257)
        for distance in range(-128, 129):
            bucket = sum(abs(distance) >= begin for begin in begins) - 1
            bucket += 16 * (distance > 0)
            self.assertEqual(actual[128 + distance], bucket, distance)
        # Of 8 the last begins at 16, half way from 2 to 128 by logarithm.
        np.testing.assert_array_equal(
            distance_buckets(8)[128:][[0, 1, 2, 15, 16, 17, 128]],
            [0, 5, 6, 6, 7, 7, 7],
        )

    @parameterized.parameters('mlm', 'bert_nce', 'gpt', 'simcse:1,infocse:1')
    def test_states_wider_than_embeddings_are_not_multiplied(self, rows):
        case = zoo.Case(rows, layers=2, arguments={'embedding_width': 8})
        with refused('narrow_embeddings', list(case.rows)[-1], 16, 8):
            Model(zoo.config_of(case), zoo.SPECIALS)
