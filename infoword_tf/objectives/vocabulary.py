"""Pieces against the vocabulary: `mlm`, `plm`, and the rows of next words.

Against all of it, or in training against some that are drawn (`sampled`). Each
piece is then a candidate of a step by itself, with a probability w of its own,
and its score counts 1 / w times:

    log sum over V of exp f(a, v)  ~  log sum over B~ of exp f(a, v) / w(v)

The true one, b, is always there, once, whether it was drawn or not. Both sums
are equal on average, and the same where w is 1 throughout. With M the sum of w
this is InfoNCE over candidates from q = w / M, less KL(p || q), and a bound
whatever w is. For that E[exp f(a, b) / sum over B~], summed over all b, must be
1 at most. As b is drawn with w(b), independently of the others, the mean with b
always there is that of b's share of the sum, 0 where it is not drawn; and the
shares of what is drawn sum to 1.

Glossary of shapes: B sequences, P places, N = B P pairs, M candidates, D width,
V vocabulary.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.layers import activation, dropout, norm
from infoword_tf.layers.attention import matrix, project, vector
from infoword_tf.layers.vocabulary_scores import vocabulary_scores
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.settings import setting
from infoword_tf.views import View

Tensor = Any
SPARE = 6  # deviations of how many are drawn, for which there is room


class DrawnCandidates(NamedTuple):
    """The candidates of a step, which all its pairs share.

    Attributes:
        ids: [K] int32 pieces, none twice.
        there: [K] float32, 1 for those that were drawn; K has room to spare.
        inclusion: [V] float64, NumPy: w, with which each is drawn.
    """

    ids: Tensor
    there: Tensor
    inclusion: np.ndarray


def inclusion(counts: np.ndarray, size: int) -> np.ndarray:
    """[V] float64: w, with which each piece is a candidate.

    In proportion to the log-uniform distribution over ranks by frequency that
    ELMo was trained with (Peters et al. 2018, their code), but 1 at most: the
    commonest are always there. They sum to `size`.

    Args:
        counts: [V], how frequent each is.
        size: M, at most V.
    """
    number = np.arange(len(counts))
    q = np.log1p(1 / (number + 1))  # by rank, highest first
    # So many are certain that the next one is not.
    scale = (size - number) / np.cumsum(q[::-1])[::-1]
    certain = np.argmax(scale * q <= 1 + 1e-9)
    ranked = np.minimum(1, scale[certain] * q)
    ranked[:certain] = 1
    probabilities = np.empty(len(counts))
    probabilities[np.argsort(-counts, kind='stable')] = ranked
    return probabilities


def pairs(view: View, row: str, x: Tensor) -> tuple[Tensor, ...]:
    """[B, P, D] -> states [N, D] float32, targets, weights, sequences [N]."""
    targets, weights = view.targets[row], view.weights[row]
    p = targets.shape[1]
    states = ops.reshape(ops.cast(x, 'float32'), (-1, x.shape[-1]))
    return (
        states,
        ops.reshape(targets, (-1,)),
        ops.reshape(weights, (-1,)),
        ops.repeat(view.sequences, p),
    )


class VocabularyPieces(Objective):
    """Rows whose candidates are the vocabulary; g_psi is a lookup."""

    def build(self) -> None:
        """Makes the bias of each piece."""
        self.piece_bias = vector(self, 'piece_bias', self.encoder.vocab_size)
        self.built = True

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every piece."""
        return self.encoder.embedding_table

    def make_transform(self) -> None:
        """Makes BERT's output transform, and the bias of each piece.

        A dense layer, GELU and a norm (google-research/bert, run_pretraining);
        these have biases where the encoder's own have (`Encoder.biased`).
        """
        d, e = self.encoder.width, self.encoder.embedding_width
        self.kernel = matrix(self, 'kernel', d, e)
        self.gamma = vector(self, 'norm_gamma', e, 'ones')
        self.bias = self.beta = None
        if self.encoder.biased:
            self.bias = vector(self, 'bias', e)
            self.beta = vector(self, 'norm_beta', e)
        self.piece_bias = vector(self, 'piece_bias', self.encoder.vocab_size)

    def transformed(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Applies the transform: x [B, P, D] -> [B, P, E] as wide as pieces."""
        sizes = self.encoder.arguments
        x = activation.bias_gelu(
            project(x, ops.cast(self.kernel, x.dtype)),
            self.bias,
            form=sizes['activation'],
            key=key,
        )
        return norm.norm(
            x,
            self.gamma,
            self.beta,
            epsilon=sizes['epsilon'],
            dtype=self.compute_dtype,
            key=key,
        )

    def among_all(
        self,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor | None = None,
    ) -> infonce.Outcome:
        """Eq. 1 over V, which is cross-entropy.

        Args:
            batch: of the step.
            view: of it, whose targets are b.
            x: [B, P, D], what is scored against the input embeddings.
            measured: [B, P] float32: 0 for pairs of the loss alone.
            bias: [V] float32 of each piece, or None.
        """
        x, targets, weights, _ = pairs(view, self.row, x)
        table = ops.convert_to_tensor(self.table)
        positive, log_sum, rank = vocabulary_scores(
            x, table, bias, targets, dtype=self.compute_dtype, key=batch.fused
        )
        size = table.shape[0]
        return infonce.infonce(
            infonce.Candidates(positive, log_sum, math.log(size), rank),
            weights,
            batch.statistics.of(self.row).marginal(
                self.row, targets, q=np.full(size, 1 / size)
            ),
            measured=ops.reshape(measured, (-1,)),
        )


class SampledPieces(VocabularyPieces):
    """Those that may be scored against some of the vocabulary in training."""

    sampled: int = setting(
        0,
        'Sampled softmax: about this many candidates, sampled anew in each '
        'training step; 0: the whole vocabulary.',
        at_least=0,
    )

    def candidates(self, batch: Batch) -> DrawnCandidates | None:
        """Some of the vocabulary in training, if they are to be drawn.

        By the key of the step, so they are the same on all replicas.
        """
        if not self.sampled or not batch.training:
            return None
        statistics = batch.statistics.of(self.row)
        counts = np.array(statistics.training, float)
        # It is not counted, and asked for as often as anything.
        counts[self.specials.sep_id] = counts.max() + 1
        probabilities = inclusion(counts, min(self.sampled, len(counts)))
        deviation = math.sqrt(probabilities @ (1 - probabilities))
        capacity = math.ceil(probabilities.sum() - 1e-6 + SPARE * deviation)
        drawn = ops.less(
            dropout.uniform(batch.key, probabilities.shape),
            probabilities.astype('float32'),
        )
        # Of equal numbers the first come first.
        there, ids = ops.top_k(
            ops.cast(drawn, 'float32'), min(capacity, len(probabilities))
        )
        return DrawnCandidates(ids, there, probabilities)

    def among(
        self,
        candidates: DrawnCandidates | None,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor,
    ) -> infonce.Outcome:
        """Eq. 1 over what was drawn, see above; over V where nothing was.

        Args:
            candidates: what `candidates` returned.
            batch, view, x, measured, bias: as `among_all`.
        """
        if candidates is None:
            return self.among_all(batch, view, x, measured, bias)
        x, targets, weights, _ = pairs(view, self.row, x)
        ids, there, w = candidates
        table = self.table
        bias = ops.convert_to_tensor(bias) - np.log(w).astype('float32')
        positive = ops.sum(x * ops.take(table, targets, axis=0), axis=1)
        scores = ops.matmul(x, ops.transpose(ops.take(table, ids, axis=0)))
        identical = ops.equal(ids[None, :], targets[:, None])
        outcome = infonce.counted(
            positive + ops.take(bias, targets),
            scores + ops.take(bias, ids),
            ops.where(identical, 0.0, there[None, :]),
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
                drawn=ops.where(there > 0, ids, -1)[None, :],
                inclusion=w,
            ),
            measured=ops.reshape(measured, (-1,)),
        )
