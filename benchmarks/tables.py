r"""The tables of docs/results.md: flagfiles that train for equal time.

    python -m benchmarks.tables --table=rows --workdir=runs/tables/rows
    python -m benchmarks.tables --flagfiles=mlm_tiny,plm_tiny --minutes=3 \
        --workdir=runs/mine

First the rate of each flagfile over 100 steps, one after the other, so that
all are of the same hour; then each trains with each seed for the steps that it
makes in that time, and is asked what the table asks. With --steps all train
for the same steps instead, as parts of one loss are compared; with --as_written
for those that the flagfiles say, which repeats a table. What a run
learned depends on its steps and seed alone: what is finished is kept, so a
table that was stopped goes on.

    python -m benchmarks.tables --table=students --teacher=runs/minilm \
        --peers=FOLDER --workdir=runs/students

makes embedding students of a teacher instead, and asks each for its quality and
its speed.

Prints the table, the mean over the seeds (lowest-highest), and writes it and
the curves of held-out mutual information to WORKDIR/table.md and curves.png;
of the table wikitext, of perplexity.
"""

import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

from benchmarks import curves, vectors, worth
from benchmarks.kept import (
    ROOT,
    asked,
    begin,
    check_there,
    commit,
    read_json,
    records_of,
    run,
    side_by_side,
)
from infoword_tf import commands, files

FOLDER = ROOT / 'tasks' / 'flags'
RATE_STEPS, WARM_STEPS = 100, 10
COLUMNS = {
    'mi': 'held-out MI',
    'unigram_mi': 'frequencies alone',
    'ceiling': 'ceiling',
    'accuracy': 'accuracy',
    'chance': 'chance',
}
GLUE = {'sst-2': 'accuracy', 'cola': 'matthews', 'mrpc': 'f1'}
STUDENTS = 'students'  # of one teacher: no flagfiles of equal time
MEMORIES = 0, 64, 128, 256  # tokens, with which a text is read

TABLE = flags.DEFINE_string(
    'table', None, 'Which table: rows, search, wikitext, memory, labels, '
    'sentences, infocse, languages, recipe, worth, parts, overlap or students.')
FLAGFILES = flags.DEFINE_list(
    'flagfiles', None, 'Others instead: names in tasks/flags, or files.')
MINUTES = flags.DEFINE_float(
    'minutes', 1.0, 'Of training, for each run.', lower_bound=0.01)
STEPS = flags.DEFINE_integer(
    'steps', None, 'Of each run, whatever time they take; instead of '
    '--minutes.', lower_bound=1)
AS_WRITTEN = flags.DEFINE_boolean(
    'as_written', False, 'Whether each trains for the steps of its flagfile; '
    'instead of --minutes.')
SEEDS = flags.DEFINE_integer(
    'seeds', 3, 'Runs of each flagfile: seeds 0, 1, ...', lower_bound=1)
TEACHER = flags.DEFINE_string(
    'teacher', None, 'Of --table=students: a workdir whose texts become '
    'vectors.')
PEERS = flags.DEFINE_string(
    'peers', None, 'Likewise: a sentence-transformers folder with the weights '
    'of --teacher, of which model2vec makes a table too.')
LANES = flags.DEFINE_integer(
    'lanes', 1, 'Runs at a time, each with an equal share of the processors.',
    lower_bound=1)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where runs, table and picture go.')


class ResultsTable(NamedTuple):
    """A table of docs/results.md.

    Attributes:
        flagfiles: a run each; names in tasks/flags, some with further flags
            after a space.
        ask: workdir -> further figures by the heads of their columns.
        untrained: a flagfile whose first weights are asked too.
        made: by name, commands whose workdirs are asked too.
        data: what that reads, beside whoever runs it.
        curves: what is drawn over minutes: bounds, perplexities, or how many
            translations are found.
        common: flags of all its runs.
    """

    flagfiles: Sequence[str]
    ask: Callable[[pathlib.Path], dict[str, float]] | None = None
    untrained: str | None = None
    made: Mapping[str, Sequence[str]] = {}
    data: Sequence[str] = ()
    curves: str = 'bounds'
    common: Sequence[str] = ()


def retrieval(workdir: pathlib.Path) -> dict[str, float]:
    """How well first sentences find the rest of their docstrings."""
    found = asked(workdir / 'retrieval', 'retrieval', '--corpus=pydocs')
    return {'MRR@10': found['mrr@10'], 'recall@10': found['recall@10']}


def read(workdir: pathlib.Path, name: str, *given: str) -> float:
    """Perplexity per word of WikiText-2's test text."""
    found = asked(
        workdir / name,
        'lm',
        '--corpus=lines:wikitext-2/train.txt',
        '--heldout=wikitext-2/test.txt',
        '--batch_size=16',
        *given,
    )
    return found['perplexity_per_word']


def memories(workdir: pathlib.Path) -> dict[str, float]:
    """Perplexity per word of the test text, read with other memories."""
    return {
        f'read with {length}': read(
            workdir, f'lm_{length}', f'--memory_length={length}'
        )
        for length in MEMORIES
    }


def perplexity(workdir: pathlib.Path) -> dict[str, float]:
    """Perplexity per word of the test text, read as in training."""
    return {'perplexity of the test text': read(workdir, 'lm')}


def labels(workdir: pathlib.Path) -> dict[str, float]:
    """What the encoder is worth where labels are asked: score, and nats."""
    found = {}
    for task, metric in GLUE.items():
        one = asked(
            workdir / task,
            'glue',
            f'--task={task}',
            '--data_dir=glue',
            '--examples=6000',
            '--learning_rate=3e-4',
            '--notest',
        )
        found[f'{task} {metric}'] = one[metric]
        found[f'{task} MI'] = one['mi']
    one = asked(
        workdir / 'squad',
        'squad',
        '--train=squad/train-v1.1.json',
        '--dev=squad/dev-v1.1.json',
        '--examples=2000',
        '--dev_examples=1000',
        '--seq_len=256',
        '--learning_rate=3e-4',
    )
    return found | {'squad f1': one['f1'], 'squad MI': one['mi']}


def uses(workdir: pathlib.Path) -> dict[str, float]:
    """What its vectors of words and of sentences are worth, percent."""
    words = asked(workdir / 'words', 'words', '--data_dir=words')
    pairs = asked(workdir / 'sts', 'sts', '--data=sts/sts-dev.csv')
    return {
        'WS-353': words['tests']['EN-WS-353-ALL']['spearman'],
        'STS-B dev': pairs['spearman'],
    }


def languages(workdir: pathlib.Path) -> dict[str, float]:
    """Tatoeba's accuracy, percent, by own vectors, and XNLI's accuracy.

    XNLI after an epoch of 6,000 English examples.
    """
    found = asked(workdir / 'tatoeba', 'tatoeba', '--data_dir=tatoeba')
    shown = {'Tatoeba': found['accuracy']['mean']} | {
        f'Tatoeba {name}': one['accuracy']['mean']
        for name, one in found['languages'].items()
    }
    found = asked(
        workdir / 'xnli',
        'classify',
        '--train=mnli/train.tsv',
        '--dev=mnli/dev.tsv',
        '--text=premise',
        '--pair=hypothesis',
        '--label=label',
        '--test=xnli/dev-*.tsv',
        '--examples=6000',
        '--epochs=1',
        '--learning_rate=3e-4',
    )
    return shown | {
        f'XNLI {name}': one['accuracy']
        for name, one in found['test_by'].items()
    }


def screened(workdir: pathlib.Path) -> dict[str, Any]:
    """What it is worth, by three tasks and its vectors."""
    return worth.of(workdir, short=True)


TEXTS = ('--corpus=text:texts/*.txt',)
TABLES = {
    'rows': ResultsTable(
        (
            'skip_gram_tiny',
            'cbow_tiny',
            'rnn_lm_tiny',
            'elmo_tiny',
            'gpt_tiny',
            'transformer_xl_tiny',
            'mlm_tiny',
            'bert_nce_tiny',
            'bert_tiny',
            'plm_tiny',
            'infoword_tiny',
            'ict_tiny',
        ),
        uses,
        data=('words', 'sts/sts-dev.csv'),
    ),
    'search': ResultsTable(('ict_tiny', 'ict_lookup', 'quickstart'), retrieval),
    'wikitext': ResultsTable(
        ('wikitext_rnn_lm', 'wikitext_gpt', 'wikitext_64'),
        perplexity,
        data=('wikitext-2',),
        curves='perplexities',
    ),
    'sentences': ResultsTable(
        (
            'simcse_mini',
            'simcse_mini --simcse.pooling=mean',
            'simcse_mini --simcse.queue=4096 --simcse.momentum=0.999',
            'esimcse_mini',
            'consert_mini',
            'diffcse_mini',
            'infocse_mini',
            'simcse_mini --objectives=ict --seq_len=64 --learning_rate=1e-4',
            'pairs_mini --pair_columns=sent0,sent1',
            'pairs_mini',
        ),
        vectors.judged,
        made=vectors.MADE,
        data=vectors.DATA,
    ),
    'infocse': ResultsTable(
        (
            'infocse_mini',
            'infocse_mini --init=runs/sentences_first --infocse.fresh',
            'infocse_mini --infocse.lower=trained',
            'infocse_mini --infocse.lower=detached',
            'infocse_mini --objectives=simcse --simcse.head=projector',
            'infocse_mini --objectives=infocse',
            *(
                f'infocse_mini --infocse.mask_share={share}'
                for share in (0.1, 0.2, 0.3, 0.5)
            ),
        ),
        vectors.judged,
        data=vectors.DATA,
    ),
    'languages': ResultsTable(
        ('mmlm_tiny', 'tlm_tiny', 'infoxlm_tiny'),
        languages,
        data=('texts', 'pairs', 'tatoeba', 'mnli', 'xnli'),
        curves='translations',
    ),
    'worth': ResultsTable(
        (
            'mlm_mini',
            'bert_nce_mini',
            'infoword_mini',
            'parts_mini',
            'same_text_mini',
        ),
        worth.of,
        untrained='mlm_mini',
        data=('texts', *worth.DATA),
        common=TEXTS,
    ),
    'recipe': ResultsTable(
        (
            'mlm_mini',
            'mlm_mini --encoder=transformer --learning_rate=1e-3',
            'mlm_mini --dropout=0.1',
            'mlm_mini --learning_rate=1e-3',
            'mlm_mini --seq_len=128 --batch_size=32',
            'bert_nce_mini',
            'bert_nce_mini --encoder=transformer --learning_rate=1e-3',
        ),
        data=('texts',),
        common=TEXTS,
    ),
    'parts': ResultsTable(
        (
            'mlm_mini --size=tiny',
            'infoword_mini --size=tiny',
            'parts_mini --size=tiny',
            'parts_mini --size=tiny --mask_share=0.15',
            'parts_mini --size=tiny --mask_share=0.15 --parts.beside=next '
            '--part_words.beside=next',
        ),
        screened,
        data=('texts', *worth.DATA),
        common=TEXTS,
    ),
    'overlap': ResultsTable(
        (
            'mlm_mini',
            'mlm_mini --weight_decay=0.3',
            'overlap_mini',
            'overlap_mini --weight_decay=0.3',
            'overlap_mini --mask_share=0.3',
        ),
        screened,
        untrained='mlm_mini',
        data=('texts', *worth.DATA),
        common=TEXTS,
    ),
    'memory': ResultsTable(
        ('wikitext_0', 'wikitext_64', 'wikitext_128'),
        memories,
        data=('wikitext-2',),
    ),
    'labels': ResultsTable(
        ('mlm_tiny', 'bert_nce_tiny', 'infoword_tiny', 'plm_tiny'),
        labels,
        untrained='mlm_tiny',
        data=('glue', 'squad'),
    ),
}


def name_of(flagfile: str) -> str:
    """What a run is called: its flagfile, without folder and ending; after
    that its further flags.
    """
    first, *more = flagfile.split()
    return ' '.join([pathlib.Path(first).stem, *more])


def folder_of(name: str) -> str:
    """The same without what is no part of a folder's name."""
    return name.replace(' --', '+').replace(' ', '_').replace('/', '_')


def train(flagfile: str, workdir: pathlib.Path, *given: str) -> None:
    """Runs the trainer, unless it has finished there before.

    Raises:
        RuntimeError: it failed.
    """
    if (workdir / 'metrics.json').exists():
        return
    first, *more = flagfile.split()
    path = FOLDER / f'{first}.flags'
    run(
        'infoword_tf.train',
        workdir.parent / f'{workdir.name}.log',
        f'--flagfile={path if path.exists() else first}',
        f'--workdir={workdir}',
        *more,
        *given,
    )


def steps_of(
    flagfile: str, folder: pathlib.Path, minutes: float, *given: str
) -> int:
    """How many steps fit the time, by a run of a few; measured once."""
    workdir = folder / f'{folder_of(name_of(flagfile))}_rate'
    count = RATE_STEPS + WARM_STEPS
    train(
        flagfile,
        workdir,
        *given,
        f'--steps={count}',
        f'--log_every={WARM_STEPS}',
        f'--eval_every={count}',
        f'--checkpoint_every={count}',
    )
    rate = statistics.median(
        record['steps_per_second'] for record in records_of(workdir)[1:]
    )
    return max(10, round(rate * 60 * minutes / 10) * 10)


def minutes_of(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Minutes of training until each record; evaluation is left out."""
    elapsed, last, found = 0.0, 0, []
    for record in records:
        elapsed += (record['step'] - last) / record['steps_per_second'] / 60
        last = record['step']
        found.append(elapsed)
    return found


def along(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Where each record is in a picture: minutes by the rate that was measured
    for all, whatever else the machine did later; or updates.
    """
    if STEPS.value or AS_WRITTEN.value:
        return [float(record['step']) for record in records]
    whole = records[-1]['step']
    return [record['step'] / whole * MINUTES.value for record in records]


def averaged(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict]:
    """The mean of the records of several seeds, line by line."""
    return [
        {key: statistics.fmean(one[key] for one in lines) for key in lines[0]}
        for lines in zip(*runs, strict=True)
    ]


def spread(values: Sequence[float | None]) -> str:
    """The mean (lowest-highest) of what the seeds gave; '-' for nothing."""
    if None in values:
        return '-'
    digits = 3 if abs(values[0]) < 100 else 1
    shown = [f'{value:.{digits}f}' for value in sorted(values)]
    mean = f'{statistics.fmean(values):.{digits}f}'
    same = shown[0] == shown[-1]
    return mean if same else f'{mean} ({shown[0]}-{shown[-1]})'


def _all(asked: Sequence[Mapping[str, Any]], title: str) -> list[float]:
    """What all runs were found worth; of some each gives several values."""
    values = (one[title] for one in asked)
    return [
        number
        for value in values
        for number in (value if isinstance(value, list) else [value])
    ]


def made_of(
    workdirs: Mapping[str, Sequence[pathlib.Path]],
    ask: Any,
    made: Mapping[str, pathlib.Path],
) -> str:
    """Markdown: what each flagfile reached; by flagfile, its workdirs.

    First what was made without training, by name.
    """
    asked = {
        name: [ask(workdir) if ask else {} for workdir in some]
        for name, some in workdirs.items()
    }
    further = list(next(iter(asked.values()))[0])
    titles = ['flagfile', 'row', *COLUMNS.values(), *further]
    titles += ['steps', 'minutes', 'tokens/s']
    lines = [f'| {" | ".join(titles)} |', '|' + '---|' * len(titles)]
    for name, workdir in made.items():
        told = ask(workdir)
        cells = [name, *[''] * (1 + len(COLUMNS))]
        cells += [spread([told[title]]) for title in further] + [''] * 3
        lines.append(f'| {" | ".join(cells)} |')
    for name, some in workdirs.items():
        runs = [records_of(workdir) for workdir in some]
        last = [records[-1] for records in runs]
        minutes = statistics.fmean(minutes_of(records)[-1] for records in runs)
        rate = statistics.fmean(r['tokens_per_second'] for r in last)
        speed = [f'{last[0]["step"]:,}', f'{minutes:.1f}', f'{rate:,.0f}']
        rows = read_json(some[0] / 'config.json')['rows']
        for number, row in enumerate(rows):
            keys = (f'heldout/{row}/{key}' for key in COLUMNS)
            cells = [spread([r.get(key) for r in last]) for key in keys]
            cells += [
                '' if number else spread(_all(asked[name], title))
                for title in further
            ]
            cells = [f'`{name}`', f'`{row}`', *cells, *speed]
            lines.append(f'| {" | ".join(cells)} |')
    return '\n'.join(lines)


def students(folder: pathlib.Path) -> None:
    """The table of embedding students, and its picture.

    Raises:
        UsageError: no teacher is named.
    """
    from benchmarks import students as some

    commands.require(
        flags.FLAGS.flag_values_dict(), teacher='a workdir to learn from'
    )
    check_there([some.STS, *(data for data, _ in some.BEIR.values())])
    begin(folder)
    found = some.measured(folder, TEACHER.value, PEERS.value, run, FOLDER)
    text = f'{some.table(found)}\n\nCommit {commit()}.\n'
    with files.written(folder / 'table.md') as partial:
        partial.write_text(text)
    some.draw(folder / 'students.png', found)
    print(text)


def main() -> None:
    """Measures rates, trains, asks, compares.

    Raises:
        UsageError: there is no such table, nothing to compare, both a time and
            steps, or the folder is of another commit.
    """
    commands.require(
        flags.FLAGS.flag_values_dict(), workdir='a folder for the table'
    )
    if bool(TABLE.value) == bool(FLAGFILES.value):
        raise commands.UsageError('give --table, or --flagfiles')
    chosen = [
        f'--{name}'
        for name in ('minutes', 'steps', 'as_written')
        if flags.FLAGS[name].present
    ]
    if len(chosen) > 1:
        raise commands.UsageError(f'give {" or ".join(chosen)}, not both')
    if TABLE.value == STUDENTS:
        students(pathlib.Path(WORKDIR.value))
        return
    if TABLE.value and TABLE.value not in TABLES:
        known = ', '.join([*TABLES, STUDENTS])
        raise commands.UsageError(
            f'--table={TABLE.value}: known are {known}'
        )
    table = (
        TABLES[TABLE.value] if TABLE.value else ResultsTable(FLAGFILES.value)
    )
    check_there(table.data)
    folder = pathlib.Path(WORKDIR.value)
    begin(folder)
    made = {name: folder / folder_of(name) for name in table.made}
    for name, (module, *given) in table.made.items():
        if not (made[name] / 'config.json').exists():
            log = folder / f'{made[name].name}.log'
            run(module, log, *given, f'--workdir={made[name]}')
    common = table.common

    def rated(flagfile: str) -> list[str]:
        """The flag of its steps; none where those as written count."""
        if AS_WRITTEN.value:
            return []
        count = STEPS.value or steps_of(
            flagfile, folder, MINUTES.value, *common
        )
        print(f'{flagfile}: {count:,} steps\n', end='', flush=True)
        return [f'--steps={count}']

    steps = side_by_side(rated, table.flagfiles, LANES.value)
    runs = []
    for seed in range(SEEDS.value):
        for flagfile, given in zip(table.flagfiles, steps, strict=True):
            runs.append((name_of(flagfile), seed, flagfile, given))
        if table.untrained:
            nothing = ['--steps=1', '--learning_rate=0', '--log_every=1']
            runs.append(('untrained', seed, table.untrained, nothing))

    def trained(one: tuple[str, int, str, list[str]]) -> pathlib.Path:
        """Trains one, and asks what the table asks."""
        name, seed, flagfile, given = one
        workdir = folder / f'{folder_of(name)}_{seed}'
        train(flagfile, workdir, *common, *given, f'--seed={seed}')
        if table.ask and LANES.value > 1:
            table.ask(workdir)  # side by side too; its answers are kept
        print(f'{name}, seed {seed}: trained\n', end='', flush=True)
        return workdir

    workdirs: dict[str, list[pathlib.Path]] = {}
    found = side_by_side(trained, runs, LANES.value)
    for (name, *_), workdir in zip(runs, found, strict=True):
        workdirs.setdefault(name, []).append(workdir)
    some = next(iter(workdirs.values()))
    last = SEEDS.value - 1
    seeds = f'seeds 0 to {last}' if last else 'seed 0'
    text = (
        f'{made_of(workdirs, table.ask, made)}\n\n'
        f'Commit {commit()}, {seeds}, '
        f'{read_json(some[0] / "config.json")["precision"]}.\n'
    )
    with files.written(folder / 'table.md') as partial:
        partial.write_text(text)
    drawn = {}
    for name, some in workdirs.items():
        records = averaged([records_of(workdir) for workdir in some])
        drawn[name] = along(records), records
    draw = {
        'bounds': curves.draw_runs,
        'perplexities': curves.draw_perplexities,
        'translations': curves.draw_translations,
    }[table.curves]
    counted = STEPS.value or AS_WRITTEN.value
    unit = 'updates' if counted else curves.MINUTES
    draw(folder / 'curves.png', drawn, unit)
    print(text)


if __name__ == '__main__':
    commands.start(
        main, stopped='the same command goes on with what is not finished'
    )
