"""Rows of next words: the word that follows, from all that came before.

    row             a                            b          candidates
    gpt             prefix of T words at most    next word  the vocabulary
    transformer_xl  prefix, memory included      next word  the vocabulary

g_omega is the state of a causal encoder at the last word of the prefix, g_psi
its input embedding, f(a, b) their dot product plus a bias of each word (Radford
et al. 2018, who have no bias; Dai et al. 2019; Kong et al. 2019, §3.1 names
language models as instances). A word is a piece of the tokenizer. All places
are scored, each word of the text once: rows of `gpt` read on where those of the
step before ended, too, but without what was there.

Glossary of shapes: B rows, T tokens, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Vector
from infoword_tf.objectives.vocabulary import Drawn, VocabularyPieces

Tensor = Any
VIEW = 'streamed'


def vector(settings: Mapping[str, Any]) -> Vector:
    """The mean; a causal encoder knows a text at its end alone."""
    del settings
    return Vector(layout='end')


class NextPieces(VocabularyPieces):
    """Rows of next words: f over the vocabulary at every place."""

    def piece_scores(self, states: Tensor) -> Tensor:
        """f(a, .) over the vocabulary: states [..., D] -> [..., V]."""
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(ops.cast(states, 'float32'), ops.transpose(table))
        return scores + self.piece_bias

    def score(
        self, batch: Batch, candidates: Drawn | None
    ) -> infonce.Outcome:
        """Cross-entropy; MI leaves out the ends of documents."""
        view = batch.views[VIEW]
        return self.among(
            candidates,
            batch,
            view,
            batch.states(VIEW),
            view.measured[self.row],
            self.piece_bias,
        )
