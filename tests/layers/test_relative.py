"""Relative attention against plain loops, and its masks."""

import math
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import relative
from tests import eager
from tests.objectives.eq1 import drawn
from tests.refused import refused

B, T, M, H, D, F = 2, 8, 3, 3, 12, 20
E = D // H
KEY = eager.new_key(5)
PLACES = np.int32([[6, 0, 3], [1, 2, 7]])
SIGNS = np.float32([1, -1])
SEGMENTS = np.int32([[0, 0, 1, 1, 0, 2, 2, 2], [1, 0, 0, 0, 1, 1, 1, 0]])
RANKS = np.int32([[-1, 3, -1, 5, -1, 0, -1, 2], [4, 2, 0, 1, 3, 5, 7, 6]])
SEES = np.int32([[0, 3, 0, 6, 0, 0, 0, 3], [5, 3, 1, 2, 4, 5, 7, 6]])


def setUpModule():
    """Eight tokens are four blocks of two."""
    mock.patch.object(relative, 'BLOCKS', (2,)).start()


def tearDownModule():
    mock.patch.stopall()


def make_layer(causal=False):
    layer = relative.RelativeAttention(D, H, 0.0, True, causal)
    return drawn(layer, scale=0.4)


def make_states(count, seed=4):
    random = np.random.default_rng(seed)
    return random.standard_normal((B, count, D)).astype(np.float32)


def exact(weight):
    return np.asarray(weight, np.float64)


def sinusoid(distance, clamp=None):
    """r of one distance, one number after the other."""
    if clamp:
        distance = max(-clamp, min(clamp, distance))
    angles = [distance / 10_000 ** (2 * i / D) for i in range(D // 2)]
    return np.array([*map(math.sin, angles), *map(math.cos, angles)])


def sees(b, i, j, causal=False, ranks=False, queries=False):
    """Whether i sees j, a place or, of the memory, a negative number."""
    if causal and j > i:
        return False
    if j < 0:
        return True
    if ranks:
        return SEES[b, i] > RANKS[b, j] or (i == j and not queries)
    return not (queries and i == j)


def loops(layer, x, memory, states, places, signs=None, segments=None,
          clamp=None, **rules):
    """The scores of the module's first lines, in float64."""
    kernel, output = exact(layer.kernel), exact(layer.output_kernel)
    u, v, *s = (exact(bias).reshape(-1) for bias in layer.biases)
    known = exact(x if memory is None else np.concatenate([memory, x], 1))
    behind = known.shape[1] - x.shape[1]
    mixed = np.zeros((B, places.shape[1], D))
    for b, h, row in np.ndindex(B, H, places.shape[1]):
        columns = slice(h * E, (h + 1) * E)
        i = places[b, row]
        q = (exact(states)[b, row] @ kernel[:, :D])[columns]
        scores, values = [], []
        for place, state in enumerate(known[b]):
            j = place - behind
            if not sees(b, i, j, **rules):
                continue
            k = (state @ kernel[:, D : 2 * D])[columns]
            sign = 1 if signs is None else signs[b]
            r = sinusoid(sign * (i - j), clamp) @ exact(layer.position_kernel)
            score = (q + u[columns]) @ k + (q + v[columns]) @ r[columns]
            if segments is not None:
                other = segments[b, j] if j >= 0 else 0
                e = exact(layer.segment_embeddings)
                e = e[int(segments[b, i] != other)][h]
                score += (q + s[0][columns]) @ e
            scores.append(score / math.sqrt(E))
            values.append((state @ kernel[:, 2 * D :])[columns])
        if scores:
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            mixed[b, row, columns] = weights @ np.array(values)
    return mixed @ output


def run(layer, x, memory, states, places=None, signs=None, segments=None,
        clamp=None, ranks=False, causal=False, queries=False, key=None):
    behind = 0 if memory is None else memory.shape[1]
    extra = {'ranks': RANKS, 'sees': SEES} if ranks else {}
    sight = relative.Rules(
        T,
        behind,
        causal=causal,
        filled=tf.fill([B], behind),
        segment_ids=None if segments is None else tf.constant(segments),
        **{name: tf.constant(value) for name, value in extra.items()},
    ).sight(None if places is None else tf.constant(places), queries)
    return layer(
        tf.convert_to_tensor(x),
        [(tf.convert_to_tensor(states), sight)],
        relative.sinusoids(T, behind, D, causal=causal, clamp=clamp),
        signs=None if signs is None else tf.constant(signs),
        memory=None if memory is None else tf.convert_to_tensor(memory),
        keys=[key],
    )[0]


EVERYWHERE = np.tile(np.arange(T), (B, 1))


class AttentionTest(parameterized.TestCase):
    @parameterized.product(
        memory=(False, True),
        signs=(None, SIGNS),
        segments=(None, SEGMENTS),
        rule=('all', 'causal', 'ranks'),
    )
    def test_content_equals_loops(self, memory, signs, segments, rule):
        causal, ranks = rule == 'causal', rule == 'ranks'
        if causal and signs is not None:
            self.skipTest('a reversed text is not read from its end')
        layer = make_layer(causal=causal)
        x = make_states(T)
        behind = make_states(M, seed=5) if memory else None
        extra = {'signs': signs, 'segments': segments, 'causal': causal,
                 'ranks': ranks}
        expected = loops(layer, x, behind, x, EVERYWHERE, **extra)
        at_places, of_places = (
            states[np.arange(B)[:, None], PLACES] for states in (x, expected)
        )
        for key in (None, KEY):
            actual = run(layer, x, behind, x, key=key, **extra)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
            actual = run(layer, x, behind, at_places, PLACES, key=key, **extra)
            np.testing.assert_allclose(actual, of_places, rtol=0, atol=1e-5)

    @parameterized.product(
        key=(None, KEY), memory=(False, True), ranks=(False, True)
    )
    def test_queries_equal_loops(self, key, memory, ranks):
        """In sequence 1 token 2 comes first, and sees the memory alone."""
        layer, x = make_layer(), make_states(T)
        g = make_states(3, seed=6)
        behind = make_states(M, seed=5) if memory else None
        extra = {'signs': SIGNS, 'segments': SEGMENTS, 'ranks': ranks,
                 'queries': True}
        with mock.patch.dict(globals(), {'SEES': SEES - (SEES > RANKS)}):
            actual = run(layer, x, behind, g, PLACES, key=key, **extra)
            expected = loops(layer, x, behind, g, PLACES, **extra)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
        self.assertEqual(expected[1, 1].any(), memory or not ranks)

    @parameterized.product(
        key=(None, KEY), causal=(False, True), places=(None, PLACES)
    )
    def test_clamp(self, key, causal, places):
        layer, x = make_layer(causal=causal), make_states(T)
        behind = make_states(M, seed=5)
        rows = EVERYWHERE if places is None else places
        states = x[np.arange(B)[:, None], rows]
        actual = run(layer, x, behind, states, places, clamp=2, causal=causal,
                    key=key)
        clamped, free = (
            loops(layer, x, behind, states, rows, clamp=c, causal=causal)
            for c in (2, -1)
        )
        np.testing.assert_allclose(actual, clamped, rtol=0, atol=1e-5)
        self.assertGreater(np.abs(clamped - free).max(), 0.01)

    def test_who_sees_nothing_gets_nothing_and_gives_no_gradient(self):
        layer, x = make_layer(), tf.constant(make_states(T))
        g = tf.constant(make_states(3, seed=6))
        for key in (None, KEY):
            with tf.GradientTape() as tape:
                tape.watch([x, g])
                with mock.patch.dict(globals(), {'SEES': RANKS}):
                    actual = run(
                        layer, x, None, g, PLACES, ranks=True, queries=True,
                        key=key,
                    )
                total = tf.reduce_sum(actual[1, 1] ** 2) + actual[1, 1, 0]
            np.testing.assert_array_equal(actual[1, 1], np.zeros(D))
            for gradient in tape.gradient(total, [x, g]):
                np.testing.assert_array_equal(gradient, np.zeros_like(gradient))

    def test_widths(self):
        with refused('width_without_halves', 9):
            relative.RelativeAttention(9, 3, 0.0, False, False)


class SightTest(parameterized.TestCase):
    """Masks as strings: a line for each query, x where it attends."""

    def assert_sees(self, sight, *rows):
        drawn = [
            ''.join('x' if seen else '.' for seen in row)
            for row in np.asarray(sight.allowed)[:, 0].reshape(
                -1, sight.allowed.shape[-1]
            )
        ]
        self.assertEqual(drawn, list(rows))

    def test_nothing_to_hide(self):
        actual = relative.Rules(4).sight()
        self.assertEqual(actual, relative.Sight())

    def test_same_length(self):
        """A token sees itself and as many before it as the memory has."""
        self.assert_sees(
            relative.Rules(3, 2, causal=True, same_length=True).sight(),
            'xxx..',
            '.xxx.',
            '..xxx',
        )
        # Without memory there is nothing to be equal to.
        self.assert_sees(
            relative.Rules(3, causal=True, same_length=True).sight(),
            'x..',
            'xx.',
            'xxx',
        )

    def test_filled(self):
        self.assert_sees(
            relative.Rules(2, 3, filled=tf.constant([0, 1, 3])).sight(),
            '...xx',  # of each row, whatever the query
            '..xxx',
            'xxxxx',
        )

    def test_blocks(self):
        self.assert_sees(
            relative.Rules(4, 1, block_ids=tf.constant([[0, 0, 1, 0]])).sight(),
            'xxx.x', 'xxx.x', 'x..x.', 'xxx.x',
        )  # fmt: skip

    def test_own_order(self):
        """Order 3, 1, 5, 2, 4 with target 4 (Kong et al. 2019, §3.1)."""
        ranks = tf.constant([[1, 3, 0, 4, 2]])
        sees = ranks + tf.constant([[1, 1, 1, 0, 1]])
        extra = {'ranks': ranks, 'sees': sees}
        self.assert_sees(
            relative.Rules(5, **extra).sight(),
            'x.x..',  # after 3
            'xxx.x',  # after 3, 1, 5
            '..x..',  # first
            'xxxxx',  # last
            'x.x.x',  # after 3, 1
        )
        query = relative.Rules(5, **extra).sight(np.int32([[3]]), True)
        self.assert_sees(query, 'xxx.x')
        self.assertTrue(np.all(query.seeing))

    def test_all_rules_hold(self):
        self.assert_sees(
            relative.Rules(
                4,
                2,
                causal=True,
                filled=tf.constant([1]),
                block_ids=tf.constant([[0, 0, 0, 1]]),
                ranks=tf.constant([[0, 9, 0, 0]]),
                sees=tf.constant([[5, 5, 5, 5]]),
            ).sight(),
            '.xx...', '.xxx..', '.xx.x.', '.x...x',
        )  # fmt: skip


class SinusoidsTest(parameterized.TestCase):
    def distances(self, *extra, **rules):
        """The first frequency is 1: sine and cosine tell the distance."""
        table = np.asarray(relative.sinusoids(*extra, 4, **rules))
        angles = np.arctan2(table[:, 0], table[:, 2])
        return angles.round(5).tolist()

    def test_which_distances(self):
        # Distances below pi, so that angles are themselves.
        self.assertEqual(self.distances(2, 1), [3, 2, 1, 0, -1])
        self.assertEqual(self.distances(2, 0), [2, 1, 0, -1])
        self.assertEqual(self.distances(2, 1, causal=True), [3, 2, 1, 0])
        self.assertEqual(
            self.distances(4, 6, clamp=2), [2] * 9 + [1, 0, -1, -2, -2]
        )
        # Queries 2, keys 4 (XLNet's code): 4, 3, 2, 1, 0, -1.
        self.assertLen(self.distances(2, 2), 6)


class BlocksOfTest(absltest.TestCase):
    def test_sizes(self):
        with mock.patch.object(relative, 'BLOCKS', (64, 32)):
            sizes = (64, 96, 128, 130, 512)
            actual = {n: relative.block_count(n) for n in sizes}
        self.assertEqual(actual, {64: 1, 96: 1, 128: 4, 130: 1, 512: 8})
