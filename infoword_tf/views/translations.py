"""Views of translations: two texts in a row, or two sides of two pairs.

    view          shows
    translated    a text and its translation, both masked: a and b of `tlm`
                  (Conneau and Lample 2019, "XLM", §3.3)
    crossed       two texts of one language, one after the other: a of `xlco`
    crossed_keys  their translations, in an order of their own: b of `xlco`
                  (Chi et al. 2021, "InfoXLM", §3.3, mixup contrast)

Which language comes first, or is a, is drawn; so is, for both sides of `xlco`
apart, which of the two texts comes first. `xlco` contrasts corrupted texts as
its code does: 15 of 100 tokens are masked, replaced or kept, as of `mlm`.

Glossary of shapes: n pairs, m of two pairs each, L tokens of the longest text,
R rows, J pairs (or m) that a row has room for, T tokens of a row.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting
from infoword_tf.views import masking as maskings
from infoword_tf.views.examples import Labelled, examples
from infoword_tf.views.masked import hide, masked
from infoword_tf.views.masking import Masking, Pairs
from infoword_tf.views.sentences import text_numbers
from infoword_tf.views.view import Draw, Specials, View, ViewSpec, all_text

SPECIALS = 3  # [CLS] first [SEP] second [SEP]


class Translations(NamedTuple):
    """A global batch of the source `translations`.

    Attributes:
        ids: [n, 2, L] int32 pieces; anything beyond `lengths`.
        word_starts: [n, 2, L] bool.
        lengths: [n, 2] int32.
        numbers: [n] int32, which pairs they are.
        slots: [R, J] int32, which of them share a row, -1 for none; of
            crossed ones which m, of which i has the pairs 2 i and 2 i + 1.
        width: T.
        cut: [n] bool, of which pairs a text has lost its end.
        crossed: whether a slot has two pairs.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray
    slots: np.ndarray
    width: int
    cut: np.ndarray
    crossed: bool = False

    @property
    def tokens(self) -> np.ndarray:
        """[R] int32: tokens of text of each row, of both languages."""
        return self.by_row(self.lengths.sum(axis=1)).astype(np.int32)

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """What there is of pairs, [n], summed by row: [R]."""
        if self.crossed:
            values = values.reshape(-1, 2).sum(axis=1)
        return np.where(self.slots < 0, 0, values[self.slots]).sum(axis=1)


class Translated(NamedTuple):
    """What is drawn of pairs.

    Attributes:
        pairs: the texts in the order that was drawn.
        masking: what of them is masked.
        restart: whether positions of second texts begin anew.
    """

    pairs: Pairs
    masking: Masking
    restart: bool


class Crossed(NamedTuple):
    """What is drawn of two pairs each.

    Attributes:
        a, b: [m] both sides, their two texts in the order that was drawn.
        a_masking, b_masking: what of them is masked; None: nothing.
        a_numbers, b_numbers: [m] int32, equal where all tokens are.
    """

    a: Pairs
    b: Pairs
    a_masking: Masking | None
    b_masking: Masking | None
    a_numbers: np.ndarray
    b_numbers: np.ndarray


def beside(
    text: Translations,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    slots: np.ndarray | None = None,
) -> Pairs:
    """Two texts each, one after the other, with room for T - 2 tokens.

    Args:
        text: of the batch.
        first, second: [k] numbers of pairs, and which side of each.
        slots: [R, J] bool, as of `Pairs`.
    """
    length = text.width - 2
    a, b = text.lengths[first], text.lengths[second]
    column = np.arange(length)
    in_b = column > a[:, None]
    place = np.where(in_b, column - a[:, None] - 1, column)
    place = np.minimum(place, text.ids.shape[2] - 1)

    def chosen(values: np.ndarray) -> np.ndarray:
        return np.where(
            in_b,
            np.take_along_axis(values[second], place, axis=1),
            np.take_along_axis(values[first], place, axis=1),
        )

    separators = (column == a[:, None]) | (column > (a + b)[:, None])
    begins = (column == 0) | (column == a[:, None] + 1)
    return Pairs(
        np.where(separators, 0, chosen(text.ids)).astype(np.int32),
        chosen(text.word_starts) | begins | separators,
        separators,
        a.astype(np.int32),
        b.astype(np.int32),
        np.zeros(len(a), np.int32),
        slots=slots,
    )


# -------------------------------------------------------------- one row of two


def translate(
    text: Translations,
    random: np.random.Generator,
    masking: str,
    restart: bool,
    share: float = maskings.MASKED_SHARE,
) -> Translated:
    """Draws which language comes first, and what is masked.

    Args:
        text: pairs.
        random: of the draw.
        masking: a name in MASKINGS.
        restart: of the view.
        share: of the tokens, what is masked.
    """
    # In the order of their rows.
    there = text.slots >= 0
    number = text.slots[there]
    side = (random.random(len(text.numbers)) < 0.5).astype(np.int64)[number]
    pairs = beside(text, (number, side), (number, 1 - side), there)
    drawn = maskings.masking(masking)(pairs, random, share)
    return Translated(pairs, drawn, restart)


def translated(
    text: Translations,
    draw: Translated,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] x [SEP] y [SEP] of each pair, as many to a row as fit, masked.

    No token says which language it is of, and there is one segment.
    """
    view = masked(draw.pairs, draw.masking, rows, specials)
    positions = view.positions
    if draw.restart:
        firsts = draw.pairs.by_slot(draw.pairs.firsts)  # [R, J]
        slot = np.minimum(view.block_ids, firsts.shape[1] - 1)
        begins = np.take_along_axis(firsts, slot, axis=1) + 2
        second = (positions >= begins) & (view.block_ids < firsts.shape[1])
        positions = np.where(second, positions - begins, positions)
    counts = {**view.counts, 'cut_translations': text.by_row(text.cut)}
    return view._replace(
        positions=positions.astype(np.int32),
        segment_ids=None,
        counts={k: x.astype(np.int32) for k, x in counts.items()},
    )


# ------------------------------------------------------------ two sides of two


def cross(
    text: Translations,
    random: np.random.Generator,
    masking: str | None,
    share: float = maskings.MASKED_SHARE,
) -> Crossed:
    """Draws sides and orders of two pairs each, and what is masked.

    Three bits: whether the two texts of one language change places, whether
    those of the other do, and which language is a (`xlco_dataset.py` of the
    code): eight draws.

    Args:
        text: pairs, of which 2 i and 2 i + 1 are crossed.
        random: of the draw.
        masking: a name in MASKINGS; None: nothing is masked.
        share: of the tokens, what is masked.
    """
    m = len(text.numbers) // 2
    first = 2 * np.arange(m)
    swapped, side = np.split(random.integers(0, 2, (m, 3)), [2], axis=1)
    sides = []
    for which in (side[:, 0], 1 - side[:, 0]):
        order = np.take_along_axis(swapped, which[:, None], axis=1)[:, 0]
        sides.append(
            beside(text, (first + order, which), (first + 1 - order, which))
        )
    drawn = [
        maskings.masking(masking)(x, random, share) if masking else None
        for x in sides
    ]
    numbers = [
        text_numbers(
            np.where(x.separators, -1, x.ids), x.firsts + x.seconds + 1
        )
        for x in sides
    ]
    return Crossed(*sides, *drawn, *numbers)


def _crossed(
    text: Translations,
    side: Pairs,
    drawn: Masking | None,
    numbers: np.ndarray,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """One side of each, as many to a row as fit."""
    if drawn is None:
        nothing = np.zeros(side.ids.shape, bool)
        drawn = Masking(nothing, nothing, nothing)
    ids = hide(side, drawn, specials)['ids'][:, None]
    return examples(
        Labelled(
            ids=ids,
            segments=np.zeros_like(ids),
            lengths=(side.firsts + side.seconds + SPECIALS)[:, None],
            places=np.zeros((len(ids), 1), np.int32),
            numbers=np.arange(len(ids), dtype=np.int32),
            targets=dict.fromkeys(rows, numbers[:, None]),
            candidates={},
            slots=text.slots,
            width=text.width,
        ),
        None,
        rows,
        specials,
    )._replace(segment_ids=None)


def crossed(
    text: Translations,
    draw: Crossed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """a: [CLS] x1 [SEP] x2 [SEP] of two pairs, or x2 first, or both y.

    Rows find in `targets` [R, J, 1] the number of each text, weights [R, J],
    and places [R, J] of [CLS].
    """
    view = _crossed(
        text, draw.a, draw.a_masking, draw.a_numbers, rows, specials
    )
    cut = text.by_row(text.cut).astype(np.int32)
    return view._replace(counts={**view.counts, 'cut_translations': cut})


def crossed_keys(
    text: Translations,
    draw: Crossed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """b: the translations of both, in the rows of `crossed`."""
    return _crossed(
        text, draw.b, draw.b_masking, draw.b_numbers, rows, specials
    )


# ----------------------------------------------------------------------- specs


def draw_pairs(settings: Mapping[str, Any]) -> Draw:
    """What is drawn of `translated`."""
    chosen = {name: settings[name] for name in ('masking', 'restart')}
    return Draw(
        'translated', translate, {**chosen, 'share': settings['mask_share']}
    )


def draw_sides(settings: Mapping[str, Any]) -> Draw:
    """What is drawn of `crossed`."""
    masking = settings['masking'] if settings['masked'] else None
    share = settings['mask_share']
    return Draw('crossed', cross, {'masking': masking, 'share': share})


TRANSLATED = ViewSpec(
    make=translated,
    source='translations',
    draw=draw_pairs,
    source_args=all_text,
    settings={
        'restart': Setting(
            False,
            'Positions of the second text begin anew (XLM); else they go on '
            '(XLM-R, InfoXLM).',
        )
    },
)
CROSSED = ViewSpec(
    make=crossed,
    source='translations',
    draw=draw_sides,
    source_args=lambda *given: {**all_text(*given), 'crossed': True},
    settings={
        'masked': Setting(
            True,
            'Contrast texts of which tokens are masked or replaced (15 in '
            "100, as InfoXLM's code does); else whole ones.",
        )
    },
    any_encoder=True,
)
CROSSED_KEYS = CROSSED._replace(make=crossed_keys, like='crossed')
