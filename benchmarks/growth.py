"""How the cost of a step grows, beside the formula of operations and bytes.

    python -m benchmarks.growth --of=length
    python -m benchmarks.growth --of=vocabulary --points=8000,30000,120000

Each point is a training step in a process of its own; those of a row take
turns (turns.py). The formula is that of work.py: the operations of all matrix
products, at the rate of one large product, and the bytes that a step must read
and write, at the rate of one large copy; both rates are measured in the same
turns. Nothing reaches that, and small matrices less than large ones; what
counts is whether the two grow alike.

length: T, with so many sequences that a step has as many tokens.
batch: sequences of a step.
vocabulary: pieces; `mlm` scores all of them, `bert_nce` those of the batch.
candidates: vectors of the queue of `simcse` (queues.py).
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report, turns
from benchmarks.turns import COPIES, PRODUCTS
from infoword_tf import commands
from infoword_tf.choices import flag

# The backend is chosen before Keras is imported.
os.environ['KERAS_BACKEND'] = 'tensorflow'

LENGTH, BATCH, VOCABULARY = 128, 32, 8192  # where they do not grow
ROWS = {
    'length': ('bert_nce', 'mlm'),
    'batch': ('bert_nce',),
    'vocabulary': ('bert_nce', 'mlm'),
    'candidates': ('simcse',),
}
POINTS = {
    'length': (64, 128, 256, 512, 1024),
    'batch': (8, 16, 32, 64, 128, 256),
    'vocabulary': (8_000, 15_000, 30_000, 60_000, 120_000),
    'candidates': (1_000, 4_000, 16_000, 50_000, 100_000),
}
TITLES = {
    'length': 'T', 'batch': 'sequences', 'vocabulary': 'pieces',
    'candidates': 'candidates',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    of: str = flag('length', 'What grows.', choices=tuple(POINTS))
    points: tuple = flag((), 'Its values; none: five or six.')
    rows: tuple = flag((), 'Rows; none: those that it matters to.')
    size: str = flag('tiny', 'Of the encoder.')
    rounds: int = flag(5, 'Turns of each.', at_least=1)
    steps: int = flag(4, 'Steps of a turn.', at_least=1)


def point(given: Choices, row: str, x: int) -> turns.Served:
    """Starts the step of a row where what grows is x."""
    if given.of == 'candidates':
        return turns.Served(
            f'{row} {x}',
            turns.module(
                'benchmarks.queues', '--serve=queue', f'--queue={x}',
                f'--size={given.size}', f'--steps={given.steps}',
            ),
            row,
        )  # fmt: skip
    shape = {'seq_len': LENGTH, 'batch_size': BATCH, 'vocab_size': VOCABULARY}
    shape |= {
        'length': {'seq_len': x, 'batch_size': max(1, LENGTH * BATCH // x)},
        'batch': {'batch_size': x},
        'vocabulary': {'vocab_size': x},
    }[given.of]
    return turns.step(
        row, f'{row} {x}', row, size=given.size, precisions='float32',
        steps=given.steps, **shape,
    )  # fmt: skip


def machine(name: str) -> turns.Served:
    """What the machine can, PRODUCTS or COPIES."""
    return turns.step(name, name, precisions='float32')


def curve(given: Choices, row: str, xs: Sequence[int]) -> dict[str, Any]:
    """A record of one row, whose points take turns."""
    started = [point(given, row, x) for x in xs]
    started += [machine(PRODUCTS), machine(COPIES)]
    with turns.ended(started):
        record = turns.compete(
            started,
            'sentences' if given.of == 'candidates' else 'tokens',
            [{}] * given.rounds,
        )
    rates = {
        name: max(turns.best_of(record, name).values())
        for name in (PRODUCTS, COPIES)
    }
    for one, x in zip(record['rows'], xs, strict=True):
        one |= {'x': x, **rates}
    return record


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Measures, and prints the table."""
    del chosen
    xs = [int(x) for x in given.points or POINTS[given.of]]
    rows = given.rows or ROWS[given.of]
    record: dict[str, Any] = {}
    for row in rows:  # one after the other, for the sake of memory
        one = curve(given, row, xs)
        if record:
            one['before'] = max(one['before'], record['before'])
            one['rows'] = record['rows'] + one['rows']
        record = one
    record |= {'kind': 'growth', 'of': given.of, 'x': TITLES[given.of]}
    record['settings'] = dataclasses.asdict(given)
    report.show(record)


if __name__ == '__main__':
    commands.start(run)
