r"""Contrasting sentences beside sentence-transformers: how fast, and how good.

    python -m benchmarks.sentences --source=all-MiniLM-L6-v2 \
        --pairs=nli-triplets.csv --sts=sts-dev.csv --workdir=runs/sentences

Both sides begin with the weights of one folder and read the same csv (a, b and
negatives) with the same batch, length, temperature and number of updates, each
in a process of its own, in turns. `--twice` makes pairs of each a with itself,
which is SimCSE without labels. Sentences are examples a second, of updates
after the first ones, in which graphs are traced. With `--sts` both are then
measured by this project's `tasks.sts`; theirs is converted, and
WORKDIR/table.md has all of it.
"""

import csv
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import kept, report, turns
from infoword_tf import commands, files
from infoword_tf.choices import flag

PEER = kept.ROOT / 'benchmarks' / 'peers' / 'sentences.py'
SKIPPED = 10  # updates
SIDES = 'sentence-transformers', 'ours'


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
             seed: int) -> tuple[float, kept.Used]:  # fmt: skip
    """Trains; seconds of the timed updates, and what it used."""
    used = kept.run(
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
    timed = (seconds[-2] - seconds[SKIPPED - 1]) * (
        (given.steps - SKIPPED) / (given.steps - 1 - SKIPPED)
    )
    return timed, used


def run_theirs(given: Choices, pairs: pathlib.Path, out: pathlib.Path,
               seed: int) -> tuple[float, kept.Used]:  # fmt: skip
    """Likewise; the trained folder is OUT/model."""
    out.mkdir(parents=True, exist_ok=True)
    spec = {
        'source': given.source, 'pairs': str(pairs), 'steps': given.steps,
        'batch_size': given.batch_size, 'seq_len': given.seq_len,
        'learning_rate': given.learning_rate,
        'temperature': given.temperature, 'seed': seed,
        'bf16': given.precision == 'mixed_bfloat16', 'threads': kept.THREADS,
        'skip': SKIPPED, 'save': str(out / 'model'),
    }  # fmt: skip
    files.write_json(out / 'spec.json', spec)
    used = kept.call(
        out / 'log.txt', str(kept.PEERS_PYTHON), str(PEER),
        str(out / 'spec.json'),
        str(out / 'seconds.json'),
    )  # fmt: skip
    return kept.read_json(out / 'seconds.json')['seconds'], used


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


def turn(
    given: Choices, side: str, pairs: pathlib.Path
) -> Callable[..., tuple[dict[str, float], kept.Used]]:
    """Trains a side anew, for `turns.Whole`."""
    train = run_ours if side == 'ours' else run_theirs
    examples = given.batch_size * (given.steps - SKIPPED)

    def run(seed: int) -> tuple[dict[str, float], kept.Used]:
        out = pathlib.Path(given.workdir) / f'{side}_{seed}'
        shutil.rmtree(out, ignore_errors=True)
        seconds, used = train(given, pairs, out, seed)
        return {'seconds': seconds, 'amount': examples}, used

    return run


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Returns:
        A record of `turns`; rows have Spearman's correlations under `sts`.

    Raises:
        UsageError: a choice is missing, or the peer is not installed.
    """
    commands.require(
        vars(given),
        source='a folder of sentence-transformers',
        pairs='a csv',
        workdir='a folder',
    )
    kept.require_peers()
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
    record = turns.compete(
        [turns.Whole(side, turn(given, side, pairs)) for side in SIDES],
        'examples',
        [{'seed': seed} for seed in range(given.turns)],
    )
    record['settings'] = dataclasses.asdict(given)
    if given.sts:
        lines = []
        for row in record['rows']:
            side = row['name']
            row['sts'] = []
            for seed in range(given.turns):
                out = folder / f'{side}_{seed}'
                if side != 'ours':
                    convert(out / 'model', out / 'workdir')
                    out = out / 'workdir'
                row['sts'].append(
                    score(given.sts, out, folder / f'{side}_{seed}_sts')
                )
            rate = report.shown(report.rates(row), 1)
            lines.append([side, rate, report.shown(row['sts'], 2)])
        lines = report.table(('side', 'examples/s', 'STS'), lines)
        (folder / 'table.md').write_text('\n'.join(lines) + '\n')
        print('\n'.join(lines))
    report.show(record)
    return record


if __name__ == '__main__':
    commands.start(run)
