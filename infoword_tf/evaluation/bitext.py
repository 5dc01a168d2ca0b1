"""Translations: files, search by vectors, and measures of the search.

Files are those of LASER's Tatoeba test set (Artetxe & Schwenk 2019, "Massively
Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual Transfer and
Beyond", §4.3), with LASER's or XTREME's names. Vectors are compared by cosine
or by the margin of Artetxe & Schwenk 2019 ("Margin-based Parallel Corpus Mining
with Multilingual Sentence Embeddings").

A sentence that occurs several times in a file counts once: its copies have the
same vector, and as neighbours of each other they would decide margins.

Glossary of shapes: n lines, S and s distinct sentences of the two sides,
k neighbours.
"""

import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data import bitexts, readers
from infoword_tf.evaluation import ranking
from infoword_tf.text import strings

NEIGHBOURS = 4  # k, as published
BLOCK = 4096  # sentences of the second side that are compared at a time
MEASURES = ('accuracy', 'by_line', 'f1')
DIRECTIONS = ('xx_en', 'en_xx', 'mean')
Shares = dict[str, dict[str, float]]  # by measure, then by direction
_LEAST = 1e-6  # by which a cosine is divided
_SORTED = 20  # sentences that are not in alphabetical order by chance
_ENGLISH = ('en', 'eng')
_CODE = r'[a-z]{2,3}(?:_\w+)?'  # deu, de, deu_Latn
_NAME = re.compile(
    rf'(?P<pair>(?:.+\.)?(?P<first>{_CODE})-(?P<second>{_CODE}))'
    rf'\.(?P<side>{_CODE})(?:\.gz|\.zst)?'
)


# ---------------------------------------------------------------------- reading


class DistinctSentences(NamedTuple):
    """The distinct sentences of a file.

    Attributes:
        texts: S, in the order of their first lines.
        place: [n] int64, index in `texts` of each line.
        line: [S] int64, the first line of each, from 0.
    """

    texts: list[str]
    place: np.ndarray
    line: np.ndarray

    @property
    def copies(self) -> int:
        """Number of lines whose sentence occurs further up too."""
        return len(self.place) - len(self.texts)


class Bitext(NamedTuple):
    """The sentences of a language and English translations, by line.

    Attributes:
        language: its code in file names.
        foreign, english: both sides.
        is_sorted: whether the English side alone is in alphabetical order, as
            XTREME's preparation leaves it: then lines do not match.
    """

    language: str
    foreign: DistinctSentences
    english: DistinctSentences
    is_sorted: bool


def distinct(lines: Iterable[str]) -> DistinctSentences:
    """Collects the distinct sentences of lines."""
    texts, place = strings.distinct(lines)
    first = np.unique(place, return_index=True)[1]
    return DistinctSentences(texts, place, first)


def sentences_of(path: pathlib.Path) -> list[str]:
    """Reads the stripped lines of a file, which may be compressed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not UTF-8, or all are blank.
    """
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    lines = [line.strip() for line in readers.lines(path)]
    if not any(lines):
        raise errors.InputError(
            'bitext_no_sentence',
            f'{path} holds no sentence; expected is one a line',
        )
    return lines


def aligned(
    first: pathlib.Path, second: pathlib.Path
) -> tuple[list[str], list[str]]:
    """Reads two files whose lines are translations of each other.

    Raises:
        FileNotFoundError, ValueError: see `sentences_of`; one file has more
            lines than the other, or a line is empty.
    """
    a, b = sentences_of(first), sentences_of(second)
    bitexts.check_aligned((first, second), (a, b))
    for path, lines in ((first, a), (second, b)):
        if '' in lines:
            raise errors.InputError(
                'bitext_empty_line',
                f'{path}, line {lines.index("") + 1} is empty: fill it, or '
                'take this line out of both files',
            )
    return a, b


def read(folder: pathlib.Path, languages: Sequence[str] = ()) -> list[Bitext]:
    """Reads a folder of translations into English, by language.

    Names of files are those of LASER, NAME.deu-eng.deu and NAME.deu-eng.eng,
    or of XTREME, de-en.de and de-en.en; all may be compressed.

    Args:
        folder: folder with these files; others are ignored.
        languages: languages that are read; none: all.

    Raises:
        FileNotFoundError: there is no such folder, or a file without its other
            side.
        ValueError: the folder has no translations, or lacks a language; see
            `aligned`.
    """
    files = _files(folder)
    known = ', '.join(sorted(files))
    for language in languages:
        if language not in files:
            raise errors.InputError(
                'bitext_lacks_language',
                f'{folder} has no {language}: its languages are {known}',
            )
    result = []
    for language in sorted(set(languages) or files):
        foreign, english = aligned(*files[language])
        is_sorted = (
            len(english) >= _SORTED
            and english == sorted(english)
            and foreign != sorted(foreign)
        )
        result.append(
            Bitext(language, distinct(foreign), distinct(english), is_sorted)
        )
    return result


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """Lists the files that `read` reads, in order."""
    return [path for both in _files(folder).values() for path in both]


def _files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns, by language, the foreign and the English file."""
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
    files: dict[str, list[pathlib.Path]] = {}
    for pair, sides in pairs.items():
        for code in codes[pair]:
            if code not in sides:
                (path,) = sides.values()
                raise FileNotFoundError(
                    f'{path} has no {pair}.{code} beside it, which would hold '
                    'its translations'
                )
        language = codes[pair][0]
        if language in files:
            raise errors.InputError(
                'bitext_language_twice',
                f'{folder} has two test sets of {language}, the second is '
                f'{pair}; keep one of them there',
            )
        files[language] = [sides[code] for code in codes[pair]]
    if not files:
        raise errors.InputError(
            'no_translations_into_english',
            f'{folder} holds no translations into English: expected are pairs '
            'of files such as tatoeba.deu-eng.deu and tatoeba.deu-eng.eng, or '
            'de-en.de and de-en.en',
        )
    return files


def _is_english(code: str) -> bool:
    return code.partition('_')[0] in _ENGLISH


def english_of(
    languages: Sequence[Bitext],
) -> tuple[list[str], list[np.ndarray]]:
    """Collects the distinct English sentences of all languages.

    Returns:
        The sentences; of each language the indices [s] int64 of its sentences.
    """
    every = distinct(text for x in languages for text in x.english.texts)
    ends = np.cumsum([len(x.english.texts) for x in languages])
    return every.texts, np.split(every.place, ends[:-1])


# -------------------------------------------------------------------- searching


class Neighbours(NamedTuple):
    """The k nearest sentences of the other side, best first, then by number.

    Attributes:
        scores: [S, k] float32 cosines.
        numbers: [S, k] int64.
    """

    scores: np.ndarray
    numbers: np.ndarray


def nearest(
    x: np.ndarray, y: np.ndarray, neighbours: int
) -> tuple[Neighbours, Neighbours]:
    """Finds the nearest y of each x, and the nearest x of each y.

    Both by the same cosines, which are computed once, a block at a time.

    Args:
        x, y: [S, D] and [s, D].
        neighbours: k, at most the sentences of the other side.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    x, y = ranking.prepared(x, 'cosine'), ranking.prepared(y, 'cosine')
    of_x = ranking.Best(len(x), min(neighbours, len(y)))
    of_y = ranking.Best(len(y), min(neighbours, len(x)))
    # Numbered backward: at a tie `Best` has the larger number first.
    number_x, number_y = np.arange(len(x))[::-1], np.arange(len(y))[::-1]
    for column in range(0, len(y), BLOCK):
        columns = slice(column, column + BLOCK)
        for row in range(0, len(x), ranking.QUERIES):
            rows = slice(row, row + ranking.QUERIES)
            cosines = x[rows] @ y[columns].T
            of_x.add(rows, cosines, number_y[columns])
            of_y.add(columns, cosines.T, number_x[rows])
    scores, numbers = of_x.sorted()
    neighbours_of_x = Neighbours(scores, len(y) - 1 - numbers)
    scores, numbers = of_y.sorted()
    return neighbours_of_x, Neighbours(scores, len(x) - 1 - numbers)


def margins(
    of_x: Neighbours, of_y: Neighbours
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the margins of all neighbours, [S, k] and [s, k] float64.

    Artetxe & Schwenk 2019, Eq. 2-3: cos(x, y) over the mean of two means, of
    the cosines of x with its k nearest y, and of y with its k nearest x.
    """
    mean_x = of_x.scores.mean(axis=1, dtype=np.float64)
    mean_y = of_y.scores.mean(axis=1, dtype=np.float64)

    def ratio(
        near: Neighbours, mean: np.ndarray, other_mean: np.ndarray
    ) -> np.ndarray:
        both = (mean[:, None] + other_mean[near.numbers]) / 2
        return near.scores / np.maximum(both, _LEAST)

    return ratio(of_x, mean_x, mean_y), ratio(of_y, mean_y, mean_x)


def translations(
    x: np.ndarray,
    y: np.ndarray,
    score: str = 'cosine',
    neighbours: int = NEIGHBOURS,
) -> tuple[np.ndarray, np.ndarray]:
    """Predicts the translation y of each x, [S], and x of each y, [s].

    Args:
        x, y: [S, D] and [s, D].
        score: 'cosine': the nearest sentence; 'margin': among the `neighbours`
            nearest that with the largest margin.
        neighbours: k.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    if score == 'cosine':
        of_x, of_y = nearest(x, y, 1)
        return of_x.numbers[:, 0], of_y.numbers[:, 0]
    both = nearest(x, y, neighbours)
    of_x, of_y = (
        near.numbers[np.arange(len(scores)), scores.argmax(axis=1)]
        for near, scores in zip(both, margins(*both), strict=True)
    )
    return of_x, of_y


# -------------------------------------------------------------------- measuring


def measure(
    numbers: np.ndarray, source: DistinctSentences, target: DistinctSentences
) -> dict[str, float]:
    """Measures predicted translations, in shares of 1.

    Args:
        numbers: [S], the target sentence that each source sentence predicts.
        source, target: files whose lines match.

    Returns:
        'accuracy': the share of lines whose prediction is the right sentence,
        in whichever line (LASER's with --textual). 'by_line': the share whose
        prediction is in the same line, where copies count as their first line
        (LASER's without --textual, XTREME's). 'f1': weighted, of lines too
        (MTEB's).
    """
    predicted = numbers[source.place]
    lines = target.line[predicted]
    return {
        'accuracy': float(np.mean(predicted == target.place)),
        'by_line': float(np.mean(lines == np.arange(len(lines)))),
        'f1': weighted_f1(lines),
    }


def measure_both(
    language: Bitext,
    foreign: np.ndarray,
    english: np.ndarray,
    score: str = 'cosine',
    neighbours: int = NEIGHBOURS,
) -> Shares:
    """Measures both directions of a language, and means of the two.

    Args:
        language: sentences of a language.
        foreign, english: vectors, [S, D] and [s, D].
        score, neighbours: settings of `translations`.

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
    """Returns the mean F1 of n classes, where example i has class i.

    Equals scikit-learn's f1_score(range(n), predictions, average='weighted',
    zero_division=0): each class has one example, so its F1 is 0 or
    2 / (1 + number of predictions of the class).
    """
    counts = np.bincount(predictions, minlength=len(predictions))
    hits = predictions == np.arange(len(predictions))
    return float(np.mean(2 * hits / (1 + counts)))
