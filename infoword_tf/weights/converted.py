"""Public weights in the terms of this project, and the workdir made of them."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, hub
from infoword_tf.config import (
    Config,
    DenseConfig,
    EncoderConfig,
    Layout,
    RowConfig,
)
from infoword_tf.critics import CRITICS, HeadConfig
from infoword_tf.critics.cosine import COSINE
from infoword_tf.critics.cross import CROSS, scoring
from infoword_tf.encoders import ENCODERS
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.text.added import with_markers
from infoword_tf.text.layout import layout_of
from infoword_tf.views.masked import MASKED_SHARE
from infoword_tf.weights.heads import CLASSES, MASKED_WORDS, ReadHead
from infoword_tf.weights.mapping import (
    PublicWeights,
    find,
    match,
    read_weight,
)
from infoword_tf.weights.names import Lines, Naming, is_unnamed_bias
from infoword_tf.weights.tensors import Tensors
from infoword_tf.weights.tokenizer_reader import FolderTokenizer

_CHUNK = 2**24  # bytes that are assigned at a time


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """A public encoder before the weights are read.

    Attributes:
        where: the folder, for errors.
        naming: names of the weights.
        tensors: the weights.
        encoder: encoder that the configuration describes.
        tokenizer: tokenizer of the folder.
        layout: special tokens around texts, as in `Config`.
        heads: row that each head becomes, if it has weights, by name in HEADS.
        labels: names of classes.
        tied: name in HEADS of one without weights but the encoder's.
        padding: token of `Layout.padding`, for a head on the whole text.
    """

    where: str
    naming: Naming
    tensors: Tensors
    encoder: EncoderConfig
    tokenizer: FolderTokenizer
    layout: str | Layout
    heads: Mapping[str, ReadHead]
    labels: tuple[str, ...] = ()
    tied: str | None = None
    padding: str | None = None


@dataclasses.dataclass(frozen=True)
class VectorSettings:
    """Settings by which a model makes a vector of a text.

    Attributes:
        pooling, similarity, normalize, dims, prompts, prompt, query_length,
            passage_length: fields of `Config`.
        critic: name of the critic that compares texts; None: `cross` if a head
            gives two texts one number, else `cosine`.
        critics: critics with a head, by name.
        markers: beginnings of prompts; a marker, or else its first word, is a
            token where the vocabulary has it.
        dense: layers over the vector.
        tensors: weights of these layers and of critics, by path.
        heads: names of more weights beside the encoder's, see `Naming`.
        max_length: most tokens of a text, with specials; None: as many as the
            tokenizer says, else the encoder.
        lower_case: whether texts are lower-cased before the tokenizer.
        classes: whether the model gives classes of texts instead of vectors.
    """

    pooling: str = 'mean'
    similarity: str = 'cosine'
    normalize: bool = False
    dense: tuple[DenseConfig, ...] = ()
    dims: int | None = None
    tensors: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False
    classes: bool = False
    critic: str | None = None
    critics: Mapping[str, HeadConfig] = dataclasses.field(default_factory=dict)
    query_length: int | None = None
    passage_length: int | None = None
    markers: tuple[str, ...] = ()
    heads: Mapping[str, Lines] = dataclasses.field(default_factory=dict)


def marked(source: EncoderSource, markers: Sequence[str]) -> EncoderSource:
    """Lets the tokenizer match `VectorSettings.markers` in texts."""
    tokenizer = source.tokenizer.tokenizer
    known, tokens = set(tokenizer.vocabulary), []
    for marker in markers:
        spelled = [x for x in (marker, *marker.split()[:1]) if x in known]
        tokens += [x for x in spelled[:1] if x not in tokens]
    if not tokens:
        return source
    with_tokens = source.tokenizer._replace(
        tokenizer=with_markers(tokenizer, tokens)
    )
    return dataclasses.replace(source, tokenizer=with_tokens)


class _Heads(NamedTuple):
    """Heads of a public model, with the rows and critics made of each.

    Attributes:
        weights: the public weights.
        naming: names of the weights, with heads by row or critic.
        rows: row of each head that is no critic's, by name in HEADS.
        critics: critics with a head, by name.
        tied: name in HEADS of one without weights; None: it has weights.
    """

    weights: PublicWeights
    naming: Naming
    rows: Mapping[str, str]
    critics: Mapping[str, HeadConfig]
    tied: str | None


def make(
    source: EncoderSource, vectors: VectorSettings
) -> tuple[Config, Model, list[str]]:
    """Reads the weights and checks every name and shape.

    Returns:
        The config of a workdir, its model, and descriptions of what has no
        place in a workdir.

    Raises:
        ValueError: as `mapping.find`, `mapping.match` and
            `mapping.read_weight`; no head for classes, or of the vocabulary;
            texts that are lower-cased before a tokenizer that keeps case;
            [MASK] that see no token in a layer; scores of another state than
            the one that stands for a text here; classes of the last state
            beside vectors of the first.
    """
    heads = _heads_of(source, vectors)
    _check(source, vectors, heads)
    config = _config_of(source, vectors, heads)
    model = Model(
        config, source.tokenizer.tokenizer.specials, seed=None,
        auxiliaries=False,
    )  # fmt: skip
    dropped = _fill(model, source, vectors, heads)
    if vectors.dims and vectors.normalize:
        dropped.append(
            f'the length of vectors before they are cut to {vectors.dims} '
            'numbers: here they have length 1 after that'
        )
    return config, model, dropped


def _heads_of(source: EncoderSource, vectors: VectorSettings) -> _Heads:
    """Finds the heads, and the row or critic of each."""
    naming, tied = source.naming, source.tied
    heads, critics = {**naming.heads, **vectors.heads}, {**vectors.critics}
    takes = {
        name: head
        for name, entry in critics.items()
        if (head := CRITICS[name].takes_head(entry))
    }
    for name, head in takes.items():
        heads[name] = heads.pop(head, {})
    naming = naming._replace(heads=heads)
    weights = find(naming, source.tensors)
    for name, head in takes.items():
        if name not in weights.heads and tied != head:
            raise errors.InputError(
                'no_vocabulary_head',
                f'{source.where} is to weigh the tokens of the vocabulary, and '
                'its weights have no head that fills masks, which does that',
            )
        critics[name] = CRITICS[name].with_head(
            critics[name], name in weights.heads, source.heads[head].settings
        )
        tied = None if tied == head else tied
    rows = {
        head: source.heads[head].row
        for head in {*weights.heads, *filter(None, [tied])} - {*CRITICS}
    }
    return _Heads(weights, naming.at(rows), rows, critics=critics, tied=tied)


def _check(
    source: EncoderSource, vectors: VectorSettings, heads: _Heads
) -> None:
    """Raises ValueError for classes without a head, or texts of other case."""
    if vectors.classes and CLASSES not in heads.weights.heads:
        raise errors.InputError(
            'no_class_head',
            f'{source.where} is to answer classes of texts, and its weights '
            'have no head for them',
        )
    if vectors.lower_case and not source.tokenizer.tokenizer.lower_case:
        raise errors.InputError(
            'lower_cases_cased',
            f'{source.where} lower-cases texts (do_lower_case) before a '
            'tokenizer that keeps case; set do_lower_case in '
            'tokenizer_config.json instead',
        )


def _config_of(
    source: EncoderSource, vectors: VectorSettings, heads: _Heads
) -> Config:
    """Makes the config of a workdir.

    Raises:
        ValueError: as `make`, of critics and layouts.
    """
    rows = {
        heads.rows[head]: RowConfig(
            1.0, _settings(source, head, head == heads.tied)
        )
        for head in sorted(heads.rows, key=heads.rows.__getitem__)
    }
    scores = bool(scoring(rows))
    has_labels = any('classes' in row.settings for row in rows.values())
    arguments = dict(source.encoder.arguments)
    has_memory = 'memory' in ENCODERS[source.encoder.name].abilities
    positions = arguments['max_length']
    longest = vectors.max_length or source.tokenizer.max_length or positions
    first = layout_of(source.layout).first
    for name, entry in heads.critics.items():
        CRITICS[name].check_public(
            entry,
            source.where,
            arguments=arguments,
            vectors=vectors,
            first=first,
        )
    query_length, passage_length = (
        length and min(length, positions)
        for length in (vectors.query_length, vectors.passage_length)
    )
    where = pathlib.Path(source.where)
    fills = MASKED_WORDS in heads.rows
    return Config(
        encoder=EncoderConfig(source.encoder.name, arguments),
        rows=rows,
        max_length=min(longest, positions),
        tokenizer=source.tokenizer.tokenizer.config,
        masking='tokens' if fills else None,
        mask_share=MASKED_SHARE if fills else None,
        memory_length=0 if has_memory else None,
        layout=_layout(source, vectors, CLASSES not in heads.rows),
        pooling=vectors.pooling,
        similarity=vectors.similarity,
        dense=vectors.dense,
        dims=vectors.dims,
        normalize=vectors.normalize,
        prompts=dict(vectors.prompts),
        prompt=vectors.prompt,
        critics={vectors.critic or (CROSS if scores else COSINE): None}
        | {name: entry.written() for name, entry in heads.critics.items()},
        query_length=query_length,
        passage_length=passage_length,
        labels=source.labels if has_labels else (),
        run={'source': hub.commit_of(where) or where.name},
    )


def _fill(
    model: Model, source: EncoderSource, vectors: VectorSettings, heads: _Heads
) -> list[str]:
    """Sets the weights of a model; returns descriptions of surplus weights.

    Raises:
        ValueError: as `make`, of names and shapes.
    """
    variables, arguments = model.exported, source.encoder.arguments
    # A bias that public heads do not have stays 0.
    paths = [
        path
        for path in variables
        if path not in vectors.tensors
        and not is_unnamed_bias(heads.naming, path)
    ]
    lines, dropped = match(
        heads.naming,
        heads.weights,
        rows=[heads.rows.get(head, head) for head in heads.weights.heads],
        layers=arguments['layers'],
        paths=paths,
        where=source.where,
    )
    # One after the other: a model may fill half of the memory.
    for line in lines:
        variable = variables[line.ours]
        array = read_weight(
            line,
            heads.weights,
            shape=tuple(variable.shape),
            heads=arguments['heads'],
            where=source.where,
        )
        _assign(variable, array)
    for path, array in vectors.tensors.items():
        shape = tuple(variables[path].shape)
        if array.shape != shape:
            raise errors.InputError(
                'converted_weight_shape',
                f'{source.where}: {path} has the shape {array.shape}, its '
                f'configuration asks for {shape}',
            )
        variables[path].assign(array)
    return dropped


def _settings(source: EncoderSource, head: str, tied: bool) -> dict[str, Any]:
    """Returns all settings of the row that a head becomes.

    Settings that fix arguments of the encoder are as the encoder is.

    Args:
        source: the public encoder.
        head: name in HEADS.
        tied: whether the head has no weights.
    """
    row, more = source.heads[head]
    known, arguments = TABLE[row].settings, source.encoder.arguments
    settings = {name: setting.default for name, setting in known.items()}
    for name, setting in known.items():
        for value, fixed in setting.encoder.items():
            if all(arguments.get(k) == x for k, x in fixed.items()):
                settings[name] = value
    if 'classes' in settings:
        settings['classes'] = len(source.labels)
    if 'transform' in settings:
        settings['transform'] = not tied
    return settings if tied else {**settings, **more}


def _layout(
    source: EncoderSource, vectors: VectorSettings, classless: bool
) -> str | Layout:
    """Returns the layout, which says where the pooled state of a text is.

    `cls` is the first token, but of XLNet without sentence-transformers the
    token [CLS] after a text.
    """
    layout = layout_of(source.layout)
    of_modules = vectors.critic is not None
    if vectors.pooling == 'cls' and not layout.first and (
        of_modules or 'cls' not in layout.after
    ):  # fmt: skip
        if not classless:
            raise errors.InputError(
                'classes_of_the_last_state',
                f'{source.where} has classes of the last state of a text, and '
                'its vectors are to be of the first (pooling cls); take '
                'another pooling',
            )
        return dataclasses.replace(layout, first=True)
    if not classless and source.padding and not of_modules:
        return dataclasses.replace(layout, padding=source.padding)
    return source.layout


def _assign(variable: Any, array: np.ndarray) -> None:
    """Sets a variable in chunks, since TensorFlow copies arrays twice."""
    size = max(1, len(array) * _CHUNK // max(1, array.nbytes))
    for begin in range(0, len(array), size):
        chunk = slice(begin, begin + size)
        variable.value[chunk].assign(array[chunk])
