"""One block of ModernBERT: rotary attention, then GeGLU, norms before both.

Neither layers nor norms have biases (Warner et al. 2024, "ModernBERT", §2.1).

Glossary of shapes: P places, Q query tokens, E width of one head.
"""

import functools
import math
from typing import Any

from infoword_tf import errors
from infoword_tf.layers import activation, band, dropout, norm
from infoword_tf.layers.attention import (
    joined,
    matrix,
    mix,
    project,
    scaled_queries,
    vector,
)
from infoword_tf.layers.block import Sized, mask_at, take
from infoword_tf.layers.rotary import Turn, split_turned
from infoword_tf.lazy import Layer, ops

Tensor = Any


class RotaryAttention(Layer):
    """Self-attention with queries and keys rotated by position."""

    def __init__(self, width: int, heads: int, rate: float, dtype: Any = None):
        """Sets D, H (D / H is even) and the rate of dropout."""
        super().__init__(dtype=dtype, name='attention')
        if width % (2 * heads):
            raise errors.InputError(
                'rotary_odd_heads',
                f'{heads} heads of an even width do not make up a width of '
                f'{width}',
            )
        self.width, self.heads, self.rate = width, heads, rate

    def build(self) -> None:
        """Makes the weights: query, key and value side by side, output."""
        d = self.width
        self.kernel = matrix(self, 'qkv_kernel', d, 3 * d)
        self.output_kernel = matrix(self, 'output_kernel', d, d)
        self.built = True

    def call(
        self,
        x: Tensor,
        *,
        turn: Turn,
        allowed: Tensor | None = None,
        queries: Tensor | None = None,
        turn_of_queries: Turn | None = None,
        reach: int | None = None,
        block_ids: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Mixes values by softmax(q k / sqrt(E)), q and k rotated.

        Args:
            x, allowed, key, length: as in `Attention`.
            turn: of all T tokens.
            queries: [B, Q, D], states of x that attend to x; None: all of x.
            turn_of_queries: rotations of `queries`.
            reach: of a band, instead of `allowed`; None: no band.
            block_ids: [B, T] int32 of a band.

        Returns:
            [B, T or Q, D]; flattened like x.
        """
        root = 1.0 / math.sqrt(self.width // self.heads)
        kernel = self.kernel
        if key is not None:  # into few numbers, as `Attention` does
            scale = scaled_queries(self.width, root)
            kernel = kernel * ops.cast(scale, self.compute_dtype)
        by_head = functools.partial(split_turned, heads=self.heads, key=key)
        if queries is None:
            q, k, v = by_head(
                project(x, kernel), turn, count=3, turned=2, length=length
            )
        else:
            q_kernel, kv_kernel = ops.split(kernel, [self.width], axis=-1)
            (q,) = by_head(
                project(queries, q_kernel), turn_of_queries, count=1, turned=1
            )
            k, v = by_head(
                project(x, kv_kernel), turn, count=2, turned=1, length=length
            )
        if key is None:
            q = q * root
        if reach is not None:
            mixed = band.mixed(
                q, k, v, block_ids, reach=reach, key=key, rate=self.rate
            )
        else:
            mixed = mix(q, k, v, allowed, key=key, rate=self.rate)
        flat = length is not None and queries is None
        return project(joined(mixed, flat), self.output_kernel)


class RotaryBlock(Sized):
    """A block x = x + attention(norm(x)); x = x + GeGLU(norm(x)).

    An encoder normalizes the states after its last block.

    Attributes:
        first: whether the input is normalised, being the embeddings: then
            there is no norm before the attention. Set before `build`.
    """

    attends = RotaryAttention
    first = False

    def build(self) -> None:
        """Makes the weights."""
        d, f = self.width, self.inner_width
        self.attention.build()
        if not self.first:
            self.attention_gamma = vector(
                self, 'attention_norm_gamma', d, 'ones'
            )
        self.outer_gamma = vector(self, 'outer_norm_gamma', d, 'ones')
        self.inner_kernel = matrix(self, 'inner_kernel', d, 2 * f)
        self.outer_kernel = matrix(self, 'outer_kernel', f, d)
        self.built = True

    def call(
        self,
        x: Tensor,
        *,
        turn: Turn,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        reach: int | None = None,
        block_ids: Tensor | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Runs the block, for all tokens or at the given places.

        Args:
            x, allowed, places, key, length: as in `Block`.
            turn, reach, block_ids: as in `RotaryAttention`; a band has no
                places.

        Returns:
            [B, T, D], flattened like x; or [B, P, D] at places.
        """
        keys, inputs = dropout.keys_of(key, 3), x
        if not self.first:
            inputs = self.normalized(x, self.attention_gamma, None, key)
        queries, turn_of_queries, residual = None, None, x
        if places is not None:
            residual = take(x, places, length)
            queries = take(inputs, places, length)
            turn_of_queries = turn.at(places)
            allowed = mask_at(allowed, places)
        mixed = self.attention(
            inputs,
            turn=turn,
            allowed=allowed,
            queries=queries,
            turn_of_queries=turn_of_queries,
            reach=reach,
            block_ids=block_ids,
            key=keys[0],
            length=length,
        )
        x = norm.add(mixed, None, residual, key=keys[1], rate=self.rate)
        inputs = self.normalized(x, self.outer_gamma, None, key)
        inner = activation.gated(
            project(inputs, self.inner_kernel), form=self.form, key=key
        )
        outer = project(inner, self.outer_kernel)
        return norm.add(outer, None, x, key=keys[2], rate=self.rate)
