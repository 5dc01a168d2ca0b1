"""Exact search by vectors, and how good a ranking is: NumPy alone.

Documents are numbers here. Of two documents with one score the larger number
comes first, so whoever numbers them in the order of their ids gets the order
of trec_eval: by score, then by id, both descending.

Glossary of shapes: Q queries, N documents of a block, D width, K best.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

MEASURES = ('ndcg@10', 'recall@100', 'map', 'mrr@10', 'recall@10')
MERGED = 100  # the best of each search that `merge` looks at
ROWS = 512  # queries compared with a block at a time: bounds the memory
Scorer = Callable[[slice], np.ndarray]
# Of the first numbers of a row, whose weighted sum says most often that it
# differs from all others.
_WEIGHTS = np.random.default_rng(0).integers(1, 2**63, 16, np.uint64) | 1


# -------------------------------------------------------------------- search


class Best:
    """The K best documents of every query among those seen so far."""

    def __init__(self, queries: int, top_k: int):
        """Begins with nothing seen of Q queries, whose K best are wanted."""
        # Score and number in one integer: no two keys are equal, so what is
        # kept at a tie does not depend on the order or the size of blocks.
        # 0 is less than every key: nothing.
        self._keys = np.zeros([queries, top_k], np.uint64)

    def add(
        self, rows: slice, scores: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Shows a block of documents to some queries.

        Args:
            rows: which queries.
            scores: [rows, N] float32; -inf: no result of this query.
            numbers: [N] below 2 ** 32, each shown only once to a query.
        """
        numbers = np.asarray(numbers).astype(np.uint64)
        scores, numbers = self._promising(rows, scores, numbers)
        keys = _ordered(scores).astype(np.uint64) << np.uint64(32)
        keys |= numbers
        keys[scores == -np.inf] = 0
        top_k = self._keys.shape[1]
        keys = np.concatenate([self._keys[rows], keys], axis=1)
        keys.partition(keys.shape[1] - top_k, axis=1)
        self._keys[rows] = keys[:, -top_k:]

    def _promising(
        self, rows: slice, scores: np.ndarray, numbers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Without what is below all that a query keeps, where that is most.

        Partitioning whole blocks would take longer than the products.
        """
        least = self._keys[rows].min(axis=1)
        floor = _unordered((least >> np.uint64(32)).astype(np.uint32))
        above = scores >= np.where(least == 0, -np.inf, floor)[:, None]
        counts = above.sum(axis=1)
        most = int(counts.max(initial=0))
        if 2 * most > scores.shape[1]:
            return scores, numbers
        row, column = np.nonzero(above)
        place = np.arange(len(row)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        some = np.full((len(scores), most), -np.inf, np.float32)
        some[row, place] = scores[row, column]
        named = np.zeros((len(scores), most), np.uint64)
        named[row, place] = numbers[column]
        return some, named

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """The best of all that was seen, in order.

        Returns:
            scores [Q, K] float32 and numbers [Q, K] int64; -inf and -1 where
            there were fewer than K results.
        """
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        scores = _unordered((keys >> np.uint64(32)).astype(np.uint32))
        numbers = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        none = keys == 0
        return np.where(none, -np.inf, scores), np.where(none, -1, numbers)


def _ordered(scores: np.ndarray) -> np.ndarray:
    """float32 -> uint32 of the same order."""
    # Positive floats are ordered like their bits, negative ones the other way
    # round. Adding 0 makes one of -0 and 0.
    bits = (np.asarray(scores, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _unordered(order: np.ndarray) -> np.ndarray:
    bits = np.where(order >> 31, order & np.uint32((1 << 31) - 1), ~order)
    return bits.view(np.float32)


def search(
    queries: np.ndarray,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    top_k: int,
    similarity: str = 'cosine',
) -> tuple[np.ndarray, np.ndarray]:
    """Compares every query with every document; as of `Best.sorted`.

    Equal vectors of a block have equal scores: a product of matrices may round
    each of its columns in another way, so it has one for each that differs.

    Args:
        queries: [Q, D] float32.
        blocks: of (numbers [N], vectors [N, D] float32), held one at a time.
        top_k: K.
        similarity: `cosine` or `dot`. The cosine with a vector of zeros is 0.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    queries = prepared(queries, similarity)

    def scorers() -> Iterator[tuple[np.ndarray, Scorer]]:
        for numbers, vectors in blocks:
            vectors = prepared(vectors, similarity)
            place = _first_equal(vectors)
            if place is None:
                yield numbers, lambda rows, v=vectors: queries[rows] @ v.T
                continue
            firsts, column = np.unique(place, return_inverse=True)
            yield numbers, lambda rows, v=vectors[firsts], c=column: (
                queries[rows] @ v.T
            )[:, c]

    return scan(len(queries), scorers(), top_k)


def _first_equal(vectors: np.ndarray) -> np.ndarray | None:
    """[N] int64: of [N, D] float32 the first row that each is equal to; None:
    all differ.
    """
    some = np.ascontiguousarray(vectors[:, : len(_WEIGHTS)]).view(np.uint32)
    keys = (some * _WEIGHTS[: some.shape[1]]).sum(axis=1, dtype=np.uint64)
    _, which, counts = np.unique(
        keys, return_inverse=True, return_counts=True
    )
    if len(counts) == len(keys):
        return None
    place, seen = np.arange(len(keys)), {}
    for row in np.flatnonzero(counts[which] > 1).tolist():
        place[row] = seen.setdefault(vectors[row].tobytes(), row)
    return place


def scan(
    queries: int, blocks: Iterable[tuple[np.ndarray, Scorer]], top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best of blocks that are scored in their own way.

    Args:
        queries: Q.
        blocks: of (numbers [N], what gives scores [rows, N] float32 of some
            queries), held one at a time.
        top_k: K.

    Returns:
        As of `Best.sorted`.
    """
    best = Best(queries, top_k)
    for numbers, score in blocks:
        for begin in range(0, queries, ROWS):
            rows = slice(begin, min(begin + ROWS, queries))
            best.add(rows, score(rows), numbers)
    return best.sorted()


def prepared(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """[n, D] float32 whose products are similarities; errors of `search`."""
    if similarity not in ('cosine', 'dot'):
        raise ValueError(f'similarity {similarity!r} is neither cosine nor dot')
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise ValueError('the encoder made vectors that are not finite')
    if similarity == 'cosine':
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
    return vectors


def merge(
    rankings: Sequence[tuple[np.ndarray, np.ndarray]],
    top_k: int,
    weights: Sequence[float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums the scores of several searches, each standardised by query.

    The scores of the MERGED best of a search are brought to mean 0 and
    deviation 1, so that no scale counts, nor how many documents there are; a
    document that is not among them has their mean.

    Args:
        rankings: of each search, as of `Best.sorted`, MERGED or more.
        top_k: K.
        weights: of each search in the sum; None: 1.

    Returns:
        The same of the sums.
    """
    if weights is None:
        weights = [1.0] * len(rankings)
    queries = len(rankings[0][0])
    best = Best(queries, top_k)
    for row in range(queries):
        found, scores = [], []
        for weight, (all_scores, numbers) in zip(
            weights, rankings, strict=True
        ):
            real = np.nonzero(numbers[row] >= 0)[0][:MERGED]
            found.append(numbers[row][real])
            scores.append(weight * _standardised(all_scores[row][real]))
        merged, place = np.unique(np.concatenate(found), return_inverse=True)
        sums = np.bincount(place, np.concatenate(scores), len(merged))
        best.add(slice(row, row + 1), sums[None].astype(np.float32), merged)
    return best.sorted()


def _standardised(scores: np.ndarray) -> np.ndarray:
    """[n] -> [n] float64 of mean 0 and deviation 1; equal scores are 0."""
    if not scores.size:
        return scores.astype(np.float64)
    scores = scores - scores.mean(dtype=np.float64)
    return scores / max(scores.std(), 1e-12)


# ------------------------------------------------------------------ measures


def evaluate(
    rankings: Sequence[Sequence[int]],
    relevance: Sequence[Mapping[int, int]],
) -> dict[str, float]:
    """Means over all queries, as trec_eval computes them.

    Every query counts: one without results, or for which nothing is relevant
    (every judged document has grade 0), counts as 0.

    Args:
        rankings: for each query its documents, the best first.
        relevance: for each query document -> grade. Relevant is a grade of 1
            or more; what was not judged has grade 0.

    Returns:
        MEASURES, in shares of 1, rounded to 5 places as BEIR does.
    """
    scores = [measure(*pair) for pair in zip(rankings, relevance, strict=True)]
    return {
        name: round(math.fsum(f[name] for f in scores) / len(scores), 5)
        for name in MEASURES
    }


def measure(
    ranking: Sequence[int], grades: Mapping[int, int]
) -> dict[str, float]:
    """The measures of one query.

    nDCG's gain is the grade itself, discounted by log2(rank + 1), as in
    trec_eval's `ndcg_cut` (Jaervelin & Kekaelaeinen 2002 with that discount),
    and not 2 ** grade - 1. `map` is over the whole ranking. `mrr@10` is 0
    where the first ten hold nothing relevant. Arguments are as in `evaluate`.
    """
    ideal = sorted((g for g in grades.values() if g > 0), reverse=True)
    if not ideal:
        return dict.fromkeys(MEASURES, 0.0)
    gains = [max(0, grades.get(number, 0)) for number in ranking]
    ranks = [rank for rank, gain in enumerate(gains, 1) if gain]  # relevant

    def recall(cut: int) -> float:
        return sum(rank <= cut for rank in ranks) / len(ideal)

    precisions = (hits / rank for hits, rank in enumerate(ranks, 1))
    return {
        'ndcg@10': _discounted(gains[:10]) / _discounted(ideal[:10]),
        'recall@100': recall(100),
        'map': math.fsum(precisions) / len(ideal),
        'mrr@10': 1 / ranks[0] if ranks and ranks[0] <= 10 else 0.0,
        'recall@10': recall(10),
    }


def _discounted(gains: Iterable[int]) -> float:
    return sum(g / math.log2(rank + 1) for rank, g in enumerate(gains, 1))
