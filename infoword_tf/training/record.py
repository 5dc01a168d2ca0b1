"""The record of a run: what decides its weights, by flag.

A run is resumed only with the flags that it began with. Their effect is what is
compared: a default counts as the value that it stands for.
"""

import json
import pathlib
import types
from collections.abc import Mapping
from typing import Any

from infoword_tf import files
from infoword_tf.checkpoint import last_step
from infoword_tf.choices import (
    BY_LANGUAGE,
    REPEATED,
    RunChoices,
    by_language,
    flags_of,
    given_several,
)
from infoword_tf.config import FILE, WEIGHTS, Config
from infoword_tf.encoders import ENCODERS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import TABLE
from infoword_tf.plan import auxiliaries_of
from infoword_tf.views.masking import MASKED_SHARE

SIZE = 'layers', 'width', 'heads'
# Of a record, beside flags: the fingerprint of the text, of `data.corpora`.
FINGERPRINT = 'corpus (its files, or packages that pydocs reads)'
# Flags that change no weight, but for the order of sums (another number of
# replicas gives other dropout masks, which is reported).
FREE = (
    'workdir',
    'checkpoint_every',
    'keep_checkpoints',
    'log_every',
    'eval_every',
    'strategy',
    'logical_cpus',
    'microbatch',
    'remat',
    'measure',
    'on_nonfinite',
    'rewinds',
    'grace_seconds',
    'data_service',
)


def known_by(folder: str, digest: str | None = None) -> str:
    """What a record says of a workdir that a run reads.

    Args:
        folder: the workdir.
        digest: of its weights; None: they are read.
    """
    digest = digest or files.digest_of(pathlib.Path(folder) / WEIGHTS)
    return f'{folder} (weights {digest})'


def run_record(
    given: RunChoices,
    config: Config,
    warmup_steps: int,
    fingerprint: str,
    vocabulary: str,
    more: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """By flag, all but FREE, its value or what that led to.

    Args:
        given: what was chosen.
        config: that it led to.
        warmup_steps: that it led to.
        fingerprint, vocabulary: of the text.
        more: by flag, what else decides the weights, or what more there is
            to say of such a value.
    """
    record = {
        name: _plain(name, given)
        for name in flags_of(RunChoices)
        if name not in FREE
    }
    arguments = config.encoder.arguments
    record |= _of_encoder(config.encoder.name, arguments) | {
        FINGERPRINT: fingerprint,
        'vocab': f'{given.vocab or "learned"} (text {vocabulary})',
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
        'warmup_steps': warmup_steps,
        'precision': config.precision,
    }
    if given.best:  # one of the held-out values
        record['eval_every'] = given.eval_every
    record |= {
        f'{row}.{name}': value
        for row, entry in config.rows.items()
        for name, value in entry.settings.items()
    }
    record |= _of_workdirs(config) | dict(more)
    return json.loads(json.dumps(record))


def _plain(name: str, given: RunChoices | type[RunChoices]) -> Any:
    """A choice as records have it: of repeated flags what counts, in order."""
    value = getattr(given, name)
    if name == 'corpus_weights':
        return sorted(value)
    if name not in REPEATED:
        return value
    if name in BY_LANGUAGE:
        corpora = by_language(given.corpus)
        found = corpora if name == 'corpus' else by_language(value, corpora)
        several = [f'{k}={x}' if k else x for k, x in found.items()]
    else:
        several = sorted(given_several(value))
    return several[0] if len(several) == 1 else (several or None)


def _of_workdirs(config: Config) -> dict[str, str]:
    """By flag, the workdirs that auxiliary encoders begin with."""
    settings = {row: entry.settings for row, entry in config.rows.items()}
    folders = {x.workdir for x in auxiliaries_of(settings).values()} - {None}
    return {
        f'{row}.{name}': known_by(value)
        for row, own in settings.items()
        for name, value in own.items()
        if isinstance(value, str) and value in folders
    }


def _of_encoder(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """By flag, arguments of an encoder, as by default where none is given."""
    return {
        known.flag: given.get(argument, known.default)
        for argument, known in ENCODERS[name].settings.items()
        if known.flag and argument not in SIZE
    }


def runs(config: Config) -> list[dict[str, Any]]:
    """The records of a run and, following --init, of those it started from.

    The last one is of a run without --init, or of public weights, or its --init
    is no longer there.
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
    """The number of updates that --minutes came to when a run began.

    None: no such run began here, or none that could be resumed (`agree`).

    Args:
        workdir: of the run.
        minutes: that it is to take.
    """
    if not (workdir / FILE).exists():
        return None
    old = Config.read(workdir).run
    if last_step(workdir) is None and old.get('minutes') != minutes:
        return None
    return old.get('steps')


def agree(workdir: pathlib.Path, config: Config, flagfile: str) -> None:
    """Writes config.json and flags.txt, or checks them against the old ones.

    Args:
        workdir: of the run.
        config: of the run, with its record.
        flagfile: the flags that were given.

    Raises:
        UsageError: the workdir is of a run with other flags, or holds weights
            that no run can go on with.
    """
    resumed = last_step(workdir) is not None
    if (workdir / WEIGHTS).exists() and not resumed:
        raise UsageError(
            f'--workdir={workdir} holds weights, and no checkpoint to go on '
            f'from; start from them with --init={workdir} and another '
            '--workdir'
        )
    if (workdir / FILE).exists() and resumed:
        old = Config.read(workdir)
        shared = set(old.rows) & set(config.rows)
        # Choices that are newer than that run were as they are by default.
        own = _of_encoder(config.encoder.name, {})
        begun = {
            name: _plain(name, RunChoices)
            for name in config.run if name in flags_of(RunChoices)
        }  # fmt: skip
        begun |= own
        begun['mask_share'] = MASKED_SHARE if old.masking else None
        for row in shared:
            for name, setting in TABLE[row].settings.items():
                begun[f'{row}.{name}'] = setting.default
        begun = json.loads(json.dumps(begun))  # as a record has them
        begun |= {name: value for name, value in old.run.items()
                  if value is not None or name not in own}  # fmt: skip
        differ = [
            f'--{name} was {begun.get(name)}, is {config.run.get(name)}'
            for name in dict.fromkeys([*config.run, *old.run])
            if begun.get(name) != config.run.get(name)
            # Settings of a row that only one of the two has are no difference.
            and ('.' not in name or name.split('.')[0] in shared)
        ]
        if differ:
            raise UsageError(
                f'{workdir} holds a run with other flags: {"; ".join(differ)}.'
                ' Give this run another --workdir, or the old flags'
            )
        if old.replicas != config.replicas:
            print(
                f'going on with {config.replicas} replicas instead of '
                f'{old.replicas}: dropout masks differ from here',
                flush=True,
            )
    config.write(workdir)
    with files.written(workdir / 'flags.txt') as partial:
        partial.write_text(flagfile)
