r"""Semantic textual similarity: do vectors agree with human judgements?

    python -m tasks.sts --init=runs/minilm --data=STS-B/sts-test.csv \
        --workdir=runs/minilm/sts
    python -m tasks.sts --init=runs/minilm --data=STS12-en-test \
        --workdir=runs/minilm/sts12
    python -m tasks.sts --init=runs/minilm --data=SentEval/data/downstream \
        --workdir=runs/minilm/all

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

Of a folder of such folders and files each set counts, all pairs of a year
together, and their mean, as published since SimCSE (Gao et al. 2021, §6.1):
STS12 to STS16 (folders with the year in their name), sts-test.csv of STS-B and
SICK_test_annotated.txt, wherever they lie below. Which of the seven are missing
is printed.
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
    SETS,
    Encode,
    ScoredPairs,
    alignment,
    correlation,
    read,
    read_sets,
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
        None, 'A file of STS-B or SICK with scores, a folder of STS12 to '
        'STS16, or a folder of all of them.')
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


def measured(
    pairs: ScoredPairs, encode: Encode, similarity: str
) -> dict[str, Any]:
    """Measures an encoder on pairs, with alignment and uniformity."""
    vectors = encode(pairs.texts)
    spread = {
        'alignment': alignment(pairs, vectors),
        'uniformity': uniformity(pairs.texts, vectors),
    }
    return {
        **measure(pairs, similarities(pairs, lambda _: vectors, similarity)),
        **{k: x if x is None else round(x, 3) for k, x in spread.items()},
    }


def of_sets(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Sums several sets up for JSON, each a record of `measured`."""
    values = [record['spearman'] for record in sets.values()]
    return {
        'mean': round(float(np.mean(values)), 2),
        'missing': [name for name in SETS if name not in sets],
        'sets': sets,
    }


def show(record: Mapping[str, Any]) -> None:
    """Prints what `measured` gives."""
    for name, part in record.get('parts', {}).items():
        print(f'{name}: {measures.said(part, part["pairs"])}')
    if 'parts' in record:
        print(
            f'mean of {len(record["parts"])} parts {record["mean"]:.2f}, '
            f'weighted by their pairs {record["weighted_mean"]:.2f}'
        )
    print(f'all: {measures.said(record, record["pairs"])}')
    print(
        ', '.join(
            f'{name} {"-" if record[name] is None else f"{record[name]:.3f}"}'
            for name in ('alignment', 'uniformity')
        ),
        flush=True,
    )


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model.
    """
    commands.require(
        vars(given),
        data='a file of STS-B or SICK, a folder of STS12 to STS16, or a folder '
        'of all of them',
        workdir='a folder for metrics.json',
    )
    retrieval.check_source(given.init, given.model)
    workdir = commands.result_folder(given.workdir)
    path = pathlib.Path(given.data)
    sets = read_sets(path)
    pairs = None if sets else read(path)
    encode, similarity = retrieval.vectors_of(
        given.init, given.model, given.dims
    )
    embed = functools.partial(encode, role=None)
    if pairs is not None:
        scores = measured(pairs, embed, similarity)
        show(scores)
    else:
        records = {}
        for name, of_set in sets.items():
            one = records[name] = measured(of_set, embed, similarity)
            print(f'{name}: {measures.said(one, one["pairs"])}', flush=True)
        scores = of_sets(records)
        lacking = ', '.join(scores['missing'])
        print(
            f'mean of {len(sets)} sets {scores["mean"]:.2f}'
            + (f'; of the published {len(SETS)} {lacking} are not there'
               if lacking else '')
        )  # fmt: skip
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
