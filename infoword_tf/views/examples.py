"""The view `examples`: labelled texts, as many to a sequence as fit.

An example is k texts, most often one (two sentences that are formatted together
are one text). Each text is a block of its sequence: positions restart and
attention stays inside, so that its states do not depend on the other texts of
the sequence.

Glossary of shapes: n examples, k texts of each, C tokens of the longest,
S sequences, J examples that a sequence has room for.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.views.masked import side_by_side
from infoword_tf.views.view import Specials, View, ViewSpec, all_text

MULTIPLE = 8  # T is a multiple of it
FOLLOWING = 'following'  # `Reads.where` of rows of next tokens
UNKNOWN = -1  # in place of the number of a class
UNLABELLED = -2  # of a word, which a teacher labels


class Labelled(NamedTuple):
    """A global batch of the source `examples`.

    Attributes:
        ids: [n, k, C] int32 with specials; anything beyond `lengths`.
        segments: [n, k, C] int32.
        lengths: [n, k] int32.
        places: [n, k] int32, of the pooled state of each text.
        numbers: [n] int32, of the examples in their table.
        targets: labels [n, ...] by row: classes int32 (-1: unknown) or numbers
            (NaN: unknown). Of several labels [n, labels], 1 for those of a
            text. Of rows with `candidates`, places of the text. Of pairs
            [n, k, G], the guide's vectors of each text.
        candidates: places by row, [n, 2] int32, where candidates are places of
            the text: the first of them and the one after the last.
        slots: [S, J] int32, the example in each slot of a sequence; -1: none.
        width: T.
        of_tokens: b of each token, by row, [n, k, C, ...]: a teacher's outputs,
            or classes int32 (-1: unknown, -2: that of an unlabelled word).
        positions: [n, k, C] int32, of each token; None: counting from 0.
        truncated: [n] bool, whether an example was; None: not counted.
        longest: tokens of the longest text of any batch; 0: unknown.
        hidden: [n, k, C] int32, 1 for tokens that no token attends to; None:
            there are none.
        joining: `pair_candidates.Joining` of texts that are joined; None: they
            are not.
    """

    ids: np.ndarray
    segments: np.ndarray
    lengths: np.ndarray
    places: np.ndarray
    numbers: np.ndarray
    targets: dict[str, np.ndarray]
    candidates: dict[str, np.ndarray]
    slots: np.ndarray
    width: int
    of_tokens: Mapping[str, np.ndarray] = types.MappingProxyType({})
    positions: np.ndarray | None = None
    truncated: np.ndarray | None = None
    longest: int = 0
    hidden: np.ndarray | None = None
    joining: Any = None

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of the example in each slot: [S, J] int64."""
        return np.where(self.slots < 0, 0, self.lengths.sum(1)[self.slots])

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of each sequence, with specials: [S] int32."""
        return self.sizes.sum(axis=1).astype(np.int32)


def examples(
    text: Labelled, draw: None, rows: Mapping[str, str], specials: Specials
) -> View:
    """Packs examples into sequences.

    Rows get places [S, J k], targets and weights [S, J], or targets [S, T, ...]
    of tokens (of classes weights, too); `sequences` [S, J] are the examples'
    numbers. An example or a token without a row's label has weight 0 there.
    Rows of next tokens need no label, see `following`.
    """
    del draw
    _check_labels(text, rows)
    n, k, longest = text.ids.shape
    empty = text.slots < 0  # [S, J]
    slots = np.where(empty, 0, text.slots)
    s, j = slots.shape
    texts = (slots[:, :, None] * k + np.arange(k)).reshape(s, j * k)
    sizes = text.lengths.reshape(-1)[texts]
    sizes = np.where(np.repeat(empty, k, axis=1), 0, sizes)
    begins = np.cumsum(sizes, axis=1) - sizes  # [S, J k]
    number, column, block = side_by_side(texts, sizes, text.width)
    is_padding = block == j * k
    column = np.where(is_padding, 0, np.minimum(column, longest - 1))
    ids = text.ids.reshape(n * k, longest)[number, column]
    ids = np.where(is_padding, specials.sep_id, ids).astype(np.int32)
    segments = text.segments.reshape(n * k, longest)[number, column]
    positions = column
    if text.positions is not None:
        positions = text.positions.reshape(n * k, longest)[number, column]
    hidden = text.hidden
    if hidden is not None:
        hidden = hidden.reshape(n * k, longest)[number, column]
        hidden = np.where(is_padding, 0, hidden).astype(np.int32)
    places = text.places.reshape(-1)[texts]
    places = np.where(sizes > 0, begins + places, 0).astype(np.int32)
    is_example = np.where(empty, 0, 1).astype(np.float32)
    first = begins.reshape(s, j, k)[:, :, 0]  # first token of each example

    targets, candidates, weights, measured = {}, {}, {}, {}
    for row in rows:
        if rows[row] == FOLLOWING:
            targets[row], weights[row], measured[row] = following(
                ids, np.where(is_padding, -1, block), specials
            )
            continue
        weights[row] = is_example
        if row in text.of_tokens:
            labels = text.of_tokens[row]
            labels = labels.reshape(n * k, longest, *labels.shape[3:])
            labels = labels[number, column]  # [S, T, ...]
            if labels.dtype.kind == 'i':  # of classes
                labels = np.where(is_padding, UNKNOWN, labels)
                weights[row] = is_known(labels).astype(np.float32)
            targets[row] = labels
            continue
        labels, known = _without_unknown(text.targets[row][slots])
        weights[row] = is_example * known
        if row in text.candidates:
            labels = np.where(empty[:, :, None], 0, labels + first[:, :, None])
            slot = np.minimum(block // k, j - 1)
            inside = _inside(text.candidates[row][slots], column, slot)
            inside &= ~is_padding
            candidates[row] = np.where(inside, slot, -1).astype(np.int32)
        targets[row] = labels.astype(text.targets[row].dtype)
    return View(
        ids=ids,
        sequences=np.where(empty, -1, text.numbers[slots]).astype(np.int32),
        positions=positions.astype(np.int32),
        segment_ids=np.where(is_padding, 0, segments).astype(np.int32),
        block_ids=block.astype(np.int32),
        places={
            row: places for row in rows if rows[row] not in ('text', FOLLOWING)
        },
        targets=targets,
        weights=weights,
        measured=measured,
        candidates=candidates,
        hidden=hidden,
        counts={'padding': is_padding.sum(axis=1).astype(np.int32)},
    )


def _check_labels(text: Labelled, rows: Mapping[str, str]) -> None:
    """Raises if the examples have no labels of a row that needs labels."""
    labelled = {**text.targets, **text.of_tokens}
    needed = [row for row, where in rows.items() if where != FOLLOWING]
    if unlabelled := [row for row in needed if row not in labelled]:
        raise InputError(
            'examples_of_other_rows',
            f'{", ".join(unlabelled)}: these examples are labelled for '
            f'{", ".join(labelled)}',
        )


def _without_unknown(labels: np.ndarray) -> tuple[np.ndarray, Any]:
    """Zeroes unknown labels [S, J, ...]; returns which [S, J] are known."""
    if labels.ndim > 2 and labels.dtype.kind != 'i':
        return labels, True
    # Of several labels all are known, or none.
    known = is_known(labels).reshape(*labels.shape[:2], -1).any(axis=2)
    mask = known.reshape(*known.shape, *[1] * (labels.ndim - 2))
    return np.where(mask, labels, 0), known


def _inside(
    bounds: np.ndarray, column: np.ndarray, slot: np.ndarray
) -> np.ndarray:
    """Tells which indices [S, T] are within the bounds [S, J, 2] of a slot."""
    begin, end = (
        np.take_along_axis(x, slot, axis=1) for x in np.moveaxis(bounds, -1, 0)
    )
    return (column >= begin) & (column < end)


def following(
    ids: np.ndarray, texts: np.ndarray, specials: Specials
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the next token of each token of a text: b of rows of next tokens.

    Every token but the first is a target of the loss, special tokens between
    and after the texts too (Radford et al. 2018, §3.2). MI does not count the
    latter: its p(b) has no specials but [UNK].

    Args:
        ids: [S, T] int32.
        texts: [S, T], number of each token's text; -1: padding.
        specials: properties of the vocabulary.

    Returns:
        [S, T] each: targets int32, weights and `measured` float32.
    """
    targets = np.roll(ids, -1, axis=1)
    has_next = (np.roll(texts, -1, axis=1) == texts) & (texts >= 0)
    has_next[:, -1] = False  # `roll` moves the first token behind the last
    special = (specials.cls_id, specials.sep_id, specials.mask_id)
    measured = ~np.isin(targets, special)
    return targets, has_next.astype(np.float32), measured.astype(np.float32)


def is_known(targets: np.ndarray) -> np.ndarray:
    """Tells which classes or numbers [...] are known: [...] bool."""
    if targets.dtype.kind == 'f':
        return np.isfinite(targets)
    return targets >= 0


def by_example(values: np.ndarray, view: View) -> np.ndarray:
    """Orders values of slots [S, J, ...] by number of the example: [n, ...]."""
    number = view.sequences.ravel()
    values = values.reshape(-1, *values.shape[2:])
    result = np.empty((number.max() + 1, *values.shape[1:]), values.dtype)
    result[number[number >= 0]] = values[number >= 0]
    return result


def by_token(values: np.ndarray, view: View) -> np.ndarray:
    """Orders values of tokens [S, T, ...] by example, each of one text.

    Returns:
        [tokens of all examples, ...], in the order of examples and tokens.
    """
    slots = view.sequences.shape[1]
    real = view.block_ids < slots
    slot = np.minimum(view.block_ids, slots - 1)
    number = np.take_along_axis(view.sequences, slot, axis=1)
    return values[real][np.argsort(number[real], kind='stable')]


EXAMPLES = ViewSpec(
    make=examples, source='examples', source_args=all_text, any_encoder=True
)
