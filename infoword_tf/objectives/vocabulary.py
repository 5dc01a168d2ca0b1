"""Words against the whole vocabulary: what `mlm` and rows of next words share.

Glossary of shapes: B sequences, P places, N = B P pairs, D width,
V vocabulary.
"""

import math
from typing import Any

import numpy as np
from keras import ops

from infoword_tf.layers import fused
from infoword_tf.layers.block import vector
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Objective
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


class VocabularyWords(Objective):
    """Rows whose candidates are the vocabulary; g_psi is a lookup."""

    def build(self) -> None:
        """Makes the bias of each word."""
        self.word_bias = vector(
            self, 'word_bias', self.encoder.arguments['vocab_size']
        )
        self.built = True

    def kl(self, frequencies: np.ndarray) -> float:
        """log V - H(b): the vocabulary is uniform, words are not."""
        return infonce.divergence_from_uniform(frequencies)

    def among_all(
        self,
        view: View,
        x: Tensor,
        kl: float,
        hidden: Tensor,
        bias: Tensor | None = None,
        key: Tensor | None = None,
    ) -> infonce.Outcome:
        """Eq. 1 over V, which is cross-entropy.

        Args:
            view: whose targets are b.
            x: [B, P, D], what is scored against the input embeddings.
            kl: log V - H(b) of the text.
            hidden: [B, P] float32: 0 for pairs of the loss alone.
            bias: [V] float32 of each word, or None.
            key: None runs plain operations.
        """
        x, targets, weights, _ = pairs(view, self.row, x)
        table = ops.convert_to_tensor(self.encoder.words)
        positive, log_sum, rivals = fused.vocabulary_scores(
            x, table, bias, targets, dtype=self.compute_dtype, key=key
        )
        log_size = math.log(table.shape[0])
        return infonce.infonce(
            infonce.Candidates(positive, log_sum, log_size, rivals),
            weights,
            kl,
            hidden=ops.reshape(hidden, (-1,)),
        )
