"""Rows in equal time: each trains for so many minutes, then all are compared.

    python -m benchmarks.equal_time --minutes=3 --workdir=runs/equal_time \
        --flagfiles=mlm_tiny,bert_nce_tiny,bert_tiny,plm_tiny

First the rate of each flagfile over 100 steps, one after the other, so that
all are of the same hour; then each trains for the steps that it makes in that
time. What a run learned depends on its steps alone, so a run that was stopped
may be repeated: what is finished is kept.

Prints a table for a README, and writes it and all curves (held-out mutual
information over minutes of training) to WORKDIR/table.md and curves.png.
"""

import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

MINUTES = flags.DEFINE_float(
    'minutes', 3.0, 'Of training, for each.', lower_bound=0.01)
FLAGFILES = flags.DEFINE_list(
    'flagfiles', None, 'Names in tasks/flags, or files.', required=True)
SEED = flags.DEFINE_integer('seed', 0, 'Of each run.', lower_bound=0)
RATE_STEPS = flags.DEFINE_integer(
    'rate_steps', 100, 'Steps that a rate is measured over, after as many as '
    'a tenth of them.', lower_bound=10)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where runs, table and picture go.', required=True)

FOLDER = pathlib.Path(__file__).parent.parent / 'tasks' / 'flags'


def name_of(flagfile: str) -> str:
    """What a run is called: its flagfile, without folder and ending."""
    return pathlib.Path(flagfile).stem


def train(flagfile: str, workdir: pathlib.Path, *more: str) -> None:
    """Runs the command in a process of its own; its output in WORKDIR.log.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    path = FOLDER / f'{flagfile}.flags'
    workdir.parent.mkdir(parents=True, exist_ok=True)
    log = workdir.with_name(f'{workdir.name}.log')
    with open(log, 'w') as out:
        done = subprocess.run(
            [
                sys.executable,
                *('-m', 'infoword_tf.train'),
                f'--flagfile={path if path.exists() else flagfile}',
                f'--workdir={workdir}',
                *more,
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f'{flagfile}: {log.read_text()[-1000:]}')


def read_records(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def tokens_of(workdir: pathlib.Path) -> int:
    """Tokens of a step of a run."""
    run = json.loads((workdir / 'config.json').read_text())['run']
    return run['batch_size'] * run['seq_len']


def steps_of(flagfile: str, folder: pathlib.Path) -> int:
    """How many steps fit the time, by a run of a few; measured once."""
    workdir = folder / f'{name_of(flagfile)}_rate'
    every = max(1, RATE_STEPS.value // 10)
    count = RATE_STEPS.value + every
    if not (workdir / 'metrics.json').exists():
        train(
            flagfile,
            workdir,
            f'--steps={count}',
            f'--log_every={every}',
            f'--eval_every={count}',
            f'--checkpoint_every={count}',
        )
    rate = statistics.median(
        record['tokens_per_second'] for record in read_records(workdir)[1:]
    )
    steps = rate * 60 * MINUTES.value / tokens_of(workdir)
    return max(10, round(steps / 10) * 10)


def minutes_of(
    records: Sequence[Mapping[str, Any]], tokens: int
) -> list[float]:
    """Minutes of training until each record; evaluation is left out."""
    elapsed, last, found = 0.0, 0, []
    for record in records:
        done = (record['step'] - last) * tokens
        elapsed += done / record['tokens_per_second'] / 60
        last = record['step']
        found.append(elapsed)
    return found


def table(runs: Mapping[str, pathlib.Path]) -> str:
    """Markdown: what each run reached; by run, its workdir."""
    lines = [
        '| run | steps | minutes | tokens/s | row | held-out MI | ceiling | '
        'accuracy | chance |',
        '|' + '---|' * 9,
    ]
    for name, workdir in runs.items():
        records = read_records(workdir)
        minutes = minutes_of(records, tokens_of(workdir))[-1]
        last = records[-1]
        rate = last['step'] * tokens_of(workdir) / minutes / 60
        for row in json.loads((workdir / 'config.json').read_text())['rows']:
            shown = [
                '-' if value is None else f'{value:.{digits}f}'
                for value, digits in (
                    (last.get(f'heldout/{row}/mi'), 3),
                    (last.get(f'heldout/{row}/ceiling'), 2),
                    (last[f'heldout/{row}/accuracy'], 3),
                    (last[f'heldout/{row}/chance'], 4),
                )
            ]
            lines.append(
                f'| `{name}` | {last["step"]:,} | {minutes:.1f} | {rate:,.0f} '
                f'| `{row}` | {" | ".join(shown)} |'
            )
    return '\n'.join(lines)


def main(argv: Sequence[str]) -> None:
    """Measures rates, trains, compares."""
    if len(argv) > 1:
        raise app.UsageError(f'{argv[1]!r} is no flag')
    from infoword_tf import files
    from infoword_tf.training import report

    folder = pathlib.Path(WORKDIR.value)
    steps = {}
    for flagfile in FLAGFILES.value:
        steps[flagfile] = steps_of(flagfile, folder)
        print(f'{flagfile}: {steps[flagfile]:,} steps', flush=True)
    runs = {}
    for flagfile, count in steps.items():
        workdir = runs[name_of(flagfile)] = folder / name_of(flagfile)
        if not (workdir / 'metrics.json').exists():
            train(
                flagfile,
                workdir,
                f'--steps={count}',
                f'--seed={SEED.value}',
            )
            print(f'{flagfile}: trained', flush=True)
    made = table(runs)
    with files.written(folder / 'table.md') as partial:
        partial.write_text(made + '\n')
    report.draw_runs(
        folder / 'curves.png',
        {
            name: (
                minutes_of(read_records(workdir), tokens_of(workdir)),
                read_records(workdir),
            )
            for name, workdir in runs.items()
        },
    )
    print(made)


def run(argv: Sequence[str]) -> None:
    """As `main`; a run that failed ends it in one message."""
    try:
        main(argv)
    except RuntimeError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    app.run(run)
