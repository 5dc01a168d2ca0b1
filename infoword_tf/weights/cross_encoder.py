"""CrossEncoders of sentence-transformers: scores and classes of two texts.

A Transformer with a head, or Transformer, Pooling and Dense (modules.py).
"""

import pathlib
from typing import Any

import numpy as np

from infoword_tf import errors
from infoword_tf.config import DenseConfig
from infoword_tf.critics.cross import CROSS, CrossConfig, CrossCritic
from infoword_tf.inference.loaded import Loaded
from infoword_tf.layers.scores import NO_POOLER, POOLERS
from infoword_tf.weights import huggingface
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.heads import CLASSES as CLASSES_HEAD
from infoword_tf.weights.modules import (
    ACTIVATIONS,
    CLASSES,
    CLASSIFIES,
    MODULES,
    OF_PAIRS,
    READS_VECTORS,
    SCORED,
    Layers,
    Modules,
    PublicModules,
    defaults,
    read_layers,
    read_pooling,
)

# Activations of a layer before the score of a pair.
_POOLERS = [name for name in ACTIVATIONS if name in POOLERS]


def read(
    public: PublicModules, prompts: dict[str, str], prompt: str | None
) -> VectorSettings:
    """Reads a model of classes of texts, or of scores of pairs.

    Args:
        public: files of the folder.
        prompts: texts by name, which nothing here reads.
        prompt: name of the default.

    Raises:
        ValueError: a default prompt; layers that cannot be converted.
    """
    if prompt is not None and prompts[prompt]:
        raise errors.InputError(
            'prompt_before_classes',
            f'{public.where} puts the prompt {prompt!r} before texts, which '
            'classes cannot have here; set default_prompt_name to null and '
            'put it before texts yourself',
        )
    if public.kind is not OF_PAIRS:
        return VectorSettings(**public.texts, classes=True)
    layers = read_layers(public.folder, public.modules[1:], public.kind)
    pooling, _ = read_pooling(public.modules[1][1])
    cross, tensors = _pair_score(layers, public.folder)
    return VectorSettings(
        critic=CROSS,
        critics={CROSS: cross},
        pooling=pooling,
        tensors=tensors,
        **public.texts,
    )


def _pair_score(
    layers: Layers, folder: pathlib.Path
) -> tuple[CrossConfig, dict[str, Any]]:
    """Reads layers over the state of a pair as a score.

    Returns:
        The score, and its weights by path.

    Raises:
        ValueError: other layers than a number, and perhaps one before it.
    """
    shapes = [(x.width, x.activation) for x in layers.dense]
    *before, last = shapes or [(0, '')]
    poolers = [activation for _, activation in before] or [NO_POOLER]
    known = [[x] for x in (NO_POOLER, *_POOLERS)]
    if poolers not in known or last != (1, 'identity'):
        shown = ', '.join(f'{width} {name}' for width, name in shapes)
        raise errors.InputError(
            'scores_of_other_layers',
            f'{folder}/{MODULES} scores pairs by the layers {shown or "none"}; '
            'only a Dense of 1 number without activation can be converted, '
            f'perhaps behind one with {", ".join(_POOLERS)}',
        )
    tensors = {}
    names = ['cross/pooler_', 'cross/'][-len(shapes) :]
    for i, (layer, name) in enumerate(zip(layers.dense, names, strict=True)):
        none = np.zeros(layer.width, np.float32)
        tensors[f'{name}kernel'] = layers.tensors[f'dense_{i}/kernel']
        tensors[f'{name}bias'] = layers.tensors.get(f'dense_{i}/bias', none)
    return CrossConfig(poolers[0]), tensors


def write_classes(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a CrossEncoder, as sentence-transformers saves one.

    Scores of one class, or of several that a text may have together, are
    logistic, others logits.
    """
    config = loaded.config
    dropped = huggingface.write(folder, loaded)
    apart = len(config.labels) == 1 or any(
        row.settings.get('multilabel') for row in config.rows.values()
    )
    settings = _of_classes('Sigmoid' if apart else 'Identity')
    Modules(folder).write(loaded, settings, transformer_task=CLASSIFIES)
    if config.prompts:
        dropped.append('prompts')
    return dropped


def _of_classes(activation: str) -> dict[str, Any]:
    """Returns SETTINGS of a CrossEncoder with an activation of scores."""
    return {
        'model_type': CLASSES,
        'activation_fn': f'torch.nn.{activation}',
        'prompts': {},
        'default_prompt_name': None,
    }


def write_pairs(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a CrossEncoder with the scores of the critic `cross`.

    Where transformers has no such head, its layers are modules of their own.

    Raises:
        ValueError: a layer that no module is.
    """
    config, head = loaded.config, loaded.model.critics[CROSS]
    apart = huggingface.heads_of(loaded).get(CLASSES_HEAD) != CROSS
    if apart and head.pooler not in (NO_POOLER, *_POOLERS):
        raise errors.InputError(
            'pooler_not_public',
            f'this model has the layer {head.pooler} before the score of a '
            'pair, which sentence-transformers does not know; it knows '
            f'{", ".join(_POOLERS)}',
        )
    dropped = huggingface.write(folder, loaded)
    modules, about = Modules(folder), {'transformer_task': CLASSIFIES}
    if apart:
        dropped.remove(CrossCritic.described)
        about = {}
        modules.add_pooling(
            'cls' if loaded.layout.first else 'last', loaded.encoder.width
        )
        if head.pooler != NO_POOLER:
            modules.add_dense(
                DenseConfig(loaded.encoder.width, head.pooler),
                head.pooler_kernel.numpy(), head.pooler_bias.numpy(),
            )  # fmt: skip
        modules.add_dense(
            DenseConfig(1, 'identity'), head.kernel.numpy(), head.bias.numpy(),
            {**defaults(READS_VECTORS), 'module_output_name': SCORED},
        )  # fmt: skip
    modules.write(loaded, _of_classes('Identity'), **about)
    if any(config.prompts.values()):
        dropped.append('prompts, which have to stand in the texts there')
    if config.query_length or config.passage_length:
        dropped.append('how long a query and a passage may be')
    return dropped
