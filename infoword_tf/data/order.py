"""The order in which text is visited: a shuffle without memory."""

import math

import numpy as np


def shuffled(places: np.ndarray, size: int, *key: int) -> np.ndarray:
    """Places [B] int64 of range(size) to where a permutation sends them, which
    is pseudo-random by `key`.

    Nothing of the size of the corpus is stored: a Feistel network over the
    next power of four, walked until it lands inside (Black and Rogaway 2002).
    """
    half = max(1, math.ceil(math.log2(max(size, 2)) / 2))
    mask = np.uint64((1 << half) - 1)
    rounds = np.random.default_rng(list(key)).integers(
        0, 2**63, 4, dtype=np.uint64
    )

    def permute(x: np.ndarray) -> np.ndarray:
        left, right = x >> np.uint64(half), x & mask
        for salt in rounds:
            mixed = (right + salt) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << np.uint64(half)) | right

    x = permute(np.asarray(places, np.uint64))
    while (outside := x >= size).any():
        x[outside] = permute(x[outside])
    return x.astype(np.int64)


def visited(visits: np.ndarray, size: int, seed: int, salt: int) -> np.ndarray:
    """[B] int64: which of range(size) each visit is to.

    Epoch e, visits e size to (e + 1) size - 1, goes through all of them in a
    permutation of its own.
    """
    items = np.empty(len(visits), np.int64)
    epochs = visits // size
    for epoch in np.unique(epochs):
        here = epochs == epoch
        items[here] = shuffled(
            visits[here] % size, size, seed, int(epoch), salt
        )
    return items
