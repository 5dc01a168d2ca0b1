"""Files of texts whose words are labelled.

    CoNLL        a word and its label a line, in columns; a blank line ends a
                 text (Tjong Kim Sang & De Meulder 2003; CoNLL-U too); remarks
                 begin with # and stand before a text
    JSON lines, Parquet, Arrow, tfds:NAME
                 two lists a row, of words and of labels, or of the numbers of
                 labels whose names the file has

Glossary of shapes: n texts.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from infoword_tf import errors
from infoword_tf.data import labelling, readers, tables
from infoword_tf.text import tags

_TABLES = ('.jsonl', '.parquet', '.arrow')
_DOCUMENT = '-DOCSTART-'
# Of CoNLL-U: a comment, and the number of several words, or of none.
_COMMENT = re.compile(r'# ?\S+ =')
_NO_WORD = re.compile(r'\d+[-.]\d+')


@dataclasses.dataclass(frozen=True)
class TagColumns:
    """Places of words and labels in a file.

    Attributes:
        word, label: numbers of the columns of CoNLL, from 0; negative ones
            count from the end.
        words, labels: names of the columns of a table.
        names: names of labels that are numbers; empty: they are names.
    """

    word: int = 0
    label: int = -1
    words: str = 'tokens'
    labels: str = 'tags'
    names: tuple[str, ...] = ()


class Tagged(NamedTuple):
    """n texts of words.

    Attributes:
        where: the file.
        words: words of each text.
        tags: their labels; none: unknown, or not read.
        lines: [n] where each text begins.
    """

    where: str
    words: list[list[str]]
    tags: list[list[str]]
    lines: np.ndarray

    def subset(self, count: int | None) -> Self:
        """Returns so many texts, see `labelling.subset`; None: all."""
        if count is None or count >= len(self.words):
            return self
        chosen = labelling.subset(len(self.words), count)
        return self._replace(
            words=[self.words[i] for i in chosen],
            tags=self.tags and [self.tags[i] for i in chosen],
            lines=self.lines[chosen],
        )

    def joined(self, more: Self) -> Self:
        """Joins texts with others, whose labels are forgotten."""
        return self._replace(
            words=self.words + more.words,
            tags=self.tags + [[] for _ in more.words],
            lines=np.concatenate([self.lines, more.lines]),
        )

    @property
    def places(self) -> list[str]:
        """The file and line of each text, for people."""
        return [f'{self.where}, line {line}' for line in self.lines]

    def spelled(self, scheme: str) -> Self:
        """Spells labels of spans in a scheme; other labels stay.

        Raises:
            ValueError: as of `tags.scheme_of`.
        """
        spellings = tags.hyphened({tag for text in self.tags for tag in text})
        texts = [[spellings.get(tag, tag) for tag in x] for x in self.tags]
        if not tags.scheme_of(texts, self.places):
            return self
        return self._replace(
            tags=[tags.spelled(text, scheme) for text in texts]
        )


def read(name: str, columns: TagColumns, labelled: bool = True) -> Tagged:
    """Reads a file of labelled words, or of words alone.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a column is missing, words and labels are not as many, a
            text has no word, or the file has no text; with file and line.
    """
    path = pathlib.Path(name).expanduser()
    if name.startswith('tfds:') or (
        pathlib.Path(readers.unpacked(path)).suffix in _TABLES
    ):
        texts = _table(name, columns, labelled)
    else:
        if path.is_dir():
            tables.open_table(name)  # says which files are read
        if not path.is_file():
            raise FileNotFoundError(f'{path}: there is no such file')
        texts = _conll(path, columns, labelled)
    rows = [*texts]
    if not rows:
        raise errors.InputError('no_tagged_text', f'{name} has no text')
    lines, words, labels = map(list, zip(*rows, strict=True))
    return Tagged(name, words, labels if labelled else [], np.array(lines))


def _conll(
    path: pathlib.Path, columns: TagColumns, labelled: bool
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yields the first line, the words and the labels of each text."""
    begin, words, labels = 1, list[str](), list[str]()
    named = {'word_column': columns.word}
    remarks = _remarks(path, columns.label)
    if labelled:
        named['column'] = columns.label
    for number, line in enumerate(readers.lines(path), 1):
        cells = _cells(line)
        if not cells:
            if words:
                yield begin, words, labels
            begin, words, labels = number + 1, [], []
            continue
        if number in remarks:
            begin = number + 1
            continue
        if columns.word and _NO_WORD.fullmatch(cells[0]):
            continue
        for flag, place in named.items():
            if not -len(cells) <= place < len(cells):
                raise errors.InputError(
                    'tag_column_missing',
                    f'{path}, line {number}: there is no column {place} '
                    f'(--{flag}); the line has {len(cells)}, 0 to '
                    f'{len(cells) - 1}: {line.strip()[:60]!r}',
                )
        words.append(cells[columns.word])
        if labelled:
            labels.append(_named(cells[columns.label], columns, path, number))
    if words:
        yield begin, words, labels


def _cells(line: str) -> list[str]:
    """Splits a line at tabs, or, without a tab, at blanks."""
    line = line.strip('\r\n')
    if not line.strip():
        return []
    return line.split('\t') if '\t' in line else line.split()


def _remarks(path: pathlib.Path, label: int) -> set[int]:
    """Finds the lines of a file that hold no word, by number.

    These are marks of documents, and lines that begin with # and stand before
    the first word of a text, unless they have as many columns as other lines,
    and in the column `label` what others have there, or the label of a span.
    """
    remarks, shapes, doubtful, inside = set(), set(), {}, False
    labels: set[tuple[str, ...]] = {(tags.NONE,)}
    for number, line in enumerate(readers.lines(path), 1):
        cells = _cells(line)
        shape, mark = ('\t' in line, len(cells)), tuple(cells[label:][:1])
        if cells and cells[0] == _DOCUMENT:
            remarks.add(number)
        elif cells and cells[0].startswith('#') and not inside:
            is_remark = bool(_COMMENT.match(line))
            doubtful[number] = is_remark, shape, mark
        else:
            inside = bool(cells)
            shapes.add(shape)
            if len(cells) > 1:
                labels.add(mark)
    for number, (is_remark, shape, mark) in doubtful.items():
        is_alone = shape[1] == 1  # a word without a label
        has_label = is_alone or mark in labels or tags.marks_spans(mark)
        if is_remark or shape not in shapes or not has_label:
            remarks.add(number)
    return remarks


def _table(
    name: str, columns: TagColumns, labelled: bool
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yields the line, the words and the labels of each row."""
    named = [columns.words, *([columns.labels] if labelled else [])]
    table = tables.open_table(name, lists=named)
    if not columns.names:  # those of the file
        names = table.classes.get(columns.labels, ())
        columns = dataclasses.replace(columns, names=names)
    places = [tables.column_of(table, column) for column in named]
    for line, cells in table.rows:
        lists = [
            _list(cells[place], f'{table.where}, line {line}', column)
            for place, column in zip(places, named, strict=True)
        ]
        words, labels = lists if labelled else (*lists, [])
        if not words:
            raise errors.InputError(
                'text_without_words',
                f'{table.where}, line {line}: {columns.words} is empty; leave '
                'out texts without a word',
            )
        if labelled and len(words) != len(labels):
            raise errors.InputError(
                'unequal_tags',
                f'{table.where}, line {line}: {len(words)} words in '
                f'{columns.words}, and {len(labels)} labels in '
                f'{columns.labels}',
            )
        labels = [_named(x, columns, table.where, line) for x in labels]
        yield line, words, labels


def _list(cell: str | None, where: str, column: str) -> list[str]:
    """Reads a list of words or labels, which may be numbers."""
    try:
        values = json.loads(cell or '')
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(
        isinstance(x, str) or type(x) is int for x in values
    ):
        raise errors.InputError(
            'no_list_of_words',
            f'{where}: {column} should be a list of strings; it is '
            f'{str(cell)[:40]!r}',
        )
    return [str(x) for x in values]


def _named(label: str, columns: TagColumns, where: Any, line: int) -> str:
    """Returns the name of a label, which may be a number of `names`."""
    if not columns.names:
        return label
    if not label.isdecimal() or int(label) >= len(columns.names):
        raise errors.InputError(
            'label_without_name',
            f'{where}, line {line}: {label!r} is no number of the '
            f'{len(columns.names)} --names',
        )
    return columns.names[int(label)]


def labels_of(tagged: Tagged) -> tuple[str, ...]:
    """Lists the labels of words, O first and spans by type.

    Of spans all that two words of one can have, since a word of a file may be
    several to the model.
    """
    labels = [*{label for text in tagged.tags for label in text}]
    if tags.marks_spans(labels):
        scheme = 'BIES' if tags.marks_ends(labels) else 'BI'
        types = sorted({label[2:] for label in labels if label != tags.NONE})
        parts = [f'{part}-{kind}' for kind in types for part in scheme]
        return tags.NONE, *parts
    return tuple(sorted(labels, key=lambda label: (label != tags.NONE, label)))
