"""Tables of pairs: which columns are a, b and negatives, and their texts.

    roles = pair_tables.roles_of('pairs.jsonl')
    for a, positives, negatives in pair_tables.read(roles):
        ...

A record has a text, positives that belong to it and hard negatives that do
not. NAMES says which column is which, or the caller; a file without a line of
names has a, b and perhaps a negative, in this order. A cell of JSON lines,
Parquet or Arrow may be a list, which counts as several texts: so the files of
FlagEmbedding (`query`, `pos`, `neg`), Tevatron and DPR (objects with `text`)
and MS MARCO (`passages`, some of them selected).
"""

import functools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.data import readers, tables

# By role, names of columns in any case, also with a number at the end
# (`negative_2`): those of data sets of sentence-transformers, FlagEmbedding,
# Tevatron, DPR, SimCSE and MS MARCO. Of several for a, or for b, the first
# counts, with all numbers of b.
NAMES = {
    'a': (
        'anchor', 'query', 'question', 'sentence1', 'sentence_0', 'sentence_a',
        'sent0', 'premise', 'text1', 'caption1', 'a',
    ),
    'b': (
        'positive', 'positives', 'pos', 'positive_passages', 'positive_ctxs',
        'passages', 'answer', 'response', 'passage', 'document', 'sentence2',
        'sentence_1', 'sentence_b', 'sent1', 'hypothesis', 'text2', 'caption2',
        'b',
    ),
    'negatives': (
        'negative', 'negatives', 'neg', 'negative_passages', 'negative_ctxs',
        'hard_negative', 'hard_negatives', 'hard_neg', 'hard_negative_ctxs',
    ),
}  # fmt: skip
UNNAMED = 'a', 'b', 'negative'  # columns of a file without a line of names
Texts = list[tuple[bool | None, str]]  # of a cell, perhaps selected or not
# In MS MARCO's passages: whether people chose each, and its text.
SELECTED, PASSAGE = 'is_selected', 'passage_text'
_NUMBERS = '+-.,0123456789e'  # characters
_NAMED = 6  # columns of one kind in a sentence
_REMEMBERED = 1024  # files whose roles stay known


class Roles(NamedTuple):
    """Roles of the columns in a file of pairs.

    Attributes:
        where: the file.
        a: the column of first texts.
        b: columns of texts that belong to a; each text makes a pair.
        negatives: columns of texts that do not, in order.
        unread: all other columns.
        most: negatives that a pair has at most.
        delimiter: character between cells, see `tables.open_table`.
        names: columns, where the file has no line of names.
    """

    where: str
    a: str
    b: tuple[str, ...]
    negatives: tuple[str, ...]
    unread: tuple[str, ...]
    most: int
    delimiter: str | None = None
    names: tuple[str, ...] | None = None

    @property
    def summary(self) -> str:
        """Role of each column, as a line for the log."""
        negatives = _listed(self.negatives) or 'none'
        if self.most != len(self.negatives):
            negatives += f' ({self.most} at most)'
        line = f'a is {self.a}, b {_listed(self.b)}, negatives {negatives}'
        if self.unread:
            line += f'; not read: {_listed(self.unread)}'
        return line + '; there is no line of names' * (self.names is not None)


def roles_of(
    path: str,
    columns: Sequence[str] = (),
    delimiter: str | None = None,
    negatives: int | None = None,
) -> Roles:
    """Finds which columns are a, b and negatives; reads the whole file.

    A file that has not changed since an earlier call is not read again.

    Args:
        path: name of a table, or of an .arrow.
        columns: names of a, b and negatives, in order; empty: as NAMES says.
            Where the first line has none of them, and as many cells, the file
            has no line of names.
        negatives: most of them in a pair; None: all.

    Raises:
        ValueError: the file cannot be read, a column is missing or holds no
            texts, or the names do not show what is a and what is b.
    """
    state = pathlib.Path(path).stat()
    known = state.st_ino, state.st_dev, state.st_size, state.st_mtime_ns
    return _roles_of(
        path, tuple(columns), delimiter=delimiter, most=negatives, state=known
    )


@functools.lru_cache(_REMEMBERED)
def _roles_of(
    path: str,
    columns: tuple[str, ...],
    delimiter: str | None,
    most: int | None,
    state: tuple[int, ...],
) -> Roles:
    """Finds the roles in a file that is in a state; see `roles_of`."""
    del state
    names = None
    if _reader(path) is None:
        known = tables.open_table(path, delimiter=delimiter).names
        names = _names_of_unnamed(known, columns)
    else:
        known = tuple(dict.fromkeys(
            name for _, record in _records(path) for name in record
        ))  # fmt: skip
        if not known:
            raise tables.empty(path)
    table = tables.Table(path, names or known, iter(()))
    a, b, others = _by_name(table.names)
    if columns:
        a, b, others = columns[0], columns[1:2], columns[2:]
    if not (a and b):
        raise _unknown(path, known, 'no name says which column is a, which b')
    for name in (a, *b, *others):
        tables.column_of(table, name)  # raises
    roles = Roles(
        path,
        a,
        b,
        negatives=(*b, *others),
        unread=(),
        most=0,
        delimiter=delimiter,
        names=names,
    )
    last = names[-1] if names and not columns else None
    count = 0
    full: set[str] = set()
    is_word: set[bool] = set()
    for _, cells in _cells(roles):
        texts = _negatives(roles, cells)
        count = max(count, len(texts))
        full.update(name for name, _ in texts)
        if last is not None:
            words = [text for _, text in cells.get(last, ()) if text]
            is_word.update(bool(word.strip(_NUMBERS)) for word in words)
    if is_word == {False}:
        raise _unknown(path, known, 'the last column holds numbers')
    most = count if most is None else min(count, most)
    others = tuple(x for x in roles.negatives if x in full and most)
    unread = tuple(x for x in table.names if x not in {a, *b, *others})
    return roles._replace(negatives=others, unread=unread, most=most)


def read(roles: Roles) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields a, the texts that belong to a, and negatives of each record.

    A missing a or b is ''; negatives have no gaps.

    Raises:
        ValueError: as of `tables.open_table`, or a cell holds no text; with
            file and line.
    """
    for a, cells in _cells(roles):
        b = [
            text for name in roles.b for selected, text in cells[name]
            if selected is not False
        ]  # fmt: skip
        negatives = [text for _, text in _negatives(roles, cells)]
        yield a, b, negatives[: roles.most]


# ---------------------------------------------------------------------- columns


def _names_of_unnamed(
    first: Sequence[str], columns: Sequence[str]
) -> tuple[str, ...] | None:
    """Returns names for a file without a line of names; None: of others.

    Args:
        first: cells of the first line.
        columns: names, see `roles_of`.
    """
    if columns:
        is_named = len(columns) != len(first) or bool({*columns} & {*first})
        return None if is_named else tuple(columns)
    is_named = any(map(_role, first)) or all(map(tables.is_name, first))
    return None if is_named or len(first) > 3 else UNNAMED[: len(first)]


def _by_name(
    columns: Sequence[str],
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Finds a, b and negatives by NAMES; '' and (): no column is called so."""
    ranked = [(*role, name) for name in columns if (role := _role(name))]
    a = min((x for x in ranked if x[0] == 'a'), default=('', 0, ''))[-1]
    b = [x for x in ranked if x[0] == 'b']
    first = min(b)[1] if b else 0
    negatives = [name for role, _, name in ranked if role == 'negatives']
    return a, tuple(x for _, i, x in b if i == first), tuple(negatives)


def _role(column: str) -> tuple[str, int] | None:
    """Returns the role and the place of a name in NAMES; None: unknown."""
    whole = column.strip().lower()
    for name in (whole, re.sub(r'_?\d+$', '', whole)):
        for role, names in NAMES.items():
            if name in names:
                return role, names.index(name)
    return None


def _unknown(path: str, columns: Sequence[str], why: str) -> errors.InputError:
    """Makes the error for a file whose columns have no roles."""
    return errors.InputError(
        'unknown_pair_columns',
        f'{path}: {why} ({_listed(columns)}); name a, b and negatives, as '
        '--pair_columns=question,answer,wrong (docs/data.md lists the names '
        'that are known)',
    )


def _listed(names: Sequence[str]) -> str:
    """Lists names; of many the first and the last."""
    if len(names) > _NAMED:
        return f'{names[0]}, {names[1]} ... {names[-1]} ({len(names)} columns)'
    return ', '.join(name or "''" for name in names)


# ------------------------------------------------------------------------ cells


def _reader(path: str) -> Any:
    """Finds the reader for files of records; None for other files."""
    suffix = pathlib.Path(readers.unpacked(pathlib.Path(path))).suffix
    return readers.READERS.get(suffix.removeprefix('.'))


def _records(
    path: str,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the place of each record, and the cells by column."""
    reader = _reader(path)
    what = 'line' if reader in (None, readers.read_jsonl) else 'row'
    if reader is not None:
        rows = reader(pathlib.Path(path))
    else:
        table = tables.open_table(path, names, delimiter=delimiter)
        rows = ((line, dict(zip(table.names, cells, strict=True)))
                for line, cells in table.rows)  # fmt: skip
    for number, record in rows:
        yield f'{path}, {what} {number}', record


def _cells(roles: Roles) -> Iterator[tuple[str, dict[str, Texts]]]:
    """Yields a, and the texts of all cells that are read, by column."""
    names = roles.a, *roles.b, *roles.negatives
    for where, record in _records(roles.where, roles.delimiter, roles.names):
        cells = {}
        for name in names:
            value = record.get(name)
            try:
                cells[name] = _texts(value)
                is_text = name != roles.a or not isinstance(value, list | dict)
            except (TypeError, ValueError, LookupError):
                is_text = False
            if not is_text:
                raise errors.InputError(
                    'pair_cell_no_text',
                    f'{where}: the column {name!r} holds something else than '
                    'a text, or, of b and negatives, a list of texts or of '
                    f'passages, each with {PASSAGE!r}, and {SELECTED!r} of 0 '
                    'or 1',
                )
        [(_, a)] = cells[roles.a]
        yield a, cells


def _negatives(
    roles: Roles, cells: Mapping[str, Texts]
) -> list[tuple[str, str]]:
    """Lists columns and texts of negatives; of b passages not selected."""
    return [
        (name, text)
        for name in roles.negatives
        for selected, text in cells[name]
        if text and not selected and (selected is False or name not in roles.b)
    ]


def _texts(value: Any) -> Texts:
    """Reads the texts of a cell, see `_cells`.

    Raises:
        TypeError, ValueError, LookupError: the cell holds something else.
    """
    if isinstance(value, dict):  # of two lists
        names = SELECTED, PASSAGE
        lists = zip(*(value[name] for name in names), strict=True)
        value = [dict(zip(names, both, strict=True)) for both in lists]
    if isinstance(value, list):
        return list(map(_item, value))
    if isinstance(value, bytes):
        raise TypeError
    if value is None or value != value:  # NaN
        return [(None, '')]
    if not isinstance(value, str):
        value = json.dumps(value, default=str).strip('"')
    return [(None, tables.valid(value).strip())]


def _item(item: dict[str, Any] | str | None) -> tuple[bool | None, str]:
    """Reads an item of a list: a text, a passage, or a title and a text."""
    selected, text = None, item or ''
    if isinstance(item, dict) and SELECTED in item:
        selected, text = {0: False, 1: True}[item[SELECTED]], item[PASSAGE]
    elif isinstance(item, dict):
        title, text = item.get('title') or '', item['text']
        text = title + ' ' * bool(title) + text
    if not isinstance(text, str):
        raise TypeError
    return selected, tables.valid(text).strip()
