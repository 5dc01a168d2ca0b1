"""The view `pair_candidates`: a text and each of its candidates as one.

    [CLS] a [SEP] b [SEP] for b, for b of other examples of the batch, which are
    drawn, and for the negatives of the example itself

The draw is that of the view `sentences`, whose settings these are.

Of an example M candidates are joined with a: b, those that are drawn, and its
k - 2 negatives.

Glossary of shapes: n examples, k texts of each, C tokens of the longest.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infoword_tf.views.examples import MULTIPLE, Labelled
from infoword_tf.views.fitting import fitting_lengths
from infoword_tf.views.sentences import SENTENCES, Changed, text_numbers
from infoword_tf.views.view import Specials, View, require_where

PAIR = 'pair'  # its `Reads.where`


class Joining(NamedTuple):
    """Layout of two texts as one, and how long both may be.

    Attributes:
        length: tokens of both, special ones included, at most.
        between: number of [SEP] between them.
        segment: number of the segment of the second text, and of what follows.
    """

    length: int
    between: int = 1
    segment: int = 0


def pair_candidates(
    text: Labelled,
    draw: Changed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Joins each a with each candidate: ids [n, M, T].

    Targets [n, M] are numbers of the candidates, equal for equal texts and -1
    for a missing one, the first that of b; weights are [n, 1].
    """
    require_where(rows, PAIR)
    n, k, _ = text.ids.shape
    joining, others = text.joining, draw.others
    assert others is not None, 'the draw of this view has others'
    itself = np.arange(n)[:, None]
    example = np.concatenate(
        [itself, others, np.repeat(itself, k - 2, 1)], axis=1
    )
    which = np.array([1] * (1 + others.shape[1]) + [*range(2, k)])
    which = np.broadcast_to(which, example.shape)  # [n, M]
    exists = (text.lengths > 2) | (np.arange(k) < 2)
    numbers = text_numbers(text.ids, np.where(exists, text.lengths, 0))

    specials_of_two = 2 + joining.between
    sizes = fitting_lengths(
        np.broadcast_to(text.lengths[:, :1] - 2, example.shape),
        text.lengths[example, which] - 2,
        joining.length - specials_of_two,
    )
    width = _width(text, draw, joining)
    second = 1 + sizes[0] + joining.between  # [n, M]
    end = second + sizes[1]
    place = np.arange(width)
    of_b = place >= second[..., None]
    column = np.where(of_b, place - second[..., None] + 1, place)
    column = np.clip(column, 0, text.ids.shape[2] - 1)
    source = np.where(of_b, example[..., None], itself[..., None])
    ids = text.ids[source, np.where(of_b, which[..., None], 0), column]
    is_text = (place >= 1) & (place <= sizes[0][..., None])
    is_text |= of_b & (place < end[..., None])
    ids = np.where(is_text, ids, specials.sep_id).astype(np.int32)
    ids[..., 0] = specials.cls_id
    is_padding = place > end[..., None]
    segments = np.where(of_b & ~is_padding, joining.segment, 0)
    chosen = numbers[example, which]
    return View(
        ids=ids,
        sequences=text.numbers.astype(np.int32),
        positions=np.where(is_padding, 0, place).astype(np.int32),
        segment_ids=segments.astype(np.int32),
        block_ids=is_padding.astype(np.int32),
        places={row: np.zeros((*ids.shape[:2], 1), np.int32) for row in rows},
        targets=dict.fromkeys(rows, chosen),
        weights={row: np.ones((n, 1), np.float32) for row in rows},
        counts={'padding': is_padding.sum(axis=(1, 2)).astype(np.int32)},
    )


def _width(text: Labelled, draw: Changed, joining: Joining) -> int:
    """Returns T, the same for all batches of a run."""
    longest = text.longest or text.ids.shape[2]
    both = sum(min(most or longest, longest) for most in draw.limits)
    tokens = min(both - 2 + joining.between, joining.length)
    return -(-tokens // MULTIPLE) * MULTIPLE


PAIR_CANDIDATES = SENTENCES._replace(make=pair_candidates, like='sentences')
