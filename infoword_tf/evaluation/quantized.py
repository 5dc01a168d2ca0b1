"""Vectors in fewer bytes, and how such are compared: NumPy alone.

    kind = KINDS['int8']
    arrays = kind.encode(vectors)  # what is kept, by name
    kind.scorer(queries, arrays)(slice(None))  # [Q, N]

`float32` keeps vectors as they are. `int8` keeps a byte a number, and what a
vector's largest number was: a step is that over 127, so a number is off by
half a step at most, whatever vectors are added later. `binary` keeps a bit a
number, its sign, and the bytes of `int8` beside it: bits are compared by how
many differ (Hamming), and the best of them by the product of the query with
the bytes. That is the second stage of Yamada et al. 2021 (arXiv:2106.00882),
whose own multiplies with the bits; bytes lose less, and only those of few
documents are read.

Glossary of shapes: Q queries, N documents, D width, W words of 64 bits.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

Arrays = Mapping[str, np.ndarray]
LEVELS = 127  # of int8, on either side of 0
FEW = 8  # queries that are multiplied one by one
_WORD = 64  # bits that are compared at once


class Part(NamedTuple):
    """An array of a kind of vectors.

    Attributes:
        dtype: of its numbers.
        width: D -> how many numbers it has a document.
    """

    dtype: type
    width: Callable[[int], int]


class Float32:
    """Vectors as they are."""

    parts = {'vectors': Part(np.float32, lambda width: width)}
    scanned = ('vectors',)  # parts that every search reads
    decoded = ('vectors',)  # parts that `decode` needs

    def encode(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """[N, D] float32 as the arrays that are kept, each [N, ...]."""
        return {'vectors': vectors}

    def decode(self, arrays: Arrays) -> np.ndarray:
        """Arrays as [N, D] float32."""
        return arrays['vectors']

    def scorer(
        self, queries: np.ndarray, arrays: Arrays
    ) -> Callable[[slice], np.ndarray]:
        """What gives the products [rows, N] of some of [Q, D]."""
        vectors = arrays['vectors']
        return lambda rows: products(queries[rows], vectors)


class Int8(Float32):
    """A byte a number, and a step a vector."""

    parts = {
        'codes': Part(np.int8, lambda width: width),
        'steps': Part(np.float32, lambda width: 1),
    }
    scanned = decoded = ('codes', 'steps')

    def encode(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """As of `Float32`; a vector of zeros has a step of 0."""
        steps = np.abs(vectors).max(axis=1, keepdims=True) / LEVELS  # [N, 1]
        # The smallest numbers have no inverse.
        steps = np.where(steps < np.finfo(np.float32).tiny, 0, steps)
        codes = np.rint(vectors / np.where(steps == 0, np.inf, steps))
        return {
            'codes': codes.clip(-LEVELS, LEVELS).astype(np.int8),
            'steps': steps.astype(np.float32),
        }

    def decode(self, arrays: Arrays) -> np.ndarray:
        """As of `Float32`, off by half a step at most."""
        return arrays['codes'].astype(np.float32) * arrays['steps']

    def scorer(
        self, queries: np.ndarray, arrays: Arrays
    ) -> Callable[[slice], np.ndarray]:
        """As of `Float32`, of the decoded: steps are multiplied last."""
        codes, steps = arrays['codes'], arrays['steps'][:, 0]

        def score(rows: slice) -> np.ndarray:
            # NumPy has no fast product of bytes. Made here, so that memory of
            # one block at a time is held, and taken again for the next.
            return products(queries[rows], codes.astype(np.float32)) * steps

        return score


class Binary(Int8):
    """A bit a number to search by, and `int8` for the best of them."""

    parts = {
        'bits': Part(np.uint8, lambda width: -(-width // _WORD) * _WORD // 8),
        **Int8.parts,
    }
    scanned = ('bits',)

    def encode(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """As of `Float32`."""
        return {'bits': pack(vectors), **super().encode(vectors)}

    def scorer(
        self, queries: np.ndarray, arrays: Arrays
    ) -> Callable[[slice], np.ndarray]:
        """What gives -1 for each bit that differs, summed: [rows, N] float32.

        `queries` may be shorter than the documents' vectors: the first bits
        of those count alone.
        """
        width = queries.shape[1]
        asked = pack(queries).view(np.uint64)  # [Q, W]
        words = np.ascontiguousarray(
            arrays['bits'].view(np.uint64)[:, : asked.shape[1]].T
        )  # [W, N]
        if width % _WORD:
            words[-1] &= pack(np.ones([1, width])).view(np.uint64)[0, -1]

        def score(rows: slice) -> np.ndarray:
            differing = sum(
                np.bitwise_count(asked[rows, word, None] ^ words[word])
                .astype(np.int32)
                for word in range(len(words))
            )  # fmt: skip
            return -differing.astype(np.float32)

        return score


def products(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """[Q, N], of [Q, D] and [N, D] float32."""
    if len(queries) > FEW:
        return queries @ vectors.T
    # A product of matrices has threads, which wait for each other in every
    # block: where others use the processors too, longer than it takes.
    return np.vecdot(queries[:, None], vectors)


def pack(vectors: np.ndarray) -> np.ndarray:
    """Whether numbers are above 0: [N, D] -> [N, 8 W] uint8, filled with 0."""
    bits = np.packbits(vectors > 0, axis=1)
    lacking = -bits.shape[1] % (_WORD // 8)
    return np.pad(bits, [(0, 0), (0, lacking)]) if lacking else bits


KINDS = {'float32': Float32(), 'int8': Int8(), 'binary': Binary()}
