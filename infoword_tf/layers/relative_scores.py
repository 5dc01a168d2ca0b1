"""Scores of relative attention: content, distance, segment (Dai et al. 2019).

Fused operations, see `fused.py`: the queries for content and for distance, and
the sum of the terms of a score (§3.3), for which products by distance are
shifted to their keys; those of keys and distances (He et al. 2021) to their
queries.

Glossary of shapes: Q query tokens, S distances, n blocks, E width of one head.
"""

import functools
from typing import Any

from infoword_tf.layers.attention import masked
from infoword_tf.layers.fused import (
    compiled,
    sum_rows,
    to_float,
    with_gradient,
)
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor


@compiled
def _queries(x, content_bias, position_bias, signs, *, heads, blocks):
    return _queries_plain(
        x, content_bias, position_bias, signs, heads=heads, blocks=blocks
    )


def _queries_plain(x, content_bias, position_bias, signs, *, heads, blocks):
    length, width = x.shape[1] or ops.shape(x)[1], x.shape[-1]
    e, y = width // heads, to_float(x)

    def by_head(bias):
        return ops.reshape(y + bias, (-1, length, heads, e))

    content = ops.transpose(by_head(content_bias), (0, 2, 1, 3))
    position = by_head(position_bias)
    if signs is not None:
        signs = to_float(signs)[:, None, None, None]
        position = ops.concatenate([position, signs * position], axis=-1)
    n = position.shape[-1]
    position = ops.reshape(position, (-1, blocks, length // blocks, heads, n))
    position = ops.transpose(position, (3, 1, 0, 2, 4))
    return (
        ops.cast(content, x.dtype),
        ops.cast(ops.reshape(position, (heads, blocks, -1, n)), x.dtype),
    )


@compiled
def _queries_grad(content, position, signs):
    b, heads, length, e = ops.shape(content)
    dtype, (_, blocks, _, n) = content.dtype, position.shape
    content = ops.transpose(to_float(content), (0, 2, 1, 3))  # [B, Q, H, E]
    position = ops.reshape(
        to_float(position), (heads, blocks, b, length // blocks, n)
    )
    position = ops.transpose(position, (2, 1, 3, 0, 4))
    position = ops.reshape(position, (b, length, heads, n))
    if signs is not None:
        signs = to_float(signs)[:, None, None, None]
        position = position[..., :e] + signs * position[..., e:]
    return tuple(
        ops.cast(ops.reshape(x, (b, length, heads * e)), dtype)
        for x in (content + position, content, position)
    )


def split_queries(
    x: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    signs: Tensor | None = None,
    *,
    heads: int,
    blocks: int = 1,
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the two queries of relative attention: q + u and q + v, by head.

    Args:
        x: [B, Q, D], q of all heads, in the compute dtype.
        content_bias, position_bias: [D] float32, u and v.
        signs: [B], 1 or -1: the position's query is then doubled, the second
            copy times the sign. None: not doubled.
        blocks: n, a divisor of Q: runs of tokens that `relative_scores` reads
            separately.

    Returns:
        [B, H, Q, E]; [H, n, B Q / n, E or 2 E], the queries of a block
        contiguous.
    """
    if key is None:
        return _queries_plain(
            x, content_bias, position_bias, signs, heads=heads, blocks=blocks
        )

    def function(x, content_bias, position_bias):
        def grad(*upstream):
            total, content, position = _queries_grad(*upstream, signs)
            return total, sum_rows(content), sum_rows(position)

        results = _queries(
            x, content_bias, position_bias, signs, heads=heads, blocks=blocks
        )
        return results, grad

    return with_gradient(function, x, content_bias, position_bias)


def _by_key(x, places, *, batch, length, keys):
    """Shifts [H, n, B Q / n, S] by distance to [B, H, Q, K] by key.

    Without places each query's keys begin one column before those of the query
    before it: in a flattened block of t queries they are S - 1 numbers apart,
    from number t on.
    """
    heads, blocks, _, n = x.shape
    n = n or ops.shape(x)[-1]
    if places is None:
        t = length // blocks
        x = ops.reshape(x, (heads, blocks, -1, t * n))[..., t:]
        x = ops.reshape(x, (heads, blocks, -1, t, n - 1))[..., :keys]
        x = ops.transpose(x, (2, 0, 1, 3, 4))
        return ops.reshape(x, (-1, heads, length, keys))
    queries = places.shape[1] or ops.shape(places)[1]
    columns = length - places[..., None] + ops.arange(keys, dtype='int32')
    columns = ops.minimum(columns, n - 1)[:, None]  # [B, 1, Q, K]
    lines = _numbers(heads, batch, queries)  # [H, B, Q, 1]
    lines = ops.transpose(lines, (1, 0, 2, 3))
    return ops.take(ops.reshape(x, (-1,)), lines * n + columns)


def _by_query(x, places, *, batch, length):
    """Shifts [H, n, B T / n, S] of keys by distance to [B, H, Q, T].

    As `_by_key` with keys and queries exchanged.
    """
    if places is None:
        by_key = _by_key(x, None, batch=batch, length=length, keys=length)
        return ops.swapaxes(by_key, -1, -2)
    keys = ops.arange(length, dtype='int32')
    columns = (length + places[..., None] - keys)[:, None]  # [B, 1, Q, T]
    lines = _numbers(x.shape[0], batch, length)
    lines = ops.transpose(lines, (1, 0, 3, 2))  # [B, H, 1, T]
    n = x.shape[-1] or ops.shape(x)[-1]
    return ops.take(ops.reshape(x, (-1,)), lines * n + columns)


def _everywhere(x, places, length):
    """Adds rows of queries at places up: [B, H, Q, T] -> [B, H, T, T]."""
    at = ops.one_hot(places, length, axis=1, dtype=x.dtype)  # [B, T, Q]
    return ops.matmul(at[:, None], x)


def _numbers(*shape):
    """Returns 0, 1, 2, ... as [*shape, 1] int32."""
    size = functools.reduce(lambda x, y: x * y, shape)
    return ops.reshape(ops.arange(size, dtype='int32'), (*shape, 1))


def _by_distance(x, places, *, length, blocks, n):
    """Returns the gradient of `_by_key`: [B, H, Q, K] -> [H, n, B Q / n, S]."""
    b, heads, queries, keys = ops.shape(x)
    if places is None:
        t = length // blocks
        x = ops.reshape(x, (b, heads, blocks, t, keys))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.pad(x, ((0, 0),) * 4 + ((0, n - 1 - keys),))
        x = ops.reshape(x, (heads, blocks, b, t * (n - 1)))
        x = ops.pad(x, ((0, 0),) * 3 + ((t, 0),))
        return ops.reshape(x, (heads, blocks, b * t, n))
    columns = ops.arange(n, dtype='int32') - length + places[..., None]
    inside = (columns >= 0) & (columns < keys)  # [B, Q, S]
    columns = ops.clip(columns, 0, keys - 1)
    lines = _numbers(b, heads, queries)
    lines = ops.transpose(lines, (1, 0, 2, 3))  # [H, B, Q, 1]
    gradient = ops.take(ops.reshape(x, (-1,)), lines * keys + columns)
    gradient = ops.where(inside, gradient, ops.cast(0, x.dtype))
    return ops.reshape(gradient, (heads, 1, b * queries, n))


def _relative_plain(
    content, position, segment, of_keys, *, different, allowed, places, length
):
    sizes = {
        'batch': content.shape[0] or ops.shape(content)[0],
        'length': length,
    }
    keys = content.shape[-1] or ops.shape(content)[-1]
    total = to_float(content)
    total = total + to_float(_by_key(position, places, keys=keys, **sizes))
    if segment is not None:
        total = total + ops.where(different, segment[..., None], 0.0)
    if of_keys is not None:
        total = total + to_float(_by_query(of_keys, places, **sizes))
    return ops.cast(masked(total, allowed), content.dtype)


_relative = compiled(_relative_plain)


@compiled
def _relative_grad(upstream, different, places, *, length, blocks, n):
    segment = None
    if different is not None:
        segment = ops.where(different, to_float(upstream), 0.0)
        segment = ops.sum(segment, axis=-1)
    by_distance = _by_distance(
        upstream, places, length=length, blocks=blocks, n=n
    )
    return by_distance, segment


@compiled
def _of_keys_grad(upstream, *, length, blocks, n):
    upstream = ops.swapaxes(upstream, -1, -2)
    return _by_distance(upstream, None, length=length, blocks=blocks, n=n)


def relative_scores(
    content: Tensor,
    position: Tensor,
    segment: tuple[Tensor, Tensor] | None = None,
    of_keys: Tensor | None = None,
    *,
    allowed: Tensor | None = None,
    places: Tensor | None = None,
    length: Any,
    key: Tensor | None = None,
) -> Tensor:
    """Sums the terms of a relative score (Dai et al. 2019, §3.3) and masks.

    Arrays as large as all scores are read once and written once. The position
    term comes by distance, from one product, and is shifted to its keys on the
    way: of a token at i the columns T - i, T - i + 1, ... belong to keys 0, 1,
    ... (K of them, of which K - T are memory). Where all tokens are queries, a
    block of t = T / n tokens needs K + t columns only, which for its first
    token begin at t; a single block is the usual case.

    Args:
        content: [B, H, Q, K] in the compute dtype, (q + u) k.
        position: [H, n, B Q / n, S] in the compute dtype, (q + v) r: with one
            block distances K, K - 1, ... down to 1 - T, or to 0 where later
            keys are not allowed.
        segment: term [B, H, Q] float32, and [B, 1, Q, K] bool, True where it
            is added, key and query being of different segments; or None.
        of_keys: [H, n, B T / n, 2 T] in the compute dtype, products of keys, of
            which none is memory, and distances to queries: -T, 1 - T, ... up
            to T - 1; or None.
        allowed: [B or 1, 1, Q or 1, K] bool, True where attention is allowed,
            or without a key numbers (`attention.as_numbers`); None:
            everywhere. The gradient supposes that keys that are not
            allowed get a weight of 0, so queries without any key are not to be
            used.
        places: [B, Q] int32 of the query tokens, n = 1; None: all T, in
            order.
        length: T.

    Returns:
        [B, H, Q, K] in the compute dtype, -1e30 where not allowed.
    """
    term, different = segment or (None, None)
    more = {
        'different': different,
        'allowed': allowed,
        'places': places,
        'length': length,
    }
    if key is None or not isinstance(length, int):
        # XLA needs static strides.
        return _relative_plain(content, position, term, of_keys, **more)

    def function(content, position, segment, of_keys):
        scores = _relative(content, position, segment, of_keys, **more)

        def grad(upstream):
            by_distance, by_segment = _relative_grad(
                upstream,
                None if segment is None else different,
                places,
                length=length,
                blocks=position.shape[1],
                n=position.shape[-1],
            )
            by_key = None
            if of_keys is not None:
                by_key = _of_keys_grad(
                    upstream if places is None
                    else _everywhere(upstream, places, length),
                    length=length,
                    blocks=of_keys.shape[1],
                    n=of_keys.shape[-1],
                )  # fmt: skip
            return upstream, by_distance, by_segment, by_key

        return scores, grad

    inputs = content, position, term, of_keys
    return with_gradient(function, *inputs)
