"""Files of translations, read in their order.

Two aligned files (a line of one translates that of the other), or a table
whose first two columns are the texts; the same packed.
"""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data import readers, tables

Languages = tuple[str, str]

_SAMPLE = 1000  # lines from which the content of a column is judged
_CHANCE = 5  # so many English lines may be in a column by chance
# Frequent in English, and no words of other languages.
_ENGLISH = frozenset(
    "the that this what you your they with not are and she his don't i'm it's "
    "how who why there where will would can't".split()
)


class BitextFile(NamedTuple):
    """Table, or pair of aligned files.

    Attributes:
        paths: a table, or two files that are aligned.
        languages: codes of a and b.
        ordered: whether `languages` are in the order of the columns.
    """

    paths: tuple[pathlib.Path, ...]
    languages: Languages
    ordered: bool = True

    def read(self) -> tuple[Languages, list[list[str]]]:
        """Returns the languages of a and b, and the texts of both.

        White space in the texts becomes single spaces.

        Raises:
            ValueError: the files are malformed, with the line; or empty.
        """
        languages = self.languages
        if len(self.paths) == 2:
            texts = [[*map(_join_words, readers.lines(x))] for x in self.paths]
            check_aligned(self.paths, texts)
        else:
            texts = _columns(self.paths[0])
            languages = _in_order(self, texts) if texts[0] else languages
        if not texts[0]:
            raise errors.InputError(
                'no_translations',
                f'{" and ".join(map(str, self.paths))}: there is no pair of '
                f'{"-".join(self.languages)}; give others, or leave it out',
            )
        return languages, texts


def no_order(path: pathlib.Path, languages: Languages) -> errors.InputError:
    """Makes the error for a table whose column order is unknown."""
    a, b = languages
    return errors.InputError(
        'order_of_columns',
        f'{path}: which of its columns is {a} and which is {b} cannot be told; '
        f'say so in their order, as {a}-{b}={path} or {b}-{a}={path}',
    )


def _join_words(text: str) -> str:
    """Makes white space single spaces."""
    return ' '.join(text.split())


def check_aligned(
    paths: Sequence[pathlib.Path], texts: Sequence[Sequence[str]]
) -> None:
    """Raises ValueError where two files have unequal numbers of lines."""
    if len(texts[0]) != len(texts[1]):
        one, other = paths
        raise errors.InputError(
            'unequal_lines',
            f'{one} has {len(texts[0]):,} lines and {other} {len(texts[1]):,}, '
            f'but a line of one translates that of the other: '
            f'{_unlike(paths, texts)}; align them again',
        )


def _unlike(
    paths: Sequence[pathlib.Path], texts: Sequence[Sequence[str]]
) -> str:
    """Guesses where two files of unlike length diverge, for a message."""
    before = ('', '')
    for number, pair in enumerate(zip(*texts, strict=False), 1):
        repeats = [x == y for x, y in zip(pair, before, strict=True)]
        for path, text, other, repeats_line in zip(
            paths, pair, pair[::-1], repeats, strict=True
        ):
            if other and not text:
                return f'perhaps at line {number} of {path}, which is empty'
            if text and repeats_line and not all(repeats):
                return (
                    f'perhaps at line {number} of {path}, which repeats the '
                    'one before'
                )
        before = pair
    longer = paths[len(texts[0]) < len(texts[1])]
    return f'line {min(map(len, texts)) + 1} of {longer} has no neighbour'


def _columns(path: pathlib.Path) -> list[list[str]]:
    """Reads the first two columns of a table."""
    texts: list[list[str]] = [[], []]
    for line, cells in tables.read_tsv(path):
        if len(cells) < 2:
            if not cells[0].strip():
                continue  # a blank line
            raise errors.InputError(
                'one_column_line',
                f'{path}, line {line}: there is one column; expected a text, a '
                'tab and its translation',
            )
        for column, cell in zip(texts, cells, strict=False):
            column.append(_join_words(cell))
    return texts


def _in_order(file: BitextFile, texts: Sequence[Sequence[str]]) -> Languages:
    """Finds the languages of the columns of a table."""
    (path,), languages = file.paths, file.languages
    numbers = np.linspace(0, len(texts[0]) - 1, _SAMPLE).astype(int)
    sample = [[column[i] for i in np.unique(numbers)] for column in texts]
    for number, column in enumerate(sample, 1):
        filled = [text for text in column if text]
        if 2 * sum(any(map(str.isalpha, x)) for x in filled) < len(filled):
            raise errors.InputError(
                'columns_without_letters',
                f'{path}: most of column {number} has no letters, but the '
                'first two columns are the texts; put them first (cut -f2,3)',
            )
    if 'en' not in languages:
        return languages
    english = [sum(map(_is_english, column)) for column in sample]
    place = languages.index('en')
    is_swapped = english[1 - place] > 2 * english[place]
    if not file.ordered:
        # Names are no order: the first column of deu-eng.txt is English.
        if not max(english) > 2 * min(english):
            raise no_order(path, languages)
        return languages[::-1] if is_swapped else languages
    if is_swapped and english[1 - place] > _CHANCE:
        raise errors.InputError(
            'languages_swapped',
            f'{path}: column {2 - place} reads like English, and not like '
            f'{languages[1 - place]}; name the languages in the order of '
            f'the columns, {"-".join(languages[::-1])}={path}',
        )
    return languages


def _is_english(text: str) -> bool:
    words = re.findall(r"[a-z']+", text.lower().replace('’', "'"))
    return not _ENGLISH.isdisjoint(words)
