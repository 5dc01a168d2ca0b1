"""BM25, an exact search by words, as a baseline of retrieval.

Lucene's formula, k1 = 1.5, b = 0.75 (the library bm25s, Lù 2024, with its
defaults). Words are runs of two or more letters, digits or underscores,
lower-cased, without 33 English stop words, and stemmed as English (Snowball).
"""

import functools
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np

from infoword_tf import commands
from infoword_tf.evaluation import ranking


class Bm25:
    """An index of the words of all documents, in memory."""

    def __init__(self, texts: Iterable[str]):
        """Counts the words of documents, which are numbered from 0.

        Raises:
            errors.UsageError: the library is not installed.
        """
        bm25s, split = library()
        tokenized = split(texts)
        self._index = None
        if tokenized.vocab:
            self._index = bm25s.BM25()
            self._index.index(tokenized, show_progress=False)

    @classmethod
    def load(cls, folder: pathlib.Path) -> Self:
        """Reads an index that `save` wrote."""
        bm25s, _ = library()
        index = cls.__new__(cls)
        index._index = None
        if folder.is_dir():
            index._index = bm25s.BM25.load(folder, show_progress=False)
        return index

    def save(self, folder: pathlib.Path) -> None:
        """Writes the index, if a document has a word, as a folder."""
        if self._index is not None:
            self._index.save(folder, show_progress=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the scores of all words, without the words."""
        arrays = self._index.scores.values() if self._index else ()
        return sum(x.nbytes for x in arrays if isinstance(x, np.ndarray))

    def search(
        self,
        queries: Sequence[str],
        top_k: int,
        numbers: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best `top_k` documents of queries, as `Best.sorted`.

        A document without a word of the query is no result. `numbers` [n] are
        the documents'; None: 0, 1, 2, ...
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
    """Imports bm25s; returns the module and a tokenizer of texts into words.

    Raises:
        errors.UsageError: bm25s or PyStemmer is not installed.
    """
    # bm25s runs JAX if that is installed, which must not take the GPU.
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    bm25s, stemmer = (
        commands.import_extra(name, 'tasks', 'search by words, BM25,')
        for name in ('bm25s', 'Stemmer')
    )
    logging.getLogger('bm25s').setLevel(logging.WARNING)
    return bm25s, functools.partial(
        bm25s.tokenize, stemmer=stemmer.Stemmer('english'), show_progress=False
    )
