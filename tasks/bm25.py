"""Search by words: BM25, exact, for the baseline of retrieval.

Lucene's formula, k1 = 1.5, b = 0.75 (the library bm25s, Lù 2024, with its
defaults). Words are runs of two or more letters, digits or underscores,
lower-cased, without 33 English stop words, and stemmed as English (Snowball).

Glossary of shapes: Q queries, N documents, K best.
"""

import functools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands
from infoword_tf.evaluation import ranking


class Bm25:
    """The words of all documents, held in memory as numbers."""

    def __init__(self, texts: Iterable[str]):
        """Counts the words; args: the documents, numbered from 0.

        Raises:
            errors.UsageError: the library is not installed.
        """
        bm25s, split = library()
        tokenized = split(texts)
        self._index = None
        if tokenized.vocab:
            self._index = bm25s.BM25()
            self._index.index(tokenized, show_progress=False)

    def search(
        self,
        queries: Sequence[str],
        top_k: int,
        numbers: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The K best of all documents for Q queries; as of `Best.sorted`.

        A document that shares no word with a query is no result of it.
        `numbers` [N] are the documents'; None: 0, 1, 2, ...
        """
        best = ranking.Best(len(queries), top_k)
        if self._index is None:
            return best.sorted()
        _, split = library()
        if numbers is None:
            numbers = np.arange(self._index.scores['num_docs'])
        for row, query in enumerate(split(list(queries), return_ids=False)):
            ids = self._index.get_tokens_ids(query)
            scores = self._index.get_scores_from_ids(ids)[None]
            scores[scores == 0] = -np.inf
            best.add(slice(row, row + 1), scores, numbers)
        return best.sorted()


@functools.cache
def library() -> tuple[Any, Callable[..., Any]]:
    """Imports the library; also gives what parts texts into words.

    Raises:
        errors.UsageError: it is not installed.
    """
    # It tries JAX where there is one: not on TensorFlow's GPU.
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    bm25s, stemmer = (
        commands.import_extra(name, 'tasks', 'search by words, BM25,')
        for name in ('bm25s', 'Stemmer')
    )
    logging.getLogger('bm25s').setLevel(logging.WARNING)
    return bm25s, functools.partial(
        bm25s.tokenize, stemmer=stemmer.Stemmer('english'), show_progress=False
    )
