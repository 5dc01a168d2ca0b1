"""How fast exact search is, beside the products alone that it needs.

    python -m benchmarks.search --texts=100000 --queries=10000

Random vectors of length 1, so that hardly anything can be left out early. The
search is that of `tasks.mine`, `tasks.retrieval` and `export.search`, in blocks
of the same size; the products are NumPy's, of the same blocks, thrown away.
Each is a process of its own (`--serve`), both in turns.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks import report, turns
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation import ranking
from tasks import mine

WAYS = ('products', 'search')


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
    serve: str | None = flag(
        None, 'Only: answer lines, as one of them.', choices=WAYS
    )


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


def contestant(given: Choices) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What --serve names, as `turns.serve` takes it."""
    queries = vectors(given.queries, given.width, 0)
    texts = vectors(given.texts, given.width, 1)

    def way() -> None:
        if given.serve == 'products':
            products(queries, texts)
        else:
            ranking.search(queries, blocks(texts), given.most, 'dot')

    way()  # warm
    return way, {'amount': given.queries}


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Serves one, or lets both run and prints the table."""
    if given.serve:
        turns.serve(lambda: contestant(given))
        return
    record = turns.ways_of(
        'benchmarks.search', WAYS, commands.typed(chosen), 'queries',
        given.rounds,
    )  # fmt: skip
    record['settings'] = dataclasses.asdict(given)
    report.show(record)


if __name__ == '__main__':
    commands.start(run)
