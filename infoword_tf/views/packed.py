"""Pairs that share rows: what `masked` makes of each, put side by side.

Glossary of shapes: B pairs, R rows, J pairs that a row has room for, T tokens
of a row with specials, P places.
"""

import numpy as np

from infoword_tf.views.masking import Pairs, packed_budget
from infoword_tf.views.view import View


def packed(view: View, pairs: Pairs) -> View:
    """Rows [R, T] of a view [B, T] that has a row for each pair.

    A block for each pair: positions begin anew in it and attention stays
    inside. Block J is what is left over. Of each pair there is all that it
    has alone, in the order of its row.

    Args:
        view: `masked` of pairs, before they share rows.
        pairs: its text, with `slots`.

    Raises:
        ValueError: a row wants one state for all of a text.
    """
    if alone := set(view.places) - set(view.weights):
        raise ValueError(
            f'{", ".join(sorted(alone))}: rows that pairs share have no one '
            'start'
        )
    tokens = view.ids.shape[1]
    rows, slots = pairs.slots.shape
    sizes = pairs.by_slot(pairs.firsts + pairs.seconds + 3)  # with specials
    ends = np.cumsum(sizes, axis=1)
    begins = ends - sizes
    place = np.arange(tokens)
    slot = (place[:, None] >= ends[:, None]).sum(axis=2)  # [R, T]
    left_over = slot == slots
    at = np.minimum(slot, slots - 1)
    pair = pairs.by_slot(np.arange(len(pairs.ids)))
    pair = np.take_along_axis(pair, at, axis=1)
    column = place - np.take_along_axis(begins, at, axis=1)
    column[left_over] = tokens - 1  # a separator, whatever the pair

    # What a row of the table wants of each pair, first what counts.
    room = packed_budget(tokens, slots)
    order = {
        row: np.argsort(
            _of_row(pairs, weights) == 0, axis=1, kind='stable'
        )[:, :room]
        for row, weights in view.weights.items()
    }

    def gathered(field: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            row: np.take_along_axis(_of_row(pairs, x), order[row], axis=1)
            for row, x in field.items()
        }

    begin = begins[pairs.slots].astype(np.int32)[:, None]
    counts = {
        name: pairs.by_slot(x).sum(axis=1, dtype=np.int32)
        for name, x in view.counts.items()
    }
    return View(
        ids=view.ids[pair, column],
        sequences=np.arange(rows, dtype=np.int32),
        positions=np.where(left_over, 0, column).astype(np.int32),
        segment_ids=np.where(left_over, 0, view.segment_ids[pair, column]),
        block_ids=slot.astype(np.int32),
        places=gathered({row: x + begin for row, x in view.places.items()}),
        targets=gathered(view.targets),
        weights=gathered(view.weights),
        measured=gathered(view.measured),
        counts=counts | {'padding': left_over.sum(axis=1, dtype=np.int32)},
    )


def _of_row(pairs: Pairs, values: np.ndarray) -> np.ndarray:
    """[B, P] -> [R, J P], 0 where a row has no pair."""
    return pairs.by_slot(values).reshape(len(pairs.slots), -1)
