r"""GLUE: nine tasks on texts and on pairs of texts (Wang et al. 2019).

    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte
    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte_grid --sweep=infoword --seeds=5

--data_dir is the folder that holds CoLA/, RTE/ and so on in GLUE's format, or
tfds:glue. The row is `label`, or `score` for sts-b; all flags of
`infoword_tf.train` apply (--freeze, --layer_decay, --label.pooler=tanh ...).
The weights with the best score on the dev file are saved, and predict the test
file into WORKDIR in GLUE's submission format. --sweep trains with every
learning rate and batch size of a published grid, in one folder of WORKDIR each;
the same command resumes with the missing runs.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.training.checks import refuse_unknown_rows
from tasks import finetune, glue_layout


@dataclasses.dataclass(frozen=True)
class TaskChoices:
    """Choices of the examples of GLUE."""

    task: str | None = flag(
        None, 'One of the nine tasks.', choices=tuple(glue_layout.TASKS))
    data_dir: str | None = flag(
        None, 'Folder of CoLA/, RTE/ and so on, or tfds:glue.')
    test: bool = flag(
        True, 'Predict the labels of the test file too, if there is one.')


@dataclasses.dataclass(frozen=True)
class GlueChoices(TaskChoices, finetune.FinetuneChoices):
    """Choices of the command."""


def task_of(name: str) -> finetune.Task:
    """Returns a task of GLUE for fine-tuning."""
    task = glue_layout.TASKS[name]
    return finetune.Task(name, task.measures, task.labels, task.names)


def splits_of(choices: TaskChoices) -> dict[str, Any]:
    """Reads training and dev examples, and all other files of the task.

    Raises:
        UsageError: --task or --data_dir is missing.
    """
    commands.require(
        vars(choices),
        task='one of GLUE, rte say',
        data_dir="the folder of GLUE's data, or tfds:glue",
    )
    name, data_dir = choices.task, choices.data_dir
    splits = {
        'train': glue_layout.read(name, data_dir, 'train'),
        'heldout': glue_layout.read(name, data_dir, 'dev'),
    }
    for split in ('dev_mm', 'test', 'test_mm'):
        if split not in glue_layout.TASKS[name].files:
            continue
        if split.startswith('test') and not choices.test:
            continue
        try:
            splits[split] = glue_layout.read(name, data_dir, split)
        except FileNotFoundError:
            print(f'{name} has no {split} file: left out', flush=True)
    return splits


def answer(
    workdir: pathlib.Path, name: str, splits: dict[str, Any], out: pathlib.Path
) -> dict[str, float]:
    """Predicts the dev file and all other files with the selected weights.

    Returns:
        By 'mm_' and metric, the scores of MNLI's second dev file.
    """
    import infoword_tf

    task, scores = task_of(name), {}
    finetune.draw(workdir, task, splits['heldout'], out)
    for split in ('test', 'test_mm', 'dev_mm'):
        if split not in splits:
            continue
        loaded = infoword_tf.load(workdir)
        predictions = finetune.predict(loaded, task, splits[split])
        if split == 'dev_mm':
            targets = task.targets(splits[split])
            worth = finetune.measured(task, predictions, targets)
            scores = {f'mm_{k}': round(v, 6) for k, v in worth.items()}
            continue
        if task.labels:
            predictions = predictions.argmax(axis=1)
        file = 'predictions.tsv' if split == 'test' else 'predictions_mm.tsv'
        glue_layout.write_predictions(out / file, name, predictions)
        print(
            f'{out / file}: {len(predictions):,} predictions; GLUE wants '
            f'them as {glue_layout.TASKS[name].submission[split]}',
            flush=True,
        )
    return scores


@commands.takes(GlueChoices, check=refuse_unknown_rows)
def run(choices: GlueChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on a task of GLUE, and predicts the test file."""
    commands.require(vars(choices), workdir='a folder for this run')
    finetune.check_inits(choices.init)
    splits = splits_of(choices)
    out = pathlib.Path(choices.workdir)
    task = task_of(choices.task)
    prepared = finetune.prepare(task, splits, choices)
    workdir, values = finetune.train_all(task, prepared, chosen)
    values |= answer(workdir, choices.task, splits, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
