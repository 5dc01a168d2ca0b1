"""Layers at rate 0 with a key, with dropout by key, and in bfloat16."""

import itertools
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import dropout, recurrent, relative
from infoword_tf.layers.rotary_block import Band, RotaryBlock, near_mask, turns
from tests import eager
from tests.layers import (
    test_attention,
    test_bilstm,
    test_block,
    test_recurrent,
    test_relative,
)
from tests.processor import BFLOAT16

KEY = eager.new_key(5)


class Case(NamedTuple):
    """A layer under test.

    Attributes:
        make: (rate, dtype) -> a layer with weights.
        inputs: arrays in the compute dtype, by name.
        run: (layer, inputs, key) -> [B, T, D].
        drops: whether the layer has dropout.
        rough: the largest error of bfloat16, relative to the largest state;
            0: states stay float32.
    """

    make: Any
    inputs: dict[str, Any]
    run: Any
    drops: bool = True
    rough: float = 0.02


def of_block(pre_norm, mask, places):
    allowed = test_block.MASKS[mask]
    return Case(
        lambda rate, dtype: test_block.make_block(pre_norm, rate, dtype=dtype),
        {'x': test_block.make_x()},
        lambda layer, inputs, key: layer(**inputs, allowed=allowed,
                                         places=places, key=key),
    )  # fmt: skip


def of_attention(allowed):
    return Case(
        lambda rate, dtype: test_attention.make_layer(rate, dtype=dtype),
        {'x': test_attention.make_x()},
        lambda layer, inputs, key: layer(**inputs, allowed=allowed, key=key),
    )


def of_relative(count=None, memory=True, **rules):
    """A stream of `count` queries at places; None: of all tokens."""
    causal, places = rules.get('causal', False), None
    if count:
        places = test_relative.PLACES
    if not causal:
        rules |= {'ranks': True, 'signs': test_relative.SIGNS}
    inputs = {
        'x': test_relative.make_states(test_relative.T),
        'states': test_relative.make_states(count or test_relative.T, seed=6),
        'memory': test_relative.make_states(test_relative.M, seed=5),
    }

    def run(layer, inputs, key):
        with mock.patch.object(relative, 'BLOCKS', (2,)):  # four blocks
            return test_relative.run(
                layer, **{'memory': None, **inputs}, places=places,
                segments=test_relative.SEGMENTS, key=key, **rules,
            )  # fmt: skip

    if not memory:
        del inputs['memory']
    return Case(
        lambda rate, dtype: test_relative.make_layer(
            rate, causal=causal, dtype=dtype
        ),
        inputs,
        run,
    )


def of_recurrence(way, backward, small):
    def run(layer, inputs, key):
        state, keep = test_recurrent.make_state(layer), None
        with mock.patch.object(recurrent, 'SMALL', small):
            keep = test_recurrent.make_keep()
            return layer(inputs['x'], state, keep, key)[0]

    sizes = test_recurrent.WAYS[way]
    shape = test_recurrent.B, test_recurrent.T, test_recurrent.F
    return Case(
        lambda rate, dtype: test_recurrent.make(
            *sizes, backward=backward, dtype=dtype
        ),
        {'x': test_recurrent.random(*shape)},
        run,
        drops=False,
        rough=0.05,
    )


def of_rotary(first=False, places=None, banded=False, **sizes):
    b, t, d = 2, 9, 12

    def make(rate, dtype):
        heads = 4 if sizes else 3
        block = RotaryBlock(
            d, heads, 20, rate, 'silu' if sizes else 'gelu_tanh', 1e-6,
            dtype=dtype, **sizes,
        )  # fmt: skip
        block.first = first
        block.build()
        return test_relative.draw(block)

    def run(layer, inputs, key):
        turn = turns(tf.range(t)[None], sizes.get('head_width', 4), 50.0)
        more = {'band': Band(2)} if banded else {}
        if not banded and places is None:
            more = {'allowed': near_mask(t, 2)}
        return layer(**inputs, turn=turn, places=places, key=key, **more)

    x = np.random.default_rng(4).standard_normal((b, t, d))
    return Case(make, {'x': x.astype(np.float32)}, run)


QWEN = {'norm': 'rms', 'kv_heads': 2, 'head_width': 6, 'qk_norm': True}
CASES = {
    **{
        f'{"pre" if pre_norm else "post"}_norm_{mask}_{name}':
        of_block(pre_norm, mask, places)
        for pre_norm, mask, (name, places) in itertools.product(
            (False, True), test_block.MASKS,
            (('whole', None), ('places', test_block.PLACES)),
        )
    },
    'attention': of_attention(None),
    'attention_masked': of_attention(test_attention.make_allowed()),
    'relative': of_relative(),
    'relative_causal': of_relative(causal=True),
    'relative_places': of_relative(3),
    'relative_queries': of_relative(3, queries=True),
    'relative_alone': of_relative(memory=False),
    **{
        f'{way}_{"right" if backward else "left"}_{small}':
        of_recurrence(way, backward, small)
        for way, backward, small in itertools.product(
            test_recurrent.WAYS, (False, True), (0, 2**20)
        )
    },
    'bilstm': Case(
        lambda rate, dtype: test_bilstm.make(dtype),
        {'x': test_bilstm.X},
        lambda layer, inputs, key: layer(**inputs, block_ids=test_bilstm.BLOCKS,
                                         texts=3, key=key),
        drops=False, rough=0.0,
    ),
    'rotary': of_rotary(),
    'rotary_first': of_rotary(first=True),
    'rotary_places': of_rotary(places=test_block.PLACES),
    'rotary_band': of_rotary(banded=True),
    'qwen': of_rotary(**QWEN),
    'qwen_places': of_rotary(places=test_block.PLACES, **QWEN),
    'gemma_band': of_rotary(banded=True, norms='both', query_scalar=9.0,
                            **QWEN),
    'gte': of_rotary(norms='after', biases='all', head_width=6),
    'gte_places': of_rotary(norms='after', biases='all', head_width=6,
                            places=test_block.PLACES),
    'groups_with_biases': of_rotary(biases='all', kv_heads=2, head_width=4),
}  # fmt: skip


class EveryLayerTest(parameterized.TestCase):
    def prepare(self, name, rate=0.0, dtype='float32'):
        """Returns a layer, its inputs, and what runs it by a key."""
        case = CASES[name]
        layer = case.make(rate, dtype)
        inputs = {
            key: tf.cast(x, layer.compute_dtype)
            for key, x in case.inputs.items()
        }
        return layer, inputs, lambda key: case.run(layer, inputs, key)

    @parameterized.parameters(*CASES)
    def test_a_key_at_rate_0_changes_nothing(self, name):
        """States and gradients, by hand and automatic, are equal."""
        layer, inputs, run = self.prepare(name)
        names = [*inputs, *(weight.path for weight in layer.weights)]
        values = [*inputs.values(), *(w.value for w in layer.weights)]
        outcomes = []
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch(list(inputs.values()))
                states = run(key)
                total = tf.reduce_sum(states[..., :7] ** 3)
            outcomes.append([states, *tape.gradient(total, values)])
        for what, plain, fused in zip(
            ('states', *names), *outcomes, strict=True
        ):
            plain, fused = map(tf.convert_to_tensor, (plain, fused))
            scale = np.abs(plain).max()
            self.assertGreater(scale, 1e-4, what)
            np.testing.assert_allclose(
                fused, plain, rtol=0, atol=1e-5 * max(1, scale), err_msg=what
            )

    @parameterized.parameters(*(n for n in CASES if CASES[n].drops))
    def test_dropout_is_a_function_of_the_key(self, name):
        _, _, run = self.prepare(name, rate=0.5)
        first = run(KEY).numpy()
        np.testing.assert_array_equal(run(KEY), first)
        other = run(dropout.fold_in(KEY, 1)).numpy()
        self.assertGreater(np.abs(other - first).max(), 0.1)
        np.testing.assert_array_equal(run(None), self.prepare(name)[2](None))

    @parameterized.product(
        name=[n for n in CASES if CASES[n].rough], key=(None, KEY)
    )
    def test_bfloat16_is_near(self, name, key):
        states = self.prepare(name, dtype='mixed_bfloat16')[2](key)
        self.assertEqual(states.dtype, tf.bfloat16)
        expected = self.prepare(name)[2](None)
        error = np.abs(tf.cast(states, tf.float32) - expected).max()
        largest = CASES[name].rough * np.abs(expected).max()
        self.assertBetween(error, 1e-9, BFLOAT16 * largest)
