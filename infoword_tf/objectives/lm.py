"""Rows of next words: the word that follows, from all that came before.

    row             a                            b          candidates
    transformer_xl  prefix, memory included      next word  the whole vocabulary

g_omega is the state of a causal encoder at the last word of the prefix, g_psi
its input embedding, f(a, b) their dot product plus a bias of each word (Dai et
al. 2019; Kong et al. 2019, §3.1 names language models as instances). A word
is a piece of the tokenizer. All places are scored.

Glossary of shapes: B rows, T tokens, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

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
