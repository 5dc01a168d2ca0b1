"""Eq. 1 of Kong et al. 2019: the few lines in which every row ends.

    I(A, B) >= E[ f(a, b) - log sum_{b~ in B~} exp f(a, b~) ] + log|B~|

B~ holds the positive. What makes rows comparable is one more term: candidates
drawn from q instead of from p(b) flatter the bound by KL(p(b) || q), so

    MI = log|B~| - loss - KL(p(b) || q),   ceiling = log|B~| - KL(p(b) || q).

KL is 0 for candidates taken from the batch, log V - H(b) for the whole
vocabulary (so there MI = H(b) - cross-entropy), KL(p || q) for other draws.

All of it is float32 whatever the model computes in. Nothing is masked with
-inf, whose gradient is NaN, but with -1e30.

Glossary of shapes: N scored pairs, M candidates, V vocabulary.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from keras import ops

Tensor = Any
NEVER = -1e30


class Candidates(NamedTuple):
    """What the scores of N pairs come to over their candidates.

    Attributes:
        positive: [N] f(a, b), nats.
        log_sum: [N] log sum over B~ of exp f(a, b~), the positive included.
        log_size: [N] or scalar, log|B~|.
        rank: [N] how many candidates that are not identical to the positive
            score at least as high; 0 is a correct answer.
    """

    positive: Tensor
    log_sum: Tensor
    log_size: Tensor
    rank: Tensor


class Outcome(NamedTuple):
    """Sums over pairs, float32 scalars: what a row makes of a batch.

    Means over several batches or replicas are sums of these divided: the loss
    by `weight`, the others by `measured`.

    Attributes:
        loss: weighted sum of the training loss, nats.
        weight: sum of weights.
        mi, ceiling, accuracy: weighted sums over pairs whose b is measured.
        chance: likewise, the accuracy of scores that know nothing, 1 / |B~|.
        measured: sum of the weights of those pairs.
    """

    loss: Tensor
    weight: Tensor
    mi: Tensor
    ceiling: Tensor
    accuracy: Tensor
    chance: Tensor
    measured: Tensor


def infonce(
    candidates: Candidates,
    weights: Tensor,
    kl: float,
    measured: Tensor | None = None,
    train_log_sum: Tensor | None = None,
) -> Outcome:
    """Eq. 1, summed over pairs.

    Args:
        candidates: scores over all candidates.
        weights: [N] float32, 0 for padding.
        kl: KL(p(b) || q), nats.
        measured: [N] float32, 1 where a does not show b; None: everywhere.
            Only these pairs count in MI, ceiling and accuracy: a copy of what
            is visible says nothing about text.
        train_log_sum: [N] the log-sum of the training loss where it leaves
            candidates out (accidental hits); the bound never does.
    """
    positive, log_sum, log_size, rank = candidates
    loss = (log_sum if train_log_sum is None else train_log_sum) - positive
    counted = weights if measured is None else weights * measured
    bound = log_size - kl - (log_sum - positive)
    correct = ops.cast(ops.equal(rank, 0), 'float32')
    log_size = ops.broadcast_to(log_size, ops.shape(bound))
    return Outcome(
        loss=ops.sum(weights * loss),
        weight=ops.sum(weights),
        mi=ops.sum(counted * bound),
        ceiling=ops.sum(counted * (log_size - kl)),
        accuracy=ops.sum(counted * correct),
        chance=ops.sum(counted * ops.exp(-log_size)),
        measured=ops.sum(counted),
    )


def counted(
    positive: Tensor,
    scores: Tensor,
    counts: Tensor,
    identical: Tensor,
) -> Candidates:
    """The positive beside a multiset: column j stands for `counts` copies.

    Args:
        positive: [N] float32 scores of the positives.
        scores: [N, M] float32 scores of the negatives.
        counts: [N, M] float32 copies of each, 0 for none.
        identical: [N, M] bool: the column is the positive itself.
    """
    present = counts > 0
    log_counts = ops.where(
        present, ops.log(ops.where(present, counts, 1.0)), NEVER
    )
    others = ops.logsumexp(scores + log_counts, axis=1)
    as_high = ops.greater_equal(scores, positive[:, None])
    rank = ops.logical_and(as_high, ops.logical_not(identical))
    rank = ops.logical_and(rank, present)
    return Candidates(
        positive,
        ops.logaddexp(others, positive),
        ops.log1p(ops.sum(counts, axis=1)),
        ops.sum(ops.cast(rank, 'float32'), axis=1),
    )


def contrast(
    positive: Tensor,
    scores: Tensor,
    counts: Tensor,
    identical: Tensor,
    weights: Tensor,
    kl: float,
    drop_identical: bool,
    measured: Tensor | None = None,
) -> Outcome:
    """Eq. 1 over the positive and a multiset of negatives.

    Args:
        positive, scores, counts, identical: as in `counted`.
        weights, kl, measured: as in `infonce`.
        drop_identical: whether the training loss leaves copies of the
            positive out; the bound counts them.
    """
    train_log_sum = None
    if drop_identical:
        others = ops.where(identical, 0.0, counts)
        train_log_sum = counted(positive, scores, others, identical).log_sum
    return infonce(
        counted(positive, scores, counts, identical),
        weights,
        kl,
        measured,
        train_log_sum,
    )


def entropy(p: np.ndarray) -> float:
    """H(p) in nats of a distribution [V]."""
    p = np.asarray(p, np.float64)
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p || q) in nats of distributions [V]; inf where q lacks mass."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    inside = p > 0
    if (q[inside] <= 0).any():
        return math.inf
    return float((p[inside] * np.log(p[inside] / q[inside])).sum())


def divergence_from_uniform(p: np.ndarray) -> float:
    """KL(p || uniform) = log V - H(p): the term of the whole vocabulary."""
    return math.log(len(p)) - entropy(p)
