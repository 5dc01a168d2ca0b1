"""Records of every case of tests/zoo.py: python -m tests.recorded

Views, names and shapes of weights, and outcomes on fixed weights. A change of
one of these changes models that people have trained, so tests/recorded.json is
written anew only where that is meant.
"""

import json
import pathlib
import zlib
from typing import Any

import numpy as np

from infoword_tf import views
from infoword_tf.choices import RunChoices, flags_of
from tests import eager, zoo

PATH = pathlib.Path(__file__).with_suffix('.json')
SEEDS = range(3)


def flags() -> dict[str, Any]:
    """Returns the default of each flag of the trainer, settings aside."""
    choices = RunChoices()
    flags = {x: getattr(choices, x) for x in sorted(flags_of(RunChoices))}
    return json.loads(json.dumps(flags))


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
        return {'flags': flags(), **{name: case(name) for name in zoo.CASES}}


if __name__ == '__main__':
    eager.keys_at_once()
    PATH.write_text(json.dumps(recorded(), indent=0, sort_keys=True) + '\n')
