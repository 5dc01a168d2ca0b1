r"""Whitening: a last layer over the vectors of a workdir, fitted on text.

    python -m tasks.whiten --init=runs/books --corpus='text:books/*.txt' \
        --pooling=first_last --dims=128 --workdir=runs/books_white

Vectors x of sentences become (x - mean) U / sqrt(s + epsilon) in their first
`--dims` directions: U and s are eigenvectors and eigenvalues of the covariance,
the largest first (Su et al. 2021, "Whitening Sentence Representations", §2).
Nothing is trained. The new workdir is --init with one more dense layer, which
`encode`, exports and every evaluation apply.

epsilon is a share of the largest eigenvalue. The published code has none, and
divides by zero if there are fewer sentences than numbers in a vector.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
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
from infoword_tf.config import WEIGHTS, Config, DenseConfig, FlowConfig
from infoword_tf.data import corpora

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded


@dataclasses.dataclass(frozen=True)
class LayerChoices:
    """Choices of a command that fits a last layer to vectors of text."""

    init: str = flag(
        '', 'The workdir that makes the vectors.', model=True)
    corpus: str = flag(
        'pydocs', 'Text whose sentences are read, as of infoword_tf.train.')
    heldout: str | None = flag(
        None, 'GLOB of held-out text, which is not read.')
    sentences: int = flag(
        20_000, 'How many sentences are read, spread over the text.',
        at_least=2)
    pooling: str | None = flag(
        None, 'Pooling of the vectors; by default that of --init.',
        choices=('cls', 'last', 'mean', 'max', 'by_position', 'first_last',
                 'last_two'))
    workdir: str = flag('', 'The new workdir.')


@dataclasses.dataclass(frozen=True)
class WhitenChoices(LayerChoices):
    """Choices of the command."""

    dims: int | None = flag(
        None, 'Numbers of a new vector; by default as many as before.',
        at_least=1)
    epsilon: float = flag(
        1e-6, 'Share of the largest eigenvalue that is added to each.',
        at_least=0.0)


def fit(
    vectors: np.ndarray, dims: int, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Fits a dense layer whose outputs have covariance I.

    Args:
        vectors: [n, D].
        dims: W, the width of the layer.
        epsilon: epsilon of the module's docstring.

    Returns:
        A kernel [D, W] and a bias [W], float32.

    Raises:
        UsageError: vectors are not finite, all the same, or span fewer than W
            directions while epsilon is 0.
    """
    x, mean = check(vectors)
    values, axes = np.linalg.eigh(np.cov(x, rowvar=False))
    order = np.argsort(-values, kind='stable')[:dims]
    values, axes = np.maximum(values[order], 0.0), axes[:, order]
    raised = values + epsilon * values[0]
    if raised[-1] <= x.shape[1] * np.finfo(np.float64).eps * values[0]:
        raise errors.UsageError(
            'too_few_directions',
            f'--epsilon={epsilon:g}: the vectors of {len(x):,} sentences span '
            f'fewer than {dims} directions; raise it, take more --sentences, '
            'or fewer --dims',
        )
    kernel = axes / np.sqrt(raised)
    return kernel.astype(np.float32), (-mean @ kernel).astype(np.float32)


def check(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns vectors [n, D] and the mean [D], float64.

    Raises:
        UsageError: vectors are not finite, or all the same.
    """
    x = np.asarray(vectors, np.float64)
    if not np.isfinite(x).all():
        raise errors.UsageError(
            'init_not_finite', '--init makes vectors that are not finite'
        )
    mean = x.mean(axis=0)
    # Equal up to the rounding of float32.
    rounded = np.finfo(np.float32).eps ** 2 * np.square(x).mean()
    if np.square(x - mean).mean() <= rounded:
        raise errors.UsageError(
            'all_vectors_equal',
            'all sentences have the same vector, so there is nothing to fit: '
            '--init distinguishes no texts, or --corpus repeats one',
        )
    return x, mean


# ----------------------------------------------------------------- last layers


class Fitted(NamedTuple):
    """A last layer.

    Attributes:
        layer: its entry in config.json.
        weights: weights by name below the layer's.
        summary: description of the fit, for people.
        measured: further entries of metrics.json.
    """

    layer: DenseConfig | FlowConfig
    weights: Mapping[str, Any]
    summary: str
    measured: Mapping[str, float] = types.MappingProxyType({})


def spread(
    documents: Callable[[], Iterable[corpora.Document]], most: int
) -> list[str]:
    """Takes at most so many sentences, evenly spread over documents."""

    def sentences() -> Iterator[str]:
        return (s for d in documents() for s in d.sentences)

    every = max(1, sum(1 for _ in sentences()) // most)
    return list(itertools.islice(sentences(), 0, every * most, every))


def write(
    workdir: pathlib.Path, loaded: 'Loaded', fitted: Fitted, normalize: bool
) -> None:
    """Writes a workdir with one more layer.

    Args:
        workdir: new folder.
        loaded: model without the layer.
        fitted: layer.
        normalize: whether vectors are normalized after it.
    """
    config = loaded.config
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
    config.replace(dense=dense, normalize=normalize).write(workdir)


def extend(
    task: str,
    choices: LayerChoices,
    fit: Callable[['Loaded', list[str], corpora.Corpus], Fitted],
) -> dict[str, Any]:
    """Writes --init with one more layer over the vectors to --workdir.

    Args:
        task: the entry of metrics.json.
        choices: choices of the command.
        fit: (a model whose `encode` makes the inputs of the layer, sentences,
            the corpus) -> the layer.

    Returns:
        metrics.json.

    Raises:
        FileNotFoundError, UsageError, ValueError: a choice is wrong, no layer
            can follow the pooling, or there are too few sentences.
    """
    commands.require(
        vars(choices),
        init='a workdir',
        workdir='a folder for the new one',
    )
    workdir = pathlib.Path(choices.workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise errors.UsageError(
            'workdir_holds_files',
            f'--workdir={workdir} holds files; name a new folder',
        )
    normalize = Config.read(pathlib.Path(choices.init)).normalize
    corpus = corpora.open_corpus(choices.corpus, choices.heldout)

    import infoword_tf

    loaded = infoword_tf.load(choices.init)
    # Vectors are normalized last, after the layer.
    config = loaded.config.replace(run={}, normalize=False)
    if choices.pooling is not None:
        config = config.replace(pooling=choices.pooling)
    loaded.config = config
    if not config.dense and loaded.vector_width() != loaded.encoder.width:
        raise errors.UsageError(
            'pooling_adds_numbers',
            f'vectors of the pooling {config.pooling} have numbers of words '
            'beside those of states; name another --pooling',
        )
    texts = spread(corpus.train, choices.sentences)
    if len(texts) < 2:
        raise errors.UsageError(
            'corpus_too_short',
            f'--corpus={choices.corpus} has fewer than two sentences',
        )
    fitted = fit(loaded, texts, corpus)
    write(workdir, loaded, fitted, normalize)
    print(
        f'{workdir}/: vectors of {fitted.layer.width} numbers, '
        f'{fitted.summary}'
    )
    record = {
        'task': task,
        'weights': choices.init,
        'corpus': choices.corpus,
        'pooling': config.pooling,
        'sentences': len(texts),
        'width': fitted.layer.width,
        **fitted.measured,
    }
    commands.record(workdir, record)
    return record


@commands.takes(WhitenChoices)
def run(choices: WhitenChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a whitening layer to a workdir; see `extend`."""

    def whitened(
        loaded: 'Loaded', texts: list[str], corpus: corpora.Corpus
    ) -> Fitted:
        width = loaded.vector_width()
        dims = choices.dims or width
        if dims > width:
            raise errors.UsageError(
                'dims_over_init',
                f'--dims={dims}: vectors of --init are {width} wide',
            )
        kernel, bias = fit(loaded.encode(texts), dims, choices.epsilon)
        return Fitted(
            DenseConfig(dims, 'identity'),
            {'kernel': kernel, 'bias': bias},
            f'whitened on {len(texts):,} sentences',
        )

    return extend('whiten', choices, whitened)


if __name__ == '__main__':
    commands.start(run)
