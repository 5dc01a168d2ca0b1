"""Files of semantic textual similarity: pairs that people have scored.

Read are those of STS-B (Cer et al. 2017), as published or as GLUE has them, of
SICK (Marelli et al. 2014), and folders laid out as SentEval's of STS12 to STS16
are, or folders of all these; what is measured is how vectors rank the pairs.
"""

import math
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data import readers, tables
from infoword_tf.evaluation.correlation import spearman

Encode = Callable[[Sequence[str]], np.ndarray]  # n texts -> [n, D] float32
# Score and sentences: columns of the published file, and by their names.
_PUBLISHED = (4, 5, 6)
_NAMED = (
    ('score', 'sentence1', 'sentence2'),
    ('relatedness_score', 'sentence_A', 'sentence_B'),
)
_SAME = 4  # of 5: above it two sentences mean the same
_BLOCK = 1024  # vectors compared with all others at a time
_INPUT, _SCORES = 'STS.input.', 'STS.gs.'
# Test sets whose mean is published since SimCSE (Gao et al. 2021, §6.1), and
# where SentEval has them: folders of parts, and two files.
SETS = ('STS12', 'STS13', 'STS14', 'STS15', 'STS16', 'STS-B', 'SICK-R')
_YEAR = re.compile(r'STS[-_ ]?(?:20)?(1[2-6])(?!\d)')
_FILES = {'sts-test.csv': 'STS-B', 'SICK_test_annotated.txt': 'SICK-R'}
_EXPECTED = (
    'expected are columns parted by tabs: genre, file, year, number, score, '
    'sentence, sentence; or, where the first line names them (then commas or '
    'semicolons may part them too), score, sentence1 and sentence2, or '
    'relatedness_score, sentence_A and sentence_B'
)


class ScoredPairs(NamedTuple):
    """Pairs of sentences that people have scored.

    Attributes:
        first, second: n sentences each.
        scores: [n] float64, 0 (nothing in common) to 5 (the same).
        parts: of a folder, by name how many of the pairs, in their order.
    """

    first: list[str]
    second: list[str]
    scores: np.ndarray
    parts: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """All first sentences, then all second ones."""
        return [*self.first, *self.second]


def read(path: pathlib.Path) -> ScoredPairs:
    """Reads a file of STS-B or SICK, or a folder of parts.

    Blank lines of a file are skipped; a number may have a decimal comma.

    Raises:
        FileNotFoundError: there is none, or the folder lacks a file.
        ValueError: a line has no score or no two sentences, or there are
            fewer than three pairs.
    """
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    rows = [
        (number, cells)
        for number, cells in _rows(path)
        if any(map(str.strip, cells))
    ]
    places, begin = _PUBLISHED, 0
    names = [name.strip() for name in rows[0][1]] if rows else []
    for wanted in _NAMED:
        if wanted[1] in names:
            lacking = [name for name in wanted if name not in names]
            if lacking:
                raise ValueError(
                    f'{path}: its first line names no {" and ".join(lacking)} '
                    f'beside {wanted[1]}; files for tests may keep the scores '
                    'back'
                )
            places, begin = tuple(map(names.index, wanted)), 1
    found = []
    for number, cells in rows[begin:]:
        try:
            score, first, second = (cells[place] for place in places)
            found.append((_score(score), first.strip(), second.strip()))
        except (IndexError, ValueError):
            line = '\t'.join(cells)
            raise ValueError(
                f'{path}, line {number}: no score and two sentences in '
                f'{line[:60]!r}; {_EXPECTED}'
            ) from None
    return _pairs(path, found)


def read_sets(folder: pathlib.Path) -> dict[str, ScoredPairs]:
    """Reads the test sets of a folder, such as SentEval's data/downstream.

    STS12 to STS16 are folders of parts, in whose name the year stands, STS-B is
    sts-test.csv, SICK is SICK_test_annotated.txt, wherever they lie below.

    Returns:
        By name, in the order of `SETS`; a folder of parts that is none of
        these by its own. Empty where there is none, or `folder` itself is one
        of parts.

    Raises:
        ValueError: two of them have one name; as of `read`.
        FileNotFoundError: as of `read`.
    """
    paths: dict[str, pathlib.Path] = {}
    if any(folder.glob(f'{_INPUT}*.txt')):
        return {}
    parts = {path.parent for path in folder.rglob(f'{_INPUT}*.txt')}
    files = [path for name in _FILES for path in folder.rglob(name)]
    for path in sorted([*parts, *files]):
        year = _YEAR.search(path.name)
        name = _FILES.get(path.name, f'STS{year[1]}' if year else path.name)
        if paths.setdefault(name, path) != path:
            raise ValueError(
                f'{folder} has two sets {name}, {paths[name]} and {path}: name '
                'a folder with one of them'
            )
    known = [name for name in SETS if name in paths]
    others = [name for name in paths if name not in SETS]
    return {name: read(paths[name]) for name in [*known, *others]}


def _rows(path: pathlib.Path) -> Iterable[tuple[int, list[str]]]:
    """Lines and their cells, parted by tabs or, without any, as of a CSV."""
    first = next(filter(str.strip, readers.lines(path)), '\t')
    return tables.read_tsv(path) if '\t' in first else tables.read_csv(path)


def _read_folder(folder: pathlib.Path) -> ScoredPairs:
    """The parts of a folder, one after the other; see `read`."""
    parts = {}
    for path in sorted(folder.glob(f'{_INPUT}*.txt')):
        name = path.name.removeprefix(_INPUT)
        parts[name.removesuffix('.txt')] = _read_part(
            path, folder / f'{_SCORES}{name}'
        )
    if not parts:
        raise FileNotFoundError(
            f'{folder} is a folder without {_INPUT}NAME.txt and '
            f'{_SCORES}NAME.txt; name a folder that has them, a file with '
            'scores, or (for tasks.sts) a folder of such folders and files'
        )
    return ScoredPairs(
        [x for part in parts.values() for x in part.first],
        [x for part in parts.values() for x in part.second],
        np.concatenate([part.scores for part in parts.values()]),
        {name: len(part.scores) for name, part in parts.items()},
    )


def _read_part(path: pathlib.Path, gold: pathlib.Path) -> ScoredPairs:
    """The pairs of two files that have a score; see `read`."""
    if not gold.is_file():
        raise FileNotFoundError(f'{path} has no {gold.name} beside it')
    lines, scores, found = _lines(path), _lines(gold), []
    for longer, other in ((lines, scores), (scores, lines)):
        while len(longer) > len(other) and not longer[-1].strip():
            longer.pop()  # blank lines at the end of one of them
    if len(lines) != len(scores):
        raise ValueError(
            f'{path} has {len(lines)} lines, {gold.name} has {len(scores)}: '
            'a line there is the score of the same line here, or empty'
        )
    for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1):
        if not score.strip():
            continue
        try:
            found.append((_score(score), *map(str.strip, line.split('\t')[:2])))
        except ValueError:
            raise ValueError(
                f'{gold}, line {number}: {score[:60]!r} is no score'
            ) from None
        if len(found[-1]) < 3:
            raise ValueError(
                f'{path}, line {number}: no two sentences, parted by a tab, '
                f'in {line[:60]!r}'
            )
    return _pairs(path, found)


def _score(text: str) -> float:
    """A finite number, perhaps with a decimal comma; ValueError: it is none."""
    score = float(text.replace(',', '.'))
    if not math.isfinite(score):
        raise ValueError(text)
    return score


def _lines(path: pathlib.Path) -> list[str]:
    # Sentences may hold what `splitlines` would part.
    lines = readers.lines(path)
    return [line.removesuffix('\n').removesuffix('\r') for line in lines]


def _pairs(
    path: pathlib.Path, found: list[tuple[float, str, str]]
) -> ScoredPairs:
    if len(found) < 3:
        raise ValueError(f'{path} has {len(found)} pairs: too few to rank')
    scores, first, second = zip(*found, strict=True)
    return ScoredPairs(list(first), list(second), np.array(scores))


def similarities(
    pairs: ScoredPairs, encode: Encode, similarity: str
) -> np.ndarray:
    """[n] float64: how near the vectors of each pair are.

    `similarity` is 'cosine' or 'dot'.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    vectors = np.asarray(encode(pairs.texts), np.float64)
    if not np.isfinite(vectors).all():
        raise ValueError('the encoder made vectors that are not finite')
    if similarity == 'cosine':
        vectors = _unit(vectors)
    half = len(pairs.first)
    return np.einsum('nd,nd->n', vectors[:half], vectors[half:])


def alignment(pairs: ScoredPairs, vectors: np.ndarray) -> float | None:
    """Mean squared distance of unit vectors of pairs that mean the same.

    Wang & Isola 2020, §4.1.1, of pairs that score above 4 of 5 (Gao et al.
    2021, §4.3); None where there is none. The less the better.

    Args:
        pairs: n.
        vectors: [2 n, D] of their texts.
    """
    same = np.flatnonzero(pairs.scores > _SAME)
    if not same.size:
        return None
    x = _unit(vectors)
    gaps = x[same] - x[same + len(pairs.first)]
    return float(np.mean(np.sum(gaps * gaps, axis=1)))


def uniformity(texts: Sequence[str], vectors: np.ndarray) -> float:
    """log mean exp(-2 d^2), d the distance of two unit vectors.

    Wang & Isola 2020, §4.1.2; over all two of the texts that differ. -4 where
    they are spread evenly over many directions, 0 where all are one.

    Args:
        texts: n.
        vectors: [n, D].
    """
    x = _unit(vectors)[np.unique(np.array(texts), return_index=True)[1]]
    total = 0.0
    for begin in range(0, len(x), _BLOCK):
        squares = 2 - 2 * x[begin : begin + _BLOCK] @ x.T
        total += np.exp(-2 * squares).sum()
    count = len(x)
    mean = (total - count) / max(1, count * (count - 1))  # without i = j
    return float(np.log(max(mean, 1e-30))) if count > 1 else 0.0


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)


def correlation(pairs: ScoredPairs, encode: Encode, similarity: str) -> float:
    """Spearman's x 100 over all pairs."""
    similarity_scores = similarities(pairs, encode, similarity)
    return 100 * spearman(similarity_scores, pairs.scores)
