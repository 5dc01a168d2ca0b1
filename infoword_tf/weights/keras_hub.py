"""Presets of KerasHub.

    config.json   model.weights.h5   tokenizer.json   assets/tokenizer/
    task.json     task.weights.h5    of a TextClassifier or a MaskedLM
"""

import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import EncoderConfig
from infoword_tf.weights import architectures, tokenizer_reader
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.heads import (
    MASKED_WORDS,
    NUMBER,
    PROBLEM,
    SEVERAL,
    PublicConfig,
    read_heads,
)
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.kinds.keras_hub import (
    EQUAL_WIDTHS,
    KEYS,
    PRESETS,
    PresetClass,
)
from infoword_tf.weights.tensors import Tensors
from infoword_tf.weights.tokenizer_reader import FolderTokenizer

CONFIG, TASK, TOKENIZER = 'config.json', 'task.json', 'tokenizer.json'
WEIGHTS = {'backbone/': 'model.weights.h5', 'task/': 'task.weights.h5'}
_BACKBONE, _CLASSIFIER = 'Backbone', 'TextClassifier'
# The only values that can be converted, the default first.
_REFUSED = {'num_groups': (1,), 'num_inner_repetitions': (1,)}
_REFUSED_WORDS = {
    'split': (True,), 'suffix_indicator': ('##',), 'oov_token': ('[UNK]',),
    'special_tokens_in_strings': (False,),
}  # fmt: skip
_REFUSED_PAIRS = {
    'add_prefix_space': (False,), 'special_tokens_in_strings': (False,),
}  # fmt: skip
_ACTIVATIONS = 'linear', 'softmax', 'sigmoid', None
_EPSILON = 1e-5  # of the norm in heads that fill masks


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder is a preset."""
    path = folder / CONFIG
    return path.is_file() and 'registered_name' in files.read_json(path)


def read(folder: pathlib.Path) -> EncoderSource:
    """Reads all of a preset but the weights.

    Raises:
        FileNotFoundError: no weights or vocabulary.
        ValueError: another class, a setting without a counterpart here, or a
            damaged file.
    """
    path = folder / CONFIG
    described = files.read_json(path)
    name = str(described.get('class_name')).removesuffix(_BACKBONE)
    if name not in PRESETS:
        raise errors.InputError(
            'unknown_preset',
            f'{path} is of the class {described.get("class_name")!r}; known '
            f'are {", ".join(x + _BACKBONE for x in PRESETS)}',
        )
    preset, settings = PRESETS[name], described.get('config') or {}
    architectures.check_values(settings, _REFUSED, str(path))
    values = _values(preset, settings, str(path))
    encoder = architectures.encoder_of(values, str(path))
    labels = _read_task(folder / TASK, values, encoder)
    naming = preset.naming
    if name == 'Electra' and not encoder.arguments.get('embedding_width'):
        naming = EQUAL_WIDTHS
    heads = read_heads(PublicConfig(values, encoder, str(path)))
    if preset.fills:
        heads[MASKED_WORDS].settings['transform_activation'] = preset.fills
    tensors, tokenizer = _open(folder), _tokenizer(folder, preset, encoder)
    epsilon = encoder.arguments['epsilon']
    if epsilon != _EPSILON and any('masked_lm_head' in x for x in tensors):
        tokenizer.notes.append(
            f'the norm of the head that fills masks adds {epsilon} to '
            f'variances, in KerasHub {_EPSILON}'
        )
    return EncoderSource(
        where=str(folder),
        naming=naming,
        tensors=tensors,
        encoder=encoder,
        tokenizer=tokenizer,
        layout=ARCHITECTURES[preset.kind].layout,
        heads=heads,
        labels=labels,
    )


def _values(
    preset: PresetClass, settings: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Returns the config.json of transformers with the same encoder."""
    known = ARCHITECTURES[preset.kind]
    values = {'model_type': preset.kind, **preset.fixed}
    for ours, theirs in {'vocab_size': preset.size, **KEYS}.items():
        if ours not in known.keys or known.keys[ours] in preset.fixed:
            continue
        if theirs not in settings:
            raise errors.InputError(
                'preset_lacks_key', f'{where} has no {theirs}'
            )
        values[known.keys[ours]] = settings[theirs]
    if known.finish:
        known.finish(values)
    return values


def _read_task(
    path: pathlib.Path, values: dict[str, Any], encoder: EncoderConfig
) -> tuple[str, ...]:
    """Adds a classifier's problem to `values`; returns names of classes."""
    described = tokenizer_reader.read_optional_json(path)
    if not str(described.get('class_name')).endswith(_CLASSIFIER):
        return ()
    settings = described.get('config') or {}
    activation, count = settings.get('activation'), settings.get('num_classes')
    width = encoder.arguments['width']
    if activation not in _ACTIVATIONS or not isinstance(count, int):
        raise errors.InputError(
            'preset_activation',
            f'{path} has {count} classes with the activation {activation!r}; '
            'only linear, softmax and sigmoid can be converted',
        )
    if settings.get('hidden_dim', width) not in (width, None):
        raise errors.InputError(
            'preset_hidden_dim',
            f'{path} has hidden_dim {settings["hidden_dim"]}; only {width}, '
            'the width of the encoder, can be converted',
        )
    if activation == 'sigmoid':
        values[PROBLEM] = SEVERAL
    elif count == 1:
        values[PROBLEM] = NUMBER
    return tuple(f'LABEL_{i}' for i in range(count))


def _tokenizer(
    folder: pathlib.Path, preset: PresetClass, encoder: EncoderConfig
) -> FolderTokenizer:
    """Reads the tokenizer; ValueError: a setting without a counterpart."""
    file, name = preset.vocabulary
    places = [folder / 'assets' / 'tokenizer' / file, folder / 'assets' / file]
    path = next((x for x in places if x.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f'{folder} has no tokenizer: there is no {places[0]}'
        )
    described = tokenizer_reader.read_optional_json(folder / TOKENIZER)
    settings = described.get('config') or {}
    ours, where = {}, f'{folder}/{TOKENIZER}'
    if name == 'vocab.txt':
        architectures.check_values(settings, _REFUSED_WORDS, where)
        ours = {
            'do_lower_case': bool(settings.get('lowercase')),
            'strip_accents': bool(settings.get('strip_accents')),
            'tokenize_chinese_chars': bool(settings.get('split_on_cjk', True)),
        }
    elif name == 'vocab.json':
        architectures.check_values(settings, _REFUSED_PAIRS, where)
    tokenizer = tokenizer_reader.read_file(
        path, name, encoder.arguments['vocab_size'], ours
    )
    if ours.get('do_lower_case'):
        tokenizer.notes.append(
            'letters are lower-cased; KerasHub folds them (NFKC_Casefold: of '
            'one that becomes two, and of wide ones, other tokens)'
        )
    if name == 'vocab.json':
        tokenizer.notes.append(
            'special tokens are matched in texts; by KerasHub they are text'
        )
    return tokenizer


def _open(folder: pathlib.Path) -> Tensors:
    """Opens the weights by the names of kinds/keras_hub.py."""
    import h5py

    readers: dict[str, Callable[[], np.ndarray]] = {}
    for place, name in WEIGHTS.items():
        path = folder / name
        if not path.is_file():
            if place == 'backbone/':
                raise FileNotFoundError(
                    f'{folder} has no {name}: it holds no weights'
                )
            continue
        try:
            with h5py.File(path) as file:
                names: list[str] = []
                file.visititems(
                    lambda x, node, names=names: names.append(x)
                    if isinstance(node, h5py.Dataset) else None
                )  # fmt: skip
        except (OSError, RuntimeError) as error:
            raise errors.InputError(
                'preset_weights_damaged',
                f'{path} cannot be read ({error}); the file is truncated or '
                'damaged: fetch it again',
            ) from error
        for x in names:
            ours = x.removeprefix('layers/').replace('vars/', '')
            ours = re.sub(r'^(\w+_encoder)/', r'\1_0/', ours)
            readers[place + ours] = lambda path=path, x=x: _array(path, x)
    return Tensors(readers, str(folder))


def _array(path: pathlib.Path, name: str) -> np.ndarray:
    """Reads an array of a file."""
    import h5py

    try:
        with h5py.File(path) as file:
            return file[name][()]
    except (OSError, RuntimeError) as error:
        raise errors.InputError(
            'preset_weight_damaged',
            f'{path}: {name} cannot be read ({error}); fetch the file again',
        ) from error
