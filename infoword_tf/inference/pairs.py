"""Two texts in one row: cut, laid out and padded, in the graph and out of it.

Glossary of shapes: B texts, T tokens.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Tensor = Any


def room_of(first: Tensor, second: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """How much of two texts fits, where the longer one is cut first.

    As the `longest_first` of the tokenizers that pairs were trained with.

    Args:
        first, second: [B] integers, pieces of each.
        room: pieces of both together.

    Returns:
        [B] each: pieces of the first and of the second that are kept.
    """
    swapped = first > second
    short, long = tf.minimum(first, second), tf.maximum(first, second)
    long = tf.where(short > room, short, tf.maximum(short, room - short))
    half = tf.fill(tf.shape(short), tf.cast(room // 2, short.dtype))
    beyond = short + long > room
    kept_short = tf.where(beyond, half, short)
    kept_long = tf.where(beyond, room - half, long)
    kept_long = tf.minimum(kept_long, tf.maximum(first, second))
    return (
        tf.where(swapped, kept_long, kept_short),
        tf.where(swapped, kept_short, kept_long),
    )


def lay_out(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor,
    around: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> tf.RaggedTensor:
    """Two texts and the special pieces around them; args as in `join`.

    Returns:
        [B, tokens] int32.
    """
    before, between, after = around
    count = first.nrows()

    def each(ids: Sequence[int]) -> tf.RaggedTensor:
        same = tf.tile(tf.constant([list(ids)], tf.int32), [count, 1])
        return tf.RaggedTensor.from_tensor(same)

    parts = [each(before), first, each(between), second, each(after)]
    return tf.concat(parts, axis=1)


def join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor,
    around: tuple[Sequence[int], Sequence[int], Sequence[int]],
    max_length: int,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Lays two texts out.

    Args:
        first, second: [B, pieces] int32.
        around: special ids before, between and behind them.
        max_length: T at most.
        padding: id behind the shorter rows.

    Returns:
        ids [B, T] int32, lengths [B] int32, and [B] int32 where the second
        text begins.
    """
    before, between, after = around
    room = max_length - len(before) - len(between) - len(after)
    sizes = room_of(first.row_lengths(), second.row_lengths(), room)

    def cut(pieces: tf.RaggedTensor, size: Tensor) -> tf.RaggedTensor:
        starts = pieces.row_starts()
        places = tf.ragged.range(starts, starts + size)
        return tf.gather(pieces.flat_values, places)

    rows = lay_out(cut(first, sizes[0]), cut(second, sizes[1]), around)
    begins = len(before) + sizes[0] + len(between)
    ids = rows.to_tensor(padding)
    # Also where there are no texts: two columns, as anywhere.
    lacking = tf.maximum(2 - tf.shape(ids)[1], 0)
    return (
        tf.pad(ids, [[0, 0], [0, lacking]], constant_values=padding),
        tf.cast(rows.row_lengths(), tf.int32),
        tf.cast(begins, tf.int32),
    )
