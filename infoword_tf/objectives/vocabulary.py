"""Pieces against the whole vocabulary, for `mlm`, `transformer_xl` and `plm`.

Glossary of shapes: B sequences, P places, N = B P pairs, D width,
V vocabulary.
"""

import math
from typing import Any

import numpy as np
from keras import ops

from infoword_tf.layers.block import vector
from infoword_tf.layers.vocabulary_scores import vocabulary_scores
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.views import View

Tensor = Any


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
            batch.statistics.marginal(
                self.row, targets, q=np.full(size, 1 / size)
            ),
            measured=ops.reshape(measured, (-1,)),
        )
