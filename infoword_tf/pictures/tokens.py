"""Draws the tokens of a view as they are read."""

from typing import Any

from infoword_tf.pictures.palette import (
    ASKED_INK,
    INK,
    KINDS,
    LINE,
    QUIET,
    START,
    segment_colour,
)
from infoword_tf.pictures.panel import Panel, box, write

# Face, edge and word of a token by its kind; of one that is left over.
_COLOURS = {
    'word': ('#ffffff', LINE, INK),
    'asked': ('#fdf0e2', KINDS['asked'][0], INK),
    'special': ('#eceff2', LINE, QUIET),
}
_LEFT_OVER = ('#fafbfb', '#e6eaed', LINE)


def draw_tokens(axes: Any, panel: Panel, x: float, y: float) -> None:
    """The tokens as they are read, with what is asked for below them."""
    from matplotlib import patches

    picture = panel.picture
    mono = {'ha': 'center', 'va': 'center_baseline', 'family': 'monospace'}
    for place, left, down, wide in panel.chips:
        kind, faint = picture.kinds[place], picture.left_over[place]
        face, edge, ink = _LEFT_OVER if faint else _COLOURS[kind]
        start = place in picture.starts
        outlined = start or (place in picture.asked and kind == 'asked')
        axes.add_patch(
            patches.FancyBboxPatch(
                (x + left + 0.02, y + down + 0.02),
                wide - 0.04,
                panel.chip - 0.04,
                boxstyle='round,pad=0.015,rounding_size=0.04',
                facecolor=face,
                edgecolor=START if start else edge,
                linewidth=1.6 if outlined else 0.8,
            )
        )
        middle, below = x + left + wide / 2, y + down + panel.chip
        word = picture.tokens[place]
        write(axes, middle, below - panel.chip / 2, word, 8.5, ink, **mono)
        if picture.segments is not None and not faint:
            colour = segment_colour(picture.segments[place])
            box(axes, x + left, below + 0.005, wide, 0.025, colour)
        if under := panel.under(place):
            write(
                axes, middle, below + 0.115, under, 7.5, ASKED_INK,
                weight='bold', **mono,
            )  # fmt: skip
    more = len(picture.tokens) - len(panel.chips)
    if more:
        right, y = x + panel.width, y + panel.flow - 0.06
        write(axes, right, y, f'… {more} more', 7.5, QUIET, ha='right')
