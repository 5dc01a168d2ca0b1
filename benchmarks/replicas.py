"""What replicas cost: the same global batch on one device and on several.

    python -m benchmarks.replicas --workdir=runs/replicas

Each round trains the flagfile once on one device, on two and four logical
devices of a CPU, and by two workers, each in a process of its own (turns.py).
On as many cores replicas do the same work, so that what is slower than one is
their exchange, what smaller products lose, and that each updates all weights.
"""

import pathlib
import shutil
import statistics
from collections.abc import Callable

from absl import flags

from benchmarks import report, turns
from benchmarks.kept import ROOT, Used, records_of, run
from infoword_tf import commands

FLAGFILE = flags.DEFINE_string(
    'trained', str(ROOT / 'tasks' / 'flags' / 'mlm_mini.flags'),
    'The flagfile.')
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Of all of them.', lower_bound=1)
STEPS = flags.DEFINE_integer('steps', 60, 'Of each.', lower_bound=12)
WORKDIR = flags.DEFINE_string('workdir', None, 'Where runs go; it is emptied.')
TRAIN = 'infoword_tf.train'
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
    workdir = folder / name.replace(' ', '_')
    every = STEPS.value // 6

    def train() -> tuple[dict[str, float], Used]:
        shutil.rmtree(workdir, ignore_errors=True)
        used = run(
            module, workdir.with_suffix('.log'), *given,
            f'--flagfile={FLAGFILE.value}', f'--steps={STEPS.value}',
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
    record = turns.compete(
        [turns.Whole(name, turn(name, folder)) for name in WAYS],
        'steps',
        [{}] * ROUNDS.value,
    )
    report.show(record)


if __name__ == '__main__':
    commands.start(main)
