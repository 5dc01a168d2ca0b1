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
`--model` the vectors are those of an export. Beside it stand alignment and
uniformity of the vectors (Wang & Isola 2020).
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation.sts import (
    Encode,
    ScoredPairs,
    alignment,
    correlation,
    read,
    similarities,
    uniformity,
)
from tasks import measures, retrieval


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    model: str | None = flag(None, 'An export instead, DIR/1.')
    dims: int | None = flag(
        None, 'The first so many numbers of a vector alone.', at_least=1)
    data: str | None = flag(
        None, 'A file of STS-B or SICK with scores, or a folder of STS12 to '
        'STS16.')
    workdir: str | None = flag(None, 'Where metrics.json goes.')


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
    vectors = embed(pairs.texts)
    scores = measure(pairs, similarities(pairs, lambda _: vectors, similarity))
    spread = {
        'alignment': alignment(pairs, vectors),
        'uniformity': uniformity(pairs.texts, vectors),
    }
    spread = {k: x if x is None else round(x, 3) for k, x in spread.items()}
    for name, part in scores.get('parts', {}).items():
        print(f'{name}: {measures.said(part, part["pairs"])}')
    if pairs.parts:
        print(
            f'mean of {len(pairs.parts)} parts {scores["mean"]:.2f}, weighted '
            f'by their pairs {scores["weighted_mean"]:.2f}'
        )
    print(f'all: {measures.said(scores, scores["pairs"])}', flush=True)
    print(
        ', '.join(
            f'{name} {"-" if value is None else f"{value:.3f}"}'
            for name, value in spread.items()
        )
    )
    record = {
        'task': 'sts',
        'data': given.data,
        'weights': given.model or given.init,
        'dims': given.dims,
        **scores,
        **spread,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
