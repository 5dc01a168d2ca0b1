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
from typing import Any

from absl import flags

from infoword_tf import commands, train
from tasks import finetune, measures, tables

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

TRAIN = flags.DEFINE_string(
    'train', None, 'A table to train on.', flag_values=FLAGS)
DEV = flags.DEFINE_string(
    'dev', None, 'A table to choose the weights by.', flag_values=FLAGS)
TEXT = flags.DEFINE_string(
    'text', 'text', 'Column of the text.', flag_values=FLAGS)
PAIR = flags.DEFINE_string(
    'pair', None, 'Column of a second text.', flag_values=FLAGS)
CHOICES = flags.DEFINE_list(
    'choices', [], 'Columns of second texts of which one is right.',
    flag_values=FLAGS)
LABEL = flags.DEFINE_string(
    'label', 'label', 'Column of the label.', flag_values=FLAGS)
REGRESS = flags.DEFINE_bool(
    'regress', False, 'Labels are numbers.', flag_values=FLAGS)
METRIC = flags.DEFINE_enum(
    'metric', None, list(measures.MEASURES), 'By what the weights are chosen; '
    'by default accuracy, or spearman of numbers.', flag_values=FLAGS)
finetune.define(FLAGS)


def read(path: str) -> tables.Rows:
    """A labelled table, as the flags say.

    Raises:
        UsageError: flags that do not go together.
        ValueError: the table cannot be read, with file and line.
    """
    if CHOICES.value and (PAIR.value or REGRESS.value):
        raise commands.UsageError(
            '--choices says what the label is one of; leave out --pair and '
            '--regress'
        )
    if len(CHOICES.value) == 1:
        raise commands.UsageError(
            f'--choices={CHOICES.value[0]}: name two columns or more'
        )
    return tables.rows_of(
        tables.open_table(path),
        TEXT.value,
        PAIR.value,
        LABEL.value,
        REGRESS.value,
        CHOICES.value,
    )


def task_of(rows: tables.Rows) -> finetune.Task:
    """What is asked of a table.

    Raises:
        ValueError: it has one class alone.
        UsageError: a metric that is not for it.
    """
    metrics = ('accuracy', 'f1', 'matthews')
    labels: tuple[str, ...] = ()
    if REGRESS.value:
        metrics = ('spearman', 'pearson')
    elif CHOICES.value:
        numbers = [str(i) for i in range(len(CHOICES.value))]
        named = set(rows.labels) - set(numbers)
        labels = tuple(CHOICES.value if named else numbers)
        metrics = ('accuracy',)
    else:
        labels = tuple(tables.classes(rows))
        if len(labels) > 2:
            metrics = ('accuracy', 'matthews')
    best = METRIC.value or metrics[0]
    if best not in metrics:
        raise commands.UsageError(
            f'--metric={best}: here there are {", ".join(metrics)}'
        )
    others = (m for m in metrics if m != best)
    return finetune.Task('classify', (best, *others), labels)


def run() -> dict[str, Any]:
    """The whole command."""
    own = FLAGS.flag_values_dict()
    commands.require(
        own,
        train='a table to train on',
        dev='a table to choose the weights by',
    )
    given = train.values()
    commands.require(given, workdir='a folder for this run')
    parts = {'train': read(TRAIN.value), 'heldout': read(DEV.value)}
    task = task_of(parts['train'])
    prepared = finetune.prepare(task, parts, given, own['examples'])
    workdir, values = finetune.train_all(task, prepared, own)
    out = pathlib.Path(given['workdir'])
    if task.labels:
        measures.draw_confusion(
            out / 'confusion.png',
            task.shown,
            task.targets(parts['heldout']),
            finetune.say(workdir, task, parts['heldout']),
        )
    return finetune.finish(out, values)


if __name__ == '__main__':
    finetune.set_defaults()
    commands.start(
        run, stopped='the same command goes on from the last checkpoint'
    )
