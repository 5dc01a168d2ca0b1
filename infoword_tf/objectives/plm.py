"""The row `plm`: a word from what comes before it in a drawn order.

    row   a              b                       candidates
    plm   permuted text  next word of the order  the whole vocabulary

g_omega is the state of the query stream at the word's place, which knows the
place and not the word; g_psi is the input embedding, with a bias of each word
and without a transform (Yang et al. 2019, Eq. 3 and 4). One in K words is
predicted, the last ones of the order; see `views.permuted`.

Glossary of shapes: B sequences, P places, D width, V vocabulary.
"""

from typing import Any

from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.row import Row, Vector
from infoword_tf.objectives.vocabulary import VocabularyPieces
from infoword_tf.views import Reads

Tensor = Any
VIEW = 'permuted'


class PermutedPieces(VocabularyPieces):
    """`plm`: f over the whole vocabulary, as XLNet trains it."""

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Cross-entropy over V; a query never shows its word."""
        view = batch.views[VIEW]
        measured = ops.ones_like(view.weights[self.row])
        return self.among_all(
            batch, view, batch.states(VIEW), measured, self.piece_bias
        )


ROW = Row(
    objective=PermutedPieces,
    a='permuted text',
    b='next word of the order',
    relation='a word and what comes before it in a drawn order (XLNet)',
    candidates='vocabulary',
    views={VIEW: Reads('queries')},
    encoders={'relative': {'segments': 2, 'causal': False}},
    vector=Vector(layout='xlnet'),
)
