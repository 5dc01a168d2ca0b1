r"""Contrasting sentences beside sentence-transformers: how fast, and how good.

    python -m benchmarks.sentences --source=all-MiniLM-L6-v2 \
        --pairs=nli-triplets.csv --sts=sts-dev.csv --workdir=runs/sentences

Both sides begin with the weights of one folder and read the same csv (a, b and
negatives) with the same batch, length, temperature and number of updates, each
in a process of its own, in turns. `--twice` makes pairs of each a with itself,
which is SimCSE without labels. Sentences are examples a second, of updates
after the first ones, in which graphs are traced. With `--sts` both are then
measured by this project's `tasks.sts`; theirs is converted. The table is also
in WORKDIR/table.md.
"""

import csv
import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks import kept
from infoword_tf import commands, files
from infoword_tf.choices import flag

PYTHON = kept.ROOT / '.venv-peers' / 'bin' / 'python'
PEER = kept.ROOT / 'benchmarks' / 'peers' / 'sentences.py'
THREADS = 2
SKIPPED = 10  # updates


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    source: str | None = flag(None, 'A folder of sentence-transformers.')
    pairs: str | None = flag(
        None, 'A csv with a line of names: a, b, negatives.'
    )
    twice: bool = flag(False, 'Pair each a with itself.')
    sts: str | None = flag(None, 'A file for tasks.sts; none: only speed.')
    workdir: str | None = flag(None, 'Where all of it goes.')
    batch_size: int = flag(32, 'Examples of an update.', at_least=2)
    seq_len: int = flag(64, 'Maximum length of a text.', at_least=8)
    steps: int = flag(60, 'Updates.', at_least=SKIPPED + 2)
    learning_rate: float = flag(2e-5, 'Peak learning rate.', at_least=0.0)
    temperature: float = flag(0.05, 'Of the loss.', at_least=1e-6)
    precision: str = flag(
        'float32', 'Of both.', choices=('float32', 'mixed_bfloat16')
    )
    turns: int = flag(3, 'Runs of each side, with other seeds.', at_least=1)


def run_ours(given: Choices, pairs: pathlib.Path, out: pathlib.Path,
             seed: int) -> float:  # fmt: skip
    """Trains; seconds of the timed updates."""
    kept.run(
        'infoword_tf.train', out.parent / f'{out.name}.log',
            f'--init={pathlib.Path(given.workdir) / "source"}',
            '--objectives=simcse', f'--pairs={pairs}', f'--workdir={out}',
            '--simcse.pooling=mean', '--simcse.head=none',
            f'--simcse.temperature={given.temperature}',
            f'--batch_size={given.batch_size}', f'--seq_len={given.seq_len}',
            f'--steps={given.steps}', f'--learning_rate={given.learning_rate}',
            f'--precision={given.precision}', f'--seed={seed}',
            '--optimizer=adamw', '--weight_decay=0', '--log_every=1',
            f'--eval_every={given.steps}', f'--checkpoint_every={given.steps}',
    )  # fmt: skip
    lines = (out / 'metrics.jsonl').read_text().splitlines()
    seconds = [json.loads(line)['seconds'] for line in lines]
    # The last one has measured held-out pairs too.
    return (seconds[-2] - seconds[SKIPPED - 1]) * (
        (given.steps - SKIPPED) / (given.steps - 1 - SKIPPED)
    )


def run_theirs(given: Choices, pairs: pathlib.Path, out: pathlib.Path,
               seed: int) -> float:  # fmt: skip
    """Likewise; the trained folder is OUT/model."""
    out.mkdir(parents=True, exist_ok=True)
    spec = {
        'source': given.source, 'pairs': str(pairs), 'steps': given.steps,
        'batch_size': given.batch_size, 'seq_len': given.seq_len,
        'learning_rate': given.learning_rate,
        'temperature': given.temperature, 'seed': seed,
        'bf16': given.precision == 'mixed_bfloat16', 'threads': THREADS,
        'skip': SKIPPED, 'save': str(out / 'model'),
    }  # fmt: skip
    files.write_json(out / 'spec.json', spec)
    kept.call(
        out / 'log.txt', str(PYTHON), str(PEER), str(out / 'spec.json'),
        str(out / 'seconds.json'),
    )  # fmt: skip
    return json.loads((out / 'seconds.json').read_text())['seconds']


def score(data: str, init: pathlib.Path, out: pathlib.Path) -> float:
    """Spearman's x 100 of a workdir."""
    kept.run(
        'tasks.sts', out.parent / f'{out.name}.log', f'--init={init}',
        f'--data={data}', f'--workdir={out}',
    )  # fmt: skip
    return json.loads((out / 'metrics.json').read_text())['spearman']


def convert(source: str | pathlib.Path, workdir: pathlib.Path) -> None:
    """A folder becomes a workdir, where it is none yet."""
    if not (workdir / 'config.json').exists():
        kept.run(
            'infoword_tf.convert', workdir.parent / f'{workdir.name}.log',
            f'--source={source}', f'--workdir={workdir}',
        )  # fmt: skip


def said(values: list[float], digits: int) -> str:
    """The median, and the lowest and the highest."""
    middle, low, high = (
        f'{x:.{digits}f}'
        for x in (statistics.median(values), min(values), max(values))
    )
    return f'{middle} ({low}-{high})'


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Returns:
        By side, examples a second and Spearman's correlations.

    Raises:
        UsageError: a choice is missing, or the peer is not installed.
    """
    commands.require(
        vars(given),
        source='a folder of sentence-transformers',
        pairs='a csv',
        workdir='a folder',
    )
    if not PYTHON.exists():
        raise commands.UsageError(f'{PYTHON} is missing: make bench-peers')
    folder = pathlib.Path(given.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    pairs = pathlib.Path(given.pairs)
    if given.twice:
        with open(pairs, newline='', encoding='utf-8') as file:
            _, *rows = csv.reader(file)
        pairs = folder / 'twice.csv'
        with open(pairs, 'w', newline='', encoding='utf-8') as file:
            csv.writer(file).writerows(
                [['a', 'b'], *([row[0], row[0]] for row in rows)]
            )
    convert(given.source, folder / 'source')
    found: dict[str, Any] = {}
    for side in ('ours', 'theirs'):
        found[side] = {'rates': [], 'scores': []}
    examples = given.batch_size * (given.steps - SKIPPED)
    for turn in range(given.turns):
        for side, train in (('ours', run_ours), ('theirs', run_theirs)):
            out = folder / f'{side}_{turn}'
            found[side]['rates'].append(
                examples / train(given, pairs, out, turn)
            )
            if not given.sts:
                continue
            if side == 'theirs':
                convert(out / 'model', out / 'workdir')
                out = out / 'workdir'
            found[side]['scores'].append(
                score(given.sts, out, folder / f'{side}_{turn}_sts')
            )
    ratios = [
        ours / theirs
        for ours, theirs in zip(
            found['ours']['rates'], found['theirs']['rates'], strict=True
        )
    ]
    lines = ['| side | examples/s | STS |', '|---|---|---|']
    for side, values in found.items():
        sts = said(values['scores'], 2) if given.sts else '-'
        lines.append(f'| {side} | {said(values["rates"], 1)} | {sts} |')
    lines.append(f'\nours / theirs: {said(ratios, 2)}')
    table = '\n'.join(lines) + '\n'
    (folder / 'table.md').write_text(table)
    print(table)
    return {**found, 'ratios': ratios}


if __name__ == '__main__':
    commands.start(run)
