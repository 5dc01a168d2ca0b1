"""Records of every case of tests/zoo.py: python -m tests.recorded

Views, names and shapes of weights, and outcomes on fixed weights; defaults and
bounds of all flags and settings. A change of one of these changes models that
people have trained, or what a command does, so tests/recorded.json is written
anew only where that is meant.
"""

import dataclasses
import importlib
import json
import pathlib
import zlib
from typing import Any

import numpy as np

from infoword_tf import views
from infoword_tf.__main__ import COMMANDS
from infoword_tf.choices import Flag, RunChoices, flags_of
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import TABLE
from infoword_tf.settings import Setting
from tests import eager, zoo

PATH = pathlib.Path(__file__).with_suffix('.json')
SEEDS = range(3)


def flags() -> dict[str, Any]:
    """Returns the default of each flag of the trainer, settings aside."""
    choices = RunChoices()
    flags = {x: getattr(choices, x) for x in sorted(flags_of(RunChoices))}
    return json.loads(json.dumps(flags))


def bounds() -> dict[str, str]:
    """Returns default and bounds of all flags and settings, by name.

    Flags of the trainer are in `flags` too, which old flagfiles name.
    """
    kinds = {RunChoices}
    for module, _ in COMMANDS.values():
        if module != 'infoword_tf.train':  # whose choices are RunChoices
            kinds |= {
                x for x in vars(importlib.import_module(module)).values()
                if isinstance(x, type) and x.__module__ == module
                and dataclasses.is_dataclass(x)
            }  # fmt: skip
    entries = {
        f'{kind.__name__}.{name}': _described(getattr(kind, name), flag)
        for kind in kinds for name, (_, flag) in flags_of(kind).items()
    }  # fmt: skip
    for table in (TABLE, ENCODERS):
        entries |= {
            f'{entry}.{name}': _described(setting.default, setting)
            for entry, each in table.items()
            for name, setting in each.settings.items()
        }
    for row, each in TABLE.items():
        of = each.objective
        entries[row] = f'bounded={of.bounded}, ranked={of.ranked}'
    return entries


def _described(default: Any, of: Any) -> str:
    """Formats a default, and what a `Flag` or `Setting` says but its help."""
    if isinstance(of, Flag):
        values, usual = of._asdict(), Flag('')._asdict()
    else:
        values, usual = vars(of), vars(Setting(None, ''))
    parts = [
        f'{name}={value}' for name, value in values.items()
        if name not in ('default', 'help') and value != usual[name]
    ]  # fmt: skip
    return ', '.join([str(default), *parts])


def case(name: str) -> dict[str, Any]:
    """Returns checksums of integers and texts, and numbers as they are."""
    whole, real = 0, []
    for seed in SEEDS:
        flat = views.flatten(zoo.make_views(name, 8, seed))
        for key in sorted(flat):
            array = np.ascontiguousarray(flat[key])
            whole = zlib.crc32(f'{key} {array.shape}'.encode(), whole)
            if array.dtype.kind == 'f':
                real.append(float(array.sum(dtype=np.float64)))
            else:
                whole = zlib.crc32(array.astype(np.int64).tobytes(), whole)
    model = zoo.make_model(name, rate=0.0)
    weights = {path: list(x.shape) for path, x in model.variables.items()}
    outcomes, _ = model.outcomes(zoo.make_views(name, 8), zoo.statistics())
    return {
        'views': whole,
        'shares': round(sum(real), 3),
        'weights': zlib.crc32(json.dumps(weights, sort_keys=True).encode()),
        'outcomes': {
            row: [float(f'{float(x):.5g}') for x in outcome[:3]]
            for row, outcome in sorted(outcomes.items())
        },
    }


def recorded() -> dict[str, Any]:
    """Returns all that is recorded."""
    with eager.eagerly():
        cases = {name: case(name) for name in zoo.CASES}
        return {'flags': flags(), 'bounds': bounds(), **cases}


if __name__ == '__main__':
    eager.keys_at_once()
    PATH.write_text(json.dumps(recorded(), indent=0, sort_keys=True) + '\n')
