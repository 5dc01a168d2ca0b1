"""One block of ModernBERT: rotary attention, then GeGLU, norms before both.

Neither layers nor norms have biases (Warner et al. 2024, "ModernBERT", §2.1).
By argument the block is that of Llama and of its relatives.

**Rotary positions** (Su et al. 2021, "RoFormer", §3.2.2): each query and key is
rotated by its position, in E / 2 planes with a speed each; their product then
depends on the distance of the positions alone. Planes are of the numbers i and
i + E / 2. A fused operation, see `fused.py`.

**A band** of the scores, and no others computed: a token attends to tokens at a
distance of at most `reach` (Beltagy et al. 2020, "Longformer", §3.1). Queries
are split into chunks of that length. Each chunk meets the keys of its own chunk
and of both neighbours, so that a query has 3 reach scores instead of T.

Glossary of shapes: P places, Q query tokens, E width of one head, G heads of
keys and values, F inner width, n projections, C chunks, W reach.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf import errors
from infoword_tf.layers import attention, dropout, pointwise
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
from infoword_tf.layers.fused import (
    compiled,
    plus_bias,
    read,
    sum_rows,
    to_float,
    with_bias,
    with_gradient,
)
from infoword_tf.layers.pointwise import Norm
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
EPSILON = 1e-6  # of norms of queries and keys, unless a block has another
CHUNKS = 4  # with fewer, a mask over all scores is as fast


@dataclasses.dataclass(frozen=True)
class Turn:
    """Rotations of tokens.

    Not a tuple, since Keras casts the tensors in a tuple to the compute dtype.

    Attributes:
        cos, sin: [B or 1, T, E / 2] float32.
    """

    cos: Tensor
    sin: Tensor

    def at(self, places: Tensor) -> 'Turn':
        """Takes the rotations at places [B, P] int32 of each sequence."""

        def at_places(x):
            if x.shape[0] == 1:
                return ops.take(x[0], places, axis=0)
            return take(x, places)

        return Turn(at_places(self.cos), at_places(self.sin))


def turns(
    positions: Tensor,
    width: int,
    theta: float,
    *,
    factor: float = 1.0,
    bounds: Sequence[float] | None = None,
) -> Turn:
    """Computes angles p / f theta^(-2 i / E) of positions p and planes i.

    Args:
        positions: [B or 1, T] int32.
        width: E, even.
        theta: base that with E determines the slowest plane's wave length.
        factor: f, by which a model reads longer texts (Chen et al. 2023,
            "Extending Context Window ... via Positional Interpolation", §2.3).
        bounds: (low, high, T), by which planes are slowed: those with `low`
            turns in T tokens or fewer, none with `high` or more, in between in
            part; None: all planes.
    """
    speeds = theta ** (-np.arange(0, width, 2) / width)
    if bounds:
        low, high, length = bounds
        share = (length * speeds / (2 * np.pi) - low) / (high - low)
        share = np.clip(share, 0, 1)
        speeds = speeds * ((1 - share) / factor + share)
    else:
        speeds = speeds / factor
    angles = to_float(positions)[..., None] * speeds.astype('float32')
    return Turn(ops.cos(angles), ops.sin(angles))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates [B, H, T, E] float32 by [B or 1, T, E / 2]; by -sin back."""
    cos, sin = cos[:, None], sin[:, None]
    first, second = ops.split(x, 2, axis=-1)
    halves = [first * cos - second * sin, second * cos + first * sin]
    return ops.concatenate(halves, axis=-1)


@compiled
def _split(x, bias, cos, sin, *, heads, count, turned):
    b, t, width = ops.shape(x)
    y = x if bias is None else ops.cast(plus_bias(x, bias), x.dtype)
    y = ops.reshape(y, (b, t, count, heads, width // (count * heads)))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # [n, B, H, T, E]
    return tuple(
        ops.cast(_turned(to_float(y[i]), cos, sin), x.dtype)
        if i < turned
        else y[i]
        for i in range(count)
    )


@compiled
def _all_turned(tensors, cos, sin):
    return tuple(
        ops.cast(_turned(to_float(x), cos, sin), x.dtype) for x in tensors
    )


def rotate(x: Tensor, turn: Turn, *, key: Tensor | None = None) -> Tensor:
    """Rotates heads [B, H, T, E] by position, see `split_turned`."""
    if key is None:
        return ops.cast(_turned(to_float(x), turn.cos, turn.sin), x.dtype)

    def function(x):
        def grad(upstream):
            return _all_turned((upstream,), turn.cos, -turn.sin)

        (result,) = _all_turned((x,), turn.cos, turn.sin)
        return result, grad

    return with_gradient(function, x)


def split_turned(
    x: Tensor,
    turn: Turn,
    *,
    bias: Tensor | None = None,
    heads: int,
    count: int,
    turned: int,
    key: Tensor | None = None,
    length: Any = None,
) -> tuple[Tensor, ...]:
    """Splits heads as `attention.split_heads`, and rotates.

    Args:
        x, bias, heads, count, key, length: arguments of
            `attention.split_heads`.
        turn: rotations of the T tokens.
        turned: number of the n projections that are rotated; values are not.

    Returns:
        n tensors [B, H, T, E] in x's dtype.
    """
    if key is None:
        projections = attention.split_heads(
            x, bias, heads=heads, count=count, length=length
        )
        return tuple(
            rotate(y, turn) if i < turned else y
            for i, y in enumerate(projections)
        )

    def function(x, bias):
        def grad(*upstream):
            back = _all_turned(upstream[:turned], turn.cos, -turn.sin)
            total = attention.joined_heads((*back, *upstream[turned:]))
            return total, None if bias is None else sum_rows(total)

        results = _split(
            x, bias, turn.cos, turn.sin,
            heads=heads, count=count, turned=turned,
        )  # fmt: skip
        return results, grad

    return with_gradient(function, x, read(bias))


def band_is_faster(length: Any, reach: int) -> bool:
    """Tells whether a band is faster: where T is known, and long."""
    return isinstance(length, int) and length > CHUNKS * reach


def near_mask(length: Any, reach: int) -> Tensor:
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


def _chunks(x: Tensor, length: int, reach: int) -> Tensor:
    """Splits [B, T, ...] into chunks [B, C, W, ...]."""
    chunks = -(-length // reach)
    ends = [(0, 0), (0, chunks * reach - length)]
    ends += [(0, 0)] * (len(x.shape) - 2)
    x = ops.pad(x, ends)
    return ops.reshape(x, (-1, chunks, reach, *x.shape[2:]))


def _with_neighbours(x: Tensor, length: int, reach: int) -> Tensor:
    """Joins chunks with both neighbours: [B, T, ...] -> [B, C, 3 W, ...]."""
    x = _chunks(x, length, reach)
    ends = [(0, 0), (1, 1)] + [(0, 0)] * (len(x.shape) - 2)
    x = ops.pad(x, ends)
    return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)


@dataclasses.dataclass(frozen=True)
class Band:
    """A band of scores. Not a tuple, as `Turn`.

    Attributes:
        reach: W.
        block_ids: [B, T] int32: tokens attend within their block; None: one
            block.
    """

    reach: int
    block_ids: Tensor | None = None


def mix_near(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    band: Band,
    *,
    key: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """Averages values by the softmax of q k over near tokens.

    Args:
        q, k, v: [B, H, T, E], q scaled; T known.
        band: tokens that each attends to.
        key: [2] uint32, or None for inference.
        rate: share that dropout takes of the weights.

    Returns:
        [B, H, T, E].
    """
    _, h, length, e = q.shape
    reach, block_ids = band.reach, band.block_ids
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
        of_queries = _chunks(block_ids, length, reach)[..., None]
        of_keys = _with_neighbours(block_ids, length, reach)
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


@dataclasses.dataclass(frozen=True)
class Queries:
    """Tokens at places, as queries. Not a tuple, as `Turn`.

    Attributes:
        states: [B, Q, D].
        turn: rotations of these tokens.
    """

    states: Tensor
    turn: Turn


class RotaryAttention(Layer):
    """Self-attention with queries and keys rotated by position.

    Attributes:
        epsilon: epsilon of the norms of queries and keys.
    """

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
        biased: bool = False,
        dtype: Any = None,
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            width: D.
            heads: H.
            rate: share that dropout takes of attention weights.
            kv_heads: G, a divisor of H; None: H.
            head_width: E, even; None: D / H.
            query_scalar: number whose root divides scores; None: E.
            qk_norm: whether queries and keys have RMS norms, over each head.
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
        self.qk_norm, self.epsilon = qk_norm, EPSILON
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
            x, bias: arguments of `split_turned`.
            turn: rotations of the tokens.
            gammas: weights of the norm, or None, of each projection that is
                rotated; values are not.
            **more: further arguments of `attention.split_heads`.
        """
        key = more['key']
        if not self.qk_norm:
            return split_turned(x, turn, bias=bias, turned=len(gammas), **more)
        split = attention.split_heads(x, bias, **more)
        rotated = (
            rotate(
                pointwise.norm(
                    y, Norm(gamma, None, self.epsilon, rms=True),
                    dtype=self.compute_dtype, key=key,
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
        queries: Queries | None = None,
        band: Band | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Mixes values by softmax(q k / sqrt(E)), q and k rotated.

        Args:
            x, allowed, key, length: arguments of `Attention.call`.
            turn: rotations of all T tokens.
            queries: tokens of x that attend to x; None: all of x.
            band: tokens that each attends to, instead of `allowed`; None: no
                band.

        Returns:
            [B, T or Q, D]; flattened like x.
        """
        compute = functools.partial(
            self._of_heads, x=x, turn=turn, allowed=allowed, queries=queries,
            band=band, key=key, length=length,
        )  # fmt: skip
        return summed(compute, self.kernel, self.bias, self.output_kernel)

    def _of_heads(
        self,
        branch: Branch,
        *,
        x: Tensor,
        turn: Turn,
        allowed: Tensor | None,
        queries: Queries | None,
        band: Band | None,
        key: Tensor | None,
        length: Any,
    ) -> Tensor:
        """Computes `call` of the heads of a branch."""
        kernel, bias, output_kernel = branch.weights
        allowed, of_queries, of_keys = branch.share(allowed), None, None
        head_count, kv_count = (
            n // branch.branches for n in (self.heads, self.kv_heads)
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
                q_turn, q_length = turn, length
            else:
                q_kernel, kv_kernel = split_columns(kernel, [width])
                of_q = project(queries.states, q_kernel)
                of_kv = project(x, kv_kernel)
                q_turn, q_length = queries.turn, None
            (q,) = by_head(
                of_q, q_bias, q_turn, gammas=(of_queries,),
                heads=head_count, count=1, length=q_length,
            )  # fmt: skip
            k, v = by_head(
                of_kv, kv_bias, turn, gammas=(of_keys,),
                heads=kv_count, count=2, length=length,
            )  # fmt: skip
        if key is None and not self.qk_norm:
            q = q * self.root
        if band is not None:
            if kv_count != head_count:
                times = head_count // kv_count
                k, v = (ops.repeat(y, times, axis=1) for y in (k, v))
            mixed = mix_near(q, k, v, band, key=key, rate=self.rate)
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
            *sizes: arguments of `Sized`.
            norm: name in NORMS.
            norms: name in ORDERS.
            biases: name in BIASES; norms of the kind RMS have none.
            **more: further arguments of `Sized` and of `RotaryAttention`.
        """
        biased = BIASES[biases]
        super().__init__(*sizes, biased='qkv' in biased, **more)
        self.attention.epsilon = self.epsilon
        self.rms, self.norms = norm == RMS, norms
        self.biased_norms = 'norms' in biased and not self.rms
        self.biased_outputs = 'outputs' in biased

    def build(self) -> None:
        """Makes the weights."""
        d, f = self.width, self.inner_width
        self.attention.build()
        self.before: dict[str, tuple[Any, Any]] = {}
        self.after: dict[str, tuple[Any, Any]] = {}
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
        *,
        key: Tensor | None,
        dropout_key: Tensor | None,
    ) -> Tensor:
        """Adds the result of a part of the block, with norms behind."""
        bias = self.bias[part]
        if self.norms == AFTER:
            norm = Norm(*self.after[part], self.epsilon, self.rms)
            return pointwise.add_norm(
                x, bias, residual, norm, key=dropout_key, rate=self.rate
            )
        if self.norms == BOTH:
            x, bias = with_bias(x, bias), None
            x = self.normalized(x, *self.after[part], key)
        return pointwise.add(
            x, bias, residual, key=dropout_key, rate=self.rate
        )

    def call(
        self,
        x: Tensor,
        *,
        turn: Turn,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        band: Band | None = None,
        key: Tensor | None = None,
        length: Any = None,
    ) -> Tensor:
        """Runs the block, for all tokens or at the given places.

        Args:
            x, allowed, places, key, length: arguments of `Block.call`.
            turn, band: arguments of `RotaryAttention.call`; a band has no
                places.

        Returns:
            [B, T, D], flattened like x; or [B, P, D] at places.
        """
        keys, inputs = dropout.keys_of(key, 3), x
        if before := self.before.get('attention'):
            inputs = self.normalized(x, *before, key)
        queries, residual = None, x
        if places is not None:
            residual = take(x, places, length)
            queries = Queries(take(inputs, places, length), turn.at(places))
            allowed = mask_at(allowed, places)
        mixed = self.attention(
            inputs,
            turn=turn,
            allowed=allowed,
            queries=queries,
            band=band,
            key=keys[0],
            length=length,
        )
        inputs = x = self._sum(
            'attention', mixed, residual, key=key, dropout_key=keys[1]
        )
        if before := self.before.get('outer'):
            inputs = self.normalized(x, *before, key)

        def compute(branch: Branch) -> Tensor:
            kernel, outer_kernel = branch.weights
            inner = pointwise.gated(
                project(inputs, kernel), form=self.form, key=key
            )
            return project(inner, outer_kernel)

        outer = summed(compute, self.inner_kernel, self.outer_kernel)
        return self._sum('outer', outer, x, key=key, dropout_key=keys[2])
