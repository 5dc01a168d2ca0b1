r"""Whether memory grows while a run trains, evaluates and saves.

    python -m benchmarks.soak --minutes=120 --workdir=runs/soak

Trains two rows at tiny until the clock says so, and looks every few seconds at
the memory that the process has. A line is fitted to what it has after the first
quarter: its growth from there to the end, in percent, is what counts. The
workdir gets memory.jsonl, metrics.json and memory.png.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
from absl import flags

from benchmarks.kept import ROOT
from infoword_tf import commands, files, preemption

MINUTES = flags.DEFINE_float(
    'minutes', 120.0, 'How long it runs.', lower_bound=0.5)
CORPUS = flags.DEFINE_string('corpus', 'pydocs', 'As of infoword_tf.train.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for all of it.')

OBJECTIVES = 'bert_nce:1,dim:0.8'
EVERY = '--log_every=20', '--eval_every=100', '--checkpoint_every=100'
STEPS = 10_000_000  # more than the time has
SECONDS = 5.0  # between looks
WARM_UP = 0.25  # of the time
GOAL = 0.01


def resident(process: int) -> int | None:
    """Bytes of memory that a process has; None: it has ended."""
    try:
        text = pathlib.Path(f'/proc/{process}/statm').read_text()
    except OSError:
        return None
    return int(text.split()[1]) * os.sysconf('SC_PAGE_SIZE') or None


def growth(seconds: Sequence[float], sizes: Sequence[float]) -> float:
    """Of a line fitted to sizes, what it gains over the time, as a share."""
    slope, begin = np.polynomial.polynomial.polyfit(seconds, sizes, 1)[::-1]
    first = begin + slope * seconds[0]
    return float(slope * (seconds[-1] - seconds[0]) / first)


def looked_at(
    command: Sequence[str], log: pathlib.Path, longest: float
) -> list[list[float]]:
    """Runs a command; [seconds, bytes] every few of them.

    Args:
        longest: seconds after which it is told to save and leave.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    found, began, told = [], time.monotonic(), False
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    with open(log, 'w') as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                time.sleep(SECONDS)
                if size := resident(process.pid):
                    found.append([time.monotonic() - began, size])
                if not told and time.monotonic() - began > longest:
                    process.terminate()
                    told = True
        finally:
            process.kill()
    if process.returncode != (preemption.STATUS if told else 0):
        raise RuntimeError(f'{log}: {log.read_text()[-1000:]}')
    return found


def draw(
    path: pathlib.Path, minutes: np.ndarray, megabytes: np.ndarray, after: float
) -> None:
    """The curve, and from when on it counts."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3), layout='tight')
    axes.plot(minutes, megabytes, linewidth=1)
    axes.axvline(after, color='gray', linestyle=':', linewidth=1)
    axes.set_xlabel('minutes')
    axes.set_ylabel('resident memory, MB')
    axes.set_ylim(0, None)
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=140)
    pyplot.close(figure)


def run() -> None:
    """Trains, looks, and says what it saw.

    Raises:
        UsageError: the workdir holds a run, or the time was too short.
    """
    given = flags.FLAGS.flag_values_dict()
    commands.require(given, workdir='a folder for it')
    folder = pathlib.Path(WORKDIR.value)
    if (folder / 'run').exists():
        raise commands.UsageError(
            f'--workdir={folder} holds a run; name another folder'
        )
    folder.mkdir(parents=True, exist_ok=True)
    found = looked_at(
        [sys.executable, '-m', 'infoword_tf.train',
         f'--objectives={OBJECTIVES}', '--size=tiny', '--batch_size=16',
         '--seq_len=64', f'--corpus={CORPUS.value}', *EVERY,
         f'--steps={STEPS}', f'--workdir={folder}/run'],
        folder / 'run.log',
        60 * MINUTES.value,
    )  # fmt: skip
    with files.written(folder / 'memory.jsonl') as partial:
        partial.write_text(''.join(json.dumps(x) + '\n' for x in found))
    seconds, sizes = np.array(found).T
    # From the first step on: before it text is read, and graphs are made.
    metrics = folder / 'run' / 'metrics.jsonl'
    if not metrics.exists():
        raise commands.UsageError(
            f'--minutes={MINUTES.value:g} ended before the first steps were '
            'logged; give more'
        )
    trained = json.loads(metrics.read_text().splitlines()[-1])
    begin = seconds[-1] - trained['seconds'] * (1 - WARM_UP)
    later = seconds > begin
    draw(folder / 'memory.png', seconds / 60, sizes / 1e6, begin / 60)
    share = growth(seconds[later], sizes[later])
    commands.record(folder, {
        'minutes': round(trained['seconds'] / 60, 1),
        'steps': trained['step'],
        'megabytes': round(float(sizes[later].mean()) / 1e6),
        'growth_percent': round(100 * share, 2),
        'held': share < GOAL,
    })  # fmt: skip


if __name__ == '__main__':
    commands.start(run)
