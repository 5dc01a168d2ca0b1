"""The row `span`: where in a text the answer to a question stands.

    row   a                     b                   candidates
    span  question and context  where the answer    the places of the context,
                                begins, and ends    and "nowhere" with `null`

f(a, b) = w_start . g_omega(a)_b of the first place and w_end . g_omega(a)_b of
the last one, over tokens of the context alone (Kong et al. 2019, App. C; BERT's
code has the question among them). Where a question may have no answer
"nowhere" is one more candidate: the place of the pooled state, such as [CLS]
(Devlin et al. 2019, §4.3). Both ends are pairs of Eq. 1, so the loss is the
mean of their cross-entropies. With `end='conditional'` the last place is scored
for a first place (Yang et al. 2019, published code),

    w_end . norm(tanh(W [g_omega(a)_b; g_omega(a)_first])),

the true first place in training, the `STARTS` best ones later.

Without its text b is guessed by where answers usually stand: p(b) is the share
of answers that begin (or end) in b's twentieth of the context, spread evenly
over the places of that twentieth; "nowhere" is counted apart. A critic that
knows these shares alone has exactly 0 nats.

Shapes: J examples of a sequence, N = 2 B J, S = STARTS, C = 2 (BINS + 1)
counts.
"""

from typing import Any, NamedTuple

import numpy as np

from infoword_tf.layers import pointwise
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.block import take
from infoword_tf.layers.pointwise import Norm
from infoword_tf.layers.scores import NO_POOLER, NORM, Scored
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Row,
    vector_of_init,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

VIEW = 'examples'
INDEPENDENT, CONDITIONAL = ENDS = ('independent', 'conditional')
STARTS = 5
BINS = 20  # twentieths of a context; "nowhere" is counted in one more
_LEAST = 1e-6  # answers a bin, so that logs are finite
_EPSILON = 1e-12  # of the norm, as in XLNet


def twentieth(place: Any, size: Any) -> Any:
    """Returns the bin of a place in a context of `size` tokens."""
    return BINS * place // size


def counts_of(targets: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Counts how often answers begin and end in each bin of a context.

    Args:
        targets: [n, 3] int32, see `Spans`.
        candidates: [n, 2] int32, where each context begins and ends.

    Returns:
        [C] int64: BINS + 1 counts of first places, then those of last ones.
    """
    begin, end = candidates[:, :1], candidates[:, 1:]
    places = targets[:, :2]
    inside = (places >= begin) & (places < end)
    bins = twentieth(places - begin, np.maximum(end - begin, 1))
    bins = np.where(inside, bins, BINS)
    return np.concatenate([
        np.bincount(column, minlength=BINS + 1) for column in bins.T
    ])  # fmt: skip


class Slots(NamedTuple):
    """Candidate places of each example of a sequence.

    Attributes:
        context: [B, J, T] bool, the places of its context.
        candidates: [B, J, T] bool, all candidates.
        nowhere: [B, J] int32, the place that stands for "nowhere".
        first: [B, J] int32, where the context begins.
        size: [B, J] int32, its places.
        token: [B, T] int32, the example that a token belongs to; 0 where it
            is no candidate.
    """

    context: Tensor
    candidates: Tensor
    nowhere: Tensor
    first: Tensor
    size: Tensor
    token: Tensor


class Spans(Scored, Objective):
    """`span`: the answer in a context, by Eq. 1 over the places of both ends.

    The targets of the view are [B, J, 3]: the first place of the answer, its
    last, and the place of the pooled state of the text, where both ends are
    if there is no answer. An example whose answer is no candidate (it stands
    in another window of its context) has predictions and no loss.

    The settings of lengths are for inference/reader.py, which makes windows and
    extracts answers.

    Learns: which words of a text answer a question.
    Take it: for answers that stand in the text, as in SQuAD.
    Needs: questions, contexts and answers in SQuAD's format; --init.
    Example: python -m tasks.squad --init=MODEL --train=train-v1.1.json
        --dev=dev-v1.1.json --workdir=W
    """

    end: str = setting(
        INDEPENDENT,
        'How the end of an answer is scored: independently, or given its start '
        '(XLNet).',
        choices=ENDS,
    )
    pooler: str = setting(
        NO_POOLER,
        'Activation of a dense layer before the scores of both ends '
        '(ModernBERT: gelu_norm, with a norm and without biases); none: no '
        'such layer.',
        choices=(NO_POOLER, f'gelu{NORM}'),
        needs=('end', (INDEPENDENT,)),
    )
    biases: bool = setting(
        False,
        "Whether each end has a bias, as heads of transformers have: all its "
        'scores change alike, so that no answer does.',
        decided_by='a public folder',
    )
    null: bool = setting(
        False,
        'Whether a question may have no answer (SQuAD 2.0).',
        decided_by='--version2 of tasks.squad and tasks.distill',
    )
    stride: int = setting(
        128,
        'Largest stride between windows over a long context, in tokens.',
        at_least=1,
    )
    question: int = setting(
        64, 'Maximum length of a question, in tokens.', at_least=1
    )
    longest: int = setting(
        30, 'Maximum length of an answer, in tokens.', at_least=1
    )

    @property
    def conditional(self) -> bool:
        """True if last places are scored for a first place."""
        return self.end == CONDITIONAL

    def build(self) -> None:
        """Makes the weights of both ends."""
        d = self.encoder.width
        if self.conditional:
            self.start_kernel = table(self, 'start_kernel', d, 1)
            self.inner_kernel = table(self, 'inner_kernel', 2 * d, d)
            self.inner_bias = vector(self, 'inner_bias', d)
            self.gamma = vector(self, 'norm_gamma', d, 'ones')
            self.beta = vector(self, 'norm_beta', d)
            self.end_kernel = table(self, 'end_kernel', d, 1)
        else:
            self.make_pooler()
            self.kernel = table(self, 'kernel', d, 2)
            if self.biases:
                self.bias = vector(self, 'bias', 2)

    # ------------------------------------------------------------- the scores

    def ends(
        self, x: Tensor, key: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores first and last places: [B, T, D] float32 -> [B, T] each.

        key: of fused operations; None: plain operations.
        """
        scores = ops.matmul(self.pooled(x, key), self.kernel)
        if self.biases:
            scores = scores + self.bias
        return scores[..., 0], scores[..., 1]

    def starts(self, x: Tensor) -> Tensor:
        """Scores first places: [B, T, D] float32 -> [B, T]."""
        return ops.matmul(x, self.start_kernel)[..., 0]

    def ends_after(
        self,
        x: Tensor,
        firsts: Tensor,
        token: Tensor,
        key: Tensor | None = None,
    ) -> Tensor:
        """Scores last places, for a first place of each example.

        Args:
            x: [B, T, D] float32.
            firsts: [B, J] int32, a first place of each example.
            token: [B, T] int32, the example that each token belongs to.
            key: key of fused operations; None: plain operations.

        Returns:
            [B, T] float32.
        """
        d = x.shape[-1]
        kernel = ops.convert_to_tensor(self.inner_kernel)
        first = ops.matmul(take(x, firsts), kernel[d:])  # [B, J, D]
        inner = ops.matmul(x, kernel[:d]) + take(first, token)
        inner = pointwise.norm(
            ops.tanh(inner + self.inner_bias),
            Norm(self.gamma, self.beta, _EPSILON),
            dtype='float32',
            key=key,
        )
        return ops.matmul(inner, self.end_kernel)[..., 0]

    def both_ends(
        self, batch: Batch
    ) -> tuple[Slots, tuple[Tensor, Tensor]]:
        """Returns candidates, and scores of first and last places.

        The scores are [B, T] float32 each; of a conditional end those of last
        places are for the true first place.
        """
        view = batch.views[VIEW]
        slots = self._slots(view)
        x = ops.cast(batch.states(VIEW), 'float32')
        if not self.conditional:
            return slots, self.ends(x, batch.fused_key)
        firsts = view.targets[self.row][:, :, 0]
        last = self.ends_after(x, firsts, slots.token, batch.fused_key)
        return slots, (self.starts(x), last)

    def weight(self, batch: Batch) -> Tensor:
        """Sums the weights of answers that are candidates, of both ends."""
        view = batch.views[VIEW]
        targets = view.targets[self.row]
        candidates = self._slots(view).candidates
        known = ops.logical_and(
            *(_known(candidates, targets[:, :, i]) for i in range(2))
        )
        return 2 * ops.sum(ops.where(known, view.weights[self.row], 0.0))

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy of the first and of the last place."""
        view = batch.views[VIEW]
        slots, scores = self.both_ends(batch)
        targets = view.targets[self.row]
        statistics = batch.statistics.by_row[self.row]
        training, measured = (
            np.reshape(np.asarray(counts, np.float64), (2, BINS + 1))
            for counts in (statistics.training, statistics.measured)
        )
        ends = [
            _one_end(
                slots, scores[i], targets[:, :, i],
                training=training[i], measured=measured[i],
            )  # fmt: skip
            for i in range(2)
        ]
        # Of an answer that is no candidate neither end counts.
        known = ops.minimum(*(known for known, *_ in ends))
        weights = ops.reshape(view.weights[self.row] * known, (-1,))
        positive, log_sum, log_size, rank, *marginal = (
            ops.concatenate([ops.reshape(x, (-1,)) for x in both])
            for both in zip(*(end for _, *end in ends), strict=True)
        )
        outcome = infonce.infonce(
            infonce.Candidates(positive, log_sum, log_size, rank),
            ops.concatenate([weights, weights]),
            infonce.Marginal(*marginal),
        )
        if batch.training:
            return outcome
        x = ops.cast(batch.states(VIEW), 'float32')
        return outcome._replace(predictions=self.spans(x, slots))

    # -------------------------------------------------------- what it predicts

    def spans(self, x: Tensor, slots: Slots) -> dict[str, Tensor]:
        """Scores spans in nats, as the sum of a first and a last place.

        Args:
            x: [B, T, D] float32.
            slots: candidates of each example.

        Returns:
            'first' and 'last' [B, T], f of each; or with a conditional end
            'starts' [B, J, S], the best first places as tokens of their
            context, 'first' [B, J, S], their log-probabilities, and 'last' [B,
            T, S], those of last places after each. Below `NEVER` / 2: no such
            place. With `null` also 'nowhere' [B, J].
        """
        if not self.conditional:
            first, last = self.ends(x)
            predictions = {'first': first, 'last': last}
            if self.null:
                both = (first + last)[:, :, None]
                predictions['nowhere'] = take(both, slots.nowhere)[:, :, 0]
            return predictions
        first = log_softmax(slots.candidates, self.starts(x))  # [B, J, T]
        # There may be fewer than S places.
        predictions = ops.pad(
            ops.where(slots.context, first, NEVER),
            [[0, 0], [0, 0], [0, STARTS]],
            constant_values=NEVER,
        )
        scores, places = ops.top_k(predictions, STARTS)
        places = ops.minimum(places, ops.shape(x)[1] - 1)

        def lasts(firsts: Tensor) -> Tensor:
            """Computes log-probabilities of last places, [B, T]."""
            scores = self.ends_after(x, firsts, slots.token)
            total = _log_sum(slots.candidates, scores)  # [B, J]
            return scores - take(total[:, :, None], slots.token)[:, :, 0]

        predictions = {
            'starts': places - slots.first[:, :, None],
            'first': scores,
            'last': ops.stack(
                [lasts(places[:, :, i]) for i in range(STARTS)], axis=-1
            ),
        }
        if self.null:
            both = _at(first, slots.nowhere) + take(
                lasts(slots.nowhere)[:, :, None], slots.nowhere
            )[:, :, 0]
            predictions['nowhere'] = both
        return predictions

    def _slots(self, view: View) -> Slots:
        """Returns the candidates of each example of the view."""
        number = view.candidates[self.row]  # [B, T]
        nowhere = view.targets[self.row][:, :, 2]  # [B, J]
        examples, tokens = nowhere.shape[1], number.shape[1]
        return slots_of(
            ops.equal(
                number[:, None, :],
                ops.arange(examples, dtype='int32')[None, :, None],
            ),
            nowhere,
            tokens if self.null else None,
        )


def slots_of(context: Tensor, nowhere: Tensor, tokens: Any) -> Slots:
    """Makes `Slots` from the contexts of examples.

    Args:
        context: [B, J, T] bool.
        nowhere: [B, J] int32, the place that stands for "nowhere".
        tokens: T where that is a candidate, else None.
    """
    candidates = context
    if tokens is not None:
        places = ops.arange(tokens, dtype='int32')
        candidates = ops.logical_or(
            candidates, ops.equal(places[None, None, :], nowhere[:, :, None])
        )
    return Slots(
        context,
        candidates,
        nowhere,
        first=ops.cast(ops.argmax(context, axis=2), 'int32'),
        size=ops.sum(ops.cast(context, 'int32'), axis=2),
        token=ops.cast(ops.argmax(candidates, axis=1), 'int32'),
    )


def _known(candidates: Tensor, targets: Tensor) -> Tensor:
    """Tells which targets [B, J] are candidates [B, J, T]."""
    column = ops.arange(candidates.shape[2], dtype='int32')[None, None, :]
    true = ops.equal(column, targets[:, :, None])
    return ops.any(ops.logical_and(candidates, true), axis=2)


def _one_end(
    slots: Slots,
    scores: Tensor,
    targets: Tensor,
    training: np.ndarray,
    measured: np.ndarray,
) -> tuple[Tensor, ...]:
    """Sums scores of one end of every answer over the candidates.

    Args:
        slots: the candidates.
        scores: [B, T] float32.
        targets: [B, J] int32.
        training, measured: [BINS + 1] counts, see `counts_of`.

    Returns:
        [B, J] each: 1 where the target is a candidate, the fields of
        `infonce.Candidates` without copies and those of `infonce.Marginal`.
    """
    candidates, tokens = slots.candidates, scores.shape[1]
    column = ops.arange(tokens, dtype='int32')[None, None, :]
    true = ops.equal(column, targets[:, :, None])  # [B, J, T]
    known = ops.any(ops.logical_and(candidates, true), axis=2)
    positive = take(scores[:, :, None], targets)[:, :, 0]
    others = ops.logical_and(candidates, ops.logical_not(true))
    as_high = ops.greater_equal(scores[:, None, :], positive[:, :, None])
    as_high = ops.logical_and(as_high, others)
    size = ops.sum(ops.cast(candidates, 'float32'), axis=2)
    log_size = ops.log(ops.maximum(size, 1.0))
    known_p, expected_p = (
        _log_density(slots, counts)
        for counts in (np.maximum(measured, _LEAST), training + 1)
    )  # [B, J, T]
    log_p = _at(known_p, targets)
    # Several places may be the likeliest: a guess of one of them is right in
    # that share of the cases.
    likely = known_p > ops.max(known_p, axis=2, keepdims=True) - 1e-5
    share = 1 / ops.sum(ops.cast(likely, 'float32'), axis=2)
    commonest = ops.any(ops.logical_and(likely, true), axis=2)
    return (
        ops.cast(known, 'float32'),
        positive,
        _log_sum(candidates, scores),
        log_size,
        ops.sum(ops.cast(as_high, 'float32'), axis=2),
        log_p + log_size,
        _at(expected_p, targets) - log_p,
        ops.cast(commonest, 'float32') * share,
    )


def _log_density(slots: Slots, counts: np.ndarray) -> Tensor:
    """Computes log p of every place without a text, [B, J, T] float32.

    Args:
        slots: the candidates.
        counts: [BINS + 1], above 0.
    """
    tokens = slots.candidates.shape[2]
    size = ops.maximum(slots.size, 1)[:, :, None]
    column = ops.arange(tokens, dtype='int32')[None, None, :]
    bins = twentieth(column - slots.first[:, :, None], size)
    bins = ops.clip(bins, 0, BINS - 1)
    # Places i of bin k: those with k n <= BINS i < (k + 1) n.
    places = -(-(bins + 1) * size // BINS) + -bins * size // BINS
    log_counts = np.log(counts).astype('float32')
    log_p = ops.take(log_counts, bins) - ops.log(
        ops.cast(ops.maximum(places, 1), 'float32')
    )
    log_p = ops.where(slots.context, log_p, float(log_counts[BINS]))
    log_p = ops.where(slots.candidates, log_p, NEVER)
    return log_p - ops.logsumexp(log_p, axis=2, keepdims=True)


def _log_sum(candidates: Tensor, scores: Tensor) -> Tensor:
    """Sums scores [B, T] over candidates [B, J, T], in logs: [B, J]."""
    scores = ops.where(candidates, scores[:, None, :], NEVER)
    return ops.logsumexp(scores, axis=2)


def log_softmax(candidates: Tensor, scores: Tensor) -> Tensor:
    """Normalizes scores [B, T] over candidates [B, J, T]; else `NEVER`."""
    total = _log_sum(candidates, scores)[:, :, None]
    return ops.where(candidates, scores[:, None, :] - total, NEVER)


def _at(x: Tensor, places: Tensor) -> Tensor:
    """Takes x [B, J, T] at places [B, J]."""
    return ops.take_along_axis(x, places[:, :, None], axis=2)[:, :, 0]



ROW = Row(
    objective=Spans,
    a='question and context',
    b='where the answer begins, and ends',
    relation='the answer that people marked',
    candidates='tokens of the context',
    views={VIEW: Reads('text')},
    needs=('attention',),
    vector=vector_of_init,
    answers=('spans',),
    public_head='spans',
    taught_by='soft_span',
    of_tokens=True,
)
