"""Held-out documents of `pydocs`, which training shows nowhere else."""

import collections
from collections.abc import Sequence

from infoword_tf.data.documents import Document, hash_bucket

HELDOUT_IN = 20  # one document in so many is a candidate
SHINGLE = 8  # words
MAX_SHARED = 0.2  # of a candidate's shingles; from here on it is dropped


def split_heldout(
    corpus: Sequence[Document],
) -> tuple[list[Document], list[Document], int]:
    """Holds out documents that training does not show elsewhere.

    One document in 20 is a candidate, by the hash of its text. Docstrings are
    copied between classes and packages, so a candidate is dropped, neither
    trained on nor held out, when 20 % or more of its distinct shingles (8
    consecutive words, lower case) occur in a training document or in another
    candidate.

    Returns:
        Documents to train on, held-out ones, and how many are neither.
    """
    train: list[Document] = []
    candidates: list[Document] = []
    for document in corpus:
        bucket = hash_bucket(document.text, HELDOUT_IN)
        (train if bucket else candidates).append(document)
    shingles = [_shingles(candidate) for candidate in candidates]
    documents_with = collections.Counter(y for x in shingles for y in x)
    for document in train:
        documents_with.update(_shingles(document) & documents_with.keys())
    heldout = []
    for candidate, distinct in zip(candidates, shingles, strict=True):
        shared = sum(documents_with[shingle] > 1 for shingle in distinct)
        if shared / max(len(distinct), 1) < MAX_SHARED:
            heldout.append(candidate)
    return train, heldout, len(candidates) - len(heldout)


def _shingles(document: Document) -> set[tuple[str, ...]]:
    words = document.text.lower().split()
    return set(zip(*(words[i:] for i in range(SHINGLE)), strict=False))
