r"""Training beside other people's trainers: how fast, and how good.

    python -m benchmarks.trainers --of=labels --source=all-MiniLM-L6-v2 \
        --task=sst-2 --data_dir=glue --workdir=runs/labels
    python -m benchmarks.trainers --of=pairs --source=all-MiniLM-L6-v2 \
        --pairs=nli-triplets.csv --workdir=runs/pairs

Labels: `tasks.glue` beside transformers' Trainer. Pairs (a csv: a, b and
negatives): the row `simcse` beside sentence-transformers' trainer; a with
itself is SimCSE without labels.

Both sides begin with the weights of one folder, and read the same text with the
same batch, length, rate and number of updates, each in a process of its own, in
turns (turns.py), with another seed each. Theirs runs in the environment that
`make bench-peers` makes. A rate is the median over updates, so that compiling
does not count; the score of labels is that of held-out examples after the last
update. What pairs taught is in WORKDIR/ours_0 and in
WORKDIR/sentence-transformers_0/model, whose worth `tasks.sts` measures.
"""

import dataclasses
import pathlib
import shutil
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import kept, report, turns
from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.data import tables
from tasks import glue_layout
from tasks.measures import MEASURES

TRAINER = kept.ROOT / 'benchmarks' / 'peers' / 'trainer.py'
WEIGHT_DECAY = 0.01  # of labels; of pairs none
NAMES = {'labels': 'Trainer', 'pairs': 'sentence-transformers'}
# As they have the same names on both sides.
SAME = 'steps', 'batch_size', 'seq_len', 'learning_rate'


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    of: str = flag('labels', 'What is learned.', choices=tuple(NAMES))
    source: str | None = flag(None, 'A folder of sentence-transformers.')
    task: str = flag(
        'sst-2', 'Of GLUE, labels.', choices=tuple(glue_layout.TASKS))
    data_dir: str | None = flag(None, "GLUE's data, of labels.")
    examples: int = flag(6000, 'Labelled texts at most.', at_least=1)
    pairs: str | None = flag(None, 'A csv with a line of names, of pairs.')
    temperature: float = flag(0.05, 'Of pairs.', at_least=1e-6)
    batch_size: int = flag(32, 'Examples of an update.', at_least=2)
    seq_len: int = flag(128, 'Tokens of a text at most.', at_least=8)
    steps: int = flag(60, 'Updates.', at_least=4)
    learning_rate: float = flag(5e-5, 'Its peak.', at_least=0.0)
    precision: str = flag(
        'float32', 'Of both.', choices=('float32', 'mixed_bfloat16'))
    seeds: int = flag(3, 'Runs of each side.', at_least=1)
    workdir: str | None = flag(None, 'Where all of it goes.')


def run_ours(
    given: Choices, out: pathlib.Path, seed: int
) -> tuple[dict[str, float], kept.Used]:
    """Trains a workdir: rate and score, and what that took."""
    same = [f'--{name}={getattr(given, name)}' for name in SAME]
    same += [
        f'--init={given.source}', f'--workdir={out}', f'--seed={seed}',
        f'--precision={given.precision}', '--log_every=1',
        f'--eval_every={given.steps}',
    ]  # fmt: skip
    log = out.parent / f'{out.name}.log'
    if given.of == 'labels':
        used = kept.run(
            'tasks.glue', log, *same, f'--task={given.task}', '--notest',
            f'--data_dir={given.data_dir}', f'--examples={given.examples}',
            f'--weight_decay={WEIGHT_DECAY}',
        )  # fmt: skip
    else:
        used = kept.run(
            'infoword_tf.train', log, *same, '--objectives=simcse',
            f'--pairs={given.pairs}', '--simcse.pooling=mean',
            '--simcse.head=none', f'--simcse.temperature={given.temperature}',
            '--optimizer=adamw', '--weight_decay=0',
            f'--checkpoint_every={given.steps}',
        )  # fmt: skip
    updates = kept.records_of(out)
    answer = {'rate': statistics.median(u['steps_per_second'] for u in updates)}
    if given.of == 'labels':
        measure = glue_layout.TASKS[given.task].measures[0]
        answer['score'] = kept.read_json(out / 'metrics.json')[measure]
    return answer, used


def run_theirs(
    given: Choices, out: pathlib.Path, seed: int
) -> tuple[dict[str, float], kept.Used]:
    """Trains the peer: rate and score, and what that took."""
    out.mkdir(parents=True)
    spec = {name: getattr(given, name) for name in SAME} | {
        'of': given.of, 'source': given.source, 'seed': seed,
        'bf16': given.precision != 'float32', 'threads': kept.THREADS,
    }  # fmt: skip
    if given.of == 'labels':
        layout = glue_layout.TASKS[given.task]
        parts = {
            'train': glue_layout.read(
                given.task, given.data_dir, 'train').subset(given.examples),
            'heldout': glue_layout.read(given.task, given.data_dir, 'dev'),
        }  # fmt: skip
        targets = {
            name: tables.known_labels(rows, layout.labels)
            if layout.labels else rows.scores
            for name, rows in parts.items()
        }  # fmt: skip
        spec |= {'classes': len(layout.labels), 'weight_decay': WEIGHT_DECAY}
        spec['examples'] = {
            name: {'first': rows.first, 'second': rows.second,
                   'targets': targets[name].tolist()}
            for name, rows in parts.items()
        }  # fmt: skip
    else:
        spec |= {'pairs': given.pairs, 'temperature': given.temperature,
                 'save': str(out / 'model')}  # fmt: skip
    files.write_json(out / 'spec.json', spec)
    used = kept.call(
        out / 'log.txt', str(kept.PEERS_PYTHON), str(TRAINER),
        str(out / 'spec.json'), str(out / 'told.json'),
    )  # fmt: skip
    told = kept.read_json(out / 'told.json')
    answer = {'rate': 1 / statistics.median(told['seconds'])}
    if given.of == 'labels':
        said = np.array(told['said'])
        said = said.argmax(axis=1) if layout.labels else said
        answer['score'] = MEASURES[layout.measures[0]](
            said, targets['heldout']
        )
    return answer, used


def side(
    given: Choices, name: str, train: Callable[..., Any]
) -> turns.Whole:
    """Makes a contestant that is trained anew in each turn."""

    def turn(seed: int) -> tuple[dict[str, float], kept.Used]:
        out = pathlib.Path(given.workdir) / f'{name}_{seed}'
        shutil.rmtree(out, ignore_errors=True)
        answer, used = train(given, out, seed)
        rate = answer.pop('rate') * given.batch_size
        return {'seconds': 1.0, 'amount': rate, **answer}, used

    return turns.Whole(
        name, turn, given.task if given.of == 'labels' else ''
    )


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Trains both sides, and prints the table.

    Raises:
        UsageError: a choice is missing, or the peer is not installed.
    """
    del chosen
    data = {'data_dir': "GLUE's data"}
    if given.of == 'pairs':
        data = {'pairs': 'a csv'}
    commands.require(
        vars(given), source='a folder of sentence-transformers', **data,
        workdir='a folder',
    )  # fmt: skip
    if not kept.PEERS_PYTHON.exists():
        raise errors.UsageError(
            f'{kept.PEERS_PYTHON} is missing: make bench-peers'
        )
    record = turns.compete(
        [side(given, NAMES[given.of], run_theirs),
         side(given, 'ours', run_ours)],
        'examples',
        [{'seed': seed} for seed in range(given.seeds)],
    )  # fmt: skip
    report.show(record | {'settings': dataclasses.asdict(given)})


if __name__ == '__main__':
    commands.start(run)
