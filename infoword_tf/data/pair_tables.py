"""Tables of pairs: which columns are a, b and negatives, and their texts.

    roles = pair_tables.roles_of('pairs.jsonl')
    for a, positives, negatives in pair_tables.read(roles):
        ...

A record has a text, positives that belong to it and hard negatives that do
not. Names of columns say which is which where they can (`positive`, `pos`,
`negatives`, `hard_neg`, ...), else their order does: a, b, negatives. A cell
of JSON lines, Parquet or Arrow may be a list, which counts as several texts:
so the files of FlagEmbedding (`query`, `pos`, `neg`), Tevatron and DPR
(objects with `text`) and MS MARCO (`passages`, some of them selected). Columns
such as an index, a score, a label or a source hold no texts.
"""

import functools
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.data import readers, tables

# Kinds of cells.
TEXT, NUMBER, LIST, PASSAGES, OTHER = 'text', 'number', 'list', 'passages', ''
# In MS MARCO's passages: whether people chose each, and its text.
SELECTED, PASSAGE = 'is_selected', 'passage_text'

_SIDES = r'(_?(passage|ctx|doc|document|text|sentence)s?)?_?\d*'
_ANCHOR = re.compile(r'(anchor|query|question)(_?text)?', re.I)
_POSITIVE = re.compile(rf'pos(itive)?s?{_SIDES}', re.I)
_NEGATIVE = re.compile(rf'(hard_?)?neg(ative)?s?{_SIDES}', re.I)
_INDEX = re.compile(r'\s*|Unnamed: [\d.]+|__index_level_\d+__')
# Last words of names: of columns that hold no texts, and of columns with words
# about a pair, which are a or b only for want of others, and never negatives.
_MEASURES = frozenset(
    'id ids idx index uid uuid guid qid pid docid score scores similarity '
    'similarities distance distances rating rank weight'.split()
)
_ABOUT = frozenset(
    'label labels type types kind class category genre domain split '
    'source dataset url urls link lang language languages date time timestamp '
    'license'.split()
)
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
        lists: columns of negatives whose cells may be lists.
        most: how many negatives a pair has at most.
        delimiter: see `tables.open_table`.
    """

    where: str
    a: str
    b: tuple[str, ...]
    negatives: tuple[str, ...]
    unread: tuple[str, ...]
    lists: frozenset[str]
    most: int
    delimiter: str | None = None

    @property
    def summary(self) -> str:
        """Role of each column, as a line for the log."""
        both = set(self.b) & set(self.negatives)  # of passages
        b = _listed([f'{x} ({SELECTED})' if x in both else x for x in self.b])
        negatives = _listed(
            [f'{x} (the others)' if x in both else x for x in self.negatives]
        )
        if self.most != len(self.negatives):
            negatives += f' ({self.most} at most)'
        line = f'a is {self.a}, b {b}, negatives {negatives or "none"}'
        if self.unread:
            line += f'; not read: {_listed(self.unread)}'
        return line


def roles_of(
    path: str,
    columns: Sequence[str] = (),
    delimiter: str | None = None,
    negatives: int | None = None,
) -> Roles:
    """Finds which columns are a, b and negatives; reads the whole file.

    A file that has not changed since an earlier call is not read again.

    Args:
        path: of a table, or of an .arrow.
        columns: names of a, b and negatives, in order; empty: names and order
            in the file decide.
        negatives: how many a pair has at most; None: all.

    Raises:
        ValueError: the file cannot be read, a column is missing, or names and
            order do not show what is a and what is b.
    """
    state = pathlib.Path(path).stat()
    known = state.st_ino, state.st_dev, state.st_size, state.st_mtime_ns
    return _roles_of(path, tuple(columns), delimiter, negatives, known)


@functools.lru_cache(_REMEMBERED)
def _roles_of(
    path: str,
    columns: tuple[str, ...],
    delimiter: str | None,
    negatives: int | None,
    state: tuple[int, ...],
) -> Roles:
    """Finds the roles in a file that is in a state; see `roles_of`."""
    del state
    # By column, the kinds of its cells, and where each kind comes first.
    kinds: dict[str, dict[str, str]] = {
        name: {} for name in _names(path, columns, delimiter)
    }
    sizes: set[tuple[tuple[str, int], ...]] = set()  # of a record's lists
    for where, record in _records(path, delimiter):
        nested = []
        for name, value in record.items():
            kinds_of_column = kinds.setdefault(name, {})
            if isinstance(value, str) and TEXT in kinds_of_column:
                continue
            kind = _kind(value)
            if kind is not None:
                kinds_of_column.setdefault(kind, where)
            if kind in (LIST, PASSAGES):
                nested.append((name, _size(value)))
        sizes.add(tuple(nested))
    if not kinds:
        raise tables.empty(path)
    if columns:
        for name in columns:
            tables.column_of(tables.Table(path, tuple(kinds), iter(())), name)
        a, b, others = _by_choice(path, columns, kinds)
    else:
        full = {name: cells for name, cells in kinds.items() if cells}
        a, b, others = _by_name(path, full)
    for name in (a, *b, *others):
        wrong = {OTHER} if name != a else {OTHER, LIST, PASSAGES}
        for where in (kinds[name][x] for x in wrong & kinds[name].keys()):
            raise errors.InputError(
                'pair_cell_no_text',
                f'{where}: the column {name!r} holds '
                + ('a list or an object; a is one text' if name == a else
                   'neither a text nor a list of texts (nor passages, each '
                   f'with {PASSAGE!r}, and {SELECTED!r} of 0 or 1)'),
            )  # fmt: skip
    lists = frozenset(x for x in others if kinds[x].keys() & {LIST, PASSAGES})
    # A cell of such a column may be a single text too.
    single = {x: int(bool(kinds[x].keys() & {TEXT, NUMBER})) for x in lists}
    most = max(
        (sum((single | dict(size))[x] for x in lists) for size in sizes),
        default=0,
    )
    most += len(others) - len(lists)
    most = most if negatives is None else min(most, negatives)
    others = others if most else ()
    used = {a, *b, *others}
    return Roles(
        path, a, b, others, tuple(name for name in kinds if name not in used),
        lists, most, delimiter,
    )  # fmt: skip


def read(roles: Roles) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields a, the texts that belong to a, and negatives of each record.

    A missing text is ''. Negatives of lists have no gaps.

    Raises:
        ValueError: as of `tables.open_table`, with file and line.
    """
    for _, record in _records(roles.where, roles.delimiter):
        (a,) = _texts(record.get(roles.a))
        b = [x for name in roles.b for x in _texts(record.get(name), True)]
        negatives = [
            text
            for name in roles.negatives
            for text in _texts(record.get(name))
            if text or name not in roles.lists
        ]
        yield a, b, negatives[: roles.most]


# ---------------------------------------------------------------------- columns


def _names(
    path: str, columns: Sequence[str], delimiter: str | None
) -> Sequence[str]:
    """Reads the column names of a file with a header; () for records."""
    if _reader(path) is not None:
        return ()
    table = tables.open_table(path, delimiter=delimiter)
    for name in columns or table.names:
        if not _INDEX.fullmatch(name):
            tables.column_of(table, name)  # raises, for copies too
    if not columns and tables.lacks_names(_without_index(table)):
        raise errors.InputError(
            'header_reads_like_pair',
            f'{path}: the first line reads like a pair; let it name the '
            'columns, such as anchor,positive,negative, or say with '
            f'--pair_columns={",".join(table.names[:2])} that it does',
        )
    return table.names


def _without_index(table: tables.Table) -> tables.Table:
    """Drops a first column without a name, which pandas writes."""
    if len(table.names) < 2 or table.names[0]:
        return table
    rows = ((line, cells[1:]) for line, cells in table.rows)
    return table._replace(names=table.names[1:], rows=rows)


def _by_choice(
    path: str, columns: Sequence[str], kinds: Mapping[str, Mapping[str, str]]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Returns a, b and negatives in the order of columns; see `roles_of`."""
    if len(columns) == 1:
        raise _too_few(path, columns, ())
    a, b, *negatives = columns
    if PASSAGES in kinds[b]:
        negatives = [b, *negatives]
    return a, (b,), tuple(negatives)


def _by_name(
    path: str, kinds: Mapping[str, Mapping[str, str]]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Returns a, b and negatives by names and order; see `roles_of`."""
    texts = [
        name for name, cells in kinds.items()
        if cells.keys() <= {TEXT, NUMBER} and not _INDEX.fullmatch(name)
        and not _ends_in(name, _MEASURES)
    ]  # fmt: skip
    passages = [name for name, cells in kinds.items() if PASSAGES in cells]
    lists = [
        name for name, cells in kinds.items() if LIST in cells
        and name not in passages and not _ends_in(name, _MEASURES | _ABOUT)
    ]  # fmt: skip
    either = [
        name for name, cells in kinds.items()
        if name in (*texts, *lists) and cells.keys() != {NUMBER}
    ]  # fmt: skip
    b = [name for name in either if _POSITIVE.fullmatch(name)]
    negatives = [name for name in either if _NEGATIVE.fullmatch(name)]
    by_name = bool(passages) or any(x in lists for x in (*b, *negatives))
    if lists and not by_name:
        raise errors.InputError(
            'unnamed_lists',
            f'{kinds[lists[0]][LIST]}: the column {lists[0]!r} holds lists, '
            'and its name says neither positives nor negatives; name a, b and '
            'negatives, as --pair_columns=query,positives,negatives',
        )
    about = _ABOUT - ({'source'} if 'target' in kinds else set())
    free = [x for x in texts if x not in (*b, *negatives)]
    words = [x for x in free if not _ends_in(x, about)]
    full = [x for x in words if kinds[x].keys() != {NUMBER}]
    # Numbers, and words about a pair, are a or b only for want of others.
    lacking = 1 if b or passages else 2
    first = next((x for x in (full, words, free) if len(x) >= lacking), None)
    if first is None:
        read = [*free, *b, *negatives]
        raise _too_few(path, read, [x for x in kinds if x not in read])
    anchors = [x for x in first if _ANCHOR.fullmatch(x)] if by_name or b else []
    a, *others = [*anchors, *(x for x in first if x not in anchors)]
    if lacking == 2:
        b, others = others[:1], others[1:]
    if not by_name:
        others = [x for x in others if not _ends_in(x, about)]
        negatives = [x for x in kinds if x in (*others, *negatives)]
    return a, (*b, *passages), (*negatives, *passages)


def _too_few(
    path: str, texts: Sequence[str], others: Sequence[str]
) -> errors.InputError:
    """Makes the error for a table without two columns of texts."""
    how_many = (
        'no column of texts',
        f'one column of texts, {texts[0]!r}' if texts else '',
        f'no column of a besides {_listed(texts)}',
    )[min(len(texts), 2)]
    rest = f' (no texts are in {_listed(others)})' if others else ''
    return errors.InputError(
        'few_text_columns',
        f'{path} has {how_many}{rest}: a pair is two, and further ones are '
        'negatives; name them with --pair_columns',
    )


def _ends_in(name: str, words: Iterable[str]) -> bool:
    """Looks up the last word of a name, as of `queryId` or `gold_label_2`."""
    name_words = re.findall(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+', name)
    return bool(name_words) and name_words[-1].lower() in words


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
    path: str, delimiter: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place of each record, and the cells by column."""
    reader = _reader(path)
    if reader is None:
        table = tables.open_table(path, delimiter=delimiter)
        for line, cells in table.rows:
            yield (
                f'{path}, line {line}',
                dict(zip(table.names, cells, strict=True)),
            )
        return
    what = 'line' if reader is readers.read_jsonl else 'row'
    for number, record in reader(pathlib.Path(path)):
        yield f'{path}, {what} {number}', record


def _kind(value: Any) -> str | None:
    """Names the kind of a cell; None of an empty cell."""
    if value is None or value == '' or value != value:  # NaN
        return None
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return TEXT
        return NUMBER
    if _passages(value) is not None:
        return PASSAGES
    if isinstance(value, list):
        return LIST if all(map(_is_item, value)) else OTHER
    return OTHER if isinstance(value, dict | bytes) else NUMBER


def _is_item(value: Any) -> bool:
    """Tells whether an item of a list is a text or an object with one."""
    if isinstance(value, dict):
        title = value.get('title')
        return isinstance(value.get('text'), str) and isinstance(
            title, str | None
        )
    return isinstance(value, str | None)


def _passages(value: Any) -> list[tuple[int, str]] | None:
    """Reads (selected, text) of MS MARCO's passages; None: no passages.

    Data sets have an object of two lists, or a list of objects.
    """
    names = SELECTED, PASSAGE
    if isinstance(value, dict):
        lists = [value.get(name) for name in names]
        if not all(isinstance(x, list) for x in lists):
            return None
        # The shorter list is filled with None, which is no text.
        pairs = list(itertools.zip_longest(*lists))
    elif isinstance(value, list) and value and all(
        isinstance(x, dict) and SELECTED in x for x in value
    ):  # fmt: skip
        pairs = [tuple(x.get(name) for name in names) for x in value]
    else:
        return None
    are = (x in (0, 1) and isinstance(text, str) for x, text in pairs)
    return pairs if all(are) else None


def _size(value: list[Any] | dict[str, Any]) -> int:
    """Counts the negatives in a list."""
    return sum(bool(text) for text in _texts(value))


def _texts(value: Any, positive: bool = False) -> list[str]:
    """Reads the texts of a cell; of passages the selected or the other texts.

    A text may be ''.
    """
    pairs = _passages(value)
    if pairs is not None:
        return [_stripped(text) for x, text in pairs if bool(x) == positive]
    if isinstance(value, list):
        return [_stripped(_joined(item)) for item in value]
    if value is None or isinstance(value, str) or value != value:
        return [_stripped(value)]
    return [json.dumps(value, default=str).strip('"').strip()]


def _joined(item: dict[str, str | None] | str | None) -> str | None:
    """Reads the text of an item; of an object the title, if any, and text."""
    if isinstance(item, dict):
        return ' '.join(filter(None, (item.get('title'), item['text'])))
    return item


def _stripped(text: Any) -> str:
    return tables.valid(text).strip() if isinstance(text, str) else ''
