"""Draws a mask of attention: rows are tokens that look, columns are seen."""

from typing import Any

import numpy as np

from infoword_tf.pictures.palette import (
    ASKED_INK,
    INK,
    KINDS,
    NAMES,
    QUIET,
    segment_colour,
)
from infoword_tf.pictures.panel import Panel, box, cut, write


def draw_mask(
    axes: Any, panel: Panel, x: float, y: float, queries: bool = False
) -> None:
    """Draws one of a picture's masks with its labels.

    Args:
        axes: of Matplotlib, in inches, y downward.
        panel: that it is a part of.
        x, y: where its room begins.
        queries: whether it is that of the query stream, below the other; else
            there are words above its columns.
    """
    from matplotlib import colors

    picture, cell, memory = panel.picture, panel.cell, len(panel.picture.memory)
    if queries:
        mask, rows = picture.queries, picture.queried
        title = 'the query stream: states that know their place alone'
        labels = [(panel.query_label(int(i)), ASKED_INK) for i in rows]
    else:
        mask, rows = picture.content, np.arange(len(picture.tokens))
        title = 'the content stream: states that know their own word'
        if picture.queries is None:
            title = 'a row is a token that looks, a column what it looks at'
        labels = [(panel.label(i), panel.label_colour(i)) for i in rows]
    top = 0.0 if queries else panel.top
    left, above = x + panel.left, y + 0.36 + top
    right = left + mask.shape[1] * cell
    below = above + mask.shape[0] * cell
    write(axes, x, y + 0.2, title, 8.5, QUIET)

    # Rows that are no part of a text are faint.
    shown = np.array([colors.to_rgb(KINDS[name][0]) for name in NAMES])[mask]
    faint = picture.left_over[rows]
    shown[faint] = 0.3 * shown[faint] + 0.7
    axes.imshow(
        shown, extent=(left, right, below, above), interpolation='nearest',
        aspect='auto', zorder=1,
    )  # fmt: skip
    if cell > 0.1:  # with room for lines between cells
        style = {'colors': 'white', 'linewidths': 0.9, 'zorder': 2}
        down, across = (cell * np.arange(n + 1) for n in mask.shape)
        axes.hlines(above + down, left, right, **style)
        axes.vlines(left + across, above, below, **style)
    # Frames where a query is at its own place, whose word it may not see.
    inset, side = 0.14 * cell, 0.72 * cell
    for row, column in np.argwhere(mask == NAMES.index('blind')):
        box(
            axes, left + column * cell + inset, above + row * cell + inset,
            side, side, 'white', KINDS['asked'][0], linewidth=1.4, zorder=3,
        )  # fmt: skip
    if memory:  # and where it ends
        edge = left + memory * cell
        axes.plot(
            [edge, edge], [above - top, below], color=INK, linewidth=1.0,
            zorder=4,
        )  # fmt: skip
    gap = 0.05
    if picture.segments is not None:
        gap = 0.13
        strips = list(map(segment_colour, picture.segments))
        for i, colour in enumerate(() if queries else strips):
            column = left + (memory + i) * cell
            box(axes, column, above - 0.09, cell, 0.06, colour)
        for i, place in enumerate(rows):
            box(axes, left - 0.09, above + i * cell, 0.06, cell, strips[place])
    if not panel.labelled:
        return
    words = () if queries else (*picture.memory, *picture.tokens)
    for i, word in enumerate(words):
        write(
            axes, left + (i + 0.5) * cell, above - gap, cut(word),
            panel.points, panel.label_colour(i - memory), va='bottom',
            ha='center', rotation=90, family='monospace',
        )  # fmt: skip
    for i, (word, colour) in enumerate(labels):
        write(
            axes, left - gap, above + (i + 0.5) * cell, word, panel.points,
            colour, va='center_baseline', ha='right', family='monospace',
        )  # fmt: skip
