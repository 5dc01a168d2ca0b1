"""Tables and a plot of benchmarks, and the documents that have them.

`lines_of` makes a table of Markdown of a record (turns.py). `show` prints it
for a benchmark that is run alone, and ends with the record as JSON; `fill` puts
tables between the markers of a document,

    <!-- bench: NAME -->
    <!-- end -->

Ratios are medians over rounds, with the lowest and the highest.
"""

import json
import pathlib
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from infoword_tf import errors

BUSY = 0.05  # share of the machine that others may take without a note
MANY = 20  # turns, from which on percentiles are meaningful
GIGABYTE = 1e9
_MARKED = r'(<!-- bench: {} -->\n).*?(<!-- end -->)'


# --------------------------------------------------------------------- numbers


def rates(row: Mapping[str, Any]) -> list[float]:
    """Divides amounts by seconds, in each turn."""
    return [
        amount / seconds
        for amount, seconds in zip(row['amounts'], row['seconds'], strict=True)
    ]


def ratios(row: Mapping[str, Any], basis: Mapping[str, Any]) -> list[float]:
    """Divides the rates of two contestants, in each round."""
    return [a / b for a, b in zip(rates(row), rates(basis), strict=True)]


def shown(values: Sequence[float], digits: int | None = None) -> str:
    """Writes the median of values, with the lowest and highest of several.

    Args:
        values: one or more values.
        digits: after the point; None: three significant digits.
    """
    middle = statistics.median(values)
    if digits is None:
        digits = max(0, 2 - len(str(int(abs(middle)))) + (abs(middle) >= 1))
    middle, low, high = (
        f'{value:,.{digits}f}' for value in (middle, min(values), max(values))
    )
    return middle if low == high else f'{middle} ({low}-{high})'


# ---------------------------------------------------------------------- tables


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Makes lines of Markdown."""
    lines = [f'| {" | ".join(cells)} |' for cells in (titles, *rows)]
    lines.insert(1, '|---' * len(titles) + '|')
    return [re.sub(r'\|  (?=\|)', '| ', line) for line in lines]


def grouped(
    record: Mapping[str, Any],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yields each contestant with the basis of the group.

    The basis is the contestant of the record's `basis`, or the first.
    """
    rows = [row for row in record['rows'] if 'failed' not in row]
    named = [row for row in rows if row['name'] == record.get('basis')]
    first = {row['group']: row for row in [*rows[::-1], *named]}
    for row in rows:
        yield row, first[row['group']]


def lines_of(record: Mapping[str, Any]) -> list[str]:
    """Makes the table of a record, without empty columns."""
    pairs = list(grouped(record))
    bases = {basis['name'] for _, basis in pairs}
    of = bases.pop() if len(bases) == 1 else 'the first'
    columns: dict[str, Callable[..., str]] = {
        f'{record["unit"]}/s (lowest-highest)': (
            lambda row, _: shown(rates(row))
        ),
        f'x {of}': lambda row, basis: (
            '1' if row is basis else shown(ratios(row, basis), 2)
        ),
        'score': lambda row, _: (
            shown(row['scores'], 3) if row.get('scores') else ''
        ),
        'p50, ms': lambda row, _: percentile(row, 0),
        'p99, ms': lambda row, _: percentile(row, 1),
        'ms of processor': lambda row, _: (
            f'{1e3 * row["processor"]:.1f}' if 'processor' in row else ''
        ),
        'of matrix products': lambda row, _: of_products(record, row),
        'apart': lambda row, _: apart(row.get('apart')),
        'cores': lambda row, _: f'{row["cores"]:.1f}',
        'GB': lambda row, _: f'{row["bytes"] / GIGABYTE:.2f}',
        'others': lambda row, _: others(row['others']),
    }
    filled = {title: [cell(*pair) for pair in pairs]
              for title, cell in columns.items()}  # fmt: skip
    filled = {title: cells for title, cells in filled.items() if any(cells)}
    groups = [row['group'] for row, _ in pairs]
    before = [None, *groups[:-1]]
    lines = []
    for number, (row, _) in enumerate(pairs):
        group = groups[number] if groups[number] != before[number] else ''
        lines.append([
            *([group] if any(groups) else []), row['name'],
            *(cells[number] for cells in filled.values()),
        ])  # fmt: skip
    heads = ['', ''] if any(groups) else ['']
    lines = table([*heads, *filled], lines)
    return [*lines, *failed(record), *busy(record)]


def percentile(row: Mapping[str, Any], which: int) -> str:
    """Writes a percentile of milliseconds, of many turns.

    Args:
        row: row of a record; may have `percentiles`, in seconds.
        which: 0: p50, 1: p99.
    """
    if 'percentiles' in row:
        return f'{1e3 * row["percentiles"][which]:.1f}'
    count = len(row['seconds'])
    if count < MANY:
        return ''
    place = min(count - 1, int((0.5, 0.99)[which] * count))
    return f'{1e3 * sorted(row["seconds"])[place]:.1f}'


def of_products(record: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Writes the share of the machine's rate of matrix products."""
    best = record.get('products', {}).get(row['group'])
    if not best or 'operations' not in row:
        return ''
    each = row['operations'] / row['tokens']
    return f'{statistics.median(rates(row)) * each / best:.0%}'


def apart(distance: float | None) -> str:
    """Writes the distance of vectors, if known."""
    if distance is None:
        return ''
    return f'{distance:.0e}' if distance else '0'


def failed(record: Mapping[str, Any]) -> list[str]:
    """Writes a paragraph for each contestant that failed."""
    lines = []
    for row in record['rows']:
        if 'failed' in row:
            words = row['failed'].splitlines()[-1].replace('`', "'")
            lines += ['', f'**{row["name"]} failed**: `{words[:200]}`']
    return lines


def others(share: float) -> str:
    """Writes the share of the machine that others took; bold if large."""
    return f'**{share:.0%}**' if share > BUSY else f'{share:.0%}'


def busy(record: Mapping[str, Any]) -> list[str]:
    """Writes a paragraph if other work disturbed a benchmark."""
    most = max((row['others'] for row in record['rows']), default=0.0)
    if max(most, record['before']) <= BUSY:
        return []
    return [
        '',
        f'**The machine was busy**: others took {record["before"]:.0%} of '
        f'it before, and up to {most:.0%} meanwhile. Ratios are of this '
        'machine at that time, not of the programs: threads that wait for each '
        'other lose most.',
    ]


def merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins records of one unit, whose groups differ."""
    return {
        **records[0],
        'before': max(record['before'] for record in records),
        'rows': [row for record in records for row in record['rows']],
    }


def show(record: Mapping[str, Any]) -> None:
    """Prints the table, and last of all the record as JSON in one line."""
    print('\n'.join(lines_of(record)), end='\n\n')
    print(json.dumps(record), flush=True)


# ------------------------------------------------------------------- documents


def fill(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Puts lines between the markers of a document.

    Raises:
        ValueError: a name has no markers, or more than one pair.
    """
    for name, lines in parts.items():
        block = '\n'.join(lines) + '\n'
        text, count = re.subn(
            _MARKED.format(re.escape(name)),
            lambda match, block=block: match[1] + block + match[2],
            text,
            flags=re.S,
        )
        if count != 1:
            raise errors.InputError(
                'not_one_marker',
                f'{count} pairs of markers of {name!r}, not one',
            )
    return text


def between(text: str) -> dict[str, str]:
    """Returns the text between the markers of a document, by name."""
    return dict(
        re.findall(r'<!-- bench: (.*?) -->\n(.*?)<!-- end -->', text, re.S)
    )


# ------------------------------------------------------------------------ plot


def draw(path: pathlib.Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Draws a line for each ratio into a PNG: median, lowest and highest."""
    from matplotlib.figure import Figure

    names, middles, low, high, disturbed = [], [], [], [], []
    for title, record in records.items():
        for row, basis in grouped(record):
            if row is basis:
                continue
            each = ratios(row, basis)
            group = f', {row["group"]}' if row['group'] else ''
            names.append(f'{title}{group}: {row["name"]} / {basis["name"]}')
            middles.append(statistics.median(each))
            low.append(middles[-1] - min(each))
            high.append(max(each) - middles[-1])
            disturbed.append(max(row['others'], basis['others']) > BUSY)
    figure = Figure((10, 1.2 + 0.17 * len(names)), layout='constrained')
    axis, places = figure.subplots(), range(len(names))
    axis.errorbar(middles, places, xerr=(low, high), fmt='none', capsize=2)
    faces = ['white' if each else 'C0' for each in disturbed]
    axis.scatter(middles, places, c=faces, edgecolors='C0', zorder=3)
    axis.set_yticks(places, names, fontsize=7)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xscale('log')
    axis.xaxis.set_major_formatter('{x:g}')
    axis.axvline(1, color='0.6', linewidth=0.8)
    axis.set_xlabel(
        'rate of the first, over that of the second (hollow: others disturbed)'
    )
    figure.savefig(path, dpi=110, format='png', bbox_inches='tight')
