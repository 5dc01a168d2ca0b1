"""How fast exact search is, beside the products alone that it needs.

    python -m benchmarks.search --texts=100000 --queries=10000

Random vectors of length 1, so that hardly anything can be left out early. The
search is that of `tasks.mine`, `tasks.retrieval` and `export.search`, in blocks
of the same size; the products are NumPy's, of the same blocks, thrown away.
Both in turns; the table has the median of the seconds and of the ratios of each
turn.
"""

import dataclasses
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation import ranking
from tasks import mine


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    texts: int = flag(100_000, 'Texts that are searched.', at_least=1)
    queries: int = flag(10_000, 'Queries.', at_least=1)
    width: int = flag(384, 'Numbers of a vector.', at_least=1)
    most: int = flag(
        52, 'Texts that a query finds; 52 are those of tasks.mine.',
        at_least=1)
    rounds: int = flag(3, 'Turns of each.', at_least=1)


def vectors(count: int, width: int, seed: int) -> np.ndarray:
    """[count, width] float32, uniform over directions."""
    random = np.random.default_rng(seed)
    drawn = random.standard_normal((count, width), np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def blocks(texts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers and vectors, as `ranking.search` takes them."""
    for begin in range(0, len(texts), mine.BLOCK):
        some = texts[begin : begin + mine.BLOCK]
        yield begin + np.arange(len(some)), some


def products(queries: np.ndarray, texts: np.ndarray) -> None:
    """All of them, of the sizes that `ranking.search` computes."""
    for _, some in blocks(texts):
        for begin in range(0, len(queries), ranking.ROWS):
            queries[begin : begin + ranking.ROWS] @ some.T


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Measures, and prints the table."""
    queries = vectors(given.queries, given.width, 0)
    texts = vectors(given.texts, given.width, 1)
    ways = {
        'search': lambda: ranking.search(
            queries, blocks(texts), given.most, 'dot'
        ),
        'products': lambda: products(queries, texts),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(1 + given.rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn:  # the first one warms up
                seconds[name].append(time.perf_counter() - began)
    print(
        f'{given.queries:,} queries, {given.texts:,} texts, {given.width} '
        f'numbers, {given.most} best'
    )
    for name, values in seconds.items():
        print(
            f'{name:<9}{statistics.median(values):8.2f} s '
            f'({min(values):.2f}-{max(values):.2f})'
        )
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    print(f'ratio    {statistics.median(ratios):8.2f}')


if __name__ == '__main__':
    commands.start(run)
