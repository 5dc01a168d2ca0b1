r"""GLUE: nine tasks on texts and on pairs of them (Wang et al. 2019).

    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte
    python -m tasks.glue --task=rte --init=runs/minilm --data_dir=glue \
        --workdir=runs/rte_grid --sweep=infoword --seeds=5

--data_dir is the folder that holds CoLA/, RTE/ and so on as GLUE lays them
out, or tfds:glue. The row is `label`, or `score` for sts-b; all flags of
`infoword_tf.train` apply (--freeze, --layer_decay, --label.pooler=tanh ...).
The weights with the best score on the dev file are kept; their predictions for
the test file go to WORKDIR in GLUE's submission format. --sweep trains with
every learning rate and batch size of a published grid, in one folder of WORKDIR
each; the same command resumes with the runs that are missing.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import flag
from tasks import finetune, glue_layout


@dataclasses.dataclass(frozen=True)
class TaskChoices:
    """Which examples are read."""

    task: str | None = flag(
        None, 'One of the nine tasks.', choices=tuple(glue_layout.TASKS))
    data_dir: str | None = flag(
        None, 'Folder of CoLA/, RTE/ and so on, or tfds:glue.')
    test: bool = flag(
        True, 'Predict the labels of the test file too, if there is one.')


@dataclasses.dataclass(frozen=True)
class Choices(TaskChoices, finetune.Choices):
    """All that the command may choose."""


def task_of(name: str) -> finetune.Task:
    """A task of GLUE, as fine-tuning takes it."""
    task = glue_layout.TASKS[name]
    return finetune.Task(name, task.measures, task.labels, task.names)


def parts_of(own: TaskChoices) -> dict[str, Any]:
    """Training and dev examples, and those of other files that are there.

    Raises:
        UsageError: the choices do not say where.
    """
    commands.require(
        vars(own),
        task='one of GLUE, rte say',
        data_dir="the folder of GLUE's data, or tfds:glue",
    )
    name, data_dir = own.task, own.data_dir
    parts = {
        'train': glue_layout.read(name, data_dir, 'train'),
        'heldout': glue_layout.read(name, data_dir, 'dev'),
    }
    for split in ('dev_mm', 'test', 'test_mm'):
        if split not in glue_layout.TASKS[name].files:
            continue
        if split.startswith('test') and not own.test:
            continue
        try:
            parts[split] = glue_layout.read(name, data_dir, split)
        except FileNotFoundError:
            print(f'{name} has no {split} file: left out', flush=True)
    return parts


def answer(
    workdir: pathlib.Path, name: str, parts: dict[str, Any], out: pathlib.Path
) -> dict[str, float]:
    """Predictions of the selected weights for the dev file and the others.

    Args:
        workdir: of the run that was best.
        name: of the task.
        parts: as `parts_of`.
        out: where the picture and predictions go.

    Returns:
        By 'mm_' and metric, the scores of MNLI's second dev file.
    """
    import infoword_tf

    task, scores = task_of(name), {}
    finetune.draw(workdir, task, parts['heldout'], out)
    for split in ('test', 'test_mm', 'dev_mm'):
        if split not in parts:
            continue
        loaded = infoword_tf.load(workdir)
        said = finetune.answers(loaded, task, parts[split])
        if split == 'dev_mm':
            worth = finetune.measured(task, said, task.targets(parts[split]))
            scores = {f'mm_{k}': round(v, 6) for k, v in worth.items()}
            continue
        said = said.argmax(axis=1) if task.labels else said
        file = 'predictions.tsv' if split == 'test' else 'predictions_mm.tsv'
        glue_layout.write_predictions(out / file, name, said)
        print(
            f'{out / file}: {len(said):,} predictions; GLUE wants them as '
            f'{glue_layout.TASKS[name].submission[split]}',
            flush=True,
        )
    return scores


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command."""
    commands.require(vars(given), workdir='a folder for this run')
    finetune.check_inits(given.init)
    parts = parts_of(given)
    out = pathlib.Path(given.workdir)
    task = task_of(given.task)
    prepared = finetune.prepare(task, parts, given)
    workdir, values = finetune.train_all(task, prepared, chosen)
    values |= answer(workdir, given.task, parts, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
