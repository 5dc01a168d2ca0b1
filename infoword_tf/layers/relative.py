"""Relative attention (Dai et al. 2019, §3.3; Yang et al. 2019, §2.3 - §2.6).

A token at i and a key at j score

    (q_i + u) k_j + (q_i + v) W r_{i-j} + (q_i + s) e_{ij}   over sqrt(E),

for content, distance and, in XLNet, whether both are of one segment. r are
sinusoids of the distance, e one of two vectors; u, v, s are weights that stand
for a query of no token in particular. Keys are the states of the memory, if
any, and of all tokens. Queries may be of another stream than keys and values:
XLNet's query stream uses the keys, values and weights of the content stream.

Only the feed-forward has biases. The memory has K - T tokens.

Glossary of shapes: Q query tokens, S distances, E width of one head.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.layers import attention, dropout
from infoword_tf.layers.attention import (
    check_heads,
    matrix,
    project,
    scaled,
    split_columns,
    table,
)
from infoword_tf.layers.block import Sized, make_feed_forward, post_norm
from infoword_tf.layers.relative_scores import relative_scores, split_queries
from infoword_tf.lazy import Layer, Variable, ops
from infoword_tf.tensors import Tensor

# Tokens whose products with distances are one matrix, where all tokens are
# queries: smaller matrices have fewer unused columns, but are more products.
BLOCKS = (64, 32)


class Sight(NamedTuple):
    """Masks of the tokens that queries may attend to, shared by all layers.

    Attributes:
        allowed: [B or 1, 1, Q or 1, K] bool; None: everything is.
        different: [B, 1, Q, K] bool, True where the segments differ; None: one
            segment.
        seeing: [B or 1, 1, Q, 1] bool, False for a query without any key,
            whose result is 0; None: all have keys.
        places: [B, Q] int32 of the queries; None: all tokens in order.
    """

    allowed: Tensor | None = None
    different: Tensor | None = None
    seeing: Tensor | None = None
    places: Tensor | None = None


class Rules(NamedTuple):
    """Rules by which tokens of a text attend to others, and to the memory.

    Attributes:
        length: T.
        memory: K - T.
        causal: whether tokens see no later ones.
        same_length: whether each token sees the K - T tokens before it alone.
        filled: [B] int32: how many of the last states of the memory are of
            tokens; None: all.
        block_ids: [B, T] int32: tokens see tokens of their own block, and the
            memory; None: one block.
        ranks, sees: [B, T] int32: i sees j where sees[i] > ranks[j]; None: all.
        segment_ids: [B, T] int32; the memory is of segment 0. None: one
            segment.
    """

    length: Any
    memory: int = 0
    causal: bool = False
    same_length: bool = False
    filled: Tensor | None = None
    block_ids: Tensor | None = None
    ranks: Tensor | None = None
    sees: Tensor | None = None
    segment_ids: Tensor | None = None

    def sight(
        self, places: Tensor | None = None, queries: bool = False
    ) -> Sight:
        """Combines all rules.

        Args:
            places: [B, Q] int32 of the queries; None: all tokens.
            queries: whether these are of the query stream: tokens of the
                content stream always see themselves; of the query stream only
                by ranks.
        """
        memory = self.memory
        j = ops.arange(memory + self.length, dtype='int32') - memory  # [K]
        if places is None:
            i = ops.arange(self.length, dtype='int32')[None, :, None]
        else:
            i = places[:, :, None]

        def of_queries(x):
            """Takes numbers of queries: [B, T] -> [B, Q, 1]."""
            x = x if places is None else ops.take_along_axis(x, places, axis=1)
            return x[:, :, None]

        def after_memory(allowed):
            """Adds the memory, which all see: [B, Q, T] -> [B, Q, K]."""
            if not memory:
                return allowed
            before = ((0, 0), (0, 0), (memory, 0))
            return ops.pad(allowed, before, constant_values=True)

        rules = []
        if self.causal:
            rules.append(j <= i)
        if self.same_length and memory:
            rules.append(j >= i - memory)
        if self.filled is not None and memory:
            rules.append(j >= -self.filled[:, None, None])
        if self.block_ids is not None:
            blocks = self.block_ids
            same = ops.equal(of_queries(blocks), blocks[:, None, :])
            rules.append(after_memory(same))
        if self.ranks is not None:
            allowed = of_queries(self.sees) > self.ranks[:, None, :]
            if not queries:
                allowed = allowed | ops.equal(i, j[memory:])
            rules.append(after_memory(allowed))
        elif queries:
            rules.append(ops.not_equal(i, j))
        allowed = different = seeing = None
        if rules:
            allowed = functools.reduce(ops.logical_and, rules)[:, None]
            if queries:
                seeing = ops.any(allowed, axis=-1, keepdims=True)
        if self.segment_ids is not None:
            of_keys = ops.pad(self.segment_ids, ((0, 0), (memory, 0)))
            different = ops.not_equal(
                of_queries(self.segment_ids), of_keys[:, None, :]
            )[:, None]
        return Sight(allowed, different, seeing, places)


def sinusoids(
    length: Any,
    memory: int,
    width: int,
    *,
    causal: bool = False,
    clamp: int | None = None,
    longest: int = 512,
) -> Tensor:
    """Computes r: sines, then cosines, of each distance that occurs.

    In float64, as a constant: float32 angles of distances in the hundreds are
    off by as much as 1e-5.

    Args:
        length: T; where unknown, the result is a slice of that for `longest`
            tokens.
        memory: K - T.
        width: D.
        causal: whether to leave out distances to later tokens.
        clamp: the largest distance, to which others are clipped; None: none.
        longest: T of the table that is sliced where T is unknown.

    Returns:
        [S, D] float32: distances K, K - 1, ... 1 - T, if causal ... 0.
    """
    is_static = isinstance(length, int)
    most = length if is_static else longest
    last = 0 if causal else 1 - most
    distances = np.arange(memory + most, last - 1, -1)
    if clamp:
        distances = np.clip(distances, -clamp, clamp)
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = distances[:, None] * frequencies
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    table = table.astype('float32')
    if is_static:
        return table
    count = memory + length + (1 if causal else length)
    return ops.slice(table, (longest - length, 0), (count, width))


def block_count(length: int) -> int:
    """Returns the number of blocks of T tokens, see `relative_scores`."""
    for size in BLOCKS:
        if length % size == 0 and length >= 4 * size:
            return length // size
    return 1


class RelativeAttention(Layer):
    """Attention of any streams to the content stream and the memory."""

    def __init__(
        self,
        width: int,
        heads: int,
        rate: float,
        segments: bool,
        causal: bool,
        biases: bool = True,
        dtype: Any = None,
        name: str = 'attention',
    ):
        """Sets D, H, the rate of dropout, and flags.

        Args:
            segments: whether scores have the segment term.
            causal: whether no key is later than its query.
            biases: whether the layer makes u, v and s; else `call` gets them.
        """
        super().__init__(dtype=dtype, name=name)
        check_heads(width, heads)
        if width % 2:
            raise errors.InputError(
                'width_without_halves', f'a width of {width} has no halves'
            )
        self.width, self.heads, self.rate = width, heads, rate
        self.segments, self.causal, self.has_biases = segments, causal, biases

    def build(self) -> None:
        """Makes the weights, of query, key and value side by side."""
        d, h = self.width, self.heads
        self.kernel = matrix(self, 'qkv_kernel', d, 3 * d)
        self.position_kernel = matrix(self, 'position_kernel', d, d)
        self.output_kernel = matrix(self, 'output_kernel', d, d)
        if self.segments:
            shape = 2, h, d // h
            self.segment_embeddings = table(self, 'segment_embeddings', *shape)
        if self.has_biases:
            self.biases = make_biases(self, h, d // h, self.segments)

    def call(
        self,
        x: Tensor,
        streams: Sequence[tuple[Tensor, Sight]],
        distances: Tensor,
        signs: Tensor | None = None,
        memory: Tensor | None = None,
        biases: Sequence[Tensor] | None = None,
        keys: Sequence[Tensor | None] | None = None,
    ) -> list[Tensor]:
        """Mixes the content stream's values for the queries of every stream.

        Args:
            x: [B, T, D], the content stream, in the compute dtype.
            streams: states [B, Q, D] of the queries of each, and their masks.
            distances: [S, D], r of `sinusoids`, with or without dropout.
            signs: [B], -1 for sequences with reversed text; None: none is.
            memory: [B, K - T, D], or None.
            biases: u, v and s; None: those of the layer.
            keys: [2] uint32 of each stream, or None for inference.

        Returns:
            [B, Q, D] of each stream.
        """
        d, h = self.width, self.heads
        keys = keys or [None] * len(streams)
        biases = self.biases if biases is None else biases
        # 1/sqrt(E) goes into the query's weights, which are few numbers.
        scale = 1.0 / math.sqrt(d // h)
        q_kernel, kv_kernel = split_columns(self.kernel, [d])
        q_kernel = scaled(q_kernel, scale)
        u, v, *s = (scale * ops.reshape(bias, (-1,)) for bias in biases)
        context = x
        if memory is not None:
            context = ops.concatenate([memory, x], axis=1)  # [B, K, D]
        k, values = attention.split_heads(
            project(context, kv_kernel), None, heads=h, count=2, key=keys[0]
        )  # [B, H, K, E] each
        k = ops.swapaxes(k, -1, -2)
        r = self._project_distances(distances, signs is not None)
        length = x.shape[1] or ops.shape(x)[1]
        outputs = []
        for (states, sight), key in zip(streams, keys, strict=True):
            q = project(states, q_kernel)  # [B, Q, D]
            blocks = 1
            single = self.causal or key is None or sight.places is not None
            if not single and isinstance(length, int):
                blocks = block_count(length)
            q_content, q_position = split_queries(
                q, u, v, signs, heads=h, blocks=blocks, key=key
            )
            segment = None
            if self.segments and sight.different is not None:
                segment = self._segment(q, s[0]), sight.different
            scores = relative_scores(
                ops.matmul(q_content, k),
                ops.matmul(q_position, columns_of(r, blocks, length)),
                segment,
                allowed=sight.allowed,
                places=sight.places,
                length=length,
                key=key,
            )
            weights = attention.softmax_dropout(scores, key=key, rate=self.rate)
            mixed = ops.matmul(weights, values)  # [B, H, Q, E]
            if sight.seeing is not None:
                mixed = ops.where(sight.seeing, mixed, ops.cast(0, mixed.dtype))
            mixed = ops.transpose(mixed, (0, 2, 1, 3))
            mixed = ops.reshape(mixed, (-1, ops.shape(mixed)[1], d))
            outputs.append(project(mixed, self.output_kernel))
        return outputs

    def _project_distances(self, distances: Tensor, directed: bool) -> Tensor:
        """Computes W r by head: [H, 1, E, S]; `directed` [H, 1, 2 E, S].

        For the negative distance the sines change sign and the cosines do not:
        W r is cosines + sines in the text's direction and cosines - sines in a
        reversed text. Both terms stay apart, and the query is doubled, its
        second copy times the sign of the sequence.
        """
        d, h = self.width, self.heads
        n = distances.shape[0] or ops.shape(distances)[0]
        distances = ops.cast(distances, self.compute_dtype)
        if not directed:
            r = ops.reshape(
                ops.matmul(distances, self.position_kernel), (n, h, d // h)
            )
        else:
            sines, cosines = (
                ops.reshape(ops.matmul(half, kernel), (n, h, d // h))
                for half, kernel in zip(
                    ops.split(distances, 2, axis=1),
                    ops.split(self.position_kernel, 2, axis=0),
                    strict=True,
                )
            )
            r = ops.concatenate([cosines, sines], axis=-1)
        return ops.transpose(r, (1, 2, 0))[:, None]

    def _segment(self, q: Tensor, s: Tensor) -> Tensor:
        """Computes (q + s) (e_1 - e_0), added for other segments: [B, H, Q].

        Terms that all keys of a query share do not change the softmax.
        """
        d, h = self.width, self.heads
        gap = self.segment_embeddings[1] - self.segment_embeddings[0]  # [H, E]
        each = np.repeat(np.eye(h, dtype='float32'), d // h, axis=0)  # [D, H]
        kernel = ops.reshape(gap, (-1, 1)) * each
        product = project(q, ops.cast(kernel, q.dtype))  # [B, Q, H]
        shift = ops.sum(s[:, None] * kernel, axis=0)
        return ops.transpose(ops.cast(product, 'float32') + shift, (0, 2, 1))


def columns_of(r: Tensor, blocks: int, length: Any) -> Tensor:
    """Takes each block's columns: [H, 1, E, K + T] -> [H, n, E, K + T / n]."""
    if blocks == 1:
        return r
    size = length // blocks
    count = r.shape[-1] - length + size
    begins = [length - (block + 1) * size for block in range(blocks)]
    return ops.concatenate(
        [r[..., begin : begin + count] for begin in begins], axis=1
    )


def make_biases(
    layer: Layer, heads: int, width: int, segments: bool
) -> list[Variable]:
    """Makes the weights u, v and, with segments, s of a layer: [H, E] each."""
    names = ['content_bias', 'position_bias', 'segment_bias']
    return [
        table(layer, name, heads, width)
        for name in names[: 3 if segments else 2]
    ]


class RelativeBlock(Sized):
    """A post-norm block of relative attention and feed-forward."""

    attends = RelativeAttention

    def build(self) -> None:
        """Makes the weights."""
        self.attention.build()
        make_feed_forward(self, self.width, self.inner_width)

    def call(
        self,
        x: Tensor,
        streams: Sequence[tuple[Tensor, Sight]],
        distances: Tensor,
        signs: Tensor | None = None,
        memory: Tensor | None = None,
        biases: Sequence[Tensor] | None = None,
        key: Tensor | None = None,
    ) -> list[Tensor]:
        """Runs the block for every stream, see `RelativeAttention.call`."""
        keys = dropout.keys_of(key, 4 * len(streams))
        sites = [keys[i : i + 4] for i in range(0, len(keys), 4)]
        mixed = self.attention(
            x, streams, distances,
            signs=signs, memory=memory, biases=biases,
            keys=[keys[0] for keys in sites],
        )  # fmt: skip
        return [
            post_norm(
                self, output, None, states, keys=keys[1:], rate=self.rate
            )
            for (states, _), output, keys in zip(
                streams, mixed, sites, strict=True
            )
        ]
