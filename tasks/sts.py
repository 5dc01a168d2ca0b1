r"""Semantic textual similarity: do vectors agree with human judgements?

    python -m tasks.sts --init=runs/minilm --data=STS-B/sts-test.csv \
        --workdir=runs/minilm/sts
    python -m tasks.sts --init=runs/minilm --data=STS12-en-test \
        --workdir=runs/minilm/sts12

Spearman's rank correlation (x 100) between people's scores and the similarity
of vectors, over all pairs of a file: of STS-B (Cer et al. 2017), as published
(tab-separated: genre, file, year, number, score, sentence, sentence) or as GLUE
has it (a line of names first, among them sentence1, sentence2, score), or of
SICK (Marelli et al. 2014: sentence_A, sentence_B, relatedness_score). A folder
is laid out as SentEval's of STS12 to STS16 are: STS.input.NAME.txt with two
sentences a line, STS.gs.NAME.txt with their scores, an empty line for a pair
without one. Of a folder each part counts, all of them as one (what papers since
SimCSE report) and their mean (SentEval's, also weighted by their pairs). With
`--model` the vectors are those of an export.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import flag
from tasks import measures, retrieval

Encode = Callable[[Sequence[str]], np.ndarray]  # n texts -> [n, D] float32
# Score and sentences: columns of the published file, and by their names.
_PUBLISHED = (4, 5, 6)
_NAMED = (
    ('score', 'sentence1', 'sentence2'),
    ('relatedness_score', 'sentence_A', 'sentence_B'),
)
_INPUT, _SCORES = 'STS.input.', 'STS.gs.'
_EXPECTED = (
    'expected are columns parted by tabs: genre, file, year, number, score, '
    'sentence, sentence; or, where the first line names them, score, '
    'sentence1 and sentence2, or relatedness_score, sentence_A and sentence_B'
)


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.')
    model: str | None = flag(None, 'An export instead, DIR/1.')
    dims: int | None = flag(
        None, 'The first so many numbers of a vector alone.', at_least=1)
    data: str | None = flag(
        None, 'A file of STS-B or SICK with scores, or a folder of STS12 to '
        'STS16.')
    workdir: str | None = flag(None, 'Where metrics.json goes.')


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


def read(path: pathlib.Path) -> ScoredPairs:
    """Reads a file of STS-B or SICK, or a folder of parts.

    Raises:
        FileNotFoundError: there is none, or the folder lacks a file.
        ValueError: a line has no score or no two sentences, or there are
            fewer than three pairs.
    """
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f'--data={path}: there is no such file')
    lines = _lines(path)
    places, begin = _PUBLISHED, 0
    names = lines[0].split('\t') if lines else []
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
    for number, line in enumerate(lines[begin:], begin + 1):
        cells = line.split('\t')
        try:
            score, first, second = (cells[place] for place in places)
            found.append((float(score), first.strip(), second.strip()))
        except (IndexError, ValueError):
            raise ValueError(
                f'{path}, line {number}: no score and two sentences in '
                f'{line[:60]!r}; {_EXPECTED}'
            ) from None
    return _pairs(path, found)


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
            f'--data={folder} is a folder without {_INPUT}NAME.txt and '
            f'{_SCORES}NAME.txt; name a folder that has them, or a file with '
            'scores'
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
    if len(lines) != len(scores):
        raise ValueError(
            f'{path} has {len(lines)} lines, {gold.name} has {len(scores)}: '
            'a line there is the score of the same line here, or empty'
        )
    for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1):
        if not score.strip():
            continue
        try:
            found.append((float(score), *map(str.strip, line.split('\t')[:2])))
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


def _lines(path: pathlib.Path) -> list[str]:
    # Sentences may hold what `splitlines` would part.
    text = path.read_text(encoding='utf-8')
    lines = text.removesuffix('\n').split('\n') if text else []
    return [line.removesuffix('\r') for line in lines]


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
    """
    texts = [*pairs.first, *pairs.second]
    vectors = np.asarray(encode(texts), np.float64)
    if similarity == 'cosine':
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
    half = len(pairs.first)
    return np.einsum('nd,nd->n', vectors[:half], vectors[half:])


def correlations(
    path: str, similarity: str, encoders: Mapping[str, Encode]
) -> dict[str, Any]:
    """Spearman's x 100 on a file for each encoder by name; the file's name."""
    pairs = read(pathlib.Path(path))
    return {
        'data': pathlib.Path(path).name,
        'pairs': len(pairs.scores),
        **{k: correlation(pairs, v, similarity) for k, v in encoders.items()},
    }


def correlation(pairs: ScoredPairs, encode: Encode, similarity: str) -> float:
    """Spearman's x 100 over all pairs."""
    similarity_scores = similarities(pairs, encode, similarity)
    return 100 * measures.spearman(similarity_scores, pairs.scores)


def measure(pairs: ScoredPairs, found: np.ndarray) -> dict[str, Any]:
    """The correlations of `similarities` with scores, for JSON."""

    def ranked(begin: int, count: int) -> dict[str, Any]:
        some = slice(begin, begin + count)
        value = measures.ranked(found[some], pairs.scores[some])
        return {'pairs': count, **value}

    record = ranked(0, len(pairs.scores))
    if not pairs.parts:
        return record
    parts, begin = {}, 0
    for name, count in pairs.parts.items():
        parts[name] = ranked(begin, count)
        begin += count
    values = [part['spearman'] for part in parts.values()]
    counts = list(pairs.parts.values())
    return {
        **record,
        'mean': round(float(np.mean(values)), 2),
        'weighted_mean': round(float(np.average(values, weights=counts)), 2),
        'parts': parts,
    }


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model.
    """
    commands.require(
        vars(given),
        data='a file of STS-B or SICK, or a folder of STS12 to STS16',
        workdir='a folder for metrics.json',
    )
    retrieval.check_source(given.init, given.model)
    workdir = commands.result_folder(given.workdir)
    pairs = read(pathlib.Path(given.data))
    encode, similarity = retrieval.vectors_of(
        given.init, given.model, given.dims
    )
    embed = functools.partial(encode, role=None)
    scores = measure(pairs, similarities(pairs, embed, similarity))
    for name, part in scores.get('parts', {}).items():
        print(f'{name}: {measures.said(part, part["pairs"])}')
    if pairs.parts:
        print(
            f'mean of {len(pairs.parts)} parts {scores["mean"]:.2f}, weighted '
            f'by their pairs {scores["weighted_mean"]:.2f}'
        )
    print(f'all: {measures.said(scores, scores["pairs"])}', flush=True)
    record = {
        'task': 'sts',
        'data': given.data,
        'weights': given.model or given.init,
        'dims': given.dims,
        **scores,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
