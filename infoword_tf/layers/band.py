"""Attention to near tokens: a band of the scores, and no others computed.

A token attends to tokens at a distance of at most `reach` (Beltagy et al. 2020,
"Longformer", §3.1). Queries are split into chunks of that length. Each chunk
meets the keys of its own chunk and of both neighbours, so that a query has
3 reach scores instead of T.

Glossary of shapes: E width of one head, C chunks, W reach.
"""

from typing import Any

import numpy as np

from infoword_tf.layers import attention
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

CHUNKS = 4  # with fewer, a mask over all scores is as fast
_NOWHERE = -(1 << 30)  # the block of keys beyond a sequence


def worth(length: Any, reach: int) -> bool:
    """Tells whether a band is faster: where T is known, and long."""
    return isinstance(length, int) and length > CHUNKS * reach


def near(length: Any, reach: int) -> Tensor:
    """Returns a mask [1, 1, T, T] bool of tokens at most `reach` apart."""
    i = ops.arange(length, dtype='int32')
    return (ops.absolute(i[:, None] - i) <= reach)[None, None]


def _within(length: int, reach: int) -> np.ndarray:
    """Returns a mask [C, W, 3 W] bool of the keys that each query sees."""
    chunks = -(-length // reach)
    query = np.arange(chunks * reach).reshape(chunks, reach, 1)
    key = np.arange(3 * reach) - reach
    key = key + reach * np.arange(chunks)[:, None, None]
    return (abs(query - key) <= reach) & (key >= 0) & (key < length)


def _chunks(x: Tensor, length: int, reach: int, filler: int = 0) -> Tensor:
    """Splits [B, T, ...] into chunks [B, C, W, ...]."""
    chunks = -(-length // reach)
    ends = [(0, 0), (0, chunks * reach - length)]
    ends += [(0, 0)] * (len(x.shape) - 2)
    x = ops.pad(x, ends, constant_values=filler)
    return ops.reshape(x, (-1, chunks, reach, *x.shape[2:]))


def _with_neighbours(
    x: Tensor, length: int, reach: int, filler: int = 0
) -> Tensor:
    """Joins chunks with both neighbours: [B, T, ...] -> [B, C, 3 W, ...]."""
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
    """Averages values by the softmax of q k over near tokens.

    Args:
        q, k, v: [B, H, T, E], q scaled; T known.
        block_ids: [B, T] int32: tokens attend within their block; None: one
            block.
        reach: W.
        key: [2] uint32, or None for inference.
        rate: of dropout of the weights.

    Returns:
        [B, H, T, E].
    """
    _, h, length, e = q.shape
    chunks = -(-length // reach)
    q, k, v = (ops.reshape(x, (-1, length, e)) for x in (q, k, v))
    q = _chunks(q, length, reach)  # [B H, C, W, E]
    # [B H, C, 3 W, E]
    k, v = (_with_neighbours(x, length, reach) for x in (k, v))
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))  # [B H, C, W, 3 W]
    shape = (-1, h, chunks, reach, 3 * reach)
    scores = ops.reshape(scores, shape)  # [B, H, C, W, 3 W]
    allowed = ops.convert_to_tensor(_within(length, reach))
    if block_ids is not None:
        of_queries = _chunks(block_ids, length, reach, _NOWHERE)[..., None]
        of_keys = _with_neighbours(block_ids, length, reach, _NOWHERE)
        same = ops.equal(of_queries, of_keys[:, :, None])
        allowed = ops.logical_and(allowed, same)[:, None]
    never = ops.cast(-1e30, scores.dtype)
    weights = attention.softmax_dropout(
        ops.where(allowed, scores, never), key=key, rate=rate
    )
    weights = ops.reshape(weights, (-1, *shape[2:]))
    x = ops.matmul(weights, v)  # [B H, C, W, E]
    x = ops.reshape(x, (-1, h, chunks * reach, e))
    return x[:, :, :length]
