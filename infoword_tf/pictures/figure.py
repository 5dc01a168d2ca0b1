"""All panels side by side, with heads and a legend, as a PNG.

Lengths are inches, y downward.
"""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf import files
from infoword_tf.pictures.description import Picture
from infoword_tf.pictures.legend import draw_legend, lay_legend
from infoword_tf.pictures.mask import draw_mask
from infoword_tf.pictures.palette import ASKED_INK, INK, LINE, QUIET, START
from infoword_tf.pictures.panel import Panel, inches
from infoword_tf.pictures.tokens import draw_tokens

WIDEST = 17.0  # a line of panels
EDGE, BETWEEN = 0.3, 0.45  # room around everything, and between panels


def draw(
    path: pathlib.Path,
    heads: Sequence[tuple[str, str]],
    pictures: Sequence[Picture],
) -> None:
    """Draws pictures side by side into a PNG.

    Args:
        path: of the PNG.
        heads: (name, sentence) of each row, above everything.
        pictures: one a panel.

    Raises:
        OSError: the PNG cannot be written.
    """
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    panels = [Panel(one) for one in pictures]
    spots, right, bottom = _lay_panels(panels)
    width = right + EDGE
    name_width = 0.2 + max(inches(name, 11) for name, _ in heads)
    characters = int((width - 2 * EDGE - name_width) / 0.08)
    wrapped = [
        (name, textwrap.wrap(sentence, characters)) for name, sentence in heads
    ]
    head = 0.25 + sum(0.08 + 0.2 * len(lines) for _, lines in wrapped)
    legend = lay_legend(pictures, EDGE, width - EDGE)
    height = head + bottom + 0.3 + legend[-1].y + 0.4

    figure = pyplot.figure(figsize=(width, height), facecolor='white')
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    _draw_heads(axes, wrapped, EDGE + name_width)
    axes.plot(
        [EDGE, width - EDGE], [head - 0.02] * 2, color=LINE, linewidth=0.8
    )
    for panel, (x, y) in zip(panels, spots, strict=True):
        _draw_panel(axes, panel, x, head + 0.1 + y)
    draw_legend(axes, legend, head + bottom + 0.35)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150)
    pyplot.close(figure)


def _lay_panels(
    panels: Sequence[Panel],
) -> tuple[list[tuple[float, float]], float, float]:
    """(x, y) of each panel; where the last column and the last line end."""
    spots, x, y, tallest, right = [], EDGE, 0.0, 0.0, 0.0
    for panel in panels:
        if x > EDGE and x + panel.width > WIDEST:
            x, y, tallest = EDGE, y + tallest + 0.35, 0.0
        spots.append((x, y))
        x += panel.width + BETWEEN
        tallest = max(tallest, panel.height)
        right = max(right, x - BETWEEN)
    return spots, right, y + tallest


def _draw_heads(
    axes: Any, heads: Sequence[tuple[str, Sequence[str]]], indent: float
) -> None:
    """(name, lines) of each row; `indent`: x of the lines."""
    y = 0.28
    for name, lines in heads:
        axes.text(
            EDGE,
            y,
            name,
            fontsize=11,
            weight='bold',
            color=START,
            va='center',
            family='monospace',
        )
        for line in lines:
            axes.text(indent, y, line, fontsize=9.5, color=INK, va='center')
            y += 0.2
        y += 0.08


def _draw_panel(axes: Any, panel: Panel, x: float, y: float) -> None:
    """Title, sentences, tokens and masks of one view."""
    picture = panel.picture
    axes.text(
        x,
        y + 0.12,
        picture.title,
        fontsize=13,
        weight='bold',
        color=INK,
        va='center',
    )
    y += 0.36
    for line in panel.lines:
        axes.text(x, y, line, fontsize=8.5, color=QUIET, va='center')
        y += panel.line
    y += 0.08
    draw_tokens(axes, panel, x, y)
    y += panel.flow
    length = len(picture.tokens)
    has_queries = picture.queries is not None
    draw_mask(
        axes,
        panel,
        picture.content,
        [(panel.label(i), panel.label_colour(i)) for i in range(length)],
        'the content stream: states that know their own word'
        if has_queries
        else 'a row is a token that looks, a column what it looks at',
        x,
        y,
        np.arange(length),
    )
    y += panel.mask_height(length)
    if has_queries:
        draw_mask(
            axes,
            panel,
            picture.queries,
            [
                (panel.query_label(int(i)), ASKED_INK)
                for i in picture.queried
            ],
            'the query stream: states that know their place alone',
            x,
            y,
            picture.queried,
            top=False,
        )
