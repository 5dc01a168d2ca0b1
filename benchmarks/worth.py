r"""What a trained workdir is worth, by what people have said and written.

    python -m benchmarks.worth --init=runs/mine --ask=worth

The columns that benchmarks.tables puts beside a row's nats; ASKS has their
names and the data that they read, beside whoever runs it. Prints one JSON
object, by the head of its column a value (of several seeds all), and writes it
to NAME.json of the workdir. What is finished there is kept.

words: similarity of words and of sentences, percent.
vectors: five sets of STS (Spearman x 100) and SciFact, by its own vectors.
worth: fine-tuned on five tasks of GLUE and on SQuAD 1.1, and as it is, by its
    vectors of sentences, documents and words; all in percent. The learning rate
    is the best of RATES on one short task, so that no encoder is measured by
    another's.
short: the same of three tasks, with one seed and one rate, to screen rows.
"""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import kept
from benchmarks.kept import asked, read_json
from infoword_tf import commands, files
from infoword_tf.choices import flag
from tasks.glue import task_of


def ws353(workdir: pathlib.Path, folder: str) -> float:
    """Asks for Spearman's correlation x 100 with people's words, WS-353."""
    found = asked(workdir / 'words', 'words', f'--data_dir={folder}')
    return found['tests']['EN-WS-353-ALL']['spearman']


def words(workdir: pathlib.Path) -> dict[str, float]:
    """Asks for similarities of words and of sentences."""
    pairs = asked(workdir / 'sts', 'sts', '--data=sts/sts-dev.csv')
    return {'WS-353': ws353(workdir, 'words'), 'STS-B dev': pairs['spearman']}


# ------------------------------------------------------------------ its vectors

STS = {
    'STS-B dev': 'sts/sts-dev.csv',
    'STS-B test': 'sts/sts-test.csv',
    'STS12': 'sts/STS12-en-test',
    'STS14': 'sts/STS14-en-test',
    'STS15': 'sts/STS15-en-test',
}
BEIR = 'scifact'
MEAN, SCIFACT = 'mean of STS', 'SciFact nDCG@10'
POOLINGS = None, 'mean', 'first_last'  # None: as the workdir has it


def vectors(
    workdir: pathlib.Path, pooling: str | None = None
) -> dict[str, float]:
    """Compares vectors with judgements: Spearman x 100, of search nDCG@10.

    In this process, where a command for each set would start a dozen.

    Args:
        workdir: whose vectors.
        pooling: theirs, compared by cosine; None: as the workdir has it.
    """
    path = workdir / f'judged_{pooling or "own"}.json'
    if path.exists():
        return read_json(path)
    import infoword_tf
    from infoword_tf.evaluation import judgements
    from infoword_tf.training.evaluators import Evaluator

    loaded = infoword_tf.load(workdir)
    if pooling:
        loaded.config = loaded.config.replace(
            pooling=pooling, similarity='cosine'
        )

    def measured(spec: str) -> float:
        (value,) = Evaluator(judgements.read(spec), loaded)().values()
        return value

    each = {name: measured(f'sts:{data}') for name, data in STS.items()}
    found = {
        MEAN: statistics.fmean(each.values()), **each,
        SCIFACT: measured(f'retrieval:{BEIR}'),
    }  # fmt: skip
    files.write_json(path, found)
    return found


def best_vectors(workdir: pathlib.Path) -> dict[str, float]:
    """Takes the pooling that pairs of sentences like best; all in percent."""
    each = [vectors(workdir, pooling) for pooling in POOLINGS]
    best = max(each, key=lambda one: one[MEAN])
    sts, scifact = best[MEAN], 100 * best[SCIFACT]
    return {
        'mean of STS and SciFact': (sts + scifact) / 2,
        MEAN: sts, SCIFACT: scifact,
    }  # fmt: skip


# ------------------------------------------------------------------- fine-tuned


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
SHORT_RATE, RATES = 5e-4, (1e-4, 3e-4, 1e-3)
TRIED = 'sst-2', Task(6_000, 1)  # the task that chooses a rate
SQUAD = 2_000, 500, 2  # questions, of them to evaluate on, epochs


def tuned(
    folder: pathlib.Path, name: str, task: Task, rate: float, seeds: int
) -> list[float]:
    """Fine-tunes with each seed: scores in percent.

    Args:
        folder: of these runs, in the workdir of the encoder.
        name: of the task in GLUE.
        task: for how long.
        rate: the peak of the learning rate.
        seeds: how many.
    """
    steps = -(-task.examples * task.epochs // BATCH)
    asked(
        folder, 'glue', f'--task={name}', '--data_dir=glue',
        f'--examples={task.examples}', f'--epochs={task.epochs}',
        f'--batch_size={BATCH}', f'--learning_rate={rate}',
        f'--eval_every={-(-steps // max(2, task.epochs))}',
        f'--seeds={seeds}', '--notest',
    )  # fmt: skip
    one = task_of(name)
    metric = one.metrics[0]
    if seeds == 1:
        return [100 * read_json(folder / 'metrics.json')[metric]]
    runs = (folder / f'seed={seed}' for seed in range(seeds))
    key = f'heldout/{one.row}/{metric}'
    return [100 * read_json(each / 'metrics.json')[key] for each in runs]


def all_tuned(
    workdir: pathlib.Path,
    tasks: Mapping[str, Task],
    rate: float,
    seeds: int,
    before: str = '',
) -> dict[str, list[float]]:
    """Fine-tunes on all tasks: of each seed the mean, and each task.

    Args:
        workdir: of the encoder.
        tasks: by name.
        rate, seeds: see `tuned`.
        before: the beginning of the names of their folders.
    """
    found = {
        name: tuned(workdir / f'{before}{name}', name, task, rate, seeds)
        for name, task in tasks.items()
    }
    means = [statistics.fmean(one) for one in zip(*found.values(), strict=True)]
    return {'mean of GLUE': means, **found}


def worth(workdir: pathlib.Path) -> dict[str, Any]:
    """Asks for everything."""
    name, task = TRIED
    rate = max(RATES, key=lambda rate: tuned(
        workdir / f'rate_{rate:g}', name, task, rate, 1
    ))  # fmt: skip
    found: dict[str, Any] = all_tuned(workdir, TASKS, rate, SEEDS)
    questions, dev, epochs = SQUAD
    squad = asked(
        workdir / 'squad', 'squad', '--train=squad/train-v1.1.json',
        '--dev=squad/dev-v1.1.json', f'--examples={questions}',
        f'--dev_examples={dev}', f'--epochs={epochs}',
        f'--learning_rate={rate}', '--seq_len=256',
    )  # fmt: skip
    return {
        **found,
        'SQuAD F1': squad['f1'],
        **best_vectors(workdir),
        'WS-353': ws353(workdir, 'ws353'),
        'learning rate x 1e4': 1e4 * rate,
    }


def short(workdir: pathlib.Path) -> dict[str, Any]:
    """Asks for less, of a row that is screened."""
    found = all_tuned(workdir, SHORT_TASKS, SHORT_RATE, 1, 'short_')
    return {**found, **best_vectors(workdir)}


# ------------------------------------------------------------------ all of them


class Ask(NamedTuple):
    """Something that workdirs are asked.

    Attributes:
        of: a workdir's values, by the heads of their columns.
        data: what it reads.
    """

    of: Callable[[pathlib.Path], dict[str, Any]]
    data: Sequence[str] = ()


_JUDGED = *STS.values(), BEIR
_WORTH = 'glue', 'squad', 'ws353', *_JUDGED
ASKS = {
    'words': Ask(words, ('words', 'sts/sts-dev.csv')),
    'vectors': Ask(vectors, _JUDGED),
    'worth': Ask(worth, _WORTH),
    'short': Ask(short, _WORTH),
}


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'A workdir.')
    ask: str = flag('worth', 'What it is asked.', choices=tuple(ASKS))


def told(workdir: pathlib.Path, name: str) -> dict[str, Any]:
    """Runs this command in a process of its own, unless it has answered."""
    path = workdir / f'{name}.json'
    if not path.exists():
        kept.run(
            'benchmarks.worth', path.with_suffix('.log'),
            f'--init={workdir}', f'--ask={name}',
        )  # fmt: skip
    return read_json(path)


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Asks.

    Raises:
        UsageError: no workdir is named, or data are missing.
    """
    del chosen
    commands.require(vars(given), init='the workdir of a run')
    ask, workdir = ASKS[given.ask], pathlib.Path(given.init)
    kept.check_there(ask.data)
    found = ask.of(workdir)
    files.write_json(workdir / f'{given.ask}.json', found)
    print(json.dumps(found))


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with what is not finished'
    )
