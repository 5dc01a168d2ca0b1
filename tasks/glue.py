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
from typing import Any, Self

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout
from infoword_tf.training.begin import refuse_unknown_rows

from . import classify, finetune
from .task import HELDOUT, TRAIN
from .texts import TextTask


@dataclasses.dataclass(frozen=True)
class TaskChoices:
    """Choices of the examples of GLUE."""

    task: str | None = flag(
        None, 'One of the nine tasks.', choices=tuple(glue_layout.TASKS))
    data_dir: str = flag(
        '', 'Folder of CoLA/, RTE/ and so on, or tfds:glue.')
    test: bool = flag(
        True, 'Predict the labels of the test file too, if there is one.')


@dataclasses.dataclass(frozen=True)
class GlueChoices(TaskChoices, finetune.FinetuneChoices):
    """Choices of the command."""


@dataclasses.dataclass(frozen=True)
class Glue(TextTask):
    """A task of GLUE; `splits` may have 'dev_mm', 'test' and 'test_mm'."""

    choices = TaskChoices

    @classmethod
    def of(cls, name: str, **splits: Any) -> Self:
        """Makes a task by name."""
        task = glue_layout.TASKS[name]
        return cls(name, task.measures, task.labels, task.names, splits=splits)

    @classmethod
    def read(cls, choices: TaskChoices, model: str | None = None) -> Self:
        """Reads training and dev examples, and all other files of the task.

        Raises:
            UsageError: --task or --data_dir is missing.
        """
        name, data_dir = commands.require(
            vars(choices),
            task='one of GLUE, rte say',
            data_dir="the folder of GLUE's data, or tfds:glue",
        )
        splits = {
            TRAIN: glue_layout.read(name, data_dir, 'train'),
            HELDOUT: glue_layout.read(name, data_dir, 'dev'),
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
        return cls.of(name, **splits)

    @classmethod
    def regresses(cls, choices: TaskChoices) -> bool:
        """Tells whether the task is one of numbers."""
        name = choices.task
        return name in glue_layout.TASKS and glue_layout.TASKS[name].regress

    def with_texts(self, choices: Any) -> Self:
        """Reads the texts of --extra, in the columns of the task."""
        text, pair, _ = glue_layout.TASKS[self.name].columns
        choices = choices.decided(text=text, pair=pair)
        extra = classify.read(choices.extra, choices, labelled=False)
        return dataclasses.replace(self, extra=extra)

    def write(self, workdir: pathlib.Path, out: pathlib.Path) -> dict[str, Any]:
        """Predicts the dev file and all other files with the best weights.

        Returns:
            By 'mm_' and metric, the scores of MNLI's second dev file.
        """
        import infoword_tf

        scores = super().write(workdir, out)
        for split in ('test', 'test_mm', 'dev_mm'):
            if split not in self.splits:
                continue
            table = self.splits[split]
            predictions = self.predict(infoword_tf.load(workdir), table)
            if split == 'dev_mm':
                worth = self.measured(predictions, self.targets(table))
                scores = {f'mm_{k}': round(v, 6) for k, v in worth.items()}
                continue
            file = f'{split.replace("test", "predictions")}.tsv'
            decided = self.predictions(predictions)
            glue_layout.write_predictions(out / file, self.name, decided)
            print(
                f'{out / file}: {len(predictions):,} predictions; GLUE wants '
                f'them as {glue_layout.TASKS[self.name].submission[split]}',
                flush=True,
            )
        return scores


@commands.takes(GlueChoices, check=refuse_unknown_rows)
def run(choices: GlueChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on a task of GLUE, and predicts the test file."""
    return finetune.main(Glue, choices, chosen)


if __name__ == '__main__':
    commands.start(run)
