"""Embedding students of one teacher, for benchmarks.tables: quality and speed.

Every model is asked for the same vectors through its export, which takes
strings: those of STS-B, of two BEIR folders and of `pydocs`. Then all encode
the same sentences in turns. What is finished is kept.
"""

import functools
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers, report
from infoword_tf import files

TEXTS = 32  # of a call
ROUNDS, WARM_UP = 200, 10
# Where the data lie, beside whoever runs it.
STS = pathlib.Path('sts/sts-test.csv')
BEIR = {
    'SciFact nDCG@10': ('retrieval/scifact', 'ndcg@10'),
    'NFCorpus nDCG@10': ('retrieval/nfcorpus', 'ndcg@10'),
}
PYDOCS = 'pydocs MRR@10'
STS_HEAD, RATE, MB = 'STS-B test', 'texts/s', 'MB'
UNTRAINED = ('--steps=1', '--learning_rate=0', '--log_every=1')
PEER = 'model2vec'


class Student(NamedTuple):
    """How a student is made.

    Attributes:
        flagfile: in tasks/flags.
        given: further flags.
    """

    flagfile: str
    given: Sequence[str] = ()


STUDENTS = {
    '3 layers': Student('minilm_layers3'),
    'lookup, untrained': Student('minilm_lookup', UNTRAINED),
    'lookup': Student('minilm_lookup'),
}


def qualities(encode: Callable[..., np.ndarray]) -> dict[str, float]:
    """What vectors are worth, by the heads of the table.

    Args:
        encode: texts, and perhaps their role, to [n, D]; compared by cosine.
    """
    from tasks import retrieval, sts

    found = {STS_HEAD: sts.correlation(sts.read(STS), encode, 'cosine')}
    tasks = {
        title: (functools.partial(retrieval.beir_task, pathlib.Path(folder)), m)
        for title, (folder, m) in BEIR.items()
    }
    tasks[PYDOCS] = (
        functools.partial(retrieval.corpus_task, 'pydocs'), 'mrr@10'
    )
    for title, (make, measure) in tasks.items():
        task = make()
        ranked = retrieval.by_vectors(task, encode, 'cosine', title)
        found[title] = retrieval.measure(task, ranked)[measure]
    return found


def rates(sides: Sequence[peers.Side]) -> dict[str, float]:
    """Texts a second of each, 32 at a time, in turns: the median."""
    texts = peers.reference()
    batches = []
    for number in range(WARM_UP + ROUNDS):
        begin = number * TEXTS % (len(texts) - TEXTS)
        batches.append(texts[begin : begin + TEXTS])
    record = peers.in_turns(sides, batches, WARM_UP)
    return {
        row['name']: statistics.median(report.rates(row))
        for row in record['rows']
    }


def file_of(name: str) -> str:
    """Of a model."""
    return name.replace(', ', '_').replace(' ', '_')


def megabytes(folder: pathlib.Path) -> float:
    """Of the files in a folder."""
    found = (p for p in folder.rglob('*') if p.is_file())
    return sum(p.stat().st_size for p in found) / 1e6


def kept(path: pathlib.Path, make: Callable[[], Any]) -> Any:
    """What a file holds; made where there is none."""
    if not path.exists():
        files.write_json(path, make())
    return json.loads(path.read_text())


def measured(
    folder: pathlib.Path,
    teacher: str,
    peer: str | None,
    run: Callable[..., None],
    flags: pathlib.Path,
) -> dict[str, dict[str, float]]:
    """Everything of every model, by name and head of the table.

    Args:
        folder: where all is kept.
        teacher: its workdir.
        peer: a sentence-transformers folder with its weights; None: no peer
            is asked.
        run: runs a command: module, log, flags.
        flags: the folder of flagfiles.
    """
    from tasks import retrieval

    workdirs = {'teacher': pathlib.Path(teacher)}
    for name, student in STUDENTS.items():
        workdir = workdirs[name] = folder / file_of(name)
        if not (workdir / 'metrics.json').exists():
            run(
                'tasks.distill',
                workdir.with_suffix('.log'),
                f'--flagfile={flags / student.flagfile}.flags',
                f'--teacher={teacher}',
                f'--workdir={workdir}',
                *student.given,
            )
        print(f'{name}: trained', flush=True)
    exports = {}
    for name, workdir in workdirs.items():
        output = folder / 'exports' / file_of(name)
        exports[name] = output / '1'
        if not exports[name].exists():
            run(
                'export.savedmodel',
                output.with_suffix('.log'),
                f'--init={workdir}',
                f'--output={output}',
            )
    found = {}
    for name, version in exports.items():

        def ask(version: pathlib.Path = version) -> dict[str, float]:
            encode, _ = retrieval.exported(version, TEXTS)
            return {**qualities(encode), MB: megabytes(version / 'variables')}

        found[name] = kept(version.parent / 'quality.json', ask)
        print(f'{name}: {found[name]}', flush=True)
    sides = []

    def started() -> Sequence[peers.Side]:
        if not sides:
            sides.extend(
                peers.Side('savedmodel', str(version), name)
                for name, version in exports.items()
            )
            if peer:
                sides.append(peers.Side(PEER, peer))
        return sides

    if peer:

        def ask_peer() -> dict[str, float]:
            side = started()[-1]
            values = qualities(lambda texts, role='passage': (
                side.vectors(texts)
            ))  # fmt: skip
            return {**values, MB: side.megabytes}

        found[PEER] = kept(folder / f'{PEER}.json', ask_peer)
    speed = kept(folder / 'rates.json', lambda: rates(started()))
    for side in sides:
        side.close()
    return {name: {**found[name], RATE: speed[name]} for name in found}


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown, a line a model; rates beside the teacher's."""
    titles = [STS_HEAD, *BEIR, PYDOCS, RATE, 'x teacher', MB]
    lines = [f'| | {" | ".join(titles)} |', '|---' * (1 + len(titles)) + '|']
    for name, values in found.items():
        times = values[RATE] / found['teacher'][RATE]
        cells = [f'{values[STS_HEAD]:.2f}']
        cells += [f'{values[title]:.3f}' for title in (*BEIR, PYDOCS)]
        cells += [f'{values[RATE]:,.0f}', f'{times:.1f}', f'{values[MB]:.1f}']
        lines.append(f'| {name} | {" | ".join(cells)} |')
    return '\n'.join(lines)


def draw(
    path: pathlib.Path, found: Mapping[str, Mapping[str, float]]
) -> None:
    """Quality over speed: STS-B and SciFact, a point a model."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    titles = [STS_HEAD, next(iter(BEIR))]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axis, title in zip(axes, titles, strict=True):
        for name, values in found.items():
            point = values[RATE], values[title]
            axis.plot(*point, 'o', color='C1' if name == PEER else 'C0')
            axis.annotate(
                name, point, (0, 6), textcoords='offset points', ha='center',
                fontsize=8,
            )  # fmt: skip
        axis.set_xscale('log')
        axis.margins(0.18)
        axis.set_xlabel(f'{RATE}, {TEXTS} at a time')
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
