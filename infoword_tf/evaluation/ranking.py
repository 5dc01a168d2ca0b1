"""Exact search by any critic, and measures of rankings, without TensorFlow.

Documents are numbers here. Of two documents with equal scores the larger number
comes first: numbered in the order of their ids, documents are ordered as in
trec_eval, by score, then by id, both descending.

Glossary of shapes: Q queries, C documents of a block, k best.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from infoword_tf import errors
from infoword_tf.critics.texts import (
    Texts,
    Tokens,
    late_scores,
    numbers_of,
)

MEASURES = ('ndcg@10', 'recall@100', 'map', 'mrr@10', 'recall@10')
MERGED = 100  # the best of each search that `merge` sums
SHARE = 0.5  # of words in `hybrid`, see docs/serving.md
QUERIES = 512  # compared with a block at a time: bounds the memory
Scorer = Callable[[slice], np.ndarray]
# Weights of a vector's first numbers: different sums show, nearly always, that
# vectors differ.
_WEIGHTS = np.random.default_rng(0).integers(1, 2**63, 16, np.uint64) | 1


# -------------------------------------------------------------------- search


class Best:
    """The k best documents of every query among the blocks added so far."""

    def __init__(self, queries: int, top_k: int):
        """Starts without documents, for Q queries and the k best."""
        # Score and number in one integer: no two keys are equal, so ties do not
        # depend on the order or the size of blocks. 0, less than every key, is
        # no document.
        self._keys = np.zeros([queries, top_k], np.uint64)

    def add(
        self, queries: slice, scores: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Adds a block of documents for a slice of queries.

        Args:
            queries: the slice.
            scores: [queries, C] float32; -inf: no result of this query.
            numbers: [C] below 2 ** 32, each added only once to a query.
        """
        numbers = np.asarray(numbers).astype(np.uint64)
        scores, numbers = self._promising(queries, scores, numbers)
        keys = _ordered(scores).astype(np.uint64) << np.uint64(32)
        keys |= numbers
        keys[scores == -np.inf] = 0
        top_k = self._keys.shape[1]
        keys = np.concatenate([self._keys[queries], keys], axis=1)
        keys.partition(keys.shape[1] - top_k, axis=1)
        self._keys[queries] = keys[:, -top_k:]

    def _promising(
        self, queries: slice, scores: np.ndarray, numbers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Drops documents below the k best so far, if more than half can go.

        Partitioning whole blocks would take longer than the products.
        """
        least = self._keys[queries].min(axis=1)
        floor = _unordered((least >> np.uint64(32)).astype(np.uint32))
        above = scores >= np.where(least == 0, -np.inf, floor)[:, None]
        counts = above.sum(axis=1)
        most = int(counts.max(initial=0))
        if 2 * most > scores.shape[1]:
            return scores, numbers
        query, column = np.nonzero(above)
        place = np.arange(len(query)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        best_scores = np.full((len(scores), most), -np.inf, np.float32)
        best_scores[query, place] = scores[query, column]
        best_numbers = np.zeros((len(scores), most), np.uint64)
        best_numbers[query, place] = numbers[column]
        return best_scores, best_numbers

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best documents, in order.

        Returns:
            scores [Q, k] float32 and numbers [Q, k] int64; -inf and -1 beyond
            the last result.
        """
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        scores = _unordered((keys >> np.uint64(32)).astype(np.uint32))
        numbers = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        none = keys == 0
        return np.where(none, -np.inf, scores), np.where(none, -1, numbers)


def _ordered(scores: np.ndarray) -> np.ndarray:
    """Maps float32 to uint32 of the same order."""
    # Positive floats are ordered like their bits, negative ones the other way
    # round. Adding 0 makes one of -0 and 0.
    bits = (np.asarray(scores, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _unordered(order: np.ndarray) -> np.ndarray:
    bits = np.where(order >> 31, order & np.uint32((1 << 31) - 1), ~order)
    return bits.view(np.float32)


def search(
    queries: Texts,
    blocks: Iterable[tuple[np.ndarray, Texts]],
    top_k: int,
    similarity: str = 'cosine',
    seconds: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compares every query with every document.

    Args:
        queries: Q texts of a critic, see critics/texts.py.
        blocks: pairs (numbers [C], C texts of the same critic), held one at a
            time.
        top_k: k.
        similarity: comparison of vectors: `cosine` or `dot`. The cosine with a
            vector of zeros is 0.
        seconds: time of each of the first queries; what a query takes alone is
            added.

    Returns:
        See `Best.sorted`.

    Raises:
        ValueError: a vector holds NaN or infinity.
    """
    queries = prepared(queries, similarity)

    def scorer(compare: Callable[[Texts], np.ndarray]) -> Scorer:
        return lambda part: compare(queries[part])

    def scorers() -> Iterator[tuple[np.ndarray, Scorer]]:
        for numbers, texts in blocks:
            compare = comparer(prepared(texts, similarity))
            if seconds is not None:
                for query in range(len(seconds)):
                    begin = time.perf_counter()
                    compare(queries[query : query + 1])
                    seconds[query] += time.perf_counter() - begin
            yield numbers, scorer(compare)

    return scan(queries.shape[0], scorers(), top_k)


def rescore(
    queries: Texts,
    blocks: Iterable[tuple[np.ndarray, Texts]],
    candidates: np.ndarray,
    similarity: str = 'cosine',
    seconds: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compares every query with candidates alone; args as of `search`.

    Args:
        candidates: [Q, k] numbers of documents, -1: none. Those that no block
            has are no result.
    """
    queries = prepared(queries, similarity)
    best = Best(*candidates.shape)
    for numbers, texts in blocks:
        texts, order = prepared(texts, similarity), np.argsort(numbers)
        is_here = np.isin(candidates, numbers)
        for query in np.flatnonzero(is_here.any(axis=1)).tolist():
            begin, part = time.perf_counter(), slice(query, query + 1)
            chosen = candidates[query, is_here[query]]
            places = order[np.searchsorted(numbers, chosen, sorter=order)]
            best.add(part, comparer(texts[places])(queries[part]), chosen)
            if seconds is not None and query < len(seconds):
                seconds[query] += time.perf_counter() - begin
    return best.sorted()


def comparer(texts: Texts) -> Callable[[Texts], np.ndarray]:
    """Returns a function: Q queries -> scores [Q, C] with all texts.

    Equal texts get equal scores: a product of matrices may round each column
    differently, so it has one column for each distinct text.

    Args:
        texts: texts as of `prepared`, like the queries.
    """
    if hasattr(texts, 'indptr'):
        inverted = texts.T.tocsr()  # a list of texts for each token
        return lambda queries: (queries @ inverted).toarray()
    is_late = isinstance(texts, Tokens)
    place = _first_equal(texts, texts.sums() if is_late else texts)
    column: slice | np.ndarray = slice(None)
    if place is not None:
        firsts, column = np.unique(place, return_inverse=True)
        texts = texts[firsts]
    if is_late:
        return lambda queries: late_scores(queries, texts)[:, column]
    return lambda queries: (queries @ texts.T)[:, column]


def _first_equal(texts: Texts, vectors: np.ndarray) -> np.ndarray | None:
    """Returns the first equal text of each of C, [C]; None: all differ.

    `vectors` [C, D] are equal for equal texts.
    """
    bits = np.ascontiguousarray(vectors[:, : len(_WEIGHTS)]).view(np.uint32)
    keys = (bits * _WEIGHTS[: bits.shape[1]]).sum(axis=1, dtype=np.uint64)
    _, which, counts = np.unique(
        keys, return_inverse=True, return_counts=True
    )
    if len(counts) == len(keys):
        return None
    place = np.arange(len(keys))
    seen: dict[bytes, int] = {}
    for i in np.flatnonzero(counts[which] > 1).tolist():
        place[i] = seen.setdefault(numbers_of(texts[i : i + 1]).tobytes(), i)
    return place


def scan(
    queries: int, blocks: Iterable[tuple[np.ndarray, Scorer]], top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the best documents of blocks, which come with a scorer each.

    Args:
        queries: Q.
        blocks: pairs (numbers [C], function: slice of queries -> scores
            [queries, C] float32), held one at a time.
        top_k: k.

    Returns:
        See `Best.sorted`.
    """
    best = Best(queries, top_k)
    for numbers, score in blocks:
        for begin in range(0, queries, QUERIES):
            part = slice(begin, min(begin + QUERIES, queries))
            best.add(part, score(part), numbers)
    return best.sorted()


def finite(vectors: np.ndarray, dtype: type) -> np.ndarray:
    """Returns vectors [n, D] in a dtype; InputError for NaN and infinity."""
    vectors = np.asarray(vectors, dtype)
    if not np.isfinite(vectors).all():
        raise errors.InputError(
            'vectors_not_finite', 'the encoder made vectors that are not finite'
        )
    return vectors


def prepared(texts: Texts, similarity: str) -> Texts:
    """Returns texts whose products are similarities, or raises.

    `similarity` is that of vectors, which become float32 [n, D].
    """
    if similarity not in ('cosine', 'dot'):
        raise errors.InputError(
            'unknown_similarity',
            f'similarity {similarity!r} is neither cosine nor dot',
        )
    if isinstance(texts, Tokens) or hasattr(texts, 'indptr'):
        finite(numbers_of(texts), np.float32)
        return texts
    vectors = finite(texts, np.float32)
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

    The scores of the MERGED best of a search get mean 0 and deviation 1, so
    that neither scale nor number of documents matters; other documents get the
    lowest of them.

    Args:
        rankings: results of each search, as of `Best.sorted`, MERGED or more. A
            score without a document counts in mean and deviation.
        top_k: k.
        weights: weight of each search in the sum; None: 1.

    Returns:
        Scores and numbers of the sums, as of `Best.sorted`.
    """
    if weights is None:
        weights = [1.0] * len(rankings)
    queries = len(rankings[0][0])
    best = Best(queries, top_k)
    for query in range(queries):
        all_numbers = [numbers[query, :MERGED] for _, numbers in rankings]
        merged = np.unique(np.concatenate(all_numbers))
        merged = merged[merged >= 0]
        sums = np.zeros(len(merged))
        searches = zip(weights, rankings, all_numbers, strict=True)
        for weight, (scores, _), numbers in searches:
            scores = scores[query, :MERGED]
            scores = weight * _standardised(scores[scores > -np.inf])
            place = np.searchsorted(merged, numbers[numbers >= 0])
            if scores.size:
                summed = np.full(len(merged), scores[-1])
                summed[place] = scores[: len(place)]
                sums += summed
        part = slice(query, query + 1)
        best.add(part, sums[None].astype(np.float32), merged)
    return best.sorted()


def hybrid(
    vectors: tuple[np.ndarray, np.ndarray],
    words: tuple[np.ndarray, np.ndarray],
    top_k: int,
    share: float = SHARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Merges a search by vectors with one by words.

    A document that has no word of the query has the score 0, so a search by
    words that finds fewer documents than that by vectors gets as many scores.

    Args:
        vectors, words: results of each search, with as many columns, see
            `merge`.
        top_k: k.
        share: weight of words; at 0.5 each search has the weight 1.
    """
    scores, numbers = words
    lacking = (numbers < 0) & (vectors[1] >= 0)
    words = np.where(lacking, 0, scores), numbers
    return merge([vectors, words], top_k, [2 * (1 - share), 2 * share])


def _standardised(scores: np.ndarray) -> np.ndarray:
    """Scales [n] to float64 of mean 0 and deviation 1; equal scores to 0."""
    if not scores.size:
        return scores.astype(np.float64)
    scores = scores - scores.mean(dtype=np.float64)
    return scores / max(scores.std(), 1e-12)


# ------------------------------------------------------------------ measures


def evaluate(
    rankings: Sequence[Sequence[int]],
    relevance: Sequence[Mapping[int, int]],
) -> dict[str, float]:
    """Computes means over all queries, like trec_eval.

    A query without results, or without a relevant document (every judged
    document has grade 0), counts as 0.

    Args:
        rankings: documents of each query, the best first.
        relevance: document -> grade of each query. Relevant is a grade of 1 or
            more; documents that were not judged have grade 0.

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
    """Computes the measures of one query; arguments as of `evaluate`.

    nDCG's gain is the grade itself, discounted by log2(rank + 1), as in
    trec_eval's `ndcg_cut` (Jaervelin & Kekaelaeinen 2002 with that discount),
    and not 2 ** grade - 1. `map` is over the whole ranking. `mrr@10` is 0 if
    none of the first ten is relevant.
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
