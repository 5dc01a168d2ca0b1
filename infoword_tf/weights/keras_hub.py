"""Presets of KerasHub: in, and out without heads.

    config.json   model.weights.h5   tokenizer.json   assets/tokenizer/
    task.json     task.weights.h5    of a TextClassifier or a MaskedLM
"""

import datetime
import functools
import importlib.metadata
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import EncoderConfig
from infoword_tf.encoders import ENCODERS
from infoword_tf.inference.loaded import Loaded
from infoword_tf.objectives import TABLE
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import TextTokenizer, write_vocabulary
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.weights import (
    architectures,
    mapping,
    tokenizer_reader,
    unigram,
)
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.heads import (
    CLASSES,
    MASKED_WORDS,
    NUMBER,
    PROBLEM,
    SEVERAL,
    PublicConfig,
    ReadHead,
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
METADATA = 'metadata.json'
VERSION = '0.32.0'  # of KerasHub, whose presets are read and written
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
_DEVIATION = 0.02  # of a pooler that nobody trained, as KerasHub begins it
# Vocabularies that are written, by the name that tokenizer_reader has.
_KINDS: dict[str, type[TextTokenizer]] = {
    'vocab.txt': WordPieceTokenizer,
    'vocab.json': BytePairs,
    'vocabulary.spm': SentencePiece,
    'sentencepiece.bpe.model': SentencePiece,
}


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
    if MASKED_WORDS in heads:
        row, of_row = heads[MASKED_WORDS]
        form: dict[str, Any] = {'transform_epsilon': _EPSILON}
        if preset.fills:
            form['transform_activation'] = preset.fills
        heads[MASKED_WORDS] = ReadHead(row, {**of_row, **form})
    return EncoderSource(
        where=str(folder),
        naming=naming,
        tensors=_open(folder),
        encoder=encoder,
        tokenizer=_tokenizer(folder, preset, encoder),
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
        lower_case = bool(settings.get('lowercase'))
        accents = bool(settings.get('strip_accents'))
        ours = {
            'do_lower_case': lower_case,
            'strip_accents': None if accents == lower_case else accents,
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
                names = _arrays_in(file)
        except (OSError, RuntimeError) as error:
            raise errors.InputError(
                'preset_weights_damaged',
                f'{path} cannot be read ({error}); the file is truncated or '
                'damaged: fetch it again',
            ) from error
        for x in names:
            ours = x.removeprefix('layers/').replace('vars/', '')
            ours = re.sub(r'^(\w+_encoder)/', r'\1_0/', ours)
            readers[place + ours] = functools.partial(_array, path, x)
    return Tensors(readers, str(folder))


def _arrays_in(file: Any) -> list[str]:
    """Lists the names of arrays in a file."""
    import h5py

    names: list[str] = []

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            names.append(name)

    file.visititems(visit)
    return names


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


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes the encoder and the tokenizer of a workdir as a preset.

    `keras_hub.models.Backbone.from_preset` loads the folder, and so do tasks
    that begin with a head of their own.

    Returns:
        Descriptions of what has no place in the folder.

    Raises:
        InputError: KerasHub has no such encoder or tokenizer.
    """
    name, settings = _class_of(loaded)
    preset = PRESETS[name]
    arguments = loaded.encoder.arguments
    naming = preset.naming
    if name == 'Electra' and not arguments.get('embedding_width'):
        naming = EQUAL_WIDTHS
    exported = loaded.model.exported
    tensors = {
        path: variable.numpy()
        for path, variable in exported.items()
        if path.startswith('encoder/')
    }
    segments = 'encoder/segment_embeddings'
    if segments in tensors and 'segment_embeddings' not in naming.encoder:
        tensors['encoder/position_embeddings'] += tensors.pop(segments)[0]
    arrays = mapping.write(
        naming, tensors, arguments['layers'], arguments['heads'], rows=()
    )
    dropped = [f'the row {row}' for row in loaded.model.objectives]
    for place in naming.dropped:
        kernel, bias = _pooler(loaded)
        arrays[f'backbone/{place}0'] = kernel
        arrays[f'backbone/{place}1'] = bias
    folder.mkdir(exist_ok=True)
    _write_tokenizer(folder, name, loaded.tokenizer.inner)
    back = _tokenizer(folder, preset, loaded.config.encoder).tokenizer
    if (back.vocabulary, back.special_ids, back.config) != (
        loaded.tokenizer.vocabulary,
        loaded.tokenizer.special_ids,
        loaded.tokenizer.config,
    ):
        raise errors.InputError(
            'preset_tokenizer',
            f'the {name}Tokenizer of KerasHub has other special tokens, or '
            'changes texts in another way, than the tokenizer of the workdir',
        )
    _write_weights(folder / WEIGHTS['backbone/'], arrays)
    files.write_json(folder / CONFIG, _described(name, _BACKBONE, settings))
    files.write_json(
        folder / METADATA,
        {
            'keras_version': importlib.metadata.version('keras'),
            'keras_hub_version': VERSION,
            'parameter_count': sum(x.size for x in arrays.values()),
            'date_saved': f'{datetime.datetime.now():%Y-%m-%d@%H:%M:%S}',
        },
    )
    return dropped


def _class_of(loaded: Loaded) -> tuple[str, dict[str, Any]]:
    """Chooses the class whose presets are read as the workdir's encoder.

    Returns:
        The class without `Backbone`, and the settings of its config.json.
    """
    arguments = dict(loaded.encoder.arguments)
    lacking = []
    for name, preset in PRESETS.items():
        known = ARCHITECTURES[preset.kind]
        if (known.encoder, known.layout) != (
            loaded.config.encoder.name,
            loaded.config.layout,
        ) or not isinstance(
            loaded.tokenizer.inner, _KINDS[preset.vocabulary[1]]
        ):
            continue
        settings = _settings(preset, arguments)
        read = architectures.encoder_of(_values(preset, settings, name), name)
        theirs = ENCODERS[read.name](**read.arguments).arguments
        if arguments.get('segments') == 1 and not theirs.get('segments'):
            theirs = {**theirs, 'segments': 1}  # which positions hold
        other = [
            f'{key} {arguments[key]!r} instead of {theirs[key]!r}'
            for key in theirs
            if theirs[key] != arguments[key]
        ]
        if not other:
            return name, settings
        lacking.append(f'{name}{_BACKBONE} ({", ".join(other)})')
    raise errors.InputError(
        'no_preset',
        f'KerasHub has no encoder {loaded.config.encoder.name} with a '
        f'tokenizer of the kind {loaded.tokenizer.kind}, layout '
        f'{loaded.config.layout}'
        + ''.join(f'; not {x}' for x in lacking),
    )


def _settings(
    preset: PresetClass, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the settings of an encoder, by the names of a preset."""
    known = ARCHITECTURES[preset.kind].keys
    settings = {
        theirs: arguments[ours]
        for ours, theirs in {'vocab_size': preset.size, **KEYS}.items()
        if ours in known and known[ours] not in preset.fixed
    }
    if settings.get('embedding_dim', 0) is None:
        settings['embedding_dim'] = arguments['width']
    return settings


def _pooler(loaded: Loaded) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pooler of a row of classes, or one that nobody trained.

    A backbone of KerasHub has a pooler, whoever reads it.
    """
    for row in loaded.model.objectives:
        at = f'objectives/{row}/pooler_'
        if TABLE[row].public_head == CLASSES and (
            f'{at}kernel' in loaded.model.exported
        ):
            return tuple(
                loaded.model.exported[at + part].numpy()
                for part in ('kernel', 'bias')
            )
    width = loaded.encoder.arguments['width']
    drawn = np.random.default_rng(0).normal(0, _DEVIATION, (width, width))
    return drawn.astype(np.float32), np.zeros(width, np.float32)


def _described(
    name: str, kind: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the JSON object of a class of KerasHub and the settings."""
    module = f'keras_hub.src.models.{PRESETS[name].module}'
    module = f'{module}.{PRESETS[name].module}_{kind.lower()}'
    return {
        'module': module,
        'class_name': f'{name}{kind}',
        'config': dict(settings),
        'registered_name': f'keras_hub>{name}{kind}',
    }


def _write_tokenizer(
    folder: pathlib.Path, name: str, tokenizer: TextTokenizer
) -> None:
    """Writes tokenizer.json and the files of the vocabulary."""
    assets = folder / 'assets' / 'tokenizer'
    assets.mkdir(parents=True)
    file, _ = PRESETS[name].vocabulary
    settings: dict[str, Any] = {'config_file': TOKENIZER}
    if isinstance(tokenizer, WordPieceTokenizer):
        write_vocabulary(assets / file, tokenizer.vocabulary)
        options, lower_case = tokenizer.options, tokenizer.lower_case
        settings |= {
            'vocabulary': None,  # the file has it
            'lowercase': lower_case,
            'strip_accents': options.get('strip_accents', lower_case),
            'split_on_cjk': options.get('chinese_characters', True),
        }
    elif isinstance(tokenizer, SentencePiece):
        model = tokenizer.model
        if file != PRESETS[name].vocabulary[1]:  # of XLM-R
            model = unigram.unshifted(model) or model
        (assets / file).write_bytes(model)
        settings['proto'] = None
    elif isinstance(tokenizer, BytePairs):
        import tokenizers

        fast = tokenizers.Tokenizer.from_str(tokenizer.json)
        fast.model.save(str(assets))
        (assets / 'vocab.json').rename(assets / file)
        merges = assets / 'merges.txt'
        _, *lines = merges.read_text(encoding='utf-8').splitlines(True)
        merges.write_text(''.join(lines), encoding='utf-8')  # no version
        settings |= {'vocabulary': None, 'merges': None}
    files.write_json(
        folder / TOKENIZER, _described(name, 'Tokenizer', settings)
    )


def _write_weights(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes arrays by the names of kinds/keras_hub.py, as `_open` reads."""
    import h5py

    with h5py.File(path, 'w') as file:
        for name, array in arrays.items():
            name = name.removeprefix('backbone/')
            name = re.sub(r'^(\w+_encoder)_0/', r'\1/', name)
            place, _, number = name.rpartition('/')
            file[f'layers/{place}/vars/{number}'] = array
