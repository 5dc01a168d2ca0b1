"""Poolings: from the states of a text to one vector, in float32.

Means cover [CLS] and [SEP], never padding.

Glossary of shapes: J texts of a sequence.
"""

from collections.abc import Callable

import numpy as np

from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

COMMON = 1e-3  # a token of this frequency weighs half as much as a rare one


def rarity(counts: np.ndarray) -> np.ndarray:
    """Returns the weight log a / (a + p) of each token of the vocabulary.

    Frequent tokens say little about a text. The weights are those of Arora et
    al. 2017 ("A simple but tough-to-beat baseline", §3), a = 0.001.

    Args:
        counts: [V], of tokens in the training text.

    Returns:
        [V] float32, 0 for a token that never occurs.
    """
    p = np.asarray(counts, np.float64)
    p = p / max(1.0, p.sum())
    return -np.log1p(p / COMMON).astype(np.float32)


def of_texts(block_ids: Tensor, texts: int) -> Tensor:
    """Returns masks [B, J, T] bool of texts numbered 0 to J - 1 in [B, T]."""
    number = ops.arange(texts, dtype='int32')[:, None]
    return ops.equal(block_ids[:, None], number)


def tokens_of(block_ids: Tensor, texts: int) -> Tensor:
    """Counts tokens of texts numbered 0 to J - 1 in [B, T]: [B, J] int32."""
    return ops.sum(ops.cast(of_texts(block_ids, texts), 'int32'), axis=2)


def real_places(ids: Tensor, lengths: Tensor) -> Tensor:
    """Returns which places of ids [B, T] are no padding, [B, T] bool."""
    column = ops.arange(ops.shape(ids)[1], dtype='int32')[None, :]
    return ops.less_equal(column, last_places(lengths))


def last_places(lengths: Tensor) -> Tensor:
    """Returns the last place of each sequence, [B, 1] int32."""
    return ops.convert_to_tensor(lengths, dtype='int32')[:, None] - 1


def pool(
    states: Tensor,
    real: Tensor,
    kernel: Tensor | None = None,
    prior: Tensor | None = None,
) -> Tensor:
    """Averages the states of each text, with equal or learned weights.

    Args:
        states: [B, T, D].
        real: [B, T] bool, False for padding; or [B, J, T], masks of J texts
            that share a sequence.
        kernel: [D] float32, w of the weights exp(w . h); None: equal weights.
        prior: [B, T] float32, added to w . h.

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
    """Takes the maximum of each number over a text's states, see `pool`."""
    states = ops.cast(states, 'float32')
    return ops.max(ops.where(real[:, :, None], states, -1e30), axis=1)


def pool_by_position(states: Tensor, real: Tensor) -> Tensor:
    """Averages states with weights 1, 2, 3, ... (Muennighoff 2022, "SGPT").

    Later states of a causal encoder have read more. Arguments as of `pool`,
    with one text a sequence.

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
    """Scales x [..., D] float32 to length 1, to 1e-6, exactly as servers do."""
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))


def unit(x: Tensor) -> Tensor:
    """Divides x [..., D] float32 by the length, at least 1e-12.

    By a square root: `keras.ops.normalize` multiplies by `rsqrt`, whose vector
    lanes and scalar rest differ in the last bits on some processors, so that
    equal vectors would get unequal scores. The outer maximum keeps Grappler and
    XLA from replacing the division by an `rsqrt`; the inner one keeps the
    gradient finite.
    """
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x / ops.maximum(ops.sqrt(ops.maximum(squares, 1e-24)), 1e-12)


POOLINGS: dict[str, Callable[..., Tensor] | None] = {
    # How states become a vector; None: one state is the vector.
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
LEARNED = {'weighted': 'weights', 'words': 'words'}  # weights of a row
# Layers whose mean is pooled by default; other poolings take the last layer.
LAYER_MEANS = {'first_last': (1, -1), 'last_two': (-2, -1)}
LAYERS: dict[str, tuple[int, ...] | str] = {**LAYER_MEANS, 'mix': 'mix'}
