"""What a pretrained encoder is worth: what the table `worth` asks of it.

Fine-tuned on five tasks of GLUE and on SQuAD 1.1, and as it is: by its vectors
of sentences, of documents and of words. The learning rate of each encoder is
the best of RATES on one short task, so that none is measured by another's.
"""

import pathlib
import statistics
from typing import Any, NamedTuple

from benchmarks import vectors
from benchmarks.kept import asked, read_json


class Task(NamedTuple):
    """A task of GLUE, and how an encoder is fine-tuned on it.

    Attributes:
        metric: that counts, a share or a correlation.
        examples: to train on at most.
        epochs: how often each is read.
    """

    metric: str
    examples: int
    epochs: int


TASKS = {
    'sst-2': Task('accuracy', 20_000, 2),
    'cola': Task('matthews', 8_551, 5),
    'mrpc': Task('f1', 3_668, 5),
    'qnli': Task('accuracy', 9_999, 3),
    'sts-b': Task('spearman', 5_749, 5),
}
SEEDS, BATCH = 3, 32
RATES = 1e-4, 3e-4, 1e-3
TRIED = 'sst-2', 6_000, 1  # the task that chooses, examples, epochs
SQUAD = 4_000, 1_000, 2  # questions, of them to evaluate on, epochs
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
    if seeds == 1:
        found = read_json(folder / 'metrics.json')
        return [100 * found[TASKS[task].metric]]
    row = 'score' if task == 'sts-b' else 'label'
    runs = [
        read_json(folder / f'seed={seed}' / 'metrics.json')
        for seed in range(seeds)
    ]
    return [100 * one[f'heldout/{row}/{TASKS[task].metric}'] for one in runs]


def best_rate(workdir: pathlib.Path) -> float:
    """The learning rate of RATES that a short task likes best."""
    task, examples, epochs = TRIED
    return max(
        RATES,
        key=lambda rate: tuned(
            workdir / f'rate_{rate:g}', task, rate, examples, epochs, 1
        ),
    )


def of(workdir: pathlib.Path) -> dict[str, Any]:
    """By the head of its column a score, percent; of several seeds all."""
    rate = best_rate(workdir)
    found: dict[str, Any] = {}
    for name, task in TASKS.items():
        found[name] = tuned(
            workdir / name, name, rate, task.examples, task.epochs, SEEDS
        )
    means = [statistics.fmean(run) for run in zip(*found.values(), strict=True)]
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
    found = {TUNED: means, **found, 'SQuAD F1': 100 * squad['f1']}
    # Its own vectors, or means of states, whichever are better.
    own, mean = (vectors.judged(workdir, x) for x in (None, 'mean'))
    of_texts = max(own, mean, key=lambda one: one[vectors.MEAN])
    sts, search = of_texts[vectors.MEAN], 100 * of_texts[vectors.SEARCH]
    words = asked(workdir / 'words', 'words', '--data_dir=ws353')
    return found | {
        VECTORS: (sts + search) / 2,
        vectors.MEAN: sts,
        vectors.SEARCH: search,
        'WS-353': words['tests']['EN-WS-353-ALL']['spearman'],
        'rate': rate,
    }
