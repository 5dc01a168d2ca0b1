r"""Semantic textual similarity: agreement of vectors with human judgements.

    python -m tasks.sts --init=runs/minilm --data=STS-B/sts-test.csv \
        --workdir=runs/minilm/sts
    python -m tasks.sts --init=runs/minilm --data=STS12-en-test \
        --workdir=runs/minilm/sts12
    python -m tasks.sts --init=runs/minilm --data=SentEval/data/downstream \
        --workdir=runs/minilm/all

Spearman's rank correlation (x 100) between people's scores and the similarity
of vectors, over all pairs of a file, with alignment and uniformity of the
vectors (Wang & Isola 2020). `--data` is one of

* a file of STS-B (Cer et al. 2017), as published (tab-separated: genre, file,
  year, number, score, sentence, sentence) or as in GLUE (a first line of names:
  sentence1, sentence2, score), or of SICK (Marelli et al. 2014: sentence_A,
  sentence_B, relatedness_score);
* a folder of STS12 to STS16 in SentEval's format: STS.input.NAME.txt with two
  sentences a line, STS.gs.NAME.txt with their scores, an empty line for a pair
  without one. Printed are each of its files, all pairs together (as in papers
  since SimCSE) and the mean of the files (as in SentEval), also weighted by
  pairs;
* a folder with these below it: each year of STS12 to STS16 (in the names of
  their folders), sts-test.csv and SICK_test_annotated.txt, and the mean of the
  sets (Gao et al. 2021, §6.1). Missing sets are named.

With `--model` the vectors are those of an export.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation import measures, models
from infoword_tf.evaluation.stages import Encoder
from infoword_tf.evaluation.sts import (
    SETS,
    ScoredPairs,
    alignment,
    read,
    read_sets,
    similarities,
    uniformity,
)

from . import retrieval


@dataclasses.dataclass(frozen=True)
class StsChoices(retrieval.VectorChoices):
    """Choices of the command."""

    data: str = flag(
        '', 'A file of STS-B or SICK with scores, a folder of STS12 to '
        'STS16, or a folder of all of them.')


def measure(pairs: ScoredPairs, similarity: np.ndarray) -> dict[str, Any]:
    """Correlates [n] similarities of pairs with people's scores, for JSON."""

    def ranked(begin: int, count: int) -> dict[str, Any]:
        span = slice(begin, begin + count)
        value = measures.ranked(similarity[span], pairs.scores[span])
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
    pairs: ScoredPairs, encode: Encoder, similarity: str
) -> dict[str, Any]:
    """Measures an encoder on pairs, with alignment and uniformity."""
    vectors = encode(pairs.texts, None)
    spread = {
        'alignment': alignment(pairs, vectors),
        'uniformity': uniformity(pairs.texts, vectors),
    }
    return {
        **measure(pairs, similarities(pairs, lambda _: vectors, similarity)),
        **{k: x if x is None else round(x, 3) for k, x in spread.items()},
    }


def of_sets(sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Averages over sets, for JSON; `sets`: results of `measured` by name."""
    values = [record['spearman'] for record in sets.values()]
    return {
        'mean': round(float(np.mean(values)), 2),
        'missing': [name for name in SETS if name not in sets],
        'sets': sets,
    }


def show(record: Mapping[str, Any]) -> None:
    """Prints a result of `measured`."""
    for name, part in record.get('parts', {}).items():
        print(f'{name}: {measures.described(part, part["pairs"])}')
    if 'parts' in record:
        print(
            f'mean of {len(record["parts"])} parts {record["mean"]:.2f}, '
            f'weighted by their pairs {record["weighted_mean"]:.2f}'
        )
    print(f'all: {measures.described(record, record["pairs"])}')
    print(
        ', '.join(
            f'{name} {"-" if record[name] is None else f"{record[name]:.3f}"}'
            for name in ('alignment', 'uniformity')
        ),
        flush=True,
    )


@commands.takes(StsChoices)
def run(choices: StsChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Measures the vectors of --init or --model; returns metrics.json."""
    workdir = retrieval.check_source(
        choices,
        data='a file of STS-B or SICK, a folder of STS12 to STS16, or a folder '
        'of all of them',
    )
    path = pathlib.Path(choices.data)
    sets = read_sets(path)
    pairs = None if sets else read(path)
    encode, similarity = models.vectors_of(
        choices.init, choices.model, choices.dims
    )
    if pairs is not None:
        scores = measured(pairs, encode, similarity)
        show(scores)
    else:
        records = {}
        for name, of_set in sets.items():
            one = records[name] = measured(of_set, encode, similarity)
            line = measures.described(one, one['pairs'])
            print(f'{name}: {line}', flush=True)
        scores = of_sets(records)
        lacking = ', '.join(scores['missing'])
        print(
            f'mean of {len(sets)} sets {scores["mean"]:.2f}'
            + (f'; of the published {len(SETS)} {lacking} are not there'
               if lacking else '')
        )  # fmt: skip
    record = {
        'task': 'sts',
        'data': choices.data,
        'weights': choices.model or choices.init,
        'dims': choices.dims,
        **scores,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
