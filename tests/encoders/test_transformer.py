"""The Transformer: sizes, what it may see, and Google's numbers."""

import math
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats

from infoword_tf.encoders import Transformer
from infoword_tf.layers import dropout, heads, norm
from infoword_tf.model import Model, initialise
from infoword_tf.sizes import SIZES
from tests import zoo
from tests.encoders.calls import run

V, WIDTH, POSITIONS = 60, 16, 32
KEY = dropout.new_key(21)


def make_encoder(rate=0.0, dtype='float32', **sizes):
    """Every weight drawn, and large enough to leave the linear range."""
    given = {
        'vocab_size': V,
        'layers': 2,
        'width': WIDTH,
        'heads': 2,
        'max_length': POSITIONS,
        **sizes,
    }
    encoder = Transformer(**given, rate=rate, dtype=dtype)
    encoder.build()
    random = np.random.default_rng(12)
    for weight in encoder.weights:
        drawn = 0.3 * random.standard_normal(weight.shape)
        weight.assign(drawn + weight.path.endswith('gamma'))
    return encoder


def make_ids(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(5, V, size=shape).astype(np.int32)


class SizeTest(parameterized.TestCase):
    # V D + 512 D + 2 D + 2 D + L (12 D^2 + 13 D), without a pooler.
    @parameterized.parameters(
        ('tiny', 4_369_408),
        ('mini', 11_104_768),
        ('small', 28_500_992),
        ('medium', 41_110_528),
        ('base', 108_891_648),
        ('large', 334_092_288),
    )
    def test_parameters(self, size, count):
        # Shapes alone: nothing is allocated.
        with keras.StatelessScope(initialize_variables=False):
            encoder = Transformer(vocab_size=30_522, **SIZES[size])
            encoder.build()
        found = sum(math.prod(weight.shape) for weight in encoder.weights)
        self.assertEqual(found, count)

    def test_every_size_is_counted(self):
        self.assertEqual(
            list(SIZES),
            ['tiny', 'mini', 'small', 'medium', 'base', 'large', 'elmo'],
        )

    def test_heads_are_64_wide(self):
        for size, sizes in SIZES.items():
            self.assertEqual(sizes['width'], 64 * sizes['heads'], size)

    def test_defaults_are_written_into_the_arguments(self):
        encoder = Transformer(
            vocab_size=V, layers=2, width=WIDTH, heads=2
        )
        self.assertEqual(
            encoder.arguments,
            {
                'vocab_size': V,
                'layers': 2,
                'width': WIDTH,
                'heads': 2,
                'inner_width': 64,
                'max_length': 512,
                'segments': 2,
                'rate': 0.1,
                'activation': 'gelu_tanh',
                'epsilon': 1e-12,
                'causal': False,
                'pre_norm': False,
                'embedding_norm': True,
                'embedding_width': None,
            },
        )
        again = Transformer(**encoder.arguments)
        self.assertEqual(again.arguments, encoder.arguments)


class WeightsTest(parameterized.TestCase):
    def test_paths_are_explicit(self):
        block = [
            'attention_bias', 'attention_norm_gamma', 'attention_norm_beta',
            'inner_kernel', 'inner_bias', 'outer_kernel', 'outer_bias',
            'outer_norm_gamma', 'outer_norm_beta', 'attention/qkv_kernel',
            'attention/qkv_bias', 'attention/output_kernel',
        ]  # fmt: skip
        expected = [
            f'encoder/{name}'
            for name in (
                'word_embeddings', 'position_embeddings', 'segment_embeddings',
                'norm_gamma', 'norm_beta',
                *(f'layer_{i}/{name}' for i in range(2) for name in block),
            )
        ]  # fmt: skip
        for _ in range(2):  # no second model is called encoder_1
            found = [weight.path for weight in make_encoder().weights]
            self.assertEqual(sorted(found), sorted(expected))

    # 0.02 at the width of base; 0.02 sqrt(12) at 64.
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

    def test_a_model_draws_by_its_width(self):
        values = (
            Model(zoo.config('mlm'), zoo.SPECIALS)
            .variables['encoder/word_embeddings']
            .numpy()
        )
        self.assertEqual(values.shape[1], 16)
        cut = stats.truncnorm(-2, 2, scale=0.02 * math.sqrt(768 / 16))
        self.assertAlmostEqual(values.std(), cut.std(), delta=0.02)

    def test_a_deviation_that_is_given(self):
        """The same numbers, of another size."""
        path = 'encoder/word_embeddings'
        usual, given = (
            Model(zoo.config('mlm'), zoo.SPECIALS, deviation=deviation)
            .variables[path]
            .numpy()
            for deviation in (None, 0.02)
        )
        np.testing.assert_allclose(
            given, usual / math.sqrt(768 / 16), rtol=1e-6
        )
        self.assertLessEqual(np.abs(given).max(), 0.04)

    def test_first_weights_depend_on_seed_and_path_alone(self):
        def weights(seed, **sizes):
            encoder = Transformer(vocab_size=V, heads=2, **sizes)
            encoder.build()
            found = {weight.path: weight for weight in encoder.weights}
            initialise(found, seed, sizes['width'])
            return {path: w.numpy() for path, w in found.items()}

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

    def test_drift(self):
        """Outputs of the tiny size at seed 0, as they were on the first day."""
        encoder = Transformer(vocab_size=30_522, **SIZES['tiny'])
        encoder.build()
        initialise({w.path: w for w in encoder.weights}, 0, 768)
        ids = np.array([[101, 7592, 2088, 2003, 103, 1012, 102]], np.int32)
        states = run(encoder, ids).states
        np.testing.assert_allclose(
            states[0, 4, :5],
            [-2.7078075, -1.0471548, -0.2511798, -1.1618441, 0.4555778],
            rtol=0,
            atol=1e-5,
        )


class StatesTest(parameterized.TestCase):
    @parameterized.product(
        key=(None, KEY), blocks=(False, True), all_layers=(False, True)
    )
    def test_places_are_rows_of_the_whole(self, key, blocks, all_layers):
        encoder, ids = make_encoder(), make_ids(3, 10)
        given = {'key': key}
        if blocks:
            given['block_ids'] = (np.arange(10) // [[3], [4], [10]]).astype(
                np.int32
            )
        whole = run(encoder, ids, **given).states.numpy()
        places = np.array([[0, 9], [3, 3], [7, 2]], np.int32)
        found = run(
            encoder, ids, places=places, all_layers=all_layers, **given
        ).states
        np.testing.assert_allclose(
            found, whole[np.arange(3)[:, None], places], rtol=0, atol=1e-5
        )

    def test_gradients_at_places_are_those_of_the_whole(self):
        encoder, ids = make_encoder(), make_ids(3, 10)
        places = np.array([[0, 9], [3, 3], [7, 2]], np.int32)
        values = [weight.value for weight in encoder.weights]

        def gradients(states):
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(states()[..., :7] ** 3)
            return [
                tf.convert_to_tensor(g) for g in tape.gradient(total, values)
            ]

        some = gradients(
            lambda: run(encoder, ids, places=places, key=KEY).states
        )
        taken = gradients(
            lambda: tf.gather(
                run(encoder, ids).states, places, axis=1, batch_dims=1
            )
        )
        for one, two, weight in zip(some, taken, encoder.weights, strict=True):
            scale = max(1.0, np.abs(two).max())
            np.testing.assert_allclose(
                one, two, rtol=0, atol=1e-5 * scale, err_msg=weight.path
            )

    def test_rate_0_with_a_key_is_inference(self):
        encoder, ids = make_encoder(), make_ids(3, 10)
        np.testing.assert_allclose(
            run(encoder, ids, key=KEY).states,
            run(encoder, ids).states,
            atol=1e-5,
        )

    def test_dropout_is_a_function_of_the_key(self):
        encoder, ids = make_encoder(rate=0.1), make_ids(3, 10)
        first = run(encoder, ids, key=KEY).states.numpy()
        np.testing.assert_array_equal(run(encoder, ids, key=KEY).states, first)
        in_graph = tf.function(lambda k: run(encoder, ids, key=k).states)
        np.testing.assert_allclose(in_graph(KEY), first, atol=1e-5)
        other = run(encoder, ids, key=dropout.fold_in(KEY, 0)).states.numpy()
        self.assertGreater(np.abs(other - first).max(), 0.1)
        self.assertGreater(
            np.abs(run(encoder, ids).states.numpy() - first).max(), 0.1
        )

    def test_every_site_has_a_key_of_its_own(self):
        """Embeddings, and in each layer weights and both residuals."""
        encoder, ids = make_encoder(rate=0.1, layers=3), make_ids(2, 10)
        keys = []
        for step in range(2):
            with (
                mock.patch.object(norm, 'norm', wraps=norm.norm) as one,
                mock.patch.object(
                    heads, 'softmax_dropout', wraps=heads.softmax_dropout
                ) as two,
                mock.patch.object(
                    norm, 'add_norm', wraps=norm.add_norm
                ) as three,
            ):
                run(encoder, ids, key=dropout.new_key(0, step))
            for called, count in ((one, 1), (two, 3), (three, 6)):
                self.assertEqual(called.call_count, count)
                for call in called.call_args_list:
                    self.assertEqual(call.kwargs['rate'], 0.1)
                    keys.append(tuple(call.kwargs['key'].numpy().tolist()))
        self.assertLen(set(keys), 20)

    def test_equal_rows_get_unequal_masks(self):
        encoder = make_encoder(rate=0.1)
        ids = np.repeat(make_ids(1, 10), 4, axis=0)
        states = run(encoder, ids, key=KEY).states.numpy()
        for row in range(1, 4):
            self.assertGreater(np.abs(states[row] - states[0]).max(), 0.1)

    @parameterized.parameters((None,), (KEY,))
    def test_packed_rows_are_the_sequences_alone(self, key):
        """5 and 7 tokens and 4 of padding in a row, positions restarting."""
        encoder = make_encoder()
        first, second = make_ids(2, 5, seed=1), make_ids(2, 7, seed=2)
        segments = make_ids(2, 12, seed=3) % 2
        packed = run(
            encoder,
            np.concatenate([first, second, np.zeros((2, 4), np.int32)], 1),
            positions=np.int32([[*range(5), *range(7), *range(4)]] * 2),
            segment_ids=np.pad(segments, ((0, 0), (0, 4))),
            block_ids=np.int32([[0] * 5 + [1] * 7 + [2] * 4] * 2),
            key=key,
        ).states
        one = run(encoder, first, segment_ids=segments[:, :5]).states
        two = run(encoder, second, segment_ids=segments[:, 5:]).states
        np.testing.assert_allclose(packed[:, :5], one, rtol=0, atol=1e-5)
        np.testing.assert_allclose(packed[:, 5:12], two, rtol=0, atol=1e-5)

    def test_padding_changes_nothing(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        block_ids = np.int32([[0] * 7 + [1] * 3, [0] * 10])
        before = run(encoder, ids, block_ids=block_ids).states.numpy()
        ids[0, 7:] = 9
        after = run(encoder, ids, block_ids=block_ids).states.numpy()
        np.testing.assert_array_equal(after[0, :7], before[0, :7])
        np.testing.assert_array_equal(after[1], before[1])
        alone = run(encoder, ids[:1, :7]).states
        np.testing.assert_allclose(after[:1, :7], alone, atol=1e-5)

    def test_every_token_sees_every_other_without_blocks(self):
        encoder, ids = make_encoder(), make_ids(1, 6)
        before = run(encoder, ids).states.numpy()
        for t in range(6):
            changed = ids.copy()
            changed[0, t] = 5 + (changed[0, t] - 4) % (V - 5)
            moved = np.abs(run(encoder, changed).states.numpy() - before)
            self.assertTrue((moved[0].max(axis=1) > 1e-3).all())

    def test_positions_and_segments_count_from_zero(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        zeros = np.zeros((2, 10), np.int32)
        positions = np.tile(np.arange(10, dtype=np.int32), (2, 1))
        given = run(
            encoder,
            ids,
            positions=positions,
            segment_ids=zeros,
            block_ids=zeros,
        ).states
        np.testing.assert_allclose(run(encoder, ids).states, given, atol=1e-5)
        for name in ('positions', 'segment_ids'):
            other = run(encoder, ids, **{name: zeros + 1}).states
            self.assertGreater(np.abs(other - given).max(), 0.1)

    def test_all_layers(self):
        encoder, ids = make_encoder(layers=3), make_ids(2, 10)
        plain = run(encoder, ids)
        self.assertIsNone(plain.layers)
        self.assertIsNone(plain.state)
        found = run(encoder, ids, all_layers=True)
        self.assertLen(found.layers, 4)
        for layer in found.layers:
            self.assertEqual(layer.shape, (2, 10, WIDTH))
        np.testing.assert_array_equal(found.layers[-1], found.states)
        np.testing.assert_allclose(found.states, plain.states, atol=1e-5)

    @parameterized.product(key=(None, KEY), pre_norm=(False, True))
    def test_causal(self, key, pre_norm):
        encoder = make_encoder(causal=True, pre_norm=pre_norm)
        ids, block_ids = make_ids(1, 8), np.int32([[0] * 6 + [1] * 2])
        before = run(encoder, ids, block_ids=block_ids, key=key).states.numpy()
        for t in range(8):
            changed = ids.copy()
            changed[0, t] = 5 + (changed[0, t] - 4) % (V - 5)
            after = run(encoder, changed, block_ids=block_ids, key=key).states
            moved = np.abs(after - before)[0].max(axis=1)
            sees = np.arange(8) >= t
            sees &= block_ids[0] == block_ids[0, t]
            np.testing.assert_array_equal(moved[~sees], 0.0)
            self.assertTrue((moved[sees] > 1e-4).all())

    @parameterized.parameters((None,), (KEY,))
    def test_norms_before_the_blocks_and_one_behind(self, key):
        encoder, ids = make_encoder(pre_norm=True), make_ids(2, 10)
        found = run(encoder, ids, all_layers=True, key=key)
        states = found.states.numpy().astype(np.float64)
        # What the last norm leaves: mean 0 and deviation 1 before its weights.
        plain = (states - encoder.last_beta.numpy()) / (
            encoder.last_gamma.numpy()
        )
        np.testing.assert_allclose(plain.mean(axis=-1), 0.0, atol=1e-4)
        np.testing.assert_allclose(plain.std(axis=-1), 1.0, atol=1e-4)
        np.testing.assert_array_equal(found.layers[-1], found.states)
        # The residual is untouched: blocks that add nothing leave it as it is.
        for weight in encoder.weights:
            if weight.path.endswith(
                ('output_kernel', 'outer_kernel', 'on_bias', 'outer_bias')
            ):
                weight.assign(np.zeros(weight.shape))
        first, second, _ = run(encoder, ids, all_layers=True, key=key).layers
        np.testing.assert_array_equal(first, second)
        posts = make_encoder()
        self.assertLen(encoder.weights, len(posts.weights) + 2)

    def test_layer_0_is_the_embeddings(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        total = (
            encoder.embedding_table.numpy()[ids]
            + encoder.position_table.numpy()[:10]
            + encoder.segment_table.numpy()[0]
        ).astype(np.float64)
        total -= total.mean(axis=-1, keepdims=True)
        total /= total.std(axis=-1, keepdims=True)
        expected = total * encoder.gamma.numpy() + encoder.beta.numpy()
        found = run(encoder, ids, all_layers=True).layers[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_lookup_is_the_input_embedding(self):
        encoder, ids = make_encoder(dtype='mixed_bfloat16'), make_ids(2, 3)
        found = encoder.lookup(ids)
        self.assertEqual(found.dtype, tf.float32)
        np.testing.assert_array_equal(
            found, encoder.embedding_table.numpy()[ids]
        )

    def test_dynamic_shapes_in_inference(self):
        encoder = make_encoder()
        in_graph = tf.function(
            lambda ids, blocks: run(encoder, ids, block_ids=blocks).states,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )
        for shape in ((2, 10), (3, 4)):
            ids, blocks = make_ids(*shape), np.zeros(shape, np.int32)
            np.testing.assert_allclose(
                in_graph(ids, blocks), run(encoder, ids).states, atol=1e-5
            )

    def test_mixed_bfloat16(self):
        exact, mixed = make_encoder(), make_encoder(dtype='mixed_bfloat16')
        for weight in mixed.weights:
            self.assertEqual(weight.dtype, 'float32', weight.path)
            self.assertEqual(weight.value.dtype, tf.float32, weight.path)
        ids = make_ids(3, 10)
        expected = run(exact, ids).states.numpy()
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                states = run(mixed, ids, key=key).states
                total = tf.reduce_sum(tf.cast(states, tf.float32) ** 3)
            self.assertEqual(states.dtype, tf.bfloat16)
            error = np.abs(tf.cast(states, tf.float32) - expected)
            self.assertLess(error.max(), 0.15)
            self.assertLess(error.mean(), 0.02)
            self.assertGreater(error.max(), 0)
            values = [weight.value for weight in mixed.weights]
            for gradient in tape.gradient(total, values):
                self.assertEqual(gradient.dtype, tf.float32)


class ErrorTest(absltest.TestCase):
    def test_too_long(self):
        with self.assertRaisesRegex(ValueError, '33 tokens .* 32 positions'):
            run(make_encoder(), make_ids(1, 33))
        self.assertEqual(
            run(make_encoder(), make_ids(1, 32)).states.shape, (1, 32, WIDTH)
        )

    def test_activation(self):
        with self.assertRaisesRegex(ValueError, '=elu: known are gelu_tanh'):
            make_encoder(activation='elu')

    def test_heads(self):
        with self.assertRaisesRegex(ValueError, '3 heads .* width of 16'):
            make_encoder(heads=3)


class ModelGardenTest(parameterized.TestCase):
    """Google's own encoder, with our weights, gives our states."""

    @parameterized.parameters('gelu_tanh', 'gelu_erf')
    def test_parity(self, activation):
        import tf_keras
        from official.nlp.modeling.networks.bert_encoder import BertEncoderV2

        ours = make_encoder(activation=activation, layers=3, heads=4)
        theirs = BertEncoderV2(
            vocab_size=V,
            hidden_size=WIDTH,
            num_layers=3,
            num_attention_heads=4,
            max_sequence_length=POSITIONS,
            type_vocab_size=2,
            inner_dim=4 * WIDTH,
            inner_activation=lambda x: tf_keras.activations.gelu(
                x, approximate=activation == 'gelu_tanh'
            ),
            output_dropout=0.0,
            attention_dropout=0.0,
        )
        random = np.random.default_rng(5)
        ids = make_ids(4, 20)
        lengths = np.array([20, 13, 5, 19])
        real = np.arange(20) < lengths[:, None]
        segments = random.integers(2, size=(4, 20)).astype(np.int32)
        inputs = {
            'input_word_ids': ids,
            'input_mask': real.astype(np.int32),
            'input_type_ids': segments,
        }
        theirs(inputs)
        weights = {w.path: w.numpy() for w in ours.weights}
        for variable in theirs.variables:
            value = self.weight(variable.name, weights)
            if value is None:
                self.assertIn('pooler_transform', variable.name)
                continue
            variable.assign(value.reshape(variable.shape))
        expected = theirs(inputs)
        found = run(
            ours,
            ids,
            segment_ids=segments,
            block_ids=1 - real.astype(np.int32),
            all_layers=True,
        )
        self.assertLen(expected['encoder_outputs'], 3)
        for i, layer in enumerate(expected['encoder_outputs'], 1):
            np.testing.assert_allclose(
                found.layers[i].numpy()[real],
                layer.numpy()[real],
                rtol=0,
                atol=1e-5,
            )
        np.testing.assert_allclose(
            found.states.numpy()[real],
            expected['sequence_output'].numpy()[real],
            rtol=0,
            atol=1e-5,
        )

    def weight(self, name, weights):
        """Ours under Model Garden's name, or None for the pooler."""
        _, *scope, kind = name.removesuffix(':0').split('/')
        scope = '/'.join(scope)
        outside = {
            'word_embeddings': 'word_embeddings',
            'position_embedding': 'position_embeddings',
            'type_embeddings': 'segment_embeddings',
            'embeddings/layer_norm': f'norm_{kind}',
        }
        if scope in outside:
            return weights[f'encoder/{outside[scope]}']
        if not scope.startswith('transformer/'):
            return None
        _, layer, *part = scope.split('/')
        part = '/'.join(part)
        joined = ('query', 'key', 'value')
        if (last := part.removeprefix('self_attention/')) in joined:
            i = joined.index(last)
            value = weights[f'encoder/{layer}/attention/qkv_{kind}']
            return value[..., i * WIDTH : (i + 1) * WIDTH]
        found = {
            'self_attention/attention_output': {
                'kernel': 'attention/output_kernel',
                'bias': 'attention_bias',
            },
            'self_attention_layer_norm': {
                'gamma': 'attention_norm_gamma',
                'beta': 'attention_norm_beta',
            },
            'intermediate': {'kernel': 'inner_kernel', 'bias': 'inner_bias'},
            'output': {'kernel': 'outer_kernel', 'bias': 'outer_bias'},
            'output_layer_norm': {
                'gamma': 'outer_norm_gamma',
                'beta': 'outer_norm_beta',
            },
        }[part][kind]
        return weights[f'encoder/{layer}/{found}']


if __name__ == '__main__':
    absltest.main()
