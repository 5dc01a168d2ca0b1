"""ELMo's encoder: characters, directions, memory, published counts."""

import functools
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.encoders import Elmo, Inputs, elmo
from infoword_tf.views import Specials
from tests.encoders import calls
from tests.encoders.calls import KEY, V, make_ids, near
from tests.objectives.eq1 import EagerCase
from tests.processor import NEIGHBOURS

D, B, T = 8, 3, 9
SEP = 3
make_encoder = functools.partial(calls.make, 'elmo')


def read(encoder, ids):
    return encoder.read(encoder.characters_of(np.asarray(ids)))


def specials_of(*tokens):
    return Specials(2, 3, 4, len(tokens), tokens)


class SpelledTest(parameterized.TestCase):
    def test_by_hand(self):
        actual = elmo.spelled(
            specials_of('[PAD]', '[UNK]', '[CLS]', '[SEP]', 'é', '##s'), 50, 2
        )
        wide = 9  # the longest token, two marks and the filter's reach
        expected = [
            [259, *(b + 1 for b in b'[PAD]'), 260],
            [259, *(b + 1 for b in b'[UNK]'), 260],
            [259, 257, 260],  # where a text begins
            [259, 258, 260],  # where it ends
            [259, 0xC3 + 1, 0xA9 + 1, 260],
            [259, *(b + 1 for b in b'##s'), 260],
        ]
        self.assertEqual(
            actual.tolist(), [x + [261] * (wide - len(x)) for x in expected]
        )
        self.assertLess(actual.max(), elmo.CHARACTERS)

    def test_a_long_word_is_cut(self):
        """Truncated like bilm: long words with equal beginnings are equal."""
        long = 'x' * 48
        actual = elmo.spelled(
            specials_of(long, long + 'y', long + 'zzz', 'x', 'y'), 50
        )
        self.assertEqual(actual.shape, (5, 50))
        np.testing.assert_array_equal(actual[0], actual[1])
        self.assertEqual(actual[0].tolist(), [259, *[121] * 48, 260])

    def test_numbers_where_pieces_are_unknown(self):
        actual = elmo.spelled(Specials(2, 3, 4, 12), 50, 3)
        self.assertEqual(actual[10].tolist(), [259, 50, 49, 260, 261, 261, 261])
        self.assertEqual(actual[3, 1], elmo.TEXT_END)

    def test_padding_beyond_is_of_no_matter(self):
        """Fewer columns leave out padding that a filter has read already."""
        encoder = make_encoder()
        tokens = [f'word{i}' for i in range(V)]
        encoder.set_special_tokens(specials_of(*tokens))
        actual = read(encoder, np.arange(V))
        whole = np.full((V, 50), elmo.PADDING, np.int16)
        short = encoder.spelling()
        self.assertEqual(short.shape[1], 6 + 2 + 3)
        whole[:, : short.shape[1]] = short
        with mock.patch.object(encoder, 'spelling', lambda: whole):
            near(read(encoder, np.arange(V)), actual, 1e-6)


class CharactersTest(parameterized.TestCase):
    def test_bilm_by_hand(self):
        """Filters, their maximum, ReLU; highways; projection."""
        encoder = make_encoder()
        w = {
            weight.name: weight.numpy()
            for weight in encoder.weights
            if weight.path.count('/') == 1  # and of no layer
        }
        ids = np.array([7, 23], np.int32)
        x = w['character_embeddings'][encoder.spelling()[ids]] * np.sqrt(D)
        actual = []
        for n in (1, 2, 3):
            kernel = w[f'filter_{n}_kernel'].reshape(n, 16, -1)
            places = [
                np.einsum('bnc,ncf->bf', x[:, i : i + n], kernel)
                for i in range(x.shape[1] - n + 1)
            ]
            actual.append(np.max(places, axis=0))
        y = np.maximum(np.hstack(actual) + w['filter_bias'], 0)
        for i in range(2):
            z = y @ w[f'highway_{i}_kernel'] + w[f'highway_{i}_bias']
            gate, new = np.split(z, 2, axis=1)
            gate = 1 / (1 + np.exp(2 - gate))
            y = gate * np.maximum(new, 0) + (1 - gate) * y
        y = y @ w['projection_kernel'] + w['projection_bias']
        np.testing.assert_allclose(read(encoder, ids), y, atol=1e-5)
        np.testing.assert_allclose(encoder.lookup(ids), y, atol=1e-5)

    @parameterized.parameters(1, 3, 6, 30, 200)
    def test_each_piece_is_read_once(self, kinds):
        """Any number of distinct tokens, by the next larger share."""
        encoder, actual = make_encoder(), []

        def once(characters):
            actual.append(characters.shape[0])
            return Elmo.read(encoder, characters)

        ids = np.random.default_rng(3).permutation(
            np.arange(36) % min(kinds, V)
        ).reshape(4, 9).astype(np.int32)  # fmt: skip
        expected = tf.stack([read(encoder, row) for row in ids])
        with mock.patch.object(encoder, 'read', once):
            near(encoder.lookup(ids), expected)
            size = next(s for s in (9, 14, 18, 36) if s >= min(kinds, 36))
            self.assertEqual(actual, [size])
            if kinds != 6:
                return
            # A graph of any shape reads as many as there are.
            graph = tf.function(
                encoder.lookup,
                input_signature=[tf.TensorSpec((None, None), tf.int32)],
            )
            for part in (ids, ids[:2, :3]):
                near(
                    graph(tf.constant(part)),
                    expected[: part.shape[0], : part.shape[1]],
                )


class DirectionsTest(EagerCase):
    @parameterized.parameters((None,), (KEY,))
    def test_neither_reads_what_the_other_does(self, key):
        encoder, ids = make_encoder(), make_ids(B, T)
        other = ids.copy()
        other[:, 4] = SEP
        actual, changed = (
            encoder(Inputs(x), key=key, all_layers=True).layers[1:]
            for x in (ids, other)
        )
        same = np.abs(np.subtract(actual, changed)) <= NEIGHBOURS
        left, right = same[..., : D // 2], same[..., D // 2 :]  # by layer
        self.assertTrue(left[:, :, :4].all())
        self.assertFalse(left[:, :, 4:].any())
        self.assertTrue(right[:, :, 5:].all())
        self.assertFalse(right[:, :, :5].any())

    def test_layers(self):
        encoder, ids = make_encoder(), make_ids(B, T)
        actual = encoder(Inputs(ids), all_layers=True)
        e = encoder.lookup(ids)
        near(actual.layers[0], tf.concat([e, e], -1), 1e-6)
        left = right = e
        for i, block in enumerate(encoder.blocks):
            new = block.left(left)[0], block.right(right)[0]
            if i:  # from the second on
                new = left + new[0], right + new[1]
            left, right = new
            near(actual.layers[i + 1], tf.concat(new, -1), 1e-6)
        np.testing.assert_array_equal(actual.states, actual.layers[-1])
        self.assertLen(encoder(Inputs(ids), all_layers='below').layers, 2)


class SizesTest(parameterized.TestCase):
    def test_published_parameters(self):
        """93.6 million, as allenai's table of models has it."""
        shapes = []

        def add_weight(layer, shape, **arguments):
            shapes.append(tuple(shape))
            return mock.MagicMock(shape=shape)

        with mock.patch.object(keras.layers.Layer, 'add_weight', add_weight):
            encoder = Elmo(vocab_size=793_471)
            encoder.build()
        self.assertEqual(encoder.arguments['filters'], list(elmo.FILTERS))
        self.assertEqual(sum(elmo.FILTERS), 2048)
        self.assertEqual(encoder.arguments['inner_width'], 4096)
        self.assertEqual(sum(map(np.prod, shapes)), 93_600_864)

    def test_a_narrower_one(self):
        self.assertEqual(
            Elmo(vocab_size=V, width=128).arguments['filters'],
            [4, 4, 8, 16, 32, 64, 128],
        )
