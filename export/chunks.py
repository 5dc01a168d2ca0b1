"""A batch in parts, one after the other, inside a graph.

Memory does not grow with the batch then.

Glossary of shapes: B texts of a call, C texts of a chunk, T tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Tensor = Any


def longest(lengths: Tensor) -> Tensor:
    """T of [C] lengths, also where there are none."""
    return tf.maximum(tf.reduce_max(lengths), 2)


def ends(total: Tensor, rows: int) -> Tensor:
    """Chunks of `rows` of B texts: [] int32 -> [chunks] int32, see below."""
    return tf.minimum(rows * (1 + tf.range((total + rows - 1) // rows)), total)


def ends_by_tokens(lengths: Tensor, tokens: int) -> Tensor:
    """Chunks of about as many tokens each, which none is longer than.

    Args:
        lengths: [B] int32, at most `tokens` each.
        tokens: of a chunk.

    Returns:
        [chunks] int32. None is empty: no text reaches over a whole chunk.
    """
    total = tf.cumsum(lengths)
    chunks = (tf.reduce_sum(lengths) + tokens - 1) // tokens
    return tf.searchsorted(total, tokens * (1 + tf.range(chunks)), 'right')


def in_chunks(
    ends: Tensor,
    chunk: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    kinds: Sequence[tuple[tuple[int | None, ...], tf.DType]],
) -> list[Tensor]:
    """Computes parts of a batch one after the other and joins them.

    Args:
        ends: [parts] int32, the row after the last of each part.
        chunk: from its first row and the row after its last to tensors whose
            first axes are joined.
        kinds: of each tensor the shape without the first axis, and the dtype.

    Returns:
        The joined tensors. An empty batch is one empty part, so that its
        shapes are those of any other.
    """
    count = tf.maximum(tf.size(ends), 1)
    bounds = tf.pad(ends, [[1, 0]])
    bounds = tf.pad(bounds, [[0, count - tf.size(ends)]])

    def body(number: Tensor, *arrays: tf.TensorArray) -> tuple:
        parts = chunk(bounds[number], bounds[number + 1])
        written = [
            array.write(number, part)
            for array, part in zip(arrays, parts, strict=True)
        ]
        return number + 1, *written

    arrays = [
        tf.TensorArray(
            dtype, count, element_shape=(None, *shape), infer_shape=False
        )
        for shape, dtype in kinds
    ]
    _, *arrays = tf.while_loop(
        lambda number, *_: number < count,
        body,
        (tf.constant(0), *arrays),
        parallel_iterations=1,
    )
    return [array.concat() for array in arrays]
