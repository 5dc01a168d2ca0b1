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
from infoword_tf.pictures.panel import box, write


class LegendEntry(NamedTuple):
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
) -> list[LegendEntry]:
    """The entries of what occurs in pictures, in lines from left to right."""
    entries, x, y = [], left, 0.0
    for face, edge, words in _occurring(pictures):
        wide = 0.42 + 0.063 * len(words)
        if x > left and x + wide > right:
            x, y = left, y + 0.23
        entries.append(LegendEntry(x, y, face, edge, words))
        x += wide
    return entries


def _occurring(pictures: Sequence[Picture]) -> list[tuple[str, str, str]]:
    """(face, edge, words) of what occurs."""
    there: set[int] = set()
    segments: set[int] = set()
    for one in pictures:
        for mask in (one.content, one.queries):
            there.update(() if mask is None else np.unique(mask).tolist())
        segments.update(() if one.segments is None else one.segments.tolist())
    entries = []
    for number in sorted(there, key=lambda n: n or len(NAMES)):  # 0 comes last
        face, words = KINDS[NAMES[number]]
        blind = NAMES[number] == 'blind'
        entries.append((face, KINDS['asked'][0] if blind else LINE, words))
    colours = {s: segment_colour(s) for s in sorted(segments)}
    return entries + [(c, c, f'segment {s}') for s, c in colours.items()]


def draw_legend(axes: Any, entries: Sequence[LegendEntry], top: float) -> None:
    """Draws entries; `top`: y of the first line."""
    for x, y, face, edge, words in entries:
        y += top
        box(axes, x, y - 0.07, 0.14, 0.14, face, edge, linewidth=1.0)
        write(axes, x + 0.22, y, words, 8.5, INK)
