"""How students are initialised: layers of a workdir, or a lookup table.

The encoder `lookup` is initialised as model2vec does (Tulkens & van Dongen
2024): the teacher's own vectors of single pieces, their principal components,
and weights by how rare a piece is.

A student may have a vocabulary of its own. Its teacher has no vectors of such
pieces, but it has of the texts that they stand in: the table begins as the one
whose means of pieces are most like these (`fitted`). That serves languages too
that the teacher does not read, whose texts are translations of what it does.

Glossary of shapes: n vectors, V vocabulary, W width of the teacher, D of the
student.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import errors
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.objectives.embed import CLS, LAST_TOKEN, MEAN, POOLINGS
from infoword_tf.text.layout import layout_of
from tasks.teacher import Embedder

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.text.tokenizer import Tokenizer

FIRST, EVERY = TAKES = ('first', 'every')
SIF, ZIPF = WEIGHTINGS = ('sif', 'zipf')
CHUNK = 4096  # texts that are tokenized at once
BEGINS = '\u2581'  # of SentencePiece: the piece begins a word
ENDS = '</w>'  # of pairs of characters: the piece ends one
PENALTY, ROUNDS = 0.03, 10  # of `fitted`


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


def counted(tokenizer: 'Tokenizer', texts: Sequence[str]) -> Iterator[Any]:
    """Yields how often each piece is in each of CHUNK texts: CSR [n, V]."""
    from scipy import sparse

    for begin in range(0, len(texts), CHUNK):
        pieces = tokenizer.tokenize(texts[begin : begin + CHUNK])
        ids, splits = pieces.flat_values.numpy(), pieces.row_splits.numpy()
        found = sparse.csr_array(
            (np.ones(len(ids), np.float32), ids, splits),
            shape=(len(splits) - 1, len(tokenizer)),
        )
        found.sum_duplicates()
        yield found


def counts_of(tokenizer: 'Tokenizer', texts: Sequence[str]) -> np.ndarray:
    """[V] int64: how often each piece is in some texts."""
    counts = np.zeros(len(tokenizer), np.int64)
    for some in counted(tokenizer, texts):
        counts += some.sum(axis=0).astype(np.int64)
    return counts


def fitted(
    tokenizer: 'Tokenizer',
    texts: Sequence[str],
    vectors: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Of each piece a vector, so that texts are about the mean of their pieces.

    The table E that minimises, over texts with their vectors v,

        sum |mean of w E over the pieces of a text - v|^2 + PENALTY |E|^2,

    by ROUNDS of conjugate gradients. The mean of all v, which says nothing of a
    piece, is taken away. A piece that no text has is 0.

    Args:
        tokenizer: V pieces.
        texts, vectors: n of them, [n, W].
        weights: w, [V]; None: 1.

    Returns:
        [V, W] float32.
    """
    parts, begin = [], 0
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    rest = np.zeros((len(tokenizer), vectors.shape[1]), np.float32)
    for part in counted(tokenizer, texts):
        sizes = np.maximum(part.sum(axis=1), 1)
        part.data /= np.repeat(sizes, np.diff(part.indptr))
        if weights is not None:
            part.data *= weights[part.indices]
        end = begin + part.shape[0]
        rest += part.T @ (vectors[begin:end].astype(np.float32) - mean)
        parts.append(part)
        begin = end
    table, direction = np.zeros_like(rest), rest.copy()
    length = np.square(rest).sum(axis=0)
    for _ in range(ROUNDS):
        change = PENALTY * direction
        for part in parts:
            change += part.T @ (part @ direction)
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
    own: 'tuple[Tokenizer, np.ndarray] | None' = None,
) -> 'Loaded':
    """The encoder `lookup` of width D as it begins, with a teacher's pieces.

    Args:
        teacher, width, weighting: in WEIGHTINGS.
        texts: that it will be trained on.
        rows: by name, those that train it, whose projections begin as the way
            back to the teacher's vectors.
        own: a tokenizer, and the vectors [n, W] of the texts, to which a table
            of its pieces is `fitted`; None: the teacher's.

    Raises:
        UsageError: it would be wider than its teacher.
    """
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model

    if width > teacher.width:
        raise errors.UsageError(
            f'--width={width}: the vectors of --teacher={teacher.folder} have '
            f'{teacher.width} numbers; take as many, or fewer'
        )
    old = teacher.loaded.config
    tokenizer = own[0] if own else teacher.loaded.tokenizer
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
    model = Model(config, tokenizer.specials, companions=False)
    made = Loaded(model, tokenizer, config, counts)
    weights = weights_of(weighting, [*made.before, *made.after], counts)
    if own:
        pieces = fitted(tokenizer, texts, own[1], weights)
    else:
        pieces = teacher.pieces()
    table, directions = principal(pieces, width)
    model.encoder.embedding_table.assign(table)
    model.encoder.piece_weights.assign(weights)
    for objective in model.objectives.values():
        if objective.kernel is not None:
            objective.kernel.assign(directions)
    return made


def with_vocabulary(
    loaded: 'Loaded',
    tokenizer: 'Tokenizer',
    texts: Sequence[str],
    read: Sequence[str],
) -> 'Loaded':
    """The layers of a workdir with another vocabulary, and no rows.

    Pieces that the old vocabulary spells alike keep their embeddings. Others
    are `fitted` to texts, of which each is the mean of the old embeddings of
    what stands for it; as long, on average, as those that are kept.

    Args:
        loaded: the workdir.
        tokenizer: the new one.
        texts: n, as it will read them.
        read: n texts of the same meaning, which the old one spells well.

    Raises:
        UsageError: the workdir has no layers, or no table of embeddings.
    """
    from infoword_tf import files
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model

    config, old = loaded.config, loaded.model.variables
    path = getattr(loaded.encoder.embedding_table, 'path', None)
    if path not in old or not loaded.encoder.depth:
        raise errors.UsageError(
            f'the encoder {config.encoder.name} takes no other vocabulary; '
            'leave out --tokenizer, --vocab, --vocab_size and --lower_case'
        )
    table = old[path].numpy()
    means = np.concatenate([
        some @ table / np.maximum(some.sum(axis=1), 1)[:, None]
        for some in counted(loaded.tokenizer, read)
    ])
    fresh = fitted(tokenizer, texts, means)
    known = known_pieces(tokenizer, loaded.tokenizer)
    places, origins = np.array(list(known.items())).T
    centre = table[origins].mean(axis=0)

    def length(vectors: np.ndarray) -> float:
        norms = np.linalg.norm(vectors, axis=1)
        return float(norms[norms > 0].mean())

    fresh *= length(table[origins] - centre) / length(fresh)
    fresh += centre
    fresh[places] = table[origins]
    arguments = {**config.encoder.arguments, 'vocab_size': len(tokenizer)}
    config = config.replace(
        encoder=dataclasses.replace(config.encoder, arguments=arguments),
        tokenizer=tokenizer.config,
        rows={},
    )
    model = Model(
        config.replace(precision=loaded.model.config.precision),
        tokenizer.specials,
        companions=False,
    )
    values = {name: old[name].numpy() for name in model.variables}
    files.assign(model.variables, {**values, path: fresh}, 'other pieces')
    return Loaded(model, tokenizer, config, counts_of(tokenizer, texts))


def known_pieces(new: 'Tokenizer', old: 'Tokenizer') -> dict[int, int]:
    """By piece of a vocabulary that of another which is spelled alike.

    Special pieces by what they are for. One that begins a word is compared
    with such pieces first (`##s`, `s` and `_s` are how they differ).
    """

    def spelled(tokenizer: 'Tokenizer', number: int) -> str:
        piece = tokenizer.vocabulary[number]
        if tokenizer.kind == 'sentencepiece':
            return piece.replace(BEGINS, ' ')
        if tokenizer.kind == 'bytes':
            return tokenizer.text([number])
        text = piece.removeprefix('##').removesuffix(ENDS)
        begins = text == piece
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
        found = first.get(text, first.get(other))
        if found is not None and number not in new.control_ids:
            known.setdefault(number, found)
    return known


def pooling_of(config: Config) -> str:
    """How a student's states become a vector: as its teacher's, where the rows
    can, else their mean."""
    if config.pooling == CLS and not layout_of(config.layout).first:
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
        raise errors.UsageError(
            f'--layers={layers}: --init={init} has {depth}; take fewer'
        )
    if take == FIRST:
        return loaded.shortened(range(1, layers + 1))
    from infoword_tf.objectives.distill import every

    return loaded.shortened(every(depth, layers))
