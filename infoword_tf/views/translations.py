"""Views of translations: a pair in a sequence, or one side of two pairs.

    view          shows
    translated    a text and its translation, both masked: a and b of `tlm`
                  (Conneau and Lample 2019, "XLM", §3.3)
    crossed       two texts of one language, one after the other: a of `xlco`
    crossed_keys  their translations, ordered independently: b of `xlco`
                  (Chi et al. 2021, "InfoXLM", §3.3, mixup contrast)

The draw decides which language comes first, or is a, and for each side of
`xlco` which of the two texts comes first. `xlco` contrasts corrupted texts as
its code does: 15 of 100 tokens are masked, replaced or unchanged, as of `mlm`.

Glossary of shapes: n pairs, m crossed examples of two pairs each, C tokens of
the longest text, S sequences, J pairs (or m) that a sequence has room for.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting
from infoword_tf.views.examples import Labelled, examples
from infoword_tf.views.masked import (
    MASKED_SHARE,
    Masking,
    Pairs,
    hide,
    masked,
    masking_of,
)
from infoword_tf.views.sentences import text_numbers
from infoword_tf.views.view import Draw, Specials, View, ViewSpec, all_text

SPECIALS = 3  # [CLS] first [SEP] second [SEP]


class Translations(NamedTuple):
    """A global batch of the source `translations`.

    Attributes:
        ids: [n, 2, C] int32 tokens; anything beyond `lengths`.
        word_starts: [n, 2, C] bool.
        lengths: [n, 2] int32.
        numbers: [n] int32, of the pairs in their corpus.
        slots: [S, J] int32, the pair in each slot, -1 for none; with `crossed`
            the example, of which number i has the pairs 2 i and 2 i + 1.
        width: T.
        truncated: [n] bool, whether a text of the pair was.
        crossed: whether a slot has two pairs.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray
    slots: np.ndarray
    width: int
    truncated: np.ndarray
    crossed: bool = False

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of text in each sequence, of both languages: [S] int32."""
        return self.by_sequence(self.lengths.sum(axis=1)).astype(np.int32)

    def by_sequence(self, values: np.ndarray) -> np.ndarray:
        """Sums values of pairs [n] by sequence: [S]."""
        if self.crossed:
            values = values.reshape(-1, 2).sum(axis=1)
        return np.where(self.slots < 0, 0, values[self.slots]).sum(axis=1)


class Translated(NamedTuple):
    """The draw of `translated`.

    Attributes:
        pairs: texts in the drawn order.
        masking: masked tokens of both texts.
        restart: whether positions of second texts restart.
    """

    pairs: Pairs
    masking: Masking
    restart: bool


class Side(NamedTuple):
    """One side of crossed pairs.

    Attributes:
        pairs: [m] two texts each, in the drawn order.
        masking: masking of these; None: nothing is masked.
        numbers: [m] int32, equal where all tokens are.
    """

    pairs: Pairs
    masking: Masking | None
    numbers: np.ndarray


class Crossed(NamedTuple):
    """The draw of `crossed` and `crossed_keys`.

    Attributes:
        a, b: both sides.
    """

    a: Side
    b: Side


def joined_pairs(
    text: Translations,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    slots: np.ndarray | None = None,
) -> Pairs:
    """Joins two texts, one after another, with room for T - 2 tokens.

    Args:
        text: texts of the batch.
        first, second: [m] numbers of pairs, and the side of each.
        slots: [S, J] bool, as of `Pairs`.
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
        ids=np.where(separators, 0, chosen(text.ids)).astype(np.int32),
        word_starts=chosen(text.word_starts) | begins | separators,
        separators=separators,
        firsts=a.astype(np.int32),
        seconds=b.astype(np.int32),
        labels=np.zeros(len(a), np.int32),
        slots=slots,
    )


# --------------------------------------------------------- a pair in a sequence


def translate(
    text: Translations,
    random: np.random.Generator,
    masking: str,
    restart: bool,
    share: float = MASKED_SHARE,
) -> Translated:
    """Draws the first language and a masking.

    Args:
        text: pairs.
        random: generator of the draw.
        masking: a name in MASKINGS.
        restart: setting of the view.
        share: share of the tokens to mask.
    """
    # In the order of the sequences.
    filled = text.slots >= 0
    number = text.slots[filled]
    side = (random.random(len(text.numbers)) < 0.5).astype(np.int64)[number]
    pairs = joined_pairs(text, (number, side), (number, 1 - side), filled)
    draw = masking_of(masking)
    return Translated(pairs, draw(pairs, random, share), restart)


def translated(
    text: Translations,
    draw: Translated,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Packs [CLS] x [SEP] y [SEP] of each pair, masked.

    There are no language tokens, and one segment.
    """
    view = masked(draw.pairs, draw.masking, rows, specials)
    positions = view.positions
    if draw.restart:
        firsts = draw.pairs.by_slot(draw.pairs.firsts)  # [S, J]
        slot = np.minimum(view.block_ids, firsts.shape[1] - 1)
        begins = np.take_along_axis(firsts, slot, axis=1) + 2
        second = (positions >= begins) & (view.block_ids < firsts.shape[1])
        positions = np.where(second, positions - begins, positions)
    counts = {
        **view.counts,
        'cut_translations': text.by_sequence(text.truncated),
    }
    return view._replace(
        positions=positions.astype(np.int32),
        segment_ids=None,
        counts={k: x.astype(np.int32) for k, x in counts.items()},
    )


# ------------------------------------------------------- one side of two pairs


def cross(
    text: Translations,
    random: np.random.Generator,
    masking: str | None,
    share: float = MASKED_SHARE,
) -> Crossed:
    """Draws sides and orders of two pairs each, and maskings.

    Three bits: whether the two texts of one language change places, whether
    those of the other do, and which language is a (`xlco_dataset.py` of the
    code).

    Args:
        text: pairs, of which 2 i and 2 i + 1 are crossed.
        random: generator of the draw.
        masking: a name in MASKINGS; None: nothing is masked.
        share: share of the tokens to mask.
    """
    m = len(text.numbers) // 2
    first = 2 * np.arange(m)
    swapped, side = np.split(random.integers(0, 2, (m, 3)), [2], axis=1)
    sides = []
    for which in (side[:, 0], 1 - side[:, 0]):
        order = np.take_along_axis(swapped, which[:, None], axis=1)[:, 0]
        sides.append(
            joined_pairs(
                text, (first + order, which), (first + 1 - order, which)
            )
        )
    a, b = (
        Side(
            pairs,
            masking_of(masking)(pairs, random, share) if masking else None,
            text_numbers(
                np.where(pairs.separators, -1, pairs.ids),
                pairs.firsts + pairs.seconds + 1,
            ),
        )
        for pairs in sides
    )
    return Crossed(a, b)


def _crossed(
    text: Translations,
    side: Side,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Packs one side of each example."""
    pairs, masking, numbers = side
    if masking is None:
        nothing = np.zeros(pairs.ids.shape, bool)
        masking = Masking(nothing, nothing, nothing)
    ids = hide(pairs, masking, specials)['ids'][:, None]
    return examples(
        Labelled(
            ids=ids,
            segments=np.zeros_like(ids),
            lengths=(pairs.firsts + pairs.seconds + SPECIALS)[:, None],
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
    """Makes a of `xlco`: [CLS] x1 [SEP] x2 [SEP] of two pairs.

    x2 may come first, or y be the language of a. Targets [S, J, 1] are numbers
    of the texts, weights are [S, J], places [S, J] those of [CLS].
    """
    view = _crossed(text, draw.a, rows, specials)
    truncated = text.by_sequence(text.truncated).astype(np.int32)
    return view._replace(counts={**view.counts, 'cut_translations': truncated})


def crossed_keys(
    text: Translations,
    draw: Crossed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes b of `xlco`: translations of both, in the order of `crossed`."""
    return _crossed(text, draw.b, rows, specials)


# ----------------------------------------------------------------------- specs


def draw_pairs(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of `translated`."""
    chosen = {name: settings[name] for name in ('masking', 'restart')}
    return Draw(
        'translated', translate, {**chosen, 'share': settings['mask_share']}
    )


def draw_sides(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of `crossed`."""
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
    source_args=lambda *args: {**all_text(*args), 'crossed': True},
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
