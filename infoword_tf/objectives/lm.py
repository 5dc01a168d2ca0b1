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
from infoword_tf.objectives.vocabulary import VocabularyWords
from infoword_tf.views import View

Tensor = Any
VIEW = 'streamed'


def reading(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the source is read: T tokens, none of them twice."""
    del settings
    return {'length': length}


class NextWords(VocabularyWords):
    """`transformer_xl`: f over the whole vocabulary at every place."""

    def score(
        self,
        views: dict[str, View],
        states: dict[str, Tensor],
        candidates: None,
        kl: float,
        key: Tensor | None = None,
    ) -> infonce.Outcome:
        """Cross-entropy over V; MI leaves out the ends of documents."""
        view = views[VIEW]
        return self.among_all(
            view, states[VIEW], kl, view.hidden[self.row], self.word_bias, key
        )
