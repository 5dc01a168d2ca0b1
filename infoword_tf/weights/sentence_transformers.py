"""Folders of sentence-transformers: how states become the vector of a text.

    modules.json   the modules in order: Transformer, Pooling, Dense, Normalize;
                   of a CrossEncoder a Transformer alone
    config_sentence_transformers.json   model_type, prompts, similarity
    sentence_bert_config.json   max_seq_length

The encoder itself lies in a folder of transformers, see huggingface.py.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import ROLES, DenseConfig, FlowConfig
from infoword_tf.inference.loaded import Loaded
from infoword_tf.weights import huggingface
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.tensors import SINGLE, open_safetensors
from infoword_tf.weights.tokenizer_reader import read_optional_json

MODULES = 'modules.json'
SETTINGS = 'config_sentence_transformers.json'
CONFIG = 'config.json'  # of each module
# The first of these in a folder is read; the first of all is written.
TRANSFORMERS = tuple(
    f'sentence_{kind}_config.json'
    for kind in ('bert', 'roberta', 'distilbert', 'camembert', 'albert',
                 'xlm-roberta', 'xlnet')
)  # fmt: skip
VECTORS, CLASSES = 'SentenceTransformer', 'CrossEncoder'
# Values that can be converted, for `check_values`: of the Transformer by
# model_type;
_TASKS = {
    VECTORS: {
        'transformer_task': ('feature-extraction',),
        'module_output_name': ('token_embeddings',),
    },
    CLASSES: {
        'transformer_task': ('sequence-classification',),
        'module_output_name': ('scores',),
    },
}
_OUTPUTS = {
    VECTORS: ('last_hidden_state', ['last_hidden_state']),
    CLASSES: ('logits', ['logits']),
}
# of all Transformers; of modules that read vectors.
_OF_TEXTS = {
    'processing_kwargs': ({}, None), 'query_length': (None,),
    'document_length': (None,), 'query_expansion': (None,),
}  # fmt: skip
_OF_VECTORS = {
    'module_input_name': ('sentence_embedding',),
    'module_output_name': ('sentence_embedding', None),
}
# Poolings here, and flags of the module Pooling. Newer files have names, which
# are the ends of these flags.
POOLINGS = {
    'cls': 'pooling_mode_cls_token',
    'mean': 'pooling_mode_mean_tokens',
    'max': 'pooling_mode_max_tokens',
    'by_position': 'pooling_mode_weightedmean_tokens',
    'last': 'pooling_mode_lasttoken',
}
_NEW_NAMES = {'weightedmean': 'by_position', 'lasttoken': 'last'}
ACTIVATIONS = {
    'identity': 'torch.nn.modules.linear.Identity',
    'tanh': 'torch.nn.modules.activation.Tanh',
    'relu': 'torch.nn.modules.activation.ReLU',
    'gelu': 'torch.nn.modules.activation.GELU',
}
_SIMILARITIES = {'cosine': 'cosine', 'dot': 'dot', 'dot_product': 'dot'}
_KNOWN = ('Transformer', 'Pooling', 'Dense', 'Normalize', 'Dropout')


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder is of sentence-transformers."""
    return (folder / MODULES).is_file()


def read(folder: pathlib.Path) -> tuple[pathlib.Path, VectorSettings]:
    """Finds where the encoder lies, and how a text becomes a vector.

    Raises:
        FileNotFoundError: a module without files.
        ValueError: an unknown module, or an order that cannot be converted.
    """
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    where = f'{folder}/{SETTINGS}'
    settings = read_optional_json(folder / SETTINGS)
    kind = settings.get('model_type', VECTORS)
    if kind not in _TASKS:
        raise errors.InputError(
            'public_unknown_task',
            f'{where} has the model_type {kind!r}; known are '
            f'{", ".join(_TASKS)}',
        )
    known = ['Transformer'] if kind == CLASSES else ['Transformer', 'Pooling']
    if kinds[:2] != known:
        raise errors.InputError(
            'unknown_module_order',
            f'{folder}/{MODULES} begins with {" and ".join(kinds[:2])}, not '
            f'with {" and ".join(known)} as a {kind} that can be converted',
        )
    encoder = modules[0][1]
    limit, lower_case = _transformer(encoder, kind)
    prompts, prompt = _prompts(settings, where)
    if kind == CLASSES:
        if prompts.get(prompt):
            raise errors.InputError(
                'prompt_before_classes',
                f'{where} puts the prompt {prompt!r} before texts, which '
                'classes cannot have here; set default_prompt_name to null and '
                'put it before texts yourself',
            )
        return encoder, VectorSettings(
            max_length=limit, lower_case=lower_case, classes=True
        )
    dense: list[DenseConfig] = []
    tensors: dict[str, Any] = {}
    normalize = False
    for kind, place in modules[2:]:
        if kind == 'Dropout':  # of training alone
            continue
        if kind == 'Normalize':
            path = place / CONFIG
            check_values(read_optional_json(path), _OF_VECTORS, str(path))
            normalize = True
            continue
        if kind != 'Dense' or normalize:
            raise errors.InputError(
                'module_behind',
                f'{folder}/{MODULES} has {kind} behind '
                f'{"Normalize" if normalize else "Pooling"}, which cannot '
                'be converted',
            )
        layer, arrays = _dense(place, len(dense))
        dense.append(layer)
        tensors |= arrays
    similarity = settings.get('similarity_fn_name') or 'cosine'
    if similarity not in _SIMILARITIES:
        raise errors.InputError(
            'public_unknown_similarity',
            f'{where} compares vectors by {similarity}; known are '
            f'{", ".join(sorted(set(_SIMILARITIES)))}',
        )
    dims = settings.get('truncate_dim')
    if dims and normalize and _SIMILARITIES[similarity] == 'dot':
        raise errors.InputError(
            'truncated_dot',
            f'{where} cuts vectors of length 1 to {dims} numbers '
            '(truncate_dim) and compares them by dot; here they have length 1 '
            'after that: set similarity_fn_name to cosine',
        )
    pooling, whole = _pooling(modules[1][1])
    if any(prompts.values()) and not whole:
        raise errors.InputError(
            'prompts_left_out',
            f'{modules[1][1]} leaves prompts out of the mean '
            '(include_prompt false), which cannot be converted',
        )
    return encoder, VectorSettings(
        pooling=pooling,
        similarity=_SIMILARITIES[similarity],
        normalize=normalize,
        dense=tuple(dense),
        dims=dims,
        tensors=tensors,
        prompts=prompts,
        prompt=prompt,
        max_length=limit,
        lower_case=lower_case,
    )


def _modules(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Lists the kind and the folder of each module."""
    import json

    path = folder / MODULES
    try:
        entries = json.loads(path.read_text(encoding='utf-8'))
        modules = [(entry['type'], folder / entry['path']) for entry in entries]
        names = [kind.rpartition('.')[2] for kind, _ in modules]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.InputError(
            'modules_unreadable', f'{path} cannot be read: {error}'
        ) from None
    for (kind, _), name in zip(modules, names, strict=True):
        if name not in _KNOWN or not kind.startswith('sentence_transformers.'):
            raise errors.InputError(
                'public_unknown_module',
                f'{path} has the module {kind}; known are those of '
                f'sentence_transformers called {", ".join(_KNOWN)}',
            )
    return [
        (name, place) for name, (_, place) in zip(names, modules, strict=True)
    ]


def _transformer(folder: pathlib.Path, kind: str) -> tuple[int | None, bool]:
    """Reads how long texts may be (None: no limit), and whether texts are
    lower-cased before the tokenizer.
    """
    names = (folder / name for name in TRANSFORMERS)
    path = next((x for x in names if x.is_file()), folder / TRANSFORMERS[0])
    settings, known = read_optional_json(path), _TASKS[kind]
    check_values(settings, known | _OF_TEXTS, str(path))
    modalities = settings.get('modality_config', {'text': {}})
    check_values(
        modalities.get('text', {'method': None}),
        {'method': ('forward',), 'method_output_name': _OUTPUTS[kind]},
        f'{path}, texts,',
    )
    arguments = {
        **(settings.get('tokenizer_args') or {}),
        **(settings.get('processor_kwargs') or {}),
    }
    limit = arguments.get('model_max_length', settings.get('max_seq_length'))
    return limit, bool(settings.get('do_lower_case'))


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


def _config(
    folder: pathlib.Path, kind: str
) -> tuple[pathlib.Path, dict[str, Any]]:
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {CONFIG}: no {kind}')
    return path, files.read_json(path)


def _pooling(folder: pathlib.Path) -> tuple[str, bool]:
    """Reads the name of a Pooling, and whether states of prompts count."""
    path, config = _config(folder, 'Pooling')
    modes = config.get('pooling_mode')
    if modes is not None:
        modes = [modes] if isinstance(modes, str) else list(modes)
        modes = [_NEW_NAMES.get(name, name) for name in modes]
    else:
        names = {flag: name for name, flag in POOLINGS.items()}
        modes = [
            names.get(key, key.removeprefix('pooling_mode_'))
            for key, value in config.items()
            if key.startswith('pooling_mode_') and value
        ] or ['mean']
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise errors.InputError(
            'unknown_public_pooling',
            f'{path} pools by {" and ".join(modes) or "nothing"}; known is '
            f'one of {", ".join(POOLINGS)}',
        )
    return modes[0], bool(config.get('include_prompt', True))


def _dense(
    folder: pathlib.Path, number: int
) -> tuple[DenseConfig, dict[str, Any]]:
    """Reads a Dense, and the weights by path."""
    path, config = _config(folder, 'Dense')
    known = {**_OF_VECTORS, 'use_residual': (False, None)}
    check_values(config, known, str(path))
    name = config.get('activation_function', ACTIVATIONS['tanh'])
    ours = {v.rpartition('.')[2]: k for k, v in ACTIVATIONS.items()}
    activation = ours.get(name.rpartition('.')[2])
    if activation is None:
        raise errors.InputError(
            'unknown_dense_activation',
            f'{path} has the activation {name}; known are '
            f'{", ".join(ACTIVATIONS.values())}',
        )
    weights = open_safetensors(folder)
    bias = bool(config.get('bias', True))
    names = ['linear.weight', *(['linear.bias'] if bias else [])]
    if sorted(weights) != sorted(names):
        raise errors.InputError(
            'dense_other_weights',
            f'{folder} holds {", ".join(sorted(weights))}, not '
            f'{", ".join(names)}',
        )
    arrays = {f'dense_{number}/kernel': weights['linear.weight'].T}
    if bias:
        arrays[f'dense_{number}/bias'] = weights['linear.bias']
    return DenseConfig(int(config['out_features']), activation, bias), arrays


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a workdir as a folder of sentence-transformers.

    A model that classifies pairs in one order, and has no layers over vectors,
    becomes a CrossEncoder, others a SentenceTransformer. Returns and raises as
    `huggingface.write`.
    """
    config = loaded.config
    row = huggingface.heads_of(loaded).get('label')
    if row and not config.dense and 2 in loaded.classes.sides(row) and (
        loaded.model.objectives[row].texts != 'both_ways'
    ):  # fmt: skip
        return _write_classes(folder, loaded)
    if any(isinstance(layer, FlowConfig) for layer in config.dense):
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
    modules = ['Transformer']

    def add(kind: str, values: dict[str, Any]) -> pathlib.Path:
        place = folder / f'{len(modules)}_{kind}'
        modules.append(kind)
        place.mkdir()
        files.write_json(place / CONFIG, values)
        return place

    pooled = {flag: name == config.pooling for name, flag in POOLINGS.items()}
    add(
        'Pooling',
        {'word_embedding_dimension': width, **pooled, 'include_prompt': True},
    )
    layers = [
        (layer, x.kernel.numpy(), x.bias.numpy() if layer.bias else None)
        for layer, x in zip(config.dense, loaded.model.dense, strict=True)
    ]
    dims = config.dims
    if dims and config.normalize:  # sentence-transformers cuts afterwards
        wide = config.dense[-1].width if config.dense else width
        cut = DenseConfig(dims, 'identity', bias=False)
        layers.append((cut, np.eye(wide, dims, dtype=np.float32), None))
        dims = None
    for layer, kernel, bias in layers:
        place = add(
            'Dense',
            {
                'in_features': len(kernel),
                'out_features': layer.width,
                'bias': layer.bias,
                'activation_function': ACTIVATIONS[layer.activation],
            },
        )
        arrays = {'linear.weight': kernel.T}
        if bias is not None:
            arrays['linear.bias'] = bias
        files.write_tensors(place / SINGLE, arrays, {'format': 'pt'})
    if config.normalize:
        modules.append('Normalize')
    settings = {
        'prompts': config.prompts,
        'default_prompt_name': config.prompt,
        'similarity_fn_name': config.similarity,
    }
    if dims:
        settings['truncate_dim'] = dims
    _write_settings(folder, modules, settings, config.max_length)
    return dropped


def _write_classes(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a CrossEncoder, as sentence-transformers saves one.

    Scores of one class, or of several that a text may have together, are
    logistic, others logits.
    """
    config = loaded.config
    dropped = huggingface.write(folder, loaded)
    apart = len(config.labels) == 1 or any(
        row.settings.get('multilabel') for row in config.rows.values()
    )
    activation = 'Sigmoid' if apart else 'Identity'
    _write_settings(
        folder,
        ['Transformer'],
        {
            'model_type': CLASSES,
            'activation_fn': f'torch.nn.{activation}',
            'prompts': {},
            'default_prompt_name': None,
        },
        config.max_length,
        transformer_task=_TASKS[CLASSES]['transformer_task'][0],
    )
    if config.prompts:
        dropped.append('prompts')
    return dropped


def _write_settings(
    folder: pathlib.Path,
    modules: Sequence[str],
    settings: Mapping[str, Any],
    max_length: int,
    **transformer: str,
) -> None:
    """Writes the files beside the modules."""
    files.write_json(
        folder / MODULES,
        [
            {
                'idx': i,
                'name': str(i),
                'path': f'{i}_{kind}' if i else '',
                'type': f'sentence_transformers.models.{kind}',
            }
            for i, kind in enumerate(modules)
        ],
    )
    files.write_json(
        folder / TRANSFORMERS[0],
        {'max_seq_length': max_length, 'do_lower_case': False, **transformer},
    )
    files.write_json(folder / SETTINGS, dict(settings))
