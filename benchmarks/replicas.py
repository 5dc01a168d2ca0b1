"""What replicas cost: the same global batch on one device and on several.

    python -m benchmarks.replicas --workdir=runs/replicas

Each round trains the flagfile once on one device, on two logical devices of a
CPU, and by two workers; a machine's speed drifts, so only ratios within a round
count. On as many cores replicas do the same work, so that what is above 1 is
their exchange, and what smaller products lose.
"""

import itertools
import pathlib
import shutil
import statistics

from absl import flags

from benchmarks.kept import ROOT, records_of, run
from infoword_tf import commands

FLAGFILE = flags.DEFINE_string(
    'trained', str(ROOT / 'tasks' / 'flags' / 'mlm_mini.flags'),
    'The flagfile.')
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Of all of them.', lower_bound=1)
STEPS = flags.DEFINE_integer('steps', 60, 'Of each.', lower_bound=20)
WORKDIR = flags.DEFINE_string('workdir', None, 'Where runs go; it is emptied.')
TRAIN = 'infoword_tf.train'
WAYS = {
    'one': (TRAIN,),
    'two logical devices': (
        TRAIN, '--strategy=mirrored', '--logical_cpus=2',
    ),
    'two workers': (
        'infoword_tf.workers', '--workers=2', '--', TRAIN,
        '--strategy=multiworker',
    ),
}  # fmt: skip


def seconds_of(name: str, folder: pathlib.Path) -> float:
    """A step's seconds, the median over logging steps, the first left out."""
    module, *given = WAYS[name]
    workdir = folder / name.replace(' ', '_')
    shutil.rmtree(workdir, ignore_errors=True)
    every = STEPS.value // 6
    run(
        module, workdir.with_suffix('.log'), *given,
        f'--flagfile={FLAGFILE.value}', f'--steps={STEPS.value}',
        f'--log_every={every}', f'--eval_every={STEPS.value}',
        f'--checkpoint_every={STEPS.value}', f'--workdir={workdir}',
    )  # fmt: skip
    rates = [record['steps_per_second'] for record in records_of(workdir)]
    return 1 / statistics.median(rates[1:])


def main() -> None:
    """Prints a table."""
    commands.require(
        flags.FLAGS.flag_values_dict(), workdir='a folder for the runs'
    )
    folder = pathlib.Path(WORKDIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    names = itertools.cycle(WAYS)
    for _ in range(ROUNDS.value):
        for _ in WAYS:
            name = next(names)
            found[name].append(seconds_of(name, folder))
        next(names)  # another order
        print({k: round(v[-1], 4) for k, v in found.items() if v}, flush=True)
    print('| | s a step | of one device |\n|---|---|---|')
    for name, seconds in found.items():
        ratios = [
            mine / one for mine, one in zip(seconds, found['one'], strict=True)
        ]
        print(
            f'| {name} | {statistics.median(seconds):.3f} | '
            f'{statistics.median(ratios):.2f} '
            f'({min(ratios):.2f}-{max(ratios):.2f}) |'
        )


if __name__ == '__main__':
    commands.start(main)
