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
from infoword_tf.pictures.panel import Panel


def _background(panel: Panel, place: int) -> tuple[str, str]:
    """Colours of a token's face and edge."""
    picture = panel.picture
    if picture.left_over[place]:
        return '#fafbfb', '#e6eaed'
    if picture.kinds[place] == 'asked':
        return '#fdf0e2', KINDS['asked'][0]
    if picture.kinds[place] == 'special':
        return '#eceff2', LINE
    return '#ffffff', LINE


def draw_tokens(axes: Any, panel: Panel, x: float, y: float) -> None:
    """The tokens as they are read, with what is asked for below them."""
    from matplotlib import patches

    picture = panel.picture
    for place, left, down, wide in panel.chips:
        face, edge = _background(panel, place)
        start = place in picture.starts
        box = patches.FancyBboxPatch(
            (x + left + 0.02, y + down + 0.02),
            wide - 0.04,
            panel.chip - 0.04,
            boxstyle='round,pad=0.015,rounding_size=0.04',
            facecolor=face,
            edgecolor=START if start else edge,
            linewidth=1.6 if start or place in picture.asked
            and picture.kinds[place] == 'asked' else 0.8,
        )
        axes.add_patch(box)
        faint = picture.left_over[place]
        axes.text(
            x + left + wide / 2,
            y + down + panel.chip / 2,
            picture.tokens[place],
            ha='center',
            va='center_baseline',
            fontsize=8.5,
            family='monospace',
            color=LINE if faint
            else QUIET if picture.kinds[place] == 'special'
            else INK,
        )
        if picture.segments is not None and not faint:
            axes.add_patch(
                patches.Rectangle(
                    (x + left, y + down + panel.chip + 0.005),
                    wide,
                    0.025,
                    facecolor=segment_colour(picture.segments[place]),
                    edgecolor='none',
                )
            )
        if under := panel.under(place):
            axes.text(
                x + left + wide / 2,
                y + down + panel.chip + 0.115,
                under,
                ha='center',
                va='center_baseline',
                fontsize=7.5,
                family='monospace',
                weight='bold',
                color=ASKED_INK,
            )
    more = len(picture.tokens) - len(panel.chips)
    if more:
        axes.text(
            x + panel.width,
            y + panel.flow - 0.06,
            f'… {more} more',
            ha='right',
            va='center',
            fontsize=7.5,
            color=QUIET,
        )
