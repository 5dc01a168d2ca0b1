"""Models as evaluations compare texts: encoders of workdirs and of exports."""

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import errors, lazy
from infoword_tf.config import ROLES, Config, read_exported
from infoword_tf.critics import CRITICS, Critic
from infoword_tf.critics.texts import Texts, Tokens
from infoword_tf.data import tables
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.stages import Encoder, Rate
from infoword_tf.evaluation.vectors import VECTORS
from infoword_tf.text import strings

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded


def vectors_of(
    init: str | None,
    model: str | None,
    dims: int | None = None,
    pooling: str | None = None,
    layer: int | None = None,
) -> tuple[Encoder, str]:
    """Returns an encoder of texts, and the similarity of vectors.

    Those of another critic than the cosine are pooled states, not trained as
    vectors: a line says so.

    Args:
        init: a workdir; None with `model`.
        model: the folder of an export's version.
        dims: number of the first numbers of a vector that are used; None: all.
        pooling: pooling of `Loaded.encode`; only for a workdir.
        layer: the layer that is pooled, 0 the embeddings, without dense layers
            after pooling; None: as config.json says. Of a workdir.

    Raises:
        FileNotFoundError: no such model.
        ValueError: the model cannot be read, or lacks so many numbers or
            layers.
    """
    if model:
        tell_critic(model, read_exported(pathlib.Path(model))[0])
        return exported(pathlib.Path(model), 64, dims)
    if init is None:
        raise TypeError('neither a workdir nor an export is named')
    import infoword_tf

    loaded = infoword_tf.load(init)
    tell_critic(init, loaded.config)
    if layer is not None:
        depth = loaded.encoder.depth
        if layer > depth:
            raise errors.InputError(
                'no_such_layer',
                f'--layer={layer}: {init} has layers 0 (its embeddings) to '
                f'{depth}',
            )
        pooling = pooling or loaded.config.pooling
    if dims is not None:
        check_dims(dims, loaded.vector_width(pooling))
    encode = encoder_of(loaded, dims=dims, pooling=pooling, layers=layer)
    return encode, loaded.config.similarity


def tell_critic(path: str, config: Config) -> None:
    """Prints that pooled states of another critic were not trained."""
    if not CRITICS[config.critic].has_vector:
        print(
            f'{path} compares texts by the critic {config.critic}; its pooled '
            'states, which are measured here, were not trained as vectors of '
            'texts (tasks.retrieval measures the critic)',
            flush=True,
        )


def encoder_of(
    loaded: 'Loaded', critic: str = VECTORS, **settings: Any
) -> Encoder:
    """Makes a workdir an `Encoder`; args as of `Critic.encode`."""

    def encode(texts: list[str], role: str | None) -> Texts:
        return CRITICS[critic].encode(loaded, texts, role, **settings)

    return encode


def check_critic_dims(critic: str) -> None:
    """Raises ValueError if a critic compares no vectors."""
    if not CRITICS[critic].has_dims:
        raise errors.InputError(
            'dims_without_vectors',
            f'--dims is of vectors, and the critic {critic} compares none',
        )


def check_dims(dims: int, width: int) -> None:
    """Raises ValueError if vectors have fewer numbers than `dims`."""
    if dims > width:
        raise errors.InputError(
            'dims_over_width', f'--dims={dims}: vectors have {width} numbers'
        )


def first_numbers(vectors: Texts, dims: int, normalize: bool) -> Texts:
    """Truncates [n, D] to [n, dims], and restores length 1 if `normalize`.

    Vectors of tokens get back the length that they have, 1 or, of a query
    whose tokens are averaged, less.
    """
    if isinstance(vectors, Tokens):
        lengths = np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
        cut = first_numbers(vectors.vectors, dims, True)
        return vectors.replaced(cut * lengths)
    vectors = np.ascontiguousarray(vectors[:, :dims])
    if normalize:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
    return vectors


def signature_of(
    folder: pathlib.Path, model: Any, name: str
) -> Callable[..., Mapping[str, Any]]:
    """Returns a signature of an export, or raises ValueError."""
    if name not in model.signatures:
        raise errors.InputError(
            'export_without_embed',
            f'{folder} has no signature `{name}`; name an export of a model '
            'that has it',
        )
    return model.signatures[name]


def batched(
    size: int, *sides: Sequence[strings.Text]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Yields batches of texts, or of pairs of texts, of like length.

    Yields:
        Places, and a tensor of each side.
    """
    tf = lazy.tensorflow()
    lengths = [sum(map(len, both)) for both in zip(*sides, strict=True)]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), size):
        places = order[begin : begin + size]
        yield places, [tf.constant([x[i] for i in places]) for x in sides]


def exported(
    folder: pathlib.Path,
    batch_size: int,
    dims: int | None = None,
    model: Any = None,
    critic: str = VECTORS,
) -> tuple[Encoder, str]:
    """Returns an encoder that calls an export, and the similarity.

    Queries and passages go through the signatures that the critic has for
    their role. `model` is the export, if it is loaded already.

    Raises:
        FileNotFoundError: the folder holds no export.
        ValueError: its config cannot be read, it has no signature of the
            critic, or its vectors are shorter than `dims`.
    """
    config, _ = read_exported(folder)  # before TensorFlow is imported
    if model is None:
        model = lazy.tensorflow().saved_model.load(str(folder))
    kind: type[Critic] = CRITICS[critic]
    signatures: dict[str | None, Any] = {
        None: signature_of(folder, model, kind.signature)
    }
    for role in ROLES:
        name = kind.signature_of(config, role, folder)
        signatures[role] = signature_of(folder, model, name)
    if dims is not None:
        check_critic_dims(critic)
        outputs = signatures[None].structured_outputs
        check_dims(dims, outputs['embeddings'].shape[-1])

    def embed(texts: list[str], role: str | None = 'passage') -> Texts:
        # `valid`, since lone surrogates of a command line or of JSON are no
        # UTF-8. Sorted by length, since that saves padding.
        several, place = strings.distinct(map(tables.valid, texts))
        order, encoded = [], []
        for places, tensors in batched(batch_size, several):
            outputs = signatures[role](texts=tensors[0])
            encoded.append({k: v.numpy() for k, v in outputs.items()})
            order += places
        vectors = kind.joined(encoded, config, role)[np.argsort(order)[place]]
        if dims is None:
            return vectors
        return first_numbers(vectors, dims, config.normalize)

    return embed, kind.similarity or config.similarity


def exported_rate(folder: pathlib.Path, batch_size: int) -> Rate:
    """Returns a function that rates pairs; ValueError: no `score_pairs`."""
    model = lazy.tensorflow().saved_model.load(str(folder))
    signature = signature_of(folder, model, 'score_pairs')

    def rate(queries: list[str], passages: list[str]) -> np.ndarray:
        scores = np.empty(len(queries), np.float32)
        sides = ([*map(tables.valid, side)] for side in (queries, passages))
        for places, (texts, pairs) in batched(batch_size, *sides):
            scores[places] = signature(texts=texts, pairs=pairs)['score']
        return scores

    return rate


def exported_scores(
    folder: pathlib.Path, batch_size: int
) -> Callable[[str, list[str]], np.ndarray]:
    """Returns scores of texts for a query, by an export of any critic."""
    config, _ = read_exported(folder)
    if CRITICS[config.critic].of_pairs:
        rate = exported_rate(folder, batch_size)
        return lambda query, texts: rate([query] * len(texts), texts)
    encode, similarity = exported(folder, batch_size, critic=config.critic)

    def scores(query: str, texts: list[str]) -> np.ndarray:
        a, b = encode([query], 'query'), encode(texts, 'passage')
        a, b = (ranking.prepared(x, similarity) for x in (a, b))
        return ranking.comparer(b)(a)[0]

    return scores


def mean_of_embeddings(loaded: 'Loaded') -> Encoder:
    """Returns an encoder that sums the input embeddings of a text's tokens.

    The sum stands for the mean, since vectors are compared by cosine.
    """
    from scipy import sparse

    table = np.asarray(loaded.encoder.embedding_table, np.float32)

    def embed(texts: list[str], role: str | None = 'passage') -> np.ndarray:
        del role
        tokens = loaded.tokenizer.tokenize(texts)
        ids = np.asarray(tokens.flat_values)
        splits = np.asarray(tokens.row_splits)
        counts = sparse.csr_array(
            (np.ones(len(ids), np.float32), ids, splits),
            shape=(len(texts), len(table)),
        )
        return counts @ table

    return embed
