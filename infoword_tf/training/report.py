"""Output of a run: the progress line, the closing table, the picture."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import files

COLUMNS = {
    'mi': 'MI',
    'unigram_mi': 'unigram',
    'ceiling': 'ceiling',
    'log_candidates': 'log|B~|',
    'loss': 'loss',
    'accuracy': 'accuracy',
    'chance': 'chance',
}
LEGEND = (
    '(nats; unigram: MI of the training text\'s frequencies alone; ceiling: of '
    'a perfect critic;\naccuracy and chance, the best answer without a, as '
    'shares)'
)


def progress_line(
    record: Mapping[str, Any],
    rows: Sequence[str],
    steps: int,
    seconds: float,
    goal: str | None = None,
) -> str:
    """Formats the line of a logging step, `seconds` before the end."""
    clock = f'{int(seconds) // 60}:{int(seconds) % 60:02d}'
    padding = record.get('padding', 0.0)
    fields = [
        f'step {record["step"]:,}/{steps:,}',
        f'{record["tokens_per_second"]:,.0f} tokens/s'
        + (f' and {padding:.0%} padding' if padding else ''),
        f'{clock} left',
    ]
    for row in rows:
        mi, ceiling = record.get(f'{row}/mi'), record.get(f'{row}/ceiling')
        if f'{row}/accuracy' not in record:  # regression
            name, unit = 'loss', ''
            field = f'{row} MI -, loss {record[f"{row}/loss"]:.3f}'
        elif mi is None and f'heldout/{row}/mi' in record:
            mi, ceiling = (
                record[f'heldout/{row}/{name}'] for name in ('mi', 'ceiling')
            )
            fields.append(
                f'{row} held out MI {mi:.3f} of {ceiling:.2f} nats, accuracy '
                f'in training {record[f"{row}/accuracy"]:.3f}'
            )
            continue
        elif mi is None:  # no bound, or none of the training text
            name, unit = 'accuracy', ''
            field = f'{row} MI -, accuracy {record[f"{row}/accuracy"]:.3f}'
        else:
            name, unit = 'mi', ' nats'
            field = f'{row} MI {mi:.3f} of {ceiling:.2f}'
        if f'heldout/{row}/{name}' in record:
            field += f', held out {record[f"heldout/{row}/{name}"]:.3f}'
        elif f'heldout/{row}/loss' in record:  # nothing is measured
            field += ', held out -'
        fields.append(field + unit)
    if goal and goal in record:
        fields.append(f'{goal.split("/")[-1]} {record[goal]:.4f}')
    return ' | '.join(fields)


def closing_table(record: Mapping[str, Any], rows: Sequence[str]) -> str:
    """Formats the last values of every row, training and held-out.

    A row that measures a second bound (`Objective.more`) has a line for it.
    """
    width = max(10, *map(len, rows))
    titles = ''.join(f' {title:>9}' for title in COLUMNS.values())
    lines = [f'{"row":<{width}} {"text":<11}{titles}']
    for row in rows:
        prefixes = {'training': f'{row}/', 'held out': f'heldout/{row}/'}
        heldout = f'heldout/{row}/'
        for key in record:
            if key.startswith(heldout) and key.endswith('_mi'):
                bound = key.removeprefix(heldout).removesuffix('mi')
                if f'{heldout}{bound}ceiling' in record:
                    text = bound.strip('_').replace('_', ' ')
                    prefixes[text] = f'{heldout}{bound}'
        for text, prefix in prefixes.items():
            values = (record.get(f'{prefix}{name}') for name in COLUMNS)
            shown = ('-' if v is None else f'{v:.3f}' for v in values)
            cells = ''.join(f' {cell:>9}' for cell in shown)
            lines.append(f'{row:<{width}} {text:<11}{cells}')
    return '\n'.join(lines) + '\n' + LEGEND


def unmeasured(record: Mapping[str, Any], rows: Sequence[str]) -> list[str]:
    """Lists the rows for which held-out text measures nothing, with reasons.

    Args:
        record: values of a step, of training and held-out text.
        rows: names of the rows.
    """
    sentences = []
    for row in rows:
        heldout = f'heldout/{row}/'
        if f'{heldout}loss' not in record or f'{heldout}mi' in record:
            continue
        if f'{row}/mi' not in record:  # a row without a bound
            continue
        candidates = record.get(f'{heldout}log_candidates')
        why = 'no pair of it has a second text to be told from, or a shows b'
        if candidates is not None:
            why = 'each b is the only candidate, or all are copies of it'
        sentences.append(
            f'{row}: nothing was measured on held-out text, since {why}; hold '
            'out more (--heldout, --heldout_pairs)'
        )
    return sentences


def draw_bounds(
    path: pathlib.Path,
    records: Sequence[Mapping[str, Any]],
    rows: Sequence[str],
    goal: tuple[str, int] | None = None,
) -> None:
    """Draws MI and ceiling of every row over steps into a PNG.

    The ceiling has a strip above: it is often ten times as high. Below, MI is
    in nats on the left and as a share of the ceiling on the right; a dotted
    line is the MI of the training text's frequencies alone.

    Args:
        rows: names of the rows; those without a bound are not drawn, and
            without any other the picture says so.
        goal: name of the criterion of the weights ('heldout/ROW/NAME',
            'heldout_loss', 'sts/spearman'), which then has a panel, and the
            step of the best.
    """
    from matplotlib.figure import Figure

    unbounded = ', '.join(rows)
    rows = [
        r for r in rows
        if any({f'{r}/mi', f'heldout/{r}/mi'} & x.keys() for x in records)
    ]  # fmt: skip
    scores = {}
    if goal is not None:
        scores = {r['step']: r[goal[0]] for r in records if goal[0] in r}
    if not rows:
        if goal is not None and scores:
            figure = Figure((5.4, 3.4))
            _draw_scores(figure.subplots(), goal, scores)
            figure.tight_layout()
        else:
            figure = Figure((5.4, 1.2))
            text = f'{unbounded}: no bound on mutual information'
            figure.text(0.5, 0.5, text, ha='center', va='center')
        _save(figure, path)
        return
    columns = len(rows) + bool(scores)
    figure = Figure((5.4 * columns, 4.2))
    axes = figure.subplots(
        2, columns, height_ratios=(1, 4), sharex=True, squeeze=False
    )
    if goal is not None and scores:
        axes[0, -1].remove()
        _draw_scores(axes[1, -1], goal, scores)
        axes = axes[:, :-1]
    for (above, below), row in zip(axes.T, rows, strict=True):
        _draw_row(above, below, row, records)
    figure.tight_layout()
    _save(figure, path)


def _draw_row(
    above: Any, below: Any, row: str, records: Sequence[Mapping[str, Any]]
) -> None:
    """Draws the ceiling of a row above, and the MI below."""
    texts = (
        ('', 'training', {'color': '0.6', 'linewidth': 1.3}),
        ('heldout/', 'held out', {'color': 'C0', 'marker': '.'}),
    )
    for prefix, label, style in texts:
        for axis, name in ((above, 'ceiling'), (below, 'mi')):
            key = f'{prefix}{row}/{name}'
            points = [(r['step'], r[key]) for r in records if key in r]
            if points:
                shown = f'{label}: {points[-1][1]:.2f}'
                curve = zip(*points, strict=True)
                axis.plot(*curve, label=shown, **style)
    below.axhline(0, color='0.85', linewidth=0.8, zorder=0)
    _compare(below, row, records)
    above.set_title(row, loc='left')
    above.set_ylabel('ceiling')
    above.margins(y=0.4)
    low, high = above.get_ylim()
    if high - low < 1:  # small wiggles stay small
        middle = (low + high) / 2
        above.set_ylim(middle - 0.5, middle + 0.5)
    below.set_ylabel('mutual information,\nlower bound (nats)')
    below.set_xlabel('steps')
    for axis in (above, below):
        axis.spines[['top', 'right']].set_visible(False)
    above.legend(
        frameon=False, fontsize=8, loc='lower right', ncols=2,
        bbox_to_anchor=(1, 1), borderaxespad=0.2,
    )  # fmt: skip
    below.legend(frameon=False, fontsize=9, loc='lower right')


def _draw_scores(
    axis: Any, goal: tuple[str, int], scores: Mapping[int, float]
) -> None:
    """Draws the goal over steps, and marks the best."""
    path = goal[0].removeprefix('heldout')
    row, _, name = path.lstrip('/_').rpartition('/')
    best = scores[goal[1]]
    axis.plot(*zip(*scores.items(), strict=True), color='C0', marker='.')
    axis.plot(goal[1], best, color='C3', marker='o', label=f'kept: {best:.4f}')
    axis.set_title(row, loc='left')
    axis.set_ylabel(name if path == goal[0] else f'{name}, held out')
    axis.set_xlabel('steps')
    axis.spines[['top', 'right']].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc='lower right')


def _compare(axis: Any, row: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Adds MI of the frequencies alone, and the axis of shares."""
    from matplotlib import ticker

    prefix = f'heldout/{row}'
    last = next((r for r in records[::-1] if f'{prefix}/mi' in r), None)
    if last is None:
        return
    if unigram := last[f'{prefix}/unigram_mi']:
        label = f'frequencies alone: {unigram:.2f}'
        axis.axhline(unigram, color='C1', linestyle=':', label=label)
    ceiling = last[f'{prefix}/ceiling']
    if ceiling <= 0:  # one text again and again
        return
    percent_axis = axis.secondary_yaxis(
        'right', functions=(lambda x: x / ceiling, lambda x: x * ceiling)
    )
    percent_axis.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    percent_axis.spines['right'].set_visible(False)
    percent_axis.set_ylabel('of the held-out ceiling')


def _save(figure: Any, path: pathlib.Path) -> None:
    """Writes a figure as PNG."""
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=140, bbox_inches='tight')
