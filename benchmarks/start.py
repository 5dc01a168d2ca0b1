r"""What a run takes before its first step, and beside its steps.

    python -m benchmarks.start --workdir=runs/start

Processes of their own make one step each, in turns: of a run that begins, and
of one that goes on from a checkpoint of a late step. The table has seconds of
processor time, which other processes hardly change, medians over the rounds:

    imports    of TensorFlow, Keras and what is ours
    text       opening the text and its tokenizer, which are in the cache
    build      the model, its optimizer, held-out views
    restoring  a checkpoint
    tracing    the graph of a step
    compiling  the rest of the first step: TensorFlow's optimizer of graphs,
               XLA's kernels, the step
    heldout    the first evaluation
    rest       all else, the end of the process too

Then steps at a larger size are made by a run, with its batches, its logging and
its events, and by its trainer alone on one batch: what the first take longer is
the host's share of a step, and what of that is no waiting for batches stands
beside it. This is of time that passes, so nothing else should run then. The
last line is all of it, one JSON object.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report, turns
from benchmarks.kept import ROOT
from infoword_tf import checkpoint, commands, files
from infoword_tf.choices import flag

SMALL = '--batch_size=16', '--seq_len=64'
FULL = '--batch_size=32', '--seq_len=128'
# As tables call what is measured.
STAGES = {
    'imports': 'imports',
    'text': 'text',
    'build': 'model',
    'restoring': 'checkpoint',
    'tracing': 'tracing the step',
    'compiling': 'optimizing its graph, compiling kernels, the step',
    'heldout': 'held-out text, for the first time',
    'rest': 'all else, the end too',
    'whole': 'whole',
}
CHILD = (
    'import json, sys; from benchmarks import start; '
    'start.measured(*json.loads(sys.argv[1]))'
)
# What XLA says when it has compiled: how many were, and for how long in all.
COMPILED = re.compile(
    r'XLA executable time.*cumulative: ([\d.]+) (ms|s|min).*#called: (\d+)'
)
SECONDS = {'ms': 1e-3, 's': 1.0, 'min': 60.0}


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    workdir: str | None = flag(None, 'Where runs go; it is emptied.')
    objectives: str = flag('infoword', 'Rows.')
    corpus: str = flag('pydocs', 'As of infoword_tf.train.')
    size: str = flag('tiny', 'Of the runs of one step.')
    rounds: int = flag(3, 'Runs of each kind.', at_least=1)
    late: int = flag(
        1_000_000, 'The step from which runs go on.', at_least=2
    )
    larger: str = flag(
        'mini', "Of the run whose steps are timed; '': none is."
    )
    steps: int = flag(
        20, 'Between two logging steps of the larger run.', at_least=1
    )
    loops: int = flag(5, 'Logging steps of the larger run.', at_least=2)


# ------------------------------------------------------- in a process of a run


def measured(arguments: Sequence[str], loops: int = 0) -> None:
    """`python -m infoword_tf.train` in this process, and what it took.

    Args:
        arguments: its flags.
        loops: how many times as many steps as between two logging steps the
            trainer makes afterwards, on one batch.

    Prints JSON: seconds of the processor by stage; with loops those that
    passed too: 'run', from a logging step to the next, 'outside', what of that
    was outside the graph of the steps, and 'alone'.
    """
    commands.own_process()
    took: dict[str, float] = {}
    ends, inside, trainers = [], [], []
    import infoword_tf
    from infoword_tf.choices import RunChoices

    given = commands.parse(RunChoices, arguments)
    os.environ['KERAS_BACKEND'] = 'tensorflow'
    from infoword_tf.training import fit, loop, run

    took['imports'] = time.process_time()

    def timed(owner: Any, name: str, stage: str) -> None:
        """The first call of a function is a stage."""
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                took.setdefault(stage, time.process_time() - began)

        setattr(owner, name, do_not_convert(call))

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            found = function(self, *args)
            ends.append(time.monotonic())
            trainers[:] = [self.trainer]
            return found

        return call

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.monotonic()
            found = function(*args)
            inside.append(time.monotonic() - began)
            return found

        return call

    do_not_convert = run.tf.autograph.experimental.do_not_convert
    timed(run.Run, 'open_text', 'text')
    timed(run.Run, 'build', 'build')
    timed(checkpoint.Checkpoints, 'restore', 'restoring')
    timed(loop.Trainer, 'train_step', 'tracing')
    timed(loop.Trainer, 'train', 'compiling')
    loop.Trainer.train = clocked(loop.Trainer.train)
    for kind in (loop.Heldout, loop.HeldoutParts):
        timed(kind, 'evaluate', 'heldout')
    fit.Fit._act = noted(fit.Fit._act)
    infoword_tf.train(**given)
    took['compiling'] -= took['tracing']
    found: dict[str, Any] = {'stages': took}
    if loops:
        (trainer,) = trainers
        # What the first one compiles, and what the last one evaluates.
        lasted = [b - a for a, b in itertools.pairwise(ends)][:-1]
        found['run'] = lasted
        found['outside'] = [
            whole - steps
            for whole, steps in zip(lasted, inside[1:], strict=False)
        ]
        found['alone'] = _alone(trainer, given['log_every'], loops)
    print(json.dumps(found), flush=True)


def _alone(trainer: Any, steps: int, loops: int) -> list[float]:
    """Seconds of so many steps at a time, on one batch."""
    import tensorflow as tf

    one = next(iter(trainer.train_dataset))
    trainer.begin_again(tf.data.Dataset.from_tensors(one).repeat())
    trainer.train(tf.constant(steps))
    found = []
    for _ in range(loops):
        began = time.monotonic()
        trainer.train(tf.constant(steps))
        found.append(time.monotonic() - began)
    return found


# ---------------------------------------------------------------- the command


def call(log: pathlib.Path, *more: Any) -> dict[str, Any]:
    """What `measured` prints in a process of its own, and what that took.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    environment = {
        **os.environ,
        'PYTHONPATH': str(ROOT),
        'TF_CPP_MIN_LOG_LEVEL': '0',
        'TF_CPP_VMODULE': 'device_compiler=1',
    }
    with open(log, 'w') as out, open(f'{log}.errors', 'w') as errors:
        process = subprocess.Popen(
            [sys.executable, '-c', CHILD, json.dumps(more)],
            stdout=out, stderr=errors, env=environment,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = pathlib.Path(f'{log}.errors').read_text(errors='replace')
    if process.returncode:
        raise RuntimeError(f'{log}: {said[-1000:]}')
    found = json.loads(log.read_text().splitlines()[-1])
    stages = found['stages']
    whole = usage.ru_utime + usage.ru_stime
    stages['rest'] = whole - sum(stages.values())
    stages['whole'] = whole
    compiled = COMPILED.findall(said)
    found['kernels'] = int(compiled[-1][2]) if compiled else 0
    if compiled:
        value, unit, _ = compiled[-1]
        found['kernel_seconds'] = float(value) * SECONDS[unit]
    return found


def make_late(workdir: pathlib.Path, late: int) -> None:
    """Makes the checkpoint of a first step that of a late one."""
    path = workdir / checkpoint.FOLDER / checkpoint.PATTERN.format(1)
    tensors = files.read_tensors(path)
    tensors[checkpoint.STEP] = tensors[checkpoint.STEP] * 0 + late
    files.write_tensors(
        path.with_name(checkpoint.PATTERN.format(late)), tensors
    )
    path.unlink()


def one_step(
    given: Choices, folder: pathlib.Path, late: int | None
) -> dict[str, Any]:
    """What a run of one step takes, which begins or goes on from `late`."""
    workdir = folder / 'run'
    shutil.rmtree(workdir, ignore_errors=True)
    arguments = [
        f'--objectives={given.objectives}', f'--size={given.size}', *SMALL,
        f'--corpus={given.corpus}', f'--workdir={workdir}', '--log_every=1',
        '--checkpoint_every=1',
    ]  # fmt: skip
    if late is None:
        return call(folder / 'fresh.log', [*arguments, '--steps=1'])
    longer = [*arguments, f'--steps={late + 1}']
    begin_long(longer, workdir)
    make_late(workdir, late)
    return call(folder / 'resumed.log', longer)


def begin_long(arguments: Sequence[str], workdir: pathlib.Path) -> None:
    """A run that is told to stop as soon as it has a checkpoint."""
    process = subprocess.Popen(
        [sys.executable, '-m', 'infoword_tf.train', *arguments],
        stdout=subprocess.DEVNULL,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
    )
    first = workdir / checkpoint.FOLDER / checkpoint.PATTERN.format(1)
    try:
        while process.poll() is None and not first.exists():
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    if not first.exists():
        raise RuntimeError(f'{workdir}: the run to go on from failed')
    for path in first.parent.iterdir():
        if path != first:
            path.unlink()


def timed_steps(given: Choices, folder: pathlib.Path) -> dict[str, Any]:
    """Milliseconds of a step in a run and of its trainer, and their shares."""
    workdir = folder / 'steps'
    shutil.rmtree(workdir, ignore_errors=True)
    every = given.steps
    steps = every * (given.loops + 2)
    found = call(
        folder / 'steps.log',
        [f'--objectives={given.objectives}', f'--size={given.larger}', *FULL,
         f'--corpus={given.corpus}', f'--workdir={workdir}',
         f'--log_every={every}', f'--steps={steps}', f'--eval_every={steps}',
         f'--checkpoint_every={steps}'],
        given.loops,
    )  # fmt: skip
    run, outside, alone = (
        1e3 * statistics.median(found[name]) / every
        for name in ('run', 'outside', 'alone')
    )
    return {
        'size': given.larger,
        'run': run,
        'alone': alone,
        'share': 1 - alone / run,
        'outside': outside / run,
        'spread': [1e3 * f(found['run']) / every for f in (min, max)],
    }


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Prints a table, and all of it as JSON."""
    del chosen
    commands.require(vars(given), workdir='a folder for the runs')
    folder = pathlib.Path(given.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {'begins': None, f'goes on from {given.late:,}': given.late}
    one_step(given, folder, None)  # the cache has the text afterwards
    before = turns.listen()
    rounds = [
        {kind: one_step(given, folder, late) for kind, late in kinds.items()}
        for _ in range(given.rounds)
    ]
    rows = []
    for kind in kinds:
        found = {
            stage: statistics.median(r[kind]['stages'][stage] for r in rounds)
            for stage in rounds[0][kind]['stages']
        }
        listed = {what: found.get(name, 0.0) for name, what in STAGES.items()}
        kernels = rounds[0][kind]['kernels']
        rows.append(
            {'name': kind, 'stages': listed, 'kernels': kernels, 'others': 0.0}
        )
    record = {'kind': 'stages', 'before': before, 'rows': rows}
    if given.larger:
        record['steps'] = timed_steps(given, folder)
    report.show(record)
    return record


if __name__ == '__main__':
    commands.start(run)
