"""Packing: several texts in one sequence, each a block.

`packed` packs pairs, as many to a sequence as fit; `folded` packs two texts to
a sequence, of a fixed number a batch.

Glossary of shapes: n texts, S sequences, J texts that a sequence has room for,
P places.
"""

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.views.masking import MASKED_SHARE, Pairs, packed_budget
from infoword_tf.views.view import View


def packed(view: View, pairs: Pairs, share: float = MASKED_SHARE) -> View:
    """Packs a view of pairs [n, T] into sequences [S, T].

    Each pair is a block: positions restart and attention stays inside. Block J
    is padding. Places, targets and weights of a sequence are those of its
    pairs, in order. `share` is that of masked tokens.
    """
    if alone := set(view.places) - set(view.weights):
        raise InputError(
            'pairs_without_start',
            f'{", ".join(sorted(alone))}: rows that pairs share have no one '
            'start',
        )
    tokens = view.ids.shape[1]
    sequences, slots = pairs.slots.shape
    sizes = pairs.by_slot(pairs.firsts + pairs.seconds + 3)  # with specials
    begins = np.cumsum(sizes, axis=1) - sizes
    pair = pairs.by_slot(np.arange(len(pairs.ids)))
    pair, column, slot = side_by_side(pair, sizes, tokens)
    is_padding = slot == slots

    # Places with a weight first, at most `max_tokens` of a sequence.
    max_tokens = packed_budget(tokens, slots, share)
    order = {
        row: np.argsort(
            _of_sequence(pairs, weights) == 0, axis=1, kind='stable'
        )[:, :max_tokens]
        for row, weights in view.weights.items()
    }

    def gathered(field: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            row: np.take_along_axis(_of_sequence(pairs, x), order[row], axis=1)
            for row, x in field.items()
        }

    begin = begins[pairs.slots].astype(np.int32)[:, None]
    counts = {
        name: pairs.by_slot(x).sum(axis=1, dtype=np.int32)
        for name, x in view.counts.items()
    }
    return View(
        ids=view.ids[pair, column],
        sequences=np.arange(sequences, dtype=np.int32),
        positions=np.where(is_padding, 0, column).astype(np.int32),
        segment_ids=np.where(is_padding, 0, view.segment_ids[pair, column]),
        block_ids=slot.astype(np.int32),
        places=gathered({row: x + begin for row, x in view.places.items()}),
        targets=gathered(view.targets),
        weights=gathered(view.weights),
        measured=gathered(view.measured),
        counts=counts | {'padding': is_padding.sum(axis=1, dtype=np.int32)},
    )


def side_by_side(
    texts: np.ndarray, sizes: np.ndarray, tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes text, offset and slot of every token of packed sequences.

    Args:
        texts: [S, J], numbers of the texts of each sequence.
        sizes: [S, J], tokens of each text; 0 in an empty slot.
        tokens: T.

    Returns:
        [S, T] each: number of the text, index in the text, and slot. Padding
        has slot J and index T - 1 of the last text, a separator.
    """
    ends = np.cumsum(sizes, axis=1)
    place = np.arange(tokens)
    slot = (place[:, None] >= ends[:, None]).sum(axis=2)
    at = np.minimum(slot, sizes.shape[1] - 1)
    column = place - np.take_along_axis(ends - sizes, at, axis=1)
    column[slot == sizes.shape[1]] = tokens - 1
    return np.take_along_axis(texts, at, axis=1), column, slot


def folded(sizes: np.ndarray, count: int) -> np.ndarray:
    """Pairs texts that share a sequence: the longest with the shortest.

    No other choice has a lower largest sum, so all fit if any choice fits.

    Returns:
        Of sizes [..., n] and S, numbers of texts [..., S, 2], the longer one
        first; -1 for none.
    """
    order = np.argsort(-sizes, axis=-1, kind='stable')
    empty = np.full((*order.shape[:-1], 2 * count - order.shape[-1]), -1)
    order = np.concatenate([order, empty], axis=-1)
    return np.stack([order[..., :count], order[..., :count-1:-1]], axis=-1)


def fewest_sequences(sizes: np.ndarray, max_tokens: int) -> int:
    """Returns the least S, at most n, with which sizes [..., n] fit into T."""
    n = sizes.shape[1]
    padded = np.pad(sizes, ((0, 0), (0, 1)))  # -1 is a text without tokens
    for count in range(-(-n // 2), n):
        slots = folded(sizes, count).reshape(len(sizes), -1)
        sums = np.take_along_axis(padded, slots % (n + 1), axis=1)
        if sums.reshape(len(sizes), count, 2).sum(axis=2).max() <= max_tokens:
            return count
    return n


def _of_sequence(pairs: Pairs, values: np.ndarray) -> np.ndarray:
    """Joins values of pairs [n, P] by sequence: [S, J P], 0 in empty slots."""
    return pairs.by_slot(values).reshape(len(pairs.slots), -1)
