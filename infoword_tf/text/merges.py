"""Merges of byte-pair encoding, in all words at once.

Sennrich et al. 2016, §3.2, as `tokenizers` does it: of all neighbours in a word
that have a merge, those of the lowest rank are merged, the leftmost first,
until no neighbours have a merge.

Glossary of shapes: n symbols of all words together, W words.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

_NONE = 2**62  # a rank that no pair has
_LONG = 64  # longer words are merged faster with `_undisturbed`


class Merges(tf.Module):
    """The merges of a vocabulary."""

    def __init__(
        self,
        merges: Sequence[tuple[int, int, int]],
        size: int,
        ends: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        """Takes left, right and merged symbol by rank; and V.

        Args:
            ends: symbols with which each symbol begins and ends before any
                merge, [V] each; None: as merges say.
        """
        super().__init__(name='merges')
        self._size = size
        left, right, both = np.array(merges, np.int64).reshape(-1, 3).T
        rank = np.arange(len(both))
        self._merged = _table(left * size + right, rank * size + both, _NONE)
        # Where the merged symbol is in no merge of a lower rank, all pairs of
        # the lowest rank can be merged at once, and others before.
        used = np.full(size, _NONE)
        np.minimum.at(used, left, rank)
        np.minimum.at(used, right, rank)
        in_order = np.append(used[both] > rank, False)
        self._all_in_order = bool(in_order[:-1].all())
        self._in_order = tf.constant(in_order)
        # The symbols that a symbol begins and ends with, before any merge.
        first, last = ends or (
            _leaf(left, both, size),
            _leaf(right, both, size),
        )
        self._first, self._last = tf.constant(first), tf.constant(last)
        self._rank_after = _least(left * size + first[right], rank)
        self._rank_before = _least(right * size + last[left], rank)

    def __call__(
        self, symbols: tf.Tensor, word: tf.Tensor, words: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges symbols until no neighbours have a merge.

        Args:
            symbols: [n] int64, one at least.
            word: [n] int64, ascending: the number of each symbol's word.
            words: W, int64.

        Returns:
            `symbols` and `word` after all merges.
        """

        def lowest(
            symbols: tf.Tensor, word: tf.Tensor, merged: tf.Tensor
        ) -> tf.Tensor:
            hit = _first_of_runs(self._lowest(symbols, word, merged, words))
            return self._in_turn(hit, word, merged, words)

        def all_known(
            symbols: tf.Tensor, word: tf.Tensor, merged: tf.Tensor
        ) -> tf.Tensor:
            hit = _every_second(self._lowest(symbols, word, merged, words))
            hit = self._in_turn(hit, word, merged, words)
            return hit | self._undisturbed(symbols, word, merged)

        lengths = tf.math.unsorted_segment_sum(tf.ones_like(word), word, words)
        return tf.cond(
            tf.reduce_max(lengths) > _LONG,
            lambda: self._loop(all_known, symbols, word),
            lambda: self._loop(lowest, symbols, word),
        )

    def _loop(
        self,
        choose: Callable[..., tf.Tensor],
        symbols: tf.Tensor,
        word: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges the pairs that `choose` chooses, until none is left.

        Args:
            choose: symbols, words and merges of symbols with the next one,
                [n - 1] int64 -> [n - 1] bool, no two beside each other.
        """

        def step(
            symbols: tf.Tensor, word: tf.Tensor, goes_on: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            merged = self._merged.lookup(
                symbols[:-1] * self._size + symbols[1:]
            )
            merged = tf.where(word[:-1] == word[1:], merged, _NONE)
            hit = choose(symbols, word, merged)
            merged = tf.where(hit, merged % self._size, symbols[:-1])
            stays = tf.where(tf.concat([[True], ~hit], 0))[:, 0]
            symbols = tf.concat([merged, symbols[-1:]], 0)
            return (
                tf.gather(symbols, stays),
                tf.gather(word, stays),
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
        """Marks the pairs of the lowest rank in each word, [n - 1] bool."""
        word = word[:-1]
        lowest = tf.math.unsorted_segment_min(merged, word, words)
        return (merged == tf.gather(lowest, word)) & (merged < _NONE)

    def _in_turn(
        self,
        hit: tf.Tensor,
        word: tf.Tensor,
        merged: tf.Tensor,
        words: tf.Tensor,
    ) -> tf.Tensor:
        """Keeps the first of a word's pairs where a merge makes another one of
        a lower rank possible, [n - 1] bool.
        """
        if self._all_in_order:
            return hit
        place = tf.range(tf.size(hit, tf.int64))
        first = tf.where(hit, place, _NONE)
        first = tf.math.unsorted_segment_min(first, word[:-1], words)
        first = place == tf.gather(first, word[:-1])
        return hit & (first | self._ordered(merged))

    def _ordered(self, merged: tf.Tensor) -> tf.Tensor:
        last = tf.size(self._in_order, tf.int64) - 1
        rank = tf.minimum(merged // self._size, last)
        return tf.gather(self._in_order, rank)

    def _undisturbed(
        self, symbols: tf.Tensor, word: tf.Tensor, merged: tf.Tensor
    ) -> tf.Tensor:
        """Marks pairs that will be merged whichever merges come first.

        A neighbour could take one of a pair's symbols first. Which symbol the
        neighbour will be by then is unknown, but its first and last symbol
        before any merge are, hence also the lowest rank of such a merge.
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
        known = (merged < _NONE) & (rank < after) & (rank < before)
        return known if self._all_in_order else known & self._ordered(merged)


def _first_of_runs(hit: tf.Tensor) -> tf.Tensor:
    """Keeps the first of hits in a row, as in `aaaa`, [n - 1]."""
    return hit & ~tf.concat([[False], hit], 0)[:-1]


def _every_second(hit: tf.Tensor) -> tf.Tensor:
    """Keeps every second of hits in a row, from the first, [n - 1]."""
    missed = tf.concat([[-1], tf.where(~hit)[:, 0]], 0)
    before = tf.gather(missed, tf.cumsum(tf.cast(~hit, tf.int32)))
    place = tf.range(tf.size(hit, tf.int64))
    return hit & ((place - before) % 2 == 1)


def _leaf(half: np.ndarray, merged: np.ndarray, size: int) -> np.ndarray:
    """Follows each symbol to a half, and the half of that, to the end: [V]."""
    leaf = np.arange(size)
    leaf[merged] = half
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
    """Builds a table of the lowest rank of each key; `rank` ascends."""
    keys, place = np.unique(keys, return_index=True)
    return _table(keys, rank[place], _NONE)
