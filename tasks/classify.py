r"""Classes, or numbers, of your own texts: any table, no code.

    python -m tasks.classify --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder --workdir=runs/mails
    python -m tasks.classify --init=runs/minilm --train=pairs.jsonl \
        --dev=pairs_dev.jsonl --text=question --pair=answer --label=grade \
        --regress --workdir=runs/grades

Tables are .tsv, .csv or .jsonl (also with .gz), or tfds:NAME[/CONFIG][:SPLIT].
--choices=a,b,c instead of --pair asks which of these columns' texts is right;
the label is the column's name, or its number from 0. All flags of
`infoword_tf.train` count. The weights that stay are those of the best score on
--dev. WORKDIR/confusion.png shows what was taken for what.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags

from infoword_tf import commands, train
from tasks import finetune, measures, tables

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()



def define(values: flags.FlagValues) -> None:
    """Defines the flags that say which examples are read."""
    flags.DEFINE_string(
        'train', None, 'A table to train on.', flag_values=values)
    flags.DEFINE_string(
        'dev', None, 'A table to choose the weights by.', flag_values=values)
    flags.DEFINE_string(
        'text', 'text', 'Column of the text.', flag_values=values)
    flags.DEFINE_string(
        'pair', None, 'Column of a second text.', flag_values=values)
    flags.DEFINE_list(
        'choices', [], 'Columns of second texts of which one is right.',
        flag_values=values)
    flags.DEFINE_string(
        'label', 'label', 'Column of the label.', flag_values=values)
    flags.DEFINE_bool(
        'regress', False, 'Labels are numbers.', flag_values=values)
    flags.DEFINE_enum(
        'metric', None, list(measures.MEASURES), 'By what the weights are '
        'chosen; by default accuracy, or spearman of numbers.',
        flag_values=values)


define(FLAGS)
finetune.define(FLAGS)


def read(
    path: str, own: Mapping[str, Any], labelled: bool = True
) -> tables.Rows:
    """A table, as the flags say.

    Args:
        path: of the table.
        own: flags of `define`, by name.
        labelled: whether its labels are read.

    Raises:
        UsageError: flags that do not go together.
        ValueError: the table cannot be read, with file and line.
    """
    choices = own['choices']
    if choices and (own['pair'] or own['regress']):
        raise commands.UsageError(
            '--choices says what the label is one of; leave out --pair and '
            '--regress'
        )
    if len(choices) == 1:
        raise commands.UsageError(
            f'--choices={choices[0]}: name two columns or more'
        )
    return tables.rows_of(
        tables.open_table(path),
        own['text'],
        own['pair'],
        own['label'] if labelled else None,
        own['regress'],
        choices,
    )


def parts_of(own: Mapping[str, Any]) -> dict[str, tables.Rows]:
    """Training and dev examples.

    Args:
        own: flags of `define`, by name.

    Raises:
        UsageError: they do not say where; see `read`.
    """
    commands.require(
        own,
        train='a table to train on',
        dev='a table to choose the weights by',
    )
    return {
        'train': read(own['train'], own), 'heldout': read(own['dev'], own)
    }  # fmt: skip


def task_of(rows: tables.Rows, own: Mapping[str, Any]) -> finetune.Task:
    """What is asked of a table.

    Args:
        rows: to train on.
        own: flags of `define`, by name.

    Raises:
        ValueError: it has one class alone.
        UsageError: a metric that is not for it.
    """
    metrics = ('accuracy', 'f1', 'matthews')
    labels: tuple[str, ...] = ()
    if own['regress']:
        metrics = ('spearman', 'pearson')
    elif own['choices']:
        numbers = [str(i) for i in range(len(own['choices']))]
        named = set(rows.labels) - set(numbers)
        labels = tuple(own['choices'] if named else numbers)
        metrics = ('accuracy',)
    else:
        labels = tuple(tables.classes(rows))
        if len(labels) > 2:
            metrics = ('accuracy', 'matthews')
    best = own['metric'] or metrics[0]
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
    """Draws what the weights that stayed take for what.

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


def run() -> dict[str, Any]:
    """The whole command."""
    own, given = FLAGS.flag_values_dict(), train.values()
    commands.require(given, workdir='a folder for this run')
    finetune.check_inits(given['init'])
    parts = parts_of(own)
    task = task_of(parts['train'], own)
    prepared = finetune.prepare(task, parts, given, own['examples'])
    workdir, values = finetune.train_all(task, prepared, own)
    out = pathlib.Path(given['workdir'])
    answer(workdir, task, parts, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    finetune.set_defaults()
    commands.start(
        run, stopped='the same command goes on from the last checkpoint'
    )
