"""What replicas cost: the same global batch on one device and on several.

    python -m benchmarks.replicas --workdir=runs/replicas

Each round trains `mlm` by its flagfile once on one device, on two and four
logical devices of a CPU, and by two workers, each in a process of its own
(turns.py), in float32. On as many cores replicas do the same work, so that what
is slower than one is their exchange, what smaller products lose, and that each
updates all weights; the formula (work.py) has the bytes of all replicas'
updates.
"""

import dataclasses
import math
import pathlib
import shutil
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from safetensors import safe_open

from benchmarks import kept, report, turns, work
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.config import Config

TRAIN = 'infoword_tf.train'
BATCH_SIZE, SEQ_LEN = 32, 128
REPLICAS = 1, 2, 4, 2
WAYS = {
    'one device': (TRAIN,),
    '2 logical devices': (TRAIN, '--strategy=mirrored', '--logical_cpus=2'),
    '4 logical devices': (TRAIN, '--strategy=mirrored', '--logical_cpus=4'),
    '2 workers': (
        'infoword_tf.workers', '--workers=2', '--', TRAIN,
        '--strategy=multiworker',
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    size: str = flag(
        'mini', 'Of the encoder, and its flagfile.', choices=('tiny', 'mini')
    )
    rounds: int = flag(3, 'Of all of them.', at_least=1)
    steps: int = flag(60, 'Of each.', at_least=12)
    workdir: str | None = flag(None, 'Where runs go; it is emptied.')


def turn(
    given: Choices, name: str
) -> Callable[[], tuple[dict[str, float], kept.Used]]:
    """Trains one way anew, for `turns.Whole`.

    A step's seconds are the median over logging steps, the first left out.
    """
    module, *more = WAYS[name]
    workdir = workdir_of(given, name)
    every = given.steps // 6
    flagfile = kept.ROOT / 'tasks' / 'flags' / f'mlm_{given.size}.flags'

    def train() -> tuple[dict[str, float], kept.Used]:
        shutil.rmtree(workdir, ignore_errors=True)
        used = kept.run(
            module, workdir.with_suffix('.log'), *more,
            f'--flagfile={flagfile}',
            f'--batch_size={BATCH_SIZE}', f'--seq_len={SEQ_LEN}',
            '--precision=float32', f'--steps={given.steps}',
            f'--log_every={every}', f'--eval_every={given.steps}',
            f'--checkpoint_every={given.steps}', f'--workdir={workdir}',
        )  # fmt: skip
        records = kept.records_of(workdir)
        rates = [record['steps_per_second'] for record in records]
        return {'seconds': 1 / statistics.median(rates[1:]), 'amount': 1}, used

    return train


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Measures, and prints the table."""
    del chosen
    commands.require(vars(given), workdir='a folder for the runs')
    started = [turns.Whole(name, turn(given, name)) for name in WAYS]
    started += [
        turns.step(name, name, precisions='float32')
        for name in (turns.PRODUCTS, turns.COPIES)
    ]
    with turns.ended(started):
        record = turns.compete(started, 'steps', [{}] * given.rounds)
    rates = {
        name: max(turns.best_of(record, name).values())
        for name in (turns.PRODUCTS, turns.COPIES)
    }
    for row, replicas in zip(record['rows'], REPLICAS, strict=True):
        if 'failed' not in row:
            workdir = workdir_of(given, row['name'])
            row |= {**costs(given.size, workdir, replicas), **rates}
    report.show(record)


def workdir_of(given: Choices, name: str) -> pathlib.Path:
    """Where a way is trained."""
    return pathlib.Path(given.workdir) / name.replace(' ', '_')


def costs(size: str, workdir: pathlib.Path, replicas: int) -> dict[str, int]:
    """Operations and bytes of a step, which is a row's amount."""
    config = Config.read(workdir)
    one = work.Work(
        'mlm', size, BATCH_SIZE, SEQ_LEN,
        config.encoder.arguments['vocab_size'],
    )
    batch = one.make_views()
    with safe_open(workdir / 'weights.safetensors', 'numpy') as file:
        weights = sum(
            math.prod(file.get_slice(name).get_shape()) for name in file.keys()
        )
    more = (replicas - 1) * weights * work.OF_WEIGHT
    return {
        'tokens': 1,
        'operations': one.operations(batch),
        'traffic': one.traffic(batch, weights) + more,
    }


if __name__ == '__main__':
    commands.start(run)
