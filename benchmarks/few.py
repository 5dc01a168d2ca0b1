r"""Few labels and much text: what a teacher is worth to small students.

    python -m benchmarks.few --init=MiniLM --workdir=runs/few

Of SST-2, N examples have labels (LABELS), and EXTRA other texts have none. A
teacher is --init fine-tuned on the N by `tasks.classify`. Students learn by
`tasks.distill` from the N labels alone, or from the teacher too, which also
labels the texts (METHODS). They are --init's first layers, and the word table
of --lookup if there is one (`tasks.distill --task=embed --student=lookup`
makes it). All students of a line have the same number of updates.

Each seed draws its own examples. The scores are those after the last update, of
the whole dev set, which chooses nothing. The working folder has the data:
glue/SST-2 with train.tsv and dev.tsv. A run is a process and a folder,
WORKDIR/N/seed=0/STUDENT/METHOD, without checkpoints at the end; finished runs
stay, and a stopped command goes on.

Prints the table, the mean over the seeds (lowest-highest), and writes it to
WORKDIR/table.md. Milliseconds are of one text, on all processors.
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

LABELS, EXTRA = ('500', '2000'), 10_000
DATA = pathlib.Path('glue/SST-2')
TEACHER_UPDATES, UPDATES, BATCH = 200, 330, 32
ALONE, LOOKUP = 'labels alone', 'word table'
METHODS = {
    ALONE: ('--alpha=0', '--patience=none'),
    'KD': ('--patience=none',),
    'PKD-last': ('--patience=last',),
    'PKD-skip': ('--patience=skip',),
}
OF_LOOKUP = ALONE, 'KD'
TIMED = 100  # texts of the dev set


@dataclasses.dataclass(frozen=True)
class FewChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'A pretrained workdir, or a public folder.')
    lookup: str | None = flag(
        None, 'The workdir of a word table with the vocabulary of --init.')
    layers: tuple[str, ...] = flag(('3', '2'), 'Layers of students.')
    labels: tuple[str, ...] = flag(LABELS, 'Numbers of labels.')
    seeds: int = flag(3, 'Runs of each: seeds 0, 1, ...', at_least=1)
    typed: str = flag('', 'Further flags of all runs, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs and table go.')


def write_examples(folder: pathlib.Path, count: int, seed: int) -> None:
    """Draws `count` examples with labels, and EXTRA texts without.

    Writes FOLDER/train.tsv and FOLDER/extra.tsv.
    """
    title, *lines = (DATA / 'train.tsv').read_text().splitlines()
    order = np.random.default_rng(seed).permutation(len(lines))
    drawn = [lines[n] for n in order[: count + EXTRA]]
    texts = [line.split('\t')[0] for line in drawn[count:]]
    for name, rows in (
        ('train', [title, *drawn[:count]]),
        ('extra', [title.split('\t')[0], *texts]),
    ):
        with files.written(folder / f'{name}.tsv') as partial:
            partial.write_text('\n'.join([*rows, '']))


def train(
    workdir: pathlib.Path, command: str, init: str, updates: int, *typed: str
) -> pathlib.Path:
    """Trains a run, unless finished before; returns the workdir."""
    from infoword_tf import checkpoint

    kept.evaluate(
        workdir, command, *typed, f'--dev={DATA / "dev.tsv"}',
        '--text=sentence', '--label=label', f'--batch_size={BATCH}',
        f'--steps={updates}', f'--eval_every={updates}', init=init,
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
    folder = folder / str(count) / f'seed={seed}'
    folder.mkdir(parents=True, exist_ok=True)
    write_examples(folder, count, seed)
    common = [
        f'--train={folder / "train.tsv"}', f'--seed={seed}',
        *choices.typed.split(),
    ]  # fmt: skip
    teacher = train(
        folder / 'teacher', 'classify', choices.init, TEACHER_UPDATES, *common
    )
    runs = {'teacher': teacher}
    for student, (init, typed) in students_of(choices).items():
        for method in OF_LOOKUP if student == LOOKUP else METHODS:
            extra = [f'--extra={folder / "extra.tsv"}']
            name = f'{student}/{method}'
            runs[name] = train(
                folder / name.replace(' ', '_'), 'distill', init, UPDATES,
                *common, *typed, *METHODS[method], f'--teacher={teacher}',
                *(extra if method != ALONE else ()),
            )  # fmt: skip
            print(f'{folder}: {name}: {score_of(runs[name]):.3f}', flush=True)
    return runs


def score_of(workdir: pathlib.Path) -> float:
    """Reads the accuracy after the last update."""
    return kept.records_of(workdir)[-1]['heldout/label/accuracy']


def milliseconds_of(workdir: pathlib.Path) -> float:
    """Times answers to one text after another; the median."""
    import infoword_tf

    loaded = infoword_tf.load(workdir)
    lines = (DATA / 'dev.tsv').read_text().splitlines()[1 : TIMED + 1]
    seconds = []
    for line in lines:
        begin = time.perf_counter()
        loaded.predict([line.split('\t')[0]])
        seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def megabytes_of(workdir: pathlib.Path) -> float:
    """Measures the file of the weights."""
    return (workdir / 'weights.safetensors').stat().st_size / 1e6


def lines_of(
    choices: FewChoices, runs: Mapping[int, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """Makes the table: a line for each number of labels and student."""
    lines = []
    for count, draws in runs.items():
        teachers = [draw['teacher'] for draw in draws]
        lines.append([
            f'{count:,}', 'teacher', f'{megabytes_of(teachers[0]):.0f}',
            f'{milliseconds_of(teachers[0]):.1f}',
            spread([*map(score_of, teachers)]),
            *[''] * (len(METHODS) - 1),
        ])  # fmt: skip
        for student in students_of(choices):
            first = draws[0][f'{student}/{ALONE}']
            lines.append([
                f'{count:,}', student, f'{megabytes_of(first):.0f}',
                f'{milliseconds_of(first):.1f}',
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
    kept.check_data([DATA / 'train.tsv', DATA / 'dev.tsv'])
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
        f'{name_seeds(choices.seeds)}, {EXTRA:,} texts without labels, '
        f'{UPDATES} updates of {BATCH}',
    )  # fmt: skip


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
