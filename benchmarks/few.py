r"""Few labels and much text: what a teacher is worth to small students.

    python -m benchmarks.few --init=MiniLM --workdir=runs/few

Of a task of GLUE (TASKS), N examples have labels (LABELS), and EXTRA other
texts, or pairs of texts, have none. A teacher is --init fine-tuned on the N by
`tasks.classify`. Students learn by `tasks.distill` from the N labels alone, or
from the teacher too, which also labels the texts (METHODS). They are --init's
first layers, and the word table of --lookup if there is one (`tasks.distill
--task=embed --student=lookup` makes it). All students of a line have the same
number of updates: UPDATES, of the table LOOKUP_UPDATES.

Each seed draws its own examples. The scores are those after the last update, of
the whole dev set, which chooses nothing. The working folder has the data: glue/
with the folder of the task. A run is a process and a folder,
WORKDIR/TASK/N/seed=0/STUDENT/METHOD, without checkpoints at the end; finished
runs stay, and a stopped command goes on.

Prints the table, the mean over the seeds (lowest-highest), and writes it to
WORKDIR/table.md. Milliseconds are of one text, or pair, on all processors.
"""

import dataclasses
import pathlib
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import kept, report
from benchmarks.tables import name_seeds, spread
from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout, tables
from infoword_tf.data.glue_layout import GlueTask

LABELS, EXTRA = ('500', '2000'), 10_000
TEACHER_UPDATES, BATCH = 200, 32
ALONE, LOOKUP = 'labels alone', 'word table'
# An update changes only the words that it reads: tables need all texts often.
UPDATES, LOOKUP_UPDATES = 330, 1320
METHODS = {
    ALONE: ('--alpha=0', '--patience=none'),
    'KD': ('--patience=none',),
    'PKD-last': ('--patience=last',),
    'PKD-skip': ('--patience=skip',),
}
OF_LOOKUP = ALONE, 'KD'
TIMED = 100  # texts of the dev set
TASKS = 'sst-2', 'mnli', 'qnli'  # of enough texts, scored by accuracy


@dataclasses.dataclass(frozen=True)
class FewChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'A pretrained workdir, or a public folder.')
    lookup: str | None = flag(
        None, 'The workdir of a word table with the vocabulary of --init.')
    layers: tuple[str, ...] = flag(('3', '2'), 'Layers of students.')
    task: str = flag('sst-2', 'What is labelled.', choices=TASKS)
    labels: tuple[str, ...] = flag(LABELS, 'Numbers of labels.')
    seeds: int = flag(3, 'Runs of each: seeds 0, 1, ...', at_least=1)
    typed: str = flag('', 'Further flags of all runs, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs and table go.')


def write_examples(
    task: GlueTask, folder: pathlib.Path, count: int, seed: int
) -> None:
    """Draws `count` examples with labels, and EXTRA texts without.

    Writes FOLDER/train.tsv and FOLDER/extra.tsv.
    """
    folder.mkdir(parents=True, exist_ok=True)
    columns = tuple(filter(None, task.columns))
    train = cells_of(path_of(task, 'train'), columns)
    order = np.random.default_rng(seed).permutation(len(train))
    drawn = [train[n] for n in order[: count + EXTRA]]
    for name, rows in (
        ('train', [columns, *drawn[:count]]),
        ('extra', [row[:-1] for row in (columns, *drawn[count:])]),
    ):
        with files.written(folder / f'{name}.tsv') as partial:
            partial.write_text(''.join('\t'.join(x) + '\n' for x in rows))


def path_of(task: GlueTask, split: str) -> pathlib.Path:
    """Returns the file of a split."""
    return pathlib.Path('glue', task.folder, task.files[split][0])


def cells_of(
    path: pathlib.Path, columns: Sequence[str]
) -> list[tuple[str, ...]]:
    """Reads columns of a table, a tuple for each row."""
    table = tables.open_table(str(path))
    places = [tables.column_of(table, x) for x in columns]
    return [tuple(cells[x] for x in places) for _, cells in table.rows]


def train(
    workdir: pathlib.Path,
    command: str,
    task: GlueTask,
    init: str,
    updates: int,
    *typed: str,
) -> pathlib.Path:
    """Trains a run, unless finished before; returns the workdir."""
    from infoword_tf import checkpoint

    columns = zip(('text', 'pair', 'label'), task.columns, strict=True)
    kept.evaluate(
        workdir, command, *typed, f'--dev={path_of(task, "dev")}',
        *(f'--{name}={column}' for name, column in columns if column),
        f'--batch_size={BATCH}', f'--steps={updates}',
        f'--eval_every={updates}', init=init,
    )  # fmt: skip
    shutil.rmtree(workdir / checkpoint.FOLDER, ignore_errors=True)
    return workdir


def students_of(choices: FewChoices) -> dict[str, tuple[str, Sequence[str]]]:
    """Lists students by name: a workdir to start from, and flags."""
    students = {
        f'{layers} layers': (choices.init, [f'--layers={layers}'])
        for layers in choices.layers
    }
    if choices.lookup:
        students[LOOKUP] = choices.lookup, ['--learning_rate=1e-3']
    return students


def train_seed(
    choices: FewChoices, folder: pathlib.Path, count: int, seed: int
) -> dict[str, pathlib.Path]:
    """Trains the teacher and all students of a draw.

    Returns:
        Workdirs by `teacher` and STUDENT/METHOD.
    """
    folder = folder / choices.task / str(count) / f'seed={seed}'
    task = glue_layout.TASKS[choices.task]
    write_examples(task, folder, count, seed)
    common = [
        f'--train={folder / "train.tsv"}', f'--seed={seed}',
        *choices.typed.split(),
    ]  # fmt: skip
    teacher = train(
        folder / 'teacher', 'classify', task, choices.init, TEACHER_UPDATES,
        *common,
    )  # fmt: skip
    runs = {'teacher': teacher}
    for student, (init, typed) in students_of(choices).items():
        updates = LOOKUP_UPDATES if student == LOOKUP else UPDATES
        for method in OF_LOOKUP if student == LOOKUP else METHODS:
            extra = [f'--extra={folder / "extra.tsv"}']
            name = f'{student}/{method}'
            runs[name] = train(
                folder / name.replace(' ', '_'), 'distill', task, init, updates,
                *common, *typed, *METHODS[method], f'--teacher={teacher}',
                *(extra if method != ALONE else ()),
            )  # fmt: skip
            print(f'{folder}: {name}: {score_of(runs[name]):.3f}', flush=True)
    return runs


def score_of(workdir: pathlib.Path) -> float:
    """Reads the accuracy after the last update."""
    return kept.records_of(workdir)[-1]['heldout/label/accuracy']


def milliseconds_of(workdir: pathlib.Path, task: GlueTask) -> float:
    """Times answers to one text, or pair, after another; the median."""
    import infoword_tf

    loaded = infoword_tf.load(workdir)
    seconds = []
    columns = filter(None, task.columns[:-1])
    for texts in cells_of(path_of(task, 'dev'), [*columns])[:TIMED]:
        begin = time.perf_counter()
        loaded.classify(*([text] for text in texts))
        seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def megabytes_of(workdir: pathlib.Path) -> float:
    """Measures the file of the weights."""
    return (workdir / 'weights.safetensors').stat().st_size / 1e6


def lines_of(
    choices: FewChoices, runs: Mapping[int, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """Makes the table: a line for each number of labels and student."""
    lines, task = [], glue_layout.TASKS[choices.task]
    for count, draws in runs.items():
        teachers = [draw['teacher'] for draw in draws]
        lines.append([
            f'{count:,}', 'teacher', f'{megabytes_of(teachers[0]):.0f}',
            f'{milliseconds_of(teachers[0], task):.1f}',
            spread([*map(score_of, teachers)]),
            *[''] * (len(METHODS) - 1),
        ])  # fmt: skip
        for student in students_of(choices):
            first = draws[0][f'{student}/{ALONE}']
            lines.append([
                f'{count:,}', student, f'{megabytes_of(first):.0f}',
                f'{milliseconds_of(first, task):.1f}',
                *(spread([score_of(draw[name]) for draw in draws])
                  if (name := f'{student}/{method}') in draws[0] else ''
                  for method in METHODS),
            ])  # fmt: skip
    return report.table(['labels', 'model', 'MB', 'ms', *METHODS], lines)


@commands.takes(FewChoices)
def run(choices: FewChoices, chosen: Mapping[str, Any]) -> None:
    """Trains all runs, and prints and writes the table.

    Raises:
        UsageError: a choice or data are missing, or the folder is of another
            commit.
    """
    del chosen
    commands.require(
        vars(choices), init='a pretrained workdir, or a public folder',
        workdir='a folder for the table',
    )  # fmt: skip
    task = glue_layout.TASKS[choices.task]
    kept.check_data([path_of(task, x) for x in ('train', 'dev')])
    folder = pathlib.Path(choices.workdir)
    kept.bind_commit(folder)
    runs = {
        count: [
            train_seed(choices, folder, count, seed)
            for seed in range(choices.seeds)
        ]
        for count in map(int, choices.labels)
    }
    kept.write_table(
        folder, lines_of(choices, runs),
        f'{choices.task}, {name_seeds(choices.seeds)}, {EXTRA:,} texts without '
        f'labels, {UPDATES} updates of {BATCH}, of a table {LOOKUP_UPDATES:,}',
    )  # fmt: skip


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
