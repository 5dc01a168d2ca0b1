"""The legend: what the colours that occur mean."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.pictures.description import Picture
from infoword_tf.pictures.palette import (
    INK,
    KINDS,
    LINE,
    NAMES,
    segment_colour,
)


class Entry(NamedTuple):
    """A colour and what it means.

    Attributes:
        x, y: where it lies, in inches, downward from the first line.
        face, edge: colours.
        words: what they mean.
    """

    x: float
    y: float
    face: str
    edge: str
    words: str


def lay_legend(
    pictures: Sequence[Picture], left: float, right: float
) -> list[Entry]:
    """The entries of what occurs in pictures, in lines.

    Args:
        pictures: that it is for.
        left, right: where lines begin and end, in inches.
    """
    entries, x, y = [], left, 0.0
    for face, edge, words in _occurring(pictures):
        wide = 0.42 + 0.063 * len(words)
        if x > left and x + wide > right:
            x, y = left, y + 0.23
        entries.append(Entry(x, y, face, edge, words))
        x += wide
    return entries


def _occurring(pictures: Sequence[Picture]) -> list[tuple[str, str, str]]:
    """(face, edge, words) of what occurs."""
    masks = [
        mask.ravel()
        for one in pictures
        for mask in (one.content, one.queries)
        if mask is not None
    ]
    there = np.unique(np.concatenate(masks))
    entries = [
        (
            KINDS[name][0],
            KINDS['asked'][0] if name == 'blind' else LINE,
            KINDS[name][1],
        )
        for number, name in enumerate(NAMES)
        if number in there
    ]
    if 0 in there:  # 'nothing' comes last
        entries.append(entries.pop(0))
    segments = sorted(
        {
            int(s)
            for one in pictures
            if one.segments is not None
            for s in one.segments
        }
    )
    entries += [
        (segment_colour(s), segment_colour(s), f'segment {s}') for s in segments
    ]
    return entries


def draw_legend(axes: Any, entries: Sequence[Entry], top: float) -> None:
    """Draws entries; `top`: y of the first line."""
    from matplotlib import patches

    for entry in entries:
        axes.add_patch(
            patches.Rectangle(
                (entry.x, top + entry.y - 0.07),
                0.14,
                0.14,
                facecolor=entry.face,
                edgecolor=entry.edge,
                linewidth=1.0,
            )
        )
        axes.text(
            entry.x + 0.22,
            top + entry.y,
            entry.words,
            fontsize=8.5,
            color=INK,
            va='center',
        )
