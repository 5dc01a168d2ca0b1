"""Disentangled attention (He et al. 2021, DeBERTa, §3.1).

A token at i and a key at j score

    q_i k_j + q_i (W_k r_{i-j} + b_k) + (W_q r_{i-j} + b_q) k_j

over sqrt(3 E), for content, for what the query asks of a distance, and for what
the distance asks of the key. Queries and keys of distances have the weights of
those of tokens. r are vectors of a table that all layers share: short distances
have a row each, longer ones share rows, more and more of them.

Both terms are products by distance that are shifted to keys and queries
(`relative_scores`): no array has an entry for each pair and each number of a
vector.

Glossary of shapes: k buckets, S distances, Q query tokens, E width of one head.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from infoword_tf.layers import attention, dropout
from infoword_tf.layers.attention import (
    SelfAttention,
    joined,
    project,
    scaled,
    scaled_queries,
    split_columns,
)
from infoword_tf.layers.block import Block
from infoword_tf.layers.relative import block_count, columns_of
from infoword_tf.layers.relative_scores import relative_scores, split_queries
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor


def buckets_of(
    distances: np.ndarray, buckets: int, max_distance: int
) -> np.ndarray:
    """Numbers the rows of distances i - j in the table.

    Up to k / 2 a distance has its own row, in the middle of the table; the
    logarithm of a longer one counts, up to the last rows from `max_distance`
    on.

    Args:
        distances: integers [...].
        buckets: k; the table has 2 k rows.
        max_distance: above k / 2 + 1.

    Returns:
        [...] int32, 0 to 2 k - 1.
    """
    half = buckets // 2
    sizes = np.maximum(np.abs(distances), half)
    growth = np.log(sizes / half) / np.log((max_distance - 1) / half)
    far = half + np.ceil(growth * (half - 1))
    near = np.abs(distances) <= half
    rows = np.where(near, distances, np.sign(distances) * far) + buckets
    return np.clip(rows, 0, 2 * buckets - 1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of a sequence, for all layers.

    Attributes:
        vectors: key -> the table [2 k, D] in the compute dtype, with dropout.
        used: first row that occurs, and the one after the last; None: not
            known.
        rows: [2 T] int32, of distances T, T - 1, ... 1 - T in the rows that
            are used.
        mirrored: [2 T] int32, of -T, 1 - T, ... T - 1.
        places: [B, Q] int32 of the queries; None: all tokens in order.
    """

    vectors: Callable[[Tensor | None], Tensor]
    used: tuple[int, int] | None
    rows: Tensor
    mirrored: Tensor
    places: Tensor | None = None


def distances_of(
    length: Any,
    buckets: int,
    max_distance: int,
    vectors: Callable[[Tensor | None], Tensor],
) -> Distances:
    """Numbers the rows of all distances between T tokens, see `Distances`."""
    if isinstance(length, int):
        each = np.arange(length, -length, -1)
        rows, mirrored = (
            buckets_of(x, buckets, max_distance) for x in (each, -each)
        )
        both = np.concatenate([rows, mirrored])
        first = int(both.min())
        used = first, int(both.max()) + 1
        return Distances(vectors, used, rows - first, mirrored - first)
    known = np.arange(-max_distance, max_distance + 1)
    known = buckets_of(known, buckets, max_distance)
    each = length - ops.arange(2 * length, dtype='int32')

    def rows_of(distances):
        # The rows of longer distances are those of the longest.
        distances = ops.clip(distances, -max_distance, max_distance)
        return ops.take(known, distances + max_distance)

    return Distances(vectors, None, rows_of(each), rows_of(-each))


class DisentangledAttention(SelfAttention):
    """Self-attention by content and distance, without the output's bias."""

    def call(
        self,
        x: Tensor,
        allowed: Tensor | None = None,
        queries: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
        *,
        distances: Distances,
    ) -> Tensor:
        """Mixes values by the softmax of the three terms.

        Args:
            x, allowed, queries, key, length: arguments of `Attention.call`.
            distances: distances of x, with the places of `queries`, if any.

        Returns:
            [B, T or Q, D], without the output's bias; flattened like x.
        """
        d, h = self.width, self.heads
        flat = length is not None
        if not flat:
            length = x.shape[1] or ops.shape(x)[1]
        keys = dropout.keys_of(key, 2)
        products, biases = self._products(key)
        q, k, v = products(x)
        if queries is not None:
            q = products(queries)[0]
        blocks = 1
        if key is not None and queries is None and isinstance(length, int):
            blocks = block_count(length)

        def split(y, bias):
            """Splits heads: [B, H, T or Q, E], and for distances."""
            if len(y.shape) == 2:
                y = ops.reshape(y, (-1, length, d))
            return split_queries(y, bias, bias, heads=h, blocks=blocks, key=key)

        q, q_by_distance = split(q, biases[0])
        k, k_by_distance = split(k, biases[1])
        (v,) = attention.split_heads(
            v, biases[2], heads=h, count=1, key=key, length=length
        )
        rows = distances.vectors(keys[1])
        if distances.used is not None:
            rows = rows[slice(*distances.used)]

        def columns(rows, bias, numbers):
            """Splits heads and spreads rows: [S, D] -> [H, n, E, columns]."""
            rows = rows + ops.cast(bias, rows.dtype)
            rows = ops.take(ops.reshape(rows, (-1, h, d // h)), numbers, axis=0)
            rows = ops.transpose(rows, (1, 2, 0))[:, None]
            return columns_of(rows, blocks, length)

        q_rows, k_rows, _ = products(rows)
        scores = relative_scores(
            ops.matmul(q, ops.swapaxes(k, -1, -2)),
            ops.matmul(
                q_by_distance, columns(k_rows, biases[1], distances.rows)
            ),
            of_keys=ops.matmul(
                k_by_distance, columns(q_rows, biases[0], distances.mirrored)
            ),
            allowed=allowed,
            places=distances.places,
            length=length,
            key=key,
        )
        weights = attention.softmax_dropout(scores, key=keys[0], rate=self.rate)
        mixed = joined(ops.matmul(weights, v), flat and queries is None)
        return project(mixed, self.output_kernel)

    def _products(
        self, key: Tensor | None
    ) -> tuple[Callable[[Tensor], Sequence[Tensor]], list[Tensor]]:
        """Returns a function that multiplies states, and three biases [D].

        The function multiplies [..., D] by the kernels of queries, keys and
        values: thrice [..., D]. Of queries kernel and bias are times
        1/sqrt(3 E), as in `Attention`.
        """
        d = self.width
        root = 1.0 / math.sqrt(3 * d // self.heads)
        scale = scaled_queries(d, root, 3 * d)
        biases = ops.split(self.bias * scale, 3)
        if key is None:

            def joint(x: Tensor) -> Sequence[Tensor]:
                q, *others = ops.split(project(x, self.kernel), 3, axis=-1)
                return q * root, *others

            return joint, biases
        kernel = scaled(self.kernel, scale)

        def each(x: Tensor) -> Sequence[Tensor]:
            # Those that nobody reads are not computed.
            return [project(x, one) for one in split_columns(kernel, 3)]

        return each, biases


class DisentangledBlock(Block):
    """A block of BERT with disentangled attention."""

    attends = DisentangledAttention
