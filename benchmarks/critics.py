r"""Search by each critic: quality, bytes and milliseconds.

    python -m benchmarks.critics --init=MiniLM --workdir=runs/tables/critics
    python -m benchmarks.critics --sets=scratch --typed=--minutes=2 \
        --workdir=runs/tables/critics_scratch
    python -m benchmarks.critics --sets=ict --typed=--minutes=2 \
        --workdir=runs/tables/critics_ict

Trains each of --critics on each set with each seed from the same start:
`infoword_tf.train` with the defaults of the critic, so that all make the same
number of updates, unless --typed names minutes. Then it searches with the
trained model, alone and merged with BM25: `cross` orders the best hundred of
BM25. Beside them stands the model of --init, unchanged. A gain over it, or over
the cosine, is the 95 % interval of a paired bootstrap over the queries. SciFact
and NFCorpus are folders of BEIR in the working folder, whose training
judgements are mined; pydocs are docstrings, whose first sentences find the
rest; `scratch` is pydocs without --init, and `ict` its text, whose sentences
find the documents that they are taken from (`cross` compares no such views).

Costs are those of `tasks.retrieval --costs`: bytes of a passage as stored,
milliseconds of a query alone, seconds to encode 1,000 passages. Finished runs
stay; table and picture go to WORKDIR/table.md and critics.png.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import kept, pairs, report, tables
from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.critics import CRITICS
from infoword_tf.evaluation import retrieval, trec

BM25, UNCHANGED = 'BM25', 'unchanged'  # instead of a critic
COSINE = 'cosine'
OVER = UNCHANGED, COSINE  # what gains are computed over
MEASURE = 'ndcg@10'
COSTS = {
    'bytes_per_passage': 'bytes a passage',
    'ms_per_query': 'ms a query',
    'seconds_per_1000_passages': 's to encode 1,000',
}
DIGITS = {'bytes_per_passage': 0}  # of a cost; else 1
# Where the names of points stand, in points from these, and on which side.
NEAR = {
    'cosine': (-5, 6, 'right'), 'lexical': (5, -12, 'left'),
    BM25: (-5, 4, 'right'),
}  # fmt: skip
# Of `ict`, as in tasks/flags/ict_tiny.flags.
TEXT = (
    '--corpus=pydocs', '--objectives=ict', '--size=tiny', '--batch_size=64',
    '--seq_len=64', '--learning_rate=3e-3',
)  # fmt: skip


class CriticSet(NamedTuple):
    """Pairs to train on, and a search.

    Attributes:
        pairs: name in `pairs.SETS`; None: text, of which the row `ict` learns.
        search: a folder of BEIR, or pydocs.
        scratch: whether training begins with fresh weights.
    """

    pairs: str | None
    search: str
    scratch: bool = False

    @property
    def row(self) -> str:
        """The row that compares."""
        return 'ict' if self.pairs is None else 'simcse'

    @property
    def data(self) -> tuple[str, ...]:
        """Files that are read, in the working folder."""
        return () if self.pairs is None else pairs.SETS[self.pairs].data

    def training(self, folder: pathlib.Path, init: str | None) -> list[str]:
        """Makes the data in a folder; returns flags of training."""
        start = [] if self.scratch else [f'--init={init}']
        if self.pairs is None:
            return [*start, *TEXT]
        folder.mkdir(parents=True, exist_ok=True)
        data = pairs.SETS[self.pairs].pairs(folder, init or '')
        return [*start, f'--pairs={data}']


SETS = {
    'scifact': CriticSet('scifact', 'scifact'),
    'nfcorpus': CriticSet('nfcorpus', 'nfcorpus'),
    'pydocs': CriticSet('pydocs_5000', 'pydocs'),
    'scratch': CriticSet('pydocs_5000', 'pydocs', scratch=True),
    'ict': CriticSet(None, 'pydocs', scratch=True),
}


@dataclasses.dataclass(frozen=True)
class CriticsChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'The workdir or public model.', model=True)
    sets: tuple[str, ...] = flag(
        ('scifact', 'nfcorpus', 'pydocs'), 'Of pairs and searches.',
        choices=tuple(SETS))
    critics: tuple[str, ...] = flag(
        tuple(CRITICS), 'Which.', choices=tuple(CRITICS))
    seeds: int = flag(3, 'Runs of each.', at_least=1)
    typed: str = flag('', 'Further flags of training, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs, table and picture go.')


class Result(NamedTuple):
    """A critic, measured.

    Attributes:
        scores: nDCG@10 by search ('model', 'hybrid', 'bm25').
        costs: costs by search and name in COSTS.
        queries: nDCG@10 of each query, [Q].
        mi, ceiling: bound and ceiling of the MI of held-out pairs, nats; None
            if the critic was not trained.
        steps: updates.
    """

    scores: Mapping[str, float]
    costs: Mapping[str, Mapping[str, float | None]]
    queries: np.ndarray
    mi: float | None = None
    ceiling: float | None = None
    steps: int = 0


def searched(
    folder: pathlib.Path, critic: str, one: CriticSet,
    task: retrieval.RetrievalTask, *of_training: Any, init: str | None = None,
) -> Result:  # fmt: skip
    """Searches with a model; `of_training` is the rest of the result."""
    where = 'corpus' if one.search == 'pydocs' else 'data_dir'
    record = kept.search(
        folder, critic, f'--{where}={one.search}', '--costs', init=init
    )
    ranked, _ = trec.read_run(folder / 'run.trec', task)
    return Result(
        {name: record[name][MEASURE] for name in ('model', 'hybrid', 'bm25')},
        record['costs'], pairs.of_queries(task, ranked), *of_training,
    )  # fmt: skip


def trained(
    choices: CriticsChoices, one: CriticSet, task: retrieval.RetrievalTask,
    folder: pathlib.Path, critic: str, seed: int,
) -> Result:  # fmt: skip
    """Trains and measures a critic with a seed, unless finished before."""
    workdir = folder / f'{critic}_{seed}'
    if not (workdir / 'metrics.json').exists():
        kept.run(
            'infoword_tf.train', folder / f'{workdir.name}.log',
            *one.training(folder / 'pairs', choices.init),
            f'--{one.row}.critic={critic}', f'--seed={seed}',
            *choices.typed.split(), f'--workdir={workdir}',
        )  # fmt: skip
        shutil.rmtree(workdir / 'checkpoints')
    last = kept.records_of(workdir)[-1]
    return searched(
        workdir / 'search', critic, one, task,
        *(last[f'heldout/{one.row}/{x}'] for x in ('mi', 'ceiling')),
        last['step'],
    )  # fmt: skip


def costs_of(costs: Sequence[Mapping[str, float | None]]) -> list[str]:
    """Writes each cost, the median over seeds (lowest-highest), or nothing."""
    cells = []
    for name in COSTS:
        values = [each[name] for each in costs if each[name]]
        digits = DIGITS.get(name, 1)
        cells.append(report.shown(values, digits) if values else '')
    return cells


def gain(before: Sequence[Result], after: Sequence[Result]) -> str:
    """Writes the 95 % interval of a gain of nDCG@10, or nothing without one."""
    first, last = ([r.queries for r in each] for each in (before, after))
    return pairs.interval(np.mean(first, 0), last, np.mean) if first else ''


def line(
    name: str, label: str, results: Sequence[Result],
    others: Sequence[Sequence[Result]] = ((), ()),
) -> list[str]:  # fmt: skip
    """Makes the line of a critic: means over seeds (lowest-highest).

    Args:
        name: name of the set.
        label: name of the critic.
        results: one for each seed.
        others: results over which each gain is; none gives an empty cell.
    """
    mi, steps = '', ''
    if results[0].ceiling is not None:
        bounds = tables.spread([r.mi for r in results])
        mi = f'{bounds} of {results[0].ceiling:.2f}'
        steps = f'{sum(r.steps for r in results) // len(results):,}'
    return [
        f'`{name}`', label,
        tables.spread([r.scores['model'] for r in results]),
        tables.spread([r.scores['hybrid'] for r in results]),
        *(gain(each, results) for each in others), mi,
        *costs_of([r.costs['model'] for r in results]), steps,
    ]  # fmt: skip


def draw(
    path: pathlib.Path, results: Mapping[str, Mapping[str, Sequence[Result]]]
) -> None:
    """Draws nDCG@10 over bytes and over milliseconds, a panel for each set."""
    from matplotlib import figure as figures

    costs = 'bytes_per_passage', 'ms_per_query'
    figure = figures.Figure(
        (8, 3.2 * len(results)), layout='constrained'
    )
    axes = figure.subplots(len(results), 2, sharey='row', squeeze=False)
    for (name, critics), row in zip(results.items(), axes, strict=True):
        for cost, axis in zip(costs, row, strict=True):
            for number, (critic, several) in enumerate(critics.items()):
                x, y, side = NEAR.get(critic, (5, 4, 'left'))
                points = [
                    (r.costs[search][cost], r.scores[search])
                    for r in several
                    for search in ('bm25' if critic == BM25 else 'model',)
                    if r.costs[search][cost]
                ]
                if points:
                    axis.plot(*zip(*points, strict=True), f'oC{number}')
                    axis.annotate(
                        critic, points[0], xytext=(x, y), ha=side,
                        textcoords='offset points', fontsize=8,
                    )  # fmt: skip
            axis.set_xscale('log')
            axis.margins(0.2)
            axis.set_xlabel(COSTS[cost])
            axis.spines[['top', 'right']].set_visible(False)
        row[0].set_ylabel(f'{name}: nDCG@10')
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150)


@commands.takes(CriticsChoices)
def run(choices: CriticsChoices, chosen: Any) -> None:
    """Trains, measures, and writes table and picture.

    Raises:
        UsageError: missing data, a critic that no set trains, or the folder is
            of another commit.
    """
    del chosen
    commands.require(vars(choices), workdir='a folder for the table')
    if not all(SETS[name].scratch for name in choices.sets):
        commands.require(vars(choices), init='a model')
    kept.check_data(
        [path for name in choices.sets for path in SETS[name].data]
    )
    critics = {
        name: [
            x for x in choices.critics
            if SETS[name].pairs or not CRITICS[x].of_pairs
        ]
        for name in choices.sets
    }
    if not all(critics.values()):
        raise errors.UsageError(
            'critic_without_pairs',
            f'--critics={",".join(choices.critics)} learns from pairs, and '
            '--sets=ict has none; name another critic, or another set',
        )
    folder = pathlib.Path(choices.workdir)
    kept.bind_commit(folder)
    lines, results = [], {}
    for name in choices.sets:
        results[name], one = {}, SETS[name]
        task = pairs.task_of(one.search)
        if not one.scratch:
            start = searched(
                folder / name / UNCHANGED, COSINE, one, task,
                init=choices.init,
            )  # fmt: skip
            results[name][UNCHANGED] = [start]
            lines.append(line(name, UNCHANGED, [start]))
        for critic in critics[name]:
            each = [
                trained(choices, one, task, folder / name, critic, seed)
                for seed in range(choices.seeds)
            ]
            others = [results[name].get(x, ()) for x in OVER]
            lines.append(line(name, f'`{critic}`', each, others))
            results[name][critic] = each
        first = next(iter(results[name].values()))[:1]
        results[name][BM25] = first
        lines.append([
            f'`{name}`', BM25, tables.spread([first[0].scores['bm25']]),
            *[''] * 4, *costs_of([first[0].costs['bm25']]), '',
        ])  # fmt: skip
    titles = (
        'set', 'critic', 'nDCG@10', 'merged with BM25',
        *(f'over {name}' for name in OVER), 'held-out MI', *COSTS.values(),
        'updates',
    )  # fmt: skip
    table = report.table(titles, lines)
    kept.write_table(folder, table, tables.name_seeds(choices.seeds))
    draw(folder / 'critics.png', results)


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
