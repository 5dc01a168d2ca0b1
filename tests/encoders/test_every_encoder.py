"""Properties of every encoder, and of all that each can do."""

import contextlib
import functools
import itertools
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.assembly import initialise
from infoword_tf.encoders import ENCODERS, Inputs
from infoword_tf.layers import attention, dropout, pointwise
from infoword_tf.layers.recurrent import CELLS
from tests import zoo
from tests.eager import eagerly
from tests.encoders.calls import (
    KEY,
    SIZES,
    V,
    make,
    make_ids,
    make_memory,
    make_order,
    moved,
    near,
    run,
)
from tests.objectives.eq1 import EagerCase
from tests.processor import BFLOAT16
from tests.refused import refused

IDS = make_ids(1, 33)
PLACES = np.int32([[0, 9], [3, 3], [7, 2]])


def behind(encoder, ids):
    """Returns segments, and a memory that is full, in part, and empty."""
    return {
        'segment_ids': ids % 3, 'state': make_memory(encoder, [3, 1, 0])
    }  # fmt: skip


def in_order(encoder, ids):
    """Returns all fields of XLNet: also an order, and a reversed text."""
    ranks, sees = make_order(*ids.shape)
    return {
        **behind(encoder, ids), 'ranks': ranks, 'sees': sees,
        'directions': np.int32([1, -1, 1]),
    }  # fmt: skip


class Case(NamedTuple):
    """An encoder under test, and what it can do.

    Attributes:
        kind, sizes: arguments of `make`.
        exact: whether no step of the computation depends on how many states
            are wanted.
        fields: (encoder, ids) -> further arguments of a call.
        length: T where the arguments may make several blocks of distances.
        queries: whether states are those of the query stream.
        rough: the largest and the mean error of bfloat16.
        near: the largest error of float32, of gradients relative.
        steps: ends of steps that are one long pass, and the tokens that a
            memory holds.
        left: numbers of a state that go on from step to step.
        first: whether states can stand for embeddings.
        dynamic: whether a graph for inference needs no length.
    """

    kind: str
    sizes: dict[str, Any] = {}
    exact: bool = False
    fields: Any = lambda encoder, ids: {}
    length: int = 10
    queries: bool = False
    rough: tuple[float, float] = (0.15, 0.02)
    near: float = 1e-5
    steps: tuple[tuple[int, ...], int] | None = None
    left: slice = slice(None)
    first: bool = False
    dynamic: bool = False


HALVES = 4, 5, 12
OWN = {'untie': False, 'segments': 0, 'activation': 'relu'}
CASES = {
    'transformer': Case('transformer', first=True, dynamic=True),
    'narrow': Case('transformer', {'embedding_width': 8}, first=True),
    'buckets': Case(
        'transformer', {'relative_buckets': 8, 'segments': 0}, dynamic=True
    ),
    'transformer_causal': Case('transformer', {'causal': True}),
    'pre_norm': Case(
        'transformer', {'causal': True, 'pre_norm': True}, dynamic=True
    ),
    'relative': Case('relative', first=True, dynamic=True),
    'relative_causal': Case(
        'relative', {'causal': True}, dynamic=True,
        steps=(tuple(range(2, 13, 2)), 10),
    ),
    'relative_tied': Case(
        'relative', {'causal': True, **OWN}, steps=((6, 12), 6)
    ),
    'relative_scaled': Case(
        'relative', {'causal': True, 'scale_embeddings': True, **OWN},
        steps=((6, 12), 9),
    ),
    'relative_order': Case(
        'relative', {'max_length': 128}, fields=in_order, length=128
    ),
    'relative_behind': Case('relative', {'causal': True}, fields=behind),
    'relative_queries': Case(
        'relative', {'max_length': 128}, fields=in_order, length=128,
        queries=True, rough=(3.0, 0.03),
    ),
    'modern': Case('modern', first=True),
    # Its last layer is local.
    'modern_of_3': Case('modern', {'layers': 3}),
    'modern_causal': Case('modern', {'causal': True, 'segments': 2}),
    'disentangled': Case(
        'disentangled', {'segments': 2}, first=True, dynamic=True
    ),
    'qwen': Case('modern', {**zoo.QWEN, 'causal': True}),
    'gemma': Case('modern', zoo.GEMMA, rough=(0.4, 0.04)),
    'nomic': Case(
        'modern', zoo.NOMIC, rough=(0.3, 0.03), near=3e-5, first=True
    ),
    'lookup': Case('lookup', exact=True),
    **{
        cell: Case('rnn', {'cell': cell}, exact=True, steps=(HALVES, 0))
        for cell in CELLS
    },
    'elmo': Case('elmo', exact=True, steps=(HALVES, 0), left=slice(4)),
}  # fmt: skip
# Every encoder once, and where the last layer is another; none has memory.
PLAIN = [
    'transformer', 'buckets', 'pre_norm', 'relative', 'relative_causal',
    'modern', 'modern_of_3', 'modern_causal', 'qwen', 'gemma', 'nomic',
    'disentangled', 'lookup', 'lstm', 'gru', 'elmo',
]  # fmt: skip
CAUSAL = [
    'transformer_causal', 'pre_norm', 'relative_causal', 'modern_causal',
    'qwen', *CELLS,
]  # fmt: skip
REMEMBERING = [name for name, case in CASES.items() if case.steps]
WITH_FIELDS = ['relative_order', 'relative_behind', 'relative_queries']
BLOCK = (
    'attention_norm_gamma 16, attention_norm_beta 16, outer_norm_gamma 16, '
    'outer_norm_beta 16, attention/qkv_kernel 16 48, attention/output_kernel '
    '16 16, outer_bias 16, '
)
BERT = (
    BLOCK + 'attention_bias 16, inner_kernel 16 64, inner_bias 64, '
    'outer_kernel 64 16, attention/qkv_bias 48'
)
XLNET = (
    BLOCK + 'inner_kernel 16 24, inner_bias 24, outer_kernel 24 16, '
    'attention/position_kernel 16 16'
)
MODERN = (
    'outer_norm_gamma 16, inner_kernel 16 48, outer_kernel 24 16, '
    'attention/qkv_kernel 16 48, attention/output_kernel 16 16'
)
# The first layer has no norm before its attention.
MODERN_NORMS = 'norm_gamma 16, last_norm_gamma 16, ' + ''.join(
    f'layer_{i}/attention_norm_gamma 16, ' for i in (1, 2, 3)
)
TABLES = 'word_embeddings 60 {0}, position_embeddings 32 {0}, '
TABLES += 'segment_embeddings 2 {0}, norm_gamma {0}, norm_beta {0}'
ELMO = (
    'input_kernel 4 24, {0}/input_bias 24, {0}/state_kernel 4 24, '
    '{0}/projection_kernel 6 4'
)
# Names and shapes of weights, outside layers and of each layer.
WEIGHTS = {
    'transformer': (TABLES.format(16), BERT),
    'narrow': (
        TABLES.format(8) + ', projection_kernel 8 16, projection_bias 16', BERT
    ),
    'buckets': (
        TABLES.format(16).replace('segment_embeddings 2 16, ', '')
        + ', relative_bias 8 2', BERT
    ),
    'pre_norm': (
        TABLES.format(16) + ', last_norm_gamma 16, last_norm_beta 16', BERT
    ),
    'relative': (
        'word_embeddings 60 16, mask_embedding 1 16',
        XLNET + ', attention/segment_embeddings 2 2 8, attention/content_bias '
        '2 8, attention/position_bias 2 8, attention/segment_bias 2 8',
    ),
    'relative_tied': (
        'word_embeddings 60 16, content_bias 2 8, position_bias 2 8', XLNET
    ),
    'modern': (MODERN_NORMS + 'word_embeddings 60 16', MODERN),
    'modern_causal': (
        MODERN_NORMS + 'word_embeddings 60 16, segment_embeddings 2 16', MODERN
    ),
    'disentangled': (
        'word_embeddings 60 16, segment_embeddings 2 16, distance_embeddings '
        '12 16, norm_gamma 16, norm_beta 16, distance_norm_gamma 16, '
        'distance_norm_beta 16', BERT
    ),
    'gemma': (
        'word_embeddings 60 16, last_norm_gamma 16',
        'attention_norm_gamma 16, attention_after_norm_gamma 16, '
        'outer_norm_gamma 16, outer_after_norm_gamma 16, inner_kernel 16 48, '
        'outer_kernel 24 16, attention/qkv_kernel 16 48, '
        'attention/query_norm_gamma 12, attention/key_norm_gamma 12, '
        'attention/output_kernel 24 16',
    ),
    'nomic': (
        'word_embeddings 60 16, norm_gamma 16, norm_beta 16',
        'attention_norm_gamma 16, attention_norm_beta 16, outer_norm_gamma 16, '
        'outer_norm_beta 16, inner_kernel 16 48, outer_kernel 24 16, '
        'attention/qkv_kernel 16 48, attention/output_kernel 16 16',
    ),
    'lookup': ('word_embeddings 60 16', ''),
    'lstm': (
        'word_embeddings 60 8',
        'input_kernel 8 32, input_bias 32, state_kernel 8 32',
    ),
    'gru': (
        'word_embeddings 60 8',
        'input_kernel 8 24, input_bias 24, state_kernel 8 24, state_bias 24',
    ),
    'elmo': (
        'character_embeddings 262 16, filter_1_kernel 16 2, filter_2_kernel '
        '32 3, filter_3_kernel 48 4, filter_bias 9, highway_0_kernel 9 18, '
        'highway_0_bias 18, highway_1_kernel 9 18, highway_1_bias 18, '
        'projection_kernel 9 4, projection_bias 4',
        ', '.join(f'{x}/{ELMO.format(x)}' for x in ('forward', 'backward')),
    ),
}
# Arguments that others decide; defaults of settings are in tests/recorded.json.
DECIDED = {
    **dict.fromkeys(
        ('transformer', 'relative', 'disentangled'), {'inner_width': 512}
    ),
    'modern': {'inner_width': 192},
    'elmo': {'inner_width': 4096, 'filters': [32, 32, 64, 128, 256, 512, 1024]},
}  # fmt: skip
# What drops in three layers, and how often: a lookup has no layer, and the
# last block of `relative` has a query stream alone.
SITES = {
    # Embeddings, and in each layer weights and both residuals.
    'transformer': [
        (pointwise, 'norm', 1), (attention, 'softmax_dropout', 3),
        (pointwise, 'add_norm', 6),
    ],
    'modern': [
        (pointwise, 'norm', 1), (attention, 'softmax_dropout', 3),
        (pointwise, 'add', 6),
    ],
    # Embeddings, and of each layer distances too.
    'disentangled': [
        (pointwise, 'norm', 4), (attention, 'softmax_dropout', 3),
        (pointwise, 'add_norm', 6),
    ],
    # Embeddings, distances, states; and 4 sites of a stream's block.
    'relative': [
        (dropout, 'drop', 4), (attention, 'softmax_dropout', 5),
        (pointwise, 'add_norm', 10), (pointwise, 'bias_gelu', 5),
    ],
    # What each layer reads, in both directions, and the last states.
    'rnn': [(dropout, 'drop', 4)],
    'elmo': [(dropout, 'drop', 7)],
}  # fmt: skip


def variant(name, **more):
    kind, sizes, *_ = CASES[name]
    return make(kind, **{**sizes, **more})


def call(name, encoder, ids, **more):
    return run(encoder, ids, **CASES[name].fields(encoder, ids) | more)


def reads_segments(encoder):
    segments = encoder.arguments.get('segments', 2)
    return 'segment_ids' in encoder.input_fields and segments > 0


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
        total = tf.reduce_sum(tf.cast(states_of()[..., :7], tf.float32) ** 3)
    actual = tape.gradient(
        total,
        [weight.value for weight in encoder.weights],
        unconnected_gradients='zero',
    )
    return [tf.convert_to_tensor(gradient) for gradient in actual]


class StatesTest(EagerCase):
    @parameterized.product(
        name=[*PLAIN, *WITH_FIELDS[:2]], key=(None, KEY), blocks=(False, True)
    )
    def test_places_are_rows_of_the_whole(self, name, key, blocks):
        encoder, ids, extra = variant(name), make_ids(3, 10), {'key': key}
        if blocks:
            extra['block_ids'] = np.int32(np.arange(10) // [[3], [4], [10]])
        whole = call(name, encoder, ids, **extra)
        self.assertEmpty(whole.layers)
        for all_layers in (False, True):
            actual = call(
                name, encoder, ids, places=PLACES, all_layers=all_layers,
                **extra,
            )  # fmt: skip
            near(
                actual.states,
                whole.states.numpy()[np.arange(3)[:, None], PLACES],
                0 if CASES[name].exact else 1e-5,
            )
            if whole.state is not None:
                tf.nest.map_structure(near, actual.state, whole.state)

    @parameterized.parameters(*PLAIN, *WITH_FIELDS)
    def test_gradients_at_places_are_those_of_the_whole(self, name):
        """With a key, of `places` alone, and without one, of all tokens."""
        case, encoder = CASES[name], variant(name)
        ids = make_ids(3, case.length)

        def at_places(key):
            more = {'queries': True} if case.queries else {}
            return call(name, encoder, ids, places=PLACES, key=key, **more)

        def whole():
            if case.queries:
                return at_places(None).states
            states = call(name, encoder, ids).states
            return tf.gather(states, PLACES, axis=1, batch_dims=1)

        for one, two, weight in zip(
            gradients(encoder, lambda: at_places(KEY).states),
            gradients(encoder, whole), encoder.weights, strict=True,
        ):  # fmt: skip
            near(one, two, case.near * max(1, np.abs(two).max()), weight.path)
            if name in WITH_FIELDS:
                used = case.queries or 'mask_embedding' not in weight.path
                self.assertEqual(np.abs(two).max() > 0, used, weight.path)

    @parameterized.parameters(*PLAIN)
    def test_rate_0_with_a_key_is_inference(self, name):
        """128 tokens: four blocks of distances with a key, one without."""
        encoder, ids = variant(name, max_length=128), make_ids(2, 128)
        near(run(encoder, ids, key=KEY).states, run(encoder, ids).states)

    @parameterized.product(name=PLAIN, key=(None, KEY))
    def test_packed_rows_are_the_sequences_alone(self, name, key):
        """Two, three or one text in a sequence, each with segments."""
        encoder, ids = variant(name), make_ids(4, 9)
        blocks = np.array([
            [0] * 4 + [1] * 5, [7] * 2 + [3] * 7, [1] * 3 + [0] * 4 + [2] * 2,
            [1] * 9,
        ])  # fmt: skip
        segments = {}
        if reads_segments(encoder):
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
                    1e-6 if CASES[name].exact else CASES[name].near,
                )

    @parameterized.product(name=CAUSAL, key=(None, KEY))
    def test_causal(self, name, key):
        """Later tokens change nothing, to the last bit."""
        encoder, ids = variant(name), make_ids(1, 8)
        blocks = np.array([0] * 6 + [1] * 2)

        def states(ids):
            return run(encoder, ids, block_ids=blocks[None], key=key).states

        actual = moved(states, ids)
        sees = np.tri(8, dtype=bool).T & (blocks[:, None] == blocks)
        np.testing.assert_array_equal(actual[~sees], 0.0)
        self.assertTrue((actual[sees] > 1e-4).all())

    @parameterized.parameters(*PLAIN)
    def test_all_layers(self, name):
        encoder, ids = variant(name), make_ids(2, 10)
        plain = run(encoder, ids)
        self.assertEmpty(plain.layers)
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

    @parameterized.product(name=REMEMBERING, key=(None, KEY))
    def test_steps_with_memory_are_one_long_pass(self, name, key):
        """Numbers to the left; those to the right are of the step alone."""
        encoder, ids, case = variant(name), make_ids(2, 12), CASES[name]
        ends, length = case.steps
        whole = run(encoder, ids, key=key).states
        state = empty = encoder.empty_state(2, length)
        right = slice(case.left.stop or encoder.width, None)
        gaps = []
        for begin, end in itertools.pairwise((0, *ends)):
            actual = run(encoder, ids[:, begin:end], key=key, state=state)
            alone = run(encoder, ids[:, begin:end], key=key).states
            left = whole[:, begin:end, case.left]
            near(actual.states[..., case.left], left)
            near(actual.states[..., right], alone[..., right])
            gaps.append(np.abs(alone[..., case.left] - left).max())
            state = actual.state
            tf.nest.map_structure(
                lambda x, y: self.assertEqual((x.shape, x.dtype),
                                              (y.shape, y.dtype)),
                state, empty,
            )  # fmt: skip
        self.assertGreater(min(gaps[1:]), 0.05)

    @parameterized.parameters(*(n for n in CASES if CASES[n].dynamic))
    def test_dynamic_shapes_in_inference(self, name):
        self.enterContext(eagerly(False))
        encoder = variant(name)

        def fields(ids, blocks):
            if not reads_segments(encoder):
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
        sizes = dict(zoo.ENCODERS[kind])
        if kind not in ('lookup', 'modern'):  # which has layers of two kinds
            sizes['layers'] = 1
        encoder = make(kind, rate=0.1, **sizes)
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
        with eagerly(False):
            known = trained(*batch)
            dropped = outcome(*batch, key=new)
            unknown = tf.function(
                trained, input_signature=[spec, spec], autograph=False
            )(*batch)
        self.assertGreater(len(known), 1)
        for x, y in zip(known, unknown, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
        # Other rows of a batch are dropped otherwise.
        self.assertGreater(np.abs(dropped - unknown[0]).max(), 0.01)

    @parameterized.parameters(*PLAIN, *WITH_FIELDS)
    def test_mixed_bfloat16(self, name):
        exact, mixed = variant(name), variant(name, dtype='mixed_bfloat16')
        for weight in mixed.weights:
            self.assertEqual(weight.dtype, 'float32', weight.path)
            self.assertEqual(weight.value.dtype, tf.float32, weight.path)
        case = CASES[name]
        ids = make_ids(3, case.length)
        self.assertEqual(mixed.lookup(ids).dtype, tf.float32)
        if name != 'elmo':  # which reads characters
            np.testing.assert_array_equal(
                mixed.lookup(ids), mixed.embedding_table.numpy()[ids]
            )
        more = {'places': PLACES, 'queries': True} if case.queries else {}
        expected = call(name, exact, ids, **more).states.numpy()
        for key in (None, KEY):

            def encoded(key=key):
                return call(name, mixed, ids, key=key, **more)

            actual = encoded()
            self.assertEqual(actual.states.dtype, tf.bfloat16)
            if actual.state is not None:
                self.assertEqual(actual.state.states.dtype, tf.bfloat16)
            error = np.abs(tf.cast(actual.states, tf.float32) - expected)
            most, mean = (BFLOAT16 * x for x in case.rough[:2])
            self.assertLess(error.max(), most)
            self.assertLess(error.mean(), mean)
            self.assertGreater(error.max(), 0)
            for gradient in gradients(mixed, lambda: encoded().states):
                self.assertEqual(gradient.dtype, tf.float32)


class DropoutTest(EagerCase):
    @parameterized.parameters(*PLAIN)
    def test_is_a_function_of_the_key(self, name):
        """Equal rows get unequal masks."""
        ids = np.repeat(make_ids(1, 10), 3, axis=0)
        encoder = variant(name, rate=0.1)
        first = run(encoder, ids, key=KEY).states.numpy()
        np.testing.assert_array_equal(run(encoder, ids, key=KEY).states, first)
        if name == 'transformer':  # a graph of each would take seconds
            in_graph = tf.function(lambda k: run(encoder, ids, key=k).states)
            with eagerly(False):
                near(in_graph(KEY), first)
        for key in (dropout.fold_in(KEY, 0), None):
            other = run(encoder, ids, key=key).states.numpy()
            self.assertGreater(np.abs(other - first).max(), 0.1)
        for row in (1, 2):
            self.assertGreater(np.abs(first[row] - first[0]).max(), 0.1)

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
                dropping = [c for c in spy.call_args_list
                            if c.kwargs.get('rate')]  # fmt: skip
                self.assertLen(dropping, count, name)
                for call in dropping:
                    self.assertEqual(call.kwargs['rate'], 0.1)
                    keys.append(tuple(call.kwargs['key'].numpy().tolist()))
        sites = sum(count for *_, count in SITES[kind])
        self.assertLen(set(keys), 2 * sites)


class FirstTest(EagerCase):
    @parameterized.product(
        name=[n for n in CASES if CASES[n].first], key=[None, KEY]
    )
    def test_the_first_layer_reads_what_is_put_there(self, name, key):
        """`first` is read as it is, without norm, dropout and positions."""
        encoder, ids = variant(name, rate=0.2), make_ids(3, 10)
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


class ArgumentsTest(parameterized.TestCase):
    @parameterized.parameters(*WEIGHTS)
    def test_names_and_shapes_of_weights(self, name):
        outside, layer = WEIGHTS[name]
        for _ in range(2):  # no second encoder is called encoder_1
            encoder, expected = variant(name), {}
            inside = [(f'layer_{i}/', layer) for i in range(encoder.depth)]
            for prefix, text in (('', outside), *inside):
                for words in text.split(', '):
                    path, *shape = words.split()
                    path = f'encoder/{prefix}{path}'
                    expected[path] = tuple(map(int, shape))
            actual = {w.path: tuple(w.shape) for w in encoder.weights}
            self.assertEqual(actual, expected)

    @parameterized.parameters(*ENCODERS)
    def test_defaults_are_written_into_the_arguments(self, kind):
        encoder = ENCODERS[kind](vocab_size=V)
        usual = {k: x.default for k, x in ENCODERS[kind].settings.items()}
        decided = {'vocab_size': V, **DECIDED.get(kind, {})}
        self.assertEqual(encoder.arguments, usual | decided)
        again = type(encoder)(**encoder.arguments)
        self.assertEqual(again.arguments, encoder.arguments)


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
            with refused('field_not_read', cls.__name__, field, 'ids'):
                run(encoder, ids, **{field: ids})
        if not encoder.remembers:
            with refused('remembers_nothing', cls.__name__):
                encoder.empty_state(2, 3)
        if 'segments' in encoder.arguments:
            with refused('encoder_without_segments'):
                run(make(kind, segments=0), ids, segment_ids=ids)

    @parameterized.parameters(
        ('transformer', {'heads': 3}, 'heads_divide_width', 3, 16),
        ('transformer', {'relative_buckets': 9}, 'unknown_bucket_count', 9),
        ('relative', {'heads': 3}, 'heads_divide_width', 3, 16),
        ('relative', {'segments': 3}, 'unknown_segment_count', 3),
        ('relative', {'same_length': True}, 'same_length_needs_causal'),
        ('modern', {'width': 6}, 'rotary_odd_heads', 2, 6),
        ('disentangled', {'heads': 3}, 'heads_divide_width', 3, 16),
        ('disentangled', {'max_distance': 4}, 'distances_below_buckets', 4, 4,
         6),
        ('modern', {'kv_heads': 3}, 'kv_heads_divide_heads', 3, 2),
        ('elmo', {'width': 9}, 'odd_elmo_width', 9),
        ('elmo', {'characters': 6, 'filters': [1] * 7},
         'filters_too_long', 7, 6),
    )  # fmt: skip
    def test_of_arguments(self, kind, sizes, id, *values):
        with refused(id, *values):
            make(kind, **sizes)

    @parameterized.parameters(
        ('transformer', {}, {}, 'more_tokens_than_positions', 33, 32),
        ('rnn', {}, {'state': 2, 'advance': 4}, 'recurrent_advance', 33, 4),
        ('relative', {}, {'ranks': IDS}, 'ranks_without_sees'),
        ('relative', {}, {'queries': True}, 'queries_without_places'),
        ('relative', {'causal': True}, {'places': IDS, 'queries': True},
         'causal_queries'),
        ('relative', {}, {'state': 2, 'advance': 34}, 'advance_beyond_text',
         33, 34),
    )  # fmt: skip
    def test_of_calls(self, kind, sizes, arguments, id, *values):
        encoder = make(kind, **sizes)
        if 'state' in arguments:
            arguments = {**arguments, 'state': encoder.empty_state(1, 2)}
        for graph in (False, True):  # which rewrites other errors
            call = functools.partial(run, encoder, IDS, **arguments)
            with refused(id, *values):
                tf.function(lambda call=call: call())() if graph else call()

    @parameterized.parameters('transformer', 'relative', 'modern')
    def test_of_activations(self, kind):
        with self.assertRaisesRegex(ValueError, '=gelu: known are gelu_tanh'):
            make(kind, activation='gelu')


class HiddenTest(EagerCase):
    @parameterized.product(
        kind=('transformer', 'modern', 'disentangled'), key=(None, KEY)
    )
    def test_no_token_attends_to_a_hidden_one(self, kind, key):
        """Which attends to all others; ordinary tokens are seen by all."""
        encoder = make(kind)
        hidden = np.zeros((1, 9), np.int32)
        hidden[0, [6, 8]] = 1

        def states_of(ids):
            return run(encoder, ids, hidden=hidden, key=key).states

        distances = moved(states_of, IDS[:, :9]) > 1e-6
        expected = np.ones((9, 9), bool)
        expected[[6, 8]] = np.eye(9, dtype=bool)[[6, 8]]
        np.testing.assert_array_equal(distances, expected)
