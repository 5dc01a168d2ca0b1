"""Makes the tables of benchmarks/tables/ and their plots, in one run.

    python -m benchmarks.bench --quick
    python -m benchmarks.bench --only=step,encode --workdir=runs/bench

Each table is a benchmark of this folder, run as a process; its contestants are
processes, too, which run in turns while the machine is watched (turns.py).
Finished results stay in WORKDIR, so a stopped run goes on; the table of a
benchmark that failed says so, and the next run tries it again. At the end the
tables, the README's sentence and the plot are written from WORKDIR; with
--only they are not, unless --render says so. --quick measures less often and
leaves some tables out; published figures do without.

A processor that multiplies no bfloat16 leaves out what is measured in it:
emulated, a step of a peer takes a minute. Its tables go to a page apart
(PAGES), so that no table mixes processors. What a reader can expect is a table
of docs/speed.md with a column for each kind of processor, which
TABLES/speed.json remembers.

Weights are MiniLM's, text is pydocs: nothing is downloaded.
"""

import collections
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import psutil

from benchmarks import kept, peers, report, turns
from infoword_tf import commands, files
from infoword_tf.choices import flag

PACKAGES = 'tensorflow', 'keras', 'tf-models-official', 'numpy'
PEERS = 'torch', 'transformers', 'sentence-transformers', 'onnxruntime'
# Of inputs made of pydocs; a passage has at least LONG words.
DOCUMENTS, EXAMPLES, WORDS, LONG = 8000, 4000, 60, 80
# Further markers: of each page of tables, the README and docs/speed.md.
MACHINE, SUMMARY, EXPECTED = 'machine', 'summary', 'expected'
# By whether the processor multiplies bfloat16.
PAGES = {True: 'speed', False: 'speed_float32'}
# Instructions by Linux's names, the fastest first.
INSTRUCTIONS = {
    'amx_bf16': 'AMX', 'avx512_bf16': 'AVX512 with BF16', 'avx512f': 'AVX512',
    'avx2': 'AVX2', 'asimd': 'NEON',
}  # fmt: skip


# ---------------------------------------------------------------------- tables


class Benchmark(NamedTuple):
    """A table of benchmarks/tables/.

    Attributes:
        title: name in the plot; None: left out, for it has too many lines.
        module: name of the benchmark's module in benchmarks/.
        typed: flags.
        quick: further flags with --quick; None: left out.
        full: further flags without --quick.
        native: whether the processor must multiply bfloat16.
    """

    title: str | None
    module: str
    typed: Sequence[str]
    quick: Sequence[str] | None
    full: Sequence[str]
    native: bool = False


# In flags {WORKDIR}, {WEIGHTS}, {PRECISIONS} and the names of INPUTS are
# replaced.
ENCODE = '--init={WEIGHTS}', '--peers={WEIGHTS}'
BENCHMARKS = {
    'step': Benchmark(
        'training step', 'step',
        ('--rows=bert_nce,mlm,infoword', '--precisions={PRECISIONS}'),
        ('--rounds=3', '--steps=2'), ('--rounds=5', '--steps=6'),
    ),
    # One precision each, since all contestants stay in memory.
    **{
        f'base_{length}{name}': Benchmark(
            f'base, {length} tokens', 'step',
            ('--size=base', '--rows=bert_nce,mlm,infoword',
             f'--seq_len={length}', f'--batch_size={1024 // length}',
             f'--precisions={precision}'),
            None, ('--rounds=3', '--steps=1'), bool(name),
        )
        for length in (128, 512)
        for name, precision in (
            ('', 'float32'), ('_bfloat16', 'mixed_bfloat16')
        )
    },
    'streams': Benchmark(
        'two streams', 'step',
        ('--rows=mlm,plm,transformer_xl', '--memory_length=128', '--no_peer',
         '--precisions=float32'),
        None, ('--rounds=3', '--steps=3'),
    ),
    'finetune': Benchmark(
        'fine-tuning', 'trainers',
        ('--of=labels', '--source={WEIGHTS}', '--data_dir={glue}',
         '--workdir={WORKDIR}/finetune'),
        ('--seeds=1', '--steps=16'), ('--seeds=3', '--steps=40'),
    ),
    'simcse': Benchmark(
        'SimCSE', 'trainers',
        ('--of=pairs', '--source={WEIGHTS}', '--pairs={pairs}', '--seq_len=64',
         '--learning_rate=2e-5', '--workdir={WORKDIR}/simcse'),
        ('--seeds=1', '--steps=14', '--batch_size=32'),
        ('--seeds=2', '--steps=20', '--batch_size=64'),
    ),
    'critics': Benchmark(
        'critics', 'trainers',
        ('--of=pairs', '--critic=cosine,late,lexical,cross', '--query_len=32',
         '--source={WEIGHTS}', '--pairs={passages}', '--learning_rate=2e-5',
         '--workdir={WORKDIR}/critics'),
        None, ('--seeds=2', '--steps=6', '--batch_size=16'),
    ),
    'encode': Benchmark(
        'encode', 'encode', (*ENCODE, '--ask=texts'),
        ('--texts=200', '--rounds=3'), ('--texts=600', '--rounds=5'),
    ),
    'encode_bfloat16': Benchmark(
        'encode beside bfloat16', 'encode',
        (*ENCODE, '--ask=texts', '--precision=bfloat16'),
        ('--texts=200', '--rounds=3'), ('--texts=600', '--rounds=5'), True,
    ),
    'encoders': Benchmark(
        None, 'encoders',
        ('--tokenizer={WEIGHTS}', '--workdir={WORKDIR}/encoders'),
        None, ('--rounds=5',),
    ),
    'encoders_labels': Benchmark(
        None, 'encoders',
        ('--of=labels', '--tokenizer={WEIGHTS}', '--data_dir={glue}',
         '--workdir={WORKDIR}/encoders'),
        None, ('--rounds=2',),
    ),
    'calls': Benchmark(
        'one call', 'encode', (*ENCODE, '--ask=calls'),
        None, ('--rounds=200',),
    ),
    'calls_bfloat16': Benchmark(
        'one call', 'encode', (*ENCODE, '--ask=calls', '--precision=bfloat16'),
        None, ('--rounds=200',), True,
    ),
    'clients': Benchmark(
        None, 'encode', (*ENCODE, '--ask=clients'),
        ('--rounds=1', '--seconds=0.3', '--clients=1,8'),
        ('--rounds=3', '--seconds=0.4'),
    ),
    'clients_bfloat16': Benchmark(
        None, 'encode', (*ENCODE, '--ask=clients', '--precision=bfloat16'),
        ('--rounds=1', '--seconds=0.3', '--clients=1,8,32'),
        ('--rounds=3', '--seconds=0.4', '--clients=1,8,32'), True,
    ),
    'pipeline': Benchmark(
        'input pipeline', 'pipeline', (),
        ('--megabytes=4', '--batches=100', '--steps=10', '--rounds=2'),
        ('--rounds=5',),
    ),
}  # fmt: skip


class Expected(NamedTuple):
    """A line of the table of all processors.

    Attributes:
        title: name of the work that is measured.
        table: key of BENCHMARKS.
        group, name: group and name of the contestant.
        peer: name of the contestant that it is compared with.
        peer_is: the peer, for people.
    """

    title: str
    table: str
    group: str
    name: str
    peer: str
    peer_is: str

    @property
    def line(self) -> str:
        """The first two cells."""
        return f'{self.title} | {self.peer_is}'


GARDEN, TORCH, ONNX = 'Model Garden', 'sentence-transformers', 'ONNX Runtime'
EXPECTATIONS = (
    *(
        Expected(
            f'training step of `{row}`, {precision.replace("mixed_", "")}',
            'step', precision, row, GARDEN, GARDEN,
        )
        for precision in ('float32', 'mixed_bfloat16')
        for row in ('bert_nce', 'mlm', 'infoword')
    ),
    Expected('fine-tuning', 'finetune', 'sst-2', 'ours', 'Trainer',
             "transformers' Trainer"),
    Expected('training on sentences', 'simcse', '', 'ours', TORCH, TORCH),
    *(
        Expected(f'training on pairs, `{critic}`', 'critics', critic, 'ours',
                 TORCH, TORCH)
        for critic in ('cosine', 'late', 'lexical', 'cross')
    ),
    Expected('`encode`, many texts', 'encode', '', 'encode', TORCH, TORCH),
    Expected('`encode`, many texts', 'encode', '', 'encode', 'onnxruntime',
             ONNX),
    Expected('a SavedModel, one text, one thread', 'clients', '1 client',
             'savedmodel 1, no batching', 'onnxruntime 1, no batching', ONNX),
    Expected('the same, whose weights stay', 'clients', '1 client',
             'savedmodel-frozen 1, no batching', 'onnxruntime 1, no batching',
             ONNX),
    Expected('a SavedModel, one text, two threads', 'clients', '1 client',
             'savedmodel 2, no batching', 'onnxruntime 2, no batching', ONNX),
    Expected('the same with `--branches=2`', 'clients', '1 client',
             'savedmodel in branches 1, no batching',
             'onnxruntime 2, no batching', ONNX),
    Expected('a SavedModel, 8 clients', 'clients', '8 clients',
             'savedmodel 1, batches by 2', 'onnxruntime 1, batches by 2', ONNX),
    # A peer computes in float32, which is the fastest that it has.
    Expected('`encode`, many texts, bfloat16', 'encode_bfloat16', '',
             'encode-bfloat16', TORCH, TORCH),
    *(
        Expected(
            f'a SavedModel in bfloat16, {asked}', 'clients_bfloat16', group,
            f'savedmodel {setting}', f'{peer} {setting}', peer_is,
        )
        for asked, group, setting in (
            ('one text, one thread', '1 client', '1, no batching'),
            ('one text, two threads', '1 client', '2, no batching'),
            ('8 clients', '8 clients', '1, batches by 2'),
        )
        for peer, peer_is in (
            ('onnxruntime', ONNX), ('onnxruntime-int8', f'{ONNX}, 8 bits'),
        )
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class BenchChoices:
    """Choices of the command."""

    quick: bool = flag(False, 'Measure less often, and fewer tables.')
    only: tuple[str, ...] = flag(
        (), 'Names of tables; none: all. Those of --workdir that are of '
        'another commit are measured anew.', choices=tuple(BENCHMARKS))
    workdir: str = flag('runs/bench', 'Where finished results stay.')
    weights: str | None = flag(
        None, 'A folder of sentence-transformers with the layout of MiniLM; '
        'none: that of make bench-peers.')
    render: bool = flag(False, 'Write the pages with --only too.')
    tables: str = flag(
        'benchmarks/tables', 'Where pages of tables are, and plots go.')
    speed: str = flag(
        'docs/speed.md', 'Where the table of all processors goes.')
    readme: str = flag('README.md', 'Where its sentence goes.')


# ---------------------------------------------------------------------- inputs


def documents() -> Iterator[Any]:
    """Opens the first documents of pydocs."""
    from infoword_tf.data import corpora

    return itertools.islice(corpora.open_corpus('pydocs').train(), DOCUMENTS)


def write_table(path: pathlib.Path, rows: Sequence[Sequence[str]]) -> None:
    """Writes a csv or tsv atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dialect = 'excel-tab' if path.suffix == '.tsv' else 'excel'
    with files.written(path) as partial, open(
        partial, 'w', newline='', encoding='utf-8'
    ) as file:
        csv.writer(file, dialect, lineterminator='\n').writerows(rows)


def make_glue(path: pathlib.Path) -> None:
    """Makes a task in GLUE's form: whether a docstring is a class's."""
    rows = []
    for document in documents():
        name = document.source.rpartition(':')[2].rpartition('.')[2]
        text = ' '.join(document.text.replace('"', '').split()[:WORDS])
        rows.append((text, str(int(name[:1].isupper()))))
    heads = ('sentence', 'label')
    train = rows[64 : 64 + EXAMPLES]
    write_table(path / 'SST-2' / 'train.tsv', [heads, *train])
    write_table(path / 'SST-2' / 'dev.tsv', [heads, *rows[:64]])


def make_pairs(path: pathlib.Path) -> None:
    """Makes a table for --pairs, of equal sentences."""
    texts = dict.fromkeys(s for d in documents() for s in d.sentences)
    rows = [(text, text) for text in itertools.islice(texts, EXAMPLES)]
    write_table(path, [('a', 'b'), *rows])


def make_passages(path: pathlib.Path) -> None:
    """Makes a table for --pairs: first sentences, and long rests."""
    rows = [
        (each.sentences[0], rest)
        for each in documents()
        if len((rest := ' '.join(each.sentences[1:])).split()) >= LONG
    ]
    write_table(path, [('a', 'b'), *rows])


# By name in flags: the path, the file that is written last, and the function
# that makes all files.
INPUTS: dict[str, tuple[str, str, Callable[[pathlib.Path], None]]] = {
    'glue': ('inputs/glue', 'SST-2/dev.tsv', make_glue),
    'pairs': ('inputs/pairs.csv', '', make_pairs),
    'passages': ('inputs/passages.csv', '', make_passages),
}


# ------------------------------------------------------------------------- run


def flags_of(
    benchmark: Benchmark,
    quick: bool,
    folder: pathlib.Path,
    weights: str,
    native: bool,
) -> list[str]:
    """Lists the flags of a benchmark."""
    precisions = 'float32,mixed_bfloat16' if native else 'float32'
    paths = {name: folder / path for name, (path, _, _) in INPUTS.items()}
    more = benchmark.quick if quick else benchmark.full
    return [
        each.format(
            WORKDIR=folder, WEIGHTS=weights, PRECISIONS=precisions, **paths
        )
        for each in (*benchmark.typed, *more)
    ]


def run_benchmark(
    name: str, benchmark: Benchmark, typed: Sequence[str], folder: pathlib.Path
) -> dict[str, Any]:
    """Runs a benchmark; writes the record, or the failure, to WORKDIR."""
    path, log = folder / f'{name}.json', folder / f'{name}.log'
    began = time.time()
    done: dict[str, Any] = {'given': list(typed)}
    try:
        for needed, (place, last, make) in INPUTS.items():
            missing = not (folder / place / last).exists()
            if missing and f'{{{needed}}}' in ' '.join(benchmark.typed):
                make(folder / place)
        kept.run(f'benchmarks.{benchmark.module}', log, *typed)
        done['record'] = json.loads(log.read_text().splitlines()[-1])
    except RuntimeError as error:
        done['failed'] = str(error)
    done['took'] = time.time() - began
    files.write_json(path, done)
    return done


def earlier(name: str, folder: pathlib.Path) -> dict[str, Any] | None:
    """Reads the result of an earlier run, if any."""
    path = folder / f'{name}.json'
    return kept.read_json(path) if path.exists() else None


def known_instructions() -> tuple[str, bool]:
    """Names the processor's instructions; and whether bfloat16 is native."""
    from infoword_tf.training import record

    known = record.instructions() or frozenset()
    names = [words for name, words in INSTRUCTIONS.items() if name in known]
    native = any(name in known for name in record.INSTRUCTIONS)
    return (names or ['unknown instructions'])[0], native


def machine_of(quick: bool) -> dict[str, Any]:
    """Describes the machine, packages and commit."""
    from infoword_tf.training import record

    instructions, native = known_instructions()
    sites = (kept.ROOT / '.venv-peers').glob('lib/python3*/site-packages')
    theirs = {
        each.metadata['Name']: each.version
        for each in metadata.distributions(path=[str(site) for site in sites])
    }
    return {
        'processor': record.processor_name().rpartition(',')[0],
        'cores': os.cpu_count(),
        'instructions': instructions,
        'native': native,
        'bytes': psutil.virtual_memory().total,
        'python': platform.python_version(),
        'packages': {name: metadata.version(name) for name in PACKAGES},
        'peers': {name: theirs[name] for name in PEERS if name in theirs},
        'load': os.getloadavg()[0],
        'before': turns.listen(),
        'commit': kept.commit(),
        'commits': {},
        'quick': quick,
    }


def commits_of(machine: Mapping[str, Any]) -> str:
    """Names the commit of a run, and of tables that were measured anew."""
    others = collections.defaultdict(list)
    for name, commit in machine['commits'].items():
        if commit != machine['commit']:
            others[commit].append(name)
    anew = (f'{", ".join(names)} {commit}' for commit, names in others.items())
    return '; '.join([machine['commit'], *anew])


@commands.takes(BenchChoices)
def run(choices: BenchChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Runs missing benchmarks, and writes the pages.

    Returns:
        Results by table.

    Raises:
        UsageError: no weights.
    """
    del chosen
    folder = pathlib.Path(choices.workdir).absolute()
    weights = str(choices.weights or peers.weights())
    instructions, native = known_instructions()
    flags = {
        name: flags_of(benchmark, choices.quick, folder, weights, native)
        for name, benchmark in BENCHMARKS.items()
        if not (choices.quick and benchmark.quick is None)
        and (native or not benchmark.native)
    }
    if not native:
        print(
            f'left out: all tables in bfloat16, which {instructions} has no '
            'products of',
            flush=True,
        )
    done = {name: earlier(name, folder) or {} for name in flags}
    known = earlier(MACHINE, folder)
    machine = known or machine_of(choices.quick)
    now, commits = kept.commit(), machine.setdefault('commits', {})
    missing = [
        name for name, old in done.items()
        if name in (choices.only or flags)
        and ('record' not in old or old['given'] != flags[name]
             or choices.only and commits.get(name, machine['commit']) != now)
    ]  # fmt: skip
    if missing and not (known and choices.only):
        kept.bind_commit(folder)
    for name in missing:
        done[name] = run_benchmark(name, BENCHMARKS[name], flags[name], folder)
        status = done[name].get('failed', 'done').splitlines()[-1]
        print(f'{name}: {done[name]["took"]:.0f} s, {status}', flush=True)
        commits[name] = now
        files.write_json(folder / f'{MACHINE}.json', machine)
    done = {name: each for name, each in done.items() if each}
    if choices.render or not choices.only:
        render(
            done,
            machine,
            pathlib.Path(choices.tables),
            pathlib.Path(choices.speed),
            pathlib.Path(choices.readme),
        )
    return done


# ------------------------------------------------------------------- documents


def machine_lines(
    machine: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Formats a table of the machine."""
    packages = {**machine['packages'], **machine['peers']}
    versions = ', '.join(f'{k} {v}' for k, v in packages.items())
    rows = [
        ('processor', f'{machine["processor"]}, {machine["cores"]} cores'),
        ('instructions', machine['instructions']),
        ('memory', f'{machine["bytes"] / report.GIGABYTE:.0f} GB'),
        ('threads', f'{machine["cores"]}, peers {kept.THREADS}'),
        ('versions', f'Python {machine["python"]}, {versions}'),
        ('load before', f'{machine["load"]:.2f}, '
         f'{report.others(machine["before"])} of the machine busy'),
        ('commit', commits_of(machine)),
        ('run', 'quick' if machine['quick'] else 'full'),
    ]  # fmt: skip
    if 'record' in results.get('step', {}):
        rates = results['step']['record']['products'].items()
        rows.append((
            'one large matrix product',
            ', '.join(f'{k} {v / 1e9:,.0f} GFLOP/s' for k, v in rates),
        ))
    took = sum(result['took'] for result in results.values())
    rows.append(('took', f'{took / 60:.0f} minutes'))
    return report.table(('', ''), rows)


def result_lines(result: Mapping[str, Any] | None) -> list[str]:
    """Formats the table of a benchmark, or the failure."""
    if result is None:
        return ['Not measured by this run.']
    if 'failed' in result:
        words = result['failed'].splitlines()[-1].replace('`', "'")
        return [f'**Failed**: `{words[:200]}`']
    return report.lines_of(result['record'])


def summary_lines(
    machine: Mapping[str, Any], record: Mapping[str, Any]
) -> list[str]:
    """Writes the README's sentence about training steps."""
    times_of: dict[str, list[str]] = collections.defaultdict(list)
    for row, basis in report.grouped(record):
        if row is not basis and row['name'] in ('bert_nce', 'mlm'):
            times = statistics.median(report.ratios(row, basis))
            times_of[row['name']].append(f'{times:.2f} in {row["group"]}')
    each = ', '.join(
        f'`{name}` {" and ".join(times)}' for name, times in times_of.items()
    )
    beside = ', beside other work' if report.busy(record) else ''
    return [
        "Training steps at mini, in tokens/s over those of Model Garden's "
        f'`BertPretrainerV2` ({machine["processor"]}, {machine["cores"]} '
        f'cores{beside}): {each}. [Speed](docs/speed.md) has more.'
    ]


def expected_cells(
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """Writes the cells of EXPECTATIONS, by line."""
    cells = {}
    for each in EXPECTATIONS:
        record = results.get(each.table, {}).get('record')
        rows = {
            row['name']: row
            for row in (record['rows'] if record else ())
            if row['group'] == each.group and 'failed' not in row
        }
        if each.name in rows and each.peer in rows:
            times = report.ratios(rows[each.name], rows[each.peer])
            rate = statistics.median(report.rates(rows[each.name]))
            cells[each.line] = (
                f'**{statistics.median(times):.2f}**, '
                f'{report.shown([rate])} {record["unit"]}/s'
            )
    return cells


def expected_lines(
    path: pathlib.Path,
    machine: Mapping[str, Any],
    results: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Replaces the column of a machine; formats the columns of all kinds.

    Args:
        path: file of the remembered columns: by kind, cells by line.
        machine, results: facts of the machine, and results, of this run.
    """
    columns = kept.read_json(path) if path.exists() else {}
    kind = f'{machine["instructions"]}, {machine["cores"]} cores'
    columns[kind] = {
        **expected_cells(results),
        'one large product, float32 | ': large_product(results),
        'commit | ': commits_of(machine) + ', quick' * machine['quick'],
    }
    files.write_json(path, columns)
    known = dict.fromkeys(each.line for each in EXPECTATIONS)
    others = dict.fromkeys(x for column in columns.values() for x in column)
    rows = [
        [*line.split(' | '), *(each.get(line, '') for each in columns.values())]
        for line in known | others
        if line in others
    ]
    return report.table(('', 'beside', *columns), rows)


def large_product(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes the best rate of a large product in float32, if measured."""
    rates = results.get('step', {}).get('record', {}).get('products', {})
    rate = rates.get('float32')
    return f'{rate / 1e9:,.0f} GFLOP/s' if rate else ''


def render(
    results: Mapping[str, Mapping[str, Any]],
    machine: Mapping[str, Any],
    tables: pathlib.Path,
    speed: pathlib.Path,
    readme: pathlib.Path,
) -> None:
    """Writes all tables, the plot and, of the first page, README's sentence.

    Args:
        results: result of each table, by name.
        machine: that they were measured on.
        tables: a folder with the pages.
        speed: the page with the table of all processors.
        readme: the page with the sentence.
    """
    native = machine['native']
    page = PAGES[native]
    lines = {
        name: result_lines(results.get(name))
        for name, benchmark in BENCHMARKS.items()
        if native or not benchmark.native
    }
    lines[MACHINE] = machine_lines(machine, results)
    write(tables / f'{page}.md', lines)
    columns = expected_lines(tables / f'{PAGES[True]}.json', machine, results)
    write(speed, {EXPECTED: columns})
    titled = collections.defaultdict(list)
    for name, result in results.items():
        if 'record' in result and BENCHMARKS[name].title:
            titled[BENCHMARKS[name].title].append(result['record'])
    records = {title: report.merged(x) for title, x in titled.items()}
    with files.written(tables / f'{page}.png') as partial:
        report.draw(partial, records)
    if native and 'record' in results.get('step', {}):
        record = results['step']['record']
        write(readme, {SUMMARY: summary_lines(machine, record)})


def write(path: pathlib.Path, lines: Mapping[str, Sequence[str]]) -> None:
    """Puts lines between the markers of a file."""
    text = report.fill(path.read_text(encoding='utf-8'), lines)
    with files.written(path) as partial:
        partial.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on')
