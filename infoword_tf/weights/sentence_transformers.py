"""Folders of sentence-transformers: how states become the vector of a text.

    modules.json   its modules in order: Transformer, Pooling, Dense, Normalize
    config_sentence_transformers.json   prompts, similarity
    sentence_bert_config.json   max_seq_length

The encoder itself lies in a folder of transformers, see huggingface.py.
"""

import pathlib
from typing import Any

from infoword_tf import files
from infoword_tf.config import DenseConfig, FlowConfig
from infoword_tf.inference.loaded import Loaded
from infoword_tf.weights import huggingface
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.tensors import (
    SINGLE,
    Tensors,
    open_safetensors,
)

MODULES = 'modules.json'
SETTINGS = 'config_sentence_transformers.json'
TRANSFORMER = 'sentence_bert_config.json'
# Ours, and the flag of Pooling; its name in newer files is the same without
# what stands before it.
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
_KNOWN = ('Transformer', 'Pooling', 'Dense', 'Normalize')


def is_one(folder: pathlib.Path) -> bool:
    """Whether a folder is of sentence-transformers."""
    return (folder / MODULES).is_file()


def read(folder: pathlib.Path) -> tuple[pathlib.Path, VectorSettings]:
    """Where the encoder lies, and how a text becomes a vector.

    Raises:
        FileNotFoundError: a module lacks its files.
        ValueError: a module that is not known, or in another order.
    """
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    encoder = modules[0][1]
    if kinds[:2] != ['Transformer', 'Pooling']:
        raise ValueError(
            f'{folder}/{MODULES} begins with {" and ".join(kinds[:2])}, not '
            'with Transformer and Pooling'
        )
    dense: list[DenseConfig] = []
    tensors: dict[str, Any] = {}
    normalize = False
    for kind, place in modules[2:]:
        if kind == 'Normalize':
            normalize = True
            continue
        if kind != 'Dense' or normalize:
            raise ValueError(
                f'{folder}/{MODULES} has {kind} behind '
                f'{"Normalize" if normalize else "Pooling"}, which cannot '
                'be converted'
            )
        layer, arrays = _dense(place, len(dense))
        dense.append(layer)
        tensors |= arrays
    found = {}
    if (folder / SETTINGS).is_file():
        found = files.read_json(folder / SETTINGS)
    similarity = found.get('similarity_fn_name') or 'cosine'
    if similarity not in _SIMILARITIES:
        raise ValueError(
            f'{folder}/{SETTINGS} compares vectors by {similarity}; known are '
            f'{", ".join(sorted(set(_SIMILARITIES)))}'
        )
    prompts = {k: v for k, v in (found.get('prompts') or {}).items() if v}
    prompt = found.get('default_prompt_name')
    pooling, whole = _pooling(modules[1][1])
    if prompts and not whole:
        raise ValueError(
            f'{modules[1][1]} leaves prompts out of the mean '
            '(include_prompt false), which cannot be converted'
        )
    limit = None
    if (encoder / TRANSFORMER).is_file():
        settings = files.read_json(encoder / TRANSFORMER)
        limit = settings.get('max_seq_length')
        if settings.get('do_lower_case'):
            raise ValueError(
                f'{encoder}/{TRANSFORMER} lower-cases texts before the '
                'tokenizer does; set do_lower_case there, and false here'
            )
    return encoder, VectorSettings(
        pooling=pooling,
        similarity=_SIMILARITIES[similarity],
        normalize=normalize,
        dense=tuple(dense),
        tensors=tensors,
        prompts=prompts,
        prompt=prompt if prompt in prompts else None,
        max_length=limit,
    )


def _modules(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """What each module is, and where it lies."""
    import json

    path = folder / MODULES
    try:
        entries = json.loads(path.read_text(encoding='utf-8'))
        modules = [
            (entry['type'].rpartition('.')[2], folder / entry['path'])
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path} cannot be read: {error}') from None
    for kind, _ in modules:
        if kind not in _KNOWN:
            raise ValueError(
                f'{path} has the module {kind}; known are {", ".join(_KNOWN)}'
            )
    return modules


def _config(
    folder: pathlib.Path, kind: str
) -> tuple[pathlib.Path, dict[str, Any]]:
    path = folder / 'config.json'
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no config.json: no {kind}')
    return path, files.read_json(path)


def _pooling(folder: pathlib.Path) -> tuple[str, bool]:
    """Our name of a Pooling, and whether prompts count."""
    path, config = _config(folder, 'Pooling')
    named = config.get('pooling_mode')
    if named is not None:
        chosen = [named] if isinstance(named, str) else list(named)
        chosen = [_NEW_NAMES.get(name, name) for name in chosen]
    else:
        chosen = [
            key.removeprefix('pooling_mode_')
            for key, value in config.items()
            if key.startswith('pooling_mode_') and value
        ]
        ours = {v.removeprefix('pooling_mode_'): k for k, v in POOLINGS.items()}
        chosen = [ours.get(name, name) for name in chosen]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ValueError(
            f'{path} pools by {" and ".join(chosen) or "nothing"}; known is '
            f'one of {", ".join(POOLINGS)}'
        )
    return chosen[0], bool(config.get('include_prompt', True))


def _dense(
    folder: pathlib.Path, number: int
) -> tuple[DenseConfig, dict[str, Any]]:
    """One Dense and its weights, by our paths."""
    path, config = _config(folder, 'Dense')
    name = config.get('activation_function', ACTIVATIONS['tanh'])
    ours = {v.rpartition('.')[2]: k for k, v in ACTIVATIONS.items()}
    if name.rpartition('.')[2] not in ours:
        raise ValueError(
            f'{path} has the activation {name}; known are '
            f'{", ".join(ACTIVATIONS.values())}'
        )
    held: Tensors = open_safetensors(folder)
    bias = bool(config.get('bias', True))
    names = ['linear.weight', *(['linear.bias'] if bias else [])]
    if sorted(held) != sorted(names):
        raise ValueError(
            f'{folder} holds {", ".join(sorted(held))}, not {", ".join(names)}'
        )
    arrays = {f'dense_{number}/kernel': held['linear.weight'].T}
    if bias:
        arrays[f'dense_{number}/bias'] = held['linear.bias']
    return (
        DenseConfig(
            int(config['out_features']), ours[name.rpartition('.')[2]], bias
        ),
        arrays,
    )


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a workdir as sentence-transformers loads it; as
    `huggingface.write`.
    """
    config = loaded.config
    if any(isinstance(layer, FlowConfig) for layer in config.dense):
        raise ValueError(
            'this model has an invertible network over vectors (tasks.flow), '
            'which sentence-transformers does not know'
        )
    if config.pooling not in POOLINGS:
        raise ValueError(
            f'pooling {config.pooling} is not known to sentence-transformers; '
            f'it knows {", ".join(POOLINGS)}'
        )
    if config.pooling == 'cls' and not loaded.layout.first:
        raise ValueError(
            'this model pools the last state of a text, and cls of '
            'sentence-transformers is the first'
        )
    dropped = huggingface.write(folder, loaded)
    base = 'sentence_transformers.models.'
    width = loaded.encoder.width
    modules = [('Transformer', '')]

    def add(kind: str, values: dict[str, Any]) -> str:
        name = f'{len(modules)}_{kind}'
        modules.append((kind, name))
        (folder / name).mkdir()
        files.write_json(folder / name / 'config.json', values)
        return name

    pooled = {flag: name == config.pooling for name, flag in POOLINGS.items()}
    add(
        'Pooling',
        {'word_embedding_dimension': width, **pooled, 'include_prompt': True},
    )
    for number, layer in enumerate(config.dense):
        name = add(
            'Dense',
            {
                'in_features': width,
                'out_features': layer.width,
                'bias': layer.bias,
                'activation_function': ACTIVATIONS[layer.activation],
            },
        )
        made = loaded.model.dense[number]
        arrays = {'linear.weight': made.kernel.numpy().T}
        if layer.bias:
            arrays['linear.bias'] = made.bias.numpy()
        files.write_tensors(folder / name / SINGLE, arrays, {'format': 'pt'})
        width = layer.width
    if config.normalize:
        modules.append(('Normalize', f'{len(modules)}_Normalize'))
    files.write_json(
        folder / MODULES,
        [
            {'idx': i, 'name': str(i), 'path': path, 'type': base + kind}
            for i, (kind, path) in enumerate(modules)
        ],
    )
    files.write_json(
        folder / TRANSFORMER,
        {'max_seq_length': config.max_length, 'do_lower_case': False},
    )
    files.write_json(
        folder / SETTINGS,
        {
            'prompts': config.prompts,
            'default_prompt_name': config.prompt,
            'similarity_fn_name': config.similarity,
        },
    )
    return dropped
