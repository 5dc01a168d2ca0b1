"""ModernBERT's encoder: sizes, and attention of its layers.

That its numbers are those of transformers is in tests/weights.
"""

import functools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.layers import rotary_block
from infoword_tf.layers.rotary_block import band_is_faster, turns
from tests.encoders import calls
from tests.encoders.calls import make_ids, run
from tests.objectives.eq1 import EagerCase

WIDTH = 16
make_encoder = functools.partial(calls.make, 'modern')


class SizeTest(absltest.TestCase):
    def test_the_base_size_has_149_million(self):
        """Warner et al. 2024, Table 4: 22 layers of 768, 1152 in the GeGLU."""
        actual = calls.count(
            'modern', vocab_size=50_368, layers=22, width=768, heads=12
        )
        d, f = 768, 1152
        layers = 22 * (4 * d * d + 3 * d * f + 2 * d) - d
        self.assertEqual(actual, 50_368 * d + layers + 2 * d)
        self.assertEqual(actual, 149_014_272)


class SightTest(EagerCase):
    def moved(self, length, **sizes):
        """The states that a change of token 12 moves, layer by layer."""
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
        with mock.patch.object(rotary_block, 'CHUNKS', chunks):
            self.assertEqual(band_is_faster(24, 2), chunks == 9)
            embeddings, first, *_ = self.moved(24, global_every=4)
            self.assertEqual(embeddings, {12})
            self.assertEqual(first, set(range(24)))
            # A second layer that is global, behind one that is not.
            actual = self.moved(24, global_every=2, layers=2)
        self.assertEqual(actual[1], set(range(24)))

    def test_of_a_shift_of_all_positions_nothing_is_known(self):
        encoder, ids = make_encoder(), make_ids(2, 10)
        place = np.arange(10, dtype=np.int32)[None]
        here = run(encoder, ids).states
        for shift, where in ((0, here), (300, here)):
            shifted = run(encoder, ids, positions=place + shift).states
            np.testing.assert_allclose(shifted, where, rtol=0, atol=5e-5)
        apart = run(encoder, ids, positions=place * 3).states
        self.assertGreater(np.abs(apart - here).max(), 0.1)

    @parameterized.parameters(
        (True, range(12, 15), 100), (False, range(10, 15), 100),
        (False, range(10, 15), 9),
    )  # fmt: skip
    def test_the_last_of_so_many_layers_sees_the_whole_text(
        self, causal, near, chunks
    ):
        """Layers 0 and 1 see two tokens more, behind a token if causal."""
        with mock.patch.object(rotary_block, 'CHUNKS', chunks):
            _, first, second, third = self.moved(
                24, global_every=3, global_first=2, layers=3, causal=causal
            )
        self.assertEqual(first, set(near))
        reach = 2 * (len(near) - 1) if causal else 4
        begin = 12 if causal else 8
        self.assertEqual(second, set(range(begin, 12 + reach + 1)))
        self.assertEqual(third, set(range(12 if causal else 0, 24)))


class FamilyTest(EagerCase):
    """Settings of encoders with the same layers, by numbers."""

    @parameterized.parameters(
        ('before', 'layer', 'none'), ('after', 'layer', 'norms'),
        ('both', 'rms', 'none'), ('both', 'layer', 'all'),
    )  # fmt: skip
    def test_norms_of_a_block_written_out(self, norms, norm, biases):
        """A token alone mixes its value, whatever it scores."""
        encoder = make_encoder(
            layers=1, norms=norms, norm=norm, biases=biases, heads=1,
            activation='silu', scale_embeddings=True, embedding_norm=False,
        )  # fmt: skip
        held = {
            x.path.split('encoder/')[1].removeprefix('layer_0/'): x.numpy()
            for x in encoder.weights
        }

        def normal(name, x):
            x = x - (norm == 'layer') * x.mean()
            x = x / np.sqrt(np.mean(x**2) + 1e-5)
            return x * held[f'{name}_gamma'] + held.get(f'{name}_beta', 0)

        x = 4 * held['word_embeddings'][7]
        v = slice(32, None)
        for part in ('attention', 'outer'):
            y = x if norms == 'after' else normal(f'{part}_norm', x)
            if part == 'attention':
                y = y @ held['attention/qkv_kernel'][:, v]
                y = y + held.get('attention/qkv_bias', np.zeros(48))[v]
                y = y @ held['attention/output_kernel']
            else:
                gate, y = np.split(y @ held['inner_kernel'], 2)
                y = gate / (1 + np.exp(-gate)) * y @ held['outer_kernel']
            y = y + held.get(f'{part}_bias', 0)
            if norms == 'both':
                y = normal(f'{part}_after_norm', y)
            x = x + y
            if norms == 'after':
                x = normal(f'{part}_norm', x)
        if norms != 'after':
            x = normal('last_norm', x)
        actual = run(encoder, np.int32([[7]])).states[0, 0]
        calls.near(actual, x, 1e-4)

    def test_planes_are_slowed_by_their_turns(self):
        """theta 16, E 4: 1 and 1/4, in 8 pi tokens 4 turns and 1."""
        # Half of the way it is 3/4 of the speed.
        for least, slow in ((1.0, 0.25), (0.0, 0.375)):
            turn = turns(
                np.int32([[2]]), 4, 16.0,
                factor=2.0, bounds=(least, 2.0, 8 * math.pi),
            )  # fmt: skip
            np.testing.assert_allclose(
                turn.sin[0, 0], np.sin([2.0, slow]), atol=1e-6
            )
