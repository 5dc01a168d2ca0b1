"""Byte-pair encoding: neighbouring symbols of a word, merged by rank.

Sennrich et al. 2016, §3.2, as `tokenizers` does it: of all pairs of neighbours
that are known, the one of the lowest rank is merged, the leftmost first, until
none is known. Here it happens in all words at once.

Glossary of shapes: N symbols of all words together, W words, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

_NONE = 2**62  # a rank that no pair has
_LONG = 64  # symbols of a word from which `_apart` pays


class Merges(tf.Module):
    """Merges of a vocabulary, in graphs and out of them."""

    def __init__(self, merges: Sequence[tuple[int, int, int]], size: int):
        """Args:
        merges: left and right symbol and what they become, by rank.
        size: V.
        """
        super().__init__(name='merges')
        self._size = size
        found = np.array(merges, np.int64).reshape(-1, 3)
        left, right, made = found.T
        rank = np.arange(len(found))
        self._merged = _table(left * size + right, rank * size + made, _NONE)
        # Whether what a merge makes is of no pair of a lower rank: then all
        # pairs of one kind can be merged at once.
        begins = np.full(size, -1)
        begins[made] = rank  # of several, the last
        self._in_order = bool(
            (begins[left] < rank).all() and (begins[right] < rank).all()
        )
        # The symbols that a symbol begins and ends with, before any merge.
        first, last = _leaf(left, made, size), _leaf(right, made, size)
        self._first, self._last = tf.constant(first), tf.constant(last)
        self._rank_after = _least(left * size + first[right], rank)
        self._rank_before = _least(right * size + last[left], rank)

    def __call__(
        self, symbols: tf.Tensor, word: tf.Tensor, words: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Symbols once nothing is left to merge.

        Args:
            symbols: [N] int64, one at least.
            word: [N] int64, ascending: the number of the word of each.
            words: W, int64.

        Returns:
            `symbols` and `word` of those that are left.
        """

        def lowest(*state: tf.Tensor) -> tf.Tensor:
            return _after_no_other(self._lowest(*state, words))

        def all_known(*state: tf.Tensor) -> tf.Tensor:
            return _every_second(self._lowest(*state, words)) | self._apart(
                *state
            )

        if not self._in_order:
            return self._loop(
                lambda *state: self._leftmost(*state, words), symbols, word
            )
        lengths = tf.math.unsorted_segment_sum(tf.ones_like(word), word, words)
        return tf.cond(
            tf.reduce_max(lengths) > _LONG,
            lambda: self._loop(all_known, symbols, word),
            lambda: self._loop(lowest, symbols, word),
        )

    def _loop(
        self,
        chosen: Callable[..., tf.Tensor],
        symbols: tf.Tensor,
        word: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Rounds of merges, until there is nothing that is chosen.

        Args:
            chosen: symbols, words and what symbols make with the next one,
                [N - 1] int64 -> [N - 1] bool, no two beside each other.
        """

        def step(
            symbols: tf.Tensor, word: tf.Tensor, goes_on: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            merged = self._merged.lookup(
                symbols[:-1] * self._size + symbols[1:]
            )
            merged = tf.where(word[:-1] == word[1:], merged, _NONE)
            hit = chosen(symbols, word, merged)
            made = tf.where(hit, merged % self._size, symbols[:-1])
            kept = tf.where(tf.concat([[True], ~hit], 0))[:, 0]
            symbols = tf.concat([made, symbols[-1:]], 0)
            return (
                tf.gather(symbols, kept),
                tf.gather(word, kept),
                tf.reduce_any(hit),
            )

        symbols, word, _ = tf.while_loop(
            lambda symbols, word, goes_on: goes_on,
            step,
            (symbols, word, tf.constant(True)),
            shape_invariants=tuple(map(tf.TensorShape, ([None], [None], []))),
        )
        return symbols, word

    def _lowest(
        self,
        symbols: tf.Tensor,
        word: tf.Tensor,
        merged: tf.Tensor,
        words: tf.Tensor,
    ) -> tf.Tensor:
        """The pairs of the lowest rank of each word: [N - 1] bool."""
        word = word[:-1]
        lowest = tf.math.unsorted_segment_min(merged, word, words)
        return (merged == tf.gather(lowest, word)) & (merged < _NONE)

    def _leftmost(
        self,
        symbols: tf.Tensor,
        word: tf.Tensor,
        merged: tf.Tensor,
        words: tf.Tensor,
    ) -> tf.Tensor:
        """The first of them alone."""
        hit = self._lowest(symbols, word, merged, words)
        place = tf.range(tf.size(hit, tf.int64))
        first = tf.where(hit, place, _NONE)
        first = tf.math.unsorted_segment_min(first, word[:-1], words)
        return place == tf.gather(first, word[:-1])

    def _apart(
        self, symbols: tf.Tensor, word: tf.Tensor, merged: tf.Tensor
    ) -> tf.Tensor:
        """Pairs whose turn will come whatever happens beside them.

        A pair is lost if a neighbour takes one of its symbols before. What
        will stand beside it is not known, but with which symbol that begins
        or ends is, so also the lowest rank that it may be merged by.
        """
        rank = merged // self._size
        after = self._rank_after.lookup(
            symbols[:-1] * self._size + tf.gather(self._first, symbols[1:])
        )
        before = self._rank_before.lookup(
            symbols[1:] * self._size + tf.gather(self._last, symbols[:-1])
        )
        same = word[:-1] == word[1:]
        none = tf.constant([_NONE], tf.int64)
        after = tf.concat([tf.where(same, after, _NONE), none], 0)[1:]
        before = tf.concat([none, tf.where(same, before, _NONE)], 0)[:-1]
        return (merged < _NONE) & (rank < after) & (rank < before)


def _after_no_other(hit: tf.Tensor) -> tf.Tensor:
    """[N - 1]: of hits in a row, as in `aaaa`, the first."""
    return hit & ~tf.concat([[False], hit], 0)[:-1]


def _every_second(hit: tf.Tensor) -> tf.Tensor:
    """[N - 1]: of hits in a row every second one, from the first."""
    missed = tf.concat([[-1], tf.where(~hit)[:, 0]], 0)
    before = tf.gather(missed, tf.cumsum(tf.cast(~hit, tf.int32)))
    place = tf.range(tf.size(hit, tf.int64))
    return hit & ((place - before) % 2 == 1)


def _leaf(part: np.ndarray, made: np.ndarray, size: int) -> np.ndarray:
    """[V]: where one comes to from a symbol to its part, to that one's."""
    leaf = np.arange(size)
    leaf[made] = part
    while (leaf[leaf] != leaf).any():
        leaf = leaf[leaf]
    return leaf


def _table(
    keys: np.ndarray, values: np.ndarray, missing: int
) -> tf.lookup.StaticHashTable:
    # A table must hold something; keys are from 0 on.
    keys, values = np.append(keys, -1), np.append(values, missing)
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(keys, tf.int64), tf.constant(values, tf.int64)
        ),
        missing,
    )


def _least(keys: np.ndarray, rank: np.ndarray) -> tf.lookup.StaticHashTable:
    """The lowest rank of each key; `rank` ascends."""
    keys, place = np.unique(keys, return_index=True)
    return _table(keys, rank[place], _NONE)
