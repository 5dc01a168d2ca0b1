"""Views `streamed`, `neighbours`: plain text that continues in the next step.

Glossary of shapes: n tokens that a sequence reads in a step.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views.view import (
    Specials,
    View,
    ViewSpec,
    all_text,
    require_where,
)


class Streams(NamedTuple):
    """A global batch of the source `streams`, in reading order.

    Attributes:
        ids: [B, n] int32 tokens, with a separator between documents. Sequences
            begin and end anywhere, inside a word too.
        word_starts: [B, n] bool: whether a token is the first read of its word;
            backward that is its last.
        sentence_starts: [B, n] bool, the same of sentences; a separator is a
            sentence.
        separators: [B, n] bool.
        directions: [B] int32, +1, or -1 for sequences of the reversed text.
        following: [B] int32, the token read next.
        again: [B] int32, how many of the first tokens the step before had too;
            None: none.
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
        """New tokens of text in each sequence: [B] int32."""
        new = ~self.separators
        if self.again is not None:
            new &= np.arange(new.shape[1]) >= self.again[:, None]
        return new.sum(axis=1).astype(np.int32)


def streamed(
    streams: Streams, draw: None, rows: Mapping[str, str], specials: Specials
) -> View:
    """Makes T tokens of a stream, unchanged: a and b of `transformer_xl`.

    The target of every token is the next one, of the last token the first of
    the next step. A separator is a target of the loss, since a model should
    know where a text ends, but not of MI, whose p(b) has no specials but
    [UNK]; other specials are no targets.
    """
    del draw
    require_where(rows, 'text')
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
    """Makes `streamed` with two b for each token: a and b of `elmo`.

    Targets [B, 2 T] are the next token of every token, then the previous one.
    The first token has no previous one: it was read in another step.
    """
    view = streamed(streams, draw, rows, specials)
    before = np.roll(streams.ids, 1, axis=1)
    is_target = ~np.isin(before, (specials.cls_id, specials.mask_id))
    is_target[:, 0] = False
    measured = before != specials.sep_id

    def both(following: dict[str, Any], preceding: np.ndarray) -> dict:
        return {
            row: np.hstack([x, preceding.astype(x.dtype)])
            for row, x in following.items()
        }

    return view._replace(
        targets=both(view.targets, before),
        weights=both(view.weights, is_target),
        measured=both(view.measured, measured),
    )


STREAMED = ViewSpec(make=streamed, source='streams', source_args=all_text)
NEIGHBOURS = ViewSpec(make=neighbours, source='streams', source_args=all_text)
