r"""Semantic textual similarity: do near vectors mean what people call similar?

    python -m tasks.sts --init=runs/minilm --data=STS-B/sts-test.csv \
        --workdir=runs/minilm/sts

Spearman's rank correlation (x 100) between people's scores and the similarity
of vectors, over all pairs of a file: of STS-B (Cer et al. 2017), as published
(tab-separated: genre, file, year, number, score, sentence, sentence) or as GLUE
has it (a line of names first, among them sentence1, sentence2, score). With
`--model` the vectors are those of an export.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from infoword_tf import commands

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

INIT = flags.DEFINE_string(
    'init', None, 'The workdir of a finished run, or a converted one.',
    flag_values=FLAGS)
MODEL = flags.DEFINE_string(
    'model', None, 'An export instead, DIR/1.', flag_values=FLAGS)
DATA = flags.DEFINE_string(
    'data', None, 'A file of STS-B with scores.', flag_values=FLAGS)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where metrics.json goes.', flag_values=FLAGS)

_SCORE, _FIRST, _SECOND = 4, 5, 6  # columns of the published file


class Pairs(NamedTuple):
    """Pairs of sentences that people have scored.

    Attributes:
        first, second: n sentences each.
        scores: [n] float64, 0 (nothing in common) to 5 (the same).
    """

    first: list[str]
    second: list[str]
    scores: np.ndarray


def read(path: pathlib.Path) -> Pairs:
    """Reads a file of STS-B.

    Raises:
        FileNotFoundError: there is none.
        ValueError: a line has no score or no two sentences; there are fewer
            than three lines.
    """
    if not path.is_file():
        raise FileNotFoundError(f'--data={path}: there is no such file')
    lines = path.read_text(encoding='utf-8').splitlines()
    places, begin = (_SCORE, _FIRST, _SECOND), 0
    names = lines[0].split('\t') if lines else []
    if 'sentence1' in names:
        try:
            places = tuple(
                names.index(n) for n in ('score', 'sentence1', 'sentence2')
            )
        except ValueError:
            raise ValueError(
                f'{path}: its first line names no score and sentence2 beside '
                'sentence1; GLUE keeps the scores of its test file back'
            ) from None
        begin = 1
    first, second, scores = [], [], []
    for number, line in enumerate(lines[begin:], begin + 1):
        cells = line.split('\t')
        try:
            scores.append(float(cells[places[0]]))
            first.append(cells[places[1]].strip())
            second.append(cells[places[2]].strip())
        except (IndexError, ValueError):
            raise ValueError(
                f'{path}, line {number}: no score and two sentences in '
                f'{line[:60]!r}'
            ) from None
    if len(scores) < 3:
        raise ValueError(f'{path} has {len(scores)} pairs: too few to rank')
    return Pairs(first, second, np.array(scores))


def correlation(
    pairs: Pairs,
    encode: Callable[[Sequence[str]], np.ndarray],
    similarity: str,
) -> float:
    """Spearman's rank correlation x 100.

    Args:
        pairs: with their scores.
        encode: n texts -> [n, D] float32.
        similarity: 'cosine' or 'dot'.
    """
    from scipy import stats

    texts = [*pairs.first, *pairs.second]
    vectors = np.asarray(encode(texts), np.float64)
    if similarity == 'cosine':
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
    half = len(pairs.first)
    found = np.einsum('nd,nd->n', vectors[:half], vectors[half:])
    return 100 * float(stats.spearmanr(found, pairs.scores).statistic)


def run() -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model.
    """
    values = FLAGS.flag_values_dict()
    commands.require(
        values, data='a file of STS-B', workdir='a folder for metrics.json'
    )
    if bool(INIT.value) == bool(MODEL.value):
        raise commands.UsageError('give --init or --model')
    workdir = commands.result_folder(WORKDIR.value)
    pairs = read(pathlib.Path(DATA.value))
    if MODEL.value:
        from tasks import retrieval

        embed, similarity = retrieval.exported(pathlib.Path(MODEL.value), 64)
    else:
        import infoword_tf

        loaded = infoword_tf.load(INIT.value)
        embed, similarity = loaded.encode, loaded.config.similarity
    record = {
        'task': 'sts',
        'data': DATA.value,
        'pairs': len(pairs.scores),
        'weights': MODEL.value or INIT.value,
        'spearman': round(correlation(pairs, embed, similarity), 2),
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
