"""Views `streamed`, `neighbours`: text as it stands, which goes on in the next
step.

Glossary of shapes: B rows, n tokens that a row reads in a step, T tokens.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views.view import Specials, View, ViewSpec, all_text


class Streams(NamedTuple):
    """A global batch of the source `streams`, each row in reading order.

    Attributes:
        ids: [B, n] int32 pieces; a separator lies between documents. Rows
            begin and end anywhere, inside a word too.
        word_starts: [B, n] bool: the piece is the first that is read of its
            word; backward that is its last one.
        sentence_starts: [B, n] bool, likewise; a separator is a sentence.
        separators: [B, n] bool.
        directions: [B] int32, +1, or -1 for rows of the reversed text.
        following: [B] int32, the piece that is read next.
        again: [B] int32, how many of its first tokens the step before had
            too; None: none.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    sentence_starts: np.ndarray
    separators: np.ndarray
    directions: np.ndarray
    following: np.ndarray
    again: np.ndarray | None = None

    @property
    def tokens(self) -> np.ndarray:
        """[B] int32: tokens of text in each row that are new."""
        new = ~self.separators
        if self.again is not None:
            new &= np.arange(new.shape[1]) >= self.again[:, None]
        return new.sum(axis=1).astype(np.int32)


def streamed(
    streams: Streams, draw: None, rows: Mapping[str, str], specials: Specials
) -> View:
    """T tokens of a stream as they stand: a and b of `transformer_xl`.

    The target of every place is the token that comes next, of the last place
    the first one of the next step. A separator is a target of the loss, since
    where a text ends is part of it, but not of MI, whose p(b) has no specials
    but [UNK]; the other specials are none.
    """
    del draw
    if set(rows.values()) - {'text'}:
        raise ValueError(f'rows of this view read the text alone: {rows}')
    targets = np.hstack([streams.ids[:, 1:], streams.following[:, None]])
    never = np.isin(targets, (specials.cls_id, specials.mask_id))
    measured = targets != specials.sep_id
    return View(
        ids=streams.ids,
        sequences=np.arange(len(targets), dtype=np.int32),
        targets=dict.fromkeys(rows, targets),
        weights=dict.fromkeys(rows, 1 - never.astype(np.float32)),
        measured=dict.fromkeys(rows, measured.astype(np.float32)),
    )


def neighbours(
    streams: Streams, draw: None, rows: Mapping[str, str], specials: Specials
) -> View:
    """The same text, of which each token has two b: a and b of `elmo`.

    The targets [B, 2 T] are the token that comes next, of every place, and
    then the one before it. What is before the first place is of no weight: it
    was read in another step.
    """
    view = streamed(streams, draw, rows, specials)
    before = np.roll(streams.ids, 1, axis=1)
    there = ~np.isin(before, (specials.cls_id, specials.mask_id))
    there[:, 0] = False
    measured = before != specials.sep_id

    def both(following: dict[str, Any], preceding: np.ndarray) -> dict:
        return {
            row: np.hstack([x, preceding.astype(x.dtype)])
            for row, x in following.items()
        }

    return view._replace(
        targets=both(view.targets, before),
        weights=both(view.weights, there),
        measured=both(view.measured, measured),
    )


STREAMED = ViewSpec(make=streamed, source='streams', source_args=all_text)
NEIGHBOURS = ViewSpec(make=neighbours, source='streams', source_args=all_text)
