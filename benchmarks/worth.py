r"""Evaluations of a trained workdir by people's judgements and labels.

    python -m benchmarks.worth --init=runs/mine --ask=worth

benchmarks.tables puts the results into columns beside a row's nats; ASKS has
the data that they read, in the working folder. Prints one JSON object, a value
(or a list, of several seeds) by column, and writes it to NAME.json of the
workdir. Finished results stay.

words: similarity of words and of sentences, percent.
vectors: five sets of STS (Spearman x 100) and SciFact, by the vectors.
worth: fine-tuned on five tasks of GLUE and on SQuAD 1.1; and without training,
    by vectors of sentences, documents and words; all in percent. The learning
    rate is the best of RATES on a tenth of the training examples, for each
    encoder and task; of SQuAD it is that of QNLI.
tuned: fine-tuned on six tasks of GLUE with SEEDS seeds, the rates as above, the
    scores after the last update (of others by the best evaluation); and the
    states as they are, their mean over the tokens of a text, by a linear
    classifier on MR and on TREC (accuracy, in percent).
short: three tasks of `worth` with one seed and one rate, to screen rows.
"""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import kept
from benchmarks.kept import evaluate, read_json
from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout
from tasks.glue import Glue


def ws353(workdir: pathlib.Path, folder: str) -> float:
    """Measures Spearman's correlation x 100 with people's words, WS-353."""
    record = evaluate(workdir / 'words', 'words', f'--data_dir={folder}')
    return record['tests']['EN-WS-353-ALL']['spearman']


def words(workdir: pathlib.Path) -> dict[str, float]:
    """Measures similarities of words and of sentences."""
    pairs = evaluate(workdir / 'sts', 'sts', '--data=sts/sts-dev.csv')
    return {'WS-353': ws353(workdir, 'words'), 'STS-B dev': pairs['spearman']}


# --------------------------------------------------------------------- vectors

STS = {
    'STS-B dev': 'sts/sts-dev.csv',
    'STS-B test': 'sts/sts-test.csv',
    'STS12': 'sts/STS12-en-test',
    'STS14': 'sts/STS14-en-test',
    'STS15': 'sts/STS15-en-test',
}
BEIR = 'scifact'
MEAN, SCIFACT = 'mean of STS', 'SciFact nDCG@10'
POOLINGS = None, 'mean', 'first_last'  # None: the workdir's


def vectors(
    workdir: pathlib.Path, pooling: str | None = None
) -> dict[str, float]:
    """Compares vectors with judgements: Spearman x 100, of search nDCG@10.

    It runs in one process, instead of a dozen commands.
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
    results = {
        MEAN: statistics.fmean(each.values()), **each,
        SCIFACT: measured(f'retrieval:{BEIR}'),
    }  # fmt: skip
    files.write_json(path, results)
    return results


def best_vectors(workdir: pathlib.Path) -> dict[str, float]:
    """Takes the results of the pooling that is best on STS, in percent."""
    each = [vectors(workdir, pooling) for pooling in POOLINGS]
    best = max(each, key=lambda one: one[MEAN])
    sts, scifact = best[MEAN], 100 * best[SCIFACT]
    return {
        'mean of STS and SciFact': (sts + scifact) / 2,
        MEAN: sts, SCIFACT: scifact,
    }  # fmt: skip


# ------------------------------------------------------------------- fine-tuned


class FineTuning(NamedTuple):
    """Settings of fine-tuning on a task of GLUE.

    Attributes:
        examples: largest number of examples to train on.
        epochs: over the examples.
    """

    examples: int
    epochs: int


TASKS = {
    'sst-2': FineTuning(10_000, 3),
    'cola': FineTuning(8_551, 5),
    'mrpc': FineTuning(3_668, 5),
    'qnli': FineTuning(5_000, 3),
    'sts-b': FineTuning(5_749, 5),
}
SHORT_TASKS = {
    'sst-2': FineTuning(6_000, 1),
    'mrpc': FineTuning(3_668, 5),
    'sts-b': FineTuning(5_749, 5),
}
# All of SST-2, and more examples of tasks of two texts.
TUNED_TASKS = TASKS | {
    'sst-2': FineTuning(67_349, 1),
    'qnli': FineTuning(10_000, 3),
    'mnli': FineTuning(30_000, 2),
}
SEEDS = 3
GLUE = 'mean of GLUE'
ONE_TEXT, TWO_TEXTS = 'mean of one text', 'mean of two texts'
BATCH = 32
SHORT_RATE, RATES = 5e-4, (3e-4, 1e-3)
TENTH = 10  # one example in so many decides on a rate
SQUAD, LIKE = (2_000, 500, 2), 'qnli'  # questions, dev questions, epochs


def hold_out(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes the training examples of a task as training and dev files.

    Returns:
        A folder like that of GLUE.
    """
    task = glue_layout.TASKS[name]
    lines = (
        (pathlib.Path('glue') / task.folder / 'train.tsv')
        .read_text()
        .splitlines(keepends=True)
    )
    count = 0 if task.header else 1
    header, lines = lines[:count], lines[count:]
    parts = {
        'train.tsv': [x for i, x in enumerate(lines) if i % TENTH],
        task.files['dev'][0]: lines[::TENTH],
    }
    for file, part in parts.items():
        path = folder / task.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(''.join([*header, *part]))
    return folder


def tuned(
    workdir: pathlib.Path,
    folder: str,
    name: str,
    rate: float,
    task: FineTuning,
    data_dir: pathlib.Path = pathlib.Path('glue'),
    *typed: str,
) -> float:
    """Fine-tunes a workdir, in a folder below: the score in percent."""
    steps = -(-task.examples * task.epochs // BATCH)
    metrics = evaluate(
        workdir / folder, 'glue', f'--task={name}', f'--data_dir={data_dir}',
        f'--examples={task.examples}', f'--epochs={task.epochs}',
        f'--batch_size={BATCH}', f'--learning_rate={rate}',
        f'--eval_every={-(-steps // max(2, task.epochs))}', '--notest',
        *typed, init=workdir,
    )  # fmt: skip
    return 100 * metrics[Glue.of(name).metrics[0]]


def last_score(folder: pathlib.Path, name: str) -> float:
    """Reads the score after the last update, which chose nothing."""
    end = f'/{Glue.of(name).metrics[0]}'
    (score,) = (
        value
        for key, value in kept.records_of(folder)[-1].items()
        if key.startswith('heldout/') and key.endswith(end)
    )
    return 100 * score


def best_rate(workdir: pathlib.Path, name: str, task: FineTuning) -> float:
    """Chooses the rate by a part of the training examples."""
    held = hold_out(name, workdir / 'held_out')
    return max(RATES, key=lambda rate: tuned(
        workdir, f'{name}_{rate:g}', name, rate, task, held
    ))  # fmt: skip


def with_mean(scores: Mapping[str, float]) -> dict[str, float]:
    """Puts the mean over tasks before the tasks."""
    return {GLUE: statistics.fmean(scores.values()), **scores}


def worth(workdir: pathlib.Path) -> dict[str, Any]:
    """Runs all evaluations."""
    rates = {name: best_rate(workdir, name, x) for name, x in TASKS.items()}
    scores = {
        name: tuned(workdir, name, name, rates[name], task)
        for name, task in TASKS.items()
    }
    questions, dev, epochs = SQUAD
    squad = evaluate(
        workdir / 'squad', 'squad', '--train=squad/train-v1.1.json',
        '--dev=squad/dev-v1.1.json', f'--examples={questions}',
        f'--dev_examples={dev}', f'--epochs={epochs}',
        f'--learning_rate={rates[LIKE]}', '--seq_len=256',
    )  # fmt: skip
    return {
        **with_mean(scores),
        'SQuAD F1': squad['f1'],
        **best_vectors(workdir),
    }


def of_seeds(workdir: pathlib.Path) -> dict[str, list[float]]:
    """Fine-tunes on TUNED_TASKS: scores of all seeds after the last update."""
    data, scores = pathlib.Path('glue'), {}
    means: dict[str, list[Sequence[float]]] = {ONE_TEXT: [], TWO_TEXTS: []}
    for name, task in TUNED_TASKS.items():
        rate = best_rate(workdir, name, task)
        scores[name] = []
        for seed in range(SEEDS):
            folder = f'{name}_{seed}'
            tuned(workdir, folder, name, rate, task, data, f'--seed={seed}')
            scores[name].append(last_score(workdir / folder, name))
        _, second, _ = glue_layout.TASKS[name].columns
        means[TWO_TEXTS if second else ONE_TEXT].append(scores[name])
    return {
        mean: [*map(statistics.fmean, zip(*each, strict=True))]
        for mean, each in means.items()
    } | scores


def short(workdir: pathlib.Path) -> dict[str, Any]:
    """Runs short evaluations, to screen rows."""
    scores = {
        name: tuned(workdir, f'short_{name}', name, SHORT_RATE, task)
        for name, task in SHORT_TASKS.items()
    }
    return {**with_mean(scores), **best_vectors(workdir)}


# ------------------------------------------------------------------ as they are

PROBES = 'MR', 'TREC'
PROBED = 'mean of probes'


def probed(workdir: pathlib.Path) -> dict[str, float]:
    """Fits linear classifiers of the states: accuracies in percent."""
    scores = {
        name: evaluate(
            workdir / name, 'probe', f'--train={name}', '--pooling=mean'
        )['accuracy']
        for name in PROBES
    }
    return {PROBED: statistics.fmean(scores.values()), **scores}


def tuned_and_probed(workdir: pathlib.Path) -> dict[str, Any]:
    """Fine-tunes on TUNED_TASKS, and probes the states."""
    return of_seeds(workdir) | probed(workdir)


# ------------------------------------------------------------------ all of them


class Ask(NamedTuple):
    """An evaluation of workdirs.

    Attributes:
        of: workdir -> values by column.
        data: files that it reads.
    """

    of: Callable[[pathlib.Path], dict[str, Any]]
    data: Sequence[str] = ()


_JUDGED = *STS.values(), BEIR
_WORTH = 'glue', 'squad', *_JUDGED
ASKS = {
    'words': Ask(words, ('words', 'sts/sts-dev.csv')),
    'vectors': Ask(vectors, _JUDGED),
    'worth': Ask(worth, _WORTH),
    'tuned': Ask(tuned_and_probed, ('glue', *PROBES)),
    'short': Ask(short, _WORTH),
}


@dataclasses.dataclass(frozen=True)
class WorthChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'A workdir.')
    ask: str = flag('worth', 'The evaluation.', choices=tuple(ASKS))


def answers_of(workdir: pathlib.Path, name: str) -> dict[str, Any]:
    """Runs the command as a process, unless finished before."""
    path = workdir / f'{name}.json'
    if not path.exists():
        kept.run(
            'benchmarks.worth', path.with_suffix('.log'),
            f'--init={workdir}', f'--ask={name}',
        )  # fmt: skip
    return read_json(path)


@commands.takes(WorthChoices)
def run(choices: WorthChoices, chosen: Mapping[str, Any]) -> None:
    """Evaluates a workdir, and prints and writes the results.

    Raises:
        UsageError: no workdir, or missing data.
    """
    del chosen
    commands.require(vars(choices), init='the workdir of a run')
    ask, workdir = ASKS[choices.ask], pathlib.Path(choices.init)
    kept.check_data(ask.data)
    results = ask.of(workdir)
    files.write_json(workdir / f'{choices.ask}.json', results)
    print(json.dumps(results))


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on with unfinished runs')
