"""From the states of a text to one vector (float32).

Means cover [CLS] and [SEP]; padding never counts.

Glossary of shapes: B texts or rows, J texts of a row, T tokens, D width,
V vocabulary.
"""

from typing import Any

import numpy as np

from infoword_tf.lazy import ops

Tensor = Any
COMMON = 1e-3  # a piece of this frequency weighs half as much as a rare one


def rarity(counts: np.ndarray) -> np.ndarray:
    """log a / (a + p) of each piece: what is rare says what a text is about.

    The weights of Arora et al. 2017 ("A simple but tough-to-beat baseline",
    §3), a = 0.001.

    Returns:
        [V] float32, 0 for a piece that never does.
    """
    p = np.asarray(counts, np.float64)
    p = p / max(1.0, p.sum())
    return -np.log1p(p / COMMON).astype(np.float32)


def of_texts(block_ids: Tensor, texts: int) -> Tensor:
    """[B, T], 0 to J - 1 by text -> [B, J, T] bool: the tokens of each."""
    number = ops.arange(texts, dtype='int32')[:, None]
    return ops.equal(block_ids[:, None], number)


def tokens_of(block_ids: Tensor, texts: int) -> Tensor:
    """[B, T], 0 to J - 1 by text -> [B, J] int32: how many tokens each has."""
    return ops.sum(ops.cast(of_texts(block_ids, texts), 'int32'), axis=2)


def pool(
    states: Tensor,
    real: Tensor,
    kernel: Tensor | None = None,
    prior: Tensor | None = None,
) -> Tensor:
    """The mean of each text's states, or their mean with learned weights.

    Args:
        states: [B, T, D].
        real: [B, T] bool, False for padding; or [B, J, T], the tokens of
            each of J texts that share a row.
        kernel: [D] float32, w of the weights exp(w . h); None: equal weights.
        prior: [B, T] float32, added to w . h where there is a kernel.

    Returns:
        [B, D] float32, or [B J, D]; the mean of no token is 0.
    """
    if len(real.shape) == 2:
        real = real[:, None]
    states = ops.cast(states, 'float32')
    if kernel is None:
        weights = ops.cast(real, 'float32')
        total = ops.sum(weights, axis=-1, keepdims=True)
        weights = weights / ops.maximum(total, 1.0)
    else:
        scores = ops.squeeze(ops.matmul(states, kernel[:, None]), -1)
        if prior is not None:
            scores = scores + prior
        scores = ops.where(real, scores[:, None], -1e30)
        weights = ops.softmax(scores, axis=-1)
    pooled = ops.matmul(weights, states)  # [B, J, D]
    return ops.reshape(pooled, (-1, states.shape[-1]))


def pool_highest(states: Tensor, real: Tensor) -> Tensor:
    """The maximum over a text's states, number by number; args as of `pool`."""
    states = ops.cast(states, 'float32')
    return ops.max(ops.where(real[:, :, None], states, -1e30), axis=1)


def pool_by_position(states: Tensor, real: Tensor) -> Tensor:
    """The mean with weights 1, 2, 3, ...: later tokens of a causal encoder know
    more (Muennighoff 2022, "SGPT"); args as of `pool`, without texts that share
    rows.

    Returns:
        [B, D] float32; the mean of no token is 0.
    """
    weights = ops.cumsum(ops.cast(real, 'float32'), axis=1)
    weights = ops.where(real, weights, 0.0)
    total = ops.sum(weights, axis=1, keepdims=True)
    weights = weights / ops.maximum(total, 1.0)
    states = ops.cast(states, 'float32')
    pooled = ops.matmul(weights[:, None, :], states)  # [B, 1, D]
    return ops.reshape(pooled, (-1, states.shape[-1]))


def about_unit(x: Tensor) -> Tensor:
    """x [..., D] float32 over its length, to 1e-6, as servers compute it."""
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))


def unit(x: Tensor) -> Tensor:
    """x [..., D] float32 over its length, which is 1e-12 at least.

    Divided by a square root: `keras.ops.normalize` multiplies by `rsqrt`,
    whose vector lanes and scalar rest differ in the last bits on some
    processors, so that equal vectors would get unequal scores. The outer
    maximum keeps graphs from making an `rsqrt` of it again, as Grappler and
    XLA do with a division by a root; the inner one keeps the gradient finite.
    """
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x / ops.maximum(ops.sqrt(ops.maximum(squares, 1e-24)), 1e-12)


POOLINGS = {  # what is computed of states; None: one of them is the vector
    'cls': None,
    'last': None,
    'mean': pool,
    'max': pool_highest,
    'by_position': pool_by_position,
    'weighted': pool,
    'first_last': pool,
    'last_two': pool,
    'words': pool,
    'mix': pool,
}
LEARNED = {'weighted': 'weights', 'words': 'words'}  # what of a row these need
# Layers whose mean these take, where nobody says; others the last.
LAYERS = {'first_last': (1, -1), 'last_two': (-2, -1), 'mix': 'mix'}
