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
pointwise mutual information.

**Tokens against the vocabulary**, for these rows, `plm` and the rows of next
words. Against all of it, or in training against a sample (`sampled`). Each
token is then a candidate of a step with a probability w of its own, and its
score counts 1 / w times:

    log sum over V of exp f(a, v)  ~  log sum over B~ of exp f(a, v) / w(v)

The true token b is always a candidate, once, whether it was drawn or not. Both
sums are equal on average, and equal where w is 1 throughout. With M the sum of
w this is InfoNCE over candidates from q = w / M, less KL(p || q), and a bound
whatever w is: that needs E[exp f(a, b) / sum over B~], summed over all b, to be
1 at most. As b is drawn with w(b), independently of the others, the mean with b
as a candidate is that of b's share of the sum, 0 where it is not drawn; and the
shares of drawn tokens sum to 1.

Shapes: N = B P.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import vector
from infoword_tf.layers.vocabulary_scores import Transformed, vocabulary_scores
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool, gather_pool
from infoword_tf.objectives.objective import Batch, Objective, Row, Scoring
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

VIEW, TRANSLATED = 'masked', 'translated'
SPARE = 6  # standard deviations of the number of draws that fit


class DrawnCandidates(NamedTuple):
    """Candidates of a step, which all pairs share.

    Attributes:
        ids: [n] int32 tokens, each at most once; n has room to spare.
        weights: [n] float32, 1 for tokens that were drawn, else 0.
        inclusion: [V] float64, NumPy: w, the probability of each token.
    """

    ids: Tensor
    weights: Tensor
    inclusion: np.ndarray


def inclusion(counts: np.ndarray, size: int) -> np.ndarray:
    """Computes w, the probability that each token is a candidate.

    In proportion to the log-uniform distribution over ranks by frequency that
    ELMo was trained with (Peters et al. 2018, their code), but 1 at most: the
    commonest tokens are always candidates.

    Args:
        counts: [V], how frequent each token is.
        size: M, at most V.

    Returns:
        [V] float64, of sum `size`.
    """
    number = np.arange(len(counts))
    q = np.log1p(1 / (number + 1))  # by rank, highest first
    # The first so many are certain, and the next is not.
    scale = (size - number) / np.cumsum(q[::-1])[::-1]
    certain = np.argmax(scale * q <= 1 + 1e-9)
    ranked = np.minimum(1, scale[certain] * q)
    ranked[:certain] = 1
    probabilities = np.empty(len(counts))
    probabilities[np.argsort(-counts, kind='stable')] = ranked
    return probabilities


def pairs(view: View, row: str, x: Tensor) -> tuple[Tensor, ...]:
    """Flattens x [B, P, D] and the view's targets, weights and sequences.

    Returns:
        [N, D] float32, and [N] each.
    """
    targets, weights = view.targets[row], view.weights[row]
    p = targets.shape[1]
    states = ops.reshape(ops.cast(x, 'float32'), (-1, x.shape[-1]))
    return (
        states,
        ops.reshape(targets, (-1,)),
        ops.reshape(weights, (-1,)),
        ops.repeat(view.sequences, p),
    )


def check_widths(objective: Objective) -> None:
    """Raises a ValueError if states are wider than embeddings."""
    d, e = objective.encoder.width, objective.encoder.embedding_width
    if d != e:
        raise errors.InputError(
            'narrow_embeddings',
            f'{objective.row} multiplies states {d} wide by embeddings {e} '
            'wide; only rows with a transform (--mlm.transform) can',
        )


class VocabularyTokens(Transformed, Objective):
    """Rows whose candidates are the vocabulary; g_psi is a lookup."""

    def build(self) -> None:
        """Makes the bias of each token."""
        self.token_bias = vector(self, 'piece_bias', self.encoder.vocab_size)

    @property
    def table(self) -> Any:
        """[V, D] float32, g_psi of every token."""
        return self.encoder.embedding_table

    def among_all(
        self,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor | None = None,
    ) -> infonce.Outcome:
        """Computes Eq. 1 over V, which is cross-entropy.

        Args:
            batch: input of the step.
            view: one of its views, whose targets are b.
            x: [B, P, D], scored against the input embeddings.
            measured: [B, P] float32: 0 for pairs of the loss alone.
            bias: [V] float32 of each token, or None.
        """
        x, targets, weights, _ = pairs(view, self.row, x)
        table = ops.convert_to_tensor(self.table)
        positive, log_sum, rank = vocabulary_scores(
            x, table, bias, targets, dtype=self.compute_dtype,
            key=batch.fused_key,
        )  # fmt: skip
        size = table.shape[0]
        return infonce.infonce(
            infonce.Candidates(positive, log_sum, math.log(size), rank),
            weights,
            batch.statistics.of(self.row).marginal(
                self.row, targets, q=np.full(size, 1 / size)
            ),
            measured=ops.reshape(measured, (-1,)),
        )


class SampledTokens(VocabularyTokens):
    """Rows that may train against a sample of the vocabulary."""

    sampled: int = setting(
        0,
        'Sampled softmax: about this many candidates, sampled anew in each '
        'training step; 0: the whole vocabulary.',
        at_least=0,
    )

    def candidates(self, batch: Batch) -> DrawnCandidates | None:
        """Draws a sample of the vocabulary in training, if `sampled`.

        By the key of the step, so it is the same on all replicas.
        """
        if not self.sampled or not batch.training:
            return None
        statistics = batch.statistics.of(self.row)
        counts = np.array(statistics.training, float)
        # [SEP] is not counted, and as frequent a target as the commonest token.
        counts[self.specials.sep_id] = counts.max() + 1
        probabilities = inclusion(counts, min(self.sampled, len(counts)))
        deviation = math.sqrt(probabilities @ (1 - probabilities))
        capacity = math.ceil(probabilities.sum() + SPARE * deviation)
        drawn = ops.less(
            dropout.uniform(batch.key, probabilities.shape),
            probabilities.astype('float32'),
        )
        # Of equal numbers the first come first.
        weights, ids = ops.top_k(
            ops.cast(drawn, 'float32'), min(capacity, len(probabilities))
        )
        return DrawnCandidates(ids, weights, probabilities)

    def among_candidates(
        self,
        candidates: DrawnCandidates | None,
        batch: Batch,
        view: View,
        x: Tensor,
        measured: Tensor,
        bias: Tensor,
    ) -> infonce.Outcome:
        """Computes Eq. 1 over the sample, see above; over V without one.

        Args:
            candidates: result of `candidates`.
            batch, view, x, measured, bias: arguments of `among_all`.
        """
        if candidates is None:
            return self.among_all(batch, view, x, measured, bias=bias)
        x, targets, weights, _ = pairs(view, self.row, x)
        ids, drawn, w = candidates
        table = self.table
        bias = ops.convert_to_tensor(bias) - np.log(w).astype('float32')
        positive = ops.sum(x * ops.take(table, targets, axis=0), axis=1)
        scores = ops.matmul(x, ops.transpose(ops.take(table, ids, axis=0)))
        identical = ops.equal(ids[None, :], targets[:, None])
        outcome = infonce.over_multiset(
            infonce.Comparison(
                positive + ops.take(bias, targets),
                scores + ops.take(bias, ids),
                ops.where(identical, 0.0, drawn[None, :]),
                identical,
            )
        )
        size = w.sum()
        return infonce.infonce(
            outcome._replace(log_size=math.log(size)),
            weights,
            batch.statistics.of(self.row).marginal(
                self.row,
                targets,
                q=w / size,
                drawn=ops.where(drawn > 0, ids, -1)[None, :],
                inclusion=w,
            ),
            measured=ops.reshape(measured, (-1,)),
        )


class MaskedTokens(VocabularyTokens):
    """`mlm`: a masked token among the whole vocabulary, as in BERT.

    Learns: words from both sides of them. `mmlm` is the same for texts of many
        languages.
    Take it: to pretrain an encoder that is then fine-tuned, or to fill blanks.
    Needs: any text; `mmlm` a corpus of each language.
    Example: python -m infoword_tf.train --objectives=mlm --workdir=W

    Attributes:
        view: name of the view that it reads.
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
        needs=('transform', (True,)),
        decided_by='the head of --init',
    )
    transform_epsilon: float = setting(
        None,
        "Epsilon of the norm of the transform; the encoder's.",
        kind=float,
        needs=('transform', (True,)),
        decided_by='the head of --init',
    )

    def build(self) -> None:
        """Makes the weights of `transform`."""
        if self.transform:
            self.make_transform()
        else:
            check_widths(self)

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
            bias=self.token_bias if self.transform else None,
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
            infonce.Comparison(positive, scores, counts, identical),
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
