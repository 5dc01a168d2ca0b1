"""SparseEncoders of sentence-transformers: weights of the vocabulary.

A Transformer with the head that fills masks, and SpladePooling (modules.py).
"""

import pathlib
from typing import Any

from infoword_tf import errors
from infoword_tf.critics.lexical import LEXICAL, LexicalConfig, LexicalCritic
from infoword_tf.inference.loaded import Loaded
from infoword_tf.layers.lexical import VOCABULARY
from infoword_tf.weights import huggingface, multivector
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.heads import MASKED_WORDS
from infoword_tf.weights.modules import (
    FILLS,
    SPARSE,
    SPLADE,
    Modules,
    PublicModules,
    read_config,
    read_layers,
)

# Of a SpladePooling, which takes a logarithm of all: names there and here.
_WEIGHTS = {'relu': 'log1p_relu', 'log1p_relu': 'log1p_log1p_relu'}


def read(public: PublicModules, fields: dict[str, Any]) -> VectorSettings:
    """Reads a SparseEncoder; `fields` are of `VectorSettings`."""
    read_layers(public.folder, public.modules[1:], public.kind)
    terms = _terms(public.modules[1][1], public.settings.get('max_active_dims'))
    return VectorSettings(
        critic=LEXICAL,
        critics={LEXICAL: terms},
        **fields,
        **multivector.lengths(public.about),
    )


def _terms(folder: pathlib.Path, top_k: int | None) -> LexicalConfig:
    """Reads a SpladePooling."""
    path, config = read_config(folder, SPLADE)
    known = {
        'pooling_strategy': ('max',), 'activation_function': tuple(_WEIGHTS)
    }  # fmt: skip
    check_values(config, known, str(path))
    activation = config.get('activation_function', 'relu')
    return LexicalConfig(
        VOCABULARY, activation=_WEIGHTS[activation], top_k=top_k
    )


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a SparseEncoder.

    Raises:
        ValueError: weights that it does not have.
    """
    lexical = LexicalCritic.of(loaded.config)
    theirs = {ours: name for name, ours in _WEIGHTS.items()}
    known = huggingface.heads_of(loaded).get(MASKED_WORDS) == LEXICAL
    if not known or lexical.activation not in theirs:
        raise errors.InputError(
            'terms_not_public',
            'sentence-transformers weighs the vocabulary by the head that '
            'fills masks, and this model does not; train one from a model with '
            'the row mlm (--simcse.terms=vocabulary)',
        )
    dropped = huggingface.write(folder, loaded)
    modules = Modules(folder, FILLS)
    modules.add(
        SPLADE,
        {
            'pooling_strategy': 'max',
            'activation_function': theirs[lexical.activation],
            'embedding_dimension': len(loaded.tokenizer),
        },
    )
    settings: dict[str, Any] = {
        'model_type': SPARSE, 'similarity_fn_name': 'dot'
    }  # fmt: skip
    if lexical.top_k:
        settings['max_active_dims'] = lexical.top_k
    modules.write(loaded, settings, **multivector.lengths_of(loaded.config))
    return dropped
