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
class TableChoices:
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
class Choices(TableChoices, finetune.Choices):
    """All that the command may choose."""

    test: str | None = flag(
        None, 'A labelled table on which the selected weights are scored.')
    predict: str | None = flag(
        None, 'A table to predict with the selected weights (its labels are '
        f'not read): WORKDIR/{PREDICTIONS}.')


def read(
    path: str, own: TableChoices, labelled: bool = True
) -> tables.TableExamples:
    """A table, as the flags say, with or without its labels.

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
        path, own.columns or None, lacking=None if labelled else own.label
    )
    label = own.label if labelled else None
    try:
        return tables.examples_of(
            table, own.text, own.pair, label, own.regress, choices
        )
    except tables.NoColumn as error:
        if not tables.begins_with_a_row(table):
            raise
        names = ','.join(['NAME'] * len(table.names))
        raise ValueError(
            f'{error}; its first line reads like a row: name the columns of '
            f'such files with --columns={names}'
        ) from None


def parts_of(own: TableChoices) -> dict[str, tables.TableExamples]:
    """Training and dev examples.

    Raises:
        UsageError: the choices do not say where; see `read`.
    """
    commands.require(
        vars(own),
        train='a table to train on',
        dev='a table to choose the weights by',
    )
    return {'train': read(own.train, own), 'heldout': read(own.dev, own)}


def others_of(
    own: Choices, task: finetune.Task
) -> dict[str, tables.TableExamples]:
    """The tables of --test and --predict, by flag, of those that are named.

    Raises:
        ValueError: as `read`; or a label is none of the task's.
    """
    others = {
        flag: read(getattr(own, flag), own, labelled=flag == 'test')
        for flag in ('test', 'predict')
        if getattr(own, flag)
    }
    if 'test' in others:
        task.targets(others['test'])
    return others


def task_of(rows: tables.TableExamples, own: TableChoices) -> finetune.Task:
    """What is asked of a table to train on.

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


def tested(
    folder: pathlib.Path,
    task: finetune.Task,
    others: Mapping[str, tables.TableExamples],
) -> dict[str, float]:
    """Scores and predictions of the tables of `others_of` by a run's weights.

    Returns:
        By 'test_' and metric, the scores of the table 'test'; predictions
        go to the folder.
    """
    if not others:
        return {}
    import infoword_tf

    loaded, scores = infoword_tf.load(folder), {}
    if 'test' in others:
        said = finetune.answers(loaded, task, others['test'])
        true = task.targets(others['test'])
        worth = finetune.measured(task, said, true)
        scores = {f'test_{k}': round(v, 6) for k, v in worth.items()}
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
    rows: tables.TableExamples,
    said: np.ndarray,
) -> None:
    """Writes a TSV of the predictions for some rows, atomically.

    A line of names, then a line a row: the number of its line in the table,
    and the class with the probabilities of all, or a number.

    `said` is as of `finetune.answers`.
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
    lines = zip(('line', *map(str, rows.lines)), (names, *cells), strict=True)
    text = ''.join('\t'.join([line, *some]) + '\n' for line, some in lines)
    with files.written(path) as partial:
        partial.write_text(text, encoding='utf-8')


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
    finetune.draw(workdir, task, parts['heldout'], out)
    if 'predict' in others and workdir != out:
        with files.written(out / PREDICTIONS) as partial:
            shutil.copyfile(workdir / PREDICTIONS, partial)
        print(f'{out / PREDICTIONS}: those of {workdir.name}', flush=True)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
