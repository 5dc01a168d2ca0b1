"""Views of translations, written out."""

import itertools

import numpy as np
from absl.testing import parameterized

from infoword_tf.views import VIEWS
from infoword_tf.views.masked import Masking
from infoword_tf.views.translations import (
    Translated,
    Translations,
    cross,
    joined_pairs,
    translate,
)
from tests import zoo
from tests.views.texts import assert_view, same

CLS, SEP, MASK = zoo.CLS, zoo.SEP, zoo.MASK
T = 16
# Two pairs; tokens of the first language are below 30.
TEXTS = [[[10, 11], [30, 31, 32]], [[12], [33, 34]]]


def translations(texts, slots, width=T, crossed=False):
    lengths = np.array([[len(x) for x in pair] for pair in texts])
    ids = np.full((*lengths.shape, lengths.max()), 59, np.int32)
    for i, pair in enumerate(texts):
        for k, text in enumerate(pair):
            ids[i, k, : len(text)] = text
    return Translations(
        ids, np.ones(ids.shape, bool), lengths.astype(np.int32),
        np.arange(len(texts), dtype=np.int32), np.array(slots, np.int32),
        width, np.zeros(len(texts), bool), crossed,
    )  # fmt: skip


def unmasked(pairs):
    nothing = np.zeros(pairs.ids.shape, bool)
    return Masking(nothing, nothing.astype(np.int32), nothing.astype(float))


class Bits:
    """A generator of fixed bits."""

    def __init__(self, *bits):
        self.bits = bits

    def integers(self, low, high, shape):
        assert (low, high, shape) == (0, 2, (1, 3))
        return np.array([self.bits])


class TranslatedTest(parameterized.TestCase):
    def make(self, side, restart):
        text = translations(TEXTS, [[0, 1]])
        number, side = np.arange(2), np.array(side)
        filled = text.slots >= 0
        pairs = joined_pairs(text, (number, side), (number, 1 - side), filled)
        draw = Translated(pairs, unmasked(pairs), restart)
        return VIEWS['translated'].make(
            text, draw, {'tlm': 'tokens'}, zoo.SPECIALS
        )

    def test_two_pairs_share_a_row(self):
        view = self.make([0, 1], restart=False)
        first = [CLS, 10, 11, SEP, 30, 31, 32, SEP]
        second = [CLS, 33, 34, SEP, 12, SEP]
        assert_view(
            view,
            ids=[[*first, *second, SEP, SEP]],
            positions=[[*range(8), *range(6), 0, 0]],
            block_ids=[[0] * 8 + [1] * 6 + [2] * 2],
            segment_ids=None, padding=[2],
        )  # fmt: skip

    def test_positions_begin_anew(self):
        view = self.make([0, 1], restart=True)
        same(view.positions, [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 0]])

    def test_masked_as_of_mlm(self):
        """15 of 100 tokens of each pair, both languages, no special."""
        text = zoo.make_translations(64, length=48)
        draw = translate(text, np.random.default_rng(0), 'tokens', False)
        pairs, masked = draw.pairs, draw.masking.masked
        self.assertFalse((masked & pairs.separators).any())
        sizes = pairs.firsts + pairs.seconds
        same(masked.sum(axis=1), np.ceil(0.15 * sizes))
        first = np.arange(masked.shape[1]) < pairs.firsts[:, None]
        self.assertAlmostEqual(first[masked].mean(), 0.5, delta=0.1)

    def test_either_language_comes_first(self):
        text = translations([*TEXTS] * 200, [[2 * i, 2 * i + 1]
                                              for i in range(200)])
        draw = translate(text, np.random.default_rng(3), 'tokens', False)
        share = (draw.pairs.ids[:, 0] < 30).mean()
        self.assertBetween(share, 0.42, 0.58)  # 3 deviations of 400 draws


class CrossedTest(parameterized.TestCase):
    @parameterized.parameters(*itertools.product((0, 1), repeat=3))
    def test_all_eight_draws(self, sources, targets, side):
        (x1, y1), (x2, y2) = TEXTS
        text = translations(TEXTS, [[0]], crossed=True)
        draw = cross(text, Bits(sources, targets, side), None)
        x = [CLS, *x2, SEP, *x1, SEP] if sources else [CLS, *x1, SEP, *x2, SEP]
        y = [CLS, *y2, SEP, *y1, SEP] if targets else [CLS, *y1, SEP, *y2, SEP]
        a, b = (y, x) if side else (x, y)
        for name, expected in (('crossed', a), ('crossed_keys', b)):
            view = VIEWS[name].make(
                text, draw, {'xlco': 'example'}, zoo.SPECIALS
            )
            padding = T - len(expected)
            assert_view(
                view, 'xlco', ids=[[*expected, *[SEP] * padding]],
                places=[[0]], weights=[[1]], segment_ids=None,
                padding=[padding],
            )  # fmt: skip
            same(view.positions[0, : len(expected)], np.arange(len(expected)))

    def test_equal_texts_have_equal_numbers(self):
        other = [[[10, 11], [30, 31, 32]], [[13], [33, 34]]]
        text = translations(
            [*TEXTS, *other, *TEXTS], [[0], [1], [2]], crossed=True
        )

        class Same:
            def integers(self, low, high, shape):
                return np.zeros(shape, int)

        draw = cross(text, Same(), None)
        self.assertEqual(draw.a.numbers[0], draw.a.numbers[2])
        self.assertNotEqual(draw.a.numbers[0], draw.a.numbers[1])
        # Of b the second pair differs in its first language alone.
        self.assertEqual(len(set(draw.b.numbers.tolist())), 1)

    def test_texts_are_corrupted_as_of_mlm(self):
        text = zoo.make_translations(64, crossed=True)
        draw = cross(text, np.random.default_rng(0), 'tokens')
        whole = cross(text, np.random.default_rng(0), None)
        for name, side in (('crossed', draw.a), ('crossed_keys', draw.b)):
            views = [
                VIEWS[name].make(text, x, {'xlco': 'example'}, zoo.SPECIALS)
                for x in (draw, whole)
            ]
            changed = views[0].ids != views[1].ids
            special = np.isin(views[1].ids, (CLS, SEP))
            self.assertFalse((changed & special).any())
            tokens = (side.pairs.firsts + side.pairs.seconds).sum()
            self.assertBetween(changed.sum() / tokens, 0.12, 0.17)
            same(views[0].targets['xlco'], views[1].targets['xlco'])

    @parameterized.parameters(True, False)
    def test_the_setting_masked(self, masked):
        text = zoo.make_translations(8, crossed=True)
        settings = {'masked': masked, 'masking': 'tokens', 'mask_share': 0.5}
        draw = VIEWS['crossed'].draw(settings)
        drawn = draw.function(text, np.random.default_rng(0), **draw.settings)
        view = VIEWS['crossed'].make(
            text, drawn, {'xlco': 'example'}, zoo.SPECIALS
        )
        tokens = (drawn.a.pairs.firsts + drawn.a.pairs.seconds).sum()
        share = (view.ids == MASK).sum() / tokens
        self.assertBetween(share, *((0.3, 0.5) if masked else (0, 0)))
