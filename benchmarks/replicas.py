"""What replicas cost: the same global batch on one device and on several.

    python -m benchmarks.replicas --workdir=runs/replicas

Each round trains `mlm` by its flagfile once on one device, on two and four
logical devices of a CPU, and by two workers, each in a process of its own
(turns.py), in float32. On as many cores replicas do the same work, so that what
is slower than one is their exchange, what smaller products lose, and that each
updates all weights; the formula (work.py) has the bytes of all replicas'
updates.
"""

import math
import pathlib
import shutil
import statistics
from collections.abc import Callable

from absl import flags
from safetensors import safe_open

from benchmarks import report, turns, work
from benchmarks.kept import ROOT, Used, records_of, run
from infoword_tf import commands
from infoword_tf.config import Config

SIZE = flags.DEFINE_enum(
    'size', 'mini', ['tiny', 'mini'], 'Of the encoder, and its flagfile.')
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Of all of them.', lower_bound=1)
STEPS = flags.DEFINE_integer('steps', 60, 'Of each.', lower_bound=12)
WORKDIR = flags.DEFINE_string('workdir', None, 'Where runs go; it is emptied.')
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


def turn(
    name: str, folder: pathlib.Path
) -> Callable[[], tuple[dict[str, float], Used]]:
    """Trains one way anew, for `turns.Whole`.

    A step's seconds are the median over logging steps, the first left out.
    """
    module, *given = WAYS[name]
    workdir = workdir_of(folder, name)
    every = STEPS.value // 6

    def train() -> tuple[dict[str, float], Used]:
        shutil.rmtree(workdir, ignore_errors=True)
        used = run(
            module, workdir.with_suffix('.log'), *given,
            f'--flagfile={ROOT / "tasks" / "flags"}/mlm_{SIZE.value}.flags',
            f'--batch_size={BATCH_SIZE}', f'--seq_len={SEQ_LEN}',
            '--precision=float32', f'--steps={STEPS.value}',
            f'--log_every={every}', f'--eval_every={STEPS.value}',
            f'--checkpoint_every={STEPS.value}', f'--workdir={workdir}',
        )  # fmt: skip
        rates = [record['steps_per_second'] for record in records_of(workdir)]
        return {'seconds': 1 / statistics.median(rates[1:]), 'amount': 1}, used

    return train


def main() -> None:
    """Prints a table."""
    commands.require(
        flags.FLAGS.flag_values_dict(), workdir='a folder for the runs'
    )
    folder = pathlib.Path(WORKDIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    started = [turns.Whole(name, turn(name, folder)) for name in WAYS]
    started += [
        turns.step(name, name, precisions='float32')
        for name in (turns.PRODUCTS, turns.COPIES)
    ]
    with turns.ended(started):
        record = turns.compete(started, 'steps', [{}] * ROUNDS.value)
    rates = {
        name: max(turns.best_of(record, name).values())
        for name in (turns.PRODUCTS, turns.COPIES)
    }
    for row, replicas in zip(record['rows'], REPLICAS, strict=True):
        if 'failed' not in row:
            row |= {**costs(workdir_of(folder, row['name']), replicas), **rates}
    report.show(record)


def workdir_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where a way is trained."""
    return folder / name.replace(' ', '_')


def costs(workdir: pathlib.Path, replicas: int) -> dict[str, int]:
    """Operations and bytes of a step, which is a row's amount."""
    config = Config.read(workdir)
    one = work.Work(
        'mlm', SIZE.value, BATCH_SIZE, SEQ_LEN,
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
    commands.start(main)
