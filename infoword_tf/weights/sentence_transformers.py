"""Folders of sentence-transformers: what texts become, and how they compare.

    modules.json                        parts of the model, see modules.py
    config_sentence_transformers.json   model_type, prompts, similarity

The encoder itself lies in a folder of transformers, see huggingface.py. Vectors
of texts are read and written here, other models in cross_encoder.py,
sparse_encoder.py and multivector.py.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from infoword_tf import errors
from infoword_tf.config import ROLES, DenseConfig, FlowConfig
from infoword_tf.critics import CRITICS
from infoword_tf.critics.cosine import COSINE
from infoword_tf.critics.late import LATE, LateConfig
from infoword_tf.critics.lexical import LEXICAL, LexicalConfig
from infoword_tf.inference.loaded import Loaded
from infoword_tf.layers.lexical import TOKENS
from infoword_tf.weights import (
    cross_encoder,
    huggingface,
    modules,
    multivector,
    sparse_encoder,
)
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.heads import CLASSES as CLASSES_HEAD
from infoword_tf.weights.modules import POOLINGS, PublicModules
from infoword_tf.weights.tensors import open_file

# Heads of BGE-M3 (Chen et al. 2024), which lie beside its modules.
_M3_LATE, _M3_LEXICAL = 'colbert_linear.pt', 'sparse_linear.pt'


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder says how texts are compared."""
    has_modules = (folder / modules.MODULES).is_file()
    return has_modules or multivector.is_stanford(folder)


def read(folder: pathlib.Path) -> tuple[pathlib.Path, VectorSettings]:
    """Finds where the encoder lies, and how texts are compared.

    Raises:
        FileNotFoundError: a module without files.
        ValueError: an unknown module, or an order that cannot be converted.
    """
    if multivector.is_stanford(folder):
        return folder, multivector.stanford(folder)
    public = modules.read(folder)
    prompts, prompt = _prompts(public.settings, public.where)
    if public.name == modules.CLASSES:
        return public.encoder, cross_encoder.read(public, prompts, prompt)
    similarity = modules.read_similarity(
        public.settings, public.kind, public.where
    )
    fields = {'prompts': prompts, 'prompt': prompt, **public.texts}
    if public.name == modules.SPARSE:
        return public.encoder, sparse_encoder.read(public, fields)
    if public.kind is modules.OF_TOKENS:
        return public.encoder, multivector.read(
            public, similarity, prompts, fields
        )
    return public.encoder, _read_vectors(public, similarity, fields)


def _read_vectors(
    public: PublicModules, similarity: str, fields: dict[str, Any]
) -> VectorSettings:
    """Reads a model of vectors of texts.

    Args:
        public: files of the folder.
        similarity: name of the way to compare.
        fields: other fields of `VectorSettings`.

    Raises:
        ValueError: vectors, or a mean, that cannot be converted.
    """
    layers = modules.read_layers(
        public.folder, public.modules[1:], public.kind
    )
    dims = public.settings.get('truncate_dim')
    if dims and layers.normalize and similarity == 'dot':
        raise errors.InputError(
            'truncated_dot',
            f'{public.where} cuts vectors of length 1 to {dims} numbers '
            '(truncate_dim) and compares them by dot; here they have length 1 '
            'after that: set similarity_fn_name to cosine',
        )
    place = public.modules[1][1]
    pooling, whole = modules.read_pooling(place)
    if any(fields['prompts'].values()) and not whole:
        raise errors.InputError(
            'prompts_left_out',
            f'{place} leaves prompts out of the mean (include_prompt false), '
            'which cannot be converted',
        )
    heads = _m3_heads(public.folder)
    tensors = layers.tensors | heads.pop('tensors')
    return VectorSettings(
        critic=COSINE,
        pooling=pooling,
        similarity=similarity,
        normalize=layers.normalize,
        dense=layers.dense,
        dims=dims,
        tensors=tensors,
        **fields,
        **heads,
    )


def _m3_heads(folder: pathlib.Path) -> dict[str, Any]:
    """Reads heads of BGE-M3, or none: fields of `VectorSettings`."""
    heads: dict[str, Any] = {'tensors': {}, 'critics': {}}
    for name, path in (
        (_M3_LATE, 'late/late_0'), (_M3_LEXICAL, 'lexical')
    ):  # fmt: skip
        if (folder / name).is_file():
            weights = open_file(folder / name)
            kernel = weights['weight'].T
            heads['tensors'] |= {
                f'{path}/kernel': kernel, f'{path}/bias': weights['bias']
            }  # fmt: skip
            if name == _M3_LATE:
                dense = DenseConfig(kernel.shape[1], 'identity')
                heads['critics'][LATE] = LateConfig(
                    (dense,), first=False, mean=True
                )
            else:
                heads['critics'][LEXICAL] = LexicalConfig(
                    TOKENS, activation='relu'
                )
    return heads


def _prompts(
    settings: dict[str, Any], where: str
) -> tuple[dict[str, str], str | None]:
    """Returns prompts by name, and the name of the default.

    If there is a default, roles without a prompt get an empty one: the default
    is not for `encode_query` and `encode_document`.
    """
    prompts = {k: v or '' for k, v in (settings.get('prompts') or {}).items()}
    prompt = settings.get('default_prompt_name')
    if prompt is None:
        return prompts, None
    for names in ROLES.values():
        if not any(name in prompts for name in names):
            prompts[names[0]] = ''
    if prompt not in prompts:
        raise errors.InputError(
            'unknown_default_prompt',
            f'{where} has the default prompt {prompt!r}, but the prompts '
            f'{", ".join(prompts)}',
        )
    return prompts, prompt


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a workdir as a folder of sentence-transformers.

    A model that compares texts by vectors of tokens becomes a
    MultiVectorEncoder, by weights of the vocabulary a SparseEncoder. One that
    scores pairs, or classifies them in one order and has no layers over
    vectors, becomes a CrossEncoder, others a SentenceTransformer. Returns and
    raises as `huggingface.write`.
    """
    critic = loaded.config.critic
    if loaded.config.critics[critic] is None:  # without a head
        return _write_vectors(folder, loaded)
    writer = _WRITERS.get(CRITICS[critic].public)
    if writer is None:
        raise errors.InputError(
            'critic_not_public',
            f'sentence-transformers has no models of the critic {critic}; '
            'write the encoder with --format=huggingface',
        )
    return writer(folder, loaded)


def _write_vectors(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a model that compares vectors of texts."""
    config = loaded.config
    row = huggingface.heads_of(loaded).get(CLASSES_HEAD)
    if row and not config.dense and 2 in loaded.classes.sides(row) and (
        loaded.model.objectives[row].texts != 'both_ways'
    ):  # fmt: skip
        return cross_encoder.write_classes(folder, loaded)
    dense = [x for x in config.dense if not isinstance(x, FlowConfig)]
    if len(dense) < len(config.dense):
        raise errors.InputError(
            'flow_not_public',
            'this model has an invertible network over vectors (tasks.flow), '
            'which sentence-transformers does not know',
        )
    if config.pooling not in POOLINGS:
        raise errors.InputError(
            'pooling_not_public',
            f'pooling {config.pooling} is not known to sentence-transformers; '
            f'it knows {", ".join(POOLINGS)}',
        )
    if config.pooling == 'cls' and not loaded.layout.first:
        raise errors.InputError(
            'last_state_not_public',
            'this model pools the last state of a text, and cls of '
            'sentence-transformers is the first',
        )
    dropped = huggingface.write(folder, loaded)
    width = loaded.encoder.width
    parts = modules.Modules(folder)
    parts.add_pooling(config.pooling, width)
    parts.add_layers(dense, loaded.model.dense)
    dims = config.dims
    if dims and config.normalize:  # sentence-transformers cuts afterwards
        wide = dense[-1].width if dense else width
        cut = DenseConfig(dims, 'identity', bias=False)
        parts.add_dense(cut, np.eye(wide, dims, dtype=np.float32))
        dims = None
    if config.normalize:
        parts.add('Normalize')
    settings: dict[str, Any] = {'similarity_fn_name': config.similarity}
    if dims:
        settings['truncate_dim'] = dims
    parts.write(loaded, settings)
    return dropped


# By the class that reads what is written, `Critic.public`.
_WRITERS: dict[str | None, Callable[[pathlib.Path, Loaded], list[str]]] = {
    modules.NATIVE: multivector.write,
    modules.SPARSE: sparse_encoder.write,
    modules.CLASSES: cross_encoder.write_pairs,
}
