"""The rows `mlm`, `mmlm`, `tlm`, `bert_nce`: a masked token from the text.

    row       a                             b             candidates
    mlm       masked text                   masked token  the whole vocabulary
    mmlm      the same of many languages    masked token  the whole vocabulary
    tlm       masked text and translation   masked token  the whole vocabulary
    bert_nce  masked text                   masked token  masked tokens of other
                                                          sequences

g_omega is the encoder's state at the place, g_psi its input embedding, and
f(a, b) their dot product (Kong et al. 2019, §3.2 and §4; Devlin et al. 2019).
`mlm` is cross-entropy; `bert_nce` is the paper's J_MLM, whose best critic is
pointwise mutual information. Shapes: N = B P.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.objectives.pools import Pool, gather_pool
from infoword_tf.objectives.row import Row, Scoring
from infoword_tf.objectives.vocabulary import (
    VocabularyTokens,
    check_widths,
    pairs,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads

VIEW, TRANSLATED = 'masked', 'translated'


class MaskedTokens(VocabularyTokens):
    """`mlm`: a masked token among the whole vocabulary, as in BERT.

    Learns: words from both sides of them. `mmlm` is the same for texts of many
        languages.
    Take it: to pretrain an encoder that is then fine-tuned, or to fill blanks.
    Needs: any text; `mmlm` a corpus of each language.
    Example: python -m infoword_tf.train --objectives=mlm --workdir=W

    Attributes:
        view: that it reads.
    """

    view: ClassVar[str] = VIEW
    transform: bool = setting(
        False,
        "Use BERT's output transform (dense layer, GELU, norm) and a bias of "
        'each token.',
    )
    transform_activation: str = setting(
        None,
        "Activation of the transform; the encoder's.",
        kind=str,
        needs=('transform', True),
        decided_by='the head of --init',
    )

    def build(self) -> None:
        """Makes the weights of `transform`."""
        if self.transform:
            self.make_transform()
        else:
            check_widths(self)
        self.built = True

    def head(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Applies the transform, if chosen: x [B, P, D] -> [B, P, D]."""
        return self.transformed(x, key) if self.transform else x

    def token_scores(self, states: Tensor, counts: np.ndarray) -> Tensor:
        """Scores the vocabulary: states [B, P, D] -> f(a, .) [B, P, V]."""
        x = ops.cast(self.head(states), 'float32')
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(x, ops.transpose(table))
        return scores + self.token_bias if self.transform else scores

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy over V; MI counts places that show [MASK]."""
        view = batch.views[self.view]
        return self.among_all(
            batch,
            view,
            self.head(batch.states(self.view), batch.fused_key),
            view.measured[self.row],
            self.token_bias if self.transform else None,
        )


class TranslatedTokens(MaskedTokens):
    """`tlm`: `mlm` over a text and a translation.

    Learns: to align words of two languages, since a masked token can often be
        read in the translation (Conneau and Lample 2019, "XLM", §3.3; Chi et
        al. 2021, "InfoXLM", §3.2).
    Take it: with `mmlm`, for tasks in several languages.
    Needs: pairs of translations (--parallel).
    Example: python -m infoword_tf.train --objectives=mmlm:1,tlm:1
        --parallel=PAIRS --workdir=W
    """

    view: ClassVar[str] = TRANSLATED


class NceTokens(Objective):
    """`bert_nce`: a masked token among others of the batch (J_MLM, §4).

    Learns: pointwise mutual information of a token and its context. The paper
        keeps copies of the target among the candidates; without them the best
        critic is another one.
    Take it: with `dim`, as InfoWord; with large vocabularies.
    Needs: any text, and batches of many sequences.
    Example: python -m infoword_tf.train --objectives=infoword --workdir=W
    """

    contrasts = True
    drop_hits: bool = setting(
        False,
        'Leave copies of the target (accidental hits) out of the training '
        'loss.',
    )

    def build(self) -> None:
        """Makes no weights."""
        check_widths(self)
        self.built = True

    def token_scores(self, states: Tensor, counts: np.ndarray) -> Tensor:
        """Scores the vocabulary: states [B, P, D] -> [B, P, V].

        The best f is pointwise mutual information, which is highest for rare
        tokens; f + log p(b) is log p(b | a). counts: [V], of the training
        text.
        """
        x = ops.cast(states, 'float32')
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(x, ops.transpose(table))
        frequencies = np.log(counts / counts.sum())
        return scores + frequencies.astype('float32')

    def candidates(self, batch: Batch) -> Pool:
        """Gathers the paper's multiset, "words of other sequences"."""
        return gather_pool(
            batch.views[VIEW], self.row, batch.replicas, batch.limit
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Computes Eq. 1 over the multiset.

        Columns are the targets themselves where there are at most V of them,
        else the vocabulary with the number of copies of each token.
        """
        x, targets, weights, sequences = pairs(
            batch.views[VIEW], self.row, batch.states(VIEW)
        )
        embeddings = self.encoder.lookup(targets)  # [N, D]
        positive = ops.sum(x * embeddings, axis=1)
        size = self.encoder.vocab_size
        if candidates.limit is not None or candidates.ids.shape[0] <= size:
            columns = candidates.ids
            counts = candidates.others(sequences)
        else:
            columns = ops.arange(size, dtype='int32')
            counts = _counts(candidates, batch.views[VIEW].sequences, size)
            counts = ops.repeat(counts, targets.shape[0] // counts.shape[0], 0)
        table = self.encoder.lookup(columns)  # [M, D]
        scores = ops.matmul(x, ops.transpose(table))  # [N, M]
        identical = ops.equal(columns[None, :], targets[:, None])
        return infonce.contrast(
            positive,
            scores,
            counts,
            identical,
            weights,
            batch.statistics.marginal(self.row, targets),
            drop_identical=self.drop_hits,
        )


def _counts(pool: Pool, sequences: Tensor, size: int) -> Tensor:
    """Counts the copies of each token in other sequences, [B, V] float32."""
    weights = pool.weights
    total = ops.segment_sum(weights, pool.ids, num_segments=size)  # [V]
    b = sequences.shape[0]
    inside = ops.equal(pool.sequences[None, :], sequences[:, None])  # [B, M]
    segments = ops.arange(b, dtype='int32')[:, None] * size + pool.ids[None, :]
    counts = ops.segment_sum(
        ops.reshape(ops.where(inside, weights[None, :], 0.0), (-1,)),
        ops.reshape(segments, (-1,)),
        num_segments=b * size,
    )
    return total[None, :] - ops.reshape(counts, (b, size))


def _products(scoring: Scoring) -> int:
    """Counts the products with the columns of `NceTokens.score`."""
    pairs = scoring.views[VIEW].targets[scoring.row].size
    return scoring.all_pairs(min(pairs, scoring.vocab_size))


MLM = Row(
    objective=MaskedTokens,
    a='masked text',
    b='masked token',
    relation='the token that was masked (BERT)',
    candidates='vocabulary',
    views={VIEW: Reads('tokens')},
    answers=('blanks',),
    public_head='masked_words',
    products=Scoring.all_pairs,
)
MMLM = dataclasses.replace(
    MLM,
    a='masked text of one of many languages',
    relation='the token that was masked (XLM-R)',
    begins_as='mlm',
)
TLM = dataclasses.replace(
    MLM,
    objective=TranslatedTokens,
    a='masked text beside its masked translation',
    relation='the token that was masked (XLM)',
    views={TRANSLATED: Reads('tokens')},
    begins_as='mlm',
)
BERT_NCE = Row(
    objective=NceTokens,
    a='masked text',
    b='masked token',
    relation='a token of a span that was masked',
    candidates='masked tokens of other sequences',
    views={VIEW: Reads('tokens', masking='spans')},
    heldout_candidates=1024,
    answers=('blanks_by_counts',),
    products=_products,
)
