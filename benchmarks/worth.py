r"""What a pretrained encoder is worth, for tables `worth`, `parts` and so on.

    python -m benchmarks.worth --init=runs/mine

Fine-tuned on five tasks of GLUE and on SQuAD 1.1, and as it is: by its vectors
of sentences, of documents and of words. The learning rate of each encoder is
the best of RATES on one short task, so that none is measured by another's.
With --short three tasks, one seed and one rate, for rows that are screened.

Reads what DATA names, beside whoever runs it. Prints one JSON object, percent,
and writes it to worth.json (short.json) of the workdir; what is finished there
is kept.
"""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks import kept, vectors
from benchmarks.kept import asked, check_there, read_json
from infoword_tf import commands, files
from infoword_tf.choices import flag
from tasks.glue import task_of


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'A workdir.')
    short: bool = flag(False, 'Whether three tasks, one seed and one rate do.')


class Task(NamedTuple):
    """How an encoder is fine-tuned on a task of GLUE.

    Attributes:
        examples: to train on at most.
        epochs: how often each is read.
    """

    examples: int
    epochs: int


TASKS = {
    'sst-2': Task(10_000, 2),
    'cola': Task(8_551, 2),
    'mrpc': Task(3_668, 3),
    'qnli': Task(5_000, 2),
    'sts-b': Task(5_749, 3),
}
SHORT_TASKS = {
    'sst-2': Task(6_000, 1),
    'mrpc': Task(3_668, 5),
    'sts-b': Task(5_749, 5),
}
SEEDS, BATCH = 3, 32
POOLINGS = None, 'mean', 'first_last'
SHORT_RATE = 5e-4
RATES = 1e-4, 3e-4, 1e-3
TRIED = 'sst-2', 6_000, 1  # the task that chooses, examples, epochs
SQUAD = 2_000, 500, 2  # questions, of them to evaluate on, epochs
DATA = 'glue', 'squad', 'ws353', *vectors.STS.values(), vectors.BEIR
TUNED, VECTORS = 'mean of GLUE', 'mean of STS and SciFact'


def tuned(
    folder: pathlib.Path,
    task: str,
    rate: float,
    examples: int,
    epochs: int,
    seeds: int,
) -> list[float]:
    """The score of each seed, percent.

    Args:
        folder: of these runs, in the workdir of the encoder.
        task: in TASKS.
        rate: the peak of the learning rate.
        examples, epochs: see `Task`.
        seeds: how many.
    """
    steps = -(-examples * epochs // BATCH)
    asked(
        folder,
        'glue',
        f'--task={task}',
        '--data_dir=glue',
        f'--examples={examples}',
        f'--epochs={epochs}',
        f'--batch_size={BATCH}',
        f'--learning_rate={rate}',
        f'--eval_every={-(-steps // max(2, epochs))}',
        f'--seeds={seeds}',
        '--notest',
    )
    one = task_of(task)
    metric = one.metrics[0]
    if seeds == 1:
        return [100 * read_json(folder / 'metrics.json')[metric]]
    runs = (folder / f'seed={seed}' for seed in range(seeds))
    key = f'heldout/{one.row}/{metric}'
    return [100 * read_json(each / 'metrics.json')[key] for each in runs]


def best_rate(workdir: pathlib.Path) -> float:
    """The learning rate of RATES that a short task likes best."""
    task, examples, epochs = TRIED
    return max(
        RATES,
        key=lambda rate: tuned(
            workdir / f'rate_{rate:g}', task, rate, examples, epochs, 1
        ),
    )


def of_vectors(workdir: pathlib.Path) -> dict[str, float]:
    """What its vectors are worth, by the best of POOLINGS: its own way, or
    means of states."""
    each = [vectors.judged(workdir, pooling) for pooling in POOLINGS]
    found = max(each, key=lambda one: one[vectors.MEAN])
    sts, search = found[vectors.MEAN], 100 * found[vectors.SEARCH]
    return {
        VECTORS: (sts + search) / 2,
        vectors.MEAN: sts,
        vectors.SEARCH: search,
    }


def of_tasks(
    workdir: pathlib.Path,
    tasks: dict[str, Task],
    rate: float,
    seeds: int,
    before: str = '',
) -> dict[str, list[float]]:
    """What it is worth fine-tuned: of each seed the mean, and each task.

    Args:
        workdir: of the encoder.
        tasks: by name.
        rate: the peak of the learning rate.
        seeds: how many.
        before: the beginning of the names of their folders.
    """
    found = {
        name: tuned(
            workdir / f'{before}{name}',
            name,
            rate,
            task.examples,
            task.epochs,
            seeds,
        )
        for name, task in tasks.items()
    }
    means = [statistics.fmean(one) for one in zip(*found.values(), strict=True)]
    return {TUNED: means, **found}


def measured(workdir: pathlib.Path) -> dict[str, Any]:
    """By the head of its column a score, percent; of several seeds all."""
    rate = best_rate(workdir)
    found: dict[str, Any] = of_tasks(workdir, TASKS, rate, SEEDS)
    questions, dev, epochs = SQUAD
    squad = asked(
        workdir / 'squad',
        'squad',
        '--train=squad/train-v1.1.json',
        '--dev=squad/dev-v1.1.json',
        f'--examples={questions}',
        f'--dev_examples={dev}',
        f'--epochs={epochs}',
        f'--learning_rate={rate}',
        '--seq_len=256',
    )
    words = asked(workdir / 'words', 'words', '--data_dir=ws353')
    return {
        **found,
        'SQuAD F1': squad['f1'],
        **of_vectors(workdir),
        'WS-353': words['tests']['EN-WS-353-ALL']['spearman'],
        'learning rate x 1e4': 1e4 * rate,
    }


def screened(workdir: pathlib.Path) -> dict[str, Any]:
    """The same of a row that is screened."""
    found = of_tasks(workdir, SHORT_TASKS, SHORT_RATE, 1, 'short_')
    return {**found, **of_vectors(workdir)}


def kept_in(workdir: pathlib.Path, short: bool) -> pathlib.Path:
    """Where the answer is."""
    return workdir / ('short.json' if short else 'worth.json')


def of(workdir: pathlib.Path, short: bool = False) -> dict[str, Any]:
    """What this command says of a workdir, asked once, in its own process."""
    path = kept_in(workdir, short)
    if not path.exists():
        given = [f'--init={workdir}', '--short' if short else '--noshort']
        kept.run('benchmarks.worth', path.with_suffix('.log'), *given)
    return read_json(path)


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Asks.

    Raises:
        UsageError: no workdir is named, or data are missing.
    """
    del chosen
    commands.require(vars(given), init='the workdir of a run')
    check_there(DATA)
    workdir = pathlib.Path(given.init)
    found = (screened if given.short else measured)(workdir)
    files.write_json(kept_in(workdir, given.short), found)
    print(json.dumps(found))


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with what is not finished'
    )
