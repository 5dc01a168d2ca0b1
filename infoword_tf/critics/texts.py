"""Texts as searches compare them, in NumPy and SciPy.

    texts               of the critic    compared by
    vectors [n, D]      cosine           cosine, or product
    `Tokens`            late             `late_scores`
    csr_array [n, V]    lexical          product

All three have `shape`, are indexed by numbers of texts, and hold float32.

Glossary of shapes: n texts, S tokens of all texts, W width of a token's vector,
Q texts a, C texts b.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Texts = Any  # vectors [n, D], Tokens or csr_array [n, V]
# Tokens of a and of b that are compared at once: 16 MiB of products.
TOKENS_A, TOKENS_B = 512, 8192


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Numbers of each token of texts, one text after the other.

    Attributes:
        vectors: [S, W] float32.
        sizes: [n] int64, tokens of each text.
    """

    vectors: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[np.ndarray]) -> 'Tokens':
        """Joins the vectors of n > 0 texts, each [t, W]."""
        sizes = np.array([len(text) for text in texts], np.int64)
        return cls(np.concatenate(texts), sizes)

    @classmethod
    def of_weights(cls, weights: Any) -> 'Tokens':
        """Converts csr_array [n, V]: ids and weights other than 0, W = 2."""
        pairs = np.stack([weights.indices, weights.data], axis=1)
        sizes = np.diff(weights.indptr).astype(np.int64)
        return cls(pairs.astype(np.float32), sizes)

    def weights(self, size: int) -> Any:
        """Inverts `of_weights` with V = `size`."""
        from scipy import sparse

        ids, weights = self.vectors.T
        splits = np.append(0, self.ends).astype(np.int32)
        return sparse.csr_array(
            (np.ascontiguousarray(weights), ids.astype(np.int32), splits),
            shape=(len(self.sizes), size),
        )

    @property
    def ends(self) -> np.ndarray:
        """Ends of texts in `vectors`, [n]."""
        return np.cumsum(self.sizes)

    @property
    def shape(self) -> tuple[int, int]:
        """n and W."""
        return len(self.sizes), self.vectors.shape[1]

    def __getitem__(self, texts: Any) -> 'Tokens':
        """Selects texts by a slice or by numbers."""
        sizes = self.sizes[texts]
        shifts = (self.ends - self.sizes)[texts] - (np.cumsum(sizes) - sizes)
        places = np.arange(sizes.sum()) + np.repeat(shifts, sizes)
        return Tokens(self.vectors[places], sizes)

    def replaced(self, vectors: np.ndarray) -> 'Tokens':
        """Returns texts of as many tokens with other numbers [S, W]."""
        return Tokens(vectors, self.sizes)

    def sums(self) -> np.ndarray:
        """Sums the vectors of each text: [n, W]; 0 without tokens."""
        totals = np.zeros(self.shape, np.float32)
        full = np.flatnonzero(self.sizes)
        if len(full):
            begins = (self.ends - self.sizes)[full]
            totals[full] = np.add.reduceat(self.vectors, begins)
        return totals


def numbers_of(texts: Texts) -> np.ndarray:
    """Returns all numbers of texts that may be no numbers."""
    if isinstance(texts, Tokens):
        return texts.vectors
    return texts.data if hasattr(texts, 'indptr') else texts


def nbytes(texts: Texts) -> int:
    """Returns the bytes of texts: numbers, and ids of 4 bytes of weights."""
    ids = texts.indices.size if hasattr(texts, 'indptr') else 0
    return numbers_of(texts).nbytes + 4 * ids


def flat(texts: Texts) -> Texts:
    """Converts weights to `Tokens`, which can be stored in rows."""
    return Tokens.of_weights(texts) if hasattr(texts, 'indptr') else texts


def restored(texts: Texts, queries: Texts) -> Texts:
    """Inverts `flat` of texts that are compared with queries."""
    if hasattr(queries, 'indptr'):
        return texts.weights(queries.shape[1])
    return texts


def late_scores(a: Tokens, b: Tokens) -> np.ndarray:
    """Sums over tokens of a the largest product with a token of b.

    As layers.late, without padding, TensorFlow and gradient. Of the products of
    all tokens those of TOKENS_A and TOKENS_B are held, or of one text each.

    Returns:
        [Q, C] float32; 0 where a or b has no token.
    """
    scores = np.zeros((len(a.sizes), len(b.sizes)), np.float32)
    for texts_b, begins_b, vectors_b in _parts(b, TOKENS_B):
        for texts_a, begins_a, vectors_a in _parts(a, TOKENS_A):
            products = vectors_a @ vectors_b.T
            best = np.maximum.reduceat(products, begins_b, axis=1)
            sums = np.add.reduceat(best, begins_a, axis=0)
            scores[np.ix_(texts_a, texts_b)] = sums
    return scores


def _parts(
    texts: Tokens, most: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields texts that have tokens, of at most so many tokens, or one text.

    Yields:
        Their numbers, where each begins, and vectors.
    """
    full = np.flatnonzero(texts.sizes)
    ends = texts.ends[full]
    done = 0
    while done < len(full):
        begin = ends[done] - texts.sizes[full[done]]
        upto = np.searchsorted(ends, begin + most, 'right')
        part = slice(done, max(done + 1, int(upto)))
        begins = (ends - texts.sizes[full])[part] - begin
        yield full[part], begins, texts.vectors[begin : ends[part][-1]]
        done = part.stop


def averaged(queries: Tokens) -> Tokens:
    """Divides vectors by the tokens of a text: scores become means."""
    divisors = np.repeat(queries.sizes, queries.sizes)[:, None]
    return queries.replaced(queries.vectors / np.float32(divisors))
