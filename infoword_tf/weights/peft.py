"""Folders of PEFT, with adapters of a model elsewhere: in, and out.

    adapter_config.json   adapter_model.safetensors

What comes in is the base with the adapters merged. What goes out are adapters
and heads.
"""

import dataclasses
import functools
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from infoword_tf import adapters, config, errors, files
from infoword_tf.folders import ADAPTER
from infoword_tf.inference.loaded import Loaded
from infoword_tf.weights import huggingface, mapping
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.names import Naming
from infoword_tf.weights.tensors import Tensors, open_folder

WEIGHTS = 'adapter_model.safetensors'
_FIRST = 'base_model.model.'  # begins the names
_PAIR = re.compile(r'(.*)\.lora_([AB])\.weight')
_KNOWN = {  # by key, what can be merged, the default first
    'peft_type': ('LORA',),
    'use_dora': (False, None),
    'alpha_pattern': ({}, None),
    'layer_replication': (None,),
}


def merged(source: EncoderSource, folder: pathlib.Path) -> EncoderSource:
    """Returns an encoder whose weights have the adapters of a folder added.

    Other weights of the folder, such as heads, replace those of the encoder.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: adapters of another kind, or of another model.
    """
    values = files.read_json(folder / ADAPTER)
    check_values(values, _KNOWN, str(folder / ADAPTER))
    stored = open_folder(folder, WEIGHTS)
    plain = _plain_names(source.naming, source.tensors)
    readers: dict[str, Callable[[], np.ndarray]] = {
        name: functools.partial(source.tensors.__getitem__, name)
        for name in source.tensors
    }
    for name in sorted(stored):
        bare = name.removeprefix(_FIRST)
        if matched := _PAIR.fullmatch(bare):
            weight = _plain(source.naming, f'{matched[1]}.weight')
            pair = [f'{_FIRST}{matched[1]}.lora_{x}.weight' for x in 'AB']
            if weight not in plain or not set(pair) <= set(stored):
                raise errors.InputError(
                    'adapter_of_other_model',
                    f'{folder} changes {matched[1]}, which is no layer of '
                    f'{source.where}',
                )
            if matched[2] == 'A':
                readers[plain[weight]] = functools.partial(
                    _sum, readers[plain[weight]], stored, pair, values,
                    source.where,
                )  # fmt: skip
        elif 'lora_' in bare:
            raise errors.InputError(
                'unknown_adapter_weight',
                f'{folder} holds {bare}, which cannot be merged; use peft '
                '(merge_and_unload) and save the result',
            )
        else:
            here = plain.get(_plain(source.naming, bare), bare)
            readers[here] = functools.partial(stored.__getitem__, name)
    return dataclasses.replace(
        source,
        where=str(folder),
        tensors=Tensors(readers, str(folder)),
        labels=_labels(source, stored),
    )


def _plain(naming: Naming, name: str) -> str:
    """Returns a name as a model without a head has the name today."""
    for old, new in naming.old.items():
        name = re.sub(old, new, name)
    longest = sorted(naming.prefixes, key=len, reverse=True)
    first = next((x for x in longest if name.startswith(x)), '')
    return name.removeprefix(first)


def _plain_names(naming: Naming, tensors: Tensors) -> dict[str, str]:
    return {_plain(naming, name): name for name in tensors}


def _sum(
    read: Callable[[], np.ndarray],
    stored: Tensors,
    pair: list[str],
    values: Mapping[str, Any],
    where: str,
) -> np.ndarray:
    """Adds a product, scaled, to a weight [out, in], or [in, out] of GPT-2."""
    weight, (a, b) = np.asarray(read(), np.float32), (stored[x] for x in pair)
    root = math.sqrt if values.get('use_rslora') else float
    change = values['lora_alpha'] / root(len(a)) * (b @ a)
    if values.get('fan_in_fan_out'):
        change = change.T
    if change.shape != weight.shape:
        raise errors.InputError(
            'adapter_of_other_shape',
            f'{pair[0]} and {pair[1]} change a weight of the shape '
            f'{change.shape}; in {where} it has {weight.shape}',
        )
    return weight + change


def _labels(source: EncoderSource, stored: Tensors) -> tuple[str, ...]:
    """Names the classes, by number if the base has another head, or none."""
    names, _ = source.naming.heads.get('label', {}).get('kernel', ('', None))
    name = f'{_FIRST}{names}'
    if name not in stored or len(stored[name]) == len(source.labels):
        return source.labels
    return tuple(f'LABEL_{i}' for i in range(len(stored[name])))


def write(
    folder: pathlib.Path, loaded: Loaded, workdir: pathlib.Path
) -> list[str]:
    """Writes a workdir of adapters as a folder that PEFT loads.

    Args:
        folder: to write to.
        loaded: the workdir, adapters folded.
        workdir: its folder.

    Returns:
        Descriptions of what has no place in the folder.

    Raises:
        ValueError: as `huggingface.write`; the workdir has no adapters; a
            public model has one weight where adapters are of several parts.
    """
    adapter = config.Config.read(workdir).adapter
    if adapter is None:
        raise errors.InputError(
            'workdir_without_adapters',
            f'{workdir} is no workdir of adapters; write it with '
            '--format=huggingface',
        )
    naming, _ = huggingface.named(loaded)
    heads = huggingface.heads_of(loaded)
    heads = {k: row for k, row in heads.items() if row in loaded.config.rows}
    stored = files.open_tensors(workdir / config.WEIGHTS)
    variables = loaded.model.variables
    shapes = {path: tuple(x.shape) for path, x in variables.items()}
    prefix = naming.prefixes[0 if heads else -1]
    sizes = loaded.encoder.arguments
    tensors: dict[str, np.ndarray] = {}
    targets, whole, written = [], {}, set()
    for line in mapping.lines(naming, prefix, sizes['layers'], list(heads)):
        parts = adapters.parts_of(line.ours, shapes, 'all')
        chosen = adapters.parts_of(line.ours, shapes, adapter.where)
        first, _, ours = line.ours.partition('/')
        if first == 'objectives':
            head, _, name = ours.partition('/')
            path = f'objectives/{heads[head]}/{name}'
            written.add(path)
            for name, array in zip(
                line.theirs,
                line.form.write(stored[path], sizes['heads']),
                strict=True,
            ):
                tensors[f'{_FIRST}{name}'] = array
                whole[name.removeprefix(prefix).partition('.')[0]] = None
        if not chosen:
            continue
        arrays = line.form.write(variables[line.ours].numpy(), sizes['heads'])
        inputs = shapes[line.ours][0]
        if [x.shape for x in arrays] != [(p.width, inputs) for p in parts]:
            raise errors.InputError(
                'adapters_of_parts',
                f'{" and ".join(line.theirs)} cannot have adapters like those '
                f'of {line.ours} in {workdir}; write the model with '
                '--format=huggingface',
            )
        for name, part in zip(line.theirs, parts, strict=True):
            if part in chosen:
                module = name.removesuffix('.weight')
                targets.append(module)
                for letter, path in zip(
                    'AB', adapters.paths_of(line.ours, part), strict=True
                ):
                    tensors[f'{_FIRST}{module}.lora_{letter}.weight'] = stored[
                        path
                    ].T
    values = {
        'peft_type': 'LORA',
        'task_type': 'SEQ_CLS' if 'label' in heads else None,
        'r': adapter.rank,
        'lora_alpha': adapter.alpha,
        'lora_dropout': 0.0,
        'target_modules': targets,
        'modules_to_save': list(whole) or None,
        'base_model_name_or_path': '',
        'inference_mode': True,
    }
    files.write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})
    files.write_json(folder / ADAPTER, values)
    dropped = [
        f'the row {row}'
        for row in huggingface.lacking(loaded, heads.values())
    ] + huggingface.unwritten(loaded, heads.values())
    for row in heads.values():
        for path in stored.where(
            lambda path, row=row: path.startswith(f'objectives/{row}/')
        ):
            if path not in written and np.any(stored[path]):
                dropped.append(f'{path.split("/")[-1]} of the row {row}')
    if loaded.config.labels:
        dropped.append('the names of the labels')
    if adapter.frozen == adapters.NARROW:
        dropped.append(f'that the base was rounded to {adapters.NARROW}')
    return dropped
