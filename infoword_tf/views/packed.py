"""Texts that share rows: what a view makes of each, put side by side.

`packed` does so with pairs, as many to a row as fit; `folded` with texts of
which a batch has a fixed number, two to a row.

Glossary of shapes: B texts, R rows, J texts that a row has room for, T tokens
of a row with specials, P places.
"""

import numpy as np

from infoword_tf.views.masking import MASKED_SHARE, Pairs, packed_budget
from infoword_tf.views.view import View


def packed(view: View, pairs: Pairs, share: float = MASKED_SHARE) -> View:
    """Rows [R, T] of a view [B, T] that has a row for each pair.

    A block for each pair: positions begin anew in it and attention stays
    inside. Block J is what is left over. Of each pair there is all that it
    has alone, in the order of its row.

    Args: share: of the tokens, what is masked.
    """
    if alone := set(view.places) - set(view.weights):
        raise ValueError(
            f'{", ".join(sorted(alone))}: rows that pairs share have no one '
            'start'
        )
    tokens = view.ids.shape[1]
    rows, slots = pairs.slots.shape
    sizes = pairs.by_slot(pairs.firsts + pairs.seconds + 3)  # with specials
    begins = np.cumsum(sizes, axis=1) - sizes
    pair = pairs.by_slot(np.arange(len(pairs.ids)))
    pair, column, slot = laid_out(pair, sizes, tokens)
    left_over = slot == slots

    # What a row of the table wants of each pair, first what counts.
    max_tokens = packed_budget(tokens, slots, share)
    order = {
        row: np.argsort(
            _of_row(pairs, weights) == 0, axis=1, kind='stable'
        )[:, :max_tokens]
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


def laid_out(
    texts: np.ndarray, sizes: np.ndarray, tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which place of which text stands where.

    Args:
        texts: [R, J], numbers of the texts of each row.
        sizes: [R, J], how many tokens of each there are; 0 of none.
        tokens: T.

    Returns:
        [R, T] the text of each place, the place there, and its slot. Slot J is
        what is left over; it has the text's last place, a separator.
    """
    ends = np.cumsum(sizes, axis=1)
    place = np.arange(tokens)
    slot = (place[:, None] >= ends[:, None]).sum(axis=2)
    at = np.minimum(slot, sizes.shape[1] - 1)
    column = place - np.take_along_axis(ends - sizes, at, axis=1)
    column[slot == sizes.shape[1]] = tokens - 1
    return np.take_along_axis(texts, at, axis=1), column, slot


def folded(sizes: np.ndarray, rows: int) -> np.ndarray:
    """Which texts share a row, two of them: the longest with the shortest.

    No other choice has a lower largest sum, so all fit if they ever do.

    Returns:
        [..., R, 2] numbers of texts, the longer one first; -1 for none.
    """
    order = np.argsort(-sizes, axis=-1, kind='stable')
    empty = np.full((*order.shape[:-1], 2 * rows - order.shape[-1]), -1)
    order = np.concatenate([order, empty], axis=-1)
    return np.stack([order[..., :rows], order[..., :rows-1:-1]], axis=-1)


def fewest_rows(sizes: np.ndarray, max_tokens: int) -> int:
    """R with which the texts, [n, B] tokens, of all batches fit, folded: B at
    most.
    """
    b = sizes.shape[1]
    padded = np.pad(sizes, ((0, 0), (0, 1)))  # -1 is a text of nothing
    for rows in range(-(-b // 2), b):
        slots = folded(sizes, rows).reshape(len(sizes), -1)
        sums = np.take_along_axis(padded, slots % (b + 1), axis=1)
        if sums.reshape(len(sizes), rows, 2).sum(axis=2).max() <= max_tokens:
            return rows
    return b


def _of_row(pairs: Pairs, values: np.ndarray) -> np.ndarray:
    """[B, P] -> [R, J P], 0 where a row has no pair."""
    return pairs.by_slot(values).reshape(len(pairs.slots), -1)
