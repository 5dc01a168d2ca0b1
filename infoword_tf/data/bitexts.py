"""Files of translations: what they hold, in its order.

Two aligned files (a line of one translates that of the other), or a table whose
first two columns are the texts; the same packed.
"""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data import readers, tables

Languages = tuple[str, str]

_LOOKED_AT = 1000  # rows that say what is in a column
_CHANCE = 5  # so many English rows may be in a column by chance
# Frequent in English, and no words of others.
_ENGLISH = frozenset(
    "the that this what you your they with not are and she his don't i'm it's "
    "how who why there where will would can't".split()
)


class File(NamedTuple):
    """What is read at once.

    Attributes:
        paths: of a table, or of two files that are aligned.
        languages: of a and b.
        ordered: whether they are in the order of the columns.
    """

    paths: tuple[pathlib.Path, ...]
    languages: Languages
    ordered: bool = True

    def read(self) -> tuple[Languages, list[list[str]]]:
        """The languages of a and b, and both, texts with single spaces.

        Raises:
            ValueError: what is wrong, with its line.
        """
        languages = self.languages
        if len(self.paths) == 2:
            texts = [list(map(_single, readers.lines(x))) for x in self.paths]
            check_aligned(self.paths, texts)
        else:
            texts = _columns(self.paths[0])
            languages = _in_order(self, texts) if texts[0] else languages
        if not texts[0]:
            raise ValueError(
                f'{" and ".join(map(str, self.paths))}: there is no pair of '
                f'{"-".join(self.languages)}; give others, or leave it out'
            )
        return languages, texts


def no_order(path: pathlib.Path, languages: Languages) -> ValueError:
    """The complaint of a table whose first column may be of either language."""
    a, b = languages
    return ValueError(
        f'{path}: which of its columns is {a} and which is {b} cannot be told; '
        f'say so in their order, as {a}-{b}={path} or {b}-{a}={path}'
    )


def _single(text: str) -> str:
    """A text with single spaces."""
    return ' '.join(text.split())


def check_aligned(
    paths: Sequence[pathlib.Path], texts: Sequence[Sequence[str]]
) -> None:
    """Complains of two files whose lines, `texts`, are not as many.

    Raises:
        ValueError: they are not; it says where they probably part.
    """
    if len(texts[0]) != len(texts[1]):
        one, other = paths
        raise ValueError(
            f'{one} has {len(texts[0]):,} lines and {other} {len(texts[1]):,}, '
            f'but a line of one translates that of the other: '
            f'{_unlike(paths, texts)}; align them again'
        )


def _unlike(
    paths: Sequence[pathlib.Path], texts: Sequence[Sequence[str]]
) -> str:
    """Where two files of unlike length may part."""
    before = ('', '')
    for number, pair in enumerate(zip(*texts, strict=False), 1):
        repeats = [x == y for x, y in zip(pair, before, strict=True)]
        for path, text, other, same in zip(
            paths, pair, pair[::-1], repeats, strict=True
        ):
            if other and not text:
                return f'perhaps at line {number} of {path}, which is empty'
            if text and same and not all(repeats):
                return (
                    f'perhaps at line {number} of {path}, which repeats the '
                    'one before'
                )
        before = pair
    longer = paths[len(texts[0]) < len(texts[1])]
    return f'line {min(map(len, texts)) + 1} of {longer} has no neighbour'


def _columns(path: pathlib.Path) -> list[list[str]]:
    """The first two columns of a table."""
    texts: list[list[str]] = [[], []]
    for line, cells in tables.read_tsv(path):
        if len(cells) < 2:
            if not cells[0].strip():
                continue  # a blank line
            raise ValueError(
                f'{path}, line {line}: there is one column; expected a text, a '
                'tab and its translation'
            )
        for column, cell in zip(texts, cells, strict=False):
            column.append(_single(cell))
    return texts


def _in_order(file: File, texts: Sequence[Sequence[str]]) -> Languages:
    """The languages of the columns of a table."""
    (path,), languages = file.paths, file.languages
    some = np.unique(np.linspace(0, len(texts[0]) - 1, _LOOKED_AT).astype(int))
    looked_at = [[column[i] for i in some] for column in texts]
    for number, column in enumerate(looked_at, 1):
        there = [text for text in column if text]
        if 2 * sum(any(map(str.isalpha, x)) for x in there) < len(there):
            raise ValueError(
                f'{path}: most of column {number} has no letters, but the '
                'first two columns are the texts; put them first (cut -f2,3)'
            )
    if 'en' not in languages:
        return languages
    english = [sum(map(_is_english, column)) for column in looked_at]
    place = languages.index('en')
    is_swapped = english[1 - place] > 2 * english[place]
    if not file.ordered:
        # Names are no order: the first column of deu-eng.txt is English.
        if not max(english) > 2 * min(english):
            raise no_order(path, languages)
        return languages[::-1] if is_swapped else languages
    if is_swapped and english[1 - place] > _CHANCE:
        raise ValueError(
            f'{path}: column {2 - place} reads like English, and not like '
            f'{languages[1 - place]}; name the languages in the order of '
            f'the columns, {"-".join(languages[::-1])}={path}'
        )
    return languages


def _is_english(text: str) -> bool:
    words = re.findall(r"[a-z']+", text.lower().replace('’', "'"))
    return not _ENGLISH.isdisjoint(words)
