"""Curves of several runs in one picture, for `benchmarks.tables`."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import files

MINUTES = 'minutes of training'
TOKENS = 'millions of tokens'
NATS = 'mutual information of held-out text, lower bound, of the ceiling'
STYLES = '-', '--', ':', '-.'  # of the rows of one run


def _share(record: Mapping[str, Any], row: str) -> float:
    """Divides held-out MI by the ceiling; 0 if the ceiling is 0."""
    mi, ceiling = (record[f'heldout/{row}/{x}'] for x in ('mi', 'ceiling'))
    return mi / ceiling if ceiling > 0 else 0.0


def draw_runs(
    path: pathlib.Path,
    runs: Mapping[str, tuple[Sequence[float], Sequence[Mapping[str, Any]]]],
    along: str = MINUTES,
) -> None:
    """Draws held-out MI of every row of several runs into one PNG.

    Curves are shares of the ceiling, since ceilings differ between rows; labels
    at the ends of curves give nats.
    """
    figure, axis = _axis(along)
    ends = []
    for number, (name, (minutes, records)) in enumerate(runs.items()):
        rows = _heldout(records, 'mi')
        for style, row in zip(itertools.cycle(STYLES), rows, strict=False):
            points = [
                (minute, _share(record, row))
                for minute, record in zip(minutes, records, strict=True)
                if f'heldout/{row}/mi' in record
            ]
            end = _draw_curve(axis, number, points, style)
            ceiling = records[-1][f'heldout/{row}/ceiling']
            label = name if name.startswith(row) else f'{name}: {row}'
            label += f'  {end[0] * ceiling:.2f} of {ceiling:.2f} nats'
            ends.append((*end, label))
    from matplotlib import ticker

    axis.axhline(0, color='0.85', linewidth=0.8, zorder=0)
    axis.set_ylabel(
        'mutual information of held-out text,\nlower bound, of the ceiling'
    )
    axis.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    _name_ends(axis, ends)
    _save(figure, path)


def draw_worth(
    path: pathlib.Path,
    points: Mapping[str, Sequence[tuple[float, float]]],
    levels: Mapping[str, float],
    worth: str,
    along: str = NATS,
) -> None:
    """Draws scores of runs over nats, or over tokens, into one PNG.

    Args:
        points: held-out MI as a share of the ceiling (the mean over rows), or
            millions of tokens, and a score, for each time of training in
            order, by flagfile.
        levels: scores that have no place along the axis, which are lines.
        worth: name of the score, for people.
        along: NATS or TOKENS.
    """
    from matplotlib import ticker

    figure, axis = _axis(along)
    ends = []
    for number, (name, line) in enumerate(points.items()):
        ends.append((*_draw_curve(axis, number, line), name))
    axis.set_ylabel(worth)
    if along == TOKENS:
        axis.set_xscale('log')
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
    else:
        axis.xaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    axis.margins(0.15)
    for name, score in levels.items():
        axis.axhline(score, color='0.6', linestyle=':', linewidth=1)
        axis.annotate(
            name, (0, score), xycoords=('axes fraction', 'data'), fontsize=8,
            xytext=(2, 3), textcoords='offset points', color='0.4',
        )  # fmt: skip
    _name_ends(axis, ends)
    _save(figure, path)


def share_of(records: Sequence[Mapping[str, Any]]) -> float:
    """Averages the last share of the ceiling over the rows that bound MI."""
    last = records[-1]
    rows = [x for x in _heldout(records, 'mi') if _share(last, x)]
    return sum(_share(last, row) for row in rows) / max(1, len(rows))


def _axis(along: str) -> tuple[Any, Any]:
    """Creates a figure and an axis for curves over minutes or updates."""
    from matplotlib.figure import Figure

    figure = Figure((8, 4.6))
    axis = figure.subplots()
    axis.set_xlabel(along)
    axis.spines[['top', 'right']].set_visible(False)
    return figure, axis


def _draw_curve(
    axis: Any,
    number: int,
    points: Sequence[tuple[float, float]],
    style: str = '-',
) -> tuple[float, float, Any]:
    """Draws a curve; returns the last value, the last minute and the colour."""
    import matplotlib

    # Ten strong colours, then ten pale ones.
    strong = 2 * number % 20 + number // 10 % 2
    color = matplotlib.colormaps['tab20'](strong)
    axis.plot(*zip(*points, strict=True), style, color=color, marker='.')
    return *points[-1][::-1], color


def _heldout(records: Sequence[Mapping[str, Any]], figure: str) -> list[str]:
    """Lists rows whose held-out `figure` is in a record."""
    keys = dict.fromkeys(
        key
        for record in records
        for key in record
        if key.startswith('heldout/') and key.endswith(f'/{figure}')
    )
    return [key.split('/')[1] for key in keys]


def _name_ends(
    axis: Any, ends: Sequence[tuple[float, float, Any, str]]
) -> None:
    """Writes names at the ends of all curves, one line apart at least."""
    low, high = axis.get_ylim()
    right = max((end[1] for end in ends), default=1.0)
    lowest = low
    for value, x, color, label in sorted(ends, key=lambda x: (*x[:2], x[3])):
        place = max(value, lowest)
        lowest = place + (high - low) * 0.05
        arrow = {'arrowstyle': '-', 'color': color, 'linewidth': 0.5,
                 'linestyle': ':', 'relpos': (0, 0.5)}  # fmt: skip
        axis.annotate(
            label, (x, value), xytext=(right * 1.04, place), color=color,
            fontsize=8, va='center', annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip
    axis.figure.tight_layout()


def _save(figure: Any, path: pathlib.Path) -> None:
    """Writes a figure as PNG."""
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=140, bbox_inches='tight')
