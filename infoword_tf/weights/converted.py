"""Public weights in the terms of this project, and the workdir made of them."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import errors
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
from infoword_tf.weights.mapping import find, match, read_weight
from infoword_tf.weights.names import Naming, is_unnamed_bias
from infoword_tf.weights.tensors import Tensors
from infoword_tf.weights.tokenizer_reader import FolderTokenizer

_CHUNK = 2**24  # bytes that are assigned at a time


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """A public encoder before the weights are read.

    Attributes:
        where: for errors.
        naming: names of the weights.
        tensors: the weights.
        encoder: from the configuration.
        tokenizer: of the folder.
        layout: of a text, as in `Config`.
        pooler: activation below the scores of the row `label`, or `score`.
        mean: whether that row reads the mean of all states.
        labels: names of classes.
        multilabel: whether a text may have several labels, or none.
        tied: a row whose head has no weights but the encoder's.
        tag_pooler, tag_tokens: settings of the row `tag`.
    """

    where: str
    naming: Naming
    tensors: Tensors
    encoder: EncoderConfig
    tokenizer: FolderTokenizer
    layout: str | Layout
    pooler: str = 'tanh'
    mean: bool = False
    labels: tuple[str, ...] = ()
    multilabel: bool = False
    tied: str | None = None
    tag_pooler: str = 'none'
    tag_tokens: str = 'all'


@dataclasses.dataclass(frozen=True)
class VectorSettings:
    """Settings by which a model makes a vector of a text.

    Attributes:
        pooling, similarity, normalize, dims, prompts, prompt: as in `Config`.
        dense: layers over the vector.
        tensors: weights of these layers, by path.
        max_length: of a text, with specials; None: the tokenizer's, else the
            encoder's.
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


def make(
    source: EncoderSource, vectors: VectorSettings
) -> tuple[Config, Model, list[str]]:
    """Reads the weights and checks every name and shape.

    Returns:
        The config of a workdir, its model, and descriptions of what has no
        place in a workdir.

    Raises:
        ValueError: as `mapping.find`, `mapping.match` and
            `mapping.read_weight`; no head for classes; texts that are
            lower-cased before a tokenizer that keeps case.
    """
    weights = find(source.naming, source.tensors)
    tokenizer = source.tokenizer.tokenizer
    if vectors.classes and 'label' not in weights.rows:
        raise errors.InputError(
            'no_class_head',
            f'{source.where} is to answer classes of texts, and its weights '
            'have no head for them',
        )
    if vectors.lower_case and not tokenizer.lower_case:
        raise errors.InputError(
            'lower_cases_cased',
            f'{source.where} lower-cases texts (do_lower_case) before a '
            'tokenizer that keeps case; set do_lower_case in '
            'tokenizer_config.json instead',
        )
    rows = {}
    for row in sorted({*weights.rows, *filter(None, [source.tied])}):
        settings: dict[str, Any] = {
            name: setting.default
            for name, setting in TABLE[row].settings.items()
        }
        if row == 'mlm':
            settings['transform'] = row != source.tied
        if row == 'gpt':
            settings['pre_norm'] = source.encoder.arguments.get(
                'pre_norm', False
            )
        if row in ('label', 'score'):
            settings |= {'pooler': source.pooler, 'mean': source.mean}
        if row == 'label':
            settings |= {
                'classes': len(source.labels),
                'multilabel': source.multilabel,
            }
        if row == 'tag':
            settings |= {
                'pooler': source.tag_pooler,
                'tokens': source.tag_tokens,
                'classes': len(source.labels),
            }
        rows[row] = RowConfig(1.0, settings)
    arguments = dict(source.encoder.arguments)
    positions = arguments['max_length']
    longest = vectors.max_length or source.tokenizer.max_length or positions
    config = Config(
        encoder=EncoderConfig(source.encoder.name, arguments),
        rows=rows,
        max_length=min(longest, positions),
        tokenizer=tokenizer.config,
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
        labels=source.labels if {'label', 'tag'} & {*rows} else (),
        run={'source': pathlib.Path(source.where).name},
    )
    model = Model(config, tokenizer.specials, seed=None, auxiliaries=False)
    variables = model.exported
    # A bias that public heads do not have stays 0.
    paths = [
        path
        for path in variables
        if not path.startswith('dense_')
        and not is_unnamed_bias(source.naming, path)
    ]
    lines, dropped = match(
        source.naming, weights, arguments['layers'], paths, source.where
    )
    # One after the other: a model may fill half of the memory.
    for line in lines:
        variable = variables[line.ours]
        shape = tuple(variable.shape)
        array = read_weight(
            line, weights, shape, arguments['heads'], source.where
        )
        _assign(variable, array)
    for path in sorted(x for x in variables if x.startswith('dense_')):
        array, shape = vectors.tensors.get(path), tuple(variables[path].shape)
        if array is None or array.shape != shape:
            raise errors.InputError(
                'converted_weight_shape',
                f'{source.where}: {path} has the shape '
                f'{None if array is None else array.shape}, its configuration '
                f'asks for {shape}',
            )
        variables[path].assign(array)
    if vectors.dims and vectors.normalize:
        dropped.append(
            f'the length of vectors before they are cut to {vectors.dims} '
            'numbers: here they have length 1 after that'
        )
    return config, model, dropped


def _assign(variable: Any, array: np.ndarray) -> None:
    """Sets a variable in chunks, since TensorFlow copies arrays twice."""
    size = max(1, len(array) * _CHUNK // max(1, array.nbytes))
    for begin in range(0, len(array), size):
        chunk = slice(begin, begin + size)
        variable.value[chunk].assign(array[chunk])
