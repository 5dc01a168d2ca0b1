"""Costs of a search by one model, and scores of encoded pairs."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from infoword_tf import progress
from infoword_tf.critics.texts import Texts
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.retrieval import Rankings, RetrievalTask
from infoword_tf.text import strings

TIMED = 10  # queries that are timed alone, the first of which warms up
WARM = 64  # texts that are encoded before texts are timed
# Queries and as many documents -> [n] scores.
Rate = Callable[[list[str], list[str]], np.ndarray]


class Costs:
    """Time and bytes that a search takes.

    Attributes:
        seconds: of each of the first queries, alone.
    """

    def __init__(self, queries: int):
        """Starts at 0, for so many queries; for none nothing is timed."""
        self.seconds = np.zeros(min(queries, TIMED))
        self._texts = self._bytes = self._encoded = self._encoding = 0

    def encode(self, encode: Any, texts: Sequence[str]) -> Texts:
        """Encodes documents."""
        if len(self.seconds) and not self._encoded:
            encode(texts[:WARM], 'passage')
        begin = time.perf_counter()
        encoded = encode(texts, 'passage')
        self._encoding += time.perf_counter() - begin
        self._encoded += len(texts)
        return encoded

    def query(self, encode: Callable[[str], Any], queries: list[str]) -> None:
        """Adds the time that each query takes."""
        for place, query in enumerate(queries[: len(self.seconds)]):
            begin = time.perf_counter()
            encode(query)
            self.seconds[place] += time.perf_counter() - begin

    def count(self, texts: int, size: int) -> None:
        """Counts documents and bytes."""
        self._texts += texts
        self._bytes += size

    def note(self) -> str:
        """Returns all costs that were measured, for people."""
        units = 'ms a query', 'bytes a document', 's to encode 1,000 documents'
        costs = zip(self.record().values(), units, strict=True)
        return ', '.join(f'{x} {unit}' for x, unit in costs if x is not None)

    def record(self) -> dict[str, float | None]:
        """Returns costs by name; None: nothing was encoded or compared."""
        warm = self.seconds[1:] if len(self.seconds) > 1 else self.seconds
        texts, encoded = self._texts, self._encoded
        return {
            'ms_per_query': round(1000 * float(np.median(warm)), 3),
            'bytes_per_passage': round(self._bytes / texts) if texts else None,
            'seconds_per_1000_passages':
                round(1000 * self._encoding / encoded, 3) if encoded else None,
        }  # fmt: skip


def by_pairs(
    task: RetrievalTask,
    rate: Rate,
    candidates: np.ndarray,
    label: str,
    costs: Costs,
) -> Rankings:
    """Rates pairs of queries and candidates.

    Args:
        task: queries and documents.
        rate: of pairs.
        candidates: as of `ranking.rescore`; their texts are held.
        label: of the progress bar.
        costs: gets the time of single queries.
    """
    numbers = set(candidates.ravel().tolist())
    texts = {n: text for n, text in task.documents() if n in numbers}
    best = ranking.Best(*candidates.shape)
    asked = progress.bar(task.queries, label, unit=' queries')
    for row, query in enumerate(asked):
        numbers = candidates[row, candidates[row] >= 0]
        several, place = strings.distinct([texts[n] for n in numbers.tolist()])
        if not several:
            continue
        begin = time.perf_counter()
        scores = rate([query] * len(several), several)
        if row < len(costs.seconds):
            costs.seconds[row] += time.perf_counter() - begin
        scores = ranking.finite(scores, np.float32)[place]
        best.add(slice(row, row + 1), scores[None], numbers)
    return best.sorted()
