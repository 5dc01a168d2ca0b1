"""Properties of every encoder."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.encoders import ENCODERS, Inputs
from infoword_tf.layers import activation, dropout, heads, norm
from infoword_tf.layers.recurrent import CELLS
from infoword_tf.model import initialise
from tests import zoo
from tests.encoders.calls import (
    KEY,
    SIZES,
    V,
    make,
    make_ids,
    moved,
    near,
    run,
)

# By name: an encoder, and what is not as in SIZES. A last layer of a modern
# one is local or global.
VARIANTS = {
    **{kind: (kind, {}) for kind in SIZES},
    'modern_of_3': ('modern', {'layers': 3}),
    'relative_causal': ('relative', {'causal': True}),
}
# Those whose tokens read no later one.
CAUSAL = {
    'transformer': ('transformer', {'causal': True}),
    'pre_norm': ('transformer', {'causal': True, 'pre_norm': True}),
    'relative': ('relative', {'causal': True}),
    **{cell: ('rnn', {'cell': cell}) for cell in CELLS},
}
# Where no step of a computation depends on how many states are wanted.
EXACT = 'lookup', 'rnn', 'elmo'
# What drops in three layers, and how often: a lookup has no layer, and the
# last block of `relative` has a query stream alone.
SITES = {
    # Embeddings, and in each layer weights and both residuals.
    'transformer': [
        (norm, 'norm', 1), (heads, 'softmax_dropout', 3),
        (norm, 'add_norm', 6),
    ],
    'modern': [
        (norm, 'norm', 1), (heads, 'softmax_dropout', 3), (norm, 'add', 6),
    ],
    # Embeddings, distances, states; and 4 sites of a stream's block.
    'relative': [
        (dropout, 'drop', 4), (heads, 'softmax_dropout', 5),
        (norm, 'add_norm', 10), (activation, 'bias_gelu', 5),
    ],
    # What each layer reads, in both directions, and the last states.
    'rnn': [(dropout, 'drop', 4)],
    'elmo': [(dropout, 'drop', 7)],
}  # fmt: skip
PLACES = np.int32([[0, 9], [3, 3], [7, 2]])


def variant(name, variants=VARIANTS, **more):
    kind, sizes = variants[name]
    return make(kind, **sizes, **more)


def blocks_of(encoder, block_ids):
    """Returns fields of packed texts; absolute positions restart."""
    extra = {'block_ids': np.int32(block_ids)}
    if isinstance(encoder, ENCODERS['transformer']):
        extra['positions'] = np.int32([
            [row[:i].count(block) for i, block in enumerate(row)]
            for row in np.asarray(block_ids).tolist()
        ])  # fmt: skip
    return extra


def gradients(encoder, states_of):
    """Gradients by weight, of a sum of cubes, which keeps signs."""
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(
            tf.cast(states_of()[..., :7], tf.float32) ** 3
        )
    actual = tape.gradient(
        total,
        [weight.value for weight in encoder.weights],
        unconnected_gradients='zero',
    )
    return [tf.convert_to_tensor(gradient) for gradient in actual]


class StatesTest(parameterized.TestCase):
    @parameterized.product(
        name=list(VARIANTS), key=(None, KEY), blocks=(False, True)
    )
    def test_places_are_rows_of_the_whole(self, name, key, blocks):
        encoder, ids, extra = variant(name), make_ids(3, 10), {'key': key}
        if blocks:
            extra['block_ids'] = np.int32(np.arange(10) // [[3], [4], [10]])
        whole = run(encoder, ids, **extra).states.numpy()
        for all_layers in (False, True):
            actual = run(
                encoder, ids, places=PLACES, all_layers=all_layers, **extra
            ).states
            near(
                actual,
                whole[np.arange(3)[:, None], PLACES],
                0 if name in EXACT else 1e-5,
            )

    @parameterized.parameters(*VARIANTS)
    def test_gradients_at_places_are_those_of_the_whole(self, name):
        encoder, ids = variant(name), make_ids(3, 10)
        at_places = gradients(
            encoder, lambda: run(encoder, ids, places=PLACES, key=KEY).states
        )
        taken = gradients(
            encoder,
            lambda: tf.gather(
                run(encoder, ids).states, PLACES, axis=1, batch_dims=1
            ),
        )
        for one, two, weight in zip(
            at_places, taken, encoder.weights, strict=True
        ):
            near(one, two, 1e-5 * max(1, np.abs(two).max()), weight.path)

    @parameterized.parameters(*VARIANTS)
    def test_rate_0_with_a_key_is_inference(self, name):
        """128 tokens: four blocks of distances with a key, one without."""
        encoder, ids = variant(name, max_length=128), make_ids(2, 128)
        near(run(encoder, ids, key=KEY).states, run(encoder, ids).states)

    @parameterized.product(name=list(VARIANTS), key=(None, KEY))
    def test_packed_rows_are_the_sequences_alone(self, name, key):
        """Two, three or one text in a sequence, each with segments."""
        encoder, ids = variant(name), make_ids(4, 9)
        blocks = np.array([
            [0] * 4 + [1] * 5, [7] * 2 + [3] * 7, [1] * 3 + [0] * 4 + [2] * 2,
            [1] * 9,
        ])  # fmt: skip
        segments = {}
        if 'segment_ids' in encoder.input_fields:
            segments = {'segment_ids': make_ids(4, 9, seed=3) % 2}
        actual = run(
            encoder, ids, key=key, **blocks_of(encoder, blocks), **segments
        ).states
        for row, block in enumerate(blocks):
            for number in set(block.tolist()):
                part = np.flatnonzero(block == number)
                alone = run(
                    encoder,
                    ids[row : row + 1, part],
                    **{k: x[row : row + 1, part] for k, x in segments.items()},
                ).states
                near(
                    actual.numpy()[row, part],
                    alone[0],
                    1e-6 if name in EXACT else 1e-5,
                )

    @parameterized.product(name=list(VARIANTS), key=(None, KEY))
    def test_padding_changes_nothing(self, name, key):
        encoder, ids = variant(name), make_ids(2, 10)
        extra = {'block_ids': np.int32([[0] * 7 + [1] * 3, [0] * 10])}
        before = run(encoder, ids, key=key, **extra).states.numpy()
        ids[0, 7:] = 9
        after = run(encoder, ids, key=key, **extra).states.numpy()
        np.testing.assert_array_equal(after[0, :7], before[0, :7])
        np.testing.assert_array_equal(after[1], before[1])
        near(after[:1, :7], run(encoder, ids[:1, :7], key=key).states)

    @parameterized.product(name=list(CAUSAL), key=(None, KEY))
    def test_causal(self, name, key):
        """Later tokens change nothing, to the last bit."""
        encoder, ids = variant(name, CAUSAL), make_ids(1, 8)
        blocks = np.array([0] * 6 + [1] * 2)

        def states(ids):
            return run(encoder, ids, block_ids=blocks[None], key=key).states

        actual = moved(states, ids)
        sees = np.tri(8, dtype=bool).T & (blocks[:, None] == blocks)
        np.testing.assert_array_equal(actual[~sees], 0.0)
        self.assertTrue((actual[sees] > 1e-4).all())

    @parameterized.parameters('transformer', 'relative', 'modern')
    def test_every_token_sees_every_other_without_blocks(self, kind):
        encoder, ids = make(kind), make_ids(1, 6)
        actual = moved(lambda ids: run(encoder, ids).states, ids)
        self.assertTrue((actual > 1e-3).all())

    @parameterized.parameters(*VARIANTS)
    def test_all_layers(self, name):
        encoder, ids = variant(name), make_ids(2, 10)
        plain = run(encoder, ids)
        self.assertIsNone(plain.layers)
        self.assertIsNone(plain.state)
        actual = run(encoder, ids, all_layers=True)
        self.assertLen(actual.layers, encoder.depth + 1)
        for layer in actual.layers:
            self.assertEqual(layer.shape, (2, 10, encoder.width))
        np.testing.assert_array_equal(actual.layers[-1], actual.states)
        near(actual.states, plain.states)
        below = run(encoder, ids, all_layers='below')
        for one, two in zip(below.layers, actual.layers[:-1], strict=True):
            near(one, two)

    @parameterized.parameters('transformer', 'relative', 'relative_causal')
    def test_dynamic_shapes_in_inference(self, name):
        encoder = variant(name)

        def fields(ids, blocks):
            if 'segment_ids' not in encoder.input_fields:
                return {'block_ids': blocks}
            return {'block_ids': blocks, 'segment_ids': ids % 2}

        in_graph = tf.function(
            lambda ids, blocks: (
                run(encoder, ids, **fields(ids, blocks)).states,
                run(
                    encoder,
                    ids,
                    places=tf.shape(ids)[1] - 1 - tf.zeros_like(ids[:, :2]),
                    **fields(ids, blocks),
                ).states,
            ),
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )
        for shape in ((2, 10), (3, 4), (1, 32)):
            ids, blocks = make_ids(*shape), np.zeros(shape, np.int32)
            blocks[:, 0] = 1
            expected = run(encoder, ids, **fields(ids, blocks)).states
            whole, at_places = in_graph(ids, blocks)
            near(whole, expected)
            for place in (0, 1):
                near(at_places[:, place], expected[:, -1])

    @parameterized.parameters(*ENCODERS)
    def test_training_graphs_of_unknown_shapes(self, kind):
        """Dropout masks too, also of a part of the batch."""
        encoder = make(kind, rate=0.1, **zoo.ENCODERS[kind])
        initialise({v.path: v for v in encoder.weights}, 0, encoder.width)
        ids, lengths = make_ids(4, 12), np.array([[12], [6], [4], [9]])
        batch = tf.constant(ids), tf.constant(
            (np.arange(12) >= lengths).astype(np.int32)
        )
        new = dropout.new_key(3, 5)
        key = dropout.of_rows(new, 4, 4)

        def outcome(ids, blocks, key=key):
            return run(encoder, ids, block_ids=blocks, key=key).states

        def trained(ids, blocks):
            with tf.GradientTape() as tape:
                states = outcome(ids, blocks)
                loss = tf.reduce_sum(tf.square(states))
            actual = tape.gradient(
                loss, [v.value for v in encoder.trainable_variables]
            )
            return [
                states,
                *(tf.convert_to_tensor(g) for g in actual if g is not None),
            ]

        spec = tf.TensorSpec((None, None), tf.int32)
        known = tf.function(trained, autograph=False)(*batch)
        unknown = tf.function(
            trained, input_signature=[spec, spec], autograph=False
        )(*batch)
        self.assertGreater(len(known), 1)
        for x, y in zip(known, unknown, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
        # Other rows of a batch are dropped otherwise.
        dropped = outcome(*batch, key=new)
        self.assertGreater(np.abs(dropped - unknown[0]).max(), 0.01)

    @parameterized.parameters(*VARIANTS)
    def test_mixed_bfloat16(self, name):
        exact, mixed = variant(name), variant(name, dtype='mixed_bfloat16')
        for weight in mixed.weights:
            self.assertEqual(weight.dtype, 'float32', weight.path)
            self.assertEqual(weight.value.dtype, tf.float32, weight.path)
        ids = make_ids(3, 10)
        self.assertEqual(mixed.lookup(ids).dtype, tf.float32)
        if name != 'elmo':  # which reads characters
            np.testing.assert_array_equal(
                mixed.lookup(ids), mixed.embedding_table.numpy()[ids]
            )
        expected = run(exact, ids).states.numpy()
        for key in (None, KEY):
            states = run(mixed, ids, key=key).states
            self.assertEqual(states.dtype, tf.bfloat16)
            error = np.abs(tf.cast(states, tf.float32) - expected)
            self.assertLess(error.max(), 0.15)
            self.assertLess(error.mean(), 0.02)
            self.assertGreater(error.max(), 0)
            for gradient in gradients(
                mixed, lambda key=key: run(mixed, ids, key=key).states
            ):
                self.assertEqual(gradient.dtype, tf.float32)


class DropoutTest(parameterized.TestCase):
    @parameterized.parameters(*VARIANTS)
    def test_is_a_function_of_the_key(self, name):
        encoder, ids = variant(name, rate=0.1), make_ids(3, 10)
        first = run(encoder, ids, key=KEY).states.numpy()
        np.testing.assert_array_equal(run(encoder, ids, key=KEY).states, first)
        if name == 'transformer':  # a graph of each would take seconds
            in_graph = tf.function(lambda k: run(encoder, ids, key=k).states)
            near(in_graph(KEY), first)
        for key in (dropout.fold_in(KEY, 0), None):
            other = run(encoder, ids, key=key).states.numpy()
            self.assertGreater(np.abs(other - first).max(), 0.1)

    @parameterized.parameters(*VARIANTS)
    def test_equal_rows_get_unequal_masks(self, name):
        ids = np.repeat(make_ids(1, 10), 4, axis=0)
        states = run(variant(name, rate=0.1), ids, key=KEY).states.numpy()
        for row in range(1, 4):
            self.assertGreater(np.abs(states[row] - states[0]).max(), 0.1)

    @parameterized.parameters(*SITES)
    def test_every_site_has_a_key_of_its_own(self, kind):
        encoder, ids = make(kind, rate=0.1, layers=3), make_ids(2, 10)
        extra = {}
        if kind == 'relative':
            extra = {'places': np.int32([[1, 2], [5, 0]]), 'queries': True}
        keys = []
        for step in range(2):
            with contextlib.ExitStack() as stack:
                spies = [
                    stack.enter_context(
                        mock.patch.object(
                            module, name, wraps=getattr(module, name)
                        )
                    )
                    for module, name, _ in SITES[kind]
                ]
                run(encoder, ids, key=dropout.new_key(0, step), **extra)
            for spy, (_, name, count) in zip(spies, SITES[kind], strict=True):
                dropping = [c for c in spy.call_args_list if 'rate' in c.kwargs]
                self.assertLen(dropping, count, name)
                for call in dropping:
                    self.assertEqual(call.kwargs['rate'], 0.1)
                    keys.append(tuple(call.kwargs['key'].numpy().tolist()))
        sites = sum(count for *_, count in SITES[kind])
        self.assertLen(set(keys), 2 * sites)


class FirstTest(parameterized.TestCase):
    @parameterized.product(
        name=['transformer', 'narrow', 'modern', 'relative'], key=[None, KEY]
    )
    def test_the_first_layer_reads_what_is_put_there(self, name, key):
        """`first` is read as it is, without norm, dropout and positions."""
        narrow = 'transformer', {'embedding_width': 8}
        variants = {**VARIANTS, 'narrow': narrow}
        encoder, ids = variant(name, variants, rate=0.2), make_ids(3, 10)
        first = 7 * np.random.default_rng(0).standard_normal((3, 2, 16))
        places = np.int32([[0, 9], [3, -1], [-1, -1]])
        plain, changed = (
            run(encoder, ids, key=key, all_layers=True, **extra)
            for extra in ({}, {'first': first, 'first_places': places})
        )
        expected = np.array(plain.layers[0])
        expected[[0, 0, 1], [0, 9, 3]] = first[[0, 0, 1], [0, 1, 0]]
        near(changed.layers[0], expected)
        same = np.abs(np.array(changed.states) - plain.states).max(axis=(1, 2))
        self.assertEqual(list(same > 1e-3), [True, True, False])


class ComplaintsTest(parameterized.TestCase):
    @parameterized.parameters(*ENCODERS)
    def test_of_what_it_does_not_read(self, kind):
        encoder, ids = make(kind, max_length=512), make_ids(5, 9)
        cls = type(encoder)
        self.assertEqual(encoder.depth, SIZES[kind].get('layers', 0))
        self.assertEqual(
            (encoder.width, encoder.vocab_size, encoder.max_length),
            (SIZES[kind]['width'], V, 512),
        )
        self.assertEqual(
            encoder.embedding_table.shape, (V, encoder.embedding_width)
        )
        unread = set(Inputs._fields) - set(encoder.input_fields)
        for field in unread - {'first', 'first_places', 'multipliers'}:
            with self.assertRaisesRegex(
                ValueError, f'{cls.__name__} does not read {field}; .*ids'
            ):
                run(encoder, ids, **{field: ids})
        if not encoder.remembers:
            with self.assertRaisesRegex(ValueError, 'remembers nothing'):
                encoder.empty_state(2, 3)
        again = cls(**encoder.arguments)
        self.assertEqual(again.arguments, encoder.arguments)

    @parameterized.parameters(
        ('transformer', {'activation': 'elu'}, '=elu: known are gelu_tanh'),
        ('transformer', {'heads': 3}, '3 heads .* width of 16'),
        ('relative', {'activation': 'gelu'}, '=gelu: known are gelu_tanh'),
        ('relative', {'heads': 3}, '3 heads .* width of 16'),
        ('relative', {'segments': 3}, 'same and different.* not 3'),
        ('relative', {'same_length': True}, 'same_length needs causal'),
        ('modern', {'width': 6}, '2 heads of an even width'),
        ('elmo', {'width': 9}, 'width 9 is shared by two dir'),
        ('elmo', {'characters': 6, 'filters': [1] * 7},
         'filters of 7 characters, but'),
    )  # fmt: skip
    def test_of_arguments(self, kind, sizes, message):
        with self.assertRaisesRegex(ValueError, message):
            make(kind, **sizes)


if __name__ == '__main__':
    absltest.main()
