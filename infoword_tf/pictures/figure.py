"""All panels side by side, with heads and a legend, as a PNG."""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.pictures.description import Picture
from infoword_tf.pictures.mask import draw_mask
from infoword_tf.pictures.palette import (
    ASKED_INK,
    INK,
    KINDS,
    LINE,
    NAMES,
    QUIET,
    START,
    segment_colour,
)
from infoword_tf.pictures.panel import Panel, inches
from infoword_tf.pictures.tokens import draw_tokens

WIDEST = 17.0  # inches, of the picture


def _draw_panel(axes: Any, panel: Panel, x: float, y: float) -> None:
    picture = panel.picture
    axes.text(
        x, y + 0.12, picture.title, fontsize=13, weight='bold', color=INK,
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
    two = picture.queries is not None
    draw_mask(
        axes,
        panel,
        picture.content,
        [
            (panel.label(i), panel.label_colour(i))
            for i in range(length)
        ],
        'the content stream: states that know their own word'
        if two
        else 'a row is a token that looks, a column what it looks at',
        x,
        y,
        np.arange(length),
    )
    y += panel.mask_height(length)
    if two:
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


def _legend(pictures: Sequence[Picture]) -> list[tuple[str, str, str]]:
    """(face, edge, words) of what occurs."""
    masks = [
        mask.ravel()
        for one in pictures
        for mask in (one.content, one.queries)
        if mask is not None
    ]
    there = np.unique(np.concatenate(masks))
    entries = [
        (KINDS[name][0], KINDS['asked'][0] if name == 'blind' else LINE,
         KINDS[name][1])
        for number, name in enumerate(NAMES)
        if number in there
    ]
    entries.append(entries.pop(0)) if 0 in there else None
    segments = sorted(
        {int(s) for one in pictures if one.segments is not None
         for s in one.segments}
    )
    entries += [
        (segment_colour(s), segment_colour(s), f'segment {s}') for s in segments
    ]
    return entries


def draw(
    path: pathlib.Path, heads: Sequence[tuple[str, str]],
    pictures: Sequence[Picture],
) -> None:
    """Draws pictures side by side into a PNG.

    Args:
        path: of the PNG.
        heads: (name, sentence) of each row, above everything.
        pictures: one a panel.
    """
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import patches, pyplot

    from infoword_tf import files

    panels = [Panel(one) for one in pictures]
    edge, between = 0.3, 0.45
    spots, x, y, tallest, right = [], edge, 0.0, 0.0, 0.0
    for panel in panels:
        if x > edge and x + panel.width > WIDEST:
            x, y, tallest = edge, y + tallest + 0.35, 0.0
        spots.append((x, y))
        x += panel.width + between
        tallest = max(tallest, panel.height)
        right = max(right, x - between)
    bottom = y + tallest
    width = right + edge
    name_width = 0.2 + max(inches(name, 11) for name, _ in heads)
    characters = int((width - 2 * edge - name_width) / 0.08)
    heads = [
        (name, textwrap.wrap(sentence, characters)) for name, sentence in heads
    ]
    head = 0.25 + sum(0.08 + 0.2 * len(lines) for _, lines in heads)

    legend, entries, at, down = _legend(pictures), [], edge, 0.0
    for entry in legend:
        wide = 0.42 + 0.063 * len(entry[2])
        if at > edge and at + wide > width - edge:
            at, down = edge, down + 0.23
        entries.append((at, down, *entry))
        at += wide
    height = head + bottom + 0.3 + down + 0.4

    figure = pyplot.figure(figsize=(width, height), facecolor='white')
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    at = 0.28
    for name, lines in heads:
        axes.text(
            edge, at, name, fontsize=11, weight='bold', color=START,
            va='center', family='monospace',
        )
        for line in lines:
            axes.text(
                edge + name_width, at, line, fontsize=9.5, color=INK,
                va='center',
            )
            at += 0.2
        at += 0.08
    axes.plot(
        [edge, width - edge], [head - 0.02] * 2, color=LINE, linewidth=0.8
    )
    for panel, (x, y) in zip(panels, spots, strict=True):
        _draw_panel(axes, panel, x, head + 0.1 + y)
    base = head + bottom + 0.35
    for at, down, face, line, words in entries:
        axes.add_patch(
            patches.Rectangle(
                (at, base + down - 0.07), 0.14, 0.14, facecolor=face,
                edgecolor=line, linewidth=1.0,
            )
        )
        axes.text(
            at + 0.22, base + down, words, fontsize=8.5, color=INK, va='center'
        )
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150)
    pyplot.close(figure)
