"""Labelled examples of a table, and the classes of labels.

    columns = labelling.TableColumns(text='review', label='stars')
    examples = labelling.examples_of(tables.open_table('a.csv.gz'), columns)
    classes = labelling.classes(examples)
    targets = labelling.known_labels(examples, classes)

Several labels of a text are a list, which in TSV and CSV is JSON, or a column
for each, of 0 and 1, or parted by a separator. Where a file has names for the
numbers of classes, labels are these names, and rows without a class are left
out.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Collection, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np

from infoword_tf import errors
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.data.tables import Table, column_of

Item = TypeVar('Item')
_SUBSET_SEED = 0, 0
_LARGEST = 3e38  # of float32
_LETTERS = 40  # of a cell in a message
_SHOWN = 20  # classes in a complaint
NO_LABEL = ('-', '-1')  # in tables of people: of no class
# Whether a text has the label of a column.
_YES_OR_NO = {'0': False, '1': True, '0.0': False, '1.0': True,
              'false': False, 'true': True}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ColumnChoices:
    """Choices of the columns of a table with labels."""

    delimiter: str | None = again(
        TextChoices, 'pair_delimiter', None, help='Delimiter of .csv files; by '
        'default the one of their first lines.')
    text: str = flag('text', 'Column of the text in a table.')
    pair: str | None = flag(None, 'Column of a second text.')
    label: str = flag(
        'label', 'Column of the label, or of lists of labels, of which a text '
        'may have several or none.')
    label_columns: tuple[str, ...] = flag(
        (), 'Instead of --label a column for each label, which says of every '
        'text whether it has it: 0 or 1.')


class TableColumns(NamedTuple):
    """The columns of a task, and the kinds of labels in cells.

    Attributes:
        text, pair, label: names of columns; None: not read.
        regress: whether labels are scores.
        choices: columns of texts among which the label chooses.
        label_columns: columns of which each says of one label whether a text
            has it (0 or 1), instead of `label`.
        lists: whether a cell of `label` may be a list of several labels (JSON,
            see `tables.open_table`); then all are, or none.
        separator: between several labels in a cell of `label`, which may be
            empty; None: a cell is one label.
        drop: labels, as cells have them, of rows that are left out.
    """

    text: str
    pair: str | None = None
    label: str | None = None
    regress: bool = False
    choices: Sequence[str] = ()
    label_columns: Sequence[str] = ()
    lists: bool = False
    separator: str | None = None
    drop: Collection[str] = ()

    @property
    def labels_in(self) -> list[str]:
        """Names of the columns of labels."""
        return [*self.label_columns] or [*filter(None, [self.label])]

    @property
    def names(self) -> list[str]:
        """Names of all columns that are read; columns of labels stand last."""
        pair = filter(None, [self.pair])
        return [self.text, *self.choices, *pair, *self.labels_in]


class TableExamples(NamedTuple):
    """n examples of a table.

    Attributes:
        first: texts.
        second: texts; None: there is one text an example.
        labels: names of classes; None: unknown, or not read.
        scores: [n] float32; likewise.
        where: place of the table.
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

        def taken(values: list[Item]) -> list[Item]:
            return [values[i] for i in chosen]

        return self._replace(
            first=taken(self.first),
            second=self.second and taken(self.second),
            labels=self.labels and taken(self.labels),
            scores=None if self.scores is None else self.scores[chosen],
            lines=self.lines[chosen],
            choices=self.choices and [taken(x) for x in self.choices],
            label_sets=self.label_sets and taken(self.label_sets),
        )

    @property
    def label_names(self) -> list[frozenset[str]]:
        """Names of the labels of each example, one or several."""
        if self.label_sets is not None:
            return self.label_sets
        return [frozenset([label]) for label in self.labels or ()]


def examples_of(table: Table, columns: TableColumns) -> TableExamples:
    """Reads the columns of a task from a table.

    Args:
        table: read to its end.
        columns: names of columns in it, and how cells are read.

    Raises:
        NoColumn: a column is missing.
        ValueError: a line lacks a text or its label, a score is no finite
            number, several labels are no list, or no 0 or 1, or the table is
            empty; with file and line.
    """
    names, label = columns.names, columns.label
    known: tuple[str, ...] = ()
    drop = {*columns.drop}
    by_class = not (columns.regress or columns.choices or columns.label_columns)
    if by_class and label is not None and label in table.classes:
        known = table.classes[label]
        drop |= {'', '-1'}
    cells, lines, left_out = _cells_of(table, columns, drop)
    if not lines:
        raise errors.InputError(
            'table_without_rows',
            f'{table.where} has no rows'
            + (' with a label' if left_out else ''),
        )
    notes: tuple[str, ...] = ()
    if left_out:
        count, marks = left_out.total(), ', '.join(map(repr, left_out))
        notes = (
            f'{table.where}: {count:,} of {len(lines) + count:,} rows have no '
            f'label ({marks}) and are left out',
        )
    where = [f'{table.where}, line {line}' for line in lines]
    several = columns.label_columns
    labels = cells[-1] if label and not several else None
    if labels is not None and known:
        labels = [_named(*x, known) for x in zip(labels, where, strict=True)]
    scores = label_sets = None
    if several:
        label_sets = _sets_of_columns(several, cells[-len(several) :], where)
    elif labels is not None:
        labels, scores, label_sets = _read_labels(labels, where, columns)
    pair, choices = columns.pair, columns.choices
    return TableExamples(
        first=cells[0],
        second=cells[names.index(pair)] if pair else None,
        labels=labels,
        scores=scores,
        where=table.where,
        lines=np.array(lines),
        choices=cells[1 : 1 + len(choices)] if choices else None,
        label_sets=label_sets,
        classes=known,
        notes=notes,
    )


def _cells_of(
    table: Table, columns: TableColumns, drop: Collection[str]
) -> tuple[list[list[str]], list[int], collections.Counter]:
    """Reads the cells of all columns, without the rows that are left out.

    Args:
        table: read to its end.
        columns: names of columns in it, and how cells are read.
        drop: labels of rows that are left out.

    Returns:
        Cells by column; the numbers of lines; and how often each label was
        left out.
    """
    names, lines = columns.names, []
    left_out: collections.Counter[str] = collections.Counter()
    places = [column_of(table, name) for name in names]
    cells_of: list[list[str]] = [[] for _ in names]
    texts = len(names) - len(columns.labels_in)
    for line, cells in table.rows:
        marks = [(cells[place] or '').strip() for place in places[texts:]]
        if dropped := set(drop).intersection(marks):
            left_out[min(dropped)] += 1
            continue
        for number, place in enumerate(places):
            cell, is_label = cells[place], number >= texts
            if is_label and columns.separator is not None:
                cell = cell or ''
            elif cell is None or (is_label and not cell.strip()):
                what = 'label' if is_label else 'text'
                raise errors.InputError(
                    'missing_cell',
                    f'{table.where}, line {line}: there is no {what} in the '
                    f'column {names[number]}'
                    + ('; where a text may have none name what parts several '
                       'with --separator' if is_label and columns.lists
                       else ''),
                )  # fmt: skip
            cells_of[number].append(cell.strip() if is_label else cell)
        lines.append(line)
    return cells_of, lines, left_out


def _read_labels(
    labels: list[str], where: Sequence[str], columns: TableColumns
) -> tuple[
    list[str] | None, np.ndarray | None, list[frozenset[str]] | None
]:  # fmt: skip
    """Reads the cells of labels as names, as scores, or as sets of names.

    Returns:
        These three; None in place of two.
    """
    if columns.regress:
        scores = map(_score, labels, where)
        return None, np.fromiter(scores, np.float32, len(labels)), None
    if columns.separator is not None:
        return None, None, _parted(labels, columns.separator, where)
    if columns.lists and _is_list(labels[0]):
        return None, None, list(map(_label_set, labels, where))
    if columns.lists:
        _check_single(labels, where)
    return labels, None, None


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
        labels: cells of all examples.
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


def subset(total: int, count: int) -> np.ndarray:
    """Draws fixed numbers below `total`, sorted: [count] int64.

    Of two counts the smaller subset is part of the larger.
    """
    random = np.random.default_rng(_SUBSET_SEED)
    return np.sort(random.permutation(total)[:count])


def joined(examples: TableExamples, more: TableExamples) -> TableExamples:
    """Joins examples of two tables of the same columns, without labels."""
    second = choices = None
    if examples.second is not None and more.second is not None:
        second = examples.second + more.second
    if examples.choices is not None and more.choices is not None:
        both = zip(examples.choices, more.choices, strict=True)
        choices = [one + other for one, other in both]
    return examples._replace(
        first=examples.first + more.first,
        second=second,
        labels=None,
        label_sets=None,
        scores=None,
        lines=np.concatenate([examples.lines, more.lines]),
        choices=choices,
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
    labels = {label for labels in examples.label_names for label in labels}
    if examples.label_sets is not None:
        if not labels:
            raise errors.InputError(
                'no_label_at_all', f'{examples.where}: no row has a label'
            )
    elif len(labels) == 1:
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
    sets = examples.label_names
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
