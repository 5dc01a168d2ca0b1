r"""Classes, or numbers, of your own texts: any table, no code.

    python -m tasks.classify --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder --workdir=runs/mails
    python -m tasks.classify --init=runs/minilm --train=pairs.jsonl \
        --dev=pairs_dev.jsonl --text=question --pair=answer --label=grade \
        --regress --workdir=runs/grades

Tables are .tsv, .csv or .jsonl (also with .gz), or tfds:NAME[/CONFIG][:SPLIT].
--columns=a,b,c names the columns of .tsv and .csv files whose first line does
not. --choices=a,b,c instead of --pair asks which of these columns' texts is
right; the label is the column's name, or its number from 0. All flags of
`infoword_tf.train` apply. The weights with the best score on --dev are kept.
WORKDIR/confusion.png is the confusion matrix of --dev.

With these weights --test scores another table, and --predict labels one whose
labels are not read, line by line in WORKDIR/predictions.tsv. Both also work on
a finished run: the same command with them does not train again. With several
runs (--seeds, --sweep) each has its scores and predictions in its folder, and
WORKDIR has those of the best run.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
From Python it is classify.run(init='runs/minilm', train='mails.csv', ...).
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.data import tables
from tasks import finetune, measures

PREDICTIONS = 'predictions.tsv'
_ONE_CELL = str.maketrans('\t\n\r', '   ')


@dataclasses.dataclass(frozen=True)
class Tables:
    """Which examples are read."""

    train: str | None = flag(None, 'A table to train on.')
    dev: str | None = flag(None, 'A table on which the weights are selected.')
    columns: tuple[str, ...] = flag(
        (), 'Column names of TSV and CSV files that have no header line, in '
        'order; a file whose labels are not read may lack that column.')
    text: str = flag('text', 'Column of the text.')
    pair: str | None = flag(None, 'Column of a second text.')
    choices: tuple[str, ...] = flag(
        (), 'Columns of the second texts of which one is right (multiple '
        'choice).')
    label: str = flag('label', 'Column of the label.')
    regress: bool = flag(False, 'Labels are numbers (regression).')
    metric: str | None = flag(
        None, 'Metric that selects the weights; by default accuracy, or '
        'spearman for --regress.', choices=tuple(measures.MEASURES))


@dataclasses.dataclass(frozen=True)
class Choices(Tables, finetune.Choices):
    """All that the command may choose."""

    test: str | None = flag(
        None, 'A labelled table on which the selected weights are scored.')
    predict: str | None = flag(
        None, 'A table to predict with the selected weights (its labels are '
        f'not read): WORKDIR/{PREDICTIONS}.')


def read(path: str, own: Tables, labelled: bool = True) -> tables.Rows:
    """A table, as the flags say.

    Args:
        path: of the table.
        own: what was chosen.
        labelled: whether its labels are read.

    Raises:
        UsageError: flags that do not go together.
        ValueError: the table cannot be read, with file and line.
    """
    choices = own.choices
    if choices and (own.pair or own.regress):
        raise commands.UsageError(
            '--choices names the texts that the label chooses from; leave out '
            '--pair and --regress'
        )
    if len(choices) == 1:
        raise commands.UsageError(
            f'--choices={choices[0]}: name two columns or more'
        )
    table = tables.open_table(
        path,
        own.columns or None,
        lacking=None if labelled else own.label,
    )
    try:
        return tables.rows_of(
            table,
            own.text,
            own.pair,
            own.label if labelled else None,
            own.regress,
            choices,
        )
    except tables.NoColumn as error:
        if not tables.begins_with_a_row(table):
            raise
        names = ','.join(['NAME'] * len(table.names))
        raise ValueError(
            f'{error}; its first line reads like a row: name the columns of '
            f'such files with --columns={names}'
        ) from None


def parts_of(own: Tables) -> dict[str, tables.Rows]:
    """Training and dev examples.

    Args:
        own: what was chosen.

    Raises:
        UsageError: they do not say where; see `read`.
    """
    commands.require(
        vars(own),
        train='a table to train on',
        dev='a table to choose the weights by',
    )
    return {
        'train': read(own.train, own), 'heldout': read(own.dev, own)
    }  # fmt: skip


def others_of(
    own: Choices, task: finetune.Task
) -> dict[str, tables.Rows]:
    """The tables of --test and --predict, by flag, of those that are named.

    Args:
        own: what was chosen.
        task: what is asked.

    Raises:
        ValueError: as `read`; or a label is none of the task's.
    """
    found = {
        flag: read(getattr(own, flag), own, labelled=flag == 'test')
        for flag in ('test', 'predict')
        if getattr(own, flag)
    }
    if 'test' in found:
        task.targets(found['test'])
    return found


def task_of(rows: tables.Rows, own: Tables) -> finetune.Task:
    """What is asked of a table.

    Args:
        rows: to train on.
        own: what was chosen.

    Raises:
        ValueError: it has one class alone.
        UsageError: a metric that is not for it.
    """
    metrics = ('accuracy', 'f1', 'matthews')
    labels: tuple[str, ...] = ()
    if own.regress:
        metrics = ('spearman', 'pearson')
    elif own.choices:
        numbers = [str(i) for i in range(len(own.choices))]
        named = set(rows.labels) - set(numbers)
        labels = tuple(own.choices if named else numbers)
        metrics = ('accuracy',)
    else:
        labels = tuple(tables.classes(rows))
        if len(labels) > 2:
            metrics = ('accuracy', 'matthews')
    best = own.metric or metrics[0]
    if best not in metrics:
        raise commands.UsageError(
            f'--metric={best}: here there are {", ".join(metrics)}'
        )
    others = (m for m in metrics if m != best)
    return finetune.Task('classify', (best, *others), labels)


def answer(
    workdir: pathlib.Path,
    task: finetune.Task,
    parts: Mapping[str, tables.Rows],
    out: pathlib.Path,
) -> None:
    """Draws the confusion matrix of the selected weights.

    Args:
        workdir: of the run that was best.
        task: what was asked.
        parts: as `parts_of`.
        out: where confusion.png goes.
    """
    if task.labels:
        measures.draw_confusion(
            out / 'confusion.png',
            task.shown,
            task.targets(parts['heldout']),
            finetune.say(workdir, task, parts['heldout']),
        )


def tested(
    folder: pathlib.Path,
    task: finetune.Task,
    others: Mapping[str, tables.Rows],
) -> dict[str, float]:
    """Scores and predictions of further tables by the weights of a run.

    Args:
        folder: of the run, where predictions go.
        task: what is asked.
        others: as `others_of`.

    Returns:
        By 'test_' and metric, the scores of the table 'test'.
    """
    if not others:
        return {}
    import infoword_tf

    loaded, scores = infoword_tf.load(folder), {}
    if 'test' in others:
        said = finetune.answers(loaded, task, others['test'])
        if task.labels:
            said = said.argmax(axis=1)
        true = task.targets(others['test'])
        scores = {
            f'test_{name}': round(measures.MEASURES[name](said, true), 6)
            for name in task.metrics
        }
    if 'predict' in others:
        rows = others['predict']
        said = finetune.answers(loaded, task, rows)
        write_predictions(folder / PREDICTIONS, task, rows, said)
        print(
            f'{folder / PREDICTIONS}: {len(said):,} predictions for '
            f'{rows.where}',
            flush=True,
        )
    return scores


def write_predictions(
    path: pathlib.Path,
    task: finetune.Task,
    rows: tables.Rows,
    said: np.ndarray,
) -> None:
    """Writes a TSV of the predictions for some rows, atomically.

    A line of names, then a line a row: the number of its line in the table,
    and the class with the probabilities of all, or a number.

    Args:
        path: of the file.
        task: what was asked.
        rows: of the table.
        said: as `finetune.answers`.
    """
    if task.labels:
        shown = [name.translate(_ONE_CELL) for name in task.shown]
        names = ['label', *(f'p({name})' for name in shown)]
        cells = [
            [shown[best], *(f'{p:.6f}' for p in some)]
            for best, some in zip(said.argmax(axis=1), said, strict=True)
        ]
    else:
        names, cells = ['score'], [[f'{number:.7g}'] for number in said]
    lines = [['line', *names]]
    lines += [
        [str(line), *some] for line, some in zip(rows.lines, cells, strict=True)
    ]
    with files.written(path) as partial:
        text = '\n'.join(map('\t'.join, lines))
        partial.write_text(f'{text}\n', encoding='utf-8')


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command."""
    commands.require(vars(given), workdir='a folder for this run')
    finetune.check_inits(given.init)
    parts = parts_of(given)
    task = task_of(parts['train'], given)
    others = others_of(given, task)
    prepared = finetune.prepare(task, parts, given)
    workdir, values = finetune.train_all(
        task, prepared, chosen, lambda folder: tested(folder, task, others)
    )
    out = pathlib.Path(given.workdir)
    answer(workdir, task, parts, out)
    if 'predict' in others and workdir != out:
        with files.written(out / PREDICTIONS) as partial:
            shutil.copyfile(workdir / PREDICTIONS, partial)
        print(f'{out / PREDICTIONS}: those of {workdir.name}', flush=True)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
