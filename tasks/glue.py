r"""GLUE: nine tasks on texts and on pairs of them (Wang et al. 2019).

    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte
    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte_grid --sweep=infoword --seeds=5

--data_dir is the folder that holds CoLA/, RTE/ and so on as GLUE lays them
out, or tfds:glue. The row is `label`, or `score` for sts-b; all flags of
`infoword_tf.train` count (--freeze, --layer_decay, --label.pooler=tanh ...).
The weights that stay are those of the best score on the dev file; what they say
of the test file goes to WORKDIR in the form that GLUE scores. --sweep trains
with every learning rate and batch size of a published grid: one folder of
WORKDIR each, and the same command goes on with those that are not done.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags

from infoword_tf import commands, train
from tasks import finetune, glue_layout, measures

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()


def define(values: flags.FlagValues, *more: str) -> None:
    """Defines the flags that say which examples are read.

    Args:
        values: where they are defined.
        *more: tasks that are none of GLUE.
    """
    others = f', or {", ".join(more)}' if more else ''
    flags.DEFINE_enum(
        'task', None, [*glue_layout.TASKS, *more],
        f'Which of the nine{others}.', flag_values=values)
    flags.DEFINE_string(
        'data_dir', None, 'The folder that holds CoLA/, RTE/ and so on, or '
        'tfds:glue.', flag_values=values)
    flags.DEFINE_bool(
        'test', True, 'Answer the test file too, where it is there.',
        flag_values=values)


define(FLAGS)
finetune.define(FLAGS)


def task_of(name: str) -> finetune.Task:
    """A task of GLUE, as fine-tuning takes it."""
    found = glue_layout.TASKS[name]
    others = (m for m in found.measures if m != found.best)
    return finetune.Task(
        name, (found.best, *others), found.labels, found.names
    )


def parts_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """Training and dev examples, and those of other files that are there.

    Args:
        own: flags of `define`, by name.

    Raises:
        UsageError: they do not say where.
    """
    commands.require(
        own,
        task='one of GLUE, rte say',
        data_dir="the folder of GLUE's data, or tfds:glue",
    )
    name, data_dir = own['task'], own['data_dir']
    found = {
        'train': glue_layout.read(name, data_dir, 'train'),
        'heldout': glue_layout.read(name, data_dir, 'dev'),
    }
    for split in ('dev_mm', 'test', 'test_mm'):
        if split not in glue_layout.TASKS[name].files:
            continue
        if split.startswith('test') and not own['test']:
            continue
        try:
            found[split] = glue_layout.read(name, data_dir, split)
        except FileNotFoundError:
            print(f'{name} has no {split} file: left out', flush=True)
    return found


def answer(
    workdir: pathlib.Path, name: str, parts: dict[str, Any], out: pathlib.Path
) -> dict[str, float]:
    """What the weights that stayed say of the dev file and of the others.

    Args:
        workdir: of the run that was best.
        name: of the task.
        parts: as `parts_of`.
        out: where predictions go.

    Returns:
        By 'mm_' and metric, the scores of MNLI's second dev file.
    """
    task, found = task_of(name), {}
    layout = glue_layout.TASKS[name]
    said = finetune.say(workdir, task, parts['heldout'])
    if task.labels:
        measures.draw_confusion(
            out / 'confusion.png',
            task.shown,
            task.targets(parts['heldout']),
            said,
        )
    for split in ('test', 'test_mm', 'dev_mm'):
        if split not in parts:
            continue
        said = finetune.say(workdir, task, parts[split])
        if split == 'dev_mm':
            true = task.targets(parts[split])
            for metric in task.metrics:
                value = measures.MEASURES[metric](said, true)
                found[f'mm_{metric}'] = round(value, 6)
            continue
        file = 'predictions.tsv' if split == 'test' else 'predictions_mm.tsv'
        glue_layout.write_predictions(out / file, name, said)
        print(
            f'{out / file}: {len(said):,} predictions; GLUE wants them as '
            f'{layout.submission[split]}',
            flush=True,
        )
    return found


def run() -> dict[str, Any]:
    """The whole command."""
    own, given = FLAGS.flag_values_dict(), train.values()
    commands.require(given, workdir='a folder for this run')
    finetune.check_inits(given['init'])
    parts = parts_of(own)
    out = pathlib.Path(given['workdir'])
    task = task_of(own['task'])
    prepared = finetune.prepare(task, parts, given, own['examples'])
    workdir, values = finetune.train_all(task, prepared, own)
    values |= answer(workdir, own['task'], parts, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    finetune.set_defaults()
    commands.start(
        run, stopped='the same command goes on from the last checkpoint'
    )
