"""A batch in chunks, one after the other, inside a graph.

Memory does not grow with the batch then.

Glossary of shapes: S texts of a chunk, G chunks.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from infoword_tf.tensors import Tensor


def longest(lengths: Tensor) -> Tensor:
    """Returns T of lengths [S]; 2 at least, also of an empty chunk."""
    return tf.maximum(tf.reduce_max(lengths), 2)


def ends(total: Tensor, size: int) -> Tensor:
    """Returns ends of chunks of `size` of `total` texts: [G] int32."""
    return tf.minimum(size * (1 + tf.range((total + size - 1) // size)), total)


def ends_by_tokens(lengths: Tensor, tokens: int) -> Tensor:
    """Returns ends of chunks of about `tokens` tokens each.

    Args:
        lengths: [B] int32, at most `tokens` each.
        tokens: number of tokens in a chunk.

    Returns:
        [G] int32. No chunk is empty, because no text is longer than one.
    """
    total = tf.cumsum(lengths)
    chunks = (tf.reduce_sum(lengths) + tokens - 1) // tokens
    return tf.searchsorted(total, tokens * (1 + tf.range(chunks)), 'right')


def in_chunks(
    ends: Tensor,
    chunk: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    kinds: Sequence[tuple[tuple[int | None, ...], tf.DType]],
) -> list[Tensor]:
    """Computes chunks of a batch one after the other and joins the outputs.

    Args:
        ends: [G] int32, the index after the last text of each chunk.
        chunk: function of the first index and the one after the last, to
            tensors whose first axes are joined.
        kinds: shape without the first axis, and dtype, of each tensor.

    Returns:
        The joined tensors. An empty batch is one empty chunk, so that its
        shapes are those of any other.
    """
    count = tf.maximum(tf.size(ends), 1)
    bounds = tf.pad(ends, [[1, 0]])
    bounds = tf.pad(bounds, [[0, count - tf.size(ends)]])

    def body(number: Tensor, *arrays: tf.TensorArray) -> tuple:
        outputs = chunk(bounds[number], bounds[number + 1])
        written = [
            array.write(number, output)
            for array, output in zip(arrays, outputs, strict=True)
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
