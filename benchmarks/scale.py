"""What a run needs of a device, and what replicas send each other.

    python -m benchmarks.scale

Measures the memory of whole updates at small sizes, each in a process of its
own, fits the five numbers of the formula below to some of them and holds it to
the others; then says what it comes to for large runs. Bytes of a replica:

    16 N                        weights, gradients and both moments, float32
                                (12 N with --moments=bfloat16)
    (L + c) (a R T D + b R H T T)
                                what is kept of R texts at a time for the
                                backward pass, states and weights of attention,
                                and what the gradient of a block takes itself:
                                as much as c blocks keep; with --remat 1 + c
                                blocks, and 4 R T D of each of the others
    M D                         candidates of all replicas, float32, twice
    d L + others                the graphs of blocks, and what every process has

Bytes that a replica sends for an update, by a ring: 2 (n - 1) / n of the
gradients, 4 N, and (n - 1) / n of the gathered candidates, there and back.

Glossary of shapes: N weights, L layers, R texts, T tokens, D width, H heads, M
candidates, n replicas, V vocabulary.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks import step
from infoword_tf import commands
from infoword_tf.sizes import SIZES

MEASURE = flags.DEFINE_bool(
    'measure', False, 'Only: print what one run needs, as --size, --batch_size '
    'and --seq_len say.')
MOMENTS = flags.DEFINE_enum(
    'moments', 'float32', ['float32', 'bfloat16'], 'Of that run.')
REMAT = flags.DEFINE_bool('remat', False, 'Likewise.')
GLOBAL_BATCH, LENGTH = 1024, 512
REPLICAS = 8, 32, 128, 256
GIGABYTE = 1e9


class Point(NamedTuple):
    """A run that is measured.

    Attributes:
        size, texts, length: of its encoder and batch.
        fitted: whether the formula is fitted to it.
        moments: of its optimizer.
        remat: whether blocks are computed once more.
    """

    size: str
    texts: int
    length: int
    fitted: bool
    moments: str = 'float32'
    remat: bool = False


POINTS = (
    Point('mini', 16, 128, True),
    Point('mini', 64, 128, True),
    Point('mini', 4, 512, True),
    Point('mini', 16, 512, True),
    Point('mini', 32, 256, False),
    Point('small', 32, 128, False),
    Point('small', 8, 512, False),
    Point('small', 8, 512, False, 'bfloat16'),
    Point('small', 16, 512, True, 'float32', True),
    Point('small', 8, 512, False, 'float32', True),
    Point('medium', 4, 512, False),
    Point('medium', 16, 128, True),
    Point('medium', 8, 512, False, 'float32', True),
)  # fmt: skip


def resident(field: str) -> int:
    """Bytes of this process: 'VmRSS' now, 'VmHWM' at most so far."""
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise ValueError(f'/proc/self/status has no {field}')


def measure() -> dict[str, int]:
    """Of three updates: bytes beyond what TensorFlow has, and weights."""
    import tensorflow as tf

    from infoword_tf.model import Model  # brings Keras

    del Model
    tf.constant(0.0) + 1.0
    before = resident('VmRSS')
    one = step.ours(
        'bert_nce', 'float32', moments=MOMENTS.value, remat=REMAT.value
    )
    for _ in range(3):
        one.step()
    return {'bytes': resident('VmHWM') - before, 'weights': one.weights}


def measured(point: Point) -> dict[str, Any]:
    """The same, of a process of its own."""
    done = subprocess.run(
        [sys.executable, '-m', 'benchmarks.scale', '--measure',
         f'--size={point.size}', f'--batch_size={point.texts}',
         f'--seq_len={point.length}', f'--moments={point.moments}',
         f'--remat={point.remat}'],
        capture_output=True, text=True, check=True,
        env={**os.environ, 'MALLOC_TRIM_THRESHOLD_': '0'},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def of_block(size: str, texts: int, length: int) -> tuple[float, float]:
    """What a and b are multiplied by: R T D and R H T T."""
    shape = SIZES[size]
    rows = texts * length
    return rows * shape['width'], rows * shape['heads'] * length


def blocks(point: Point, c: float) -> tuple[float, float, float]:
    """What a, b and 4 are multiplied by, all blocks together."""
    layers = SIZES[point.size]['layers']
    x, y = of_block(*point[:3])
    if point.remat:
        return (1 + c) * x, (1 + c) * y, (layers - 1) * x
    return (layers + c) * x, (layers + c) * y, 0.0


def formula(point: Point, weights: int, fitted: np.ndarray) -> float:
    """Bytes; `fitted` as `fit` gives it."""
    a, b, c, d, others = fitted
    x, y, states = blocks(point, c)
    whole = d * SIZES[point.size]['layers'] + others
    return (
        of_weights(weights, point.moments) + a * x + b * y + 4 * states + whole
    )


def of_weights(weights: int, moments: str = 'float32') -> int:
    """Bytes of weights, gradients and moments."""
    return weights * (16 if moments == 'float32' else 12)


def weights_of(size: str, vocabulary: int, length: int) -> int:
    """N of a Transformer whose candidates are the encoder's own states."""
    shape = SIZES[size]
    width, layers = shape['width'], shape['layers']
    block = 12 * width * width + 13 * width
    return (vocabulary + length + 2) * width + 2 * width + layers * block


def fit(found: list[tuple[Point, dict[str, Any]]]) -> np.ndarray:
    """[5] a, b, c, d, and the bytes that every process has besides.

    Of a grid of c the one at which the others, by least squares, are nearest.
    """
    chosen = [pair for pair in found if pair[0].fitted]
    best, least = np.zeros(5), np.inf
    for c in np.arange(0, 6, 0.05):
        rows, left = [], []
        for point, one in chosen:
            x, y, states = blocks(point, c)
            rows.append([x, y, SIZES[point.size]['layers'], 1.0])
            left.append(
                one['bytes'] - of_weights(one['weights'], point.moments)
                - 4 * states
            )  # fmt: skip
        scale = np.max(rows, axis=0)
        a, b, *rest = np.linalg.lstsq(rows / scale, left, None)[0] / scale
        off = np.array(rows) @ [a, b, *rest] - left
        if off @ off < least:
            best, least = np.array([a, b, c, *rest]), off @ off
    return best


def main() -> None:
    """Prints both tables."""
    if MEASURE.value:
        print(json.dumps(measure()))
        return
    found = []
    for point in POINTS:
        found.append((point, measured(point)))
        print(f'{point.size}, {point.texts} x {point.length}', file=sys.stderr)
    fitted = fit(found)
    a, b, c, d, others = fitted
    print(
        f'a {a:.1f}, b {b:.1f}, c {c:.2f}, d {d / 1e6:.0f} MB, others '
        f'{others / GIGABYTE:.2f} GB\n'
    )
    print('| run | measured, GB | formula, GB | |\n|---|---|---|---|')
    for point, one in found:
        said = formula(point, one['weights'], fitted)
        flags_of = f' --moments={point.moments}' * (point.moments != 'float32')
        flags_of += ' --remat' * point.remat
        print(
            f'| {point.size}, {point.texts} x {point.length}{flags_of} | '
            f'{one["bytes"] / GIGABYTE:.2f} | {said / GIGABYTE:.2f} | '
            f'{"fitted" if point.fitted else "held"} |'
        )
    print(
        f'\n{GLOBAL_BATCH:,} x {LENGTH}, vocabulary '
        f'{step.VOCAB_SIZE.value:,}, float32:\n\n| size | replicas | texts of '
        'one | weights and moments, GB | kept at once, GB | '
        '8 texts at a time, GB | sent, gradients, GB | sent, candidates of '
        '`simcse`, MB |\n|---|---|---|---|---|---|---|---|'
    )
    for size, count in itertools.product(('base', 'large'), REPLICAS):
        weights = weights_of(size, step.VOCAB_SIZE.value, LENGTH)
        texts, width = GLOBAL_BATCH // count, SIZES[size]['width']
        at_once, parts = (
            a * x + b * y
            for x, y, _ in (
                blocks(Point(size, n, LENGTH, False), c)
                for n in (texts, min(texts, 8))
            )
        )
        share = (count - 1) / count
        print(
            f'| {size} ({weights / 1e6:.0f} M) | {count} | {texts} | '
            f'{of_weights(weights) / GIGABYTE:.1f} | '
            f'{at_once / GIGABYTE:.1f} | {parts / GIGABYTE:.1f} | '
            f'{2 * share * 4 * weights / GIGABYTE:.2f} | '
            f'{2 * share * 4 * GLOBAL_BATCH * width / 1e6:.1f} |'
        )


if __name__ == '__main__':
    commands.start(main)
