"""One block of ModernBERT: rotary attention, then GeGLU, norms before both.

Neither layers nor norms have biases (Warner et al. 2024, "ModernBERT", §2.1).
By argument the block is that of Llama and of its relatives.

Glossary of shapes: P places, Q query tokens, E width of one head, G heads of
keys and values, F inner width.
"""

import functools
import math
from typing import Any

from infoword_tf import errors
from infoword_tf.layers import attention, band, dropout, pointwise
from infoword_tf.layers.attention import (
    Branch,
    joined,
    matrix,
    mix,
    project,
    scaled,
    scaled_queries,
    split_columns,
    summed,
    vector,
)
from infoword_tf.layers.block import Sized, mask_at, take
from infoword_tf.layers.fused import with_bias
from infoword_tf.layers.rotary import Turn, rotate, split_turned
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

LAYER, RMS = NORMS = ('layer', 'rms')
BEFORE, AFTER, BOTH = ORDERS = ('before', 'after', 'both')
# By name, which parts of a block have biases.
BIASES = {
    'none': (),
    'norms': ('norms',),
    'qkv': ('qkv',),
    'all': ('norms', 'qkv', 'outputs'),
}


class RotaryAttention(Layer):
    """Self-attention with queries and keys rotated by position."""

    def __init__(
        self,
        width: int,
        heads: int,
        rate: float,
        *,
        kv_heads: int | None = None,
        head_width: int | None = None,
        query_scalar: float | None = None,
        qk_norm: bool = False,
        norm_epsilon: float = 1e-6,
        biased: bool = False,
        dtype: Any = None,
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            width: D.
            heads: H.
            rate: of dropout of attention weights.
            kv_heads: G, a divisor of H; None: H.
            head_width: E, even; None: D / H.
            query_scalar: scores are divided by its root; None: E.
            qk_norm: whether queries and keys have RMS norms, over each head.
            norm_epsilon: epsilon of these norms.
            biased: whether queries, keys and values have biases.
        """
        super().__init__(dtype=dtype, name='attention')
        if head_width is None and width % heads or (
            head_width or width // heads
        ) % 2:  # fmt: skip
            raise errors.InputError(
                'rotary_odd_heads',
                f'{heads} heads of an even width do not make up a width of '
                f'{width}',
            )
        if heads % (kv_heads or heads):
            raise errors.InputError(
                'kv_heads_divide_heads',
                f'{kv_heads} heads of keys and values do not divide {heads} '
                'heads of queries',
            )
        self.width, self.heads, self.rate = width, heads, rate
        self.kv_heads = kv_heads or heads
        self.head_width = head_width or width // heads
        self.root = 1.0 / math.sqrt(query_scalar or self.head_width)
        self.qk_norm, self.epsilon = qk_norm, norm_epsilon
        self.biased = biased

    def build(self) -> None:
        """Makes the weights: query, key and value side by side, output."""
        d, e = self.width, self.head_width
        joined = (self.heads + 2 * self.kv_heads) * e
        self.kernel = matrix(self, 'qkv_kernel', d, joined)
        self.bias = vector(self, 'qkv_bias', joined) if self.biased else None
        if self.qk_norm:
            self.query_gamma = vector(self, 'query_norm_gamma', e, 'ones')
            self.key_gamma = vector(self, 'key_norm_gamma', e, 'ones')
        self.output_kernel = matrix(self, 'output_kernel', self.heads * e, d)
        self.built = True

    def _by_head(
        self,
        x: Tensor,
        bias: Tensor | None,
        turn: Turn,
        *,
        gammas: tuple[Tensor | None, ...],
        **more: Any,
    ) -> tuple[Tensor, ...]:
        """Splits projections into heads, normalizes and rotates.

        Args:
            x, bias: as of `split_turned`.
            turn: of the tokens.
            gammas: for each projection that is rotated, of its norm, or None;
                values are not rotated.
            **more: further arguments of `attention.split_heads`.
        """
        key = more['key']
        if not self.qk_norm:
            return split_turned(x, turn, bias=bias, turned=len(gammas), **more)
        split = attention.split_heads(x, bias, **more)
        rotated = (
            rotate(
                pointwise.norm(
                    y, gamma, None, epsilon=self.epsilon,
                    dtype=self.compute_dtype, key=key, rms=True,
                ),
                turn, key=key,
            )
            for y, gamma in zip(split, gammas, strict=False)
        )  # fmt: skip
        return *rotated, *split[len(gammas) :]

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
        compute = functools.partial(
            self._of_heads, x=x, turn=turn, allowed=allowed, queries=queries,
            turn_of_queries=turn_of_queries, reach=reach, block_ids=block_ids,
            key=key, length=length,
        )  # fmt: skip
        return summed(compute, self.kernel, self.bias, self.output_kernel)

    def _of_heads(
        self,
        branch: Branch,
        *,
        x: Tensor,
        turn: Turn,
        allowed: Tensor | None,
        queries: Tensor | None,
        turn_of_queries: Turn | None,
        reach: int | None,
        block_ids: Tensor | None,
        key: Tensor | None,
        length: Any,
    ) -> Tensor:
        """Computes `call` of the heads of a branch."""
        kernel, bias, output_kernel = branch.weights
        allowed, of_queries, of_keys = branch.share(allowed), None, None
        head_count, kv_count = (
            n // branch.count for n in (self.heads, self.kv_heads)
        )
        width = head_count * self.head_width
        if self.qk_norm:
            of_queries = self.query_gamma * self.root
            of_keys = self.key_gamma
        elif key is not None:  # into few numbers, as `Attention` does
            scale = scaled_queries(width, self.root, kernel.shape[-1])
            kernel = scaled(kernel, scale)
            bias = None if bias is None else bias * scale
        by_head = functools.partial(self._by_head, key=key)
        if queries is None and kv_count == head_count:
            q, k, v = by_head(
                project(x, kernel), bias, turn, gammas=(of_queries, of_keys),
                heads=head_count, count=3, length=length,
            )  # fmt: skip
        else:
            q_bias, kv_bias = None, None
            if bias is not None:
                q_bias, kv_bias = ops.split(bias, [width])
            if queries is None:
                joint = project(x, kernel)
                of_q, of_kv = ops.split(joint, [width], axis=-1)
                turn_of_queries, q_length = turn, length
            else:
                q_kernel, kv_kernel = split_columns(kernel, [width])
                of_q, q_length = project(queries, q_kernel), None
                of_kv = project(x, kv_kernel)
            (q,) = by_head(
                of_q, q_bias, turn_of_queries, gammas=(of_queries,),
                heads=head_count, count=1, length=q_length,
            )  # fmt: skip
            k, v = by_head(
                of_kv, kv_bias, turn, gammas=(of_keys,),
                heads=kv_count, count=2, length=length,
            )  # fmt: skip
        if key is None and not self.qk_norm:
            q = q * self.root
        if reach is not None:
            if kv_count != head_count:
                times = head_count // kv_count
                k, v = (ops.repeat(y, times, axis=1) for y in (k, v))
            mixed = band.mixed(
                q, k, v, block_ids, reach=reach, key=key, rate=self.rate
            )
        else:
            mixed = mix(q, k, v, allowed, key=key, rate=self.rate)
        flat = length is not None and queries is None
        return project(joined(mixed, flat), output_kernel)


class RotaryBlock(Sized):
    """A block of attention and a gated feed-forward.

    Norms before both: x = x + attention(norm(x)); x = x + GeGLU(norm(x)), and
    an encoder normalizes the states after its last block. After both: x =
    norm(x + attention(x)); x = norm(x + GeGLU(x)). Both: x = x +
    norm(attention(norm(x))); x = x + norm(GeGLU(norm(x))).

    Attributes:
        first: whether the input is normalised, being the embeddings: then
            there is no norm before the attention. Set before `build`.
    """

    attends = RotaryAttention
    first = False

    def __init__(
        self,
        *sizes: Any,
        norm: str = LAYER,
        norms: str = BEFORE,
        biases: str = 'none',
        **more: Any,
    ):
        """Sets the sizes, as of `Sized`, and how the block is built.

        Args:
            *sizes: as of `Sized`.
            norm: in NORMS.
            norms: in ORDERS.
            biases: in BIASES; norms of the kind RMS have none.
            **more: as of `Sized`, and of `RotaryAttention`.
        """
        biased = BIASES[biases]
        # The epsilon of all norms, which is the last of the sizes.
        super().__init__(
            *sizes, norm_epsilon=sizes[-1], biased='qkv' in biased, **more
        )
        self.rms, self.norms = norm == RMS, norms
        self.biased_norms = 'norms' in biased and not self.rms
        self.biased_outputs = 'outputs' in biased

    def build(self) -> None:
        """Makes the weights."""
        d, f = self.width, self.inner_width
        self.attention.build()
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.bias: dict[str, Any] = dict.fromkeys(('attention', 'outer'))
        for part in ('attention', 'outer'):
            # A norm on one side alone has the same name there.
            if self.norms != AFTER and not (part == 'attention' and self.first):
                self.before[part] = self._norm(f'{part}_norm')
            if self.norms != BEFORE:
                end = '_after' if self.norms == BOTH else ''
                self.after[part] = self._norm(f'{part}{end}_norm')
            if self.biased_outputs:
                self.bias[part] = vector(self, f'{part}_bias', d)
        self.inner_kernel = matrix(self, 'inner_kernel', d, 2 * f)
        self.outer_kernel = matrix(self, 'outer_kernel', f, d)
        self.built = True

    def _norm(self, name: str) -> tuple[Any, Any]:
        """Makes gamma and beta of a norm; beta may be None."""
        beta = None
        gamma = vector(self, f'{name}_gamma', self.width, 'ones')
        if self.biased_norms:
            beta = vector(self, f'{name}_beta', self.width)
        return gamma, beta

    def _sum(
        self,
        part: str,
        x: Tensor,
        residual: Tensor,
        key: Tensor | None,
        dropout_key: Tensor | None,
    ) -> Tensor:
        """Adds the result of a part of the block, with norms behind."""
        bias, more = self.bias[part], {'key': dropout_key, 'rate': self.rate}
        if self.norms == AFTER:
            return pointwise.add_norm(
                x, bias, residual, *self.after[part],
                epsilon=self.epsilon, rms=self.rms, **more,
            )  # fmt: skip
        if self.norms == BOTH:
            x, bias = with_bias(x, bias), None
            x = self.normalized(x, *self.after[part], key)
        return pointwise.add(x, bias, residual, **more)

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
        if before := self.before.get('attention'):
            inputs = self.normalized(x, *before, key)
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
        inputs = x = self._sum('attention', mixed, residual, key, keys[1])
        if before := self.before.get('outer'):
            inputs = self.normalized(x, *before, key)

        def compute(branch: Branch) -> Tensor:
            kernel, outer_kernel = branch.weights
            inner = pointwise.gated(
                project(inputs, kernel), form=self.form, key=key
            )
            return project(inner, outer_kernel)

        outer = summed(compute, self.inner_kernel, self.outer_kernel)
        return self._sum('outer', outer, x, key, keys[2])
