r"""Classes, or numbers, of your own texts: any table, no code.

    python -m tasks.classify --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder --workdir=runs/mails
    python -m tasks.classify --init=runs/minilm --train=pairs.jsonl \
        --dev=pairs_dev.jsonl --text=question --pair=answer --label=grade \
        --regress --workdir=runs/grades

Tables are .tsv, .csv, .jsonl (also as .gz or .zst) or .parquet files, or
tfds:NAME[/CONFIG][:SPLIT]. Where the column --label holds lists, or with
--label_columns=a,b,c (a column of 0 and 1 for each label), a text may have
several labels, or none.
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

    python -m tasks.classify --init=runs/mbert --train=glue/MNLI/train.tsv \
        --dev=glue/MNLI/dev_matched.tsv --text=sentence1 --pair=sentence2 \
        --label=gold_label --test=xnli.test.tsv --test_by=language --epochs=1 \
        --workdir=runs/xnli

--test may have parts, which are scored apart, and their mean: the values of its
column --test_by, or several tables, of whose names one * stands for what
differs (--test=pawsx/*/test_2k.tsv). The example is XNLI (Conneau et al. 2018).

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
From Python it is classify.run(init='runs/minilm', train='mails.csv', ...).
"""

import dataclasses
import itertools
import json
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.config import Config
from infoword_tf.data import tables, textfiles
from tasks import finetune, measures

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

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
    delimiter: str | None = again(
        TextChoices, 'pair_delimiter', None, help='What parts the cells of '
        '.csv files; by default as their first lines say.')
    text: str = flag('text', 'Column of the text.')
    pair: str | None = flag(None, 'Column of a second text.')
    choices: tuple[str, ...] = flag(
        (), 'Columns of the second texts of which one is right (multiple '
        'choice).')
    label: str = flag(
        'label', 'Column of the label, or of lists of labels, of which a text '
        'may have several or none.')
    label_columns: tuple[str, ...] = flag(
        (), 'Instead of --label a column for each label, which says of every '
        'text whether it has it: 0 or 1.')
    regress: bool = flag(False, 'Labels are numbers (regression).')
    metric: str | None = flag(
        None, 'Metric that selects the weights; by default accuracy, f1_micro '
        'of several labels, or spearman for --regress.',
        choices=tuple(measures.MEASURES))


@dataclasses.dataclass(frozen=True)
class Choices(TableChoices, finetune.Choices):
    """All that the command may choose."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'train', 'dev', 'text', 'pair', 'label', 'regress', 'test', 'predict',
        *finetune.Choices.USUAL,
    )  # fmt: skip

    test: str | None = flag(
        None, 'A labelled table on which the selected weights are scored; or '
        'several, with one * for what differs in their names.')
    test_by: str | None = flag(
        None, 'Column of --test whose values are scored apart: language, say.')
    test_only: tuple[str, ...] = flag(
        (), 'Which of these values are scored, or of the names that * stands '
        'for, in this order; by default all.')
    predict: str | None = flag(
        None, 'A table to predict with the selected weights (its labels are '
        f'not read): WORKDIR/{PREDICTIONS}.')


class Others(NamedTuple):
    """What the weights of a run answer besides --dev.

    Attributes:
        tests: of --test, by name; a table that is not parted has the name ''.
        predict: of --predict; None: it was not given.
    """

    tests: Mapping[str, tables.TableExamples]
    predict: tables.TableExamples | None


def read(
    path: str, own: TableChoices, labelled: bool = True
) -> tables.TableExamples:
    """A table, as the flags say, with or without its labels.

    Raises:
        UsageError: flags that do not go together.
        ValueError: the table cannot be read, with file and line.
    """
    return read_parted(path, own, labelled)['']


def read_parted(
    path: str,
    own: TableChoices,
    labelled: bool = True,
    by: str | None = None,
    only: Sequence[str] = (),
) -> dict[str, tables.TableExamples]:
    """The same by the value of a column; of `only` some of them, if any.

    Without a column there is one part, ''.
    """
    choices = own.choices
    if choices and (own.pair or own.regress):
        raise errors.UsageError(
            '--choices names the texts that the label chooses from; leave out '
            '--pair and --regress'
        )
    if own.label_columns and (choices or own.regress):
        raise errors.UsageError(
            '--label_columns names labels of which a text may have several; '
            'leave out --choices and --regress'
        )
    if len(set(own.label_columns)) < len(own.label_columns):
        raise errors.UsageError(
            f'--label_columns={",".join(own.label_columns)} names a column '
            'twice; name each once'
        )
    if len(choices) == 1:
        raise errors.UsageError(
            f'--choices={choices[0]}: name two columns or more'
        )
    table = tables.open_table(
        path, own.columns or None, lacking=None if labelled else own.label,
        delimiter=own.delimiter, lists=[own.label],
    )  # fmt: skip
    label = own.label if labelled else None
    columns = own.label_columns if labelled else ()
    lists = not (choices or own.regress)
    try:
        parts = {'': table}
        if by is not None:
            parts = chosen_of(tables.split_by(table, by), only, path)
        return {
            name: tables.examples_of(
                part, own.text, own.pair, label, own.regress, choices,
                columns, lists,
            )  # fmt: skip
            for name, part in parts.items()
        }
    except tables.NoColumn as error:
        if not tables.lacks_names(table):
            raise
        names = ','.join(['NAME'] * len(table.names))
        raise ValueError(
            f'{error}; its first line reads like a row: name the columns of '
            f'such files with --columns={names}'
        ) from None


def chosen_of(
    parts: Mapping[str, Any], only: Sequence[str], where: str
) -> dict[str, Any]:
    """The parts that --test_only names, in its order; all where it is empty.

    Raises:
        UsageError: there is no such part.
    """
    for name in only:
        if name not in parts:
            raise errors.UsageError(
                f'--test_only={",".join(only)}: there is no {name!r} in '
                f'{where}, which has {", ".join(parts)}'
            )
    return {name: parts[name] for name in only or parts}


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


def tests_of(own: Choices) -> dict[str, tables.TableExamples]:
    """The table of --test, its parts, or several tables, by name.

    Raises:
        UsageError: flags that do not go together, or name no part.
        ValueError: as `read`; or no file has such a name.
    """
    pattern, by, only = own.test, own.test_by, own.test_only
    if pattern is None:
        for flag in ('test_by', 'test_only'):
            if getattr(own, flag):
                raise errors.UsageError(f'--{flag} is for --test; give both')
        return {}
    path = str(pathlib.Path(pattern).expanduser())  # as files are found
    before, star, after = path.partition('*')
    if star and (by or set('*?[') & set(before + after)):
        raise errors.UsageError(
            f'--test={pattern}: one * stands for the name of a part; leave '
            'out ' + ('--test_by' if by else 'other wildcards')
        )
    if only and not (star or by):
        raise errors.UsageError(
            f'--test_only={",".join(only)} chooses parts of --test: name a '
            'column with --test_by, or several tables with one *'
        )
    if not star:
        return read_parted(pattern, own, by=by, only=only)
    paths = {
        str(file).removeprefix(before).removesuffix(after): str(file)
        for file in textfiles.find(path)
    }
    return {
        name: read(path, own)
        for name, path in chosen_of(paths, only, pattern).items()
    }


def others_of(own: Choices, task: finetune.Task) -> Others:
    """The tables of --test and --predict.

    Raises:
        UsageError: as `tests_of`.
        ValueError: as `read`; or a label is none of the task's.
    """
    tests, predict = tests_of(own), None
    for rows in tests.values():
        task.targets(rows)
    if own.predict:
        predict = read(own.predict, own, labelled=False)
    return Others(tests, predict)


def task_of(
    rows: tables.TableExamples, own: TableChoices, model: str | None = None
) -> finetune.Task:
    """What is asked of a table to train on.

    Args:
        rows: of the table.
        own: what was chosen.
        model: a workdir. Several labels stand in its order where they are the
            same, so that what it knows of them can be used.

    Raises:
        ValueError: it has one class alone, or no label at all.
        UsageError: a metric that is not for it.
    """
    metrics = ('accuracy', 'f1', 'matthews')
    labels: tuple[str, ...] = ()
    multilabel = rows.label_sets is not None
    if own.regress:
        metrics = ('spearman', 'pearson')
    elif own.choices:
        numbers = [str(i) for i in range(len(own.choices))]
        named = set(rows.labels) - set(numbers)
        labels = tuple(own.choices if named else numbers)
        metrics = ('accuracy',)
    elif multilabel:
        labels = tuple(tables.classes(rows))
        if own.label_columns:  # a label that no text has is one
            labels = own.label_columns
        known = Config.read(model).labels if model else ()
        if sorted(known) == sorted(labels):
            labels = known
        metrics = ('f1_micro', 'f1_macro')
    else:
        labels = tuple(tables.classes(rows))
        if len(labels) > 2:
            metrics = ('accuracy', 'matthews')
    best = own.metric or metrics[0]
    if best not in metrics:
        raise errors.UsageError(
            f'--metric={best}: here there are {", ".join(metrics)}'
        )
    others = (m for m in metrics if m != best)
    return finetune.Task(
        'classify', (best, *others), labels, multilabel=multilabel
    )


def tested(
    folder: pathlib.Path, task: finetune.Task, others: Others
) -> dict[str, Any]:
    """Scores and predictions of `others_of` by a run's weights.

    Returns:
        As of `scores_of`; predictions go to the folder.
    """
    if not others.tests and others.predict is None:
        return {}
    import infoword_tf

    loaded, scores = infoword_tf.load(folder), {}
    if others.tests:
        if '' not in others.tests:
            print(
                f'{folder}: the weights with the best {task.metrics[0]} on '
                '--dev, on each part of --test',
                flush=True,
            )
        scores = scores_of(loaded, task, others.tests)
    if others.predict is not None:
        rows = others.predict
        said = finetune.answers(loaded, task, rows)
        write_predictions(folder / PREDICTIONS, task, rows, said)
        print(
            f'{folder / PREDICTIONS}: {len(said):,} predictions for '
            f'{rows.where}',
            flush=True,
        )
    return scores


def scores_of(
    loaded: 'Loaded',
    task: finetune.Task,
    tests: Mapping[str, tables.TableExamples],
) -> dict[str, Any]:
    """How good a model is on tables, or on parts of one, by their names.

    Returns:
        By 'test_' and metric the mean over the parts; and where they have
        names, each under 'test_by' with its rows. That one is printed too.
    """
    parts, are_named = {}, '' not in tests
    width = max(map(len, (*tests, 'mean')))

    def line(name: str, *cells: str) -> None:
        if are_named:
            shown = [f'{cell:>10}' for cell in cells]
            print(f'{name:<{width}}', *shown, flush=True)

    line('', *task.metrics, 'rows')
    for name, rows in tests.items():
        said = finetune.answers(loaded, task, rows)
        parts[name] = finetune.measured(
            task, said, task.targets(rows), measures.LIKELY
        )
        shown = (f'{value:.4f}' for value in parts[name].values())
        line(name, *shown, f'{len(said):,}')
    means = {
        m: float(np.mean([part[m] for part in parts.values()]))
        for m in task.metrics
    }
    line('mean', *(f'{value:.4f}' for value in means.values()))
    scores: dict[str, Any] = {
        f'test_{m}': round(value, 6) for m, value in means.items()
    }
    if are_named:
        scores['test_by'] = {
            name: {m: round(value, 6) for m, value in part.items()}
            | {'rows': len(tests[name].first)}
            for name, part in parts.items()
        }
    return scores


def write_predictions(
    path: pathlib.Path,
    task: finetune.Task,
    rows: tables.TableExamples,
    said: np.ndarray,
) -> None:
    """Writes a TSV of the predictions for some rows, atomically.

    A line of names, then a line a row: the number of its line in the table,
    and the class (of several labels a list of JSON) with the probabilities of
    all, or a number.

    `said` is as of `finetune.answers`.
    """
    if task.labels:
        shown = [name.translate(_ONE_CELL) for name in task.shown]
        names = ['labels' if task.multilabel else 'label']
        names += [f'p({name})' for name in shown]
        chosen = task.chosen(said, measures.LIKELY)
        if task.multilabel:
            sets = (itertools.compress(task.shown, has) for has in chosen)
            labels = [json.dumps([*x], ensure_ascii=False) for x in sets]
        else:
            labels = [shown[best] for best in chosen]
        cells = [
            [label, *(f'{p:.6f}' for p in row)]
            for label, row in zip(labels, said, strict=True)
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
    task = task_of(parts['train'], given, given.init)
    others = others_of(given, task)
    prepared = finetune.prepare(task, parts, given)
    workdir, values = finetune.train_all(
        task, prepared, chosen, lambda folder: tested(folder, task, others)
    )
    out = pathlib.Path(given.workdir)
    finetune.draw(workdir, task, parts['heldout'], out)
    if others.predict is not None and workdir != out:
        with files.written(out / PREDICTIONS) as partial:
            shutil.copyfile(workdir / PREDICTIONS, partial)
        print(f'{out / PREDICTIONS}: those of {workdir.name}', flush=True)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
