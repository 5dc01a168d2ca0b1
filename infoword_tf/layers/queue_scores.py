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

    Copies are vectors of the very text that a pair's positive is of; others
    are all but these. Only `others` has a gradient.

    Attributes:
        log_sum: [N] log of the sum of exp score, of copies too.
        others: [N] log of the sum over others of exp(h score), h a constant
            weight exp(sharpness score).
        weight: [N] the sum over others of h: how many, where all weigh 1.
        rank: [N] how many others score at least as high as the positive.
        copies: [N] how many there are.
        size: scalar, how many vectors the queue holds.
    """

    log_sum: Tensor
    others: Tensor
    weight: Tensor
    rank: Tensor
    copies: Tensor
    size: Tensor


def _other(ids: Tensor, there: Tensor, targets: Tensor) -> Tensor:
    """[M], [M], [B, J] -> [B, J, M] bool: there, and of another text."""
    return ops.logical_and(there, ops.not_equal(ids, targets[..., None]))


@compiled
def _sums(scores, positive, targets, ids, there, *, sharpness):
    """[B, M], [B, J], [B, J], [M], [M] -> the first fields of `QueueScores`,
    [B, J] each.
    """

    def every(scores, ids, there):
        return ops.where(there, scores[:, None], NEVER)

    def others(scores, ids, there):
        other = _other(ids, there, targets)
        return ops.where(other, scores[:, None], NEVER)

    def reduced(of, combine, reduce):
        arrays = scores, ids, there
        return over_columns(of, combine, reduce, *arrays, lanes=LANES)

    def log_sum(of, factor):
        highest = reduced(of, ops.maximum, ops.max)

        def exponential(*block):
            return ops.exp(factor * (of(*block) - highest[..., None]))

        total = reduced(exponential, ops.add, ops.sum)
        return factor * highest + ops.log(total)

    def as_high(*block):
        return to_float(others(*block) >= positive[..., None])

    def copied(scores, ids, there):
        own = ops.equal(ids, targets[..., None])
        return to_float(ops.logical_and(own, there))

    def hard(*block):
        return ops.exp(sharpness * others(*block))

    copies = reduced(copied, ops.add, ops.sum)
    if sharpness:
        weight = reduced(hard, ops.add, ops.sum)
    else:
        weight = ops.sum(to_float(there)) - copies
    return (
        ops.broadcast_to(log_sum(every, 1.0), targets.shape),
        log_sum(others, 1.0 + sharpness),
        weight,
        reduced(as_high, ops.add, ops.sum),
        copies,
    )


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
    positive: Tensor,
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
        positive: [N] float32, the score of each pair's own b.
        targets: [N] int32, what that is.
        sharpness: how much more a high score weighs, see `QueueScores`.
        finish: of vectors [M, D'], those [M, D] that are compared; None: they
            are.
        key: None runs plain operations.
    """
    size, pairs = rows.shape[0], targets.shape[0]
    shape = queries.shape[0], pairs // queries.shape[0]
    targets = ops.reshape(targets, shape)
    positive = ops.stop_gradient(ops.reshape(positive, shape))
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
                positive, targets, ids[block], there[block], sharpness, key,
            )
        )  # fmt: skip
    log_sums, others, *sums = (
        ops.reshape(ops.stack(parts), (blocks, pairs))
        for parts in zip(*found, strict=True)
    )
    return QueueScores(
        ops.logsumexp(log_sums, axis=0),
        ops.logsumexp(others, axis=0),
        *(ops.sum(x, axis=0) for x in sums),
        ops.sum(to_float(there)),
    )


def _block_scores(scores, positive, targets, ids, there, sharpness, key):
    """What `_sums` gives, with a gradient."""
    summed, gradient_of = _sums, _scores_grad
    if key is None:
        summed, gradient_of = (f.__wrapped__ for f in (summed, gradient_of))

    def function(scores):
        results = summed(
            scores, positive, targets, ids, there, sharpness=sharpness
        )

        def grad(d_log_sum, d_others, *rest):
            del d_log_sum, rest
            return gradient_of(
                scores, targets, ids, there, results[1], d_others,
                sharpness=sharpness,
            )  # fmt: skip

        return results, grad

    return with_gradient(function, scores)
