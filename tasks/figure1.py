r"""Figure 1 of Kong et al. (2019): how much labelled data pretraining is worth.

    python -m tasks.figure1 --task=rte --data_dir=glue \
        --inits=infoword=runs/infoword,bert_nce=runs/bert_nce \
        --fractions=0.1,0.3,1 --seeds=3 --workdir=runs/figure1
    python -m tasks.figure1 --task=squad --data_dir=squad \
        --inits=infoword=runs/infoword,bert_nce=runs/bert_nce \
        --lambdas=0.4=runs/lambda_04,0.8=runs/infoword \
        --fractions=0.1,0.3,1 --workdir=runs/figure1

Left, the dev score of each workdir of --inits over the share of the training
examples; right, of each workdir of --lambdas over the lambda_DIM that it was
pretrained with, with the largest share. A seed determines the examples (smaller
subsets are part of larger ones) and all else; bars are standard deviations over
seeds. Flags of fine-tuning apply as for tasks.glue: with --epochs fewer
examples mean fewer updates, with --steps the number stays the same. Each run
has a folder in WORKDIR, and the same command resumes with the runs that are
missing; the picture is WORKDIR/figure1.png. The paper's task is --task=squad,
whose --data_dir holds train-v1.1.json and dev-v1.1.json.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import commands, files
from infoword_tf.choices import again, flag
from infoword_tf.config import Config
from infoword_tf.pictures import INK, LINE, QUIET
from tasks import finetune, glue, glue_layout, squad

SQUAD = 'squad'
COLOURS = ('#3f6491', '#b8641a', '#4b8a55', '#a98bc4', '#8d99a6')
MARKERS = 'osD^v'


@dataclasses.dataclass(frozen=True)
class Choices(finetune.Choices):
    """All that the command may choose; of --seq_len None is the task's own."""

    task: str | None = flag(
        None, 'A task of GLUE, or squad.', choices=(*glue_layout.TASKS, SQUAD))
    data_dir: str | None = flag(
        None, 'The folder that holds CoLA/, RTE/ and so on, or tfds:glue; for '
        'squad the folder of its files.')
    dev_examples: int | None = flag(
        None, 'Evaluate on this many dev examples only.', at_least=1)
    inits: tuple[str, ...] = flag(
        (), 'NAME=WORKDIR of each line of the left plot.')
    fractions: tuple[str, ...] = flag(
        ('0.1', '0.3', '1'), 'Shares of the training examples.')
    lambdas: tuple[str, ...] = flag(
        (), 'LAMBDA=WORKDIR of each point of the right plot.')
    seeds: int = again(finetune.Choices, 'seeds', 3)
    seq_len: int | None = again(
        finetune.Choices, 'seq_len', None, shown=finetune.Choices.seq_len)


class Asked(NamedTuple):
    """A task with its examples.

    Attributes:
        task: what is asked, a `finetune.Task` or the like.
        parts: 'train' and 'heldout'.
        total: how many there are to train on.
        prepare: (parts, given) -> `finetune.PreparedTask`.
        seq_len: T, unless it was said.
    """

    task: Any
    parts: dict[str, Any]
    total: int
    prepare: Callable[..., finetune.PreparedTask]
    seq_len: int


def asked(name: str, data_dir: str) -> Asked:
    """A task by its name.

    Raises:
        FileNotFoundError, ValueError: its files cannot be read.
    """
    if name == SQUAD:
        from tasks import squad_data

        folder = pathlib.Path(data_dir)
        parts = {
            part: squad_data.read(folder / f'{file}-v1.1.json', False)
            for part, file in (('train', 'train'), ('heldout', 'dev'))
        }
        return Asked(
            squad.TASK,
            parts,
            len(parts['train'].ids),
            lambda parts, given: squad.prepare(parts, given, False),
            squad.SEQ_LEN,
        )
    task = glue.task_of(name)
    parts = {
        part: glue_layout.read(name, data_dir, split)
        for part, split in (('train', 'train'), ('heldout', 'dev'))
    }
    return Asked(
        task,
        parts,
        len(parts['train'].first),
        lambda parts, given: finetune.prepare(task, parts, given),
        finetune.Choices.seq_len,
    )


class SeedRuns(NamedTuple):
    """Runs of one workdir on one share of the examples.

    Attributes:
        examples: of the share.
        values: by metric, and 'mi' in nats where there is a bound, one number
            a seed.
    """

    examples: int
    values: dict[str, list[float]]

    def spread(self, metric: str) -> tuple[float, float]:
        """Mean and standard deviation over the seeds."""
        return finetune.spread(self.values[metric])

    @property
    def summary(self) -> dict[str, Any]:
        """As the command says it."""
        summary: dict[str, Any] = {'examples': self.examples}
        for name in self.values:
            mean, deviation = self.spread(name)
            summary[name] = {'mean': round(mean, 6),
                           'spread': round(deviation, 6)}  # fmt: skip
        return summary


def named(flag: str, entries: Sequence[str]) -> dict[str, str]:
    """NAME=WORKDIR of a flag, by name.

    Raises:
        UsageError: an entry is no such thing, or a name comes twice.
    """
    inits: dict[str, str] = {}
    for entry in entries:
        name, _, workdir = entry.partition('=')
        if not name or not workdir or '/' in name:
            raise commands.UsageError(f'--{flag}: {entry!r} is no NAME=WORKDIR')
        if name in inits:
            raise commands.UsageError(f'--{flag} names {name} twice')
        inits[name] = workdir
    return inits


def numbers(flag: str, values: Sequence[str], highest: float) -> list[float]:
    """Numbers of a flag, from above or at 0 up to a highest.

    Raises:
        UsageError: one is none.
    """
    found = []
    for value in values:
        try:
            found.append(float(value))
        except ValueError:
            found.append(math.nan)
        if not 0 <= found[-1] <= highest:  # nor is NaN
            raise commands.UsageError(
                f'--{flag}: {value!r} is no number from 0 to {highest:g}'
            )
    return found


class Study:
    """All runs of a task, those that are done and those to come.

    Attributes:
        task, parts: as of `Asked`, of the examples that flags leave.
        total: of them, to train on.
        given: what was chosen; `chosen` by name what was said.
        workdir: where the runs lie.
    """

    def __init__(
        self, asked: Asked, given: Choices, chosen: Mapping[str, Any]
    ):
        """Args: as the attributes."""
        self.task, self.chosen = asked.task, chosen
        self.prepare = asked.prepare
        self.parts = {
            'train': asked.parts['train'].some(given.examples),
            'heldout': asked.parts['heldout'].some(given.dev_examples),
        }
        self.total = min(asked.total, given.examples or asked.total)
        self.given = given.decided(
            seq_len=given.seq_len or asked.seq_len, examples=None
        )
        self.workdir = pathlib.Path(given.workdir)
        self.names: dict[str, str] = {}  # by workdir to start from
        self.shared: dict[str, Any] = {}  # what runs on the same examples share

    def examples(self, fraction: float) -> int:
        """How many of the training examples a share is.

        Raises:
            UsageError: fewer than an update takes.
        """
        count = round(fraction * self.total)
        if count < self.given.batch_size:
            raise commands.UsageError(
                f'--fractions: {fraction:g} of {self.total:,} examples are '
                f'{count:,}, fewer than --batch_size={self.given.batch_size}'
            )
        return count

    def cell(self, name: str, init: str, fraction: float) -> SeedRuns:
        """Runs of all seeds from a workdir, on a share of the examples.

        Runs that have the same `init` keep their first name.
        """
        name = self.names.setdefault(init, name)
        count = self.examples(fraction)
        values: dict[str, list[float]] = {}
        begin = self.given.seed
        for seed in range(begin, begin + self.given.seeds):
            folder = f'{name}-fraction={fraction:g}-seed={seed}'
            best = self.once(init, count, seed, self.workdir / folder)
            result = finetune.result(self.task, best)
            for metric in (*self.task.metrics, 'mi'):
                if metric in result:
                    values.setdefault(metric, []).append(result[metric])
        runs = SeedRuns(count, values)
        metric = self.task.metrics[0]
        mean, deviation = runs.spread(metric)
        print(
            f'{name}, {count:,} examples: {metric} {mean:.4f} +- '
            f'{deviation:.4f} over {self.given.seeds} seeds',
            flush=True,
        )
        return runs

    def once(
        self, init: str, count: int, seed: int, folder: pathlib.Path
    ) -> Mapping[str, Any]:
        """The best record of one run, which may be done; `seed` draws all.

        Raises:
            UsageError: the folder holds another run.
        """
        drawn = self.parts['train'].some(count, seed)
        given = self.given.decided(init=init, seed=seed, workdir=str(folder))
        prepared = self.prepare({**self.parts, 'train': drawn}, given)
        labelled = prepared.labelled
        # Runs on the same examples share their graphs.
        if labelled.fingerprint not in self.shared:
            self.shared = {labelled.fingerprint: labelled.shared}
        labelled = labelled._replace(shared=self.shared[labelled.fingerprint])
        best = finetune.train_one_of_many(
            dataclasses.replace(prepared, labelled=labelled), self.chosen
        )
        began = Config.read(folder).run['init']
        if began != init:
            raise commands.UsageError(
                f'{folder} began with {began}, not {init}; take another '
                'name, or another --workdir'
            )
        return best


def picture(
    task: Any,
    seeds: int,
    fractions: Mapping[str, Mapping[float, SeedRuns]],
    lambdas: Mapping[float, SeedRuns],
) -> Any:
    """Both plots, a figure of Matplotlib; without `lambdas` the left one.

    Cells are by name and share, and by lambda_DIM.
    """
    from matplotlib.figure import Figure

    metric = task.metrics[0]
    plots = 1 + bool(lambdas)
    figure = Figure((4.6 * plots, 3.7), dpi=150, layout='constrained')
    left, *right = figure.subplots(1, plots, sharey=True, squeeze=False)[0]
    lines = len(fractions)
    for number, (name, cells) in enumerate(fractions.items()):
        # Bars beside each other, not upon each other: the axis is logarithmic.
        aside = 1.02 ** (number - (lines - 1) / 2)
        shares = sorted(cells)
        _line(
            left, [share * aside for share in shares],
            [cells[share].spread(metric) for share in shares], number, name,
        )  # fmt: skip
    shares = sorted({share for cells in fractions.values() for share in cells})
    examples = {s: c.examples for cs in fractions.values()
                for s, c in cs.items()}  # fmt: skip
    left.set_xscale('log')
    left.set_xticks(
        shares, [f'{share:.3g}\n{examples[share]:,}' for share in shares]
    )
    left.minorticks_off()
    left.set_xlabel('share of the training examples, and how many they are')
    left.set_ylabel(f'{metric}, {task.name} (dev)', color=QUIET)
    if lines > 1:
        left.legend(frameon=False, fontsize=9, labelcolor=INK, loc='best')
    else:
        left.set_title(*fractions, fontsize=9, color=INK, loc='left')
    for axes in right:
        values = sorted(lambdas)
        _line(axes, values, [lambdas[v].spread(metric) for v in values], 0)
        axes.set_xticks(values, [f'{value:g}' for value in values])
        most = max(cell.examples for cell in lambdas.values())
        axes.set_xlabel(rf'$\lambda_\mathrm{{DIM}}$, with {most:,} examples')
        axes.margins(x=0.08)
    for axes in (left, *right):
        axes.spines[['top', 'right']].set_visible(False)
        axes.spines[['left', 'bottom']].set_color(LINE)
        axes.grid(axis='y', color=LINE, linewidth=0.6, alpha=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.label.set_color(QUIET)
        axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    about = f'mean of {seeds} seeds; bars: their standard deviation'
    figure.suptitle(
        about if seeds > 1 else 'one seed', fontsize=8, color=QUIET, x=0.99,
        ha='right',
    )  # fmt: skip
    return figure


def _line(
    axes: Any,
    places: Sequence[float],
    points: Sequence[tuple[float, float]],
    number: int,
    name: str | None = None,
) -> None:
    """Means with their deviations as bars."""
    means, deviations = zip(*points, strict=True)
    axes.errorbar(
        places,
        means,
        yerr=deviations if any(deviations) else None,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=5,
        linewidth=1.6,
        elinewidth=1,
        capsize=3,
        label=name,
    )


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command."""
    finetune.check_one_machine(given)
    commands.require(
        vars(given),
        task='one of GLUE, rte say, or squad',
        data_dir='the folder of its data',
        inits='workdirs to compare, infoword=W1,bert_nce=W2 say',
        workdir='a folder for all runs',
    )
    if given.init or given.sweep:
        raise commands.UsageError(
            '--init and --sweep are of one workdir: name those to compare '
            'with --inits'
        )
    inits = named('inits', given.inits)
    by_lambda = named('lambdas', given.lambdas)
    fractions = sorted(set(numbers('fractions', given.fractions, 1.0)))
    lambdas = numbers('lambdas', list(by_lambda), 1e6)
    out = commands.result_folder(given.workdir)
    finetune.check_inits(*inits.values(), *by_lambda.values())
    study = Study(asked(given.task, given.data_dir), given, chosen)
    task = study.task
    for fraction in fractions:  # complains before the first run
        study.examples(fraction)
    found: dict[str, dict[float, SeedRuns]] = {name: {} for name in inits}
    for fraction in fractions:
        for name, init in inits.items():
            found[name][fraction] = study.cell(name, init, fraction)
    right = {
        value: study.cell(f'lambda={value:g}', init, fractions[-1])
        for value, init in zip(lambdas, by_lambda.values(), strict=True)
    }
    with files.written(out / 'figure1.png') as partial:
        picture(task, given.seeds, found, right).savefig(
            partial, format='png'
        )
    print(f'{out / "figure1.png"} shows it', flush=True)
    return finetune.finish(
        out,
        {
            'task': task.name,
            'metric': task.metrics[0],
            'seeds': given.seeds,
            'fractions': {
                name: {f'{k:g}': cell.summary for k, cell in cells.items()}
                for name, cells in found.items()
            },
            'lambdas': {f'{k:g}': c.summary for k, c in right.items()},
        },
    )


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on from where it was')
