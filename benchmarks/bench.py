"""Makes the tables of docs/speed.md, and the plot, in one run.

    python -m benchmarks.bench --quick
    python -m benchmarks.bench --only=step,encode --workdir=runs/bench

Each part is a benchmark of this folder, run as a process; its contestants are
processes of their own, in turns, and the machine is watched (turns.py). What is
finished stays in WORKDIR, so a run that was stopped goes on; a part that failed
is said in its place, and the next run tries it again. At the end the document,
the README's sentence and the plot are written from what WORKDIR has; with
--only they are not, unless --render says so. --quick measures less often and
leaves some parts out: for figures that are to be published do without.

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
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import psutil

from benchmarks import kept, peers, report, turns
from infoword_tf import commands, files
from infoword_tf.choices import flag

PACKAGES = ('tensorflow', 'keras', 'tf-models-official', 'numpy')
PEERS = (
    'torch', 'transformers', 'sentence-transformers', 'onnxruntime',
    'tokenizers', 'model2vec', 'gensim',
)  # fmt: skip
DOCUMENTS, EXAMPLES, WORDS = 8000, 4000, 60  # of what is made of pydocs
MACHINE, SUMMARY = 'machine', 'summary'  # made here


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    quick: bool = flag(False, 'Measure less often, and less.')
    only: tuple = flag((), 'Names of parts; none: all.')
    workdir: str = flag('runs/bench', 'What is finished stays there.')
    weights: str | None = flag(
        None, 'A folder of sentence-transformers with the layout of MiniLM; '
        'none: that of make bench-peers.')
    render: bool = flag(False, 'Write the documents with --only too.')
    docs: str = flag('docs', 'Where speed.md is, and speed.png goes.')
    readme: str = flag('README.md', 'Where its sentence goes.')


# ----------------------------------------------------------------------- parts


class Part(NamedTuple):
    """A table.

    Attributes:
        title: in the plot.
        module: of the benchmark.
        given: flags.
        quick: flags instead of some of them; None: it is left out.
        full: flags in addition, of a run that is not quick.
        needs: names of what is made before (INPUTS).
    """

    title: str
    module: str
    given: Sequence[str]
    quick: Sequence[str] | None
    full: Sequence[str]
    needs: Sequence[str] = ()


# In flags {WORKDIR}, {WEIGHTS} and the names of INPUTS are replaced.
PARTS = {
    'step': Part(
        'training step', 'step', ('--rows=bert_nce,mlm,infoword',),
        ('--rounds=3', '--steps=2'), ('--rounds=5', '--steps=6'),
    ),
    # A precision each: all contestants stay in memory.
    **{
        f'base_{length}{name}': Part(
            f'base, {length} tokens', 'step',
            ('--size=base', '--rows=bert_nce,mlm,infoword',
             f'--seq_len={length}', f'--batch_size={1024 // length}',
             f'--precisions={precision}'),
            None, ('--rounds=3', '--steps=1'),
        )
        for length in (128, 512)
        for name, precision in (
            ('', 'float32'), ('_bfloat16', 'mixed_bfloat16')
        )
    },
    'streams': Part(
        'two streams', 'step',
        ('--rows=mlm,plm,transformer_xl', '--memory_length=128', '--no_peer',
         '--precisions=float32'),
        None, ('--rounds=3', '--steps=3'),
    ),
    'finetune': Part(
        'fine-tuning', 'finetune',
        ('--init={minilm}', '--peers={WEIGHTS}', '--data_dir={glue}',
         '--tasks=sst-2', '--workdir={WORKDIR}/finetune', '--seq_len=128'),
        ('--seeds=1', '--steps=24'), ('--seeds=3', '--steps=40'),
        ('minilm', 'glue'),
    ),
    'simcse': Part(
        'SimCSE', 'sentences',
        ('--source={WEIGHTS}', '--pairs={pairs}', '--twice',
         '--workdir={WORKDIR}/simcse'),
        ('--turns=1', '--steps=14', '--batch_size=32'),
        ('--turns=2', '--steps=20', '--batch_size=64'),
        ('pairs',),
    ),
    'encode': Part(
        'encode', 'encode',
        ('--init={minilm}', '--peers={WEIGHTS}'),
        ('--texts=200', '--rounds=3'), ('--texts=600', '--rounds=5'),
        ('minilm',),
    ),
    'calls': Part(
        'one call', 'serving', ('--init={minilm}', '--peers={WEIGHTS}'),
        ('--rounds=50',), ('--rounds=200',), ('minilm',),
    ),
    'calls_bfloat16': Part(
        'a call', 'serving',
        ('--init={minilm}', '--peers={WEIGHTS}', '--precision=bfloat16'),
        None, ('--rounds=200',), ('minilm',),
    ),
    'clients': Part(
        'one text', 'onetext', ('--init={minilm}', '--peers={WEIGHTS}'),
        ('--turns=1', '--seconds=0.3', '--clients=1,8'),
        ('--turns=3', '--seconds=0.4'), ('minilm',),
    ),
    'start': Part(
        'first step', 'start', ('--workdir={WORKDIR}/start',),
        ('--rounds=1', '--larger='), ('--rounds=3',),
    ),
    'tables': Part(
        'table lookup', 'encode', ('--init={lookup}', '--peers={WEIGHTS}'),
        ('--texts=2000', '--rounds=5'), ('--texts=4000', '--rounds=9'),
        ('lookup',),
    ),
    'words': Part(
        'word vectors', 'words',
        ('--text={text}', '--workdir={WORKDIR}/words'),
        ('--turns=1', '--steps=100', '--rows=skip_gram'), ('--turns=2',),
        ('text',),
    ),
    'tokenization': Part(
        'tokenization', 'encode',
        ('--init={minilm}', '--peers={WEIGHTS}', '--tokenize',
         '--texts=4000'),
        ('--rounds=5',), ('--rounds=15',), ('minilm',),
    ),
    'pipeline': Part(
        'input pipeline', 'pipeline', (),
        ('--megabytes=4', '--batches=100', '--steps=10', '--rounds=2'),
        ('--rounds=5',),
    ),
    'queues': Part(
        'a queue', 'queues', (), ('--rounds=3', '--steps=2'), ('--rounds=7',),
    ),
    'length': Part(
        'length of texts', 'growth', ('--of=length',),
        ('--points=64,256,1024', '--rows=bert_nce', '--rounds=3',
         '--steps=2'),
        (),
    ),
    'batch': Part(
        'batch', 'growth', ('--of=batch',),
        ('--points=8,32,128', '--rounds=3', '--steps=2'), (),
    ),
    'vocabulary': Part(
        'vocabulary', 'growth', ('--of=vocabulary',),
        ('--points=8000,30000,120000', '--rows=mlm', '--rounds=3',
         '--steps=2'),
        (),
    ),
    'candidates': Part(
        'candidates', 'growth', ('--of=candidates',),
        ('--points=1000,10000,100000', '--rounds=3', '--steps=2'), (),
    ),
    'replicas': Part(
        'replicas', 'replicas', ('--workdir={WORKDIR}/replicas',),
        ('--rounds=1', '--steps=12', '--size=tiny'),
        ('--rounds=2', '--steps=24'),
    ),
}  # fmt: skip


# ---------------------------------------------------------------------- inputs


def documents(most: int | None = DOCUMENTS) -> Iterator[Any]:
    """Some of pydocs, or all."""
    from infoword_tf.data import corpora

    return itertools.islice(corpora.open_corpus('pydocs').train(), most)


def make_minilm(path: pathlib.Path, weights: str) -> None:
    """The weights as a workdir."""
    kept.run(
        'infoword_tf.convert', path.with_suffix('.log'),
        f'--source={weights}', f'--workdir={path}',
    )  # fmt: skip


def make_lookup(path: pathlib.Path, weights: str) -> None:
    """A table of the weights, as it is before any training."""
    minilm = path.with_name('minilm')
    if not minilm.exists():
        make_minilm(minilm, weights)
    kept.run(
        'tasks.distill', path.with_suffix('.log'), '--task=embed',
        f'--teacher={minilm}', '--student=lookup', '--corpus=pydocs',
        '--examples=2000', '--steps=1', '--learning_rate=0', '--log_every=1',
        '--width=256', f'--workdir={path}',
    )  # fmt: skip


def make_glue(path: pathlib.Path, weights: str) -> None:
    """A table in GLUE's form: whether a docstring is a class's."""
    del weights
    path = path / 'SST-2'
    path.mkdir(parents=True)
    rows = ['sentence\tlabel']
    for document in documents():
        name = document.source.rpartition(':')[2].rpartition('.')[2]
        text = ' '.join(document.text.split()[:WORDS])
        rows.append(f'{text}\t{int(name[:1].isupper())}')
    (path / 'dev.tsv').write_text('\n'.join([rows[0], *rows[1:65]]) + '\n')
    train = [rows[0], *rows[65 : 65 + EXAMPLES]]
    (path / 'train.tsv').write_text('\n'.join(train) + '\n')


def make_pairs(path: pathlib.Path, weights: str) -> None:
    """Sentences with themselves, as --pairs takes them."""
    del weights
    texts = dict.fromkeys(s for d in documents() for s in d.sentences)
    with files.written(path) as partial, open(
        partial, 'w', newline='', encoding='utf-8'
    ) as file:
        rows = [[text, text] for text in list(texts)[:EXAMPLES]]
        csv.writer(file).writerows([['a', 'b'], *rows])


def make_text(path: pathlib.Path, weights: str) -> None:
    """Documents, a line each."""
    del weights
    with files.written(path) as partial:
        partial.write_text('\n\n'.join(d.text for d in documents(None)) + '\n')


INPUTS: dict[str, Callable[[pathlib.Path, str], None]] = {
    'minilm': make_minilm,
    'lookup': make_lookup,
    'glue': make_glue,
    'pairs': make_pairs,
    'text': make_text,
}


def place_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where an input stands."""
    suffix = {'pairs': '.csv', 'text': '.txt'}.get(name, '')
    return (folder / 'inputs' / name).with_suffix(suffix)


def make_input(folder: pathlib.Path, name: str, weights: str) -> None:
    """Makes an input where it is not there yet; what is half made goes."""
    path = place_of(folder, name)
    done = path.with_name(f'{name}.done')
    if not done.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        INPUTS[name](path, weights)
        done.touch()


# ------------------------------------------------------------------------- run


def flags_of(
    part: Part, quick: bool, folder: pathlib.Path, weights: str
) -> list[str]:
    """What a part is run with."""
    places = {name: place_of(folder, name) for name in INPUTS}
    more = part.quick if quick else part.full
    return [
        each.format(WORKDIR=folder, WEIGHTS=weights, **places)
        for each in (*part.given, *more)
    ]


def run_part(
    name: str, part: Part, given: Sequence[str], folder: pathlib.Path,
    weights: str,
) -> dict[str, Any]:  # fmt: skip
    """What a part's process measured, or why it failed; kept in WORKDIR."""
    path, log = folder / f'{name}.json', folder / f'{name}.log'
    began = time.time()
    found: dict[str, Any] = {'given': list(given)}
    try:
        for each in part.needs:
            make_input(folder, each, weights)
        kept.run(f'benchmarks.{part.module}', log, *given)
        last = log.read_text().splitlines()[-1]
        found['record'] = report.merged(json.loads(last)['records'])
    except RuntimeError as error:
        found['failed'] = str(error)
    found['took'] = time.time() - began
    files.write_json(path, found)
    return found


def finished(
    name: str, given: Sequence[str], folder: pathlib.Path
) -> dict[str, Any] | None:
    """What an earlier run has left of a part, with the same flags."""
    path = folder / f'{name}.json'
    found = kept.read_json(path) if path.exists() else {}
    if 'record' in found and found['given'] == list(given):
        return found
    return None


def machine_of(quick: bool) -> dict[str, Any]:
    """What the figures are of, now."""
    from infoword_tf.training import precision

    path = precision.CPUINFO
    text = path.read_text() if path.exists() else ''
    names = [
        line.split(':', 1)[1].strip()
        for line in text.splitlines()
        if line.startswith('model name')
    ]
    own = precision.instructions() or ()
    sites = (kept.ROOT / '.venv-peers').glob('lib/python3*/site-packages')
    theirs = {
        each.metadata['Name']: each.version
        for each in metadata.distributions(path=[str(site) for site in sites])
    }
    return {
        'processor': names[0] if names else platform.machine(),
        'cores': os.cpu_count(),
        'instructions': [x for x in precision.INSTRUCTIONS if x in own],
        'bytes': psutil.virtual_memory().total,
        'python': platform.python_version(),
        'packages': {name: metadata.version(name) for name in PACKAGES},
        'peers': {name: theirs[name] for name in PEERS if name in theirs},
        'load': os.getloadavg()[0],
        'before': turns.listen(),
        'commit': kept.commit(),
        'quick': quick,
    }


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Returns:
        By part, what was measured.

    Raises:
        UsageError: a part is not known, or there are no weights.
    """
    del chosen
    unknown = [name for name in given.only if name not in PARTS]
    if unknown:
        raise commands.UsageError(
            f'--only={unknown[0]}: there is no such part; known are '
            f'{", ".join(PARTS)}'
        )
    folder = pathlib.Path(given.workdir).absolute()
    weights = str(given.weights or peers.weights())
    wanted = {
        name: flags_of(part, given.quick, folder, weights)
        for name, part in PARTS.items()
        if not (given.quick and part.quick is None)
    }
    missing = [
        name for name, typed in wanted.items()
        if name in (given.only or wanted)
        and not finished(name, typed, folder)
    ]  # fmt: skip
    if missing:
        kept.begin(folder)
        if not (folder / f'{MACHINE}.json').exists():
            files.write_json(
                folder / f'{MACHINE}.json', machine_of(given.quick)
            )
    for name in missing:
        part = PARTS[name]
        found = run_part(name, part, wanted[name], folder, weights)
        said = found.get('failed', 'done').splitlines()[-1]
        print(f'{name}: {found["took"]:.0f} s, {said}', flush=True)
    found = {
        name: finished(name, typed, folder)
        or kept.read_json(folder / f'{name}.json')
        for name, typed in wanted.items()
        if (folder / f'{name}.json').exists()
    }
    if given.render or not given.only:
        machine = kept.read_json(folder / f'{MACHINE}.json')
        render(found, machine, pathlib.Path(given.docs),
               pathlib.Path(given.readme))  # fmt: skip
    return found


# ------------------------------------------------------------------- documents


def machine_lines(
    machine: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The table of what the figures are of."""
    packages = {**machine['packages'], **machine['peers']}
    versions = ', '.join(f'{k} {v}' for k, v in packages.items())
    rows = [
        ('processor', f'{machine["processor"]}, {machine["cores"]} cores'),
        ('bfloat16 instructions', ', '.join(machine['instructions']) or 'none'),
        ('memory', f'{machine["bytes"] / report.GIGABYTE:.0f} GB'),
        ('threads', f'{machine["cores"]}, peers {kept.THREADS}'),
        ('versions', f'Python {machine["python"]}, {versions}'),
        ('load before', f'{machine["load"]:.2f}, '
         f'{report.others(machine["before"])} of the machine busy'),
        ('commit', machine['commit']),
        ('run', 'quick' if machine['quick'] else 'full'),
    ]  # fmt: skip
    if 'record' in found.get('step', {}):
        rates = found['step']['record']['products'].items()
        rows.append((
            'one large matrix product',
            ', '.join(f'{k} {v / 1e9:,.0f} GFLOP/s' for k, v in rates),
        ))
    if 'record' in found.get('length', {}):
        rate = max(r['copies'] for r in found['length']['record']['rows'])
        rows.append(('one large copy', f'{rate / 1e9:,.1f} GB/s'))
    took = sum(part['took'] for part in found.values())
    rows.append(('took', f'{took / 60:.0f} minutes'))
    return report.table(('', ''), rows)


def part_lines(part: Mapping[str, Any] | None) -> list[str]:
    """The table of a part, or why there is none."""
    if part is None:
        return ['Not measured by this run.']
    if 'failed' in part:
        words = part['failed'].splitlines()[-1].replace('`', "'")
        return [f'**Failed**: `{words[:200]}`']
    return report.lines_of(part['record'])


def summary_lines(
    machine: Mapping[str, Any], record: Mapping[str, Any]
) -> list[str]:
    """The README's sentence about training steps."""
    said: dict[str, list[str]] = collections.defaultdict(list)
    for row, basis in report.grouped(record):
        if row is not basis and row['name'] in ('bert_nce', 'mlm'):
            times = statistics.median(report.ratios(row, basis))
            said[row['name']].append(f'{times:.2f} in {row["group"]}')
    each = ', '.join(
        f'`{name}` {" and ".join(times)}' for name, times in said.items()
    )
    beside = ', beside other work' if report.busy(record) else ''
    return [
        "Training steps at mini, in tokens/s over those of Model Garden's "
        f'`BertPretrainerV2` ({machine["processor"]}, {machine["cores"]} '
        f'cores{beside}): {each}. [Speed](docs/speed.md) has more.'
    ]


def render(
    found: Mapping[str, Mapping[str, Any]],
    machine: Mapping[str, Any],
    docs: pathlib.Path,
    readme: pathlib.Path,
) -> None:
    """Writes the tables, the plot and the README's sentence.

    Args:
        found: by part, as `run_part` gives it.
        machine: as `machine_of` gives it.
        docs: the folder of speed.md.
        readme: the file.
    """
    parts = {name: part_lines(found.get(name)) for name in PARTS}
    parts[MACHINE] = machine_lines(machine, found)
    write(docs / 'speed.md', parts)
    titled = collections.defaultdict(list)
    for name, part in found.items():
        if 'record' in part:
            titled[PARTS[name].title].append(part['record'])
    records = {title: report.merged(some) for title, some in titled.items()}
    with files.written(docs / 'speed.png') as partial:
        report.draw(partial, records)
    if 'record' in found.get('step', {}):
        record = found['step']['record']
        write(readme, {SUMMARY: summary_lines(machine, record)})


def write(path: pathlib.Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Puts lines between the markers of a file."""
    text = report.fill(path.read_text(encoding='utf-8'), parts)
    with files.written(path) as partial:
        partial.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on')
