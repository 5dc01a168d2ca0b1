"""Attention to what is near: a band of the scores, and no others computed.

A token sees those that stand at most `reach` away (Beltagy et al. 2020,
"Longformer", §3.1). Queries are cut into chunks of that length; each chunk
meets the keys of its own chunk and of both beside it, so that a row has 3 reach
scores for each query instead of T.

Glossary of shapes: B batch, T tokens, H heads, E width of one head, C chunks,
R reach.
"""

from typing import Any

import numpy as np

from infoword_tf.layers import heads
from infoword_tf.lazy import ops

Tensor = Any
CHUNKS = 4  # of fewer, a mask over all scores is as fast
_NOWHERE = -(1 << 30)  # the block of what is beyond a row


def worth(length: Any, reach: int) -> bool:
    """Whether a band is less than all: of T that is known, and long."""
    return isinstance(length, int) and length > CHUNKS * reach


def near(length: Any, reach: int) -> Tensor:
    """[1, 1, T, T] bool: which tokens stand at most `reach` apart."""
    i = ops.arange(length, dtype='int32')
    return (ops.absolute(i[:, None] - i) <= reach)[None, None]


def _within(length: int, reach: int) -> np.ndarray:
    """[C, R, 3 R] bool: which of a chunk's keys each of its queries sees."""
    chunks = -(-length // reach)
    query = np.arange(chunks * reach).reshape(chunks, reach, 1)
    key = np.arange(3 * reach) - reach
    key = key + reach * np.arange(chunks)[:, None, None]
    return (abs(query - key) <= reach) & (key >= 0) & (key < length)


def _chunks(x: Tensor, length: int, reach: int, filler: int = 0) -> Tensor:
    """[B, T, ...] -> [B, C, R, ...]."""
    chunks = -(-length // reach)
    ends = [(0, 0), (0, chunks * reach - length)]
    ends += [(0, 0)] * (len(x.shape) - 2)
    x = ops.pad(x, ends, constant_values=filler)
    return ops.reshape(x, (-1, chunks, reach, *x.shape[2:]))


def _beside(x: Tensor, length: int, reach: int, filler: int = 0) -> Tensor:
    """[B, T, ...] -> [B, C, 3 R, ...]: a chunk, and both beside it."""
    x = _chunks(x, length, reach, filler)
    ends = [(0, 0), (1, 1)] + [(0, 0)] * (len(x.shape) - 2)
    x = ops.pad(x, ends, constant_values=filler)
    return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)


def mixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_ids: Tensor | None,
    *,
    reach: int,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Values mixed by the softmax of q k over the tokens that are near.

    Args:
        q, k, v: [B, H, T, E], q scaled; T known.
        block_ids: [B, T] int32: tokens see those of their own block; None:
            one block.
        reach: R.
        key: [2] uint32, or None for inference.
        rate: of dropout of the weights.

    Returns:
        [B, H, T, E].
    """
    _, h, length, e = q.shape
    chunks = -(-length // reach)
    q, k, v = (ops.reshape(x, (-1, length, e)) for x in (q, k, v))
    q = _chunks(q, length, reach)  # [B H, C, R, E]
    k, v = (_beside(x, length, reach) for x in (k, v))  # [B H, C, 3 R, E]
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))  # [B H, C, R, 3 R]
    shape = (-1, h, chunks, reach, 3 * reach)
    scores = ops.reshape(scores, shape)  # [B, H, C, R, 3 R]
    seen = ops.convert_to_tensor(_within(length, reach))
    if block_ids is not None:
        own = _chunks(block_ids, length, reach, _NOWHERE)[..., None]
        others = _beside(block_ids, length, reach, _NOWHERE)[:, :, None]
        seen = ops.logical_and(seen, ops.equal(own, others))[:, None]
    never = ops.cast(-1e30, scores.dtype)
    weights = heads.softmax_dropout(
        ops.where(seen, scores, never), key=key, rate=rate
    )
    weights = ops.reshape(weights, (-1, *shape[2:]))
    x = ops.matmul(weights, v)  # [B H, C, R, E]
    x = ops.reshape(x, (-1, h, chunks * reach, e))
    return x[:, :, :length]
