r"""Fine-tuning beside transformers' Trainer: scores and speed.

    python -m benchmarks.finetune --init=runs/minilm --peers=MiniLM \
        --data_dir=glue --workdir=runs/tables/glue

Both sides start from the same weights, train on the same examples for the same
number of updates of the same size, and choose among the same held-out scores,
one an epoch. Theirs is a process in the environment that `make bench-peers`
makes. What a run learned depends on its seed alone: what is finished is kept,
so a table that was stopped goes on; --tasks and --seeds may be more the next
time. Prints the table and writes it to WORKDIR/table.md.

--steps=100 is for rates instead: it trains so many updates with each seed, in
turns, always anew; a rate is the median over updates, so that compiling does
not count.
"""

import json
import pathlib
import shutil
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from benchmarks import kept, report, tuning, turns
from infoword_tf import commands, files
from infoword_tf.data import tables
from tasks import glue_layout
from tasks.measures import MEASURES

TRAINER = kept.ROOT / 'benchmarks' / 'peers' / 'trainer.py'
WEIGHT_DECAY = 0.01
SIDES = 'ours', 'peer'

FLAGS = flags.FLAGS

PEERS = flags.DEFINE_string(
    'peers', None, 'A folder of transformers with the same weights.')
TASKS = flags.DEFINE_list(
    'tasks', ['cola', 'sst-2', 'mrpc', 'rte', 'sts-b'], 'Of GLUE.')
STEPS = flags.DEFINE_integer(
    'steps', None, 'Updates instead of --epochs.', lower_bound=1)


def ours(
    task: str, seed: int, folder: pathlib.Path, updates: int
) -> tuple[dict[str, Any], kept.Used]:
    """Runs `tasks.glue`; returns its figures, and what it used now."""
    done, used = folder / 'metrics.json', kept.Used(0.0, 0)
    if not done.exists() or 'task' not in kept.read_json(done):
        used = kept.run(
            'tasks.glue', folder / 'log.txt', *tuning.given(),
            f'--task={task}', f'--workdir={folder}', f'--seed={seed}',
            f'--steps={STEPS.value or tuning.EPOCHS.value * updates}',
            f'--eval_every={updates}',
            f'--log_every={min(10, updates)}',
            f'--weight_decay={WEIGHT_DECAY}',
        )  # fmt: skip
    best, records = kept.read_json(done), kept.records_of(folder)
    rates = [r['steps_per_second'] for r in records[1:]] or [0.0]
    seconds = [
        r['heldout_seconds'] for r in records if 'heldout_seconds' in r
    ]
    return {
        'score': best[glue_layout.TASKS[task].measures[0]],
        'mi': best.get('mi'),
        'ceiling': best.get('ceiling'),
        'rate': statistics.median(rates) * tuning.BATCH_SIZE.value,
        'evaluation': min(seconds),
        'seconds': records[-1]['seconds'],
    }, used


def peer(
    task: str, seed: int, folder: pathlib.Path, updates: int, parts: dict
) -> tuple[dict[str, Any], kept.Used]:
    """Runs transformers' Trainer; returns its figures, and what it used now."""
    found, spec = folder / 'said.json', folder / 'spec.json'
    used = kept.Used(0.0, 0)
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
                    'steps': STEPS.value or tuning.EPOCHS.value * updates,
                    'evaluate': updates,
                    'batch_size': tuning.BATCH_SIZE.value,
                    'seq_len': tuning.SEQ_LEN.value,
                    'learning_rate': tuning.LEARNING_RATE.value,
                    'weight_decay': WEIGHT_DECAY,
                    'seed': seed,
                    'bf16': tuning.PRECISION.value != 'float32',
                    'threads': kept.THREADS,
                }
            )
        )
        partial = folder / 'said.partial'
        used = kept.call(
            folder / 'log.txt', str(kept.PEERS_PYTHON), str(TRAINER), str(spec),
            str(partial),
        )  # fmt: skip
        partial.rename(found)
    told = json.loads(found.read_text())
    true = targets_of(task, parts['heldout'])
    scores = []
    for said in map(np.array, told['said']):
        said = said.argmax(axis=1) if layout.labels else said
        scores.append(MEASURES[layout.measures[0]](said, true))
    return {
        'score': max(scores),
        'rate': tuning.BATCH_SIZE.value
        / statistics.median(told['step_seconds']),
        'evaluation': min(told['evaluation_seconds']),
        'seconds': told['seconds'],
    }, used


def targets_of(task: str, rows: tables.TableExamples) -> np.ndarray:
    """[n], numbers of classes, or scores."""
    labels = glue_layout.TASKS[task].labels
    return tables.known_labels(rows, labels) if labels else rows.scores


def parts_of(task: str) -> dict[str, tables.TableExamples]:
    """What is trained on, and what is held out."""
    folder = tuning.DATA_DIR.value
    return {
        'train': glue_layout.read(task, folder, 'train').some(
            tuning.EXAMPLES.value
        ),
        'heldout': glue_layout.read(task, folder, 'dev'),
    }


def contest(out: pathlib.Path) -> dict[str, Any]:
    """A record of --steps updates of each task, with each seed."""
    record: dict[str, Any] = {}
    for task in TASKS.value:
        parts = parts_of(task)

        def theirs(seed: int, task: str = task, parts: dict = parts) -> Any:
            folder = emptied(out / task / f'peer-{seed}')
            return peer(task, seed, folder, STEPS.value, parts)

        def own(seed: int, task: str = task) -> Any:
            folder = emptied(out / task / f'ours-{seed}')
            return ours(task, seed, folder, STEPS.value)

        found = turns.compete(
            [turns.Whole('Trainer', said(theirs), task),
             turns.Whole('ours', said(own), task)],
            'examples',
            [{'seed': seed} for seed in range(tuning.SEEDS.value)],
        )  # fmt: skip
        found['rows'] = record.get('rows', []) + found['rows']
        record = found
    return record


def said(run: Callable[..., Any]) -> Callable[..., Any]:
    """A run, as `turns.Whole` takes it: examples of a second."""

    def turn(seed: int) -> tuple[dict[str, float], kept.Used]:
        found, used = run(seed)
        return {'seconds': 1.0, 'amount': found['rate']}, used

    return turn


def emptied(folder: pathlib.Path) -> pathlib.Path:
    """The same, without what an earlier run left."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


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
    kept.require_peers()
    out = pathlib.Path(tuning.WORKDIR.value)
    titles = (
        'task', 'score', 'here', 'Trainer', 'MI of the label', 'ceiling',
        'updates', 'examples/s here', 'Trainer', 'x', 'evaluation x',
    )  # fmt: skip
    lines = [f'| {" | ".join(titles)} |', '|---' * len(titles) + '|']
    if STEPS.value:
        record = contest(out)
        report.show(record)
        return record
    for task in TASKS.value:
        parts = parts_of(task)
        updates = len(parts['train'].first) // tuning.BATCH_SIZE.value
        found: dict[str, list[dict]] = {side: [] for side in SIDES}
        for seed in range(tuning.SEEDS.value):
            folder = out / task
            found['ours'].append(
                ours(task, seed, folder / f'ours-{seed}', updates)[0]
            )
            found['peer'].append(
                peer(task, seed, folder / f'peer-{seed}', updates, parts)[0]
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
            glue_layout.TASKS[task].measures[0],
            *(tuning.shown([r['score'] for r in found[s]]) for s in SIDES),
            tuning.shown(bound) if bound else '-',
            f'{found["ours"][0]["ceiling"]:.3f}' if bound else '-',
            f'{tuning.EPOCHS.value * updates:,}',
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
