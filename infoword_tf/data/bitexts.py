"""Files of translations, one format each: what a file holds, in its order.

Two aligned files (a line of one translates that of the other), tsv, TMX and
the catalogs of gettext; the same packed.
"""

import itertools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from infoword_tf.data import catalogs, readers, tables
from infoword_tf.languages import code_of

Languages = tuple[str, str]
# Languages and a text of each, with single spaces.
Pair = tuple[Languages, str, str]

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
        paths: of one file, or of two that are aligned.
        languages: of a and b, of a TMX those that are wanted; None: a TMX
            says it of each text.
        ordered: whether they are in the order of the columns.
    """

    paths: tuple[pathlib.Path, ...]
    languages: Languages | None
    ordered: bool = True

    @property
    def kind(self) -> str:
        """How its name ends; of two `aligned`."""
        return kind_of(self.paths[0]) if len(self.paths) == 1 else 'aligned'

    def pairs(self) -> Iterator[Pair]:
        """Reads it; ValueError: what is wrong, with its line."""
        empty = True
        for pair in READERS[self.kind](self):
            empty = False
            yield pair
        # Of catalogs many have no translation yet.
        if empty and self.kind not in ('.po', '.mo'):
            raise ValueError(
                f'{" and ".join(map(str, self.paths))}: there is no pair of '
                f'{"-".join(self.languages or ("two languages",))}; give '
                'others, or leave it out'
            )


def kind_of(path: pathlib.Path) -> str:
    """How the name of a file ends, but for .gz or .zst."""
    return pathlib.Path(readers.unpacked(path)).suffix.lower()


def no_order(path: pathlib.Path, languages: Languages) -> ValueError:
    """The complaint of a tsv whose first column may be of either language."""
    a, b = languages
    return ValueError(
        f'{path}: which of its columns is {a} and which is {b} cannot be told; '
        f'say so in their order, as {a}-{b}={path} or {b}-{a}={path}'
    )


def _single(text: str) -> str:
    """A text with single spaces."""
    return ' '.join(text.split())


def _read_aligned(file: File) -> Iterator[Pair]:
    texts = [list(map(_single, readers.lines(path))) for path in file.paths]
    check_aligned(file.paths, texts)
    for a, b in zip(*texts, strict=True):
        yield file.languages, a, b


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


def _read_tsv(file: File) -> Iterator[Pair]:
    (path,) = file.paths
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
    if not texts[0]:
        return
    some = np.linspace(0, len(texts[0]) - 1, _LOOKED_AT).astype(int)
    looked_at = [[column[i] for i in np.unique(some)] for column in texts]
    for number, column in enumerate(looked_at, 1):
        there = [text for text in column if text]
        if 2 * sum(map(_has_letters, there)) < len(there):
            raise ValueError(
                f'{path}: most of column {number} has no letters, but the '
                'first two columns are the texts; put them first (cut -f2,3)'
            )
    languages = file.languages
    if 'en' in languages:
        english = [sum(map(_is_english, column)) for column in looked_at]
        place = languages.index('en')
        is_swapped = english[1 - place] > 2 * english[place]
        if file.ordered and is_swapped and english[1 - place] > _CHANCE:
            raise ValueError(
                f'{path}: column {2 - place} reads like English, and not like '
                f'{languages[1 - place]}; name the languages in the order of '
                f'the columns, {"-".join(languages[::-1])}={path}'
            )
        if not file.ordered:
            # Names are no order: the first column of deu-eng.txt is English.
            if not max(english) > 2 * min(english):
                raise no_order(path, languages)
            languages = languages[::-1] if is_swapped else languages
    for a, b in zip(*texts, strict=True):
        yield languages, a, b


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_english(text: str) -> bool:
    words = re.findall(r"[a-z']+", text.lower().replace('’', "'"))
    return not _ENGLISH.isdisjoint(words)


# Translation memories: what the elements inside a segment that hold code of
# the document are called; their text is none.
_CODE = frozenset(('bpt', 'ept', 'ph', 'it', 'ut'))


def _read_tmx(file: File) -> Iterator[Pair]:
    (path,) = file.paths
    around: list[ElementTree.Element] = []
    with readers.opened(path) as stream:
        try:
            for event, element in ElementTree.iterparse(
                stream, ('start', 'end')
            ):
                if event == 'start':
                    around.append(element)
                    continue
                around.pop()
                if _tag(element) == 'tu':
                    yield from _pairs_of(element, file.languages)
                    if around:
                        around[-1].clear()  # what was read is not kept
        except ElementTree.ParseError as error:
            raise ValueError(
                f'{path}, line {error.position[0]}: no XML ({error}); mend it, '
                'or write it anew'
            ) from None
        except (LookupError, ValueError) as error:
            raise ValueError(
                f'{path}: its encoding is none that can be read ({error}); '
                'convert it to UTF-8'
            ) from None


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition('}')[2]


def _pairs_of(
    unit: ElementTree.Element, wanted: Languages | None
) -> Iterator[Pair]:
    """Each two texts of a unit that are of two languages."""
    texts = []
    for variant in unit:
        name = variant.get('{http://www.w3.org/XML/1998/namespace}lang')
        code = code_of(name or variant.get('lang') or '')
        if code is not None and (wanted is None or code in wanted):
            texts += [
                (code, _single(_text_of(child)))
                for child in variant
                if _tag(child) == 'seg'
            ]
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        if one != other:
            yield (one, other), a, b


def _text_of(element: ElementTree.Element) -> str:
    parts = [element.text or '']
    for child in element:
        if _tag(child) not in _CODE:
            parts.append(_text_of(child))
        parts.append(child.tail or '')
    return ''.join(parts)


def _read_catalog(file: File) -> Iterator[Pair]:
    for a, b in catalogs.read(*file.paths):
        yield file.languages, _single(a), _single(b)


READERS: dict[str, Callable[[File], Iterator[Pair]]] = {
    'aligned': _read_aligned, '.tsv': _read_tsv, '.txt': _read_tsv,
    '.tmx': _read_tmx, '.po': _read_catalog, '.mo': _read_catalog,
}  # fmt: skip
