"""The views `masked` and `joined`: a text with its masked tokens replaced.

`masked` shows [MASK] for each token, so it shows how long an n-gram is;
`joined` shows one [MASK] for each n-gram.

Glossary of shapes: B sequences, L tokens drawn, T tokens with specials,
P masked tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf.views.masking import (
    Masking,
    Pairs,
    Windows,
    budget,
    masking,
)
from infoword_tf.views.packed import packed
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

BY_PAIR = frozenset({'pieces', 'next'})


def masked(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] x^ [SEP]: the text with its masked tokens replaced.

    a of `mlm` and `bert_nce`, at the masked pieces in the order of the text,
    and of `dim`, at [CLS]. Of pairs it is [CLS] A [SEP] B [SEP] and padding,
    both views of `nsp`; where pairs share rows, see `packed`.
    """
    b, length = text.ids.shape
    p = budget(length, draw.share)
    # Masked tokens first, in order: a stable sort of booleans.
    places = np.argsort(~draw.masked, axis=1, kind='stable')[:, :p]
    start = np.zeros((b, 1), np.int32)
    pieces = (
        (places + 1).astype(np.int32),
        np.take_along_axis(text.ids, places, axis=1).astype(np.int32),
        np.take_along_axis(draw.masked, places, axis=1).astype(np.float32),
    )
    hidden = np.take_along_axis(draw.shown == 0, places, axis=1)
    wanted = {'pieces': pieces, 'start': (start, None, None)}
    if isinstance(text, Pairs):
        labels = text.labels[:, None].astype(np.int32)
        wanted['next'] = start, labels, np.ones((b, 1), np.float32)
    elif 'next' in rows.values():
        raise ValueError(f'windows are no pairs of text: {rows}')
    seen = hide(text, draw, specials)
    counts = {}
    if isinstance(text, Pairs):
        counts['padding'] = padding_of(seen)
    if draw.shortened is not None:
        counts['shortened_spans'] = draw.shortened
    places, targets, weights = (
        {
            row: wanted[what][i]
            for row, what in rows.items()
            if wanted[what][i] is not None
        }
        for i in range(3)
    )
    view = View(
        **seen,
        sequences=np.arange(b, dtype=np.int32),
        places=places,
        targets=targets,
        weights=weights,
        measured={
            row: hidden.astype(np.float32)
            for row, what in rows.items()
            if what == 'pieces'
        },
        counts=counts,
    )
    shared = isinstance(text, Pairs) and text.slots is not None
    return packed(view, text, draw.share) if shared else view


def joined(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] x^ [SEP] with one [MASK] for each n-gram, and padding.

    a of `dim` that does not show how long b is.
    """
    if draw.starts is None:
        raise ValueError('n-grams are joined in spans: take the masking spans')
    if set(rows.values()) - {'start'}:
        raise ValueError(f'rows of a joined text read the start alone: {rows}')
    shown = hide(text, draw, specials)
    b, length = text.ids.shape
    kept = np.ones((b, length + 2), bool)
    kept[:, 1:-1] = ~draw.masked
    row, number = np.nonzero(draw.lengths)
    kept[row, draw.starts[row, number] + 1] = True
    # What is kept comes first, in order; the rest is padding, as of pairs.
    order = np.argsort(~kept, axis=1, kind='stable')
    padding = ~np.take_along_axis(kept, order, axis=1)
    fields = {
        name: np.take_along_axis(array, order, axis=1)
        for name, array in shown.items()
    }
    blocks = fields.get('block_ids', np.zeros((b, length + 2), np.int32))
    fields['ids'] = np.where(padding, specials.sep_id, fields['ids'])
    fields['block_ids'] = np.where(padding, np.int32(1), blocks)
    return View(
        **fields,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, np.zeros((b, 1), np.int32)),
        counts={'padding': padding_of(fields)},
    )


def hide(
    text: Windows | Pairs, draw: Masking, specials: Specials
) -> dict[str, np.ndarray]:
    """What an encoder sees of a masked text, by field of `View`: [B, T]."""
    b, length = text.ids.shape
    random = (draw.random * specials.size).astype(np.int32)
    shown = np.where(
        draw.shown == 0,
        specials.mask_id,
        np.where(draw.shown == 1, random, text.ids),
    )
    ids = np.full((b, length + 2), specials.sep_id, np.int32)
    ids[:, 0] = specials.cls_id
    ids[:, 1:-1] = np.where(draw.masked, shown, text.ids)
    if not isinstance(text, Pairs):
        return {'ids': ids}
    ids[:, 1:-1][text.separators] = specials.sep_id
    place = np.arange(length + 2)
    first = text.firsts[:, None] + 1  # the [SEP] between them
    last = first + text.seconds[:, None] + 1
    return {
        'ids': ids,
        'segment_ids': ((place > first) & (place <= last)).astype(np.int32),
        'block_ids': (place > last).astype(np.int32),
    }


def padding_of(seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """[B] int32: places of each row outside its first block."""
    outside = seen['block_ids'] > 0
    return outside.reshape(len(outside), -1).sum(axis=1).astype(np.int32)


def draw(settings: Mapping[str, Any]) -> Draw:
    """What is masked, as `masking` names it: alike in windows and pairs."""
    name = settings['masking']
    return Draw(name, masking(name), {'share': settings['mask_share']})


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """T - 2 tokens between [CLS] and [SEP].

    Pairs share rows where all that rows want of them can be asked for pair by
    pair.
    """
    arguments: dict[str, Any] = {'length': length - 2}
    if settings['source'] == 'pairs' and settings['where'] <= BY_PAIR:
        arguments['packed'] = True
    return arguments


MASKED = ViewSpec(
    make=masked, source='windows', draw=draw, source_args=source_args
)
JOINED = ViewSpec(make=joined, like='masked')
