"""All panels side by side, with heads and a legend, as a PNG.

Lengths are inches, y downward.
"""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

from infoword_tf import files
from infoword_tf.pictures.description import Picture
from infoword_tf.pictures.legend import draw_legend, lay_legend
from infoword_tf.pictures.mask import draw_mask
from infoword_tf.pictures.palette import INK, LINE, QUIET, START
from infoword_tf.pictures.panel import Panel, inches, write
from infoword_tf.pictures.tokens import draw_tokens

WIDEST = 17.0  # a line of panels
EDGE, BETWEEN = 0.3, 0.45  # room around everything, and between panels


def draw(
    path: pathlib.Path,
    titles: Sequence[tuple[str, str]],
    pictures: Sequence[Picture],
) -> None:
    """Draws pictures side by side into a PNG.

    Args:
        path: of the PNG.
        titles: (name, sentence) of each row, above everything.
        pictures: one a panel.

    Raises:
        OSError: the PNG cannot be written.
    """
    from matplotlib.figure import Figure

    panels = [Panel(one) for one in pictures]
    spots, right, bottom = _lay_panels(panels)
    width = right + EDGE
    name_width = 0.2 + max(inches(name, 11) for name, _ in titles)
    characters = int((width - 2 * EDGE - name_width) / 0.08)
    wrapped = [
        (name, textwrap.wrap(sentence, characters)) for name, sentence in titles
    ]
    top = 0.25 + sum(0.08 + 0.2 * len(lines) for _, lines in wrapped)
    legend = lay_legend(pictures, EDGE, width - EDGE)
    height = top + bottom + 0.3 + legend[-1].y + 0.4

    figure = Figure((width, height), facecolor='white')
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    _draw_titles(axes, wrapped, EDGE + name_width)
    axes.plot([EDGE, width - EDGE], [top - 0.02] * 2, color=LINE, linewidth=0.8)
    for panel, (x, y) in zip(panels, spots, strict=True):
        _draw_panel(axes, panel, x, top + 0.1 + y)
    draw_legend(axes, legend, top + bottom + 0.35)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150)


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


def _draw_titles(
    axes: Any, titles: Sequence[tuple[str, Sequence[str]]], indent: float
) -> None:
    """(name, lines) of each row; `indent`: x of the lines."""
    y, bold = 0.28, {'weight': 'bold', 'family': 'monospace'}
    for name, lines in titles:
        write(axes, EDGE, y, name, 11, START, **bold)
        for line in lines:
            write(axes, indent, y, line, 9.5, INK)
            y += 0.2
        y += 0.08


def _draw_panel(axes: Any, panel: Panel, x: float, y: float) -> None:
    """Title, sentences, tokens and masks of one view."""
    picture = panel.picture
    write(axes, x, y + 0.12, picture.title, 13, INK, weight='bold')
    y += 0.36
    for line in panel.lines:
        write(axes, x, y, line, 8.5, QUIET)
        y += panel.line
    y += 0.08
    draw_tokens(axes, panel, x, y)
    y += panel.flow
    draw_mask(axes, panel, x, y)
    if picture.queries is not None:
        y += panel.mask_height(len(picture.tokens))
        draw_mask(axes, panel, x, y, queries=True)
