r"""Whitens the vectors of a workdir: a last layer, fitted on text.

    python -m tasks.whiten --init=runs/books --corpus='text:books/*.txt' \
        --pooling=first_last --dims=128 --workdir=runs/books_white

Vectors x of sentences become (x - mean) U / sqrt(s + epsilon) in their first
`--dims` directions: U and s are eigenvectors and eigenvalues of the covariance,
the largest first (Su et al. 2021, "Whitening Sentence Representations", §2).
Nothing is trained. The new workdir is that of --init with one more dense layer,
so that `encode`, exports and every evaluation have it.

epsilon is a share of the largest eigenvalue: the published code has none, and
divides by zero where sentences are fewer than numbers of a vector.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.

Glossary of shapes: n texts, D width, W dims.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.config import FILE, WEIGHTS, Config, DenseConfig
from infoword_tf.data import corpora

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'The workdir whose vectors are whitened.')
    corpus: str | None = flag(
        'pydocs', 'Text whose sentences decide; as of infoword_tf.train.')
    heldout: str | None = flag(
        None, 'GLOB of held-out text, which does not count here.')
    sentences: int = flag(
        20_000, 'How many of them are read, spread over the text.', at_least=2)
    pooling: str | None = flag(
        None, 'Pooling of the vectors; by default that of --init.',
        choices=('cls', 'last', 'mean', 'max', 'by_position', 'first_last',
                 'last_two'))
    dims: int | None = flag(
        None, 'Numbers of a vector that stay; all by default.', at_least=1)
    epsilon: float = flag(
        1e-6, 'Share of the largest eigenvalue that is added to each.',
        at_least=0.0)
    workdir: str | None = flag(None, 'The workdir that is made.')


def fit(
    vectors: np.ndarray, dims: int, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel and the bias of x W + b, of which the covariance is I.

    Args:
        vectors: [n, D].
        dims: W.
        epsilon: as in the module.

    Returns:
        [D, W] and [W], float32.

    Raises:
        UsageError: vectors are not finite or all the same; or they span fewer
            than W directions, and nothing is added to those.
    """
    x = np.asarray(vectors, np.float64)
    if not np.isfinite(x).all():
        raise commands.UsageError('--init makes vectors that are not finite')
    mean = x.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(x, rowvar=False))
    order = np.argsort(-values, kind='stable')[:dims]
    values, axes = np.maximum(values[order], 0.0), axes[:, order]
    # The same but for what float32 rounds.
    rounded = np.finfo(np.float32).eps ** 2 * np.square(x).mean()
    if values[0] <= rounded:
        raise commands.UsageError(
            'all sentences have the same vector, so there is nothing to whiten:'
            ' --init distinguishes no texts, or --corpus repeats one'
        )
    raised = values + epsilon * values[0]
    if raised[-1] <= x.shape[1] * np.finfo(np.float64).eps * values[0]:
        raise commands.UsageError(
            f'--epsilon={epsilon:g}: the vectors of {len(x):,} sentences span '
            f'fewer than {dims} directions; raise it, take more --sentences, '
            'or fewer --dims'
        )
    kernel = axes / np.sqrt(raised)
    return kernel.astype(np.float32), (-mean @ kernel).astype(np.float32)


def spread(corpus: corpora.Corpus, most: int) -> list[str]:
    """Sentences of the text that is trained on, evenly taken."""

    def sentences() -> Iterator[str]:
        return (s for d in corpus.train() for s in d.sentences)

    every = max(1, sum(1 for _ in sentences()) // most)
    return list(itertools.islice(sentences(), 0, every * most, every))


def whitened(
    loaded: 'Loaded', texts: list[str], given: Choices
) -> tuple[Config, dict[str, np.ndarray]]:
    """The config and the weights of the new workdir.

    Raises:
        UsageError: there are more --dims than numbers, too few texts, or
            what `fit` says.
    """
    config = loaded.config
    if given.pooling is not None:
        config = config.replace(pooling=given.pooling)
    loaded.config = config.replace(normalize=False)  # that comes last
    width = loaded.vector_width()
    dims = given.dims or width
    if dims > width:
        raise commands.UsageError(
            f'--dims={dims}: vectors of --init are {width} wide'
        )
    if len(texts) < 2:
        raise commands.UsageError(
            f'--corpus={given.corpus} has fewer than two sentences'
        )
    kernel, bias = fit(loaded.encode(texts), dims, given.epsilon)
    number = len(config.dense)
    tensors = {
        path: np.asarray(variable)
        for path, variable in loaded.model.exported.items()
    }
    tensors[f'dense_{number}/kernel'] = kernel
    tensors[f'dense_{number}/bias'] = bias
    if loaded.unigram is not None:
        tensors['unigram'] = loaded.unigram
    layer = DenseConfig(dims, 'identity')
    return config.replace(dense=(*config.dense, layer), run={}), tensors


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Returns:
        What metrics.json holds.

    Raises:
        FileNotFoundError, UsageError, ValueError: what was chosen cannot be.
    """
    commands.require(
        vars(given),
        init='a workdir',
        workdir='a folder for the new one',
    )
    workdir = pathlib.Path(given.workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise commands.UsageError(
            f'--workdir={workdir} holds files; name a new folder'
        )
    Config.read(pathlib.Path(given.init))
    corpus = corpora.open_corpus(given.corpus, given.heldout)

    import infoword_tf

    loaded = infoword_tf.load(given.init)
    texts = spread(corpus, given.sentences)
    config, tensors = whitened(loaded, texts, given)
    workdir.mkdir(parents=True, exist_ok=True)
    with files.written(workdir / loaded.tokenizer.file) as partial:
        loaded.tokenizer.write(partial)
    files.write_tensors(workdir / WEIGHTS, tensors)
    files.write_json(workdir / FILE, config.to_json())
    print(
        f'{workdir}/: vectors of {config.dense[-1].width} numbers, whitened on '
        f'{len(texts):,} sentences'
    )
    record = {
        'task': 'whiten',
        'weights': given.init,
        'corpus': given.corpus,
        'pooling': config.pooling,
        'sentences': len(texts),
        'width': config.dense[-1].width,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
