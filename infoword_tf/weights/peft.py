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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import adapters, config, errors, files
from infoword_tf.folders import ADAPTER
from infoword_tf.inference.loaded import Loaded
from infoword_tf.objectives import TABLE
from infoword_tf.objectives.tag import FIRST
from infoword_tf.weights import huggingface, mapping
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.heads import HEADS, TASKS
from infoword_tf.weights.names import SAME, Naming, names_in, names_of
from infoword_tf.weights.tensors import Tensors, open_folder

WEIGHTS, PICKLED = 'adapter_model.safetensors', 'adapter_model.bin'
_FIRST = 'base_model.model.'  # begins the names
_PAIR = re.compile(r'(.*)\.lora_([AB])\.weight')
_ADVICE = (
    '; where peft can merge it (merge_and_unload), do that, save the result '
    'and convert that'
)
# How the architecture over the base ends, by task_type; of others the base
# says it.
_TASKS = {HEADS[name].task: HEADS[name].ending for name in TASKS}
# Settings of rows that config.json of the base would have to say.
_OF_CONFIG = {
    'multilabel': 'that a text may have several labels (problem_type)',
    'mean': 'that the mean of all states is classified',
    'tokens': 'that words are labelled at their first tokens',
}
FOLLOWED, IDLE = 'followed', 'without effect'
_NONE = (None,)
# All keys of adapter_config.json: what they do here, or the values that can be
# merged, the default of PEFT first.
KEYS: Mapping[str, str | tuple[Any, ...]] = {
    'base_model_name_or_path': FOLLOWED,
    'lora_alpha': FOLLOWED,
    'task_type': FOLLOWED,
    'use_rslora': FOLLOWED,
    'alora_invocation_tokens': _NONE,
    'alpha_pattern': ({}, None),
    'arrow_config': _NONE,
    'bias': ('none', None),
    # Others begin with a base of which a part was taken away.
    'init_lora_weights': (True, False, 'gaussian', 'orthogonal', 'mica', None),
    'kasa_config': _NONE,
    'layer_replication': _NONE,
    'lora_bias': (False, None),
    'megatron_config': _NONE,
    'monteclora_config': _NONE,
    'peft_type': ('LORA',),
    'target_parameters': (None, []),
    'trainable_token_indices': (None, [], {}),
    'use_bdlora': _NONE,
    'use_dora': (False, None),
    'use_qalora': (False, None),
    # Names and shapes of the weights say it.
    **dict.fromkeys(
        ('ensure_weight_tying', 'exclude_modules', 'layers_pattern',
         'layers_to_transform', 'modules_to_save', 'r', 'rank_pattern',
         'target_modules'),
        IDLE,
    ),
    # As the layer of the base keeps its kernel, whatever is said.
    'fan_in_fan_out': IDLE,
    # Of training, of `init_lora_weights` that are refused, or of other
    # programs.
    **dict.fromkeys(
        ('auto_mapping', 'corda_config', 'eva_config', 'inference_mode',
         'loftq_config', 'lora_dropout', 'lora_ga_config', 'megatron_core',
         'peft_version', 'qalora_group_size', 'revision', 'runtime_config',
         'velora_config'),
        IDLE,
    ),
}  # fmt: skip
_REFUSED = {key: x for key, x in KEYS.items() if isinstance(x, tuple)}


def read(base: pathlib.Path, folder: pathlib.Path) -> EncoderSource:
    """Reads a public encoder with the adapters of a folder added.

    Other weights of the folder, such as heads, replace those of the encoder,
    and a tokenizer there that of the encoder.

    Args:
        base: folder of the encoder, see `huggingface.read`.
        folder: folder of the adapters.

    Raises:
        FileNotFoundError: as `huggingface.read`; the folder has no weights.
        ValueError: as `huggingface.read`; adapters of another kind, or of
            another model.
    """
    values, where = files.read_json(folder / ADAPTER), str(folder / ADAPTER)
    check_values(values, _REFUSED, where, _ADVICE)
    pickled = (folder / PICKLED).is_file() and not (folder / WEIGHTS).is_file()
    stored = open_folder(folder, PICKLED if pickled else WEIGHTS)
    about = files.read_json(base / huggingface.CONFIG)
    if task := _TASKS.get(values.get('task_type')):
        about['architectures'] = [task]
    naming = huggingface.naming_of(about, str(base / huggingface.CONFIG))
    whole = {_plain(naming, x.removeprefix(_FIRST)): x for x in stored}
    [words] = names_of(naming.encoder['word_embeddings'][0])
    if words in whole:  # new tokens
        about['vocab_size'] = len(stored[whole[words]])
    for name, head in naming.heads.items():
        if HEADS[name].labelled and 'kernel' in head:
            [kernel] = names_of(head['kernel'][0])
            if kernel in whole:
                about = _with_classes(about, len(stored[whole[kernel]]))
    source = huggingface.read(base, about, folder)
    if unknown := [x for x in values if x not in KEYS and values[x]]:
        source.tokenizer.notes.append(
            f'nothing here knows {", ".join(sorted(unknown))} of {where}'
        )
    readers = _merged(source, folder, stored, values)
    source = dataclasses.replace(
        source, where=str(folder), tensors=Tensors(readers, str(folder))
    )
    copies = [x for x, of in naming.copies.items() if of == f'{{p}}{words}']
    tables = [stored[whole[x]] for x in (words, *copies) if x in whole]
    alike = [np.array_equal(table, tables[0]) for table in tables]
    if tables and not (all(alike) and len(alike) == 1 + len(copies)):
        source = _without_words(source, copies)
    return source


def _without_words(
    source: EncoderSource, copies: Sequence[str]
) -> EncoderSource:
    """Removes heads that score tokens, whose table is no longer that of the
    encoder.

    Args:
        source: a public encoder.
        copies: names of the heads' tables.
    """
    heads, gone = dict(source.naming.heads), {*copies}
    words = [heads.pop(x) for x in [*heads] if HEADS[x].scores_tokens]
    others = {x for head in heads.values() for x in names_in(head)}
    gone |= {x for head in words for x in names_in(head)} - others
    gone |= {x for x, of in source.naming.copies.items() if of in gone}
    names = _plain_names(source.naming, source.tensors)
    source.tokenizer.notes.append(
        'without the head that scores tokens: the adapters come with another '
        'table of tokens than it has (modules_to_save)'
    )
    return dataclasses.replace(
        source,
        tensors=source.tensors.without({names[x] for x in gone & {*names}}),
        tied=None,
        naming=source.naming._replace(heads=heads),
    )


def _with_classes(about: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Returns a config.json with so many classes, new names being numbers."""
    if count == len(huggingface.labels_of(about)):
        return dict(about)
    return {**about, 'id2label': {str(i): f'LABEL_{i}' for i in range(count)}}


def _merged(
    source: EncoderSource,
    folder: pathlib.Path,
    stored: Tensors,
    values: Mapping[str, Any],
) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that read each weight, by name in the base."""
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
                    _sum,
                    readers[plain[weight]],
                    stored,
                    pair=pair,
                    values=values,
                    turned=_is_turned(source.naming, weight),
                    where=source.where,
                )
        elif 'lora_' in bare:
            of_table = 'lora_embedding_' in bare
            key = 'target_modules names a table: ' if of_table else ''
            raise errors.InputError(
                'unknown_adapter_weight',
                f'{folder} holds {bare} ({key}no kernel of a layer), which is '
                f'not merged here{_ADVICE}',
            )
        else:
            here = plain.get(_plain(source.naming, bare), bare)
            readers[here] = functools.partial(stored.__getitem__, name)
    return readers


def _plain(naming: Naming, name: str) -> str:
    """Returns a name as a model without a head has the name today."""
    for old, new in naming.old.items():
        name = re.sub(old, new, name)
    longest = sorted(naming.prefixes, key=len, reverse=True)
    first = next((x for x in longest if name.startswith(x)), '')
    return name.removeprefix(first)


def _plain_names(naming: Naming, tensors: Tensors) -> dict[str, str]:
    return {_plain(naming, name): name for name in tensors}


def _is_turned(naming: Naming, name: str) -> bool:
    """Tells whether a kernel lies as [in, out], as GPT-2's do."""
    for theirs, form in naming.layer.values():
        patterns = (
            re.escape(x).replace(r'\{i\}', r'\d+') for x in names_of(theirs)
        )
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            return form is SAME
    return False


def _sum(
    read: Callable[[], np.ndarray],
    stored: Tensors,
    pair: list[str],
    values: Mapping[str, Any],
    turned: bool,
    where: str,
) -> np.ndarray:
    """Adds a product, scaled, to a weight [out, in], or [in, out] if turned."""
    weight, (a, b) = np.asarray(read(), np.float32), (stored[x] for x in pair)
    root = math.sqrt if values.get('use_rslora') else float
    change = values['lora_alpha'] / root(len(a)) * (b @ a)
    if turned:
        change = change.T
    if change.shape != weight.shape:
        raise errors.InputError(
            'adapter_of_other_shape',
            f'{pair[0]} and {pair[1]} change a weight of the shape '
            f'{change.shape}; in {where} it has {weight.shape}',
        )
    return weight + change


def write(
    folder: pathlib.Path, loaded: Loaded, workdir: pathlib.Path
) -> list[str]:
    """Writes a workdir of adapters as a folder that PEFT loads.

    Args:
        folder: path to write to.
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
    naming, about = huggingface.named(loaded)
    heads = huggingface.heads_of(loaded)
    heads = {k: row for k, row in heads.items() if row in loaded.config.rows}
    naming, rows = naming.at(heads), list(heads.values())
    stored = files.open_tensors(workdir / config.WEIGHTS)
    prefix = naming.prefixes[0 if heads else -1]
    layers = loaded.encoder.arguments['layers']
    of_encoder: list[mapping.Line] = []
    of_heads: list[mapping.Line] = []
    for line in mapping.lines(naming, prefix, layers, rows):
        is_head = line.ours.startswith('objectives/')
        (of_heads if is_head else of_encoder).append(line)
    adapted, targets = _adapter_tensors(
        of_encoder, loaded, stored=stored, adapter=adapter, workdir=workdir
    )
    tensors, whole = _head_tensors(of_heads, loaded, stored, prefix)
    written = {line.ours for line in of_heads}
    tensors |= adapted
    base = _public_base(workdir, adapter)
    task = next((HEADS[name].task for name in TASKS if name in heads), None)
    values = {
        'peft_type': 'LORA',
        'task_type': task,
        'r': adapter.rank,
        'lora_alpha': adapter.alpha,
        'lora_dropout': 0.0,
        'target_modules': targets,
        'modules_to_save': whole or None,
        'base_model_name_or_path': base,
        'inference_mode': True,
    }
    files.write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})
    files.write_json(folder / ADAPTER, values)
    dropped = [
        f'the row {row}{huggingface.why(row, loaded, about["model_type"])}'
        for row in huggingface.lacking(loaded, rows)
    ] + huggingface.unwritten(loaded, rows)
    if not base:
        dropped.append(
            'the base: write it with --format=huggingface and name that folder '
            f'in {ADAPTER} (base_model_name_or_path)'
        )
    for row in rows:
        for path in stored:
            if path.startswith(f'objectives/{row}/') and (
                path not in written and np.any(stored[path])
            ):
                dropped.append(f'{path.split("/")[-1]} of the row {row}')
        dropped += _of_config(loaded, row)
    if loaded.config.labels:
        dropped.append('the names of the labels')
    if adapter.frozen == adapters.NARROW:
        dropped.append(f'that the base was rounded to {adapters.NARROW}')
    return dropped


def _of_config(loaded: Loaded, row: str) -> list[str]:
    """Describes settings of a row that config.json of the base would need."""
    settings = loaded.config.rows[row].settings
    lacking = [
        text for setting, text in _OF_CONFIG.items()
        if settings.get(setting) in (True, FIRST)
    ]  # fmt: skip
    if 'numbers' in TABLE[row].answers:
        lacking.append('that the score is a number (problem_type)')
    return lacking


def _adapter_tensors(
    lines: Sequence[mapping.Line],
    loaded: Loaded,
    stored: Mapping[str, np.ndarray],
    adapter: config.AdapterConfig,
    workdir: pathlib.Path,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Collects the adapters of the encoder by the names of PEFT.

    Args:
        lines: names of the encoder's weights.
        loaded: the workdir, adapters folded.
        stored: tensors of the workdir, adapters apart.
        adapter: settings of the adapters.
        workdir: its folder, for messages.

    Returns:
        Tensors by name; and the names of the modules that have adapters.
    """
    variables = loaded.model.variables
    shapes = {path: tuple(x.shape) for path, x in variables.items()}
    tensors, targets = {}, []
    for line in lines:
        parts = adapters.parts_of(line.ours, shapes, 'all')
        chosen = adapters.parts_of(line.ours, shapes, adapter.where)
        if not chosen:
            continue
        arrays = line.form.write(
            variables[line.ours].numpy(), loaded.encoder.arguments['heads']
        )
        inputs = shapes[line.ours][0]
        if [x.shape for x in arrays] != [(p.width, inputs) for p in parts]:
            raise errors.InputError(
                'adapters_of_parts',
                f'{" and ".join(line.theirs)} cannot have adapters like those '
                f'of {line.ours} in {workdir}; write the model with '
                '--format=huggingface',
            )
        for name, part in zip(line.theirs, parts, strict=True):
            if part not in chosen:
                continue
            module = name.removesuffix('.weight')
            targets.append(module)
            paths = adapters.paths_of(line.ours, part)
            for letter, path in zip('AB', paths, strict=True):
                key = f'{_FIRST}{module}.lora_{letter}.weight'
                tensors[key] = stored[path].T
    return tensors, targets


def _head_tensors(
    lines: Sequence[mapping.Line],
    loaded: Loaded,
    stored: Mapping[str, np.ndarray],
    prefix: str,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Collects the weights of heads, which PEFT saves whole.

    Args:
        lines: names of the heads' weights.
        loaded: the workdir.
        stored: tensors of the workdir.
        prefix: beginning of the encoder's names.

    Returns:
        Tensors by name; and names of the modules.
    """
    tensors: dict[str, np.ndarray] = {}
    modules: dict[str, None] = {}
    for line in lines:
        arrays = line.form.write(
            stored[line.ours], loaded.encoder.arguments['heads']
        )
        for name, array in zip(line.theirs, arrays, strict=True):
            tensors[f'{_FIRST}{name}'] = array
            modules[name.removeprefix(prefix).partition('.')[0]] = None
    return tensors, list(modules)


def _public_base(workdir: pathlib.Path, adapter: config.AdapterConfig) -> str:
    """Returns the public folder that a run began with, as people typed the
    name; '': a workdir.
    """
    flags = workdir / 'flags.txt'
    lines = flags.read_text('utf-8').splitlines() if flags.is_file() else []
    for line in lines:
        name, _, value = line.partition('=')
        base = pathlib.Path(value).name
        if name == '--init' and base != pathlib.Path(adapter.base).name:
            return value
    return ''
