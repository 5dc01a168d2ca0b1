"""What benchmarks measured, for people: tables, a plot, and where they stand.

A record (turns.py) becomes a table of Markdown, the same one wherever it is
shown: `show` prints it for a benchmark that is run alone, and ends with the
record as JSON; `fill` puts tables between the markers of a document,

    <!-- bench: NAME -->
    <!-- end -->

and nothing else of it is touched. Ratios are medians over rounds, with the
lowest and the highest.
"""

import json
import pathlib
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BUSY = 0.05  # of the machine, by others: said in the table
MANY = 20  # turns: percentiles say something
GIGABYTE = 1e9
_FORMULA = 'ms a step', 'formula, ms', 'measured / formula'
_MARKED = r'(<!-- bench: {} -->\n).*?(<!-- end -->)'


# --------------------------------------------------------------------- numbers


def rates(row: Mapping[str, Any]) -> list[float]:
    """What a row did a second, in each turn."""
    return [
        amount / seconds
        for amount, seconds in zip(row['amounts'], row['seconds'], strict=True)
    ]


def ratios(row: Mapping[str, Any], basis: Mapping[str, Any]) -> list[float]:
    """A row's rate over another one's, in each round."""
    return [a / b for a, b in zip(rates(row), rates(basis), strict=True)]


def shown(values: Sequence[float], digits: int | None = None) -> str:
    """The median, and the lowest and the highest where there are several.

    Args:
        values: at least one.
        digits: behind the point; None: three that count.
    """
    middle = statistics.median(values)
    if digits is None:
        digits = max(0, 2 - len(str(int(abs(middle)))) + (abs(middle) >= 1))
    middle, low, high = (
        f'{value:,.{digits}f}' for value in (middle, min(values), max(values))
    )
    return middle if len(values) == 1 else f'{middle} ({low}-{high})'


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def percent(share: float) -> str:
    """As a whole number, bold where that much by others is busy."""
    return f'{share:.0%}'


# ---------------------------------------------------------------------- tables


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    lines = [f'| {" | ".join(cells)} |' for cells in (titles, *rows)]
    lines.insert(1, '|---' * len(titles) + '|')
    return [re.sub(r'\|  (?=\|)', '| ', line) for line in lines]


def grouped(
    record: Mapping[str, Any],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each row, with the one of its group that it is compared with.

    That is the first one, or whose name is the record's `basis`.
    """
    rows = [row for row in record['rows'] if 'failed' not in row]
    named = [row for row in rows if row['name'] == record.get('basis')]
    first = {row['group']: row for row in [*rows[::-1], *named]}
    for row in rows:
        yield row, first[row['group']]


def contest(record: Mapping[str, Any]) -> list[str]:
    """The table of a record: everyone beside the first of its group.

    Columns that no row has anything for are left out.
    """
    unit, products = record['unit'], record.get('products', {})
    first = {basis['name'] for _, basis in grouped(record)}
    of = first.pop() if len(first) == 1 else 'the first'
    titles = ['', '', f'{unit}/s (lowest-highest)', f'x {of}']
    columns: dict[str, list[str]] = {title: [] for title in (
        'group', 'name', 'rate', 'ratio', 'p50, ms', 'p99, ms',
        'ms of processor', 'of matrix products', *_FORMULA, 'apart', 'cores',
        'GB', 'others',
    )}  # fmt: skip
    group = None
    for row, basis in grouped(record):
        many = len(row['seconds']) >= MANY
        p50, p99 = (
            f'{1e3 * percentile(row["seconds"], share):.1f}' if many else ''
            for share in (0.5, 0.99)
        )
        if 'percentiles' in row:
            p50, p99 = (f'{1e3 * x:.1f}' for x in row['percentiles'])
        share = ''
        if row['group'] in products and 'operations' in row:
            made = row['operations'] / row['tokens']
            share = percent(
                statistics.median(rates(row)) * made / products[row['group']]
            )
        compared = shown(ratios(row, basis), 2)
        values = (
            row['group'] if row['group'] != group else '',
            row['name'],
            shown(rates(row)),
            '1' if row is basis else compared,
            p50, p99,
            f'{1e3 * row["processor"]:.1f}' if 'processor' in row else '',
            share, *beside_formula(row),
            apart(row.get('apart')),
            f'{row["cores"]:.1f}',
            f'{row["bytes"] / GIGABYTE:.2f}',
            others(row['others']),
        )  # fmt: skip
        group = row['group']
        for title, value in zip(columns, values, strict=True):
            columns[title].append(value)
    heads = dict(zip(('group', 'name', 'rate', 'ratio'), titles, strict=True))
    kept = {t: c for t, c in columns.items() if any(c) or t == 'name'}
    rows = list(zip(*kept.values(), strict=True))
    lines = table([heads.get(title, title) for title in kept], rows)
    return [*lines, *failed(record), *busy(record)]


def beside_formula(row: Mapping[str, Any]) -> list[str]:
    """A step's time, that of the formula, and their ratio, where it is known.

    The formula's time is that of the operations at the rate of one large
    matrix product, and of the bytes at the rate of one large copy.
    """
    if 'copies' not in row:
        return ['', '', '']
    seconds, predicted = step_seconds(row), formula(row)
    return [
        f'{1e3 * seconds:,.1f}', f'{1e3 * predicted:,.1f}',
        f'{seconds / predicted:.2f}',
    ]  # fmt: skip


def apart(distance: float | None) -> str:
    """How far vectors are apart, where that is known."""
    if distance is None:
        return ''
    return f'{distance:.0e}' if distance else '0'


def failed(record: Mapping[str, Any]) -> list[str]:
    """A paragraph for each contestant that failed: its last words."""
    lines = []
    for row in record['rows']:
        if 'failed' in row:
            words = row['failed'].splitlines()[-1].replace('`', "'")
            lines += ['', f'**{row["name"]} failed**: `{words[:200]}`']
    return lines


def others(share: float) -> str:
    """What others took of the machine; bold where that is much."""
    text = percent(share)
    return f'**{text}**' if share > BUSY else text


def busy(record: Mapping[str, Any]) -> list[str]:
    """A paragraph where others worked before or meanwhile, else nothing."""
    most = max((row['others'] for row in record['rows']), default=0.0)
    if max(most, record['before']) <= BUSY:
        return []
    return [
        '',
        f'**The machine was busy**: others took {percent(record["before"])} of '
        f'it before, and up to {percent(most)} meanwhile. Ratios are of this '
        'machine at that time, not of the programs: threads that wait for each '
        'other lose most.',
    ]


def growth(record: Mapping[str, Any]) -> list[str]:
    """The table of a curve: what a step takes, beside the formula."""
    rows = []
    for row, _ in grouped(record):
        rows.append([
            row['group'], f'{row["x"]:,}', shown(rates(row)),
            *beside_formula(row), f'{row["bytes"] / GIGABYTE:.2f}',
            others(row['others']),
        ])  # fmt: skip
    titles = (
        '', record['x'], f'{record["unit"]}/s (lowest-highest)', *_FORMULA,
        'GB', 'others',
    )  # fmt: skip
    return [*table(titles, rows), *failed(record), *busy(record)]


def stages(record: Mapping[str, Any]) -> list[str]:
    """The table of stages: a column for each row, medians of its turns."""
    rows = record['rows']
    lines = [
        [stage, *(f'{row["stages"][stage]:.1f}' for row in rows)]
        for stage in rows[0]['stages']
    ]
    said = table(['', *(row['name'] for row in rows)], lines)
    if steps := record.get('steps'):
        low, high = steps['spread']
        beside = max(0.0, steps['share'])  # no less than nothing
        said += ['', (
            f'A step at {steps["size"]} takes {steps["run"]:.0f} ms in a run '
            f'({low:.0f}-{high:.0f}), of which {beside:.1%} is not the '
            f"trainer's alone and {steps['outside']:.1%} outside its graph."
        )]  # fmt: skip
    return [*said, *busy(record)]


def step_seconds(row: Mapping[str, Any]) -> float:
    """Of one step of a row, whose amount is under `tokens`."""
    return row['tokens'] / statistics.median(rates(row))


def formula(row: Mapping[str, Any]) -> float:
    """Seconds of a step, by its operations and bytes."""
    return row['operations'] / row['products'] + row['traffic'] / row['copies']


# `clients` are too many for the plot.
KINDS = {
    'contest': contest, 'clients': contest, 'growth': growth, 'stages': stages
}  # fmt: skip


def lines_of(record: Mapping[str, Any]) -> list[str]:
    """The table of a record of any kind."""
    return KINDS[record.get('kind', 'contest')](record)


def merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One record of several of the same kind, whose groups differ."""
    return {
        **records[0],
        'before': max(record['before'] for record in records),
        'rows': [row for record in records for row in record['rows']],
    }


def show(*records: Mapping[str, Any]) -> None:
    """Prints tables, and last of all the records as JSON in one line."""
    for record in records:
        print('\n'.join(lines_of(record)), end='\n\n')
    print(json.dumps({'records': records}), flush=True)


# ------------------------------------------------------------------- documents


def fill(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """A document with lines between its markers.

    Args:
        text: of the document.
        parts: by name; a name without markers is an error, markers without a
            name keep what they have.

    Raises:
        ValueError: a name has no markers there, or more than one pair.
    """
    for name, lines in parts.items():
        made = '\n'.join(lines) + '\n'
        text, count = re.subn(
            _MARKED.format(re.escape(name)),
            lambda found, made=made: found[1] + made + found[2],
            text,
            flags=re.S,
        )
        if count != 1:
            raise ValueError(f'{count} pairs of markers of {name!r}, not one')
    return text


def between(text: str) -> dict[str, str]:
    """What stands between the markers of a document, by name."""
    return dict(
        re.findall(r'<!-- bench: (.*?) -->\n(.*?)<!-- end -->', text, re.S)
    )


# ------------------------------------------------------------------------ plot


def draw(path: pathlib.Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Draws ratios of contests, and curves beside their formula, into a PNG.

    Args:
        path: of the picture.
        records: by title.
    """
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    contests = {
        title: record for title, record in records.items()
        if record.get('kind', 'contest') == 'contest'
    }  # fmt: skip
    curves = {t: r for t, r in records.items() if r.get('kind') == 'growth'}
    columns = max(1, len(curves))
    lines = sum(len(record['rows']) for record in contests.values())
    figure = pyplot.figure(
        figsize=(10, 3.5 + 0.17 * lines), layout='constrained'
    )
    heights = 1 + 0.17 * lines, 2.5
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    _draw_contests(above.subplots(), contests)
    if curves:
        axes = below.subplots(1, columns, squeeze=False)[0]
        for axis, (title, record) in zip(axes, curves.items(), strict=True):
            _draw_curve(axis, title, record)
        axes[0].set_ylabel('ms a step (dashes: formula)')
    figure.savefig(path, dpi=110, format='png', bbox_inches='tight')
    pyplot.close(figure)


def _draw_contests(
    axis: Any, contests: Mapping[str, Mapping[str, Any]]
) -> None:
    """A line for each ratio: median, lowest and highest, on a log scale."""
    names, middles, low, high, disturbed = [], [], [], [], []
    for title, record in contests.items():
        for row, basis in grouped(record):
            if row is basis:
                continue
            found = ratios(row, basis)
            group = f', {row["group"]}' if row['group'] else ''
            names.append(f'{title}{group}: {row["name"]} / {basis["name"]}')
            middles.append(statistics.median(found))
            low.append(middles[-1] - min(found))
            high.append(max(found) - middles[-1])
            disturbed.append(max(row['others'], basis['others']) > BUSY)
    places = range(len(names))
    axis.errorbar(middles, places, xerr=(low, high), fmt='none', capsize=2)
    faces = ['white' if each else 'C0' for each in disturbed]
    axis.scatter(middles, places, c=faces, edgecolors='C0', zorder=3)
    axis.set_yticks(places, names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale('log')
    axis.xaxis.set_major_formatter('{x:g}')
    axis.axvline(1, color='0.6', linewidth=0.8)
    axis.set_xlabel(
        'rate of the first, over that of the second (hollow: others disturbed)'
    )


def _draw_curve(axis: Any, title: str, record: Mapping[str, Any]) -> None:
    """Seconds of a step measured (points) and by the formula (dashes)."""
    from matplotlib import ticker

    known = [row for row, _ in grouped(record)]
    groups = dict.fromkeys(row['group'] for row in known)
    for number, group in enumerate(groups):
        rows = [row for row in known if row['group'] == group]
        x = [row['x'] for row in rows]
        colour = f'C{number}'
        axis.plot(x, [1e3 * step_seconds(row) for row in rows], 'o-',
                  color=colour, label=group or None)  # fmt: skip
        axis.plot(x, [1e3 * formula(row) for row in rows], '--',
                  color=colour)  # fmt: skip
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xlabel(record['x'])
    axis.set_title(title, fontsize=9, loc='left')
    axis.set_xticks(sorted({row['x'] for row in known}), minor=False)
    axis.tick_params(labelsize=7)
    axis.tick_params('x', labelrotation=30)
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(ticker.FuncFormatter(lambda x, _: f'{x:g}'))
        which.set_minor_formatter(ticker.NullFormatter())
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    if any(groups):
        axis.legend(fontsize=7)
