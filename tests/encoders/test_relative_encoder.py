"""Transformer-XL and XLNet's streams: attention, memory, parity."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.encoders import Memory
from infoword_tf.weights import mapping
from infoword_tf.weights.kinds import ARCHITECTURES
from tests.encoders import calls
from tests.encoders.calls import (
    KEY,
    make_ids,
    make_memory,
    make_order,
    near,
    run,
)
from tests.objectives.eq1 import EagerCase
from tests.oracles import frozen, xlnet

D = 16
make_encoder = functools.partial(calls.make, 'relative')


class StatesTest(EagerCase):
    def test_scaled_embeddings(self):
        encoder, ids = make_encoder(scale_embeddings=True), make_ids(2, 3)
        actual = run(encoder, ids, all_layers=True).layers[0]
        np.testing.assert_allclose(
            actual, 4 * encoder.embedding_table.numpy()[ids]
        )
        np.testing.assert_array_equal(
            encoder.lookup(ids), encoder.embedding_table.numpy()[ids]
        )

    def test_tied_biases_are_those_of_every_layer(self):
        tied, apart = make_encoder(untie=False), make_encoder()
        values = {weight.path: weight.numpy() for weight in tied.weights}
        for weight in apart.weights:
            shared = f'encoder/{weight.path.rpartition("/")[2]}'
            weight.assign(values[
                weight.path if weight.path in values else shared
            ])
        ranks, sees = make_order(2, 10)
        extra = {
            'ranks': ranks, 'sees': sees, 'queries': True,
            'places': np.int32([[1, 2], [5, 0]]),
            'segment_ids': np.int32([[0] * 4 + [1] * 6] * 2),
        }  # fmt: skip
        for key in (None, KEY):
            one, two = (
                run(encoder, make_ids(2, 10), key=key, **extra).states
                for encoder in (tied, apart)
            )
            near(one, two)

    def test_longer_than_max_length(self):
        ids = make_ids(1, 40)
        np.testing.assert_array_equal(
            run(make_encoder(), ids).states,
            run(make_encoder(max_length=64), ids).states,
        )


class MemoryTest(EagerCase):
    def test_no_gradient_goes_through_memory(self):
        encoder = make_encoder(causal=True)
        ids = np.arange(5, 29, dtype=np.int32).reshape(2, 12)
        values = [weight.value for weight in encoder.weights]

        def gradient(stopped):
            with tf.GradientTape() as tape:
                first = run(
                    encoder,
                    ids[:, :6],
                    key=KEY,
                    state=encoder.empty_state(2, 6),
                )
                memory = first.state
                if stopped:
                    memory = Memory(tf.constant(memory.states), memory.filled)
                second = run(encoder, ids[:, 6:], key=KEY, state=memory)
                total = tf.reduce_sum(second.states**3)
            return [
                np.asarray(tf.convert_to_tensor(g))
                for g in tape.gradient(
                    total, values, unconnected_gradients='zero'
                )
            ]

        actual = gradient(stopped=False)
        words = actual[0]
        np.testing.assert_array_equal(words[ids[:, :6]], np.zeros((2, 6, D)))
        self.assertTrue(words[ids[:, 6:]].any(axis=-1).all())
        for one, two in zip(actual, gradient(stopped=True), strict=True):
            np.testing.assert_array_equal(one, two)

    @parameterized.parameters((None,), (KEY,))
    def test_what_is_not_filled_is_not_seen(self, key):
        encoder, ids = make_encoder(), make_ids(2, 6)
        actual = run(
            encoder, ids, state=make_memory(encoder, [0, 2], 4), key=key
        )
        alone = run(encoder, ids, key=key).states
        np.testing.assert_allclose(actual.states[0], alone[0], atol=1e-5)
        states = make_memory(encoder, [4, 4], 4).states[:, :, 2:]
        short = Memory(states, tf.constant([2, 2]))
        near(
            actual.states[1], run(encoder, ids, state=short, key=key).states[1]
        )

    def test_what_is_kept(self):
        """The inputs of each block, of the first tokens, after the old ones."""
        encoder, ids = make_encoder(), make_ids(2, 6)
        old = make_memory(encoder, [0, 3], 4)
        layers = run(encoder, ids, state=old, all_layers=True).layers
        at = {'places': np.int32([[1], [2]])}
        for keep, count in ((None, 6), (5, 5), (4, 4), (3, 3), (0, 0)):
            for extra in ({}, at, {**at, 'queries': True})[: keep or 1]:
                actual = run(
                    encoder, ids, state=old, advance=keep, **extra
                ).state
                np.testing.assert_array_equal(
                    actual.filled, [min(4, count), min(4, 3 + count)]
                )
                for i in range(2):
                    expected = np.concatenate(
                        [old.states[i], layers[i][:, :count]], axis=1
                    )[:, -4:]
                    near(actual.states[i], expected)

    def test_memory_of_no_length(self):
        encoder, ids = make_encoder(), make_ids(2, 6)
        actual = run(encoder, ids, state=encoder.empty_state(2, 0))
        np.testing.assert_array_equal(actual.states, run(encoder, ids).states)
        self.assertEqual(actual.state.states.shape, (2, 2, 0, D))


def from_hugging_face(state):
    """Maps the state dict of an XLNetModel to our weights by path."""
    return {
        line.ours.removeprefix('encoder/'): line.form.read(
            [state[name] for name in line.theirs]
        )
        for line in mapping.lines(ARCHITECTURES['xlnet'].naming, '', 2, ())
    }


class HuggingFaceTest(EagerCase):
    """XLNet of transformers, with its weights, gives our states.

    What it answers is in a file that tests/oracles/xlnet.py has written.
    """

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.parts = {}
        arrays = frozen.read(frozen.FOLDER / 'xlnet.npz')
        for name, array in arrays.items():
            case, _, part = name.rpartition('/')
            cls.parts.setdefault(case, {})[part] = array
        cls.inputs = cls.parts['input']

    def theirs(self, kind, *case):
        return self.parts[xlnet.name_of(kind, *case)]

    def encoder(self, activation='gelu_new', **extra):
        """With their weights, all of which are used."""
        names = {'gelu_new': 'gelu_tanh', 'gelu': 'gelu_erf'}
        encoder = make_encoder(
            activation=names.get(activation, activation), **extra
        )
        values = from_hugging_face(self.parts['weight'])
        if encoder.arguments['causal']:
            del values['mask_embedding']
        for weight in encoder.weights:
            weight.assign(values.pop(weight.path.removeprefix('encoder/')))
        self.assertEmpty(values)
        return encoder

    def assert_equal(self, actual, expected):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)

    @parameterized.parameters(*xlnet.STREAMS)
    def test_two_streams(self, *case):
        memory, activation, clamp, bi_data = case
        encoder = self.encoder(activation, clamp=max(clamp, 0) or None)
        extra, both = self.inputs, self.theirs('both', *case)
        rules = {
            'segment_ids': extra['segments'],
            'ranks': extra['ranks'],
            'sees': extra['sees'],
        }
        if bi_data:
            rules['directions'] = np.int32([1, -1])
        if memory:
            rules['state'] = Memory(
                tf.constant(extra['memory']),
                tf.constant([xlnet.MEMORY] * 2),
            )
            rules['advance'] = xlnet.KEPT
        asked = {**rules, 'places': extra['places'], 'queries': True}
        actual = run(encoder, extra['ids'], all_layers=True, **asked)
        self.assert_equal(actual.states, both['states'])
        self.assert_equal(np.stack(actual.layers), both['layers'])
        if memory:
            self.assert_equal(actual.state.states, both['memory'])
        # As in training: nothing that is not wanted.
        for key in (None, KEY):
            actual = run(encoder, extra['ids'], key=key, **asked)
            self.assert_equal(actual.states, both['states'])
        # The content stream alone.
        self.assert_equal(
            run(encoder, extra['ids'], **rules).states,
            self.theirs('content', *case)['states'],
        )

    @parameterized.parameters(*xlnet.CAUSAL)
    def test_one_direction(self, *case):
        memory, same_length = case
        encoder = self.encoder(causal=True, same_length=same_length)
        extra, theirs = self.inputs, self.theirs('causal', *case)
        rules = {'segment_ids': extra['segments'], 'all_layers': True}
        if memory:
            rules['state'] = Memory(
                tf.constant(extra['causal_memory']),
                tf.constant([xlnet.CAUSAL_MEMORY] * 2),
            )
        for key in (None, KEY):
            actual = run(encoder, extra['ids'], key=key, **rules)
            self.assert_equal(actual.states, theirs['states'])
            self.assert_equal(np.stack(actual.layers), theirs['layers'])
            if memory:
                self.assert_equal(actual.state.states, theirs['memory'])

    def test_padding(self):
        extra = self.inputs
        actual = run(
            self.encoder(),
            extra['ids'],
            segment_ids=extra['segments'],
            block_ids=extra['padding'],
        ).states.numpy()
        real = extra['padding'] == 0
        self.assert_equal(actual[real], self.theirs('padding')['states'][real])
