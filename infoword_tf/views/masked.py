"""The view `masked`: [CLS] x^ [SEP], a text with its masked tokens replaced.

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
from infoword_tf.views.view import Draw, Specials, View, ViewSpec


def masked(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] x^ [SEP]: the text with its masked tokens replaced.

    a of `mlm` and `bert_nce`, at the masked pieces in the order of the text,
    and of `dim`, at [CLS]. Of pairs it is [CLS] A [SEP] B [SEP] and padding,
    both views of `nsp`.

    Raises:
        ValueError: a row wants to know of windows what follows.
    """
    b, length = text.ids.shape
    p = budget(length)
    # Masked tokens first, in order: a stable sort of booleans.
    places = np.argsort(~draw.masked, axis=1, kind='stable')[:, :p]
    start = np.zeros((b, 1), np.int32)
    pieces = (
        (places + 1).astype(np.int32),
        np.take_along_axis(text.ids, places, axis=1).astype(np.int32),
        np.take_along_axis(draw.masked, places, axis=1).astype(np.float32),
    )
    wanted = {'pieces': pieces, 'start': (start, None, None)}
    if isinstance(text, Pairs):
        labels = text.labels[:, None].astype(np.int32)
        wanted['next'] = start, labels, np.ones((b, 1), np.float32)
    elif 'next' in rows.values():
        raise ValueError(f'windows are no pairs of text: {rows}')
    counts = {}
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
    return View(
        **hide(text, draw, specials),
        sequences=np.arange(b, dtype=np.int32),
        places=places,
        targets=targets,
        weights=weights,
        counts=counts,
    )


def hide(
    text: Windows | Pairs,
    draw: Masking,
    specials: Specials,
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


def draw(settings: Mapping[str, Any]) -> Draw:
    """What is masked, as `masking` names it: alike in windows and pairs."""
    name = settings['masking']
    return Draw(name, masking(name))


MASKED = ViewSpec(make=masked, source='windows', draw=draw)
