"""Labelled tables: TSV, CSV, JSON lines, Parquet, Arrow, or a set of TFDS.

    table = tables.open_table('reviews.csv.gz')
    examples = tables.examples_of(table, text='review', label='stars')
    classes = tables.classes(examples)
    targets = tables.known_labels(examples, classes)

The first line of TSV and CSV names the columns. A cell of TSV is the text
between tabs, whatever it holds; CSV knows quotes (RFC 4180), and a semicolon,
a tab or a bar may replace the comma. Columns of JSON lines are those of all
lines. Several labels of a text are a list, which in TSV and CSV is JSON, or a
column for each, of 0 and 1, or parted by a separator. Where Parquet, Arrow or
TFDS has names for the numbers of classes, labels are these names, and rows
without a class are left out. Every file is read as a stream, packed or not
(readers.py).
"""

import collections
import csv
import itertools
import json
import operator
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
from typing import Any, NamedTuple, Self

import numpy as np

from infoword_tf import errors
from infoword_tf.choices import DELIMITERS
from infoword_tf.data import readers, records

Cells = tuple[str | None, ...]
_LONGEST_CELL = 1 << 24  # characters; a quote that is never closed ends there
_SNIFFED = 100  # lines of CSV from which the delimiter is guessed
_SUBSET_SEED = 0, 0
_LARGEST = 3e38  # of float32
# A first line is compared with so many that follow; a name of more words is
# taken for a text, and one of more letters is truncated in messages.
_NEXT, _WORDS, _LETTERS = 1000, 4, 40
_SHOWN = 20  # classes in a complaint
NO_LABEL = ('-', '-1')  # in tables of people: of no class
_NO_CELL = (dict, list, bytes)  # values of records that are no cells
# Whether a text has the label of a column.
_YES_OR_NO = {'0': False, '1': True, '0.0': False, '1.0': True,
              'false': False, 'true': True}  # fmt: skip


class NoColumn(errors.InputError):
    """Missing or repeated column of a name."""


class Table(NamedTuple):
    """Lines of named columns, read once.

    Attributes:
        where: the file, or the data set and its split.
        names: of the columns.
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


class TableExamples(NamedTuple):
    """n examples of a table.

    Attributes:
        first: texts.
        second: texts; None: there is one text an example.
        labels: names of classes; None: unknown, or not read.
        scores: [n] float32; likewise.
        where: as of the table.
        lines: [n] int64 numbers of lines.
        choices: texts among which the label chooses, n of each choice; None:
            the classes are the same for all.
        label_sets: names of the labels of each, where it may have several or
            none; None: one label each, in `labels`.
        classes: names that the table has for the numbers of classes, in order;
            (): it has none.
        notes: remarks for people.
    """

    first: list[str]
    second: list[str] | None
    labels: list[str] | None
    scores: np.ndarray | None
    where: str
    lines: np.ndarray
    choices: list[list[str]] | None = None
    label_sets: list[frozenset[str]] | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def subset(self, count: int | None) -> Self:
        """Selects `count` examples, in order; None: all. See `subset`."""
        if count is None or count >= len(self.first):
            return self
        chosen = subset(len(self.first), count)

        def taken(values: list[Any] | None) -> list[Any] | None:
            return values and [values[i] for i in chosen]

        return self._replace(
            first=taken(self.first),
            second=taken(self.second),
            labels=taken(self.labels),
            scores=None if self.scores is None else self.scores[chosen],
            lines=self.lines[chosen],
            choices=self.choices and list(map(taken, self.choices)),
            label_sets=taken(self.label_sets),
        )


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
        names: of the columns, where a TSV or CSV has no line of names. (If it
            has one all the same, that line is skipped.)
        broken: called with the complaint of a line with too many or too few
            cells, which is then skipped; None: it is raised.
        lacking: one of `names` that a file may lack.
        delimiter: of the cells of a CSV, of `DELIMITERS`; None: guessed.
        lists: columns whose cells may be lists; they are read as JSON.

    Raises:
        FileNotFoundError, ValueError: as the message says, with file and line.
    """
    if name.startswith('tfds:'):
        return _open_tfds(name.removeprefix('tfds:'))
    path = pathlib.Path(name).expanduser()
    suffix = pathlib.Path(readers.unpacked(path)).suffix
    if suffix not in _READERS or path.is_dir():
        raise errors.InputError(
            'unknown_table_kind',
            f'{path}: its name must end in {", ".join(_READERS)} (or the same '
            'and .gz or .zst), which says how to read it, or be tfds:NAME; of '
            'a folder of save_to_disk name a file, data-*.arrow. Such tables '
            'have a text, or two, a row. Files of a word and its label a line '
            '(CoNLL) are read by tasks.tag',
        )
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    more = {'delimiter': delimiter} if suffix == '.csv' else {}
    rows = _READERS[suffix](path, **more)
    try:
        first = next(rows)
    except StopIteration:
        raise empty(path) from None
    if isinstance(first[1], dict):
        columns, rows = tuple(first[1]), itertools.chain([first], rows)
        nested = [
            name
            for name, value in first[1].items()
            if isinstance(value, _NO_CELL) and not (
                name in lists and isinstance(value, list)
            )
        ]  # fmt: skip
        rows = _by_name(rows, columns, lists)
        names_of = {} if suffix == '.jsonl' else records.class_names(path)
        return Table(str(path), columns, rows, False, tuple(nested), names_of)
    columns = tuple(name.strip() for name in first[1])
    if names is not None:
        if len(columns) == len(names) - 1:
            names = [name for name in names if name != lacking]
        if columns != tuple(names):
            rows = itertools.chain([first], rows)
        columns = tuple(names)
    rows = _whole(rows, columns, path, broken)
    return Table(str(path), columns, rows, names is None)


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
    rows: records.Numbered, names: Sequence[str], lists: Collection[str] = ()
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


def _read_jsonl(path: pathlib.Path) -> records.Numbered:
    """Yields records with the columns of all lines, null where missing."""
    names: dict[str, None] = {}
    for _, record in records.read_jsonl(path):
        names |= dict.fromkeys(record)
    for line, record in records.read_jsonl(path):
        yield line, {name: record.get(name) for name in names}


_READERS = {'.tsv': read_tsv, '.txt': read_tsv, '.csv': read_csv,
            '.jsonl': _read_jsonl, '.parquet': records.read_columns,
            '.arrow': records.read_columns}  # fmt: skip


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


def examples_of(
    table: Table,
    text: str,
    pair: str | None = None,
    label: str | None = None,
    regress: bool = False,
    choices: Sequence[str] = (),
    label_columns: Sequence[str] = (),
    lists: bool = False,
    separator: str | None = None,
    drop: Collection[str] = (),
) -> TableExamples:
    """Reads the columns of a task from a table.

    Args:
        table: read to its end.
        text, pair, label: its columns; None: not read.
        regress: whether labels are scores.
        choices: columns of texts among which the label chooses.
        label_columns: columns of which each says of one label whether a text
            has it (0 or 1), instead of `label`.
        lists: whether a cell of `label` may be a list of several labels (JSON,
            see `open_table`); then all are, or none.
        separator: what parts several labels in a cell of `label`, which may be
            empty; None: nothing.
        drop: labels, as cells have them, of rows that are left out.

    Raises:
        NoColumn: a column is missing.
        ValueError: a line lacks a text or its label, a score is no finite
            number, several labels are no list, or no 0 or 1, or the table is
            empty; with file and line.
    """
    labels_in = [*label_columns] or [*filter(None, [label])]
    names = [text, *choices, *filter(None, [pair]), *labels_in]
    places = [column_of(table, name) for name in names]
    columns: list[list[str]] = [[] for _ in names]
    texts = len(names) - len(labels_in)
    lines, left_out = [], collections.Counter()
    of_class = not (regress or choices or label_columns)
    of_class = of_class and label in table.classes
    known = table.classes[label] if of_class else ()
    drop = {*drop, *(('', '-1') if of_class else ())}
    for line, cells in table.rows:
        marks = [(cells[place] or '').strip() for place in places[texts:]]
        if dropped := drop.intersection(marks):
            left_out[min(dropped)] += 1
            continue
        for number, place in enumerate(places):
            cell, is_label = cells[place], number >= texts
            if is_label and separator is not None:
                cell = cell or ''
            elif cell is None or (is_label and not cell.strip()):
                what = 'label' if is_label else 'text'
                raise errors.InputError(
                    'missing_cell',
                    f'{table.where}, line {line}: there is no {what} in the '
                    f'column {names[number]}'
                    + ('; where a text may have none name what parts several '
                       'with --separator' if is_label and lists else ''),
                )  # fmt: skip
            columns[number].append(cell.strip() if is_label else cell)
        lines.append(line)
    if not lines:
        raise errors.InputError(
            'table_without_rows',
            f'{table.where} has no rows'
            + (' with a label' if left_out else ''),
        )
    notes = ()
    if left_out:
        count, marks = left_out.total(), ', '.join(map(repr, left_out))
        notes = (
            f'{table.where}: {count:,} of {len(lines) + count:,} rows have no '
            f'label ({marks}) and are left out',
        )
    labels = columns[-1] if label and not label_columns else None
    scores = label_sets = None
    where = [f'{table.where}, line {line}' for line in lines]
    if known:
        labels = [_named(*x, known) for x in zip(labels, where, strict=True)]
    if label_columns:
        label_sets = _sets_of_columns(label_columns, columns[texts:], where)
    elif regress and labels is not None:
        scores_read = map(_score, labels, where)
        scores, labels = np.fromiter(scores_read, np.float32, len(labels)), None
    elif separator is not None and labels is not None:
        label_sets, labels = _parted(labels, separator, where), None
    elif lists and labels is not None and _is_list(labels[0]):
        label_sets, labels = list(map(_label_set, labels, where)), None
    elif lists and labels is not None:
        _check_single(labels, where)
    return TableExamples(
        columns[0],
        columns[names.index(pair)] if pair else None,
        labels,
        scores,
        table.where,
        np.array(lines),
        columns[1 : 1 + len(choices)] if choices else None,
        label_sets,
        known,
        notes,
    )


def _named(cell: str, where: str, names: Sequence[str]) -> str:
    """Names the class of a cell, or the classes of a list, by number."""
    several = _is_list(cell)
    numbers = json.loads(cell) if several else [cell]
    named = [
        names[int(x)]
        for x in numbers
        if str(x).isdecimal() and int(x) < len(names)
    ]
    if len(named) < len(numbers):
        raise errors.InputError(
            'label_beyond_classes',
            f'{where}: {_shown(cell)} is no number of the {len(names)} classes '
            'that the file has names for',
        )
    return json.dumps(named) if several else named[0]


def _parted(
    labels: Sequence[str], separator: str, where: Sequence[str]
) -> list[frozenset[str]]:
    """Splits cells into labels; an empty cell has none."""
    if _is_list(labels[0]):
        raise errors.InputError(
            'separator_of_lists',
            f'{where[0]}: {_shown(labels[0])} is a list of labels, which '
            'nothing parts; leave out --separator',
        )
    parts = ([x.strip() for x in cell.split(separator)] for cell in labels)
    return [frozenset(filter(None, x)) for x in parts]


def _is_list(cell: str) -> bool:
    """Tells whether a cell is a JSON list."""
    try:
        return cell[:1] == '[' and isinstance(json.loads(cell), list)
    except (ValueError, RecursionError):
        return False


def _check_single(labels: Sequence[str], where: Sequence[str]) -> None:
    """Raises ValueError for a list among labels, or one in Python's syntax.

    Args:
        labels: of all examples.
        where: the place of each, for the message.
    """
    for cell, place in zip(labels, where, strict=True):
        if cell[:1] != '[':
            continue
        if _is_list(cell):
            raise errors.InputError(
                'label_is_list',
                f'{place}: {_shown(cell)} is a list of labels, and the first '
                'row has one label; make a list of every one',
            )
        if cell[:2] in ('["', "['") and cell[-2:] in ('"]', "']"):
            raise errors.InputError(
                'label_list_not_json',
                f'{place}: {_shown(cell)} is no list as JSON writes it; write '
                'several labels as ["a", "b"]',
            )


def _label_set(cell: str, where: str) -> frozenset[str]:
    """Reads the labels of a text; whole numbers become names."""
    values = json.loads(cell) if _is_list(cell) else None
    if values is None:
        raise errors.InputError(
            'label_no_list',
            f'{where}: {_shown(cell)} is no list of labels, and the first row '
            'has one; write ["a", "b"], or [] where there is none',
        )
    for value in values:
        is_name = isinstance(value, str) and value.strip()
        if not is_name and type(value) is not int:
            raise errors.InputError(
                'wrong_label_in_list',
                f'{where}: {_shown(json.dumps(value))} in a list of labels is '
                'no label; labels are strings, or whole numbers',
            )
    return frozenset(str(value).strip() for value in values)


def _sets_of_columns(
    names: Sequence[str], columns: Sequence[Sequence[str]], where: Sequence[str]
) -> list[frozenset[str]]:
    """Reads the labels of each text from columns of 0 and 1."""
    has = []
    for name, column in zip(names, columns, strict=True):
        for cell, place in zip(column, where, strict=True):
            if cell.lower() not in _YES_OR_NO:
                raise errors.InputError(
                    'label_not_0_or_1',
                    f'{place}: {_shown(cell)} in the column {name} does not '
                    'say whether the text has that label: expected 0 or 1; '
                    f'leave such rows out with --drop_label={cell}',
                )
        has.append([_YES_OR_NO[cell.lower()] for cell in column])
    return [
        frozenset(itertools.compress(names, row))
        for row in zip(*has, strict=True)
    ]


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _LETTERS else f'{cell[: _LETTERS - 1]}…')


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


def subset(total: int, count: int) -> np.ndarray:
    """Draws fixed numbers below `total`, sorted: [count] int64.

    Of two counts the smaller subset is part of the larger.
    """
    random = np.random.default_rng(_SUBSET_SEED)
    return np.sort(random.permutation(total)[:count])


def joined(examples: TableExamples, more: TableExamples) -> TableExamples:
    """Joins examples of two tables of the same columns, without labels."""
    return examples._replace(
        first=examples.first + more.first,
        second=examples.second and examples.second + more.second,
        labels=None,
        label_sets=None,
        scores=None,
        lines=np.concatenate([examples.lines, more.lines]),
        choices=examples.choices
        and [*map(operator.add, examples.choices, more.choices)],
    )


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


def _score(cell: str, where: str) -> float:
    try:
        score = float(cell)
        if abs(score) < _LARGEST:  # and no NaN
            return score
    except ValueError:
        pass
    raise errors.InputError(
        'label_no_score',
        f'{where}: {cell[:40]!r} is no score: expected a finite number',
    )


def classes(examples: TableExamples) -> list[str]:
    """Returns the labels that occur, sorted; whole numbers by value.

    Where the table has names for numbers, they are in the order of these.

    Raises:
        ValueError: there is one label, of which nothing can be learned; or
            none, where a text may have several.
    """
    if examples.label_sets is not None:
        labels = set().union(*examples.label_sets)
        if not labels:
            raise errors.InputError(
                'no_label_at_all', f'{examples.where}: no row has a label'
            )
    else:
        labels = set(examples.labels)
        if len(labels) == 1:
            raise errors.InputError(
                'one_label_alone',
                f'{examples.where}: every row is labelled {min(labels)!r}; '
                'there is nothing to tell apart',
            )
    if examples.classes:
        return [name for name in examples.classes if name in labels]
    try:
        return sorted(labels, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(labels)


def known_labels(examples: TableExamples, known: Sequence[str]) -> np.ndarray:
    """Converts labels to indices of the `known` classes.

    Where the table has names for numbers, and these are known, names are read
    as numbers.

    Returns:
        [n] int32; or [n, C] int32, 1 for those that a text has, where it may
        have several.

    Raises:
        ValueError: a label is not among them; with its line.
    """
    numbers = {label: number for number, label in enumerate(known)}
    if numbers.keys().isdisjoint(examples.classes):
        numbers |= {
            name: numbers[str(number)]
            for number, name in enumerate(examples.classes)
            if str(number) in numbers
        }
    sets = examples.label_sets
    if sets is None:
        sets = [(label,) for label in examples.labels]
    for i, labels in enumerate(sets):
        for label in labels:
            if label in numbers:
                continue
            rest = len(known) - _SHOWN
            raise errors.InputError(
                'unknown_label',
                f'{examples.where}, line {examples.lines[i]}: the label '
                f'{label!r} is unknown: known are '
                + ', '.join(known[:_SHOWN])
                + (f' and {rest} more' if rest > 0 else '')
                + (f'; if it means that there is none, leave such rows out '
                   f'with --drop_label={label}' if label in NO_LABEL else ''),
            )
    if examples.label_sets is None:
        return np.array([numbers[label] for (label,) in sets], np.int32)
    has = np.zeros((len(sets), len(known)), np.int32)
    for i, labels in enumerate(sets):
        has[i, [numbers[label] for label in labels]] = 1
    return has
