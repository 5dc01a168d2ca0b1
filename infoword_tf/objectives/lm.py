"""Rows of next words: the word that follows, from all that came before.

    row             a                            b          candidates
    gpt             prefix of T words at most    next word  the vocabulary
    transformer_xl  prefix, memory included      next word  the vocabulary
    rnn_lm          prefix                       next word  the vocabulary
    elmo            what comes before, or after  next word, or the one before

g_omega is the state of a causal encoder at the last word of the prefix, g_psi
its input embedding, f(a, b) their dot product plus a bias of each word (Radford
et al. 2018, who have no bias; Dai et al. 2019; Mikolov et al. 2010; Kong et al.
2019, §3.1 names language models as instances). `rnn_lm` may have a table of its
own for g_psi; `elmo` has one, for both directions (Peters et al. 2018, Eq. 1).
A word is a piece of the tokenizer. All places are scored, each word of the text
once: rows of `gpt` read on where those of the step before ended, too, but
without what was there. Beside a row of labels `gpt` reads the labelled texts
themselves (Radford et al. 2018, Eq. 5): `reads`.

Glossary of shapes: B rows, T tokens, D width, V vocabulary.
"""

from typing import Any

from keras import ops

from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.settings import LABELLED_TEXTS, STREAM
from infoword_tf.objectives.vocabulary import Drawn, VocabularyPieces
from infoword_tf.views import Specials

Tensor = Any
VIEW = 'streamed'
# By what is read, see `settings.READS`.
VIEWS = {STREAM: VIEW, LABELLED_TEXTS: 'examples'}


class NextPieces(VocabularyPieces):
    """Rows of next words: f over the vocabulary at every place."""

    def __init__(
        self,
        row: str,
        encoder: Any,
        specials: Specials,
        reads: str = STREAM,
        **more: Any,
    ):
        """As `Objective`.

        Args:
            row, encoder, specials: as there.
            reads: which text, a name in VIEWS.
            **more: of `VocabularyPieces`.
        """
        super().__init__(row, encoder, specials, **more)
        self.view = VIEWS[reads]

    def piece_scores(self, states: Tensor) -> Tensor:
        """f(a, .) over the vocabulary: states [..., D] -> [..., V]."""
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(ops.cast(states, 'float32'), ops.transpose(table))
        return scores + self.piece_bias

    def score(
        self, batch: Batch, candidates: Drawn | None
    ) -> infonce.Outcome:
        """Cross-entropy; MI leaves out the ends of texts."""
        view = batch.views[self.view]
        return self.among(
            candidates,
            batch,
            view,
            batch.states(self.view),
            view.measured[self.row],
            self.piece_bias,
        )


class RecurrentPieces(NextPieces):
    """`rnn_lm`, whose g_psi may be a table of its own."""

    def __init__(
        self,
        row: str,
        encoder: Any,
        specials: Specials,
        tied: bool = True,
        **more: Any,
    ):
        """As `Objective`.

        Args:
            row, encoder, specials: as there.
            tied: whether g_psi is the input embedding.
            **more: of `NextPieces`.
        """
        super().__init__(row, encoder, specials, **more)
        self.tied = tied

    def build(self) -> None:
        """Makes the row's own weights."""
        super().build()
        if not self.tied:
            self.piece_table = piece_table(self, self.encoder.width)

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every piece."""
        return super().table if self.tied else self.piece_table


class Neighbours(VocabularyPieces):
    """`elmo`: the word after each place, and the one before it."""

    def build(self) -> None:
        """Makes the table and the bias of each piece, of both directions."""
        super().build()
        self.piece_table = piece_table(self, self.encoder.width // 2)

    @property
    def table(self) -> Any:
        """[V, D / 2] float32, g_psi of every piece."""
        return self.piece_table

    def score(
        self, batch: Batch, candidates: Drawn | None
    ) -> infonce.Outcome:
        """Cross-entropy; the mean over the pairs of both directions."""
        view = batch.views['neighbours']
        halves = ops.split(batch.states('neighbours'), 2, axis=-1)
        return self.among(
            candidates,
            batch,
            view,
            ops.concatenate(halves, axis=1),  # [B, 2 T, D / 2]
            view.measured[self.row],
            self.piece_bias,
        )


def piece_table(row: VocabularyPieces, width: int) -> Any:
    """A weight [V, width] of a row: g_psi that is no input embedding."""
    return row.add_weight(
        shape=(row.encoder.vocab_size, width),
        initializer='zeros',
        name='piece_embeddings',
        autocast=False,
    )
