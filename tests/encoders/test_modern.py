"""ModernBERT's encoder: sizes, and what its layers see.

That its numbers are those of transformers is in tests/weights.
"""

import math
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.encoders import ModernTransformer
from infoword_tf.layers import band, dropout, heads, norm
from tests.encoders.calls import assert_blocks_are_alone, run

V, WIDTH = 60, 16
KEY = dropout.new_key(21)


def make_encoder(rate=0.0, **sizes):
    """Every weight drawn, and large enough to leave the linear range."""
    given = {'layers': 4, 'local_window': 4, **sizes}
    encoder = ModernTransformer(
        vocab_size=V, width=WIDTH, heads=2, rate=rate, **given
    )
    encoder.build()
    random = np.random.default_rng(12)
    for weight in encoder.weights:
        drawn = 0.3 * random.standard_normal(weight.shape)
        weight.assign(drawn + weight.path.endswith('gamma'))
    return encoder


def make_ids(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(5, V, size=shape).astype(np.int32)


class SizeTest(absltest.TestCase):
    def test_the_base_size_has_149_million(self):
        """Warner et al. 2024, Table 4: 22 layers of 768, 1152 in the GeGLU."""
        with keras.StatelessScope(initialize_variables=False):
            encoder = ModernTransformer(
                vocab_size=50_368, layers=22, width=768, heads=12
            )
            encoder.build()
        found = sum(math.prod(weight.shape) for weight in encoder.weights)
        d, f = 768, 1152
        layers = 22 * (4 * d * d + 3 * d * f + 2 * d) - d
        self.assertEqual(found, 50_368 * d + layers + 2 * d)
        self.assertEqual(found, 149_014_272)

    def test_paths_are_explicit(self):
        block = ['outer_norm_gamma', 'inner_kernel', 'outer_kernel',
                 'attention/qkv_kernel', 'attention/output_kernel']  # fmt: skip
        wanted = ['word_embeddings', 'norm_gamma', 'last_norm_gamma']
        wanted += [f'layer_{i}/{name}' for i in range(2) for name in block]
        wanted += ['layer_1/attention_norm_gamma']  # of the first there is none
        found = [weight.path for weight in make_encoder(layers=2).weights]
        self.assertCountEqual(found, [f'encoder/{name}' for name in wanted])

    def test_heads_of_an_odd_width(self):
        with self.assertRaisesRegex(ValueError, '2 heads of an even width'):
            ModernTransformer(vocab_size=V, width=6, heads=2)


class SightTest(parameterized.TestCase):
    def moved(self, length, **sizes):
        """Which states another token 12 moves, in one layer after another."""
        encoder, ids = make_encoder(**sizes), make_ids(1, length)
        other = ids.copy()
        other[0, 12] = 5 + (other[0, 12] - 4) % 50
        one, two = (
            run(encoder, x, all_layers=True).layers for x in (ids, other)
        )
        return [
            set(np.flatnonzero(np.any(np.asarray(a) != b, axis=(0, 2))))
            for a, b in zip(one, two, strict=True)
        ]

    @parameterized.parameters(9, 100)
    def test_only_some_layers_see_the_whole_text(self, chunks):
        """Layers 1, 2 and 3 of a text of 24 see two more on each side."""
        with mock.patch.object(band, 'CHUNKS', chunks):
            self.assertEqual(band.worth(24, 2), chunks == 9)
            embeddings, first, *_ = self.moved(24, global_every=4)
            self.assertEqual(embeddings, {12})
            self.assertEqual(first, set(range(24)))
            # A second layer that is global, behind one that is not.
            found = self.moved(24, global_every=2, layers=2)
        self.assertEqual(found[1], set(range(24)))

    @parameterized.parameters(9, 100)
    def test_a_local_layer_sees_what_is_near(self, chunks):
        encoder, ids = make_encoder(layers=2), make_ids(1, 24)
        with mock.patch.object(band, 'CHUNKS', chunks):
            given = encoder._given(
                mock.Mock(positions=None, block_ids=None), 24, True,
                band.worth(24, 2), None,
            )  # fmt: skip
            x = tf.gather(encoder.embedding_table.value, ids)
            other = tf.tensor_scatter_nd_update(
                x, [[0, 12]], tf.ones((1, WIDTH))
            )
            one, two = (
                encoder.blocks[1](tf.reshape(e, (24, WIDTH)), length=24,
                                  **given).numpy()
                for e in (x, other)
            )  # fmt: skip
        moved = np.flatnonzero(np.any(one != two, axis=1))
        self.assertEqual(moved.tolist(), [10, 11, 12, 13, 14])

    def test_of_a_shift_of_all_positions_nothing_is_known(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        place = np.arange(10, dtype=np.int32)[None]
        here = run(encoder, ids).states
        for shift, where in ((0, here), (300, here)):
            there = run(encoder, ids, positions=place + shift).states
            np.testing.assert_allclose(there, where, rtol=0, atol=5e-5)
        apart = run(encoder, ids, positions=place * 3).states
        self.assertGreater(np.abs(apart - here).max(), 0.1)

    def test_each_kind_of_layer_has_its_theta(self):
        ids = make_ids(1, 24)
        usual = run(make_encoder(), ids).states
        for name in ('global_theta', 'local_theta'):
            other = run(make_encoder(**{name: 7.0}), ids).states
            self.assertGreater(np.abs(other - usual).max(), 0.1, name)
        alone = {'global_every': 1, 'layers': 2}  # no layer is local
        np.testing.assert_array_equal(
            run(make_encoder(**alone), ids).states,
            run(make_encoder(**alone, local_theta=7.0), ids).states,
        )


class StatesTest(parameterized.TestCase):
    @parameterized.product(
        key=(None, KEY), blocks=(False, True), all_layers=(False, True),
        layers=(3, 4),
    )  # fmt: skip
    def test_places_are_rows_of_the_whole(
        self, key, blocks, all_layers, layers
    ):
        """Of a last layer that is local, and of one that is global."""
        encoder, ids = make_encoder(layers=layers), make_ids(3, 10)
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

    def test_a_key_at_rate_0_and_a_band_change_no_gradient(self):
        ids = make_ids(3, 19)
        found = []
        for chunks, key in ((4, None), (4, KEY), (100, None), (100, KEY)):
            encoder = make_encoder()
            values = [weight.value for weight in encoder.weights]
            with mock.patch.object(band, 'CHUNKS', chunks):
                with tf.GradientTape() as tape:
                    states = run(encoder, ids, key=key).states
                    total = tf.reduce_sum(states[..., :7] ** 3)
                gradients = map(
                    tf.convert_to_tensor, tape.gradient(total, values)
                )
                found.append([states, *gradients])
        for others in found[1:]:
            for one, two in zip(others, found[0], strict=True):
                scale = max(1.0, np.abs(two).max())
                np.testing.assert_allclose(one, two, atol=1e-5 * scale)

    def test_every_site_has_a_key_of_its_own(self):
        """Embeddings, and in each layer weights and both sums."""
        encoder, ids = make_encoder(rate=0.1, layers=3), make_ids(2, 10)
        keys = []
        for step in range(2):
            with (
                mock.patch.object(norm, 'norm', wraps=norm.norm) as one,
                mock.patch.object(
                    heads, 'softmax_dropout', wraps=heads.softmax_dropout
                ) as two,
                mock.patch.object(norm, 'add', wraps=norm.add) as three,
            ):
                run(encoder, ids, key=dropout.new_key(0, step))
            dropping = [c for c in one.call_args_list if 'rate' in c.kwargs]
            for called, count in (
                (dropping, 1), (two.call_args_list, 3),
                (three.call_args_list, 6),
            ):  # fmt: skip
                self.assertLen(called, count)
                for call in called:
                    self.assertEqual(call.kwargs['rate'], 0.1)
                    keys.append(tuple(call.kwargs['key'].numpy().tolist()))
        self.assertLen(set(keys), 20)

    @parameterized.parameters((None,), (KEY,))
    def test_packed_rows_are_the_sequences_alone(self, key):
        # What stands alone has other angles, with the same distances.
        assert_blocks_are_alone(make_encoder(), make_ids(3, 9), key, 1e-5)

    def test_padding_changes_nothing(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        block_ids = np.int32([[0] * 7 + [1] * 3, [0] * 10])
        before = run(encoder, ids, block_ids=block_ids).states.numpy()
        ids[0, 7:] = 9
        after = run(encoder, ids, block_ids=block_ids).states.numpy()
        np.testing.assert_array_equal(after[0, :7], before[0, :7])

    def test_it_knows_no_segments(self):
        with self.assertRaisesRegex(ValueError, 'does not read segment_ids'):
            run(make_encoder(), make_ids(1, 4), segment_ids=make_ids(1, 4))


if __name__ == '__main__':
    absltest.main()
