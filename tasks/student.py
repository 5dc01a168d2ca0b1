"""Initial weights of students: layers of a workdir, or a lookup table.

The encoder `lookup` is initialised as in model2vec (Tulkens & van Dongen 2024):
the teacher's vectors of single tokens, reduced to principal components, and
weights by how rare a token is.

A student may have another vocabulary. A teacher has no vectors of such tokens,
but it has vectors of texts: the table is fitted to these as means of tokens
(`fit_table`). That serves also languages that the teacher does not read, where
the vectors are those of translations.

Glossary of shapes: W width of the teacher.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import errors
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.objectives.embed import CLS, LAST_TOKEN, MEAN, POOLINGS
from infoword_tf.text.layout import layout_of

from .teacher import Embedder

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.text.tokenizer import TextTokenizer

FIRST, EVERY = TAKES = ('first', 'every')
SIF, ZIPF = WEIGHTINGS = ('sif', 'zipf')
CHUNK = 4096  # texts that are tokenized at once
BEGINS = '\u2581'  # of SentencePiece: the token begins a word
ENDS = '</w>'  # of pairs of characters: the token ends a word
PENALTY, ROUNDS = 0.03, 10  # of `fit_table`


def principal(vectors: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Projects vectors [n, W] to the directions of the largest variance.

    Returns:
        [n, D] float32 without the mean; and the directions [D, W], of length 1,
        with the largest number positive; the identity if D is W.
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
    """Returns initial weights of tokens, [V] float32, 1 on average.

    Args:
        weighting: 'sif', a / (a + p) of Arora et al. 2017 ("A simple but
            tough-to-beat baseline", §3); or 'zipf', log(1 + rank), for
            vocabularies that are sorted by frequency.
        around: special tokens around every text, which get weight 0.
        counts: [V], how often each token occurs.
    """
    from infoword_tf.layers.pooling import rarity

    if weighting == ZIPF:
        weights = np.log1p(np.arange(1.0, len(counts) + 1))
    else:
        weights = np.exp(rarity(counts))
    weights[list(around)] = 0
    return (weights / weights.mean()).astype(np.float32)


def counted(tokenizer: 'TextTokenizer', texts: Sequence[str]) -> Iterator[Any]:
    """Counts tokens in texts; yields a CSR matrix [n, V] for CHUNK texts."""
    from scipy import sparse

    for begin in range(0, len(texts), CHUNK):
        tokens = tokenizer.tokenize(texts[begin : begin + CHUNK])
        ids, splits = tokens.flat_values.numpy(), tokens.row_splits.numpy()
        counts = sparse.csr_array(
            (np.ones(len(ids), np.float32), ids, splits),
            shape=(len(splits) - 1, len(tokenizer)),
        )
        counts.sum_duplicates()
        yield counts


def counts_of(tokenizer: 'TextTokenizer', texts: Sequence[str]) -> np.ndarray:
    """Counts each token in all texts, [V] int64."""
    counts = np.zeros(len(tokenizer), np.int64)
    for chunk in counted(tokenizer, texts):
        counts += chunk.sum(axis=0).astype(np.int64)
    return counts


def fit_table(
    tokenizer: 'TextTokenizer',
    texts: Sequence[str],
    vectors: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Fits embeddings of tokens, so that a mean of tokens is a text's vector.

    The table E minimises, over texts with vectors v,

        sum |mean of w E over the tokens of a text - v|^2 + PENALTY |E|^2,

    by ROUNDS of conjugate gradients. The mean of all v is subtracted first,
    since it distinguishes no tokens. A token that does not occur gets 0.

    Args:
        tokenizer: tokenizer of V tokens.
        texts, vectors: n texts, and [n, W].
        weights: w, [V]; None: 1.

    Returns:
        [V, W] float32.
    """
    chunks, begin = [], 0
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    rest = np.zeros((len(tokenizer), vectors.shape[1]), np.float32)
    for chunk in counted(tokenizer, texts):
        sizes = np.maximum(chunk.sum(axis=1), 1)
        chunk.data /= np.repeat(sizes, np.diff(chunk.indptr))
        if weights is not None:
            chunk.data *= weights[chunk.indices]
        end = begin + chunk.shape[0]
        rest += chunk.T @ (vectors[begin:end].astype(np.float32) - mean)
        chunks.append(chunk)
        begin = end
    table, direction = np.zeros_like(rest), rest.copy()
    length = np.square(rest).sum(axis=0)
    for _ in range(ROUNDS):
        change = PENALTY * direction
        for chunk in chunks:
            change += chunk.T @ (chunk @ direction)
        rate = length / np.maximum((direction * change).sum(axis=0), 1e-30)
        table += rate * direction
        rest -= rate * change
        before, length = length, np.square(rest).sum(axis=0)
        direction = rest + length / np.maximum(before, 1e-30) * direction
    return table


def lookup_of(
    teacher: Embedder,
    width: int,
    weighting: str,
    texts: Sequence[str],
    rows: Mapping[str, RowConfig],
    vocabulary: 'tuple[TextTokenizer, np.ndarray] | None' = None,
) -> 'Loaded':
    """Initializes a student with the encoder `lookup`.

    Args:
        teacher: an embedding model.
        width: D of the student.
        weighting: name in WEIGHTINGS.
        texts: training texts.
        rows: that train the student, by name; their projections are
            initialized as the way back to the teacher's vectors.
        vocabulary: a tokenizer, and vectors [n, W] of the texts to fit a table
            to; None: the teacher's tokens and their vectors.

    Raises:
        UsageError: the student would be wider than the teacher.
    """
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model
    from infoword_tf.workdir import Workdir

    if width > teacher.width:
        raise errors.UsageError(
            'student_too_wide',
            f'--width={width}: the vectors of --teacher={teacher.folder} have '
            f'{teacher.width} numbers; take as many, or fewer',
        )
    old = teacher.loaded.config
    tokenizer = vocabulary[0] if vocabulary else teacher.loaded.tokenizer
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
        tokenizer=tokenizer.config,
        layout=old.layout,
        similarity=old.similarity,
    )
    counts = counts_of(tokenizer, texts)
    model = Model(config, tokenizer.specials, auxiliaries=False)
    student = Loaded(Workdir(model, tokenizer, config, counts))
    around = [*student.before, *student.after]
    weights = weights_of(weighting, around, counts)
    if vocabulary:
        vectors = fit_table(tokenizer, texts, vocabulary[1], weights)
    else:
        vectors = teacher.token_vectors()
    table, directions = principal(vectors, width)
    model.encoder.embedding_table.assign(table)
    model.encoder.piece_weights.assign(weights)
    for objective in model.objectives.values():
        if objective.kernel is not None:
            objective.kernel.assign(directions)
    return student


def with_vocabulary(
    loaded: 'Loaded',
    tokenizer: 'TextTokenizer',
    texts: Sequence[str],
    read: Sequence[str],
) -> 'Loaded':
    """Gives the layers of a workdir another vocabulary, and no rows.

    Tokens that both vocabularies spell alike keep their embeddings. Others are
    fitted to texts (`fit_table`), whose vectors are means of old embeddings,
    and scaled to the average length of the kept embeddings.

    Args:
        loaded: the workdir.
        tokenizer: the new vocabulary.
        texts: n texts, for the new tokenizer.
        read: n texts of the same meaning, for the old tokenizer.

    Raises:
        UsageError: the workdir has no layers, or no table of embeddings.
    """
    from infoword_tf import files
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model
    from infoword_tf.workdir import Workdir

    config, old = loaded.config, loaded.model.variables
    path = getattr(loaded.encoder.embedding_table, 'path', '')
    if path not in old or not loaded.encoder.depth:
        raise errors.UsageError(
            'encoder_keeps_vocabulary',
            f'the encoder {config.encoder.name} takes no other vocabulary; '
            'leave out --tokenizer, --vocab, --vocab_size and --lower_case',
        )
    table = old[path].numpy()
    means = np.concatenate([
        chunk @ table / np.maximum(chunk.sum(axis=1), 1)[:, None]
        for chunk in counted(loaded.tokenizer, read)
    ])
    fresh = fit_table(tokenizer, texts, means)
    known = known_tokens(tokenizer, loaded.tokenizer)
    numbers, origins = np.array(list(known.items())).T
    centre = table[origins].mean(axis=0)

    def length(vectors: np.ndarray) -> float:
        norms = np.linalg.norm(vectors, axis=1)
        return float(norms[norms > 0].mean())

    fresh *= length(table[origins] - centre) / length(fresh)
    fresh += centre
    fresh[numbers] = table[origins]
    arguments = {**config.encoder.arguments, 'vocab_size': len(tokenizer)}
    config = config.replace(
        encoder=dataclasses.replace(config.encoder, arguments=arguments),
        tokenizer=tokenizer.config,
        rows={},
    )
    model = Model(
        config.replace(precision=loaded.model.config.precision),
        tokenizer.specials,
        auxiliaries=False,
    )
    values = {name: old[name].numpy() for name in model.variables}
    files.assign(model.variables, {**values, path: fresh}, 'other tokens')
    counts = counts_of(tokenizer, texts)
    return Loaded(Workdir(model, tokenizer, config, counts))


def known_tokens(new: 'TextTokenizer', old: 'TextTokenizer') -> dict[int, int]:
    """Maps tokens of a vocabulary to equally spelled tokens of another.

    Special tokens are mapped by function. A token that begins a word is mapped
    to such a token if possible, across notations (`s`, `##s`, `_s`).
    """

    def spelled(tokenizer: 'TextTokenizer', number: int) -> str:
        token = tokenizer.vocabulary[number]
        if tokenizer.kind in ('sentencepiece', 'marked'):
            return token.replace(BEGINS, ' ')
        if tokenizer.kind == 'bytes':
            return tokenizer.detokenize([number])
        text = token.removeprefix('##').removesuffix(ENDS)
        begins = text == token
        if tokenizer.kind == 'characters':
            begins = not begins
        return f' {text}' if begins else text

    first: dict[str, int] = {}
    for number in range(len(old)):
        first[spelled(old, number)] = number
    for number in old.control_ids:
        first.pop(spelled(old, number), None)
    first.pop('\ufffd', None)  # a part of a character
    known = dict(zip(new.special_ids, old.special_ids, strict=True))
    for number in range(len(new)):
        text = spelled(new, number)
        text = text.lower() if old.lower_case else text
        other = text[1:] if text.startswith(' ') else f' {text}'
        origin = first.get(text, first.get(other))
        if origin is not None and number not in new.control_ids:
            known.setdefault(number, origin)
    return known


def pooling_of(config: Config) -> str:
    """Returns a student's pooling: the teacher's, or mean if rows lack that."""
    if config.pooling == CLS and not layout_of(config.layout).first:
        return LAST_TOKEN
    return config.pooling if config.pooling in POOLINGS else MEAN


def start_of(init: str, layers: int | None, take: str) -> 'Loaded':
    """Loads a student's start: so many layers of a workdir, see TAKES.

    Without a number all layers, and the rows.

    Raises:
        UsageError: the workdir has fewer layers.
    """
    import infoword_tf

    loaded = infoword_tf.load(init)
    depth = loaded.encoder.depth
    if layers is None or layers == depth:
        return loaded
    if layers > depth:
        raise errors.UsageError(
            'student_too_deep',
            f'--layers={layers}: --init={init} has {depth}; take fewer',
        )
    if take == FIRST:
        return loaded.shortened(range(1, layers + 1))
    from infoword_tf.objectives.distill import every

    return loaded.shortened(every(depth, layers))
