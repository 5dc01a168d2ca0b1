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
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.config import (
    FILE,
    WEIGHTS,
    Config,
    DenseConfig,
    FlowConfig,
)
from infoword_tf.data import corpora

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded


@dataclasses.dataclass(frozen=True)
class LayerChoices:
    """What a command may choose that fits a last layer to vectors of text."""

    init: str | None = flag(
        None, 'The workdir whose vectors it is fitted to.', model=True)
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
    workdir: str | None = flag(None, 'The workdir that is made.')


@dataclasses.dataclass(frozen=True)
class Choices(LayerChoices):
    """All that the command may choose."""

    dims: int | None = flag(
        None, 'Numbers of a vector that stay; all by default.', at_least=1)
    epsilon: float = flag(
        1e-6, 'Share of the largest eigenvalue that is added to each.',
        at_least=0.0)


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
    x, mean = check(vectors)
    values, axes = np.linalg.eigh(np.cov(x, rowvar=False))
    order = np.argsort(-values, kind='stable')[:dims]
    values, axes = np.maximum(values[order], 0.0), axes[:, order]
    raised = values + epsilon * values[0]
    if raised[-1] <= x.shape[1] * np.finfo(np.float64).eps * values[0]:
        raise errors.UsageError(
            f'--epsilon={epsilon:g}: the vectors of {len(x):,} sentences span '
            f'fewer than {dims} directions; raise it, take more --sentences, '
            'or fewer --dims'
        )
    kernel = axes / np.sqrt(raised)
    return kernel.astype(np.float32), (-mean @ kernel).astype(np.float32)


def check(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n, D] and their mean [D], float64, of vectors that differ.

    Raises:
        UsageError: they are not finite, or all the same.
    """
    x = np.asarray(vectors, np.float64)
    if not np.isfinite(x).all():
        raise errors.UsageError('--init makes vectors that are not finite')
    mean = x.mean(axis=0)
    # The same but for what float32 rounds.
    rounded = np.finfo(np.float32).eps ** 2 * np.square(x).mean()
    if np.square(x - mean).mean() <= rounded:
        raise errors.UsageError(
            'all sentences have the same vector, so there is nothing to fit: '
            '--init distinguishes no texts, or --corpus repeats one'
        )
    return x, mean


# ----------------------------------------------------------------- last layers


class Fitted(NamedTuple):
    """A last layer.

    Attributes:
        layer: what it is.
        weights: of it, by what stands after its name.
        said: what was done to the vectors, for people.
        measured: by name, what metrics.json has of it besides.
    """

    layer: DenseConfig | FlowConfig
    weights: Mapping[str, Any]
    said: str
    measured: Mapping[str, float] = types.MappingProxyType({})


def spread(
    documents: Callable[[], Iterable[corpora.Document]], most: int
) -> list[str]:
    """Sentences of documents, evenly taken; `documents` begins a pass."""

    def sentences() -> Iterator[str]:
        return (s for d in documents() for s in d.sentences)

    every = max(1, sum(1 for _ in sentences()) // most)
    return list(itertools.islice(sentences(), 0, every * most, every))


def extend(
    task: str,
    given: LayerChoices,
    fit: Callable[['Loaded', list[str], corpora.Corpus], Fitted],
) -> dict[str, Any]:
    """Makes the workdir of --init with one more layer over its vectors.

    Args:
        task: for the record.
        given: what was chosen.
        fit: (a model whose `encode` gives vectors that the layer gets,
            sentences, the corpus) -> the layer.

    Returns:
        What metrics.json holds.

    Raises:
        FileNotFoundError, UsageError, ValueError: what was chosen cannot be;
            vectors of such a pooling can have no layer, or there are too few
            sentences.
    """
    commands.require(
        vars(given),
        init='a workdir',
        workdir='a folder for the new one',
    )
    workdir = pathlib.Path(given.workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise errors.UsageError(
            f'--workdir={workdir} holds files; name a new folder'
        )
    normalize = Config.read(pathlib.Path(given.init)).normalize
    corpus = corpora.open_corpus(given.corpus, given.heldout)

    import infoword_tf

    loaded = infoword_tf.load(given.init)
    # Vectors get their length last, behind the layer.
    config = loaded.config.replace(run={}, normalize=False)
    if given.pooling is not None:
        config = config.replace(pooling=given.pooling)
    loaded.config = config
    if not config.dense and loaded.vector_width() != loaded.encoder.width:
        raise errors.UsageError(
            f'vectors of the pooling {config.pooling} have numbers of words '
            'beside those of states; name another --pooling'
        )
    texts = spread(corpus.train, given.sentences)
    if len(texts) < 2:
        raise errors.UsageError(
            f'--corpus={given.corpus} has fewer than two sentences'
        )
    fitted = fit(loaded, texts, corpus)
    tensors = dict(loaded.model.exported)
    for name, weight in fitted.weights.items():
        tensors[f'dense_{len(config.dense)}/{name}'] = weight
    if loaded.unigram is not None:
        tensors['unigram'] = loaded.unigram
    workdir.mkdir(parents=True, exist_ok=True)
    with files.written(workdir / loaded.tokenizer.file) as partial:
        loaded.tokenizer.write(partial)
    files.write_tensors(workdir / WEIGHTS, tensors)
    dense = *config.dense, fitted.layer
    config = config.replace(dense=dense, normalize=normalize)
    files.write_json(workdir / FILE, config.to_json())
    print(
        f'{workdir}/: vectors of {fitted.layer.width} numbers, {fitted.said}'
    )
    record = {
        'task': task,
        'weights': given.init,
        'corpus': given.corpus,
        'pooling': config.pooling,
        'sentences': len(texts),
        'width': fitted.layer.width,
        **fitted.measured,
    }
    commands.record(workdir, record)
    return record


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command; as `extend`."""

    def whitened(
        loaded: 'Loaded', texts: list[str], corpus: corpora.Corpus
    ) -> Fitted:
        width = loaded.vector_width()
        dims = given.dims or width
        if dims > width:
            raise errors.UsageError(
                f'--dims={dims}: vectors of --init are {width} wide'
            )
        kernel, bias = fit(loaded.encode(texts), dims, given.epsilon)
        return Fitted(
            DenseConfig(dims, 'identity'),
            {'kernel': kernel, 'bias': bias},
            f'whitened on {len(texts):,} sentences',
        )

    return extend('whiten', given, whitened)


if __name__ == '__main__':
    commands.start(run)
