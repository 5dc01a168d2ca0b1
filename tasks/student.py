"""How students are initialised: layers of a workdir, or a lookup table.

The encoder `lookup` is initialised as model2vec does (Tulkens & van Dongen
2024): the teacher's own vectors of single pieces, their principal components,
and weights by how rare a piece is.

Glossary of shapes: n vectors, V vocabulary, W width of the teacher, D of the
student.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from infoword_tf import commands
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.objectives.embed import CLS, LAST_TOKEN, MEAN, POOLINGS
from infoword_tf.text.layout import LAYOUTS
from tasks.teacher import Embedder

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

FIRST, EVERY = TAKES = ('first', 'every')
SIF, ZIPF = WEIGHTINGS = ('sif', 'zipf')
CHUNK = 4096  # texts that are tokenized at once


def principal(vectors: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """What most of the variance of [n, W] vectors is in.

    Returns:
        [n, D] float32, their mean taken away; and the directions [D, W], of
        length 1, each with its largest number positive; where D is W as they
        were.
    """
    x = np.asarray(vectors, np.float64)
    x = x - x.mean(axis=0)
    if width == x.shape[1]:
        return x.astype(np.float32), np.eye(width, dtype=np.float32)
    _, directions = np.linalg.eigh(x.T @ x)
    directions = directions[:, ::-1][:, :width].T
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(width), largest])[:, None]
    return (x @ directions.T).astype(np.float32), directions.astype(np.float32)


def weights_of(
    weighting: str, around: Sequence[int], counts: np.ndarray
) -> np.ndarray:
    """[V] float32: how much each piece begins to weigh, 1 on average.

    Args:
        weighting: 'sif', a / (a + p) of Arora et al. 2017 ("A simple but
            tough-to-beat baseline", §3); or 'zipf', log(1 + rank), for
            vocabularies that are sorted by frequency.
        around: pieces that stand around every text and weigh nothing.
        counts: [V], how often each occurs.
    """
    from infoword_tf.layers.pooling import rarity

    if weighting == ZIPF:
        weights = np.log1p(np.arange(1.0, len(counts) + 1))
    else:
        weights = np.exp(rarity(counts))
    weights[list(around)] = 0
    return (weights / weights.mean()).astype(np.float32)


def lookup_of(
    teacher: Embedder,
    width: int,
    weighting: str,
    texts: Sequence[str],
    rows: Mapping[str, RowConfig],
) -> 'Loaded':
    """The encoder `lookup` of width D as it begins, with a teacher's pieces.

    Args:
        teacher, width, weighting: in WEIGHTINGS.
        texts: that it will be trained on.
        rows: by name, those that train it, whose projections begin as the way
            back to the teacher's vectors.

    Raises:
        UsageError: it would be wider than its teacher.
    """
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model

    if width > teacher.width:
        raise commands.UsageError(
            f'--width={width}: the vectors of --teacher={teacher.folder} have '
            f'{teacher.width} numbers; take as many, or fewer'
        )
    loaded = teacher.loaded
    tokenizer, old = loaded.tokenizer, loaded.config
    arguments = {
        'vocab_size': len(tokenizer),
        'width': width,
        'max_length': old.max_length,
        'weighted': True,
    }
    config = Config(
        EncoderConfig('lookup', arguments),
        dict(rows),
        max_length=old.max_length,
        tokenizer=old.tokenizer,
        layout=old.layout,
        similarity=old.similarity,
    )
    table, directions = principal(teacher.pieces(), width)
    around = [*loaded.before, *loaded.after]
    counts = np.zeros(len(tokenizer), np.int64)
    for begin in range(0, len(texts), CHUNK):
        pieces = tokenizer.tokenize(texts[begin : begin + CHUNK])
        counts += np.bincount(pieces.flat_values, minlength=len(counts))
    weights = weights_of(weighting, around, counts)
    model = Model(config, tokenizer.specials, companions=False)
    model.encoder.embedding_table.assign(table)
    model.encoder.piece_weights.assign(weights)
    for objective in model.objectives.values():
        if objective.kernel is not None:
            objective.kernel.assign(directions)
    return Loaded(model, tokenizer, config, counts)


def pooling_of(config: Config) -> str:
    """How a student's states become a vector: as its teacher's, where the rows
    can, else their mean."""
    if config.pooling == CLS and not LAYOUTS[config.layout].first:
        return LAST_TOKEN
    return config.pooling if config.pooling in POOLINGS else MEAN


def start_of(init: str, layers: int | None, take: str) -> 'Loaded':
    """A student as it begins: so many layers of a workdir, see TAKES.

    None: all that there are, with their rows.

    Raises:
        UsageError: there are not so many.
    """
    import infoword_tf

    loaded = infoword_tf.load(init)
    depth = loaded.encoder.depth
    if layers is None or layers == depth:
        return loaded
    if layers > depth:
        raise commands.UsageError(
            f'--layers={layers}: --init={init} has {depth}; take fewer'
        )
    if take == FIRST:
        return loaded.shortened(range(1, layers + 1))
    from infoword_tf.objectives.distill import every

    return loaded.shortened(every(depth, layers))
