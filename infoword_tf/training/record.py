"""The record of a run: by flag, the values that decide its weights.

A run resumes only with the flags that it began with. Compared is the effect of
the flags: a default counts as the value that it stands for, and a precision of
`auto` as what is read off the device when a run begins.
"""

import json
import os
import pathlib
import platform
import re
import types
from collections.abc import Mapping
from typing import Any

from infoword_tf import files
from infoword_tf.adapters import ADAPTER, SETTINGS
from infoword_tf.checkpoint import last_step
from infoword_tf.choices import (
    BY_LANGUAGE,
    REPEATED,
    RunChoices,
    by_language,
    flags_of,
    values_of,
)
from infoword_tf.config import FILE, WEIGHTS, Config
from infoword_tf.encoders import ENCODERS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import TABLE, Auxiliary, flag_of
from infoword_tf.views.masked import MASKED_SHARE

SIZE = 'layers', 'width', 'heads'
# An entry that is no flag: the fingerprint of the text (`data.corpora`).
FINGERPRINT = 'corpus (its files, or packages that pydocs reads)'
# Flags that change no weight except by the order of sums. Another number of
# replicas gives other dropout masks, which is printed.
FREE = (
    'workdir',
    'checkpoint_every',
    'keep_checkpoints',
    'log_every',
    'eval_every',
    'epochs',  # they decide the steps
    'strategy',
    'logical_cpus',
    'microbatch',
    'remat',
    'measure',
    'on_nonfinite',
    'rewinds',
    'grace_seconds',
)
CPUINFO = pathlib.Path('/proc/cpuinfo')
# Products of bfloat16 by Linux's names. Emulated ones are slower than float32.
INSTRUCTIONS = 'amx_bf16', 'avx512_bf16'
CAPABILITY = 8, 0  # of the first GPUs of NVIDIA that have them


def known_by(folder: str, digest: str | None = None) -> str:
    """Describes a workdir that a run reads, by path and weights.

    Args:
        folder: the workdir.
        digest: hash of the weights; None: computed from the file.
    """
    digest = digest or files.digest_of(pathlib.Path(folder) / WEIGHTS)
    return f'{folder} (weights {digest})'


def run_record(
    choices: RunChoices,
    config: Config,
    fingerprint: str,
    vocabulary: str,
    auxiliaries: Mapping[str, Auxiliary] = types.MappingProxyType({}),
    more: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Returns values and decisions by flag, without FREE.

    Args:
        choices: choices of the run.
        config: decided by the choices.
        fingerprint, vocabulary: digests of the text.
        auxiliaries: auxiliary encoders of the rows, by name.
        more: values by flag that decide the weights, too, or are more exact
            than those of `choices`.
    """
    record = {
        name: _plain(name, choices)
        for name in flags_of(RunChoices)
        if name not in FREE
    }
    arguments = config.encoder.arguments
    record |= _of_encoder(config.encoder.name, arguments) | {
        FINGERPRINT: fingerprint,
        'vocab': f'{choices.vocab or "learned"} (text {vocabulary})',
        'vocab_size': arguments['vocab_size'],
        'tokenizer': config.tokenizer.kind,
        'lower_case': config.tokenizer.lower_case,
        'objectives': ','.join(
            f'{row}:{entry.weight:g}' for row, entry in config.rows.items()
        ),
        'masking': config.masking,
        'mask_share': config.mask_share,
        'encoder': config.encoder.name,
        'size': 'x'.join(str(arguments.get(name, 0)) for name in SIZE),
        'dropout': arguments['rate'],
        'memory_length': config.memory_length,
        'precision': config.precision,
    }
    if (adapter := config.adapter) and choices.init:
        sizes = (f'{k} {getattr(adapter, k)}' for k in SETTINGS)
        base = known_by(choices.init, adapter.digest)
        record[ADAPTER] = f'{adapter.kind}, {", ".join(sizes)}, of {base}'
    record |= {
        f'{row}.{name}': value
        for row, entry in config.rows.items()
        for name, value in entry.settings.items()
    }
    record |= _of_workdirs(config, auxiliaries) | dict(more)
    return json.loads(json.dumps(record))


def _plain(name: str, choices: RunChoices | type[RunChoices]) -> Any:
    """Returns a choice for the record; values of repeated flags are sorted."""
    value = getattr(choices, name)
    if name == 'corpus_weights':
        return sorted(value)
    if name not in REPEATED:
        return value
    if name in BY_LANGUAGE:
        named = by_language(choices.corpus)
        if name != 'corpus':
            named = by_language(value, named)
        several = [f'{k}={x}' if k else x for k, x in named.items()]
    else:
        several = sorted(values_of(value))
    return several[0] if len(several) == 1 else (several or None)


def _of_workdirs(
    config: Config, auxiliaries: Mapping[str, Auxiliary]
) -> dict[str, str]:
    """Describes, by flag, the workdirs that auxiliary encoders begin with."""
    folders = {x.workdir for x in auxiliaries.values()} - {None}
    return {
        f'{row}.{name}': known_by(value)
        for row, entry in config.rows.items()
        for name, value in entry.settings.items()
        if isinstance(value, str) and value in folders
    }


def _of_encoder(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of an encoder by flag, defaults included."""
    return {
        known.flag: arguments.get(argument, known.default)
        for argument, known in ENCODERS[name].settings.items()
        if known.flag and argument not in SIZE
    }


def runs(config: Config) -> list[dict[str, Any]]:
    """Returns the records of a run and, following --init, of earlier runs.

    The last record is of a run without --init, of public weights, or of a run
    whose --init is gone.
    """
    records, seen = [config.run], set()
    while (init := records[-1].get('init')) and init not in seen:
        seen.add(init)
        try:
            records.append(Config.read(init).run)
        except (OSError, ValueError):
            break
    return records


def begun_steps(workdir: pathlib.Path, minutes: float) -> int | None:
    """Returns the number of updates of a run that began with --minutes.

    None: no such run began in the workdir, or it cannot be resumed.

    Args:
        workdir: folder of the run.
        minutes: training time of the run.
    """
    if not (workdir / FILE).exists():
        return None
    old = Config.read(workdir).run
    if last_step(workdir) is None and old.get('minutes') != minutes:
        return None
    return old.get('steps')


def instructions() -> frozenset[str] | None:
    """Returns the processor's instruction sets by Linux's names; None: unknown.
    """
    try:
        text = CPUINFO.read_text(errors='replace')
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(':')
        if name.strip() in ('flags', 'Features'):  # of x86, of ARM
            return frozenset(value.split())
    return None


def _of_processor() -> tuple[str, bool]:
    """Describes the processor; and whether bfloat16 is multiplied natively."""
    known = instructions()
    if known is None:
        return 'what the processor can do cannot be read here', False
    names = [name for name in INSTRUCTIONS if name in known]
    if not names:
        return f'the processor has no {" and no ".join(INSTRUCTIONS)}', False
    return f'the processor has {" and ".join(names)}', True


def processor_name() -> str:
    """Names the processor, with the number of cores."""
    try:
        text = CPUINFO.read_text(errors='replace')
    except OSError:
        text = ''
    names = re.findall(r'^model name\s*: (.*)', text, re.MULTILINE)
    name = names[0] if names else platform.machine()
    return f'{name}, {os.cpu_count()} cores'


def faster_in_bfloat16(how: str) -> str:
    """Describes how to answer faster; '' where float32 is as fast.

    Args:
        how: words that say how to choose bfloat16.
    """
    device_is, native = _of_processor()
    if not native:
        return ''
    return f'precision: {device_is}: faster {how}, see docs/serving.md'


def _of_gpus() -> tuple[str, bool]:
    """Describes the weakest visible GPU, as `_of_processor`."""
    import tensorflow as tf

    details = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.get_visible_devices('GPU')
    ]
    weakest = min(details, key=lambda x: x.get('compute_capability', (0, 0)))
    name = weakest.get('device_name', 'a GPU')
    capability = weakest.get('compute_capability')
    if capability is None:
        return f'{name} says no compute capability', False
    words = '.'.join(map(str, capability))
    return f'{name} has compute capability {words}', capability >= CAPABILITY


def faster_precision(device: str | None = None) -> str:
    """Returns 'mixed_bfloat16' if the device multiplies bfloat16 natively.

    Read off the device, never timed: timing would depend on whatever else runs,
    and the same command on the same machine is the same run.
    """
    import tensorflow as tf

    if device is not None:
        kind = tf.DeviceSpec.from_string(device).device_type
    else:
        kind = 'GPU' if tf.config.get_visible_devices('GPU') else 'CPU'
    if kind == 'TPU':
        device_is, native = 'a TPU multiplies bfloat16', True
    else:
        device_is, native = (
            _of_gpus() if kind == 'GPU' else _of_processor()
        )
    chosen = 'mixed_bfloat16' if native else 'float32'
    print(f'precision: {device_is}: {chosen}', flush=True)
    return chosen


def decide_precision(chosen: str, workdir: pathlib.Path, device: str) -> str:
    """Returns the dtype policy; decides `auto` once for a workdir."""
    if chosen != 'auto':
        return chosen
    if (workdir / FILE).exists():
        return Config.read(workdir).precision
    return faster_precision(device)


def write_or_compare(
    workdir: pathlib.Path, config: Config, flagfile: str
) -> None:
    """Writes config.json and flags.txt; when resumed, compares config.json.

    A run that has ended stays as it is: exports know it by its config.json.

    Args:
        workdir: folder of the run.
        config: content of config.json, with the record.
        flagfile: the explicit flags.

    Raises:
        UsageError: the workdir is of a run with other flags, or holds weights
            without a checkpoint.
    """
    resumed = last_step(workdir) is not None
    if (workdir / WEIGHTS).exists() and not resumed:
        raise UsageError(
            'weights_without_checkpoint',
            f'--workdir={workdir} holds weights, and no checkpoint to go on '
            f'from; start from them with --init={workdir} and another '
            '--workdir',
        )
    if (workdir / FILE).exists() and resumed:
        old = Config.read(workdir)
        shared = set(old.rows) & set(config.rows)
        # Choices that are newer than the old run had their defaults in it.
        of_encoder = _of_encoder(config.encoder.name, {})
        before = {
            name: _plain(name, RunChoices)
            for name in config.run if name in flags_of(RunChoices)
        }  # fmt: skip
        before |= of_encoder
        before['mask_share'] = MASKED_SHARE if old.masking else None
        for row in shared:
            for name, setting in TABLE[row].settings.items():
                before[f'{row}.{name}'] = setting.default
        before = json.loads(json.dumps(before))  # as a record has them
        before |= {name: value for name, value in old.run.items()
                   if value is not None or name not in of_encoder}  # fmt: skip
        differ = {  # of a view once
            f'--{flag_of(*name.split(".")) if "." in name else name} was '
            f'{before.get(name)}, is {config.run.get(name)}': None
            for name in dict.fromkeys([*config.run, *old.run])
            if before.get(name) != config.run.get(name)
            # A row that only one of the runs has is compared by `objectives`.
            and ('.' not in name or name.split('.')[0] in shared)
        }
        if differ:
            raise UsageError(
                'run_other_flags',
                f'{workdir} holds a run with other flags: {"; ".join(differ)}.'
                ' Give this run another --workdir, or the old flags',
            )
        if (workdir / 'metrics.json').is_file():
            return
        if old.replicas != config.replicas:
            print(
                f'going on with {config.replicas} replicas instead of '
                f'{old.replicas}: dropout masks differ from here',
                flush=True,
            )
    config.write(workdir)
    with files.written(workdir / 'flags.txt') as partial:
        partial.write_text(flagfile)
