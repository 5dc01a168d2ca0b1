"""The held-out part of `pydocs`: documents that training shows nowhere else.

Near-duplicates are found by their shingles, runs of consecutive words.
Glossary of shapes: C candidates, S shingles, W words of all documents.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data.documents import Document, hash_bucket

HELDOUT_IN = 20  # one document in so many is a candidate
SHINGLE = 8  # words
MAX_SHARED = 0.2  # of a candidate's shingles; from here on it is dropped


class HeldoutSplit(NamedTuple):
    """Documents to train on, held-out ones, and how many are neither."""

    train: list[Document]
    heldout: list[Document]
    dropped: int


def split_heldout(corpus: Sequence[Document]) -> HeldoutSplit:
    """Holds out documents that training does not show elsewhere.

    One document in 20 is a candidate, by the hash of its text. Docstrings are
    copied between classes and packages, so a candidate is dropped, neither
    trained on nor held out, when 20 % or more of its distinct shingles (8
    consecutive words, lower case) occur in a training document or in another
    candidate.
    """
    train, candidates = [], []
    for document in corpus:
        bucket = hash_bucket(document.text, HELDOUT_IN)
        (train if bucket else candidates).append(document)
    shared = _shared(train, candidates)
    heldout = [
        document
        for document, share in zip(candidates, shared, strict=True)
        if share < MAX_SHARED
    ]
    return HeldoutSplit(train, heldout, len(candidates) - len(heldout))


def _shared(
    train: Sequence[Document], candidates: Sequence[Document]
) -> np.ndarray:
    """The share [C] of each candidate's distinct shingles seen elsewhere."""
    shingles, owners = _shingles([*candidates, *train])
    in_train = owners >= len(candidates)
    seen = np.unique(shingles[in_train])
    # Distinct within a candidate: sort by owner, then shingle.
    shingles, owners = shingles[~in_train], owners[~in_train]
    order = np.lexsort((shingles, owners))
    shingles, owners = shingles[order], owners[order]
    distinct = np.ones(len(owners), bool)
    distinct[1:] = (np.diff(owners) != 0) | (shingles[1:] != shingles[:-1])
    shingles, owners = shingles[distinct], owners[distinct]
    _, inverse, counts = np.unique(
        shingles, return_inverse=True, return_counts=True
    )
    elsewhere = np.isin(shingles, seen) | (counts[inverse] > 1)
    size = len(candidates)
    total = np.bincount(owners, minlength=size)
    return np.bincount(owners, elsewhere, size) / np.maximum(total, 1)


def _shingles(corpus: Sequence[Document]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes [S] uint64 of all shingles, and the documents [S] they are of."""
    ids: dict[str, int] = collections.defaultdict(itertools.count().__next__)
    words = [
        [ids[word] for word in document.text.lower().split()]
        for document in corpus
    ]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    flat = np.fromiter(itertools.chain.from_iterable(words), np.int64)
    owners = np.repeat(np.arange(len(words)), lengths)  # [W]
    random = np.random.default_rng(0).integers(
        2**64, size=len(ids), dtype=np.uint64
    )
    values = random[flat]  # [W]
    starts = max(len(flat) - SHINGLE + 1, 0)
    # A polynomial, modulo 2**64, in random numbers of the words: two of 10
    # million different shingles agree with a chance of about 3e-6.
    hashes = np.zeros(starts, np.uint64)
    for i in range(SHINGLE):
        hashes = hashes * _MULTIPLIER + values[i : i + starts]
    inside = owners[:starts] == owners[len(flat) - starts :]
    return hashes[inside], owners[:starts][inside]


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that nothing is lost
