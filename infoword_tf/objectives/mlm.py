"""The rows `mlm` and `bert_nce`: a masked piece from the text around it.

    row       a                             b             candidates
    mlm       masked text                   masked piece  the whole vocabulary
    mmlm      the same of many languages    masked piece  the whole vocabulary
    tlm       masked text and translation   masked piece  the whole vocabulary
    bert_nce  masked text                   masked piece  masked pieces of other
                                                          sequences

g_omega is the encoder's state at the place, g_psi its input embedding, and
f(a, b) their dot product (Kong et al. 2019, §3.2 and §4; Devlin et al. 2019).
`mlm` is cross-entropy; `bert_nce` is the paper's J_MLM, whose best critic is
pointwise mutual information. See also `infonce.py`.

Glossary of shapes: B sequences, P places, N = B P pairs, M candidates,
D width, V vocabulary.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    gather_pool,
)
from infoword_tf.objectives.row import BOTH_SIDES, Row
from infoword_tf.objectives.vocabulary import VocabularyPieces, pairs
from infoword_tf.settings import setting
from infoword_tf.views import Reads

Tensor = Any
VIEW, TRANSLATED = 'masked', 'translated'


class MaskedPieces(VocabularyPieces):
    """`mlm`: f over the whole vocabulary, as BERT trains it.

    Attributes:
        view: that it reads.
    """

    view: ClassVar[str] = VIEW
    transform: bool = setting(
        False,
        "Use BERT's output transform (dense layer, GELU, norm) and a bias of "
        'each piece.',
    )

    def build(self) -> None:
        """Makes the transform's weights, if it is wanted."""
        if self.transform:
            self.make_transform()
        self.built = True

    def head(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """What is scored: x [B, P, D] -> [B, P, D]."""
        return self.transformed(x, key) if self.transform else x

    def piece_scores(self, states: Tensor, counts: np.ndarray) -> Tensor:
        """f(a, .) over the vocabulary: states [B, Q, D] -> [B, Q, V]."""
        x = ops.cast(self.head(states), 'float32')
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(x, ops.transpose(table))
        return scores + self.piece_bias if self.transform else scores

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Cross-entropy over V; MI counts the places that show [MASK]."""
        view = batch.views[self.view]
        return self.among_all(
            batch,
            view,
            self.head(batch.states(self.view), batch.fused),
            view.measured[self.row],
            self.piece_bias if self.transform else None,
        )


class TranslatedPieces(MaskedPieces):
    """`tlm`: the same where a translation stands beside the text.

    What the text does not say of a masked piece its translation may (Conneau
    and Lample 2019, "XLM", §3.3; Chi et al. 2021, "InfoXLM", §3.2).
    """

    view: ClassVar[str] = TRANSLATED


class NcePieces(Objective):
    """`bert_nce`: f over the masked pieces of other sequences (J_MLM, §4).

    The paper keeps copies of the target among them; without these the best
    critic is no longer pointwise mutual information.
    """

    drop_hits: bool = setting(
        False,
        'Leave copies of the target (accidental hits) out of the training '
        'loss.',
    )

    def piece_scores(self, states: Tensor, counts: np.ndarray) -> Tensor:
        """f(a, .) + log p(b): states [B, Q, D] -> [B, Q, V].

        The best f is pointwise mutual information, which is highest for rare
        pieces; with log p(b) it is log p(b | a). counts: [V], of the text that
        it was trained on.
        """
        x = ops.cast(states, 'float32')
        table = ops.cast(self.encoder.embedding_table, 'float32')
        scores = ops.matmul(x, ops.transpose(table))
        frequencies = np.log(counts / counts.sum())
        return scores + frequencies.astype('float32')

    def candidates(self, batch: Batch) -> Pool:
        """The paper's multiset, "words of other sequences in the batch"."""
        return gather_pool(
            batch.views[VIEW], self.row, batch.replicas, batch.limit
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Eq. 1 over the multiset, by its targets or by its counts.

        Columns are the targets themselves where there are at most V of them,
        else the vocabulary with the number of copies of each word.
        """
        x, targets, weights, sequences = pairs(
            batch.views[VIEW], self.row, batch.states(VIEW)
        )
        own = self.encoder.lookup(targets)  # [N, D]
        positive = ops.sum(x * own, axis=1)
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
    """[B, V] float32: c[v] - c_b[v], copies of v in other sequences."""
    weights = pool.weights
    total = ops.segment_sum(weights, pool.ids, num_segments=size)  # [V]
    b = sequences.shape[0]
    own = ops.equal(pool.sequences[None, :], sequences[:, None])  # [B, M]
    place = ops.arange(b, dtype='int32')[:, None] * size + pool.ids[None, :]
    own = ops.segment_sum(
        ops.reshape(ops.where(own, weights[None, :], 0.0), (-1,)),
        ops.reshape(place, (-1,)),
        num_segments=b * size,
    )
    return total[None, :] - ops.reshape(own, (b, size))


MLM = Row(
    objective=MaskedPieces,
    a='masked text',
    b='masked word',
    relation='the word that stood at the place (BERT)',
    candidates='vocabulary',
    views={VIEW: Reads('tokens')},
    encoders=BOTH_SIDES,
    answers=('blanks',),
)
MMLM = dataclasses.replace(
    MLM,
    a='masked text of one of many languages',
    relation='the word that stood at the place (XLM-R)',
    encoders={'transformer': {'causal': False}},
    begins_as='mlm',
)
TLM = dataclasses.replace(
    MLM,
    objective=TranslatedPieces,
    a='masked text beside its masked translation',
    relation='the word that stood at the place (XLM)',
    views={TRANSLATED: Reads('tokens')},
    encoders={'transformer': {'causal': False}},
    begins_as='mlm',
)
BERT_NCE = Row(
    objective=NcePieces,
    a='masked text',
    b='masked word',
    relation='the word that stood at the place, in spans',
    candidates='masked words of other sequences',
    views={VIEW: Reads('tokens', masking='spans')},
    encoders=BOTH_SIDES,
    heldout_candidates=1024,
    answers=('blanks_by_counts',),
)
