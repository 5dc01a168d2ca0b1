r"""Published levels: fine-tuning on whole sets of labels, and students.

    python -m benchmarks.levels --init=MiniLM --workdir=runs/levels
    python -m benchmarks.levels --table=students --teachers=runs/levels \
        --init=MiniLM --workdir=runs/students

levels: --init fine-tuned by `tasks.glue` or `tasks.squad` with their defaults,
    beside the commonest answer.
students: --init's first layers, taught by `tasks.distill` with its defaults
    (METHODS). The teachers are seed 0 of levels: TEACHERS/TASK/seed=0.

The working folder has the data: glue (CoLA/, RTE/ and so on), and squad with
train-v1.1.json and dev-v1.1.json. A run is a process and a folder,
WORKDIR/TASK/seed=0 or WORKDIR/TASK/LAYERS/METHOD/seed=0, without checkpoints at
the end. A result depends on flags and seed alone, so finished runs stay, and a
stopped command goes on; runs may be started one by one, also by other commands.

Prints the table, the mean over the seeds (lowest-highest), and writes it to
WORKDIR/table.md. Scores are shares, MI is in nats. Both are those after the
last update: of the best epoch they would be of data that chose it.
"""

import dataclasses
import functools
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import kept, report
from benchmarks.tables import name_seeds, spread
from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout
from infoword_tf.evaluation.commonest import of_targets
from tasks import glue, squad
from tasks.task import Task


class Level(NamedTuple):
    """A line of the table of levels.

    Attributes:
        seeds: 0, 1, ... of the runs.
        typed: flags that differ from the defaults.
    """

    seeds: int = 3
    typed: Sequence[str] = ()


SQUAD = squad.NAME
LEVELS = {
    'mrpc': Level(),
    'sts-b': Level(),
    'rte': Level(),
    'cola': Level(),
    'sst-2': Level(1, ('--epochs=2',)),
    'qnli': Level(1),
    'mnli': Level(1, ('--epochs=1',)),
    SQUAD: Level(1, ('--epochs=1', '--examples=30000')),
}
# Of students, by task: flags that differ from the defaults.
TAUGHT = {'mrpc': (), 'sst-2': ('--examples=10000',)}
LAYERS, STUDENT_SEEDS = (3, 2), 3
METHODS = {
    'fine-tuning': ('--alpha=0', '--patience=none'),
    'KD': ('--patience=none',),
    'PKD-last': ('--patience=last',),
    'PKD-skip': ('--patience=skip',),
}
FILES = {'train': 'squad/train-v1.1.json', 'dev': 'squad/dev-v1.1.json'}
PERCENT = 100  # of a share: F1 of SQuAD


@dataclasses.dataclass(frozen=True)
class LevelsChoices:
    """Choices of the command."""

    table: str = flag(
        'levels', 'Of levels, or of students.', choices=('levels', 'students'))
    init: str | None = flag(None, 'A pretrained workdir, or a public folder.')
    teachers: str | None = flag(
        None, 'The --workdir of levels, of students.')
    tasks: tuple[str, ...] = flag((), 'Lines of the table; by default all.')
    seeds: int | None = flag(
        None, 'Runs of each: seeds 0, 1, ...; by default as the table has it.',
        at_least=1)
    lanes: int = flag(
        1, 'Runs at a time, each with an equal share of the processors.',
        at_least=1)
    typed: str = flag('', 'Further flags of all runs, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs and table go.')


class Group(NamedTuple):
    """Runs that differ in the seed alone, a cell of the table.

    Attributes:
        task: a key of LEVELS.
        folder: folder of the runs.
        command: name of the command in tasks/.
        seeds: 0, 1, ...
        typed: flags.
    """

    task: str
    folder: pathlib.Path
    command: str
    seeds: int
    typed: Sequence[str]

    @property
    def runs(self) -> list[pathlib.Path]:
        """Workdirs of the runs."""
        return [self.folder / f'seed={seed}' for seed in range(self.seeds)]


def task_of(name: str) -> Task:
    """Returns a task of GLUE, or SQuAD, without examples."""
    return squad.Squad() if name == SQUAD else glue.Glue.of(name)


def data_of(name: str) -> list[str]:
    """Lists flags of the examples of a task."""
    if name == SQUAD:
        return [f'--{split}={path}' for split, path in FILES.items()]
    return ['--data_dir=glue', '--notest']


def levels_of(choices: LevelsChoices) -> list[Group]:
    """Lists the runs of the table of levels, a cell a line."""
    cells = []
    for name in choices.tasks or LEVELS:
        level = LEVELS[name]
        task = [] if name == SQUAD else [f'--task={name}']
        cells.append(Group(
            name, pathlib.Path(choices.workdir) / name,
            'glue' if task else SQUAD, choices.seeds or level.seeds,
            [*task, *data_of(name), *level.typed],
        ))  # fmt: skip
    return cells


def teacher_of(choices: LevelsChoices, name: str) -> pathlib.Path:
    """Returns the workdir of a teacher."""
    return pathlib.Path(choices.teachers) / name / 'seed=0'


def students_of(choices: LevelsChoices) -> list[Group]:
    """Lists the runs of the table of students, line by line as METHODS."""
    return [
        Group(
            name, pathlib.Path(choices.workdir) / name / str(layers) / method,
            'distill', choices.seeds or STUDENT_SEEDS,
            [f'--task={name}', *data_of(name), f'--layers={layers}', *typed,
             f'--teacher={teacher_of(choices, name)}', *TAUGHT[name]],
        )
        for name in choices.tasks or TAUGHT
        for layers in LAYERS
        for method, typed in METHODS.items()
    ]  # fmt: skip


def train(choices: LevelsChoices, run: tuple[Group, pathlib.Path]) -> None:
    """Trains a run, unless finished before, and removes checkpoints."""
    from infoword_tf import checkpoint

    cell, workdir = run
    kept.evaluate(
        workdir, cell.command, *cell.typed, f'--{workdir.name}',
        *choices.typed.split(), init=choices.init,
    )  # fmt: skip
    shutil.rmtree(workdir / checkpoint.FOLDER, ignore_errors=True)
    score = spread(scores_of(cell.task, [workdir]))
    print(f'{workdir}: {score}\n', end='', flush=True)


# ----------------------------------------------------------------------- table


def last_of(run: pathlib.Path) -> dict[str, Any]:
    """Reads the record of the last update, which no score has chosen."""
    return kept.records_of(run)[-1]


def scores_of(name: str, runs: Sequence[pathlib.Path]) -> list[float]:
    """Reads the first metric of a task, of each run, as a share."""
    task = task_of(name)
    key = f'heldout/{task.row}/{task.metrics[0]}'
    whole = PERCENT if name == SQUAD else 1
    return [last_of(run)[key] / whole for run in runs]


def commonest_of(name: str) -> float:
    """Scores the answer to the dev file that reads nothing, as a share."""
    if name == SQUAD:
        from tasks import squad_data

        questions = squad_data.read(pathlib.Path(FILES['dev']))
        return squad.commonest_of(questions, False).score / PERCENT
    task = task_of(name)
    targets = task.targets(glue_layout.read(name, 'glue', 'dev'))
    return of_targets(task.metrics[0], targets, task.class_names).score


def level_lines(choices: LevelsChoices, cells: Sequence[Group]) -> list[str]:
    """Makes the table of levels, of finished runs."""
    del choices
    titles = ['task', 'examples', 'score', 'before', 'after',
              'MI of the label', 'ceiling', 'updates', 'minutes']  # fmt: skip
    lines = []
    for cell in cells:
        runs, task = cell.runs, task_of(cell.task)
        minutes = statistics.fmean(
            kept.read_json(run / 'metrics.json')['seconds'] for run in runs
        ) / 60  # fmt: skip
        ends = [last_of(run) for run in runs]
        sizes = kept.read_json(runs[0] / 'config.json')['task']['sizes']
        lines.append([
            cell.task, f'{sizes["train"]:,}', task.metrics[0],
            f'{commonest_of(cell.task):.3f}',
            spread(scores_of(cell.task, runs)),
            *(spread([end.get(f'heldout/{task.row}/{x}') for end in ends])
              for x in ('mi', 'ceiling')),
            f'{ends[0]["step"]:,}', f'{minutes:.1f}',
        ])  # fmt: skip
    return report.table(titles, lines)


def student_lines(choices: LevelsChoices, cells: Sequence[Group]) -> list[str]:
    """Makes the table of students, of finished runs."""
    titles = ['task', 'layers', 'score', 'teacher', *METHODS]
    lines = []
    for first in range(0, len(cells), len(METHODS)):
        name, folder, *_ = cells[first]
        lines.append([
            name, folder.parent.name, task_of(name).metrics[0],
            spread(scores_of(name, [teacher_of(choices, name)])),
            *(spread(scores_of(name, cell.runs))
              for cell in cells[first : first + len(METHODS)]),
        ])  # fmt: skip
    return report.table(titles, lines)


def seeds_of(cells: Sequence[Group]) -> str:
    """Names the seeds, with the tasks if not all have the same."""
    tasks: dict[str, dict[str, None]] = {}
    for cell in cells:
        tasks.setdefault(name_seeds(cell.seeds), {})[cell.task] = None
    if len(tasks) == 1:
        return ''.join(tasks)
    return ', '.join(f'{seeds} ({", ".join(x)})' for seeds, x in tasks.items())


@commands.takes(LevelsChoices)
def run(choices: LevelsChoices, chosen: Mapping[str, Any]) -> None:
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
    if unknown := [name for name in choices.tasks if name not in LEVELS]:
        raise errors.UsageError(
            'unknown_level',
            f'--tasks={",".join(unknown)}: take some of {", ".join(LEVELS)}',
        )
    cells_of, lines_of = levels_of, level_lines
    if choices.table == 'students':
        commands.require(vars(choices), teachers='the --workdir of levels')
        cells_of, lines_of = students_of, student_lines
    cells = cells_of(choices)
    data = {
        path
        for cell in cells
        for path in (FILES.values() if cell.task == SQUAD else ['glue'])
    }
    if choices.teachers:
        data |= {teacher_of(choices, cell.task) for cell in cells}
    kept.check_data(sorted(map(str, data)))
    folder = pathlib.Path(choices.workdir)
    kept.bind_commit(folder)
    runs = [(cell, workdir) for cell in cells for workdir in cell.runs]
    kept.side_by_side(functools.partial(train, choices), runs, choices.lanes)
    precision = kept.read_json(runs[0][1] / 'config.json')['precision']
    lines = lines_of(choices, cells)
    kept.write_table(folder, lines, f'{seeds_of(cells)}, {precision}')


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
