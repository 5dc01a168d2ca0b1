"""Semantic textual similarity: files of scored pairs, and measures of vectors.

Formats are those of STS-B (Cer et al. 2017), as published or as in GLUE, of
SICK (Marelli et al. 2014), of SentEval's folders of STS12 to STS16, and folders
of all these.
"""

import math
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data import readers, tables
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.correlation import spearman

Encode = Callable[[Sequence[str]], np.ndarray]  # n texts -> [n, D] float32
# Score and sentences: columns of the published file, and names of columns.
_PUBLISHED = (4, 5, 6)
_NAMED = (
    ('score', 'sentence1', 'sentence2'),
    ('relatedness_score', 'sentence_A', 'sentence_B'),
)
_SAME = 4  # of 5: above it two sentences mean the same
_BLOCK = 1024  # vectors compared with all others at a time
_INPUT, _SCORES = 'STS.input.', 'STS.gs.'
# Test sets whose mean is published since SimCSE (Gao et al. 2021, §6.1). In
# SentEval five are folders of parts, two are files.
SETS = ('STS12', 'STS13', 'STS14', 'STS15', 'STS16', 'STS-B', 'SICK-R')
_YEAR = re.compile(r'STS[-_ ]?(?:20)?(1[2-6])(?!\d)')
_FILES = {'sts-test.csv': 'STS-B', 'SICK_test_annotated.txt': 'SICK-R'}
_EXPECTED = (
    'expected are columns separated by tabs: genre, file, year, number, score, '
    'sentence, sentence; or, where the first line names them (then commas or '
    'semicolons may separate them too), score, sentence1 and sentence2, or '
    'relatedness_score, sentence_A and sentence_B'
)


class ScoredPairs(NamedTuple):
    """Pairs of sentences that people have scored.

    Attributes:
        first, second: n sentences each.
        scores: [n] float64, 0 (nothing in common) to 5 (the same).
        parts: numbers of pairs of a folder's parts, by name, in order.
    """

    first: list[str]
    second: list[str]
    scores: np.ndarray
    parts: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """First sentences of all pairs, then the second sentences."""
        return [*self.first, *self.second]


def read(path: pathlib.Path) -> ScoredPairs:
    """Reads a file of STS-B or SICK, or a folder of parts.

    Blank lines of a file are skipped; a number may have a decimal comma.

    Raises:
        FileNotFoundError: the file, or one of the folder, is missing.
        ValueError: a line has no score or no two sentences, or there are
            fewer than three pairs.
    """
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    lines = [
        (number, cells)
        for number, cells in _cells(path)
        if any(map(str.strip, cells))
    ]
    columns: tuple[int, ...] = _PUBLISHED
    begin = 0
    header = [name.strip() for name in lines[0][1]] if lines else []
    for names in _NAMED:
        if names[1] in header:
            lacking = [name for name in names if name not in header]
            if lacking:
                raise errors.InputError(
                    'sts_lacks_columns',
                    f'{path}: its first line names no {" and ".join(lacking)} '
                    f'beside {names[1]}; files for tests may keep the scores '
                    'back',
                )
            columns, begin = tuple(map(header.index, names)), 1
    pairs = []
    for number, cells in lines[begin:]:
        try:
            score, first, second = (cells[column] for column in columns)
            pairs.append((_score(score), first.strip(), second.strip()))
        except (IndexError, ValueError):
            line = '\t'.join(cells)
            raise errors.InputError(
                'sts_bad_line',
                f'{path}, line {number}: no score and two sentences in '
                f'{line[:60]!r}; {_EXPECTED}',
            ) from None
    return _scored(path, pairs)


def read_sets(folder: pathlib.Path) -> dict[str, ScoredPairs]:
    """Reads the test sets of a folder, for example SentEval's data/downstream.

    STS12 to STS16 are folders of parts with the year in their name, STS-B is
    sts-test.csv, SICK is SICK_test_annotated.txt, at any depth.

    Returns:
        Sets by name, in the order of `SETS`, then other folders of parts by
        folder name. Empty without any, or if `folder` itself has parts.

    Raises:
        ValueError: two sets have one name; see `read`.
        FileNotFoundError: see `read`.
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
            raise errors.InputError(
                'sts_set_twice',
                f'{folder} has two sets {name}, {paths[name]} and {path}: name '
                'a folder with one of them',
            )
    known = [name for name in SETS if name in paths]
    others = [name for name in paths if name not in SETS]
    return {name: read(paths[name]) for name in [*known, *others]}


def _cells(path: pathlib.Path) -> Iterable[tuple[int, list[str]]]:
    """Reads numbered lines as cells: of a TSV, or without tabs of a CSV."""
    first = next(filter(str.strip, readers.lines(path)), '\t')
    return tables.read_tsv(path) if '\t' in first else tables.read_csv(path)


def _read_folder(folder: pathlib.Path) -> ScoredPairs:
    """Reads the parts of a folder, one after another; see `read`."""
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
    """Reads the pairs that have a score from two files; see `read`."""
    if not gold.is_file():
        raise FileNotFoundError(f'{path} has no {gold.name} beside it')
    lines, scores, pairs = _lines(path), _lines(gold), []
    for longer, other in ((lines, scores), (scores, lines)):
        while len(longer) > len(other) and not longer[-1].strip():
            longer.pop()  # blank lines at the end of one of them
    if len(lines) != len(scores):
        raise errors.InputError(
            'sts_unequal_lines',
            f'{path} has {len(lines)} lines, {gold.name} has {len(scores)}: '
            'a line there is the score of the same line here, or empty',
        )
    for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1):
        if not score.strip():
            continue
        try:
            value = _score(score)
        except ValueError:
            raise errors.InputError(
                'sts_no_score',
                f'{gold}, line {number}: {score[:60]!r} is no score',
            ) from None
        first, tab, rest = line.partition('\t')
        pairs.append((value, first.strip(), rest.partition('\t')[0].strip()))
        if not tab:
            raise errors.InputError(
                'sts_no_two_sentences',
                f'{path}, line {number}: no two sentences, separated by a tab, '
                f'in {line[:60]!r}',
            )
    return _scored(path, pairs)


def _score(text: str) -> float:
    """Parses a finite number, perhaps with a decimal comma, or raises."""
    score = float(text.replace(',', '.'))
    if not math.isfinite(score):
        raise errors.InputError('sts_number_not_finite', text)
    return score


def _lines(path: pathlib.Path) -> list[str]:
    # `splitlines` would also split at separators inside sentences.
    lines = readers.lines(path)
    return [line.removesuffix('\n').removesuffix('\r') for line in lines]


def _scored(
    path: pathlib.Path, pairs: list[tuple[float, str, str]]
) -> ScoredPairs:
    if len(pairs) < 3:
        raise errors.InputError(
            'sts_too_few_pairs',
            f'{path} has {len(pairs)} pairs: too few to rank',
        )
    scores, first, second = zip(*pairs, strict=True)
    return ScoredPairs(list(first), list(second), np.array(scores))


def similarities(
    pairs: ScoredPairs, encode: Encode, similarity: str
) -> np.ndarray:
    """Computes the similarity, 'cosine' or 'dot', of each pair: [n] float64.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    vectors = ranking.finite(encode(pairs.texts), np.float64)
    if similarity == 'cosine':
        vectors = _unit(vectors)
    half = len(pairs.first)
    return np.einsum('nd,nd->n', vectors[:half], vectors[half:])


def alignment(pairs: ScoredPairs, vectors: np.ndarray) -> float | None:
    """Computes the mean squared distance of unit vectors of positive pairs.

    Wang & Isola 2020, §4.1.1, over pairs that score above 4 of 5 (Gao et al.
    2021, §4.3); None without any. Less is better.

    Args:
        pairs: n.
        vectors: [2 n, D], of `pairs.texts`.
    """
    same = np.flatnonzero(pairs.scores > _SAME)
    if not same.size:
        return None
    x = _unit(vectors)
    gaps = x[same] - x[same + len(pairs.first)]
    return float(np.mean(np.sum(gaps * gaps, axis=1)))


def uniformity(texts: Sequence[str], vectors: np.ndarray) -> float:
    """Computes log mean exp(-2 d^2), d the distance of two unit vectors.

    Wang & Isola 2020, §4.1.2; over all pairs of distinct texts. -4 for vectors
    spread evenly over many directions, 0 for equal vectors.

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
    """Computes Spearman's correlation x 100 over all pairs."""
    similarity_scores = similarities(pairs, encode, similarity)
    return 100 * spearman(similarity_scores, pairs.scores)


def correlations(
    path: str, similarity: str, encoders: Mapping[str, Encode]
) -> dict[str, Any]:
    """Returns Spearman's x 100 on a file for each encoder, for JSON."""
    pairs = read(pathlib.Path(path))
    return {
        'data': pathlib.Path(path).name,
        'pairs': len(pairs.scores),
        **{k: correlation(pairs, v, similarity) for k, v in encoders.items()},
    }
