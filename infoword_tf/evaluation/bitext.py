"""Translations: files of them, finding them by vectors, and how well that goes.

Files are those of LASER's Tatoeba test set (Artetxe & Schwenk 2019, "Massively
Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual Transfer and
Beyond", §4.3), also by the names that XTREME gives them. Vectors are compared
by cosine or by the margin of Artetxe & Schwenk 2019 ("Margin-based Parallel
Corpus Mining with Multilingual Sentence Embeddings").

A sentence that stands in a file several times is one: no vector tells its
copies apart, and as neighbours of each other they would decide margins.

Glossary of shapes: n lines, N and M sentences of the two sides without copies,
D width, K neighbours, P pairs.
"""

import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data import bitexts, readers
from infoword_tf.evaluation import ranking
from infoword_tf.text import strings

NEIGHBOURS = 4  # K, as published
BLOCK = 4096  # sentences of the second side that are compared at a time
MEASURES = ('accuracy', 'by_line', 'f1')
DIRECTIONS = ('xx_en', 'en_xx', 'mean')
Shares = dict[str, dict[str, float]]  # by measure, then by direction
_LEAST = 1e-6  # that a cosine is divided by
_SORTED = 20  # so many sentences are not in order by chance
_ENGLISH = ('en', 'eng')
_CODE = r'[a-z]{2,3}(?:_\w+)?'  # deu, de, deu_Latn
_NAME = re.compile(
    rf'(?P<pair>(?:.+\.)?(?P<first>{_CODE})-(?P<second>{_CODE}))'
    rf'\.(?P<side>{_CODE})(?:\.gz|\.zst)?'
)


# ---------------------------------------------------------------------- reading


class Sentences(NamedTuple):
    """The sentences of a file, each once.

    Attributes:
        texts: N, in the order of their first lines.
        place: [n] int64, which of them each line holds.
        line: [N] int64, the first line of each, from 0.
    """

    texts: list[str]
    place: np.ndarray
    line: np.ndarray

    @property
    def copies(self) -> int:
        """How many lines hold a sentence that stands further up too."""
        return len(self.place) - len(self.texts)


class Bitext(NamedTuple):
    """A language's sentences and their translations into English, by line.

    Attributes:
        language: its code, as file names have it.
        foreign, english: both sides.
        is_sorted: whether the English side alone is in the order of the
            alphabet, as XTREME's own preparation leaves it: then lines belong
            together no longer.
    """

    language: str
    foreign: Sentences
    english: Sentences
    is_sorted: bool


def distinct(lines: Iterable[str]) -> Sentences:
    """Sentences without copies."""
    texts, place = strings.distinct(lines)
    return Sentences(texts, place, np.unique(place, return_index=True)[1])


def sentences_of(path: pathlib.Path) -> list[str]:
    """What the lines of a file (perhaps packed) hold, without blanks around it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not UTF-8, or all are blank.
    """
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    lines = [line.strip() for line in readers.lines(path)]
    if not any(lines):
        raise ValueError(f'{path} holds no sentence; expected is one a line')
    return lines


def aligned(
    first: pathlib.Path, second: pathlib.Path
) -> tuple[list[str], list[str]]:
    """Two files of which a line is the translation of the other's same line.

    Raises:
        FileNotFoundError, ValueError: as of `sentences_of`; one has more
            lines than the other, or a line is empty.
    """
    a, b = sentences_of(first), sentences_of(second)
    bitexts.check_aligned((first, second), (a, b))
    for path, lines in ((first, a), (second, b)):
        if '' in lines:
            raise ValueError(
                f'{path}, line {lines.index("") + 1} is empty: fill it, or '
                'take this line out of both files'
            )
    return a, b


def read(folder: pathlib.Path, languages: Sequence[str] = ()) -> list[Bitext]:
    """A folder of translations into English, by language.

    Names of files are those of LASER, NAME.deu-eng.deu and NAME.deu-eng.eng,
    or of XTREME, de-en.de and de-en.en; all of them may be packed.

    Args:
        folder: other files in it are left alone.
        languages: which are wanted; none: all.

    Raises:
        FileNotFoundError: there is no such folder, or a file lacks its other
            side.
        ValueError: it has none, or not these languages; or as of `aligned`.
    """
    files = _files(folder)
    known = ', '.join(sorted(files))
    for language in languages:
        if language not in files:
            raise ValueError(
                f'{folder} has no {language}: its languages are {known}'
            )
    found = []
    for language in sorted(set(languages) or files):
        foreign, english = aligned(*files[language])
        is_sorted = (
            len(english) >= _SORTED
            and english == sorted(english)
            and foreign != sorted(foreign)
        )
        found.append(
            Bitext(language, distinct(foreign), distinct(english), is_sorted)
        )
    return found


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """What `read` reads of a folder, in order."""
    return [path for both in _files(folder).values() for path in both]


def _files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """By language its file and that of its translations."""
    if not folder.is_dir():
        raise FileNotFoundError(f'{folder}: there is no such folder')
    pairs: dict[str, dict[str, pathlib.Path]] = {}
    codes = {}
    for path in sorted(folder.iterdir()):
        name = _NAME.fullmatch(path.name)
        if name and name['side'] in (name['first'], name['second']):
            both = sorted((name['first'], name['second']), key=_is_english)
            if [_is_english(code) for code in both] == [False, True]:
                codes[name['pair']] = both
                pairs.setdefault(name['pair'], {}).setdefault(
                    name['side'], path
                )
    found: dict[str, list[pathlib.Path]] = {}
    for pair, sides in pairs.items():
        for code in codes[pair]:
            if code not in sides:
                (path,) = sides.values()
                raise FileNotFoundError(
                    f'{path} has no {pair}.{code} beside it, which would hold '
                    'its translations'
                )
        language = codes[pair][0]
        if language in found:
            raise ValueError(
                f'{folder} has two test sets of {language}, the second is '
                f'{pair}; keep one of them there'
            )
        found[language] = [sides[code] for code in codes[pair]]
    if not found:
        raise ValueError(
            f'{folder} holds no translations into English: expected are pairs '
            'of files such as tatoeba.deu-eng.deu and tatoeba.deu-eng.eng, or '
            'de-en.de and de-en.en'
        )
    return found


def _is_english(code: str) -> bool:
    return code.partition('_')[0] in _ENGLISH


def english_of(
    languages: Sequence[Bitext],
) -> tuple[list[str], list[np.ndarray]]:
    """English sentences of all languages, each once: many have the same.

    Returns:
        The sentences, and of each language which of them are its own, [M]
        int64.
    """
    every = distinct(text for x in languages for text in x.english.texts)
    ends = np.cumsum([len(x.english.texts) for x in languages])
    return every.texts, np.split(every.place, ends[:-1])


# -------------------------------------------------------------------- searching


class Found(NamedTuple):
    """The K nearest sentences of the other side, best first.

    Of two that are as near the one of the lower number is first.

    Attributes:
        scores: [N, K] float32 cosines.
        numbers: [N, K] int64.
    """

    scores: np.ndarray
    numbers: np.ndarray


def nearest(
    x: np.ndarray, y: np.ndarray, neighbours: int
) -> tuple[Found, Found]:
    """What each x finds among all y, and each y among all x.

    Both by the same cosines, which are computed once, a block at a time.

    Args:
        x, y: [N, D] and [M, D].
        neighbours: K, or as many as there are.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    x, y = ranking.prepared(x, 'cosine'), ranking.prepared(y, 'cosine')
    of_x = ranking.Best(len(x), min(neighbours, len(y)))
    of_y = ranking.Best(len(y), min(neighbours, len(x)))
    # From behind: at a tie `Best` has the larger number first.
    number_x, number_y = np.arange(len(x))[::-1], np.arange(len(y))[::-1]
    for column in range(0, len(y), BLOCK):
        columns = slice(column, column + BLOCK)
        for row in range(0, len(x), ranking.ROWS):
            rows = slice(row, row + ranking.ROWS)
            cosines = x[rows] @ y[columns].T
            of_x.add(rows, cosines, number_y[columns])
            of_y.add(columns, cosines.T, number_x[rows])
    scores, numbers = of_x.sorted()
    found = Found(scores, len(y) - 1 - numbers)
    scores, numbers = of_y.sorted()
    return found, Found(scores, len(x) - 1 - numbers)


def margins(of_x: Found, of_y: Found) -> tuple[np.ndarray, np.ndarray]:
    """The margin of everything that was found, [N, K] and [M, K] float64.

    Artetxe & Schwenk 2019, Eq. 2-3: cos(x, y) over the mean of two means, of
    the cosines of x with its K nearest y, and of y with its K nearest x.
    """
    mean_x = of_x.scores.mean(axis=1, dtype=np.float64)
    mean_y = of_y.scores.mean(axis=1, dtype=np.float64)

    def ratio(found: Found, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        around = (own[:, None] + other[found.numbers]) / 2
        return found.scores / np.maximum(around, _LEAST)

    return ratio(of_x, mean_x, mean_y), ratio(of_y, mean_y, mean_x)


def translations(
    x: np.ndarray,
    y: np.ndarray,
    score: str = 'cosine',
    neighbours: int = NEIGHBOURS,
) -> tuple[np.ndarray, np.ndarray]:
    """Which y each x takes for its translation, [N], and the reverse, [M].

    Args:
        x, y: [N, D] and [M, D].
        score: 'cosine': the nearest; 'margin': of the `neighbours` nearest the
            one with the largest margin.
        neighbours: K.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    if score == 'cosine':
        of_x, of_y = nearest(x, y, 1)
        return of_x.numbers[:, 0], of_y.numbers[:, 0]
    both = nearest(x, y, neighbours)
    of_x, of_y = (
        found.numbers[np.arange(len(scores)), scores.argmax(axis=1)]
        for found, scores in zip(both, margins(*both), strict=True)
    )
    return of_x, of_y


# -------------------------------------------------------------------- measuring


def measure(
    found: np.ndarray, source: Sentences, target: Sentences
) -> dict[str, float]:
    """How good translations are, in shares of 1.

    Args:
        found: [N], which of the target's sentences each of the source's finds.
        source, target: lines that belong together.

    Returns:
        'accuracy': of how many lines the sentence that was found is the right
        one, wherever it stands (LASER's with --textual). 'by_line': of how
        many it is that of the same line, where of copies the first is found
        (LASER's without it, XTREME's). 'f1': weighted, of lines too (MTEB's).
    """
    predicted = found[source.place]
    lines = target.line[predicted]
    return {
        'accuracy': float(np.mean(predicted == target.place)),
        'by_line': float(np.mean(lines == np.arange(len(lines)))),
        'f1': weighted_f1(lines),
    }


def measured(
    language: Bitext,
    foreign: np.ndarray,
    english: np.ndarray,
    score: str = 'cosine',
    neighbours: int = NEIGHBOURS,
) -> Shares:
    """What `measure` says of both directions, and their mean.

    Args:
        language: its sentences.
        foreign, english: their vectors, [N, D] and [M, D].
        score, neighbours: as of `translations`.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    into, back = translations(foreign, english, score, neighbours)
    both = {
        'xx_en': measure(into, language.foreign, language.english),
        'en_xx': measure(back, language.english, language.foreign),
    }
    shares: Shares = {}
    for name in MEASURES:
        values = {direction: both[direction][name] for direction in both}
        mean = float(np.mean(list(values.values())))
        shares[name] = {**values, 'mean': mean}
    return shares


def weighted_f1(predictions: np.ndarray) -> float:
    """The mean F1 of n classes, of which example i has class i.

    As scikit-learn's f1_score(range(n), predictions, average='weighted',
    zero_division=0): each class has one example, so its F1 is 0 or
    2 / (1 + how often it was predicted).
    """
    counts = np.bincount(predictions, minlength=len(predictions))
    hits = predictions == np.arange(len(predictions))
    return float(np.mean(2 * hits / (1 + counts)))
