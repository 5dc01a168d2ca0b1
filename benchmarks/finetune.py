r"""Fine-tuning beside transformers' Trainer: scores and speed.

    python -m benchmarks.finetune --init=runs/minilm --peers=MiniLM \
        --data_dir=glue --workdir=runs/tables/glue

Both sides start from the same weights, train on the same examples for the same
number of updates of the same size, and choose among the same held-out scores,
one an epoch. Theirs is a process in the environment that `make bench-peers`
makes. What a run learned depends on its seed alone: what is finished is kept,
so a table that was stopped goes on; --tasks and --seeds may be more the next
time. Prints the table and writes it to WORKDIR/table.md.

--steps=100 trains for so many updates instead, for rates; those are medians
over updates, so that compiling does not count.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
from absl import flags

from infoword_tf import commands, files
from tasks import glue_layout, tables
from tasks.measures import MEASURES

ROOT = pathlib.Path(__file__).parent.parent
TRAINER = ROOT / 'benchmarks' / 'peers' / 'trainer.py'
PYTHON = ROOT / '.venv-peers' / 'bin' / 'python'
THREADS = 2
WEIGHT_DECAY = 0.01
SIDES = 'ours', 'peer'

FLAGS = flags.FLAGS

INIT = flags.DEFINE_string('init', None, 'A workdir.')
PEERS = flags.DEFINE_string(
    'peers', None, 'A folder of transformers with the same weights.')
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, "GLUE's data.")
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where runs and the table go.')
TASKS = flags.DEFINE_list(
    'tasks', ['cola', 'sst-2', 'mrpc', 'rte', 'sts-b'], 'Of GLUE.')
SEEDS = flags.DEFINE_integer(
    'seeds', 3, 'Runs of each.', lower_bound=1)
EPOCHS = flags.DEFINE_integer(
    'epochs', 3, 'Of each run.', lower_bound=1)
STEPS = flags.DEFINE_integer(
    'steps', None, 'Updates instead.', lower_bound=1)
EXAMPLES = flags.DEFINE_integer(
    'examples', 6000, 'Training examples at most.')
LEARNING_RATE = flags.DEFINE_float(
    'learning_rate', 5e-5, 'Its peak.')
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Examples of an update.')
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', 128, 'Tokens of an example.')
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'mixed_bfloat16'], 'Of both sides.')


def ours(task: str, seed: int, folder: pathlib.Path, updates: int) -> dict:
    """Runs `tasks.glue`; returns its figures."""
    done = folder / 'metrics.json'
    given = [
        f'--task={task}', f'--init={INIT.value}',
        f'--data_dir={DATA_DIR.value}', f'--workdir={folder}',
        f'--seed={seed}', f'--examples={EXAMPLES.value}',
        f'--steps={STEPS.value or EPOCHS.value * updates}',
        f'--eval_every={min(updates, STEPS.value or updates)}',
        f'--log_every={min(10, updates)}', f'--weight_decay={WEIGHT_DECAY}',
        f'--learning_rate={LEARNING_RATE.value}',
        f'--batch_size={BATCH_SIZE.value}', f'--seq_len={SEQ_LEN.value}',
        f'--precision={PRECISION.value}', '--notest',
    ]  # fmt: skip
    if not done.exists() or 'task' not in json.loads(done.read_text()):
        folder.mkdir(parents=True, exist_ok=True)
        call([sys.executable, '-m', 'tasks.glue', *given], folder / 'log.txt')
    best = json.loads(done.read_text())
    records = [
        json.loads(line)
        for line in (folder / 'metrics.jsonl').read_text().splitlines()
    ]
    rates = [r['steps_per_second'] for r in records[1:]] or [0.0]
    seconds = [
        r['heldout_seconds'] for r in records if 'heldout_seconds' in r
    ]
    return {
        'score': best[glue_layout.TASKS[task].best],
        'mi': best.get('mi'),
        'ceiling': best.get('ceiling'),
        'rate': statistics.median(rates) * BATCH_SIZE.value,
        'evaluation': min(seconds),
        'seconds': records[-1]['seconds'],
    }


def peer(
    task: str, seed: int, folder: pathlib.Path, updates: int, parts: dict
) -> dict:
    """Runs transformers' Trainer; returns its figures."""
    found, spec = folder / 'said.json', folder / 'spec.json'
    layout = glue_layout.TASKS[task]
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        spec.write_text(
            json.dumps(
                {
                    'weights': PEERS.value,
                    'examples': {
                        part: {
                            'first': parts[part].first,
                            'second': parts[part].second,
                            'targets': targets_of(task, parts[part]).tolist(),
                        }
                        for part in ('train', 'heldout')
                    },
                    'classes': len(layout.labels),
                    'steps': STEPS.value or EPOCHS.value * updates,
                    'evaluate': min(updates, STEPS.value or updates),
                    'batch_size': BATCH_SIZE.value,
                    'seq_len': SEQ_LEN.value,
                    'learning_rate': LEARNING_RATE.value,
                    'weight_decay': WEIGHT_DECAY,
                    'seed': seed,
                    'bf16': PRECISION.value != 'float32',
                    'threads': THREADS,
                }
            )
        )
        partial = folder / 'said.partial'
        call([str(PYTHON), str(TRAINER), str(spec), str(partial)],
             folder / 'log.txt')  # fmt: skip
        partial.rename(found)
    told = json.loads(found.read_text())
    true = targets_of(task, parts['heldout'])
    scores = []
    for said in map(np.array, told['said']):
        said = said.argmax(axis=1) if layout.labels else said
        scores.append(MEASURES[layout.best](said, true))
    return {
        'score': max(scores),
        'rate': BATCH_SIZE.value / statistics.median(told['step_seconds']),
        'evaluation': min(told['evaluation_seconds']),
        'seconds': told['seconds'],
    }


def targets_of(task: str, rows: tables.Rows) -> np.ndarray:
    """[n], numbers of classes, or scores."""
    labels = glue_layout.TASKS[task].labels
    return tables.known_labels(rows, labels) if labels else rows.scores


def call(command: list[str], log: pathlib.Path) -> None:
    """Runs a process; its output is in `log`.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    with open(log, 'w') as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, 'PYTHONPATH': str(ROOT)}, cwd=ROOT,
        )  # fmt: skip
    if done.returncode:
        words = log.read_text().strip().splitlines()[-1:]
        raise RuntimeError(f'{log}: {" ".join(words)}')


def shown(values: list[float], digits: int = 3) -> str:
    """Mean (lowest-highest)."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f'{mean:.{digits}f}'
    return (
        f'{mean:.{digits}f} ({min(values):.{digits}f}-'
        f'{max(values):.{digits}f})'
    )


def run() -> dict[str, Any]:
    """The whole table."""
    values = FLAGS.flag_values_dict()
    commands.require(
        values,
        init='a workdir',
        peers='a folder of transformers with the same weights',
        data_dir="GLUE's data",
        workdir='a folder for the table',
    )
    if not PYTHON.exists():
        raise commands.UsageError(f'{PYTHON} is missing: make bench-peers')
    out = pathlib.Path(WORKDIR.value)
    head = (
        'task', 'score', 'here', 'Trainer', 'MI of the label', 'ceiling',
        'updates', 'examples/s here', 'Trainer', 'x', 'evaluation x',
    )  # fmt: skip
    lines = [f'| {" | ".join(head)} |', '|---' * len(head) + '|']
    for task in TASKS.value:
        parts = {
            'train': tables.some(
                glue_layout.read(task, DATA_DIR.value, 'train'), EXAMPLES.value
            ),
            'heldout': glue_layout.read(task, DATA_DIR.value, 'dev'),
        }
        updates = len(parts['train'].first) // BATCH_SIZE.value
        found: dict[str, list[dict]] = {side: [] for side in SIDES}
        for seed in range(SEEDS.value):
            folder = out / task
            found['ours'].append(
                ours(task, seed, folder / f'ours-{seed}', updates)
            )
            found['peer'].append(
                peer(task, seed, folder / f'peer-{seed}', updates, parts)
            )
            print(
                task, seed,
                *(f'{s}: {found[s][-1]["score"]:.4f}, '
                  f'{found[s][-1]["seconds"]:.0f} s;' for s in SIDES),
                flush=True,
            )  # fmt: skip
        rates = {s: statistics.median(r['rate'] for r in found[s])
                 for s in SIDES}  # fmt: skip
        took = {s: statistics.median(r['evaluation'] for r in found[s])
                for s in SIDES}  # fmt: skip
        bound = [r['mi'] for r in found['ours'] if r['mi'] is not None]
        cells = [
            task,
            glue_layout.TASKS[task].best,
            *(shown([r['score'] for r in found[s]]) for s in SIDES),
            shown(bound) if bound else '-',
            f'{found["ours"][0]["ceiling"]:.3f}' if bound else '-',
            f'{STEPS.value or EPOCHS.value * updates:,}',
            *(f'{rates[s]:,.0f}' for s in SIDES),
            f'{rates["ours"] / rates["peer"]:.2f}',
            f'{took["peer"] / took["ours"]:.2f}',
        ]
        lines.append(f'| {" | ".join(cells)} |')
        with files.written(out / 'table.md') as partial:
            partial.write_text('\n'.join(lines) + '\n')
    print('\n'.join(lines), flush=True)
    return {}


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on')
