"""The views `masked` and `joined`: a text whose masked tokens are replaced.

`masked` shows one [MASK] for each token, and with it how long an n-gram is;
`joined` shows one [MASK] for each n-gram.

Glossary of shapes: P masked tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.views.masking import (
    Masking,
    Pairs,
    Windows,
    budget,
    masking,
)
from infoword_tf.views.packed import packed
from infoword_tf.views.view import (
    Draw,
    Specials,
    View,
    ViewSpec,
    require_where,
)

# `Reads.where` that pairs which share a sequence can answer.
BY_PAIR = frozenset({'tokens', 'next'})


def masked(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] x^ [SEP]: a text whose masked tokens are replaced.

    a of `mlm` and `bert_nce`, at the masked tokens in the order of the text,
    and of `dim`, at [CLS]. Of pairs it is [CLS] A [SEP] B [SEP] and padding,
    both views of `nsp`; where pairs share sequences, see `packed`.
    """
    b, length = text.ids.shape
    p = budget(length, draw.share)
    # Masked tokens first, in order: a stable sort of booleans.
    places = np.argsort(~draw.masked, axis=1, kind='stable')[:, :p]
    start = np.zeros((b, 1), np.int32)
    tokens = (
        (places + 1).astype(np.int32),
        np.take_along_axis(text.ids, places, axis=1).astype(np.int32),
        np.take_along_axis(draw.masked, places, axis=1).astype(np.float32),
    )
    hidden = np.take_along_axis(draw.shown == 0, places, axis=1)
    # Places, targets and weights, by `Reads.where`.
    fields = {'tokens': tokens, 'start': (start, None, None)}
    if isinstance(text, Pairs):
        labels = text.labels[:, None].astype(np.int32)
        fields['next'] = start, labels, np.ones((b, 1), np.float32)
    elif 'next' in rows.values():
        raise InputError(
            'windows_without_pairs', f'windows are no pairs of text: {rows}'
        )
    inputs = hide(text, draw, specials)
    counts = {}
    if isinstance(text, Pairs):
        counts['padding'] = padding_of(inputs)
    if draw.shortened is not None:
        counts['shortened_spans'] = draw.shortened
    places, targets, weights = (
        {
            row: fields[where][i]
            for row, where in rows.items()
            if fields[where][i] is not None
        }
        for i in range(3)
    )
    view = View(
        **inputs,
        sequences=np.arange(b, dtype=np.int32),
        places=places,
        targets=targets,
        weights=weights,
        measured={
            row: hidden.astype(np.float32)
            for row, where in rows.items()
            if where == 'tokens'
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
    """Makes [CLS] x^ [SEP] with one [MASK] for each n-gram, and padding.

    This a of `dim` does not show how long b is.
    """
    if draw.starts is None:
        raise InputError(
            'joined_without_spans',
            'n-grams are joined in spans: take the masking spans',
        )
    require_where(rows, 'start')
    inputs = hide(text, draw, specials)
    b, length = text.ids.shape
    stays = np.ones((b, length + 2), bool)
    stays[:, 1:-1] = ~draw.masked
    sequence, number = np.nonzero(draw.lengths)
    stays[sequence, draw.starts[sequence, number] + 1] = True
    # Tokens that stay come first, in order; the rest is padding.
    order = np.argsort(~stays, axis=1, kind='stable')
    padding = ~np.take_along_axis(stays, order, axis=1)
    fields = {
        name: np.take_along_axis(array, order, axis=1)
        for name, array in inputs.items()
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
    """Returns the inputs [B, T] of a masked text, by field of `View`."""
    b, length = text.ids.shape
    random = (draw.random * specials.size).astype(np.int32)
    replaced = np.where(
        draw.shown == 0,
        specials.mask_id,
        np.where(draw.shown == 1, random, text.ids),
    )
    ids = np.full((b, length + 2), specials.sep_id, np.int32)
    ids[:, 0] = specials.cls_id
    ids[:, 1:-1] = np.where(draw.masked, replaced, text.ids)
    if not isinstance(text, Pairs):
        return {'ids': ids}
    ids[:, 1:-1][text.separators] = specials.sep_id
    place = np.arange(length + 2)
    first = text.firsts[:, None] + 1  # the [SEP] between A and B
    last = first + text.seconds[:, None] + 1
    return {
        'ids': ids,
        'segment_ids': ((place > first) & (place <= last)).astype(np.int32),
        'block_ids': (place > last).astype(np.int32),
    }


def padding_of(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Counts the tokens of each sequence outside the first block: [B] int32."""
    outside = inputs['block_ids'] > 0
    return outside.reshape(len(outside), -1).sum(axis=1).astype(np.int32)


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of a masking by name, for windows and pairs."""
    name = settings['masking']
    return Draw(name, masking(name), {'share': settings['mask_share']})


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for T - 2 tokens between [CLS] and [SEP].

    Pairs share sequences where all rows can read them pair by pair.
    """
    arguments: dict[str, Any] = {'length': length - 2}
    if settings['source'] == 'pairs' and settings['where'] <= BY_PAIR:
        arguments['packed'] = True
    return arguments


MASKED = ViewSpec(
    make=masked, source='windows', draw=draw, source_args=source_args
)
JOINED = ViewSpec(make=joined, like='masked')
