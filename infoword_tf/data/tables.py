"""Tables: TSV, CSV, JSON lines, Parquet, Arrow, or a set of TFDS.

    table = tables.open_table('reviews.csv.gz')

The first line of TSV and CSV names the columns. A cell of TSV is the text
between tabs, whatever it holds; CSV knows quotes (RFC 4180), and a semicolon,
a tab or a bar may replace the comma. Columns of JSON lines are those of all
lines. Every file is read as a stream, packed or not (readers.py). labelling.py
makes examples of the columns.
"""

import csv
import itertools
import json
import pathlib
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from infoword_tf import errors, files
from infoword_tf.choices import DELIMITERS
from infoword_tf.data import readers

Cells = tuple[str | None, ...]
Row = TypeVar('Row')  # (number of the line, content)
_LONGEST_CELL = 1 << 24  # characters; a quote that is never closed ends there
_SNIFFED = 100  # lines of CSV from which the delimiter is guessed
# A first line is compared with so many that follow; a name of more words is
# taken for a text, and one of more letters is truncated in messages.
_NEXT, _WORDS, _LETTERS = 1000, 4, 40
_OF_HUB = '; one of a data set of the Hub is hf://datasets/OWNER/NAME/PATH'
_NO_CELL = (dict, list, bytes)  # values of records that are no cells


class NoColumn(errors.InputError):
    """Missing or repeated column of a name."""


class Table(NamedTuple):
    """Lines of named columns, read once.

    Attributes:
        where: the file, or the data set and its split.
        names: columns.
        rows: (number of the line, from 1; a cell a column, None where it is
            empty), in order. In a data set lines count examples.
        is_headed: whether the names are the first line of a file.
        nested: columns whose first cell is a list, an object or bytes.
        classes: names of classes by column, where cells are their numbers or
            -1; of a column of names ().
    """

    where: str
    names: tuple[str, ...]
    rows: Iterator[tuple[int, Cells]]
    is_headed: bool = False
    nested: tuple[str, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})


# ---------------------------------------------------------------------- reading


def open_table(
    name: str,
    names: Sequence[str] | None = None,
    broken: Callable[[str], None] | None = None,
    lacking: str | None = None,
    delimiter: str | None = None,
    lists: Collection[str] = (),
) -> Table:
    """Opens a table; later lines raise errors when read.

    Args:
        name: a path that ends in .tsv, .txt (as .tsv), .csv, .jsonl, .parquet
            or .arrow, perhaps packed; or `tfds:NAME[/CONFIG][:SPLIT]`, by
            default its train.
        names: columns, where a TSV or CSV has no line of names. (If it has one
            all the same, that line is skipped.)
        broken: called with the complaint of a line with too many or too few
            cells, which is then skipped; None: it is raised.
        lacking: one of `names` that a file may lack.
        delimiter: name of the character between cells of a CSV, of
            `DELIMITERS`; None: guessed.
        lists: columns whose cells may be lists; they are read as JSON.

    Raises:
        FileNotFoundError, ValueError: as the message says, with file and line.
    """
    if name.startswith('tfds:'):
        return _open_tfds(name.removeprefix('tfds:'))
    path = pathlib.Path(name).expanduser()
    suffix = pathlib.Path(readers.unpacked(path)).suffix
    if suffix not in _ENDINGS or path.is_dir():
        raise errors.InputError(
            'unknown_table_kind',
            f'{path}: its name must end in {", ".join(_ENDINGS)} (or the same '
            'and .gz or .zst), which says how to read it, or be tfds:NAME; of '
            'a folder of save_to_disk name a file, data-*.arrow. Such tables '
            'have a text, or two, a row. Files of a word and its label a line '
            '(CoNLL) are read by tasks.tag',
        )
    if not path.is_file():
        raise FileNotFoundError(
            f'{name}: there is no such file' + _OF_HUB * files.is_of_hub(name)
        )
    if suffix in _RECORDS:
        return _open_records(path, suffix, lists)
    if suffix == '.csv':
        rows = read_csv(path, delimiter)
    else:
        rows = read_tsv(path)
    first = _first(rows, path)
    columns = tuple(name.strip() for name in first[1])
    if names is not None:
        if len(columns) == len(names) - 1:
            names = [name for name in names if name != lacking]
        if columns != tuple(names):
            rows = itertools.chain([first], rows)
        columns = tuple(names)
    cells = _whole(rows, columns, path, broken)
    return Table(str(path), columns, cells, names is None)


def _open_records(
    path: pathlib.Path, suffix: str, lists: Collection[str]
) -> Table:
    """Opens a file of records; the first record names the columns."""
    rows = _RECORDS[suffix](path)
    first = _first(rows, path)
    columns = tuple(first[1])
    nested = [
        name
        for name, value in first[1].items()
        if isinstance(value, _NO_CELL) and not (
            name in lists and isinstance(value, list)
        )
    ]  # fmt: skip
    return Table(
        str(path),
        columns,
        _by_name(itertools.chain([first], rows), columns, lists),
        nested=tuple(nested),
        classes={} if suffix == '.jsonl' else readers.class_names(path),
    )


def _first(rows: Iterator[Row], path: pathlib.Path) -> Row:
    """Reads the first row of a file; ValueError: no row."""
    try:
        return next(rows)
    except StopIteration:
        raise empty(path) from None


def empty(path: str | pathlib.Path) -> errors.InputError:
    """Makes the error for a file without a row."""
    return errors.InputError('empty_table', f'{path} is empty')


def _whole(
    rows: Iterable[tuple[int, Sequence[str]]],
    names: Sequence[str],
    path: pathlib.Path,
    broken: Callable[[str], None] | None,
) -> Iterator[tuple[int, Cells]]:
    """Yields lines with a cell for each name."""
    for line, cells in rows:
        if len(cells) == len(names):
            yield line, tuple(cells)
        elif len(cells) > 1 or (cells and cells[0].strip()):  # no blank line
            complaint = (
                f'{path}, line {line}: {len(cells)} cell(s), where there are '
                f'{len(names)} columns ({", ".join(names)})'
            )
            if broken is None:
                raise errors.InputError('unequal_cells', complaint)
            broken(complaint)


def _by_name(
    rows: readers.Numbered, names: Sequence[str], lists: Collection[str] = ()
) -> Iterator[tuple[int, Cells]]:
    """Yields records as cells; cells of `lists` may be lists, as JSON."""
    for line, record in rows:
        cells = []
        for name in names:
            value = record.get(name)
            if isinstance(value, str):
                value = valid(value)
            elif isinstance(value, list) and name in lists:
                value = valid(json.dumps(value, default=str))
            elif isinstance(value, _NO_CELL):
                value = None  # raises where the column is read
            elif value is not None:
                value = json.dumps(value, default=str).strip('"')
            cells.append(value)
        yield line, tuple(cells)


def valid(text: str) -> str:
    """Replaces half characters, which JSON may escape, by `?`."""
    return text.encode('utf-8', 'replace').decode()


def read_tsv(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, cells) of a file; raises as `readers.lines`."""
    for number, line in enumerate(readers.lines(path), 1):
        yield number, line.removesuffix('\n').removesuffix('\r').split('\t')


def read_csv(
    path: pathlib.Path, delimiter: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yields records with the line on which each begins."""
    csv.field_size_limit(_LONGEST_CELL)
    lines = readers.lines(path)
    first = list(itertools.islice(lines, _SNIFFED))
    delimiter = DELIMITERS[delimiter] if delimiter else _delimiter(first)
    reader = csv.reader(
        itertools.chain(first, lines), delimiter=delimiter, strict=True
    )
    begin = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise errors.InputError(
                'no_csv',
                f'{path}, line {begin}: no CSV ({error}); where quotes are '
                'only characters the file is a .tsv',
            ) from None
        yield begin, cells
        begin = reader.line_num + 1


def _delimiter(lines: Sequence[str]) -> str:
    """Guesses the delimiter of CSV from the first lines.

    It gives each record as many cells, two at least; a comma if it does, else
    the delimiter that gives the most. (`csv.Sniffer` fails where a quoted cell
    holds a delimiter between blanks.)
    """

    def cells_of(delimiter: str) -> int:
        """Counts the cells of each record; 0: unequal counts, or one."""
        try:
            records = list(csv.reader(lines, delimiter=delimiter))
        except csv.Error:
            return 0
        # The last record may continue after these lines.
        records = records[:-1] if len(lines) == _SNIFFED else records
        cells = {len(record) for record in records if record}
        return cells.pop() if len(cells) == 1 and cells != {1} else 0

    comma = DELIMITERS[',']
    if cells_of(comma):
        return comma
    best = max(DELIMITERS.values(), key=cells_of)
    return best if cells_of(best) else comma


def _read_jsonl(path: pathlib.Path) -> readers.Numbered:
    """Yields records with the columns of all lines, null where missing."""
    names: dict[str, None] = {}
    for _, record in readers.read_jsonl(path):
        names |= dict.fromkeys(record)
    for line, record in readers.read_jsonl(path):
        yield line, {name: record.get(name) for name in names}


_RECORDS: dict[str, Callable[[pathlib.Path], readers.Numbered]] = {
    '.jsonl': _read_jsonl, '.parquet': readers.read_columns,
    '.arrow': readers.read_columns,
}  # fmt: skip
_ENDINGS = ('.tsv', '.txt', '.csv', *_RECORDS)


def _open_tfds(spec: str) -> Table:
    """Opens a split of a data set; labels are class names, -1 is no label."""
    from infoword_tf.data import prepared

    name, split = prepared.parse(spec, 'SPLIT')
    dataset = prepared.open_prepared(name)
    split = split or 'train'
    prepared.check_split(dataset, split)
    where = f'{dataset.name}:{split}'
    names = tuple(dataset.features)

    def cells() -> Iterator[tuple[int, Cells]]:
        features = [dataset.features[name] for name in names]
        rows = prepared.read(dataset, split, names)
        for line, values in enumerate(rows, 1):
            at = itertools.repeat(f'{where}, line {line}')
            yield line, tuple(map(_cell, features, values, at))

    classes = {
        name: ()
        for name, feature in dataset.features.items()
        if hasattr(feature, 'int2str')
    }
    return Table(where, names, cells(), classes=classes)


def _cell(feature: Any, value: Any, where: str) -> str | None:
    from infoword_tf.data import prepared

    if isinstance(value, bytes):
        return prepared.text_of(value, where)
    if hasattr(feature, 'int2str'):
        return None if value < 0 else feature.int2str(int(value))
    return str(value)


# --------------------------------------------------------------------- examples


def split_by(table: Table, column: str) -> dict[str, Table]:
    """Splits a table by the values of a column, in order of appearance.

    The table is read to its end, and held in memory.

    Raises:
        ValueError: there is no such column (NoColumn), or a cell of it is
            empty; with file and line.
    """
    place = column_of(table, column)
    lines: dict[str, list[tuple[int, Cells]]] = {}
    for line, cells in table.rows:
        value = (cells[place] or '').strip()
        if not value:
            raise errors.InputError(
                'empty_cell',
                f'{table.where}, line {line}: there is nothing in the column '
                f'{column}',
            )
        lines.setdefault(value, []).append((line, cells))
    return {
        value: table._replace(rows=iter(rows)) for value, rows in lines.items()
    }


def column_of(table: Table, name: str) -> int:
    """Returns the place of a column of texts, by name.

    Raises:
        ValueError: not one column has the name (NoColumn), or cells are nested.
    """
    if table.names.count(name) != 1:
        how = 'no' if name not in table.names else 'more than one'
        names = ', '.join(
            name if len(name) <= _LETTERS else f'{name[: _LETTERS - 1]}…'
            for name in table.names
        )
        raise NoColumn(
            'no_single_column',
            f'{table.where} has {how} column {name!r}: its columns are {names}',
        )
    if name in table.nested:
        raise errors.InputError(
            'column_of_lists',
            f'{table.where}: the column {name!r} holds lists, objects or '
            'bytes; give a table with a text, a number or null in each cell',
        )
    return table.names.index(name)


def is_name(cell: str) -> bool:
    """Tells whether a cell may name a column: no number, and a few words."""
    is_number = cell.strip('+-.,0123456789') == ''
    return 0 < len(cell.split()) <= _WORDS and not is_number


def lacks_names(table: Table) -> bool:
    """Tells whether the first line reads like an example, not like names.

    A cell is empty, a number or a text, or stands in its column again.
    """

    if not table.is_headed:
        return False
    lines = (cells for _, cells in itertools.islice(table.rows, _NEXT))
    return not all(map(is_name, table.names)) or any(
        name == cell
        for cells in lines
        for name, cell in zip(table.names, cells, strict=True)
    )


