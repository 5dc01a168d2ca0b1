r"""Gains of a public model by training on pairs with the defaults of --pairs.

    python -m benchmarks.pairs --init=MiniLM --workdir=runs/tables/pairs
    python -m benchmarks.pairs --init=MiniLM --sets=scifact --seeds=1 \
        --typed=--learning_rate=1e-4 --workdir=runs/tables/pairs_1e-4

Trains on each set of SETS with each seed, `infoword_tf.train --init --pairs`
alone, and measures before and after: nDCG@10 of search, or Spearman's
correlation x 100 with people's scores. SciFact and NFCorpus are folders of
BEIR, whose training judgements are mined; these, `sts` and nli-triplets.csv lie
in the working folder.

Prints means over seeds (lowest-highest), and the 95 % interval of the gain: all
is computed again on DRAWS random choices of queries, or of scored pairs, the
same before and after (a paired bootstrap). Finished runs stay; the table goes
to WORKDIR/table.md.
"""

import csv
import dataclasses
import functools
import pathlib
import random
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import kept, report, tables, worth
from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.evaluation import models, ranking, retrieval, stages, sts
from infoword_tf.evaluation.correlation import spearman

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

NLI = 'nli-triplets.csv'
DRAWS = 1000
NEGATIVES = 1  # of each query, mined


class Measure(NamedTuple):
    """A measure of vectors.

    Attributes:
        name: name for people.
        scores: a model -> [n, ...], of each query or scored pair.
        value: function that makes one number of such scores.
    """

    name: str
    scores: Callable[['Loaded'], np.ndarray]
    value: Callable[[np.ndarray], float]


class PairSet(NamedTuple):
    """Pairs, and measures before and after training.

    Attributes:
        pairs: (folder, init) -> the file, which it may write there.
        measures: each makes a line.
        data: files that are read, in the working folder.
    """

    pairs: Callable[[pathlib.Path, str], pathlib.Path]
    measures: tuple[Measure, ...]
    data: tuple[str, ...] = ()


# ------------------------------------------------------------------------ pairs


def docstrings(folder: pathlib.Path, init: str, count: int) -> pathlib.Path:
    """Writes first sentences of docstrings, and the rest of each."""
    del init
    from infoword_tf.data import corpora

    rows = [
        (document.sentences[0], ' '.join(document.sentences[1:]))
        for document in corpora.open_corpus('pydocs').train()
        if len(document.sentences) > 1
    ]
    random.Random(0).shuffle(rows)
    with files.written(folder / 'pairs.csv') as partial:
        with open(partial, 'w', newline='', encoding='utf-8') as file:
            csv.writer(file).writerows([('a', 'b'), *rows[:count]])
    return folder / 'pairs.csv'


def mined(folder: pathlib.Path, init: str, beir: str) -> pathlib.Path:
    """Mines the training judgements of a folder of BEIR."""
    kept.evaluate(
        folder / 'mined', 'mine', f'--data_dir={beir}', '--precision=auto',
        f'--negatives={NEGATIVES}', init=init,
    )  # fmt: skip
    return folder / 'mined' / 'pairs.csv'


# --------------------------------------------------------------------- measures


def task_of(name: str) -> retrieval.RetrievalTask:
    """Opens the search of a folder of BEIR, or of pydocs."""
    if name == 'pydocs':
        return retrieval.corpus_task(name)
    return retrieval.beir_task(pathlib.Path(name))


def of_queries(
    task: retrieval.RetrievalTask, ranked: retrieval.Rankings
) -> np.ndarray:
    """Computes nDCG@10 of each query, [Q]."""
    results = (x.tolist() for _, x in retrieval.results(task, ranked))
    each = zip(results, task.relevance, strict=True)
    return np.array([ranking.measure(*x)['ndcg@10'] for x in each])


def gains(loaded: 'Loaded', beir: str) -> np.ndarray:
    """Searches with vectors; returns nDCG@10 of each query, [Q]."""
    task = task_of(beir)
    encode = models.encoder_of(loaded, progress=False)
    ranked = stages.by_vectors(task, encode, loaded.config.similarity, beir)
    return of_queries(task, ranked)


def similarities(loaded: 'Loaded', sets: Sequence[str]) -> np.ndarray:
    """Compares sentences: [n, 3], similarity, people's score, number of set."""
    parts = []
    for number, path in enumerate(sets):
        pairs = sts.read(pathlib.Path(path))
        encode = functools.partial(loaded.encode, progress=False)
        near = sts.similarities(pairs, encode, loaded.config.similarity)
        of = np.full(len(near), number)
        parts.append(np.stack([near, pairs.scores, of], axis=1))
    return np.concatenate(parts)


def correlation(scores: np.ndarray) -> float:
    """Computes the mean over sets of Spearman's correlation x 100."""
    near, people, of = scores.T
    each = [spearman(near[of == x], people[of == x]) for x in np.unique(of)]
    return 100 * float(np.mean(each))


def search(beir: str) -> tuple[Measure, ...]:
    """Returns the measure of a folder of BEIR, or of pydocs."""
    scores = functools.partial(gains, beir=beir)
    return (Measure('nDCG@10', scores, lambda x: float(np.mean(x))),)


def likeness(name: str, sets: Sequence[str]) -> Measure:
    """Returns a measure of sets of STS."""
    scores = functools.partial(similarities, sets=sets)
    return Measure(name, scores, correlation)


SETS = {
    'pydocs_500': PairSet(
        functools.partial(docstrings, count=500), search('pydocs')
    ),
    'pydocs_5000': PairSet(
        functools.partial(docstrings, count=5000), search('pydocs')
    ),
    'scifact': PairSet(
        functools.partial(mined, beir='scifact'), search('scifact'),
        ('scifact',),
    ),
    'nfcorpus': PairSet(
        functools.partial(mined, beir='nfcorpus'), search('nfcorpus'),
        ('nfcorpus',),
    ),
    'nli': PairSet(
        lambda folder, init: pathlib.Path(NLI),
        (
            likeness('STS-B test', [worth.STS['STS-B test']]),
            likeness(worth.MEAN, list(worth.STS.values())),
        ),
        (NLI, *worth.STS.values()),
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PairsChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'The workdir or public model.', model=True)
    sets: tuple[str, ...] = flag(
        tuple(SETS), 'Of pairs.', choices=tuple(SETS))
    seeds: int = flag(3, 'Runs on each.', at_least=1)
    typed: str = flag('', 'Further flags of training, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs and table go.')


# ---------------------------------------------------------------------- results


def bootstrap(
    before: np.ndarray,
    after: Sequence[np.ndarray],
    value: Callable[[np.ndarray], float],
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Computes the 95 % interval of the gain by a paired bootstrap.

    Args:
        before: [n, ...] scores.
        after: scores of each run, one a seed, of the same form; the mean of
            their values counts.
        value: function that makes one number of scores.
        draws: number of draws, each of n with replacement.
        seed: seed of the draws.
    """
    rng = np.random.default_rng(seed)
    differences = []
    for _ in range(draws):
        drawn = rng.integers(0, len(before), len(before))
        mean = np.mean([value(scores[drawn]) for scores in after])
        differences.append(mean - value(before[drawn]))
    low, high = np.quantile(differences, (0.025, 0.975))
    return float(low), float(high)


def interval(
    before: np.ndarray,
    after: Sequence[np.ndarray],
    value: Callable[[np.ndarray], float],
) -> str:
    """Writes the interval of `bootstrap` for a table."""
    return ' to '.join(f'{x:+.3f}' for x in bootstrap(before, after, value))


def measured(
    init: str | pathlib.Path, folder: pathlib.Path, one: PairSet
) -> list[np.ndarray]:
    """Measures a model, unless measured before: the scores of each measure."""
    paths = [folder / f'scores_{i}.npy' for i in range(len(one.measures))]
    if not all(path.exists() for path in paths):
        import infoword_tf
        from infoword_tf.training.record import faster_precision

        loaded = infoword_tf.load(init, faster_precision())
        for path, measure in zip(paths, one.measures, strict=True):
            with files.written(path) as partial, open(partial, 'wb') as file:
                np.save(file, measure.scores(loaded))
    return [np.load(path) for path in paths]


def of_set(
    choices: PairsChoices, name: str, folder: pathlib.Path
) -> list[list[str]]:
    """Trains with each seed; returns the lines of a set."""
    one = SETS[name]
    folder.mkdir(parents=True, exist_ok=True)
    before = measured(choices.init, folder, one)
    pairs = one.pairs(folder, choices.init)
    after, steps = [], 0
    for seed in range(choices.seeds):
        workdir = folder / f'seed_{seed}'
        if not (workdir / 'metrics.json').exists():
            kept.run(
                'infoword_tf.train', folder / f'seed_{seed}.log',
                f'--init={choices.init}', f'--pairs={pairs}', f'--seed={seed}',
                *choices.typed.split(), f'--workdir={workdir}',
            )  # fmt: skip
            shutil.rmtree(workdir / 'checkpoints')
        steps = kept.records_of(workdir)[-1]['step']
        after.append(measured(workdir, workdir, one))
    lines = []
    for number, measure in enumerate(one.measures):
        first, others = before[number], [x[number] for x in after]
        lines.append([
            f'`{name}`', measure.name, tables.spread([measure.value(first)]),
            tables.spread([measure.value(x) for x in others]),
            interval(first, others, measure.value), f'{steps:,}',
        ])  # fmt: skip
    return lines


@commands.takes(PairsChoices)
def run(choices: PairsChoices, chosen: Any) -> None:
    """Mines, trains, measures, and writes the table.

    Raises:
        UsageError: missing data, or the folder is of another commit.
    """
    del chosen
    commands.require(
        vars(choices), init='a model', workdir='a folder for the table'
    )
    kept.check_data([x for name in choices.sets for x in SETS[name].data])
    folder = pathlib.Path(choices.workdir)
    kept.bind_commit(folder)
    lines = [
        line
        for name in choices.sets
        for line in of_set(choices, name, folder / name)
    ]
    titles = 'pairs', 'measure', 'before', 'after', 'gain (95 %)', 'updates'
    table = report.table(titles, lines)
    kept.write_table(folder, table, tables.name_seeds(choices.seeds))


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
