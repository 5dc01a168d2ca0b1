"""What a source of weights holds, in our words, and the workdir made of it."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf.config import (
    Config,
    DenseConfig,
    EncoderConfig,
    Layout,
    RowConfig,
)
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.views.masking import MASKED_SHARE
from infoword_tf.weights.mapping import check, look, take
from infoword_tf.weights.names import Naming
from infoword_tf.weights.pieces import Read
from infoword_tf.weights.tensors import Tensors
from infoword_tf.workdir import Workdir

_PART = 2**24  # bytes that are assigned at a time


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """An encoder elsewhere, before its weights are read.

    Attributes:
        where: for complaints.
        naming: what its weights are called.
        tensors: its weights.
        encoder: what its configuration says.
        pieces: its tokenizer.
        layout: of a text, as in `Config`.
        pooler: activation below the scores of the row `label`, or `score`.
        mean: whether that row reads the mean of all states.
        labels: names of classes.
        multilabel: whether a text may have several of them, or none.
        tied: a row whose head has no weights but the encoder's.
    """

    where: str
    naming: Naming
    tensors: Tensors
    encoder: EncoderConfig
    pieces: Read
    layout: str | Layout
    pooler: str = 'tanh'
    mean: bool = False
    labels: tuple[str, ...] = ()
    multilabel: bool = False
    tied: str | None = None


@dataclasses.dataclass(frozen=True)
class VectorSettings:
    """How a source makes a vector of a text; the defaults are our own.

    Attributes:
        pooling, similarity, normalize, dims, prompts, prompt: as in `Config`.
        dense: layers over the vector.
        tensors: their weights, by our paths.
        max_length: of a text, with specials; None: the tokenizer's, or the
            encoder's where that says none.
        lower_case: whether texts are lower-cased before the tokenizer.
        classes: whether it answers classes of texts instead of vectors.
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


def make(
    source: EncoderSource, vectors: VectorSettings
) -> tuple[Config, Model, list[str]]:
    """Reads the weights, every name and shape checked.

    Returns:
        The config of a workdir, its model, and what has no place in it, for
        people.

    Raises:
        ValueError: as `mapping.look`, `mapping.check` and `mapping.take`; no
            head of classes where they are wanted; texts that are lower-cased
            before a tokenizer that keeps case.
    """
    held = look(source.naming, source.tensors)
    if vectors.classes and 'label' not in held.rows:
        raise ValueError(
            f'{source.where} is to answer classes of texts, and its weights '
            'have no head for them'
        )
    if vectors.lower_case and not source.pieces.tokenizer.lower_case:
        raise ValueError(
            f'{source.where} lower-cases texts (do_lower_case) before a '
            'tokenizer that keeps case; set do_lower_case in '
            'tokenizer_config.json instead'
        )
    rows = {}
    for row in sorted({*held.rows, *filter(None, [source.tied])}):
        settings: dict[str, Any] = {
            name: setting.default
            for name, setting in TABLE[row].settings.items()
        }
        if row == 'mlm':
            settings['transform'] = True
        if row == 'gpt':
            settings['pre_norm'] = source.encoder.arguments['pre_norm']
        if row in ('label', 'score'):
            settings |= {'pooler': source.pooler, 'mean': source.mean}
        if row == 'label':
            settings |= {
                'classes': len(source.labels),
                'multilabel': source.multilabel,
            }
        rows[row] = RowConfig(1.0, settings)
    arguments = dict(source.encoder.arguments)
    places = arguments['max_length']
    longest = vectors.max_length or source.pieces.max_length or places
    config = Config(
        encoder=EncoderConfig(source.encoder.name, arguments),
        rows=rows,
        max_length=min(longest, places),
        tokenizer=source.pieces.tokenizer.config,
        masking='tokens' if 'mlm' in rows else None,
        mask_share=MASKED_SHARE if 'mlm' in rows else None,
        memory_length=0 if source.encoder.name == 'relative' else None,
        layout=source.layout,
        pooling=vectors.pooling,
        similarity=vectors.similarity,
        dense=vectors.dense,
        dims=vectors.dims,
        normalize=vectors.normalize,
        prompts=dict(vectors.prompts),
        prompt=vectors.prompt,
        labels=source.labels if 'label' in rows else (),
        run={'source': pathlib.Path(source.where).name},
    )
    model = Model(
        config, source.pieces.tokenizer.specials, seed=None, auxiliaries=False
    )
    variables = model.exported
    # A row that is tied begins with no bias.
    apart = ('dense_', f'objectives/{source.tied}/')
    own = [path for path in variables if not path.startswith(apart)]
    lines, dropped = check(
        source.naming, held, arguments['layers'], own, source.where
    )
    # One after the other: a model may fill half of a memory.
    for line in lines:
        variable = variables[line.ours]
        shape = tuple(variable.shape)
        _assign(variable, take(line, held, shape, source.where))
    for path in sorted(x for x in variables if x.startswith('dense_')):
        array, shape = vectors.tensors.get(path), tuple(variables[path].shape)
        if array is None or array.shape != shape:
            raise ValueError(
                f'{source.where}: {path} has the shape '
                f'{None if array is None else array.shape}, its configuration '
                f'asks for {shape}'
            )
        variables[path].assign(array)
    if vectors.dims and vectors.normalize:
        dropped.append(
            f'the length of vectors before they are cut to {vectors.dims} '
            'numbers: they have length 1 after that'
        )
    return config, model, dropped


def _assign(variable: Any, array: np.ndarray) -> None:
    """Sets a variable row by row: TensorFlow copies what it is given twice."""
    rows = max(1, len(array) * _PART // max(1, array.nbytes))
    for begin in range(0, len(array), rows):
        part = slice(begin, begin + rows)
        variable.value[part].assign(array[part])


def write(
    workdir: pathlib.Path, config: Config, model: Model, pieces: Read
) -> None:
    """Makes the workdir, config.json last; FileExistsError: files are there."""
    Workdir(model, pieces.tokenizer, config).write(workdir)
