"""Scores against a queue: very many vectors, into which no gradient flows.

A fused operation, see `fused.py`. The queue is read in chunks, whose scores
stay in the processor's cache from the product to the sums.

Glossary of shapes: Q queries, J pairs of each, N = Q J; S vectors of the queue,
C vectors of a chunk, F numbers of a stored vector.
"""

from collections.abc import Callable
from typing import NamedTuple

from infoword_tf.layers.fused import (
    by_key,
    compiled,
    over_columns,
    to_float,
    with_gradient,
)
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

NEVER = -1e30
SCORES_AT_ONCE = 2**19  # of a chunk, 2 MiB, unless MOST_CHUNKS makes them more
MOST_CHUNKS = 32  # that a graph holds
LANES = 2  # of `over_columns`: within the cache more gain nothing


class QueueScores(NamedTuple):
    """Sums over the scores of N pairs against a queue.

    Others are all vectors of the queue but those of the text of a pair's
    positive. Only `others` has a gradient.

    Attributes:
        others: [N] log of the sum over others of exp(h score), h a constant
            weight exp(sharpness score).
        weight: [N] the sum of h over others: `size`, where all weigh 1.
        size: [N] the number of others.
    """

    others: Tensor
    weight: Tensor
    size: Tensor


def _other(ids: Tensor, filled: Tensor, targets: Tensor) -> Tensor:
    """Masks vectors [C] that exist and are of another text: [Q, J, C] bool."""
    return ops.logical_and(filled, ops.not_equal(ids, targets[..., None]))


@compiled
def _sums(scores, targets, ids, filled, *, sharpness):
    """Returns `QueueScores` [Q, J] of scores [Q, C]; ids, filled are [C]."""

    def others(scores, ids, filled):
        other = _other(ids, filled, targets)
        return ops.where(other, scores[:, None], NEVER)

    def reduced(of, combine, reduce):
        arrays = scores, ids, filled
        return over_columns(of, combine, reduce, *arrays, lanes=LANES)

    highest = reduced(others, ops.maximum, ops.max)
    factor = 1.0 + sharpness

    def exponential(*chunk):
        return ops.exp(factor * (others(*chunk) - highest[..., None]))

    def is_copy(scores, ids, filled):
        same = ops.equal(ids, targets[..., None])
        return to_float(ops.logical_and(same, filled))

    def hardness(*chunk):
        return ops.exp(sharpness * others(*chunk))

    total = reduced(exponential, ops.add, ops.sum)
    size = ops.sum(to_float(filled)) - reduced(is_copy, ops.add, ops.sum)
    weight = reduced(hardness, ops.add, ops.sum) if sharpness else size
    return factor * highest + ops.log(total), weight, size


@compiled
def _scores_grad(
    scores, targets, ids, filled, log_sum, d_log_sum, *, sharpness
):
    """Maps gradients of `log_sum` [Q, J] to gradients of scores [Q, C]."""
    scores = (1.0 + sharpness) * scores[:, None]
    total = ops.exp(scores - log_sum[..., None]) * d_log_sum[..., None]
    # Masked afterwards: without any other the exponential is infinite.
    return ops.sum(ops.where(_other(ids, filled, targets), total, 0.0), axis=1)


def queue_scores(
    queries: Tensor,
    queue: Tensor,
    ids: Tensor,
    filled: Tensor,
    targets: Tensor,
    *,
    sharpness: float = 0.0,
    finish: Callable[[Tensor], Tensor] | None = None,
    key: Tensor | None = None,
) -> QueueScores:
    """Scores queries against a queue, which is read once each way.

    Args:
        queries: [Q, D] float32; J pairs, one after another, share a query.
        queue: [S, F].
        ids: [S] int32, equal for vectors of the same text.
        filled: [S] bool, whether the queue holds a vector there.
        targets: [N] int32, the id of each pair's b.
        sharpness: factor h by which a high score weighs more, see
            `QueueScores`.
        finish: maps vectors [C, F] to the compared ones [C, D]; None: no map.
        key: None runs plain operations.
    """
    size, pairs = queue.shape[0], targets.shape[0]
    shape = queries.shape[0], pairs // queries.shape[0]
    targets = ops.reshape(targets, shape)
    chunks = min(-(-size * pairs // SCORES_AT_ONCE), MOST_CHUNKS, size)
    results = []
    for i in range(chunks):
        chunk = slice(i * size // chunks, (i + 1) * size // chunks)
        vectors = to_float(queue[chunk])
        if finish is not None:
            vectors = finish(vectors)
        results.append(
            _chunk_scores(
                ops.matmul(queries, ops.transpose(vectors)),
                targets, ids[chunk], filled[chunk],
                sharpness=sharpness, key=key,
            )
        )  # fmt: skip
    others, *sums = (
        ops.reshape(ops.stack(values), (chunks, pairs))
        for values in zip(*results, strict=True)
    )
    return QueueScores(
        ops.logsumexp(others, axis=0), *(ops.sum(x, axis=0) for x in sums)
    )


def _chunk_scores(scores, targets, ids, filled, *, sharpness, key):
    """Computes `_sums`, with a gradient."""
    summed, gradient_of = (by_key(f, key) for f in (_sums, _scores_grad))

    def function(scores):
        results = summed(scores, targets, ids, filled, sharpness=sharpness)

        def grad(d_others, *rest):
            del rest
            return gradient_of(
                scores, targets, ids, filled,
                log_sum=results[0], d_log_sum=d_others, sharpness=sharpness,
            )  # fmt: skip

        return results, grad

    return with_gradient(function, scores)
