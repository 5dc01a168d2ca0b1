"""Searches by one model or by words, with the costs of each."""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.critics import CRITICS
from infoword_tf.critics.texts import Texts, nbytes, restored
from infoword_tf.evaluation import bm25, ranking
from infoword_tf.evaluation.retrieval import (
    BLOCK,
    DEPTH,
    Rankings,
    RetrievalTask,
)
from infoword_tf.evaluation.vectors import (
    VECTORS,
    TokenFile,
    VectorFile,
    file_of,
)
from infoword_tf.text import strings

TIMED = 10  # queries that are timed alone, the first of which warms up
WARM = 64  # texts that are encoded before texts are timed
# n texts and their role (config.ROLES; None: the default) -> texts of a critic
Encoder = Callable[[list[str], str | None], Texts]
# Queries and as many documents -> [n] scores.
Rate = Callable[[list[str], list[str]], np.ndarray]
BM25 = 'bm25'  # a first stage
RERANKED = 100  # documents of a query that a later stage compares


@dataclasses.dataclass(frozen=True)
class StageChoices:
    """Choices of a search in stages."""

    critic: str | None = flag(
        None, 'What compares a query with a document; by default what the '
        'model was trained with.', choices=tuple(CRITICS))
    rerank_top: int | None = flag(
        None, 'How many documents of a query go from stage to stage.',
        at_least=1, shown=RERANKED)
    dims: int | None = flag(
        None, 'How many of the first numbers of a vector are used; by default '
        'all.', at_least=1)


def check_stages(
    first: str | None, rerank: str | None, rerank_top: int | None
) -> None:
    """Raises UsageError if a stage is no folder, or --rerank_top has none."""
    for name, path in ('first', first), ('rerank', rerank):
        is_bm25 = name == 'first' and path == BM25
        if path is not None and not (is_bm25 or pathlib.Path(path).is_dir()):
            raise errors.UsageError(
                'stage_of_no_model',
                f'--{name}={path}: there is no such workdir or export',
            )
    if rerank_top is not None and first is None and rerank is None:
        raise errors.UsageError(
            'rerank_top_without_stage',
            '--rerank_top is for --first and --rerank; leave it out',
        )


class Costs:
    """Time and bytes that a search takes.

    Attributes:
        seconds: time of each of the first queries, alone.
    """

    def __init__(self, queries: int):
        """Starts at 0, for so many queries; for none nothing is timed."""
        self.seconds = np.zeros(min(queries, TIMED))
        self._texts = self._bytes = self._encoded = 0
        self._encoding = 0.0

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
        rate: function of pairs.
        candidates: candidates as of `ranking.rescore`; their texts are held.
        label: label of the progress bar.
        costs: gets the time of single queries.
    """
    numbers = set(candidates.ravel().tolist())
    texts = {n: text for n, text in task.documents() if n in numbers}
    best = ranking.Best(*candidates.shape)
    asked = commands.bar(task.queries, label, unit=' queries')
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


def by_vectors(
    task: RetrievalTask,
    encode: Encoder,
    similarity: str,
    label: str,
    store: VectorFile | TokenFile | None = None,
    chosen: np.ndarray | None = None,
    costs: Costs | None = None,
) -> Rankings:
    """Searches by vectors or weights; documents are encoded in blocks.

    Args:
        task, encode: queries and documents, and the encoder of both.
        similarity: `cosine` or `dot`.
        label: label of the progress bar.
        store: has the first documents, and gets others.
        chosen: candidates, as of `ranking.rescore`, which alone are compared,
            and encoded where nothing is stored; None: all.
        costs: gets what this search takes.
    """
    queries, costs = encode(task.queries, 'query'), costs or Costs(0)
    costs.query(lambda query: encode([query], 'query'), task.queries)
    named = set() if chosen is None else set(chosen.ravel().tolist())
    with commands.bar(total=task.size, desc=label, unit=' documents') as bar:

        def blocks() -> Iterator[tuple[np.ndarray, Texts]]:
            done = 0
            encoded: Texts
            for numbers, texts in task.blocks():
                end = done + len(numbers)
                if store is not None and end <= store.rows:
                    encoded = restored(store.read(done, end), queries)
                else:
                    if chosen is not None and store is None:
                        is_read = [
                            not named.isdisjoint((n, *task.copies.get(n, ())))
                            for n in numbers.tolist()
                        ]
                        numbers = numbers[is_read]
                        texts = [*itertools.compress(texts, is_read)]
                    encoded = costs.encode(encode, texts) if texts else None
                    if store is not None and texts:
                        store.append(encoded)
                done = end
                if texts:
                    costs.count(encoded.shape[0], nbytes(encoded))
                    yield task.with_copies(numbers, encoded)
                bar.update(len(numbers))

        if chosen is None:
            return ranking.search(
                queries,
                blocks(),
                DEPTH + 1,
                similarity=similarity,
                seconds=costs.seconds,
            )
        return ranking.rescore(
            queries,
            blocks(),
            chosen,
            similarity=similarity,
            seconds=costs.seconds,
        )


def open_vectors(
    folder: pathlib.Path, name: str, task: RetrievalTask, **key: Any
) -> VectorFile | TokenFile:
    """Opens or creates the file of a task's documents, encoded for a critic.

    `name` is the encoder's; `key` all else that what it makes depends on, with
    `critic` if texts are no vectors.
    """
    key |= {
        'documents': task.fingerprint,
        'size': task.distinct,
        'block': BLOCK,
    }
    text = json.dumps(key, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    return file_of(folder / f'{name}-{digest}.npy', key.get('critic', VECTORS))


def by_words(task: RetrievalTask, costs: Costs | None = None) -> Rankings:
    """Searches with BM25, see `bm25.Bm25`; `costs` of single queries."""
    numbers = np.empty(task.size, np.int64)

    def texts() -> Iterator[str]:
        for place, (number, text) in enumerate(task.documents()):
            numbers[place] = number
            yield text

    index = bm25.Bm25(texts())
    if costs is not None:
        costs.count(task.size, index.nbytes)
        costs.query(
            lambda query: index.search([query], DEPTH + 1, numbers),
            task.queries,
        )
    return index.search(task.queries, DEPTH + 1, numbers)
