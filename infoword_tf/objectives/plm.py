"""The row `plm`: a word from what comes before it in a drawn order.

    row   a              b                       candidates
    plm   permuted text  next word of the order  the whole vocabulary

g_omega is the state of the query stream at the word's place, which knows the
place and not the word; g_psi is the input embedding, with a bias of each word
and without a transform (Yang et al. 2019, Eq. 3 and 4). One in K words is
predicted, the last ones of the order; see `sampling.permutation`.

Glossary of shapes: B sequences, P places, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from infoword_tf.objectives import infonce
from infoword_tf.objectives.vocabulary import VocabularyWords
from infoword_tf.views import View

Tensor = Any
VIEW = 'permuted'


def reading(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the source is read, for T tokens: without the three specials.

    Each step goes on by half a text, so a token comes twice: in A or B, and
    then as what came before, of which the memory is made. Half of the rows
    read backward.
    """
    del settings
    return {
        'length': length - 3,
        'advance': length // 2,
        'both_directions': True,
    }


class PermutedWords(VocabularyWords):
    """`plm`: f over the whole vocabulary, as XLNet trains it."""

    def score(
        self,
        views: dict[str, View],
        states: dict[str, Tensor],
        candidates: None,
        kl: float,
        key: Tensor | None = None,
    ) -> infonce.Outcome:
        """Cross-entropy over V; a query never shows its word."""
        view = views[VIEW]
        hidden = ops.ones_like(view.weights[self.row])
        return self.among_all(
            view, states[VIEW], kl, hidden, self.word_bias, key
        )
