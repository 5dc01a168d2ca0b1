"""Draws a mask of attention: rows are tokens that look, columns are seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.pictures.palette import (
    INK,
    KINDS,
    NAMES,
    QUIET,
    segment_colour,
)
from infoword_tf.pictures.panel import Panel, cut


class _Grid(NamedTuple):
    """A mask [Q, M + T] and where it lies.

    Attributes:
        panel: that it is a part of.
        mask: [Q, M + T] int, numbers of KINDS.
        rows: [Q] places that look.
        top: whether its columns have words above them.
        left, above: of its first cell.
    """

    panel: Panel
    mask: np.ndarray
    rows: np.ndarray
    top: bool
    left: float
    above: float

    @property
    def width(self) -> float:
        """Of all columns."""
        return self.mask.shape[1] * self.panel.cell

    @property
    def height(self) -> float:
        """Of all rows."""
        return self.mask.shape[0] * self.panel.cell


def draw_mask(
    axes: Any,
    panel: Panel,
    mask: np.ndarray,
    labels: Sequence[tuple[str, str]],
    title: str,
    x: float,
    y: float,
    rows: np.ndarray,
    top: bool = True,
) -> None:
    """Draws a mask with its labels.

    Args:
        axes: of Matplotlib, in inches, y downward.
        panel: that it is a part of.
        mask: [Q, M + T] int, numbers of KINDS.
        labels: (word, colour) of each row.
        title: what stands above it.
        x, y: where its room begins.
        rows: [Q] places that look.
        top: whether there are words above its columns.
    """
    axes.text(x, y + 0.2, title, fontsize=8.5, color=QUIET, va='center')
    grid = _Grid(
        panel,
        mask,
        rows,
        top,
        left=x + panel.left,
        above=y + 0.36 + (panel.top if top else 0.0),
    )
    _draw_cells(axes, grid)
    if panel.cell > 0.1:
        _draw_lines(axes, grid)
    _draw_blind(axes, grid)
    if panel.picture.memory:
        _draw_end_of_memory(axes, grid)
    if panel.picture.segments is not None:
        _draw_segments(axes, grid)
    if panel.labelled:
        _draw_labels(axes, grid, labels)


def _draw_cells(axes: Any, grid: _Grid) -> None:
    """The mask in colours; rows that are no part of a text are faint."""
    from matplotlib import colors

    left_over = grid.panel.picture.left_over[grid.rows]
    shown = np.array([colors.to_rgb(KINDS[name][0]) for name in NAMES])[
        grid.mask
    ]
    shown[left_over] = 0.3 * shown[left_over] + 0.7
    axes.imshow(
        shown,
        extent=(
            grid.left,
            grid.left + grid.width,
            grid.above + grid.height,
            grid.above,
        ),
        interpolation='nearest',
        aspect='auto',
        zorder=1,
    )


def _draw_lines(axes: Any, grid: _Grid) -> None:
    """White lines between cells."""
    from matplotlib import collections

    _, _, _, _, left, above = grid
    cell = grid.panel.cell
    across = [
        [(left, above + i * cell), (left + grid.width, above + i * cell)]
        for i in range(grid.mask.shape[0] + 1)
    ]
    down = [
        [(left + i * cell, above), (left + i * cell, above + grid.height)]
        for i in range(grid.mask.shape[1] + 1)
    ]
    axes.add_collection(
        collections.LineCollection(
            across + down, colors='white', linewidths=0.9, zorder=2
        )
    )


def _draw_blind(axes: Any, grid: _Grid) -> None:
    """Frames where a query is at its own place, whose word it may not see."""
    from matplotlib import patches

    cell = grid.panel.cell
    inset = 0.14 * cell
    for row, column in zip(
        *np.nonzero(grid.mask == NAMES.index('blind')), strict=True
    ):
        axes.add_patch(
            patches.Rectangle(
                (
                    grid.left + column * cell + inset,
                    grid.above + row * cell + inset,
                ),
                cell - 2 * inset,
                cell - 2 * inset,
                facecolor='white',
                edgecolor=KINDS['asked'][0],
                linewidth=1.4,
                zorder=3,
            )
        )


def _draw_end_of_memory(axes: Any, grid: _Grid) -> None:
    """A line between the memory's columns and those of the text."""
    panel = grid.panel
    edge = grid.left + len(panel.picture.memory) * panel.cell
    axes.plot(
        [edge, edge],
        [
            grid.above - (panel.top if grid.top else 0.0),
            grid.above + grid.height,
        ],
        color=INK,
        linewidth=1.0,
        zorder=4,
    )


def _draw_segments(axes: Any, grid: _Grid) -> None:
    """Strips in the segments' colours beside rows and columns."""
    from matplotlib import patches

    _, _, rows, top, left, above = grid
    picture, cell = grid.panel.picture, grid.panel.cell
    memory = len(picture.memory)
    strips = []
    if top:
        strips += [
            (left + (memory + i) * cell, above - 0.09, cell, 0.06, segment)
            for i, segment in enumerate(picture.segments)
        ]
    strips += [
        (left - 0.09, above + i * cell, 0.06, cell, picture.segments[place])
        for i, place in enumerate(rows)
    ]
    for x, y, wide, high, segment in strips:
        axes.add_patch(
            patches.Rectangle(
                (x, y),
                wide,
                high,
                facecolor=segment_colour(segment),
                edgecolor='none',
            )
        )


def _draw_labels(
    axes: Any, grid: _Grid, labels: Sequence[tuple[str, str]]
) -> None:
    """Words above the columns and left of the rows."""
    panel = grid.panel
    picture, cell = panel.picture, panel.cell
    gap = 0.05 if picture.segments is None else 0.13
    if grid.top:
        for i, word in enumerate((*picture.memory, *picture.tokens)):
            axes.text(
                grid.left + (i + 0.5) * cell,
                grid.above - gap,
                cut(word),
                rotation=90,
                ha='center',
                va='bottom',
                fontsize=panel.points,
                family='monospace',
                color=panel.label_colour(i - len(picture.memory)),
            )
    for i, (word, colour) in enumerate(labels):
        axes.text(
            grid.left - gap,
            grid.above + (i + 0.5) * cell,
            word,
            ha='right',
            va='center_baseline',
            fontsize=panel.points,
            family='monospace',
            color=colour,
        )
