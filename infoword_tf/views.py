"""Views: what a and b of a row look like as token ids.

A view is a function in VIEWS: NumPy over the whole global batch, static
shapes, pure in the tokens and the draw (see `sampling.py`).

Glossary of shapes: B sequences, L tokens drawn, T = L + 2 tokens with
specials, P places.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import sampling


class View(NamedTuple):
    """One view of the global batch, as an encoder takes it.

    Attributes:
        ids: [B, T] int32.
        sequences: [B] int32: the number of the text each row is made from;
            candidates of the same text are no negatives.
        positions, segment_ids, block_ids: [B, T] int32, or None for counting
            from 0, for 0 everywhere, for one block.
        places: by row, [B, P] int32: where its states are.
        targets: by row, [B, P] int32: what is there in truth.
        weights: by row, [B, P] float32: 0 where a place is padding.
        counts: by name, [B] int32: what is worth counting in the metrics.
    """

    ids: Any
    sequences: Any
    positions: Any = None
    segment_ids: Any = None
    block_ids: Any = None
    places: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    counts: dict[str, Any] = {}


class Specials(NamedTuple):
    """What views need to know of the vocabulary."""

    cls_id: int
    sep_id: int
    mask_id: int
    size: int


def masked(
    windows: sampling.Windows,
    draw: sampling.Masking,
    rows: Sequence[str],
    specials: Specials,
) -> View:
    """[CLS] x^ [SEP]: the text with its hidden tokens replaced.

    a of `mlm`, `bert_nce` and `dim`. Places are in the order of the text.
    """
    b, length = windows.ids.shape
    p = sampling.budget(length)
    random = (draw.random * specials.size).astype(np.int32)
    shown = np.where(
        draw.shown == 0,
        specials.mask_id,
        np.where(draw.shown == 1, random, windows.ids),
    )
    ids = np.empty((b, length + 2), np.int32)
    ids[:, 0], ids[:, -1] = specials.cls_id, specials.sep_id
    ids[:, 1:-1] = np.where(draw.hidden, shown, windows.ids)
    # Hidden tokens first, in order: a stable sort of booleans.
    places = np.argsort(~draw.hidden, axis=1, kind='stable')[:, :p]
    targets = np.take_along_axis(windows.ids, places, axis=1)
    weights = np.take_along_axis(draw.hidden, places, axis=1)
    counts = {}
    if draw.shortened is not None:
        counts['shortened_spans'] = draw.shortened
    return View(
        ids=ids,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, (places + 1).astype(np.int32)),
        targets=dict.fromkeys(rows, targets.astype(np.int32)),
        weights=dict.fromkeys(rows, weights.astype(np.float32)),
        counts=counts,
    )


VIEWS = {'masked': masked}


def flatten(views: dict[str, View]) -> dict[str, Any]:
    """Views as one flat dict, 'masked/targets/mlm' and the like."""
    flat = {}
    for name, view in views.items():
        for field, value in view._asdict().items():
            if isinstance(value, dict):
                for part, array in value.items():
                    flat[f'{name}/{field}/{part}'] = array
            elif value is not None:
                flat[f'{name}/{field}'] = value
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, View]:
    """What `flatten` was given."""
    fields: dict[str, dict[str, Any]] = {}
    for path, array in flat.items():
        name, field, *part = path.split('/')
        view = fields.setdefault(name, {})
        if part:
            view.setdefault(field, {})[part[0]] = array
        else:
            view[field] = array
    return {name: View(**view) for name, view in fields.items()}
