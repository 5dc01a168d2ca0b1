r"""Few labels and much text: what a teacher is worth to small students.

    python -m benchmarks.few --init=MiniLM --workdir=runs/few

Of a task of GLUE, or of WNUT17's messages whose words are tagged (TASKS), N
examples have labels (LABELS), and other texts, or pairs, have none, EXTRA of
them or all. A teacher is --init fine-tuned on the N by `tasks.classify` or
`tasks.tag`. Students learn by `tasks.distill` from the N labels alone, or from
the teacher too, which also labels the texts (METHODS). They are --init's
first layers, and the word table of --lookup if there is one (`tasks.distill
--task=embed --student=lookup` makes it). All students of a line have the same
number of updates: `updates` of the task, of the table LOOKUP_UPDATES.

Each seed draws its own examples. The scores are those after the last update, of
the whole dev set, which chooses nothing: accuracy, of tags F1. The working
folder has the data: glue/ with the folder of the task, or wnut17/. A run is a
process and a folder, WORKDIR/TASK/N/seed=0/STUDENT/METHOD, without checkpoints
at the end; finished runs stay, and a stopped command goes on.

Prints the table, the mean over the seeds (lowest-highest), and writes it to
WORKDIR/table.md. Milliseconds are of one text, or pair, on all processors.
"""

import dataclasses
import pathlib
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from benchmarks import kept, report
from benchmarks.tables import name_seeds, spread
from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout, tables
from infoword_tf.data.glue_layout import GlueTask
from tasks import tag_data

LABELS, EXTRA = ('500', '2000'), 10_000
BATCH = 32
ALONE, LOOKUP = 'labels alone', 'word table'
# An update changes only the words that it reads: tables need all texts often.
LOOKUP_UPDATES = 1320
METHODS = {
    ALONE: ('--alpha=0', '--patience=none'),
    'KD': ('--patience=none',),
    'PKD-last': ('--patience=last',),
    'PKD-skip': ('--patience=skip',),
}
OF_LOOKUP = ALONE, 'KD'
TIMED = 100  # texts of the dev set


@dataclasses.dataclass(frozen=True)
class GlueExamples:
    """A task of GLUE, of texts or pairs, scored by accuracy.

    Attributes:
        task: names of columns and files.
    """

    task: GlueTask
    command, score, suffix = 'classify', 'label/accuracy', 'tsv'
    teacher_updates, updates = 200, 330

    def path(self, split: str) -> pathlib.Path:
        """Returns the file of a split."""
        return pathlib.Path('glue', self.task.folder, self.task.files[split][0])

    def flags(self, command: str) -> list[str]:
        """Names the columns for a command."""
        del command
        columns = zip(('text', 'pair', 'label'), self.task.columns, strict=True)
        return [f'--{name}={column}' for name, column in columns if column]

    def examples(self, split: str) -> list[tuple[str, ...]]:
        """Reads texts and labels, a tuple for each row."""
        table = tables.open_table(str(self.path(split)))
        columns = filter(None, self.task.columns)
        places = [tables.column_of(table, x) for x in columns]
        return [tuple(cells[x] for x in places) for _, cells in table.rows]

    def written(self, examples: Sequence[Any], labelled: bool) -> str:
        """Writes a table of examples."""
        rows = [tuple(filter(None, self.task.columns)), *examples]
        end = None if labelled else -1
        return ''.join('\t'.join(row[:end]) + '\n' for row in rows)

    def ask(self, loaded: Any, example: tuple[str, ...]) -> None:
        """Asks a model for the label of an example."""
        loaded.classify(*([text] for text in example[:-1]))


class WnutExamples:
    """Messages of WNUT17, of tagged words, scored by F1 of spans.

    Entities are rare: after 200 updates a teacher knows fewer of them than a
    student that learns the labels alone for longer.
    """

    command, score, suffix = 'tag', 'tag/f1', 'conll'
    teacher_updates = updates = 1000
    names: ClassVar = {
        'train': 'wnut17train.conll', 'dev': 'emerging.dev.conll'
    }  # fmt: skip

    def path(self, split: str) -> pathlib.Path:
        """Returns the file of a split."""
        return pathlib.Path('wnut17', self.names[split])

    def flags(self, command: str) -> list[str]:
        """Names the task for the command of students."""
        return ['--task=tag'] if command == 'distill' else []

    def examples(self, split: str) -> list[tag_data.Tagged]:
        """Reads messages, each alone."""
        every = tag_data.read(str(self.path(split)), tag_data.TagColumns())
        return [
            every._replace(words=[words], tags=[tags])
            for words, tags in zip(every.words, every.tags, strict=True)
        ]

    def written(
        self, examples: Sequence[tag_data.Tagged], labelled: bool
    ) -> str:
        """Writes columns of words, and of tags."""
        columns = [(x.words[0], *x.tags[:labelled]) for x in examples]
        return '\n'.join(
            ''.join('\t'.join(row) + '\n' for row in zip(*x, strict=True))
            for x in columns
        )

    def ask(self, loaded: Any, example: tag_data.Tagged) -> None:
        """Asks a model for the tags of a message."""
        loaded.tag_words(example.words)


Examples = GlueExamples | WnutExamples
TASKS: dict[str, Examples] = {
    'wnut17': WnutExamples(),
    **{
        name: GlueExamples(glue_layout.TASKS[name])
        for name in ('sst-2', 'mnli', 'qnli')
    },
}


@dataclasses.dataclass(frozen=True)
class FewChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'A pretrained workdir, or a public folder.')
    lookup: str | None = flag(
        None, 'The workdir of a word table with the vocabulary of --init.')
    layers: tuple[str, ...] = flag(('3', '2'), 'Layers of students.')
    task: str = flag('sst-2', 'What is labelled.', choices=tuple(TASKS))
    labels: tuple[str, ...] = flag(LABELS, 'Numbers of labels.')
    seeds: int = flag(3, 'Runs of each: seeds 0, 1, ...', at_least=1)
    typed: str = flag('', 'Further flags of all runs, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs and table go.')


def write_examples(
    task: Examples, folder: pathlib.Path, count: int, seed: int
) -> None:
    """Draws `count` examples with labels, and EXTRA texts without.

    Writes the files `train` and `extra` of FOLDER.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train = task.examples('train')
    order = np.random.default_rng(seed).permutation(len(train))
    drawn = [train[n] for n in order[: count + EXTRA]]
    for name, examples in ('train', drawn[:count]), ('extra', drawn[count:]):
        with files.written(folder / f'{name}.{task.suffix}') as partial:
            partial.write_text(task.written(examples, name == 'train'))


def train(
    workdir: pathlib.Path,
    command: str,
    task: Examples,
    init: str,
    updates: int,
    *typed: str,
) -> pathlib.Path:
    """Trains a run, unless finished before; returns the workdir."""
    from infoword_tf import checkpoint

    kept.evaluate(
        workdir, command, *typed, *task.flags(command),
        f'--dev={task.path("dev")}', f'--batch_size={BATCH}',
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
    folder = folder / choices.task / str(count) / f'seed={seed}'
    task = TASKS[choices.task]
    write_examples(task, folder, count, seed)
    train_file, extra_file = (
        folder / f'{x}.{task.suffix}' for x in ('train', 'extra')
    )
    common = [
        f'--train={train_file}', f'--seed={seed}',
        *choices.typed.split(),
    ]  # fmt: skip
    teacher = train(
        folder / 'teacher', task.command, task, choices.init,
        task.teacher_updates, *common,
    )  # fmt: skip
    runs = {'teacher': teacher}
    for student, (init, typed) in students_of(choices).items():
        updates = LOOKUP_UPDATES if student == LOOKUP else task.updates
        for method in OF_LOOKUP if student == LOOKUP else METHODS:
            extra = [f'--extra={extra_file}']
            name = f'{student}/{method}'
            runs[name] = train(
                folder / name.replace(' ', '_'), 'distill', task, init, updates,
                *common, *typed, *METHODS[method], f'--teacher={teacher}',
                *(extra if method != ALONE else ()),
            )  # fmt: skip
            score = score_of(runs[name], task)
            print(f'{folder}: {name}: {score:.3f}', flush=True)
    return runs


def score_of(workdir: pathlib.Path, task: Examples) -> float:
    """Reads the score after the last update."""
    return kept.records_of(workdir)[-1][f'heldout/{task.score}']


def milliseconds_of(workdir: pathlib.Path, task: Examples) -> float:
    """Times answers to one text, or pair, after another; the median."""
    import infoword_tf

    loaded = infoword_tf.load(workdir)
    seconds = []
    for example in task.examples('dev')[:TIMED]:
        begin = time.perf_counter()
        task.ask(loaded, example)
        seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def megabytes_of(workdir: pathlib.Path) -> float:
    """Measures the file of the weights."""
    return (workdir / 'weights.safetensors').stat().st_size / 1e6


def lines_of(
    choices: FewChoices, runs: Mapping[int, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """Makes the table: a line for each number of labels and student."""
    lines, task = [], TASKS[choices.task]

    def shown(workdirs: Sequence[pathlib.Path]) -> str:
        return spread([score_of(x, task) for x in workdirs])

    for count, draws in runs.items():
        teachers = [draw['teacher'] for draw in draws]
        lines.append([
            f'{count:,}', 'teacher', f'{megabytes_of(teachers[0]):.0f}',
            f'{milliseconds_of(teachers[0], task):.1f}',
            shown(teachers),
            *[''] * (len(METHODS) - 1),
        ])  # fmt: skip
        for student in students_of(choices):
            first = draws[0][f'{student}/{ALONE}']
            lines.append([
                f'{count:,}', student, f'{megabytes_of(first):.0f}',
                f'{milliseconds_of(first, task):.1f}',
                *(shown([draw[name] for draw in draws])
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
    task = TASKS[choices.task]
    kept.check_data([task.path(x) for x in ('train', 'dev')])
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
        f'{choices.task}, {name_seeds(choices.seeds)}, up to {EXTRA:,} texts '
        f'without labels, {task.updates} updates of {BATCH}, of a table '
        f'{LOOKUP_UPDATES:,}',
    )  # fmt: skip


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
