"""Codes of token vectors: a centroid, and 2 bits a number.

As of Santhanam et al. 2022, "ColBERTv2", §3.3: centroids are found by k-means
among the vectors of some passages; what a number differs from its centroid is
rounded to one of four values, quantiles of all differences.

Glossary of shapes: m vectors, W width, C centroids.
"""

from typing import NamedTuple

import numpy as np

ROUNDS = 8  # of k-means
BLOCK = 4096  # vectors that are compared with all centroids at once
_PLACES = np.array([1, 4, 16, 64], np.uint8)  # of four codes in a byte


class Residual(NamedTuple):
    """Centroids, and values of differences.

    Attributes:
        centroids: [C, W] float32, C at most 2 ** 16.
        ends: [3] float32, between the four values.
        values: [4] float32.
    """

    centroids: np.ndarray
    ends: np.ndarray
    values: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray) -> 'Residual':
        """Fits codes to vectors [m, W] of length 1, m > 0."""
        size = centroids_of(len(vectors))
        places = np.linspace(0, len(vectors) - 1, size, dtype=int)
        centroids = vectors[places]
        for _ in range(ROUNDS):
            nearest = _nearest(vectors, centroids)
            order = np.argsort(nearest, kind='stable')
            full, begins = np.unique(nearest[order], return_index=True)
            sums = np.add.reduceat(vectors[order], begins)
            norms = np.linalg.norm(sums, axis=1, keepdims=True)
            centroids = centroids.copy()  # those of no vector stay
            centroids[full] = sums / np.maximum(norms, 1e-12)
        rest = vectors - centroids[_nearest(vectors, centroids)]
        quantiles = np.quantile(rest, np.arange(1, 8) / 8).astype(np.float32)
        return cls(centroids, quantiles[1::2], quantiles[::2])

    @classmethod
    def of_bytes(cls, data: bytes) -> 'Residual':
        """Inverts `to_bytes`."""
        width = int.from_bytes(data[:4], 'little')
        numbers = np.frombuffer(data, np.float32, offset=4)
        return cls(numbers[7:].reshape(-1, width), numbers[:3], numbers[3:7])

    def to_bytes(self) -> bytes:
        """Returns W and all numbers."""
        width = self.centroids.shape[1].to_bytes(4, 'little')
        arrays = self.ends, self.values, self.centroids
        return width + b''.join(x.tobytes() for x in arrays)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Encodes vectors [m, W] in rows of 2 + W / 4 bytes, uint8."""
        nearest = _nearest(vectors, self.centroids)
        codes = np.searchsorted(self.ends, vectors - self.centroids[nearest])
        codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 4)))
        shape = len(codes), codes.shape[1] // 4, 4
        codes = codes.reshape(shape).astype(np.uint8)
        packed = (codes * _PLACES).sum(axis=2, dtype=np.uint8)
        numbers = nearest.astype('<u2')[:, None].view(np.uint8)
        return np.hstack([numbers, packed])

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Decodes rows to vectors [m, W] float32 of length 1."""
        nearest = np.ascontiguousarray(rows[:, :2]).view('<u2')[:, 0]
        codes = rows[:, 2:, None] // _PLACES % 4
        width = self.centroids.shape[1]
        codes = codes.reshape(len(rows), 4 * codes.shape[1])
        rest = self.values[codes[:, :width]]
        vectors = self.centroids[nearest] + rest
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(norms, 1e-12)


def centroids_of(vectors: int) -> int:
    """Returns C of m vectors: 16 sqrt(m), a power of two, at most m / 4."""
    size = min(16 * vectors**0.5, vectors / 4, 2**16)
    return 2 ** int(np.log2(max(size, 1)))


def _nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Returns the number of the nearest centroid of each vector, [m]."""
    nearest = np.empty(len(vectors), np.int64)
    for begin in range(0, len(vectors), BLOCK):
        part = slice(begin, begin + BLOCK)
        nearest[part] = np.argmax(vectors[part] @ centroids.T, axis=1)
    return nearest
