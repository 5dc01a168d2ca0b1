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
A word is a token here. All places are scored, each word of the text once. The
sequences of `gpt` also continue where those of the previous step ended, but
have no memory of it. With a row of labels `gpt` reads the labelled texts
themselves (Radford et al. 2018, Eq. 5): `reads`.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.encoders.rnn import CELLS
from infoword_tf.layers.attention import table
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.mlm import (
    DrawnCandidates,
    SampledTokens,
    VocabularyTokens,
    check_widths,
)
from infoword_tf.objectives.objective import Batch, Row, Scoring, Vector
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads

VIEW = 'streamed'
STREAM, EXAMPLES = 'stream', 'examples'
VIEWS = {STREAM: VIEW, EXAMPLES: 'examples'}  # by `CausalTokens.reads`


class NextTokens(SampledTokens):
    """Rows of next words: f over the vocabulary at every place."""

    @property
    def view(self) -> str:
        """The name of the view that is read."""
        return VIEW

    def build(self) -> None:
        """Makes the bias of each token."""
        check_widths(self)
        super().build()

    def token_scores(self, states: Tensor) -> Tensor:
        """Scores the vocabulary: states [..., D] -> f(a, .) [..., V]."""
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(ops.cast(states, 'float32'), ops.transpose(table))
        return scores + self.token_bias

    def score(
        self, batch: Batch, candidates: DrawnCandidates | None
    ) -> infonce.Outcome:
        """Computes cross-entropy; MI leaves out the ends of texts."""
        view = batch.views[self.view]
        return self.among_candidates(
            candidates,
            batch,
            view,
            x=batch.states(self.view),
            measured=view.measured[self.row],
            bias=self.token_bias,
        )


class LongContext(NextTokens):
    """`transformer_xl`: the next word, from a context longer than a sequence.

    Learns: to continue a text, with the states of earlier sequences as memory.
    Take it: for a language model that reads long documents.
    Needs: long texts, and --memory_length.
    Example: python -m infoword_tf.train --objectives=transformer_xl --workdir=W
    """

    published: bool = setting(
        False,
        "Dai et al.'s encoder: ReLU, and embeddings times the square root of "
        'the width.',
        encoder={
            False: {'scale_embeddings': False},
            True: {'scale_embeddings': True, 'activation': 'relu'},
        },
    )


class CausalTokens(NextTokens):
    """`gpt`: the next word, from the words before in the sequence.

    Learns: to continue a text.
    Take it: for a language model; or with `label`, as Radford et al.
        fine-tune (`reads`).
    Needs: any text.
    Example: python -m infoword_tf.train --objectives=gpt --workdir=W
    """

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


class RecurrentTokens(NextTokens):
    """`rnn_lm`: the next word, by an LSTM, a GRU or a plain recurrence.

    Learns: to continue a text; g_psi may be a table of the row (`tied`).
    Take it: as a small language model, or a baseline.
    Needs: any text.
    Example: python -m infoword_tf.train --objectives=rnn_lm --workdir=W
    """

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
            self.token_table = token_table(self, self.encoder.width)

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every token."""
        return super().table if self.tied else self.token_table


class BothNeighbours(SampledTokens):
    """`elmo`: the words after and before each place, by two LSTMs.

    Learns: states of words, of all layers, from spelling and context.
    Take it: as features of a tagger or classifier; it needs no vocabulary of
        word parts.
    Needs: any text, and words as tokens.
    Example: python -m infoword_tf.train --objectives=elmo --workdir=W
    """

    def build(self) -> None:
        """Makes the table and the bias of each token, for both directions."""
        super().build()
        self.token_table = token_table(self, self.encoder.width // 2)

    @property
    def table(self) -> Any:
        """[V, D / 2] float32, g_psi of every token."""
        return self.token_table

    def score(
        self, batch: Batch, candidates: DrawnCandidates | None
    ) -> infonce.Outcome:
        """Computes cross-entropy, the mean over both directions."""
        view = batch.views['neighbours']
        halves = ops.split(batch.states('neighbours'), 2, axis=-1)
        return self.among_candidates(
            candidates,
            batch,
            view,
            x=ops.concatenate(halves, axis=1),  # [B, 2 T, D / 2]
            measured=view.measured[self.row],
            bias=self.token_bias,
        )


def token_table(row: VocabularyTokens, width: int) -> Any:
    """Makes a weight [V, width] of a row: g_psi without input embeddings."""
    return table(row, 'piece_embeddings', row.encoder.vocab_size, width)


def _streamed(settings: Mapping[str, Any]) -> Reads | None:
    return Reads('text') if settings['reads'] == STREAM else None


def _following(settings: Mapping[str, Any]) -> Reads | None:
    return Reads('following') if settings['reads'] == EXAMPLES else None


def _at_the_end(settings: Mapping[str, Any]) -> Vector:
    """Pools by the mean; a causal encoder has read a text at the end only."""
    return Vector(layout='gpt' if settings['reads'] == EXAMPLES else 'end')


TRANSFORMER_XL = Row(
    objective=LongContext,
    a='text so far, with memory',
    b='next token',
    relation='the token that follows (language model)',
    candidates='vocabulary',
    views={VIEW: Reads('text')},
    needs=('causal', 'memory'),
    vector=Vector(layout='end'),
    answers=('next',),
    products=Scoring.all_pairs,
)
RNN_LM = Row(
    objective=RecurrentTokens,
    a='text so far',
    b='next token',
    relation='the token that follows, by an LSTM, GRU or plain recurrence',
    candidates='vocabulary',
    views={VIEW: Reads('text')},
    needs=('causal', 'recurrence'),
    vector=Vector(layout='end'),
    answers=('next',),
    products=Scoring.all_pairs,
)
GPT = Row(
    objective=CausalTokens,
    a='text so far',
    b='next token',
    relation='the token that follows (language model)',
    candidates='vocabulary',
    views={VIEW: _streamed, 'examples': _following},
    needs=('alone', 'causal'),
    vector=_at_the_end,
    answers=('next',),
    public_head='next_words',
    products=Scoring.all_pairs,
)
ELMO = Row(
    objective=BothNeighbours,
    a='what comes before, or after',
    b='next token, or the one before',
    relation='a token and all text on one side of it (ELMo)',
    candidates='vocabulary',
    views={'neighbours': Reads('text')},
    needs=('directions',),
    # The mean over tokens and layers: of a model that reads both ways.
    vector=Vector(pooling='mix', layout='end'),
    products=lambda x: x._replace(width=x.width // 2).all_pairs(),
)
