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
once. The rows of `gpt` also continue where those of the previous step ended,
but have no memory of it. Beside a row of labels `gpt` reads the labelled texts
themselves (Radford et al. 2018, Eq. 5): `reads`.

Glossary of shapes: B rows, T tokens, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.encoders.rnn import CELLS
from infoword_tf.layers.attention import table
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.row import Row, Vector
from infoword_tf.objectives.vocabulary import (
    DrawnCandidates,
    SampledPieces,
    VocabularyPieces,
)
from infoword_tf.settings import setting
from infoword_tf.views import Reads

Tensor = Any
VIEW = 'streamed'
STREAM, EXAMPLES = 'stream', 'examples'
VIEWS = {STREAM: VIEW, EXAMPLES: 'examples'}  # by `CausalPieces.reads`


class NextPieces(SampledPieces):
    """Rows of next words: f over the vocabulary at every place."""

    view = VIEW

    def piece_scores(self, states: Tensor) -> Tensor:
        """f(a, .) over the vocabulary: states [..., D] -> [..., V]."""
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(ops.cast(states, 'float32'), ops.transpose(table))
        return scores + self.piece_bias

    def score(
        self, batch: Batch, candidates: DrawnCandidates | None
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


class LongContext(NextPieces):
    """`transformer_xl`."""

    published: bool = setting(
        False,
        "Dai et al.'s encoder: ReLU, and embeddings times the square root of "
        'the width.',
        encoder={
            False: {'scale_embeddings': False},
            True: {'scale_embeddings': True, 'activation': 'relu'},
        },
    )


class CausalPieces(NextPieces):
    """`gpt`."""

    pre_norm: bool = setting(
        False,
        'Pre-norm blocks with a final norm (GPT-2) instead of post-norm ones.',
        encoder={False: {'pre_norm': False}, True: {'pre_norm': True}},
    )
    reads: str = setting(
        STREAM,
        'Read a continuous stream of text (stream), or the labelled texts of '
        'the other rows (examples), which is the default of fine-tuning '
        'without a --corpus.',
        choices=tuple(VIEWS),
    )

    @property
    def view(self) -> str:
        """The name of the view that is read."""
        return VIEWS[self.reads]


class RecurrentPieces(NextPieces):
    """`rnn_lm`, whose g_psi may be a table of its own."""

    cell: str = setting(
        CELLS[0],
        'The recurrent cell.',
        choices=CELLS,
        encoder={cell: {'cell': cell} for cell in CELLS},
    )
    tied: bool = setting(
        True,
        'Tie the output embeddings to the input embeddings; no: a separate '
        'output table.',
    )

    def build(self) -> None:
        """Makes the row's own weights."""
        super().build()
        if not self.tied:
            self.piece_table = piece_table(self, self.encoder.width)

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every piece."""
        return super().table if self.tied else self.piece_table


class Neighbours(SampledPieces):
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
        self, batch: Batch, candidates: DrawnCandidates | None
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
    return table(row, 'piece_embeddings', row.encoder.vocab_size, width)


def _streamed(settings: Mapping[str, Any]) -> Reads | None:
    return Reads('text') if settings['reads'] == STREAM else None


def _following(settings: Mapping[str, Any]) -> Reads | None:
    return Reads('following') if settings['reads'] == EXAMPLES else None


def _at_the_end(settings: Mapping[str, Any]) -> Vector:
    """The mean; a causal encoder knows a text at its end alone."""
    return Vector(layout='gpt' if settings['reads'] == EXAMPLES else 'end')


TRANSFORMER_XL = Row(
    objective=LongContext,
    a='text so far, with memory',
    b='next word',
    relation='the word that follows (language model)',
    candidates='vocabulary',
    views={VIEW: Reads('text')},
    encoders={'relative': {'causal': True}},
    vector=Vector(layout='end'),
    answers=('next',),
)
RNN_LM = Row(
    objective=RecurrentPieces,
    a='text so far',
    b='next word',
    relation='the word that follows, by an LSTM, GRU or plain recurrence',
    candidates='vocabulary',
    views={VIEW: Reads('text')},
    encoders={'rnn': {}},
    vector=Vector(layout='end'),
    answers=('next',),
)
GPT = Row(
    objective=CausalPieces,
    a='text so far',
    b='next word',
    relation='the word that follows (language model)',
    candidates='vocabulary',
    views={VIEW: _streamed, 'examples': _following},
    encoders={
        'transformer': {
            'causal': True,
            'segments': 0,
            'embedding_norm': False,
            'epsilon': 1e-5,
        }
    },
    vector=_at_the_end,
    answers=('next',),
)
ELMO = Row(
    objective=Neighbours,
    a='what comes before, or after',
    b='next word, or the one before',
    relation='a word and all text on one side of it (ELMo)',
    candidates='vocabulary',
    views={'neighbours': Reads('text')},
    encoders={'elmo': {}},
    # The mean over tokens and layers: of a model that reads both ways.
    vector=Vector(pooling='mix', layout='end'),
)
