r"""The tables of docs/results.md and docs/pretraining.md.

    python -m benchmarks.tables --table=rows --workdir=runs/tables/rows
    python -m benchmarks.tables --flagfiles=mlm_tiny,plm_tiny --minutes=3 \
        --workdir=runs/mine

A table is data (TABLES): flagfiles that train, and an evaluation of the trained
workdirs (worth.py). First the rate of each flagfile over 100 steps is measured,
one after the other, so that all are of the same hour; then each trains with
each seed for the steps that fit into the same time, and is evaluated. With
--steps all train for the same steps instead. A result depends on steps and seed
alone, so finished runs stay, and a stopped command goes on.

Prints the table, the mean over the seeds (lowest-highest), and writes it and
the curves of held-out mutual information to WORKDIR/table.md and curves.png.
"""

import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import curves, kept, report, worth
from infoword_tf import commands, errors
from infoword_tf.choices import flag

FOLDER = kept.ROOT / 'tasks' / 'flags'
RATE_STEPS, WARM_STEPS = 100, 10
COLUMNS = {
    'mi': 'held-out MI',
    'unigram_mi': 'frequencies alone',
    'ceiling': 'ceiling',
    'accuracy': 'accuracy',
    'chance': 'chance',
}
STEPS = '--steps='  # in an entry of a table: neither rate nor --minutes count
UNTRAINED = 'untrained'
# Pictures of an evaluation, by file: a column, words for people, an axis.
PICTURES = {
    'worth': {
        'worth.png': (
            worth.GLUE, 'mean of five tasks of GLUE, fine-tuned', curves.NATS,
        ),
    },
    'tuned': {
        'tokens.png': (
            worth.TWO_TEXTS, 'mean of four tasks of two texts, fine-tuned',
            curves.TOKENS,
        ),
        'nats.png': (
            worth.TWO_TEXTS, 'mean of four tasks of two texts, fine-tuned',
            curves.NATS,
        ),
        'states.png': (
            worth.PROBED, 'mean of MR and TREC, a linear classifier',
            curves.TOKENS,
        ),
    },
}  # fmt: skip
NOTHING = '--steps=1 --learning_rate=0 --log_every=1'


class RunTable(NamedTuple):
    """A table of the documents.

    Attributes:
        flagfiles: a run each; names in tasks/flags, or files, perhaps with
            further flags after a space. One with --steps has these.
        ask: an evaluation in `worth.ASKS`, or None.
        untrained: a flagfile whose initial weights are evaluated, too.
        data: files that the runs read, in the working folder.
        common: flags of all runs.
    """

    flagfiles: Sequence[str]
    ask: str | None = None
    untrained: str | None = None
    data: Sequence[str] = ()
    common: Sequence[str] = ()


TEXTS = {'data': ('texts',), 'common': ('--corpus=text:texts/*.txt',)}
# Millions of tokens, and the best of three rates, of a row.
TOKENS = {
    'mlm_tiny --learning_rate=2e-3': (10, 30, 100, 300),
    'same_text_mini --size=tiny': (10, 30, 100, 300),
    'bert_nce_tiny --learning_rate=2e-3': (30,),
    'infoword_tiny --learning_rate=1e-3': (30,),
    'bert_mini --size=tiny --dropout=0 --learning_rate=2e-3': (30,),
    'plm_tiny': (30,),
}
BATCH, LENGTH = 64, 64
OVER_TOKENS = (
    *TEXTS['common'], f'--batch_size={BATCH}', f'--seq_len={LENGTH}',
    '--vocab_size=16384', '--checkpoint_every=500',
)  # fmt: skip


def after(tokens: float) -> str:
    """Returns the flag of as many steps as millions of tokens take."""
    return f'{STEPS}{round(1e6 * tokens / BATCH / LENGTH)}'


TABLES = {
    'rows': RunTable(
        ('skip_gram_tiny', 'cbow_tiny', 'rnn_lm_tiny', 'elmo_tiny', 'gpt_tiny',
         'transformer_xl_tiny', 'mlm_tiny', 'bert_nce_tiny', 'bert_tiny',
         'plm_tiny', 'infoword_tiny', 'ict_tiny'),
        'words',
    ),
    'sentences': RunTable(
        ('simcse_mini', 'simcse_mini --simcse.pooling=mean',
         'simcse_mini --simcse.queue=4096 --simcse.momentum=0.999',
         'esimcse_mini', 'consert_mini', 'diffcse_mini', 'infocse_mini',
         'simcse_mini --objectives=ict --seq_len=64 --learning_rate=1e-4',
         'pairs_mini --pair_columns=sent0,sent1', 'pairs_mini'),
        'vectors',
        data=('runs/sentences_start', 'texts', 'pairs.csv'),
    ),
    'infocse': RunTable(
        ('infocse_mini', 'infocse_mini --infocse.lower=frozen',
         'infocse_mini --infocse.lower=trained',
         'infocse_mini --init=runs/sentences_first --infocse.fresh',
         'infocse_mini --objectives=simcse --simcse.head=projector'),
        'vectors',
        data=('runs/sentences_first', 'runs/sentences_start', 'texts'),
    ),
    'recipe': RunTable(
        ('mlm_mini', 'mlm_mini --encoder=transformer --learning_rate=1e-3',
         'mlm_mini --dropout=0.1', 'mlm_mini --learning_rate=1e-3',
         'mlm_mini --seq_len=128 --batch_size=32', 'bert_nce_mini',
         'bert_nce_mini --encoder=transformer --learning_rate=1e-3'),
        **TEXTS,
    ),
    'worth': RunTable(
        ('mlm_mini', 'bert_nce_mini', 'infoword_mini', 'same_text_mini'),
        'worth', untrained='mlm_mini', **TEXTS,
    ),
    'tokens': RunTable(
        tuple(
            f'{row} {after(tokens)}'
            for row, each in TOKENS.items() for tokens in each
        ),
        'tuned', untrained='mlm_tiny', data=TEXTS['data'], common=OVER_TOKENS,
    ),
    'directions': RunTable(
        ('gpt_mini', 'plm_mini', 'mlm_mini'),
        'short', untrained='mlm_mini', **TEXTS,
    ),
    'overlap': RunTable(
        ('mlm_mini', 'mlm_mini --weight_decay=0.3', 'overlap_mini',
         'overlap_mini --weight_decay=0.3', 'overlap_mini --mask_share=0.3'),
        'short', untrained='mlm_mini', **TEXTS,
    ),
    'vectors': RunTable(
        ('vectors_lookup --steps=800',
         'vectors_lookup --ict.words=0 --steps=800',
         'vectors_lookup --encoder=modern --steps=400'),
        'vectors', untrained='vectors_lookup', **TEXTS,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TablesChoices:
    """Choices of the command."""

    table: str | None = flag(None, 'Name of a table.', choices=tuple(TABLES))
    flagfiles: tuple[str, ...] = flag(
        (), 'Flagfiles instead of a table: names in tasks/flags, or files.')
    minutes: float = flag(1.0, 'Of training, for each run.', at_least=0.01)
    steps: int | None = flag(
        None, 'Of each run, whatever time they take; instead of --minutes.',
        at_least=1)
    seeds: int = flag(3, 'Runs of each flagfile: seeds 0, 1, ...', at_least=1)
    lanes: int = flag(
        1, 'Runs at a time, each with an equal share of the processors.',
        at_least=1)
    workdir: str | None = flag(None, 'Where runs, table and picture go.')


# ------------------------------------------------------------------------ runs


def name_of(flagfile: str) -> str:
    """Names a run: the flagfile without folder, and further flags."""
    first, *more = flagfile.split()
    return ' '.join([pathlib.Path(first).stem, *more])


def folder_of(name: str) -> str:
    """Names the folder of a run, without special characters."""
    return name.replace(' --', '+').replace(' ', '_').replace('/', '_')


def train(flagfile: str, workdir: pathlib.Path, *typed: str) -> None:
    """Runs the trainer, unless finished before.

    Raises:
        RuntimeError: training failed.
    """
    if (workdir / 'metrics.json').exists():
        return
    first, *more = flagfile.split()
    path = FOLDER / f'{first}.flags'
    kept.run(
        'infoword_tf.train', workdir.parent / f'{workdir.name}.log',
        f'--flagfile={path if path.exists() else first}',
        f'--workdir={workdir}', *more, *typed,
    )  # fmt: skip


def steps_of(
    flagfile: str, folder: pathlib.Path, minutes: float, *typed: str
) -> int:
    """Measures the rate of a flagfile; returns the steps that fit the time."""
    workdir = folder / f'{folder_of(name_of(flagfile))}_rate'
    count = RATE_STEPS + WARM_STEPS
    train(
        flagfile, workdir, *typed, f'--steps={count}',
        f'--log_every={WARM_STEPS}', f'--eval_every={count}',
        f'--checkpoint_every={count}',
    )  # fmt: skip
    rate = statistics.median(
        record['steps_per_second'] for record in kept.records_of(workdir)[1:]
    )
    return max(10, round(rate * 60 * minutes / 10) * 10)


def plan(
    choices: TablesChoices, table: RunTable, folder: pathlib.Path
) -> Iterator[tuple[str, int, str, str]]:
    """Lists all runs, seed by seed, after measuring rates if needed.

    Yields:
        Name, seed, flagfile and further flags of each run.
    """

    def rated(flagfile: str) -> str:
        if STEPS in flagfile and not choices.steps:
            return ''
        count = choices.steps or steps_of(
            flagfile, folder, choices.minutes, *table.common
        )
        print(f'{flagfile}: {count:,} steps\n', end='', flush=True)
        return f'{STEPS}{count}'

    steps = kept.side_by_side(rated, table.flagfiles, choices.lanes)
    for seed in range(choices.seeds):
        for flagfile, more in zip(table.flagfiles, steps, strict=True):
            yield name_of(flagfile), seed, flagfile, more
        if table.untrained:
            yield UNTRAINED, seed, table.untrained, NOTHING


def train_and_ask(
    table: RunTable, folder: pathlib.Path, run: tuple[str, int, str, str]
) -> pathlib.Path:
    """Trains and evaluates a run of `plan`; returns the workdir."""
    name, seed, flagfile, more = run
    workdir = folder / f'{folder_of(name)}_{seed}'
    train(flagfile, workdir, *table.common, *more.split(), f'--seed={seed}')
    if table.ask:
        worth.answers_of(workdir, table.ask)  # leaves them in the workdir
    print(f'{name}, seed {seed}: trained\n', end='', flush=True)
    return workdir


# ----------------------------------------------------------------------- table


def spread(values: Sequence[float | None]) -> str:
    """Writes mean (lowest-highest) over seeds; '-' without values.

    Below 0 it is (lowest to highest), since '-' is a sign there.
    """
    if None in values:
        return '-'
    digits = 3 if abs(values[0]) < 100 else 1
    low, mean, high = (
        f'{x:.{digits}f}'
        for x in (min(values), statistics.fmean(values), max(values))
    )
    to = ' to ' if low.startswith('-') else '-'
    return mean if low == high else f'{mean} ({low}{to}{high})'


def name_seeds(count: int) -> str:
    """Names the seeds of runs: 0, 1, ... below `count`."""
    return f'seeds 0 to {count - 1}' if count > 1 else 'seed 0'


def join(answers: Sequence[Mapping[str, Any]], title: str) -> list[float]:
    """Joins the answers of runs; an answer may be a list of values."""
    values = (answer[title] for answer in answers)
    return [
        number
        for value in values
        for number in (value if isinstance(value, list) else [value])
    ]


def minutes_of(records: Sequence[Mapping[str, Any]]) -> float:
    """Sums minutes of training, without evaluation."""
    elapsed, last = 0.0, 0
    for record in records:
        elapsed += (record['step'] - last) / record['steps_per_second'] / 60
        last = record['step']
    return elapsed


def lines_of(
    table: RunTable, workdirs: Mapping[str, Sequence[pathlib.Path]]
) -> list[str]:
    """Makes a table of Markdown."""
    answers = {
        name: [
            worth.answers_of(workdir, table.ask) if table.ask else {}
            for workdir in each
        ]
        for name, each in workdirs.items()
    }
    further = list(next(iter(answers.values()))[0])
    titles = ['flagfile', 'row', *COLUMNS.values(), *further]
    titles += ['steps', 'minutes', 'tokens/s']
    lines = []
    for name, each in workdirs.items():
        runs = [kept.records_of(workdir) for workdir in each]
        last = [records[-1] for records in runs]
        rate = statistics.fmean(r['tokens_per_second'] for r in last)
        minutes = statistics.fmean(map(minutes_of, runs))
        speed = [f'{last[0]["step"]:,}', f'{minutes:.1f}', f'{rate:,.0f}']
        rows = kept.read_json(each[0] / 'config.json')['rows']
        for number, row in enumerate(rows):
            cells = [f'`{name}`', f'`{row}`']
            cells += [
                spread([r.get(f'heldout/{row}/{key}') for r in last])
                for key in COLUMNS
            ]
            cells += [
                '' if number else spread(join(answers[name], title))
                for title in further
            ]
            lines.append([*cells, *speed])
    return report.table(titles, lines)


def draw(
    choices: TablesChoices,
    workdirs: Mapping[str, Sequence[pathlib.Path]],
    path: pathlib.Path,
) -> None:
    """Draws means over seeds into a PNG.

    The axis has updates, or minutes by the rates that were measured before all
    runs, so that other work during a run does not count.
    """
    drawn = {}
    for name, each in workdirs.items():
        seeds = zip(*map(kept.records_of, each), strict=True)
        records = [
            {key: statistics.fmean(one[key] for one in lines)
             for key in lines[0]}
            for lines in seeds
        ]  # fmt: skip
        whole = 1 if choices.steps else records[-1]['step'] / choices.minutes
        drawn[name] = [r['step'] / whole for r in records], records
    along = 'updates' if choices.steps else curves.MINUTES
    curves.draw_runs(path, drawn, along)


def draw_worth(
    workdirs: Mapping[str, Sequence[pathlib.Path]],
    ask: str,
    folder: pathlib.Path,
) -> None:
    """Draws PICTURES of an evaluation, a line of runs that differ in steps.

    Untrained weights are a level. Nats compare runs of one row alone.

    Args:
        workdirs: workdirs of all seeds, by name of a run.
        ask: name of the evaluation.
        folder: place of the pictures.
    """
    records = {
        name: [kept.records_of(workdir) for workdir in each]
        for name, each in workdirs.items()
    }
    answers = {
        name: [worth.answers_of(workdir, ask) for workdir in each]
        for name, each in workdirs.items()
    }
    for file, (column, words, along) in PICTURES.get(ask, {}).items():
        points: dict[str, list[tuple[int, float, float]]] = {}
        levels = {}
        for name, each in records.items():
            score = statistics.fmean(join(answers[name], column))
            last = each[0][-1]
            if name == UNTRAINED:
                levels[name] = score
                continue
            points.setdefault(_without_steps(name), []).append((
                last['step'],
                tokens_of(last) / 1e6 if along == curves.TOKENS
                else statistics.fmean(map(curves.share_of, each)),
                score,
            ))  # fmt: skip
        lines = {
            name: [point for _, *point in sorted(line)]
            for name, line in points.items()
        }
        curves.draw_worth(folder / file, lines, levels, words, along)


def tokens_of(record: Mapping[str, float]) -> float:
    """Counts the tokens of a run to a record."""
    each = record['tokens_per_second'] / record['steps_per_second']
    return record['step'] * each


def _without_steps(name: str) -> str:
    words = name.split()
    return ' '.join(word for word in words if not word.startswith(STEPS))


@commands.takes(TablesChoices)
def run(choices: TablesChoices, chosen: Mapping[str, Any]) -> None:
    """Measures rates, trains, evaluates, and writes the table.

    Raises:
        UsageError: no flagfiles, both a time and steps, missing data, or the
            folder is of another commit.
    """
    commands.require(vars(choices), workdir='a folder for the table')
    if bool(choices.table) == bool(choices.flagfiles):
        raise errors.UsageError(
            'no_table_named', 'give --table, or --flagfiles'
        )
    if 'minutes' in chosen and 'steps' in chosen:
        raise errors.UsageError(
            'minutes_and_steps', 'give --minutes or --steps, not both'
        )
    table = RunTable(choices.flagfiles)
    if choices.table:
        table = TABLES[choices.table]
    data = worth.ASKS[table.ask].data if table.ask else ()
    kept.check_data([*table.data, *data])
    folder = pathlib.Path(choices.workdir)
    kept.bind_commit(folder)
    runs = list(plan(choices, table, folder))
    workdirs: dict[str, list[pathlib.Path]] = {}
    train_one = functools.partial(train_and_ask, table, folder)
    each = kept.side_by_side(train_one, runs, choices.lanes)
    for (name, *_), workdir in zip(runs, each, strict=True):
        workdirs.setdefault(name, []).append(workdir)
    seeds = name_seeds(choices.seeds)
    precision = kept.read_json(each[0] / 'config.json')['precision']
    lines = lines_of(table, workdirs)
    kept.write_table(folder, lines, f'{seeds}, {precision}')
    draw(choices, workdirs, folder / 'curves.png')
    if table.ask:
        draw_worth(workdirs, table.ask, folder)


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with unfinished runs'
    )
