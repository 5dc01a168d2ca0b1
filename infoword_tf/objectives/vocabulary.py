"""Tokens against the vocabulary: `mlm`, `plm`, and the rows of next words.

Against all of it, or in training against a sample (`sampled`). Each token is
then a candidate of a step with a probability w of its own, and its score counts
1 / w times:

    log sum over V of exp f(a, v)  ~  log sum over B~ of exp f(a, v) / w(v)

The true token b is always a candidate, once, whether it was drawn or not. Both
sums are equal on average, and equal where w is 1 throughout. With M the sum of
w this is InfoNCE over candidates from q = w / M, less KL(p || q), and a bound
whatever w is: that needs E[exp f(a, b) / sum over B~], summed over all b, to be
1 at most. As b is drawn with w(b), independently of the others, the mean with b
as a candidate is that of b's share of the sum, 0 where it is not drawn; and the
shares of drawn tokens sum to 1.

Shapes: N = B P.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import vector
from infoword_tf.layers.vocabulary_scores import Transformed, vocabulary_scores
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import View

SPARE = 6  # standard deviations of the number of draws that fit


class DrawnCandidates(NamedTuple):
    """Candidates of a step, which all pairs share.

    Attributes:
        ids: [n] int32 tokens, each at most once; n has room to spare.
        weights: [n] float32, 1 for tokens that were drawn, else 0.
        inclusion: [V] float64, NumPy: w, the probability of each token.
    """

    ids: Tensor
    weights: Tensor
    inclusion: np.ndarray


def inclusion(counts: np.ndarray, size: int) -> np.ndarray:
    """Computes w, the probability that each token is a candidate.

    In proportion to the log-uniform distribution over ranks by frequency that
    ELMo was trained with (Peters et al. 2018, their code), but 1 at most: the
    commonest tokens are always candidates.

    Args:
        counts: [V], how frequent each token is.
        size: M, at most V.

    Returns:
        [V] float64, of sum `size`.
    """
    number = np.arange(len(counts))
    q = np.log1p(1 / (number + 1))  # by rank, highest first
    # The first so many are certain, and the next is not.
    scale = (size - number) / np.cumsum(q[::-1])[::-1]
    certain = np.argmax(scale * q <= 1 + 1e-9)
    ranked = np.minimum(1, scale[certain] * q)
    ranked[:certain] = 1
    probabilities = np.empty(len(counts))
    probabilities[np.argsort(-counts, kind='stable')] = ranked
    return probabilities


def pairs(view: View, row: str, x: Tensor) -> tuple[Tensor, ...]:
    """Flattens x [B, P, D] and the view's targets, weights and sequences.

    Returns:
        [N, D] float32, and [N] each.
    """
    targets, weights = view.targets[row], view.weights[row]
    p = targets.shape[1]
    states = ops.reshape(ops.cast(x, 'float32'), (-1, x.shape[-1]))
    return (
        states,
        ops.reshape(targets, (-1,)),
        ops.reshape(weights, (-1,)),
        ops.repeat(view.sequences, p),
    )


def check_widths(objective: Objective) -> None:
    """Raises a ValueError if states are wider than embeddings."""
    d, e = objective.encoder.width, objective.encoder.embedding_width
    if d != e:
        raise errors.InputError(
            'narrow_embeddings',
            f'{objective.row} multiplies states {d} wide by embeddings {e} '
            'wide; only rows with a transform (--mlm.transform) can',
        )


class VocabularyTokens(Transformed, Objective):
    """Rows whose candidates are the vocabulary; g_psi is a lookup."""

    def build(self) -> None:
        """Makes the bias of each token."""
        self.token_bias = vector(self, 'piece_bias', self.encoder.vocab_size)
        self.built = True

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every token."""
        return self.encoder.embedding_table

    def among_all(
        self,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor | None = None,
    ) -> infonce.Outcome:
        """Computes Eq. 1 over V, which is cross-entropy.

        Args:
            batch: of the step.
            view: of it, whose targets are b.
            x: [B, P, D], scored against the input embeddings.
            measured: [B, P] float32: 0 for pairs of the loss alone.
            bias: [V] float32 of each token, or None.
        """
        x, targets, weights, _ = pairs(view, self.row, x)
        table = ops.convert_to_tensor(self.table)
        positive, log_sum, rank = vocabulary_scores(
            x, table, bias, targets, dtype=self.compute_dtype,
            key=batch.fused_key,
        )  # fmt: skip
        size = table.shape[0]
        return infonce.infonce(
            infonce.Candidates(positive, log_sum, math.log(size), rank),
            weights,
            batch.statistics.of(self.row).marginal(
                self.row, targets, q=np.full(size, 1 / size)
            ),
            measured=ops.reshape(measured, (-1,)),
        )


class SampledTokens(VocabularyTokens):
    """Rows that may train against a sample of the vocabulary."""

    sampled: int = setting(
        0,
        'Sampled softmax: about this many candidates, sampled anew in each '
        'training step; 0: the whole vocabulary.',
        at_least=0,
    )

    def candidates(self, batch: Batch) -> DrawnCandidates | None:
        """Draws a sample of the vocabulary in training, if `sampled`.

        By the key of the step, so it is the same on all replicas.
        """
        if not self.sampled or not batch.training:
            return None
        statistics = batch.statistics.of(self.row)
        counts = np.array(statistics.training, float)
        # [SEP] is not counted, and as frequent a target as the commonest token.
        counts[self.specials.sep_id] = counts.max() + 1
        probabilities = inclusion(counts, min(self.sampled, len(counts)))
        deviation = math.sqrt(probabilities @ (1 - probabilities))
        capacity = math.ceil(probabilities.sum() - 1e-6 + SPARE * deviation)
        drawn = ops.less(
            dropout.uniform(batch.key, probabilities.shape),
            probabilities.astype('float32'),
        )
        # Of equal numbers the first come first.
        weights, ids = ops.top_k(
            ops.cast(drawn, 'float32'), min(capacity, len(probabilities))
        )
        return DrawnCandidates(ids, weights, probabilities)

    def among_candidates(
        self,
        candidates: DrawnCandidates | None,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor,
    ) -> infonce.Outcome:
        """Computes Eq. 1 over the sample, see above; over V without one.

        Args:
            candidates: what `candidates` returned.
            batch, view, x, measured, bias: as `among_all`.
        """
        if candidates is None:
            return self.among_all(batch, view, x, measured, bias)
        x, targets, weights, _ = pairs(view, self.row, x)
        ids, drawn, w = candidates
        table = self.table
        bias = ops.convert_to_tensor(bias) - np.log(w).astype('float32')
        positive = ops.sum(x * ops.take(table, targets, axis=0), axis=1)
        scores = ops.matmul(x, ops.transpose(ops.take(table, ids, axis=0)))
        identical = ops.equal(ids[None, :], targets[:, None])
        outcome = infonce.over_multiset(
            positive + ops.take(bias, targets),
            scores + ops.take(bias, ids),
            ops.where(identical, 0.0, drawn[None, :]),
            identical,
        )
        size = w.sum()
        return infonce.infonce(
            outcome._replace(log_size=math.log(size)),
            weights,
            batch.statistics.of(self.row).marginal(
                self.row,
                targets,
                q=w / size,
                drawn=ops.where(drawn > 0, ids, -1)[None, :],
                inclusion=w,
            ),
            measured=ops.reshape(measured, (-1,)),
        )
