"""The beginning of a run: choices are checked before TensorFlow is imported."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infoword_tf import commands, preemption
from infoword_tf.choices import RunChoices
from infoword_tf.resolve import Resolved
from infoword_tf.training import checks

if TYPE_CHECKING:
    from infoword_tf.training.build import LabelledData


@commands.takes(RunChoices, converts=False)
def train(choices: RunChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Trains rows of the table, as `python -m infoword_tf.train` does.

        infoword_tf.train(
            objectives='bert_nce:1,dim:0.8', corpus='text:books/*.txt',
            size='mini', steps=20_000, workdir='runs/books',
            settings={'dim.critic': 'cosine'},
        )

    Its choices are those of `infoword_tf.choices.RunChoices`, and the flags of
    the command. A run that was stopped goes on where its last checkpoint is.

    Returns:
        What metrics.json holds.

    Raises: UsageError, ValueError: choices that do not go together; the
    message says what to do.
    """
    return check_and_run(choices, chosen)


def check_and_run(
    choices: RunChoices,
    chosen: Mapping[str, Any],
    labelled: 'LabelledData | None' = None,
    resolved: Resolved | None = None,
) -> dict[str, Any]:
    """Checks the choices of a run, then runs: training/run.py.

    Args:
        choices: all of them.
        chosen: the explicit ones by name, for people.
        labelled: examples that the rows read.
        resolved: what the choices decide, where that is known.

    Returns:
        What metrics.json holds.

    Raises: UsageError: choices that do not go together. ValueError: the text
    or --init cannot be read.
    """
    commands.require(vars(choices), workdir='a folder for this run')
    checked = checks.check(choices, chosen, labelled, resolved)
    with preemption.handled():
        commands.hush_tensorflow()
        from infoword_tf.training.run import run

        return run(
            checked.choices, checked.resolved,
            commands.flagfile(checked.chosen), labelled, checked.judged,
            checked.texts,
        )  # fmt: skip
