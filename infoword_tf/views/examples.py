"""The view `examples`: labelled texts, as many to a row as fit.

An example is K texts, most often one (two sentences that are laid out together
are one text). Each is a block of its row: positions begin anew in it and
attention stays inside, so that what an example gives does not depend on what
it shares a row with.

Glossary of shapes: B examples, K texts of each, L tokens of the longest, R
rows, J examples that a row has room for, T tokens of a row.
"""

import types
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infoword_tf.views.packed import laid_out
from infoword_tf.views.view import Specials, View, ViewSpec, all_text

FOLLOWING = 'following'  # what rows of next words want


class Labelled(NamedTuple):
    """A global batch of the source `examples`.

    Attributes:
        ids: [B, K, L] int32 with specials; anything beyond `lengths`.
        segments: [B, K, L] int32.
        lengths: [B, K] int32.
        places: [B, K] int32, of the pooled state of each text.
        numbers: [B] int32, which examples they are.
        targets: by row, [B, ...] what people say: int32, or numbers. Places
            of the text for a row that has `candidates`. A class of -1 and a
            number that is NaN are not known. Of several labels [B, C], 1 for
            those that a text has. Of pairs [B, K, G], vectors of each text
            that a guide has made.
        candidates: by row, [B, 2] int32: of a row whose candidates are places
            of the text, the first of them and the one after the last.
        slots: [R, J] int32, which of the B are in each row; -1: none.
        width: T.
        of_tokens: by row, [B, K, L, ...] what a teacher says of each token.
        positions: [B, K, L] int32 where each token stands in its text; None:
            counting from 0.
        cut: [B] bool, which examples have lost their ends; None: not counted.
        longest: tokens of the longest text of any batch; 0: it is not known.
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
    cut: np.ndarray | None = None
    longest: int = 0

    @property
    def sizes(self) -> np.ndarray:
        """[R, J] int64: tokens of the examples of each row."""
        return np.where(self.slots < 0, 0, self.lengths.sum(1)[self.slots])

    @property
    def tokens(self) -> np.ndarray:
        """[R] int32: tokens of each row, specials among them."""
        return self.sizes.sum(axis=1).astype(np.int32)


def examples(
    text: Labelled, draw: None, rows: Mapping[str, str], specials: Specials
) -> View:
    """The examples in their rows.

    Rows of the table find places [R, J K], targets and weights [R, J], and
    `sequences` [R, J], the number of each example; targets [R, T, ...] where
    they are of tokens. An example of which nobody told a row its b weighs
    nothing there. Rows of next words need no label, see `following`.
    """
    del draw
    named = {**text.targets, **text.of_tokens}
    labelled = [row for row, wanted in rows.items() if wanted != FOLLOWING]
    if lacking := [row for row in labelled if row not in named]:
        known = ', '.join(named)
        raise ValueError(
            f'{", ".join(lacking)}: these examples are labelled for {known}'
        )
    b, k, longest = text.ids.shape
    empty = text.slots < 0  # [R, J]
    slots = np.where(empty, 0, text.slots)
    r, j = slots.shape
    texts = (slots[:, :, None] * k + np.arange(k)).reshape(r, j * k)
    sizes = text.lengths.reshape(-1)[texts]
    sizes = np.where(np.repeat(empty, k, axis=1), 0, sizes)
    begins = np.cumsum(sizes, axis=1) - sizes  # [R, J K]
    number, column, block = laid_out(texts, sizes, text.width)
    left_over = block == j * k
    column = np.where(left_over, 0, np.minimum(column, longest - 1))
    ids = text.ids.reshape(b * k, longest)[number, column]
    ids = np.where(left_over, specials.sep_id, ids).astype(np.int32)
    segments = text.segments.reshape(b * k, longest)[number, column]
    positions = column
    if text.positions is not None:
        positions = text.positions.reshape(b * k, longest)[number, column]
    places = text.places.reshape(-1)[texts]
    places = np.where(sizes > 0, begins + places, 0).astype(np.int32)
    weights = np.where(empty, 0, 1).astype(np.float32)
    first = begins.reshape(r, j, k)[:, :, 0]  # where each example begins

    targets, candidates, told, measured = {}, {}, {}, {}
    for row in rows:
        if rows[row] == FOLLOWING:
            targets[row], told[row], measured[row] = following(
                ids, np.where(left_over, -1, block), specials
            )
            continue
        told[row] = weights
        if row in text.of_tokens:
            found = text.of_tokens[row]
            found = found.reshape(b * k, longest, *found.shape[3:])
            targets[row] = found[number, column]  # [R, T, ...]
            continue
        found = text.targets[row][slots]  # [R, J, ...]
        if found.ndim == 2 or found.dtype.kind == 'i':
            # Of several labels all are known, or none.
            known = is_known(found).reshape(r, j, -1).any(axis=2)
            mask = known.reshape(r, j, *[1] * (found.ndim - 2))
            found, told[row] = np.where(mask, found, 0), weights * known
        if row in text.candidates:
            found = np.where(empty[:, :, None], 0, found + first[:, :, None])
            begin, end = np.moveaxis(text.candidates[row][slots], -1, 0)
            slot = np.minimum(block // k, j - 1)
            inside = (column >= np.take_along_axis(begin, slot, axis=1)) & (
                column < np.take_along_axis(end, slot, axis=1)
            )
            inside &= ~left_over
            candidates[row] = np.where(inside, slot, -1).astype(np.int32)
        targets[row] = found.astype(text.targets[row].dtype)
    return View(
        ids=ids,
        sequences=np.where(empty, -1, text.numbers[slots]).astype(np.int32),
        positions=positions.astype(np.int32),
        segment_ids=np.where(left_over, 0, segments).astype(np.int32),
        block_ids=block.astype(np.int32),
        places={
            row: places for row in rows if rows[row] not in ('text', FOLLOWING)
        },
        targets=targets,
        weights=told,
        measured=measured,
        candidates=candidates,
        counts={'padding': left_over.sum(axis=1).astype(np.int32)},
    )


def following(
    ids: np.ndarray, texts: np.ndarray, specials: Specials
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What comes after each token of a text: b of rows of next words.

    Every token but the first is a target of the loss, with the special pieces
    between and after the texts (Radford et al. 2018, §3.2); those are none of
    MI, whose p(b) has no specials but [UNK].

    Args:
        ids: [R, T] int32.
        texts: [R, T], of which text each token is; -1: of none.
        specials: of the vocabulary.

    Returns:
        [R, T] each: targets int32, weights and what is measured float32.
    """
    targets = np.roll(ids, -1, axis=1)
    there = (np.roll(texts, -1, axis=1) == texts) & (texts >= 0)
    there[:, -1] = False  # after it is the row's first
    special = (specials.cls_id, specials.sep_id, specials.mask_id)
    measured = ~np.isin(targets, special)
    return targets, there.astype(np.float32), measured.astype(np.float32)


def is_known(targets: np.ndarray) -> np.ndarray:
    """Which classes, or numbers, [...] somebody has told: the same, bool."""
    if targets.dtype.kind == 'f':
        return np.isfinite(targets)
    return targets >= 0


def by_example(values: np.ndarray, view: View) -> np.ndarray:
    """What there is of each slot, [R, J, ...], by example: [n, ...]."""
    number = view.sequences.ravel()
    values = values.reshape(-1, *values.shape[2:])
    found = np.empty((number.max() + 1, *values.shape[1:]), values.dtype)
    found[number[number >= 0]] = values[number >= 0]
    return found


EXAMPLES = ViewSpec(
    make=examples, source='examples', source_args=all_text, any_encoder=True
)
