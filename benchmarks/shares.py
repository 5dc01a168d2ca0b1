r"""The worth of pretraining in labelled data: Figure 1 of Kong et al. (2019).

    python -m benchmarks.shares --task=sst-2 --data_dir=glue \
        --inits=infoword=runs/infoword,mlm=runs/mlm \
        --typed="--learning_rate=3e-4" --workdir=runs/shares
    python -m benchmarks.shares --task=squad --data_dir=squad \
        --inits=0=runs/bert_nce,0.8=runs/infoword --examples=8000 \
        --workdir=runs/lambdas

Fine-tunes each workdir of --inits on each number of training examples, with
several seeds, by `tasks.glue` or `tasks.squad`. Fewer examples are a subset of
more, and the same for all seeds. Means and standard deviations go to
WORKDIR/table.md, and into shares.png: over examples, or if names are numbers
(lambda_DIM), over the names. Finished runs stay.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks import kept, report
from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.data import glue_layout

SQUAD = 'squad'


@dataclasses.dataclass(frozen=True)
class SharesChoices:
    """Choices of the command."""

    task: str = flag(
        'sst-2', 'A task of GLUE, or squad.',
        choices=(*glue_layout.TASKS, SQUAD))
    data_dir: str | None = flag(
        None, "The folder of GLUE, or of SQuAD's train-v1.1.json and so on.")
    inits: tuple[str, ...] = flag((), 'NAME=WORKDIR of each.')
    examples: tuple[str, ...] = flag(
        ('600', '1800', '6000'), 'Numbers of training examples.')
    seeds: int = flag(3, 'Runs of each.', at_least=2)
    typed: str = flag('', 'Further flags of fine-tuning, separated by blanks.')
    workdir: str | None = flag(None, 'Where runs, table and picture go.')


def spread(
    choices: SharesChoices, name: str, init: str, count: int
) -> list[float]:
    """Fine-tunes with all seeds; returns mean and deviation of the score."""
    at, squad = choices.data_dir, choices.task == SQUAD
    data = (f'--train={at}/train-v1.1.json', f'--dev={at}/dev-v1.1.json')
    if not squad:
        data = f'--task={choices.task}', f'--data_dir={at}', '--notest'
    done = kept.evaluate(
        pathlib.Path(choices.workdir) / f'{name}_{count}_{choices.seeds}',
        'squad' if squad else 'glue', *data, f'--examples={count}',
        f'--seeds={choices.seeds}', *choices.typed.split(), init=init,
    )  # fmt: skip
    (runs,) = done['runs'].values()
    print(f'{name}, {count:,} examples: {runs["mean"]:.4f}', flush=True)
    return [runs['mean'], runs['spread']]


def draw(
    path: pathlib.Path, lines: Mapping[str, Mapping[float, Any]], title: str
) -> None:
    """Draws means into a PNG; bars are standard deviations."""
    from matplotlib.figure import Figure

    figure = Figure((4.6, 3.7), dpi=150, layout='constrained')
    axis = figure.subplots()
    for name, cells in lines.items():
        means, deviations = zip(*cells.values(), strict=True)
        axis.errorbar(list(cells), means, yerr=deviations, marker='o',
                      capsize=3, label=name)  # fmt: skip
    axis.set(xlabel=title, ylabel='score (dev)')
    axis.legend(fontsize=8)
    if title == 'examples':
        axis.set_xscale('log')
    figure.savefig(path, format='png')


@commands.takes(SharesChoices)
def run(choices: SharesChoices, chosen: Mapping[str, Any]) -> None:
    """Fine-tunes all workdirs, and prints and draws means.

    Raises:
        UsageError: a choice is missing or wrong, or the folder is of another
            commit.
    """
    del chosen
    commands.require(
        vars(choices), data_dir='the folder of its data', workdir='a folder',
        inits='workdirs to compare, infoword=W1,mlm=W2 say',
    )  # fmt: skip
    inits = dict(each.partition('=')[::2] for each in choices.inits)
    if not all(inits.values()) or not all(map(str.isdigit, choices.examples)):
        raise errors.UsageError(
            'shares_of_what',
            '--inits: give NAME=WORKDIR; --examples: give whole numbers',
        )
    folder = pathlib.Path(choices.workdir)
    counts = list(map(int, choices.examples))
    kept.bind_commit(folder)
    cells = {name: {count: spread(choices, name, init, count)
                    for count in counts}
             for name, init in inits.items()}  # fmt: skip
    lines = report.table(['', *(f'{count:,}' for count in counts)], [
        [name, *('{:.3f} +- {:.3f}'.format(*cell) for cell in row.values())]
        for name, row in cells.items()
    ])  # fmt: skip
    with files.written(folder / 'table.md') as partial:
        partial.write_text('\n'.join(lines) + '\n')
    places = 'examples'
    with contextlib.suppress(ValueError):  # names are no numbers
        cells = {f'{count:,} examples': {
            float(name): row[count] for name, row in cells.items()
        } for count in counts}  # fmt: skip
        places = 'lambda'
    draw(folder / 'shares.png', cells, places)
    print('\n'.join(lines))


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on')
