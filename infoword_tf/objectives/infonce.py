"""Eq. 1 of Kong et al. 2019, the bound of every row that has one.

    I(A, B) >= E[ f(a, b) - log sum_{b~ in B~} exp f(a, b~) ] + log|B~|

B~ holds the positive and b of other pairs, or draws from q: scored by the same
f, and chosen without a look at a or b. A loss may contrast more (hard
negatives, a queue) or less (without what a guide finds); MI, ceiling and
accuracy never do, for then a critic that knows nothing of a could score above
0.

One more term makes rows comparable: candidates drawn from q instead of from
p(b) flatter the bound by KL(p(b) || q). It is taken on the very pairs that are
measured, as the mean of log p(b) / q(b), so

    MI = mean[ log|B~| - log p(b) / q(b) - (log sum over B~ - f(a, b)) ].

For candidates of the batch q is p, and the term is 0: a critic that gives all
b one score has log|B~| - log|B~|, exactly 0, and no score of b alone has more.
For the whole vocabulary (q = 1/V) MI is mean[-log p(b)] - cross-entropy: a
critic that knows p alone has exactly 0, whichever part of a text its row reads.
(p is that of the whole text: a critic that knows p' of the measured b has
KL(p' || p), see docs/rows.md.) A perfect critic still cannot tell the c copies
of b among the candidates from b:

    ceiling = mean[ log|B~| - log p(b) / q(b) - log(1 + c) ].

All of it is float32 whatever the model computes in. Scores are masked with
-1e30, because the gradient of -inf is NaN.
"""

from collections.abc import Mapping
from typing import NamedTuple

from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

NEVER = -1e30


class Candidates(NamedTuple):
    """Scores of N pairs, summed over the candidates.

    Attributes:
        positive: [N] f(a, b), nats.
        log_sum: [N] log sum over B~ of exp f(a, b~), the positive included.
        log_size: [N] or scalar, log|B~|.
        rank: [N] how many candidates that are not identical to the positive
            score at least as high; 0 is a correct answer.
        log_copies: [N] or scalar, log(1 + c): c of the other candidates are
            the positive too.
    """

    positive: Tensor
    log_sum: Tensor
    log_size: Tensor
    rank: Tensor
    log_copies: Tensor = 0.0


class Comparison(NamedTuple):
    """Scores of N pairs, and of each a with M columns.

    Attributes:
        positive: [N] float32, f(a, b).
        scores: [N, M] float32, f(a, b~).
        counts: [N, M] float32, how many candidates a column stands for. 0
            masks it; of tokens it is how often one was drawn.
        identical: [N, M] bool: the column is the positive itself.
    """

    positive: Tensor
    scores: Tensor
    counts: Tensor
    identical: Tensor


class Negatives(NamedTuple):
    """Scores of N pairs, summed over candidates without the positive.

    Attributes:
        log_sum: [N] log of the sum of exp f(a, b~).
        size: [N] or scalar, how many candidates.
        rank: [N] as of `Candidates`.
        copies: [N] how many candidates are the positive too.
    """

    log_sum: Tensor
    size: Tensor
    rank: Tensor
    copies: Tensor


class Marginal(NamedTuple):
    """Frequencies of b, known without a: see `Statistics.marginal`.

    Attributes:
        log_ratio: [N] or scalar, log p(b) - log q(b): p of the measured text,
            q of what candidates are drawn from.
        unigram: [N] or scalar, MI in nats of a critic that knows the training
            text's frequencies alone.
        chance: [N] float32, 1 where the best answer that does not look at a is
            right; or its probability.
    """

    log_ratio: Tensor
    unigram: Tensor
    chance: Tensor


class Outcome(NamedTuple):
    """Sums over the pairs of a batch, float32 scalars.

    Means over several batches or replicas are sums of these divided: the loss
    by `weight`, the others by `measured`.

    Attributes:
        loss: weighted sum of the training loss, nats.
        weight: sum of weights.
        mi, accuracy: weighted sums over measured pairs.
        ceiling: likewise, the MI of a perfect critic on these candidates.
        log_candidates: likewise, log|B~|.
        unigram_mi: likewise, of the training text's frequencies alone.
        chance: likewise, the accuracy of the best answer that does not look
            at a: the commonest b; where tokens are drawn, as
            `Statistics.marginal` says; or any candidate.
        measured: sum of the weights of measured pairs.
        more: further sums over measured pairs by name, of held-out text, see
            `Objective.more`.
        predictions: answers by name of rows that read examples: [B, J, ...]
            of each example, or [B, T, ...] of each token. No sums.
        unscaled: the part of `loss` that the weight of the row does not scale;
            None: there is none.
    """

    loss: Tensor
    weight: Tensor
    mi: Tensor
    ceiling: Tensor
    log_candidates: Tensor
    unigram_mi: Tensor
    accuracy: Tensor
    chance: Tensor
    measured: Tensor
    more: Mapping[str, Tensor] = {}
    predictions: Mapping[str, Tensor] = {}
    unscaled: Tensor | None = None

    @property
    def sums(self) -> tuple[Tensor, ...]:
        """The sums that every row has, in the order of SUMS."""
        return self[: len(SUMS)]


SUMS = Outcome._fields[: Outcome._fields.index('more')]


def infonce(
    candidates: Candidates,
    weights: Tensor,
    marginal: Marginal | None = None,
    measured: Tensor | None = None,
    train_log_sum: Tensor | None = None,
) -> Outcome:
    """Sums the terms of Eq. 1 over pairs: loss, MI, ceiling, accuracy.

    Args:
        candidates: scores over all candidates, the positive among them.
        weights: [N] float32, 0 for padding.
        marginal: frequencies of b. None: candidates are drawn from p(b), and
            no b is commoner than others.
        measured: [N] float32, 1 where a does not show b; None: everywhere.
            Only these pairs count in MI, ceiling and accuracy: a copy of what
            is visible says nothing about text.
        train_log_sum: [N] the log-sum of the training loss where it has
            other candidates than the bound.
    """
    positive, log_sum, log_size, rank, log_copies = candidates
    loss = (log_sum if train_log_sum is None else train_log_sum) - positive
    counted = weights if measured is None else weights * measured
    log_size = ops.broadcast_to(log_size, ops.shape(positive))
    if marginal is None:
        marginal = Marginal(0.0, 0.0, ops.exp(-log_size))
    most = log_size - marginal.log_ratio
    correct = ops.cast(ops.equal(rank, 0), 'float32')
    return Outcome(
        loss=ops.sum(weights * loss),
        weight=ops.sum(weights),
        mi=ops.sum(counted * (most - (log_sum - positive))),
        ceiling=ops.sum(counted * (most - log_copies)),
        log_candidates=ops.sum(counted * log_size),
        unigram_mi=ops.sum(counted * marginal.unigram),
        accuracy=ops.sum(counted * correct),
        chance=ops.sum(counted * marginal.chance),
        measured=ops.sum(counted),
    )


def negatives(comparison: Comparison) -> Negatives:
    """Sums scores over columns, each of which counts `counts` times."""
    positive, scores, counts, identical = comparison
    present = counts > 0
    log_counts = ops.where(
        present, ops.log(ops.where(present, counts, 1.0)), NEVER
    )
    as_high = ops.greater_equal(scores, positive[:, None])
    rank = ops.logical_and(as_high, ops.logical_not(identical))
    rank = ops.logical_and(rank, present)
    return Negatives(
        ops.logsumexp(scores + log_counts, axis=1),
        ops.sum(counts, axis=1),
        ops.sum(ops.cast(rank, 'float32'), axis=1),
        ops.sum(ops.where(identical, counts, 0.0), axis=1),
    )


def with_positive(positive: Tensor, others: Negatives) -> Candidates:
    """Adds the positives, [N] float32, to sums over other candidates."""
    return Candidates(
        positive,
        log_sum=ops.logaddexp(others.log_sum, positive),
        log_size=ops.log1p(others.size),
        rank=others.rank,
        log_copies=ops.log1p(others.copies),
    )


def over_multiset(comparison: Comparison) -> Candidates:
    """Sums scores over the positive and over columns, as `negatives`."""
    return with_positive(comparison.positive, negatives(comparison))


def contrast(
    comparison: Comparison,
    weights: Tensor,
    marginal: Marginal | None = None,
    measured: Tensor | None = None,
    *,
    drop_identical: bool,
    trained: Tensor | None = None,
    earlier: Tensor | None = None,
) -> Outcome:
    """Adds the positive to negatives, and sums the terms of Eq. 1 over pairs.

    Args:
        comparison: scores of pairs and columns; the counts are those of the
            bound: only b that are drawn as the positive is.
        weights, marginal, measured: arguments of `infonce`.
        drop_identical: whether the training loss leaves copies of the
            positive out; the bound counts them.
        trained: [N, M] float32, `counts` of the training loss, which may
            contrast other candidates; None: those of the bound.
        earlier: [N] float32, log of the sum over a queue of exp f(a, b~), for
            the training loss alone.
    """
    every, positive = negatives(comparison), comparison.positive
    log_sum = every.log_sum
    if drop_identical or trained is not None:
        trained = comparison.counts if trained is None else trained
        if drop_identical:
            trained = ops.where(comparison.identical, 0.0, trained)
        log_sum = negatives(comparison._replace(counts=trained)).log_sum
    if earlier is not None:
        log_sum = ops.logaddexp(log_sum, earlier)
    return infonce(
        with_positive(positive, every),
        weights,
        marginal,
        measured,
        train_log_sum=ops.logaddexp(log_sum, positive),
    )


def share(marked: Tensor, counts: Tensor) -> Tensor:
    """Computes the share of candidates [N, M] that are marked, [N]."""
    total = ops.sum(ops.where(marked, counts, 0.0), axis=1)
    return total / ops.maximum(ops.sum(counts, axis=1), 1.0)


def rank_classes(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks the true class among all classes.

    Args:
        scores: [N, C] float32.
        targets: [N] integers; what is no class, as -1, should weigh nothing.

    Returns:
        [N] float32 each: the score of the true class, and how many others
        score at least as high.
    """
    true = ops.one_hot(targets, scores.shape[1], dtype='float32')
    positive = ops.sum(scores * true, axis=1)
    as_high = ops.greater_equal(scores, positive[:, None])
    rank = ops.sum(ops.cast(as_high, 'float32') * (1 - true), axis=1)
    return positive, rank


def unbounded(
    loss: Tensor,
    weights: Tensor,
    correct: Tensor | None = None,
    chance: Tensor | None = None,
    predictions: Mapping[str, Tensor] | None = None,
) -> Outcome:
    """Sums a loss that bounds nothing over pairs.

    Args:
        loss, weights: [N] float32.
        correct: [N] float32, 1 where the answer is right; None: there are no
            answers.
        chance: [N] float32, as in `Marginal`, or None.
        predictions: answers, see `Outcome`, or None.
    """
    total = ops.sum(weights)
    none = ops.zeros_like(total)
    return Outcome(
        loss=ops.sum(weights * loss),
        weight=total,
        mi=none,
        ceiling=none,
        log_candidates=none,
        unigram_mi=none,
        accuracy=none if correct is None else ops.sum(weights * correct),
        chance=none if chance is None else ops.sum(weights * chance),
        measured=total,
        predictions=predictions or {},  # no proxy: JAX returns it
    )


def average(*outcomes: Outcome) -> Outcome:
    """Averages several outcomes of the same pairs."""

    def mean(*sums: Tensor) -> Tensor:
        return sum(sums[1:], sums[0]) / len(sums)

    fields = {
        name: mean(*(getattr(o, name) for o in outcomes)) for name in SUMS
    }
    more = {
        name: mean(*(o.more[name] for o in outcomes))
        for name in outcomes[0].more
    }
    return Outcome(**fields, more=more)
