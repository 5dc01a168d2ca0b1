"""The view `parts`: a text cut into parts, each of which is encoded alone.

A row of the batch is cut into 2, 4, 8, ... parts of one length, from half of
the text to an n-gram, by turns; so all scales are there, and at each of them
every part is as long as the others. Parts come in pairs: one part twice, masked
each time anew, or two that follow each other.

Glossary of shapes: B sequences, L tokens drawn, T tokens with specials, J parts
of a row, S most of them, P masked tokens.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting
from infoword_tf.views import masking as maskings
from infoword_tf.views.masked import hide
from infoword_tf.views.masking import Masking, Windows, budget
from infoword_tf.views.view import Draw, Specials, View, ViewSpec, numbered

COPY, NEXT = BESIDE = ('copy', 'next')


class Parts(NamedTuple):
    """How texts are cut, and what of them is masked.

    Attributes:
        counts: [B] int32, J of each row.
        sizes: [B] int32, tokens of each of its parts, without specials.
        text: [B, L], part after part.
        masking: of the tokens that are in some part.
    """

    counts: np.ndarray
    sizes: np.ndarray
    text: Windows
    masking: Masking


def scales(tokens: int, shortest: int) -> list[tuple[int, int]]:
    """J, and how many tokens of text each part has, from the longest on.

    Args:
        tokens: T, of a row with [CLS] and [SEP] around each part.
        shortest: tokens of text that a part has at least, but for halves,
            which are always there.
    """
    found, count = [(2, tokens // 2 - 2)], 4
    while (size := tokens // count - 2) >= shortest:
        found.append((count, size))
        count *= 2
    return found


def cut(
    text: Windows,
    random: np.random.Generator,
    masking: str,
    share: float,
    shortest: int,
    beside: str = COPY,
) -> Parts:
    """Chooses the scale of each row, by turns, and what is masked in it.

    Args:
        text: windows.
        random: of the draw.
        masking: a name in MASKINGS.
        share: of the tokens, what is masked.
        shortest, beside: of the view.
    """
    b, length = text.ids.shape
    counts, sizes = np.array(scales(length + 2, shortest), np.int32).T
    turn = np.arange(b) % len(counts)
    counts, sizes = counts[turn], sizes[turn]
    place = np.arange(length)
    if beside == COPY:
        size = sizes[:, None]
        source = place // (2 * size) * size + place % size
        ids, starts, ends = (np.take_along_axis(x, source, 1) for x in text)
        # A word that a part cuts begins anew in it.
        text = Windows(ids, starts | (place % size == 0), ends)
    # What is in no part is no text: it is not masked.
    outside = place >= (counts * sizes)[:, None]
    inside = text._replace(separators=text.separators | outside)
    drawn = maskings.masking(masking)(inside, random, share)
    return Parts(counts, sizes, text, drawn)


def parts(
    text: Windows, draw: Parts, rows: Mapping[str, str], specials: Specials
) -> View:
    """[CLS] part [SEP] [CLS] part [SEP] ...: a text in parts, masked.

    A block for each part: positions begin anew, and attention stays inside.
    a of `part_words` at the masked pieces; a and b of `parts`, which finds in
    `targets` [B, S] numbers of parts, equal where these are. A part in which a
    document ends counts nothing there.
    """
    text = draw.text
    b, length = text.ids.shape
    slots = int(draw.counts.max())
    p = budget(length, draw.masking.share)
    place = np.arange(length + 2)
    width = (draw.sizes + 2)[:, None]  # of a part with specials
    part, within = place // width, place % width  # [B, T]
    rest = part >= draw.counts[:, None]  # in no part
    source = np.clip(part * (width - 2) + within - 1, 0, length - 1)
    shown = hide(text, draw.masking, specials)['ids'][:, 1:-1]
    ids = np.take_along_axis(shown, source, axis=1)
    ids = np.where(within == 0, specials.cls_id, ids)
    ids = np.where((within == width - 1) | rest, specials.sep_id, ids)
    fields: dict[str, dict[str, np.ndarray]] = {
        name: {} for name in ('places', 'targets', 'weights', 'measured')
    }
    for row, where in rows.items():
        if where == 'text':
            own = _numbers(text, draw, slots)
            fields['targets'][row], fields['weights'][row] = own
            continue
        if where != 'pieces':
            raise ValueError(f'{row} wants {where!r}, which parts have not')
        drawn = draw.masking
        at = np.argsort(~drawn.masked, axis=1, kind='stable')[:, :p]
        size = draw.sizes[:, None]
        there = np.take_along_axis(drawn.masked, at, axis=1)
        found = at // size * width + at % size + 1
        fields['places'][row] = np.where(there, found, 0).astype(np.int32)
        fields['targets'][row] = np.take_along_axis(text.ids, at, axis=1)
        fields['weights'][row] = there.astype(np.float32)
        hidden = np.take_along_axis(drawn.shown == 0, at, axis=1)
        fields['measured'][row] = hidden.astype(np.float32)
    return View(
        ids=ids.astype(np.int32),
        sequences=np.arange(b, dtype=np.int32),
        positions=np.where(rest, 0, within).astype(np.int32),
        block_ids=np.where(rest, slots, part).astype(np.int32),
        counts={'padding': rest.sum(axis=1).astype(np.int32)},
        **fields,
    )


def _numbers(
    text: Windows, draw: Parts, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """[B, S] int32, equal where parts are; [B, S] float32, 0 for no part."""
    b, length = text.ids.shape
    longest = int(draw.sizes.max())
    slot, within = np.arange(slots)[:, None], np.arange(longest)
    source = slot * draw.sizes[:, None, None] + within  # [B, S, longest]
    inside = within < draw.sizes[:, None, None]
    source = np.minimum(source, length - 1).reshape(b, -1)
    spelled = np.take_along_axis(text.ids, source, axis=1)
    ends = np.take_along_axis(text.separators, source, axis=1)
    ends = ends.reshape(b, slots, longest) & inside
    there = slot[:, 0] < draw.counts[:, None]
    spelled = np.where(inside, spelled.reshape(b, slots, longest), -1)
    number = numbered(spelled.reshape(b * slots, longest)).reshape(b, slots)
    return number, (there & ~ends.any(axis=2)).astype(np.float32)


def draw(settings: Mapping[str, Any]) -> Draw:
    """What is drawn: what is masked, beside the cuts."""
    names = 'masking', 'shortest', 'beside'
    chosen = {name: settings[name] for name in names}
    return Draw('parts', cut, {**chosen, 'share': settings['mask_share']})


PARTS = ViewSpec(
    make=parts,
    source='windows',
    draw=draw,
    settings={
        'shortest': Setting(
            14,
            'Parts are half of a row long, and a quarter, an eighth, ... while '
            'they have so many tokens of text.',
            at_least=1,
        ),
        'beside': Setting(
            COPY,
            'What belongs to a part: the part itself, masked anew (copy), or '
            'the one after it (next).',
            choices=BESIDE,
        ),
    },
)
