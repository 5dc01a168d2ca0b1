r"""What fewer bytes a vector cost and gain a search, and its memory.

    python -m benchmarks.indexes --model=models/minilm/1 \
        --data_dir=beir/scifact --workdir=runs/indexes
    python -m benchmarks.indexes --passages=1000000 --workdir=runs/indexes

An index of each kind of `export.search --vectors` is made and searched. Of a
BEIR folder nDCG@10 counts; a document is one passage, as in `tasks.retrieval`.
With --passages they are short random texts with random vectors of length 1, no
model is asked, and what counts is how often a query, a passage's vector with
noise (cosine 0.5), finds that passage first; --words has BM25 search their
words as well.

Queries are asked one by one, 10 answers each, all kinds in turns in one
process; the table has medians over turns, of queries/s and of their ratio to
float32.
The memory is the most that a process of its own had, which made the index and
searched it. MB are of all vectors, and what each search reads of them.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import pathlib
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.search import vectors as directions
from export import index as indexes
from export.index import Index
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.quantized import KINDS
from infoword_tf.evaluation.retrieval import RetrievalTask, beir_task, measure
from tasks import retrieval
from tasks.vectors import digest

TOP_K = 10
_VOCABULARY = 50_000  # of random texts, with the frequencies of Zipf's law


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    data_dir: str | None = flag(None, 'A BEIR folder.')
    passages: int | None = flag(
        None, 'So many random passages, instead of both.', at_least=1)
    width: int = flag(384, 'Numbers of a random vector.', at_least=1)
    length: int = flag(20, 'Words of a random passage.', at_least=1)
    words: bool = flag(False, 'Random passages are searched by words too.')
    queries: int = flag(50, 'Queries that are timed.', at_least=1)
    oversample: int = flag(
        indexes.OVERSAMPLE, 'As of export.search.', at_least=1)
    turns: int = flag(5, 'Turns of each kind.', at_least=1)
    seed: int = flag(0, 'Of random passages.', at_least=0)
    workdir: str | None = flag(None, 'Where the indexes are made and stay.')


# ---------------------------------------------------------- random passages


def random_passages(given: Choices) -> Iterator[indexes.Passage]:
    """Short texts, each with its number first."""
    for begin in range(0, given.passages, indexes.BLOCK):
        size = min(indexes.BLOCK, given.passages - begin)
        random = np.random.default_rng([given.seed, begin])
        words = random.zipf(1.3, [size, given.length]) % _VOCABULARY
        for number, row in enumerate(words.tolist(), begin):
            text = ' '.join(f'w{word}' for word in row)
            yield indexes.Passage(f'{number} {text}', str(number))


def random_vectors(
    given: Choices, texts: list[str], role: str | None = None
) -> np.ndarray:
    """Those of a block of `random_passages`, [n, D], by its first number."""
    del role
    begin = int(texts[0].split()[0])
    return directions(len(texts), given.width, given.seed + 1 + begin)


def random_queries(given: Choices) -> tuple[np.ndarray, np.ndarray]:
    """Passages that are looked for [Q], and their vectors with noise [Q, D]."""
    random = np.random.default_rng(given.seed)
    numbers = random.integers(given.passages, size=given.queries)
    asked = directions(given.queries, given.width, given.seed)
    for row, number in enumerate(numbers):
        begin = number // indexes.BLOCK * indexes.BLOCK
        size = min(indexes.BLOCK, given.passages - begin)
        block = random_vectors(given, [str(begin)] * size)
        asked[row] = 0.5 * block[number - begin] + 0.75**0.5 * asked[row]
    return numbers, asked


# --------------------------------------------------------------- a BEIR folder


def documents(given: Choices) -> Iterator[indexes.Passage]:
    """A folder's documents, each a passage, with its number as its source."""
    for number, text in beir_task(pathlib.Path(given.data_dir)).documents():
        yield indexes.Passage(text, str(number))


def known_vectors(
    index: Index, texts: list[str], role: str | None = None
) -> np.ndarray:
    """Those that an index of the same texts has, [n, D]."""
    del role
    rows = {p.text: row for row, p in enumerate(index.passages())}
    return index.vectors(np.array([rows[text] for text in texts]))


def ndcg(
    given: Choices, index: Index, task: RetrievalTask, queries: np.ndarray
) -> float:
    """nDCG@10 of what an index finds."""
    scores, rows = index.search(queries, TOP_K + 1, given.oversample)
    numbers = np.array([int(p.source) for p in index.passages()])
    found = np.where(rows < 0, -1, numbers[rows])
    return measure(task, (scores, found))['ndcg@10']


# -------------------------------------------------------------------- measured


def make(
    name: str, given: Choices, embed: retrieval.Encoder, model: str
) -> Index:
    """The index of a kind, in the folder of that name."""
    found = documents(given) if given.data_dir else random_passages(given)
    key = {
        'corpus': given.data_dir or 'random',
        'model': model,
        'vectors': name,
        'similarity': 'cosine',
    }
    return indexes.make(pathlib.Path(given.workdir) / name, key, found, embed)


def peaks(name: str, given: Choices, model: str) -> tuple[int, int | None]:
    """Makes the index of a kind and searches it, in a process of its own.

    Returns:
        Bytes of memory at most, without a model, and at most where it has
        searched by words as well.
    """
    embed = functools.partial(random_vectors, given)
    if given.data_dir:
        whole = Index.open(pathlib.Path(given.workdir) / 'float32')
        embed = functools.partial(known_vectors, whole)
    index = make(name, given, embed, model)
    queries = np.ones([1, index.width], np.float32)
    index.search(queries, TOP_K, given.oversample)
    peak, of_words = _peak(), None
    if given.words:
        index.words.search(['w1 w10 w100'], ranking.MERGED)
        of_words = _peak()
    return peak, of_words


def _peak() -> int:
    """Bytes of memory that this process had at most."""
    text = pathlib.Path('/proc/self/status').read_text()
    return 1024 * int(text.split('VmHWM:')[1].split()[0])


def timed(
    given: Choices, found: Mapping[str, Index], queries: np.ndarray
) -> dict[str, list[float]]:
    """Queries/s of each kind in each turn, asked one by one."""
    rates: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(1 + given.turns):
        for name, index in found.items():
            began = time.perf_counter()
            for query in queries:
                index.search(query[None], TOP_K, given.oversample)
            if turn:  # the first one warms up
                rates[name].append(
                    len(queries) / (time.perf_counter() - began)
                )
    return rates


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Makes all indexes, prints the table, and returns its numbers."""
    commands.require(vars(given), workdir='a folder for the indexes')
    beir = given.data_dir is not None
    if beir == (given.passages is not None) or beir != bool(given.model):
        raise commands.UsageError(
            'give --model and --data_dir, or --passages alone'
        )
    if given.words and beir:
        raise commands.UsageError('--words is for --passages; leave it out')
    workdir = pathlib.Path(given.workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    if beir:
        path = pathlib.Path(given.model)
        task, model = beir_task(pathlib.Path(given.data_dir)), digest(path)
        embed, _ = retrieval.exported(path, 32)
        make('float32', given, embed, model)  # what it has is not made again
        queries = embed(task.queries, 'query')
        measured, what = functools.partial(ndcg, given, task=task), 'nDCG@10'
    else:
        random = (given.seed, given.passages, given.width, given.length)
        model = f'random {random}'
        numbers, queries = random_queries(given)

        def measured(index: Index, queries: np.ndarray) -> float:
            _, found = index.search(queries, 1, TOP_K * given.oversample)
            return float((found[:, 0] == numbers).mean())

        what = 'found'

    rows: dict[str, dict[str, Any]] = {}
    found: dict[str, Index] = {}
    for name in KINDS:
        # What another process had would count as its own memory.
        with concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context('spawn')
        ) as one:
            peak, of_words = one.submit(peaks, name, given, model).result()
        found[name] = index = Index.open(workdir / name)
        rows[name] = {
            what: measured(index, queries=queries),
            'MB': index.size / 1e6,
            'MB read': index.scanned / 1e6,
            'peak MB': peak / 1e6,
        }
        if of_words is not None:
            rows[name]['with words'] = of_words / 1e6
    rates = timed(given, found, queries[: given.queries])
    for name, values in rates.items():
        ratios = [a / b for a, b in zip(values, rates['float32'], strict=True)]
        rows[name]['queries/s'] = statistics.median(values)
        rows[name]['x float32'] = statistics.median(ratios)
    print(table(len(index), index.width, rows))
    commands.record(workdir, rows)
    return rows


def table(
    size: int, width: int, rows: Mapping[str, Mapping[str, float]]
) -> str:
    """What was measured, for people: a line for each kind."""
    heads = list(rows['float32'])
    lines = [f'{size:,} passages, {width} numbers',
             ' ' * 8 + ''.join(f'{head:>12}' for head in heads)]  # fmt: skip
    for name, row in rows.items():
        figures = (
            f'{row[head]:>12.4f}' if row[head] <= 1 and not i
            else f'{row[head]:>12,.2f}' if row[head] < 10
            else f'{row[head]:>12,.1f}'
            for i, head in enumerate(heads)
        )  # fmt: skip
        lines.append(f'{name:<8}{"".join(figures)}')
    return '\n'.join(lines)


if __name__ == '__main__':
    commands.start(run, stopped='vectors that were made are kept')
