r"""Classes, labels or numbers of texts: fine-tuning on any table.

    python -m tasks.classify --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder --workdir=runs/mails
    python -m tasks.classify --init=runs/minilm --train=pairs.jsonl \
        --dev=pairs_dev.jsonl --text=question --pair=answer --label=grade \
        --regress --workdir=runs/grades

Tables are .tsv, .csv, .jsonl (also as .gz or .zst) or .parquet files, or
tfds:NAME[/CONFIG][:SPLIT]. Where the column --label holds lists, with
--separator=';' or with --label_columns=a,b,c (a column of 0 and 1 for each
label), a text may have several labels, or none. --drop_label=- leaves out rows
that nobody has labelled.
--columns=a,b,c names the columns of .tsv and .csv files without a header line.
--choices=a,b,c instead of --pair is multiple choice: one of these columns has
the right text; the label is that column's name, or its number from 0. All flags
of `infoword_tf.train` apply. The weights with the best score on --dev are
saved. WORKDIR/confusion.png is the confusion matrix of --dev.

With these weights --test scores another table, and --predict predicts labels,
line by line, into WORKDIR/predictions.tsv. Both also work on a finished run:
the same command with them does not train again. With several runs (--seeds,
--sweep) each has scores and predictions in its folder, and WORKDIR has those of
the best run.

    python -m tasks.classify --init=runs/mbert --train=glue/MNLI/train.tsv \
        --dev=glue/MNLI/dev_matched.tsv --text=sentence1 --pair=sentence2 \
        --label=gold_label --test=xnli.test.tsv --test_by=language --epochs=1 \
        --workdir=runs/xnli

--test may have groups, which are scored one by one, with their mean: by the
values of its column --test_by, or several tables with one * in the name
(--test=pawsx/*/test_2k.tsv). The example is XNLI (Conneau et al. 2018).

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
From Python it is classify.run(init='runs/minilm', train='mails.csv', ...).
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.config import Config
from infoword_tf.data import labelling, tables, textfiles
from infoword_tf.data.labelling import ColumnChoices, TableExamples
from infoword_tf.evaluation import measures
from infoword_tf.training.begin import refuse_unknown_rows

from . import finetune
from .task import ANY_TABLE, HELDOUT, TRAIN
from .texts import TextTask

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

PREDICTIONS = 'predictions.tsv'
_ONE_CELL = str.maketrans('\t\n\r', '   ')


@dataclasses.dataclass(frozen=True)
class TableChoices(ColumnChoices):
    """Choices of the examples of a table."""

    train: str = flag('', 'A table to train on.')
    dev: str = flag('', 'A table on which the weights are selected.')
    columns: tuple[str, ...] = flag(
        (), 'Column names of TSV and CSV files that have no header line, in '
        'order; a file whose labels are not read may lack that column.')
    choices: tuple[str, ...] = flag(
        (), 'Columns of the second texts of which one is right (multiple '
        'choice).')
    separator: str | None = flag(
        None, 'What parts several labels in a cell of --label, which may be '
        'empty: ; say.')
    drop_label: tuple[str, ...] = flag(
        (), 'Leave out rows with these in the column of the label, since they '
        'have none: - or -1, say.')
    regress: bool = flag(False, 'Labels are numbers (regression).')
    metric: str | None = flag(
        None, 'Metric that selects the weights; by default accuracy, f1_micro '
        'of several labels, or spearman for --regress.',
        choices=tuple(measures.MEASURES))


@dataclasses.dataclass(frozen=True)
class ClassifyChoices(TableChoices, finetune.FinetuneChoices):
    """Choices of the command."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'train', 'dev', 'text', 'pair', 'label', 'regress', 'test', 'predict',
        *finetune.FinetuneChoices.USUAL,
    )  # fmt: skip

    test: str | None = flag(
        None, 'A labelled table on which the selected weights are scored; or '
        'several, with one * for what differs in their names.')
    test_by: str | None = flag(
        None, 'Column of --test whose values are scored one by one: language, '
        'say.')
    test_only: tuple[str, ...] = flag(
        (), 'Values of --test_by, or names that * stands for, that are scored, '
        'in this order; by default all.')
    predict: str | None = flag(
        None, 'A table to predict with the selected weights (its labels are '
        f'not read): WORKDIR/{PREDICTIONS}.')


def read(
    path: str, choices: TableChoices, labelled: bool = True
) -> TableExamples:
    """Reads a table with or without labels.

    Raises:
        UsageError: choices that contradict each other.
        ValueError: the table cannot be read, with file and line.
    """
    return read_groups(path, choices, labelled)['']


def read_groups(
    path: str,
    choices: TableChoices,
    labelled: bool = True,
    by: str | None = None,
    only: Sequence[str] = (),
) -> dict[str, TableExamples]:
    """Reads a table in groups by the values of a column, or by `only` values.

    Without a column there is one group, ''.
    """
    check_columns(choices)
    table = tables.open_table(
        path,
        choices.columns or None,
        lacking=None if labelled else choices.label,
        delimiter=choices.delimiter,
        lists=[choices.label],
    )
    read = labelling.TableColumns(
        text=choices.text,
        pair=choices.pair,
        label=choices.label if labelled else None,
        regress=choices.regress,
        choices=choices.choices,
        label_columns=choices.label_columns if labelled else (),
        lists=not (choices.choices or choices.regress),
        separator=choices.separator or None,
        drop=choices.drop_label,
    )
    try:
        groups = {'': table}
        if by is not None:
            groups = select(tables.split_by(table, by), only, path)
        examples = {
            name: labelling.examples_of(group, read)
            for name, group in groups.items()
        }
    except tables.NoColumn as error:
        if not tables.lacks_names(table):
            raise
        names = ','.join(['NAME'] * len(table.names))
        raise errors.InputError(
            'first_line_is_row',
            f'{error}; its first line reads like a row: name the columns of '
            f'such files with --columns={names}',
        ) from None
    for group in examples.values():
        for note in group.notes:
            print(note, flush=True)
    return examples


def check_columns(choices: TableChoices) -> None:
    """Raises UsageError for columns that do not go together."""
    options = choices.choices
    if options and (choices.pair or choices.regress):
        raise errors.UsageError(
            'choices_with_pair',
            '--choices names the texts that the label chooses from; leave out '
            '--pair and --regress',
        )
    if choices.separator is not None and (
        options or choices.regress or choices.label_columns
    ):
        raise errors.UsageError(
            'separator_with_choices',
            f'--separator={choices.separator} parts several labels of '
            '--label; leave out --choices, --regress and --label_columns',
        )
    if choices.label_columns and (options or choices.regress):
        raise errors.UsageError(
            'label_columns_with_choices',
            '--label_columns names labels of which a text may have several; '
            'leave out --choices and --regress',
        )
    if len(set(choices.label_columns)) < len(choices.label_columns):
        raise errors.UsageError(
            'label_column_twice',
            f'--label_columns={",".join(choices.label_columns)} names a column '
            'twice; name each once',
        )
    if len(options) == 1:
        raise errors.UsageError(
            'single_choice', f'--choices={options[0]}: name two columns or more'
        )


def select(
    groups: Mapping[str, Any], only: Sequence[str], where: str
) -> dict[str, Any]:
    """Selects groups by --test_only, in that order; all by default.

    Raises:
        UsageError: there is no such group.
    """
    for name in only:
        if name not in groups:
            raise errors.UsageError(
                'unknown_test_group',
                f'--test_only={",".join(only)}: there is no {name!r} in '
                f'{where}, which has {", ".join(groups)}',
            )
    return {name: groups[name] for name in only or groups}


def tests_of(choices: ClassifyChoices) -> dict[str, TableExamples]:
    """Reads the groups of --test, by name.

    Raises:
        UsageError: choices that contradict each other, or an unknown group.
        ValueError: as `read`, or no file matches.
    """
    pattern, by, only = choices.test, choices.test_by, choices.test_only
    if pattern is None:
        for flag in ('test_by', 'test_only'):
            if getattr(choices, flag):
                raise errors.UsageError(
                    'flag_without_test', f'--{flag} is for --test; give both'
                )
        return {}
    path = str(pathlib.Path(pattern).expanduser())  # so that prefixes match
    before, star, after = path.partition('*')
    if star and (by or set('*?[') & set(before + after)):
        raise errors.UsageError(
            'test_two_stars',
            f'--test={pattern}: one * stands for the name of a group; leave '
            'out ' + ('--test_by' if by else 'other wildcards'),
        )
    if only and not (star or by):
        raise errors.UsageError(
            'test_only_one_group',
            f'--test_only={",".join(only)} chooses groups of --test: name a '
            'column with --test_by, or several tables with one *',
        )
    if not star:
        return read_groups(pattern, choices, by=by, only=only)
    paths = {
        str(file).removeprefix(before).removesuffix(after): str(file)
        for file in textfiles.find(path)
    }
    return {
        name: read(path, choices)
        for name, path in select(paths, only, pattern).items()
    }


@dataclasses.dataclass(frozen=True)
class Classify(TextTask):
    """Classes, labels or numbers of the texts of a table.

    Attributes:
        tests: groups of --test by name; '' if there is one.
    """

    choices = TableChoices
    output = PREDICTIONS

    name: str = ANY_TABLE
    metrics: tuple[str, ...] = ('accuracy',)
    tests: Mapping[str, TableExamples] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, choices: TableChoices, model: str | None = None) -> Self:
        """Reads --train and --dev, and derives labels and metrics.

        If the workdir `model` has the same labels, they get its order, so that
        its head can be used.

        Raises:
            UsageError: a table is missing, as `read`, or a metric does not suit
                the labels.
            ValueError: a table cannot be read, or has a single class, or no
                label.
        """
        commands.require(
            vars(choices),
            train='a table to train on',
            dev='a table to choose the weights by',
        )
        train, dev = (read(x, choices) for x in (choices.train, choices.dev))
        labels, metrics = kinds_of(train, choices, model)
        best = choices.metric or metrics[0]
        if best not in metrics:
            raise errors.UsageError(
                'unknown_metric',
                f'--metric={best}: metrics of these labels are '
                f'{", ".join(metrics)}',
            )
        others = (m for m in metrics if m != best)
        return cls(
            metrics=(best, *others),
            labels=labels,
            multilabel=train.label_sets is not None,
            splits={TRAIN: train, HELDOUT: dev},
        )

    @classmethod
    def regresses(cls, choices: TableChoices) -> bool:
        """Tells whether labels are numbers."""
        return choices.regress

    def with_others(self, choices: 'ClassifyChoices') -> Self:
        """Reads the tables of --test and --predict.

        Raises:
            UsageError: as `tests_of`.
            ValueError: as `read`, or an unknown label.
        """
        tests, unknown = tests_of(choices), None
        for table in tests.values():
            self.targets(table)  # complains
        if choices.predict:
            unknown = read(choices.predict, choices, labelled=False)
        return dataclasses.replace(self, tests=tests, unknown=unknown)

    def with_texts(self, choices: Any) -> Self:
        """Reads the texts of --extra; errors as of `read`."""
        extra = read(choices.extra, choices, labelled=False)
        return dataclasses.replace(self, extra=extra)

    def test(self, workdir: pathlib.Path) -> dict[str, Any]:
        """Implements `Task.test`, with the entries of `scores_of`."""
        if not self.tests and self.unknown is None:
            return {}
        import infoword_tf

        loaded, scores = infoword_tf.load(workdir), {}
        if self.tests:
            if '' not in self.tests:
                print(
                    f'{workdir}: the weights with the best {self.metrics[0]} '
                    'on --dev, on each group of --test',
                    flush=True,
                )
            scores = scores_of(loaded, self, self.tests)
        if self.unknown is not None:
            path, table = workdir / PREDICTIONS, self.unknown
            predictions = self.predict(loaded, table)
            write_predictions(path, self, table, predictions)
            print(
                f'{path}: {len(predictions):,} predictions for {table.where}',
                flush=True,
            )
        return scores


def kinds_of(
    table: TableExamples, choices: TableChoices, model: str | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the labels of a training table, and suitable metrics.

    `model` is as of `Classify.read`.

    Raises:
        ValueError: the table has a single class, or no label.
    """
    if choices.regress:
        return (), ('spearman', 'pearson')
    if choices.choices:
        numbers = [str(i) for i in range(len(choices.choices))]
        named = {*(table.labels or ())} - {*numbers}
        return tuple(choices.choices if named else numbers), ('accuracy',)
    labels = tuple(labelling.classes(table))
    if table.label_sets is None:
        binary = ('f1',) * (len(labels) == 2)
        return labels, ('accuracy', *binary, 'matthews')
    if choices.label_columns:  # also labels that no text has
        labels = choices.label_columns
    known = Config.read(model).labels if model else ()
    if sorted(known) == sorted(labels):
        labels = known
    return labels, ('f1_micro', 'f1_macro')


def scores_of(
    loaded: 'Loaded',
    task: TextTask,
    tests: Mapping[str, TableExamples],
) -> dict[str, Any]:
    """Scores a model on groups of --test, and prints a table of named groups.

    Returns:
        Means over groups by 'test_' and metric; of named groups the scores of
        each under 'test_by', with the number of its examples.
    """
    groups, are_named = {}, '' not in tests
    width = max(map(len, (*tests, 'mean')))

    def line(name: str, *cells: str) -> None:
        if are_named:
            padded = [f'{cell:>10}' for cell in cells]
            print(f'{name:<{width}}', *padded, flush=True)

    line('', *task.metrics, 'rows')
    for name, table in tests.items():
        predictions = task.predict(loaded, table)
        groups[name] = task.measured(
            predictions, task.targets(table), measures.LIKELY
        )
        figures = (f'{value:.4f}' for value in groups[name].values())
        line(name, *figures, f'{len(predictions):,}')
    means = {
        m: float(np.mean([group[m] for group in groups.values()]))
        for m in task.metrics
    }
    line('mean', *(f'{value:.4f}' for value in means.values()))
    scores: dict[str, Any] = {
        f'test_{m}': round(value, 6) for m, value in means.items()
    }
    if are_named:
        scores['test_by'] = {
            name: {m: round(value, 6) for m, value in group.items()}
            | {'rows': len(tests[name].first)}
            for name, group in groups.items()
        }
    return scores


def write_predictions(
    path: pathlib.Path,
    task: TextTask,
    table: TableExamples,
    scores: np.ndarray,
) -> None:
    """Writes a TSV of predictions for a table, atomically.

    After a header each line has the line number in the table, and the class (or
    a JSON list of labels) with the probabilities of all classes, or a number.
    `scores` are of `TextTask.predict`.
    """
    if task.labels:
        classes = [name.translate(_ONE_CELL) for name in task.class_names]
        names = ['labels' if task.multilabel else 'label']
        names += [f'p({name})' for name in classes]
        chosen = task.predictions(scores, measures.LIKELY)
        if task.multilabel:
            sets = (itertools.compress(task.class_names, x) for x in chosen)
            labels = [json.dumps([*x], ensure_ascii=False) for x in sets]
        else:
            labels = [classes[best] for best in chosen]
        cells = [
            [label, *(f'{p:.6f}' for p in probabilities)]
            for label, probabilities in zip(labels, scores, strict=True)
        ]
    else:
        names, cells = ['score'], [[f'{number:.7g}'] for number in scores]
    lines = zip(('line', *map(str, table.lines)), (names, *cells), strict=True)
    text = ''.join('\t'.join([line, *rest]) + '\n' for line, rest in lines)
    with files.written(path) as partial:
        partial.write_text(text, encoding='utf-8')


@commands.takes(ClassifyChoices, check=refuse_unknown_rows)
def run(choices: ClassifyChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on a table, and scores and predicts other tables."""
    return finetune.main(Classify, choices, chosen)


if __name__ == '__main__':
    commands.start(run)
