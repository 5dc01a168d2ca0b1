"""Workdirs made of another one: other config, weights, layers or tables."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import Config
from infoword_tf.model import Model
from infoword_tf.text.layout import Layout
from infoword_tf.workdir import Workdir


def with_config(
    workdir: Workdir, config: Config, model: Model | None = None
) -> Workdir:
    """Returns the workdir with another config.

    The model is shared unless `model`, of the new config, is given.
    """
    missing = {k: v for k, v in workdir.missing.items() if k in config.rows}
    return Workdir(
        model or workdir.model,
        workdir.tokenizer,
        config,
        unigram=workdir.unigram,
        missing=missing,
        unread=None if model else workdir.unread,
    )


def with_layout(workdir: Workdir, layout: str | Layout) -> Workdir:
    """Returns the workdir with another layout of texts; see `layout_of`."""
    return with_config(workdir, workdir.config.replace(layout=layout))


def untrained(workdir: Workdir, seed: int | None = 0) -> Workdir:
    """Returns the same model with fresh weights: a baseline."""
    return _fresh(workdir, workdir.config, seed)


def shortened(workdir: Workdir, numbers: Sequence[int]) -> Workdir:
    """Returns an encoder of the layers `numbers`, from 1, and no rows.

    Layers that share all weights run as often as there are numbers.

    Raises:
        ValueError: the encoder has no such layers.
    """
    depth = workdir.encoder.depth
    if not set(numbers) <= set(range(1, depth + 1)):
        raise errors.InputError(
            'too_few_layers',
            f'layers {", ".join(map(str, numbers))} are asked for, but '
            f'this encoder has {depth}',
        )

    def origin(path: str) -> str:
        layer = re.match(r'encoder/layer_(\d+)/', path)
        if not layer:
            return path
        number = numbers[int(layer[1])] - 1
        if workdir.encoder.arguments.get('shared_layers'):
            number = 0
        return f'encoder/layer_{number}/{path[layer.end() :]}'

    weights = workdir.model.variables
    return _rebuilt(
        workdir,
        lambda path: weights[origin(path)].numpy(),
        rows={},
        layers=len(numbers),
    )


def folded(workdir: Workdir) -> Workdir:
    """Returns a workdir whose embeddings hold the weights of tokens.

    Vectors stay the same. A workdir without weights of tokens is returned as
    it is. Training needs the two apart.
    """
    if not workdir.config.encoder.arguments.get('weighted'):
        return workdir
    variables, encoder = workdir.model.variables, workdir.encoder
    table = encoder.embedding_table.path
    weights = encoder.piece_weights.numpy()[:, None]

    def value(path: str) -> np.ndarray:
        array = variables[path].numpy()
        return array * weights if path == table else array

    return _rebuilt(workdir, value, weighted=False)


def _rebuilt(
    workdir: Workdir,
    value: Callable[[str], np.ndarray],
    rows: dict[str, Any] | None = None,
    **arguments: Any,
) -> Workdir:
    """Builds an encoder with other arguments; `value` gives weights."""
    config = workdir.config
    encoder = dataclasses.replace(
        config.encoder, arguments={**config.encoder.arguments, **arguments}
    )
    rows = config.rows if rows is None else rows
    rebuilt = _fresh(workdir, config.replace(encoder=encoder, rows=rows))
    weights = rebuilt.model.variables
    files.assign(
        weights, {path: value(path) for path in weights}, 'another encoder'
    )
    return rebuilt


def _fresh(
    workdir: Workdir, config: Config, seed: int | None = None
) -> Workdir:
    """Builds a model of a config, with the rows that `workdir` has."""
    model = Model(
        config.replace(precision=workdir.model.config.precision),
        workdir.tokenizer.specials,
        seed,
        auxiliaries=False,
    )
    fresh = with_config(workdir, config, model)
    for row in fresh.missing:
        model.drop(row)
    return fresh
