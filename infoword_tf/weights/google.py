"""Checkpoints of TensorFlow: Google's of TensorFlow 1, and the Model Garden's.

    bert_config.json or xlnet_config.json   NAME.index, NAME.data-*   vocab.txt
    or spiece.model
"""

import pathlib
from typing import Any

from infoword_tf import errors, files
from infoword_tf.config import EncoderConfig
from infoword_tf.weights import architectures, tokenizer_reader
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.heads import PublicConfig, read_heads
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.kinds.google import GARDEN, GOOGLE
from infoword_tf.weights.tensors import open_checkpoint

_GARDEN_MARK = 'layer_with_weights-'


def read(folder: pathlib.Path) -> EncoderSource:
    """Reads all of a folder but the weights.

    Raises:
        FileNotFoundError: no checkpoint, configuration or vocabulary.
        ValueError: several checkpoints, or a damaged one.
    """
    tensors, prefix = open_checkpoint(folder)
    path = next((folder / n for n in GOOGLE if (folder / n).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f'{folder} has none of {", ".join(GOOGLE)}, which say how large '
            'the encoder is'
        )
    config = files.read_json(path)
    naming = GOOGLE[path.name]
    if any(_GARDEN_MARK in name for name in tensors):
        naming = GARDEN
    kind = 'xlnet' if path.name.startswith('xlnet') else 'bert'
    if kind == 'xlnet':
        encoder = _xlnet(config, path)
    else:
        # Google's GELU is the tanh form, whatever its name in this file.
        if config.get('hidden_act', 'gelu') == 'gelu':
            config = {**config, 'hidden_act': 'gelu_new'}
        encoder = architectures.encoder_of(
            {**config, 'model_type': 'bert'}, str(path)
        )
    about = PublicConfig({'model_type': kind}, encoder, str(path))
    return EncoderSource(
        where=str(prefix),
        naming=naming,
        tensors=tensors,
        encoder=encoder,
        tokenizer=tokenizer_reader.read(
            folder, encoder.arguments['vocab_size']
        ),
        layout=ARCHITECTURES[kind].layout,
        heads=read_heads(about),
    )


def _xlnet(config: dict[str, Any], path: pathlib.Path) -> EncoderConfig:
    """Reads an xlnet_config.json, which has other keys than transformers."""
    activations = {'relu': 'relu', 'gelu': 'gelu_new'}
    activation = config.get('ff_activation', 'gelu')
    if activation not in activations:
        raise errors.InputError(
            'unknown_google_activation',
            f'{path} has the activation {activation!r}',
        )
    return architectures.encoder_of(
        {
            'model_type': 'xlnet',
            'vocab_size': config.get('n_token'),
            'n_layer': config.get('n_layer'),
            'd_model': config.get('d_model'),
            'n_head': config.get('n_head'),
            'd_inner': config.get('d_inner'),
            'ff_activation': activations[activation],
        },
        str(path),
    )
