"""Scores against a queue: very many vectors, into which no gradient flows.

A fused piece, see `fused.py`. The queue is taken in blocks, whose scores stay
in the processor's cache from the product that makes them to the sums.

Glossary of shapes: B queries, J pairs of each, N = B J, D width, S vectors of
the queue, M of a block.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from infoword_tf.layers.fused import (
    compiled,
    over_columns,
    to_float,
    with_gradient,
)
from infoword_tf.lazy import ops

Tensor = Any
NEVER = -1e30
SCORES_AT_ONCE = 2**19  # numbers of a block, 2 MiB; more of very many
MOST_BLOCKS = 32  # that a graph holds
LANES = 2  # of `over_columns`: in the cache more gain nothing


class QueueScores(NamedTuple):
    """What N pairs' scores over a queue come to.

    Others are all its vectors but those of the very text that a pair's
    positive is of. Only `others` has a gradient.

    Attributes:
        others: [N] log of the sum over others of exp(h score), h a constant
            weight exp(sharpness score).
        weight: [N] the sum over others of h: how many, where all weigh 1.
        size: [N] how many others there are.
    """

    others: Tensor
    weight: Tensor
    size: Tensor


def _other(ids: Tensor, there: Tensor, targets: Tensor) -> Tensor:
    """[M], [M], [B, J] -> [B, J, M] bool: there, and of another text."""
    return ops.logical_and(there, ops.not_equal(ids, targets[..., None]))


@compiled
def _sums(scores, targets, ids, there, *, sharpness):
    """[B, M], [B, J], [M], [M] -> `QueueScores` [B, J]."""

    def others(scores, ids, there):
        other = _other(ids, there, targets)
        return ops.where(other, scores[:, None], NEVER)

    def reduced(of, combine, reduce):
        arrays = scores, ids, there
        return over_columns(of, combine, reduce, *arrays, lanes=LANES)

    highest = reduced(others, ops.maximum, ops.max)
    factor = 1.0 + sharpness

    def exponential(*block):
        return ops.exp(factor * (others(*block) - highest[..., None]))

    def copied(scores, ids, there):
        own = ops.equal(ids, targets[..., None])
        return to_float(ops.logical_and(own, there))

    def hard(*block):
        return ops.exp(sharpness * others(*block))

    total = reduced(exponential, ops.add, ops.sum)
    size = ops.sum(to_float(there)) - reduced(copied, ops.add, ops.sum)
    weight = reduced(hard, ops.add, ops.sum) if sharpness else size
    return factor * highest + ops.log(total), weight, size


@compiled
def _scores_grad(scores, targets, ids, there, log_sum, d_log_sum, *, sharpness):
    """[B, M], of the others' `log_sum` [B, J]."""
    scores = (1.0 + sharpness) * scores[:, None]
    total = ops.exp(scores - log_sum[..., None]) * d_log_sum[..., None]
    # Masked behind it: where there is no other, the exponential is infinite.
    return ops.sum(ops.where(_other(ids, there, targets), total, 0.0), axis=1)


def queue_scores(
    queries: Tensor,
    rows: Tensor,
    ids: Tensor,
    there: Tensor,
    targets: Tensor,
    *,
    sharpness: float = 0.0,
    finish: Callable[[Tensor], Tensor] | None = None,
    key: Tensor | None = None,
) -> QueueScores:
    """Scores queries against a queue, reading it once each way.

    Args:
        queries: [B, D] float32; J pairs, one after the other, share one.
        rows: [S, D'], the queue.
        ids: [S] int32, equal where vectors are of the same text.
        there: [S] bool: which places of the queue hold a vector.
        targets: [N] int32, what each pair's own b is.
        sharpness: how much more a high score weighs, see `QueueScores`.
        finish: of vectors [M, D'], those [M, D] that are compared; None: they
            are.
        key: None runs plain operations.
    """
    size, pairs = rows.shape[0], targets.shape[0]
    shape = queries.shape[0], pairs // queries.shape[0]
    targets = ops.reshape(targets, shape)
    blocks = min(-(-size * pairs // SCORES_AT_ONCE), MOST_BLOCKS, size)
    found = []
    for i in range(blocks):
        block = slice(i * size // blocks, (i + 1) * size // blocks)
        vectors = to_float(rows[block])
        if finish is not None:
            vectors = finish(vectors)
        found.append(
            _block_scores(
                ops.matmul(queries, ops.transpose(vectors)),
                targets, ids[block], there[block], sharpness, key,
            )
        )  # fmt: skip
    others, *sums = (
        ops.reshape(ops.stack(parts), (blocks, pairs))
        for parts in zip(*found, strict=True)
    )
    return QueueScores(
        ops.logsumexp(others, axis=0), *(ops.sum(x, axis=0) for x in sums)
    )


def _block_scores(scores, targets, ids, there, sharpness, key):
    """What `_sums` gives, with a gradient."""
    summed, gradient_of = _sums, _scores_grad
    if key is None:
        summed, gradient_of = (f.__wrapped__ for f in (summed, gradient_of))

    def function(scores):
        results = summed(scores, targets, ids, there, sharpness=sharpness)

        def grad(d_others, *rest):
            del rest
            return gradient_of(
                scores, targets, ids, there, results[0], d_others,
                sharpness=sharpness,
            )  # fmt: skip

        return results, grad

    return with_gradient(function, scores)
