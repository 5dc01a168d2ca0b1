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
for a given first one (Yang et al. 2019, as its code has it),

    w_end . norm(tanh(W [g_omega(a)_b; g_omega(a)_first])),

the true first place in training, the `STARTS` best ones later.

What is known of b without its text is where answers usually stand: p(b) is the
share of answers that begin (or end) in b's twentieth of the context, spread
evenly over the places of that twentieth; "nowhere" is a case of its own. A
critic that knows these shares alone has exactly 0 nats.

Glossary of shapes: R rows, J examples of a row, T tokens, N = 2 R J, D width,
S = STARTS, C = 2 (BINS + 1) counts.
"""

from typing import Any, NamedTuple

import numpy as np

from infoword_tf.layers import norm
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.block import take
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.objectives.row import Row, as_started
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
VIEW = 'examples'
ENDS = ('independent', 'conditional')
STARTS = 5
BINS = 20  # that a context is parted into; the number of "nowhere" is the next
_LEAST = 1e-6  # answers: so that no log is taken of none
_EPSILON = 1e-12  # of the norm, as in XLNet


def twentieth(place: Any, size: Any) -> Any:
    """Which of BINS parts of a context of `size` tokens has a place of it."""
    return BINS * place // size


def counts_of(targets: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """How often answers begin and end in each part of a context.

    Args:
        targets: [n, 3] int32, see `Spans`.
        candidates: [n, 2] int32, where each context begins and ends.

    Returns:
        [C] int64: BINS + 1 counts of first places, then those of last ones.
    """
    begin, end = candidates[:, :1], candidates[:, 1:]
    places = targets[:, :2]
    inside = (places >= begin) & (places < end)
    part = twentieth(places - begin, np.maximum(end - begin, 1))
    part = np.where(inside, part, BINS)
    return np.concatenate([
        np.bincount(column, minlength=BINS + 1) for column in part.T
    ])  # fmt: skip


class Slots(NamedTuple):
    """What each example of a row may answer.

    Attributes:
        context: [R, J, T] bool, the places of its context.
        own: [R, J, T] bool, all candidates.
        nowhere: [R, J] int32, the place that stands for "nowhere".
        first: [R, J] int32, where the context begins.
        size: [R, J] int32, its places.
        token: [R, T] int32, the example that a token belongs to; 0 where it
            is no candidate.
    """

    context: Tensor
    own: Tensor
    nowhere: Tensor
    first: Tensor
    size: Tensor
    token: Tensor


class Spans(Objective):
    """`span`: Eq. 1 over places, of both ends of an answer.

    The targets of the view are [R, J, 3]: the first place of the answer, its
    last, and the place of the pooled state of the text. Both ends are that
    one where there is no answer. An example whose answer is no candidate (it
    stands in another window of its context) has predictions and no loss.

    The stride, a question's and an answer's length are for whoever lays windows
    out and cuts answers out (inference/reader.py).
    """

    end: str = setting(
        ENDS[0],
        'How the end of an answer is scored: independently, or given its start '
        '(XLNet).',
        choices=ENDS,
    )
    null: bool = setting(
        False,
        'Whether a question may have no answer (SQuAD 2.0).',
        decided_by='--version2 of tasks.squad and tasks.distill',
    )
    stride: int = setting(
        128,
        'Largest stride between windows over a long context, in pieces.',
        at_least=1,
    )
    question: int = setting(
        64, 'Maximum length of a question, in pieces.', at_least=1
    )
    longest: int = setting(
        30, 'Maximum length of an answer, in pieces.', at_least=1
    )

    @property
    def conditional(self) -> bool:
        """Whether last places are scored for a given first one."""
        return self.end == 'conditional'

    def build(self) -> None:
        """Makes the weights: of both ends, or of one and then the other."""
        d = self.encoder.width
        if self.conditional:
            self.start_kernel = table(self, 'start_kernel', d, 1)
            self.inner_kernel = table(self, 'inner_kernel', 2 * d, d)
            self.inner_bias = vector(self, 'inner_bias', d)
            self.gamma = vector(self, 'norm_gamma', d, 'ones')
            self.beta = vector(self, 'norm_beta', d)
            self.end_kernel = table(self, 'end_kernel', d, 1)
        else:
            self.kernel = table(self, 'kernel', d, 2)
        self.built = True

    # ------------------------------------------------------------- the scores

    def ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[R, T, D] float32 -> f of first and of last places, [R, T] each."""
        scores = ops.matmul(x, self.kernel)
        return scores[..., 0], scores[..., 1]

    def starts(self, x: Tensor) -> Tensor:
        """f of first places: [R, T, D] float32 -> [R, T]."""
        return ops.matmul(x, self.start_kernel)[..., 0]

    def ends_after(
        self,
        x: Tensor,
        firsts: Tensor,
        token: Tensor,
        key: Tensor | None = None,
    ) -> Tensor:
        """f of last places where the first ones are given.

        Args:
            x: [R, T, D] float32.
            firsts: [R, J] int32, a first place of each example.
            token: [R, T] int32, the example that each token belongs to.
            key: of fused pieces; None: plain operations.

        Returns:
            [R, T] float32.
        """
        d = x.shape[-1]
        kernel = ops.convert_to_tensor(self.inner_kernel)
        given = ops.matmul(take(x, firsts), kernel[d:])  # [R, J, D]
        inner = ops.matmul(x, kernel[:d]) + take(given, token)
        inner = norm.norm(
            ops.tanh(inner + self.inner_bias),
            self.gamma,
            self.beta,
            epsilon=_EPSILON,
            dtype='float32',
            key=key,
        )
        return ops.matmul(inner, self.end_kernel)[..., 0]

    def both_ends(
        self, batch: Batch
    ) -> tuple[Slots, tuple[Tensor, Tensor]]:
        """What each example may answer, and f of first and last places.

        Returns:
            The candidates, and twice [R, T] float32; of last places after the
            true first one, where the end is conditional.
        """
        view = batch.views[VIEW]
        slots = self._slots(view)
        x = ops.cast(batch.states(VIEW), 'float32')
        if not self.conditional:
            return slots, self.ends(x)
        firsts = view.targets[self.row][:, :, 0]
        last = self.ends_after(x, firsts, slots.token, batch.fused)
        return slots, (self.starts(x), last)

    def weight(self, batch: Batch) -> Tensor:
        """As `Objective.weight`: of answers that are candidates, both ends."""
        view = batch.views[VIEW]
        targets, own = view.targets[self.row], self._slots(view).own
        known = ops.logical_and(
            *(_known(own, targets[:, :, i]) for i in range(2))
        )
        return 2 * ops.sum(ops.where(known, view.weights[self.row], 0.0))

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Cross-entropy of the first and of the last place."""
        view = batch.views[VIEW]
        slots, scores = self.both_ends(batch)
        targets = view.targets[self.row]
        own = batch.statistics.own[self.row]
        training, measured = (
            np.reshape(np.asarray(counts, np.float64), (2, BINS + 1))
            for counts in (own.training, own.measured)
        )
        parts = [
            _one_end(
                slots, scores[i], targets[:, :, i], training[i], measured[i]
            )
            for i in range(2)
        ]
        # Of an answer that is no candidate neither end counts.
        known = ops.minimum(*(there for there, *_ in parts))
        weights = ops.reshape(view.weights[self.row] * known, (-1,))
        positive, log_sum, log_size, rank, *marginal = (
            ops.concatenate([ops.reshape(x, (-1,)) for x in both])
            for both in zip(*(part for _, *part in parts), strict=True)
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
        """Scores of spans, nats: a first place's and a last one's are added.

        Args:
            x: [R, T, D] float32.
            slots: what the examples of each row may answer.

        Returns:
            'first' and 'last' [R, T], f of each; or with a conditional end
            'starts' [R, J, S], the best first places as tokens of their
            context, 'first' [R, J, S], their log-probabilities, and 'last' [R,
            T, S], those of last places after each. Below `NEVER` / 2: there is
            none. With `null` also 'nowhere' [R, J], of that.
        """
        if not self.conditional:
            first, last = self.ends(x)
            predictions = {'first': first, 'last': last}
            if self.null:
                both = (first + last)[:, :, None]
                predictions['nowhere'] = take(both, slots.nowhere)[:, :, 0]
            return predictions
        first = log_softmax(slots.own, self.starts(x))  # [R, J, T]
        # Beyond the last token there is none, and there may be fewer than S.
        predictions = ops.pad(
            ops.where(slots.context, first, NEVER),
            [[0, 0], [0, 0], [0, STARTS]],
            constant_values=NEVER,
        )
        scores, places = ops.top_k(predictions, STARTS)
        places = ops.minimum(places, ops.shape(x)[1] - 1)

        def last(firsts: Tensor) -> Tensor:
            """[R, T] log-probabilities of last places."""
            scores = self.ends_after(x, firsts, slots.token)
            total = _log_sum(slots.own, scores)  # [R, J]
            return scores - take(total[:, :, None], slots.token)[:, :, 0]

        predictions = {
            'starts': places - slots.first[:, :, None],
            'first': scores,
            'last': ops.stack(
                [last(places[:, :, i]) for i in range(STARTS)], axis=-1
            ),
        }
        if self.null:
            both = _at(first, slots.nowhere) + take(
                last(slots.nowhere)[:, :, None], slots.nowhere
            )[:, :, 0]
            predictions['nowhere'] = both
        return predictions

    def _slots(self, view: View) -> Slots:
        """What each example of the view may answer."""
        number = view.candidates[self.row]  # [R, T]
        nowhere = view.targets[self.row][:, :, 2]  # [R, J]
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
    """Examples by their contexts.

    Args:
        context: [R, J, T] bool.
        nowhere: [R, J] int32, the place that stands for it.
        tokens: T where that is a candidate, else None.
    """
    own = context
    if tokens is not None:
        places = ops.arange(tokens, dtype='int32')
        own = ops.logical_or(
            own, ops.equal(places[None, None, :], nowhere[:, :, None])
        )
    return Slots(
        context,
        own,
        nowhere,
        ops.cast(ops.argmax(context, axis=2), 'int32'),
        ops.sum(ops.cast(context, 'int32'), axis=2),
        ops.cast(ops.argmax(own, axis=1), 'int32'),
    )


def _known(own: Tensor, targets: Tensor) -> Tensor:
    """[R, J] bool: whether the target [R, J] is a candidate [R, J, T]."""
    column = ops.arange(own.shape[2], dtype='int32')[None, None, :]
    true = ops.equal(column, targets[:, :, None])
    return ops.any(ops.logical_and(own, true), axis=2)


def _one_end(
    slots: Slots,
    scores: Tensor,
    targets: Tensor,
    training: np.ndarray,
    measured: np.ndarray,
) -> tuple[Tensor, ...]:
    """One end of every answer among its candidates.

    Args:
        slots: what they are.
        scores: [R, T] float32.
        targets: [R, J] int32.
        training, measured: [BINS + 1] counts, see `counts_of`.

    Returns:
        [R, J] each: 1 where the target is a candidate, the fields of
        `infonce.Candidates` without copies and those of `infonce.Marginal`.
    """
    own, tokens = slots.own, scores.shape[1]
    column = ops.arange(tokens, dtype='int32')[None, None, :]
    true = ops.equal(column, targets[:, :, None])  # [R, J, T]
    known = ops.any(ops.logical_and(own, true), axis=2)
    positive = take(scores[:, :, None], targets)[:, :, 0]
    others = ops.logical_and(own, ops.logical_not(true))
    as_high = ops.greater_equal(scores[:, None, :], positive[:, :, None])
    as_high = ops.logical_and(as_high, others)
    size = ops.sum(ops.cast(own, 'float32'), axis=2)
    log_size = ops.log(ops.maximum(size, 1.0))
    known_p, expected_p = (
        _log_density(slots, counts)
        for counts in (np.maximum(measured, _LEAST), training + 1)
    )  # [R, J, T]
    log_p = _at(known_p, targets)
    # Several places may be the likeliest: who guesses one of them is right in
    # so many cases.
    likely = known_p > ops.max(known_p, axis=2, keepdims=True) - 1e-5
    share = 1 / ops.sum(ops.cast(likely, 'float32'), axis=2)
    commonest = ops.any(ops.logical_and(likely, true), axis=2)
    return (
        ops.cast(known, 'float32'),
        positive,
        _log_sum(own, scores),
        log_size,
        ops.sum(ops.cast(as_high, 'float32'), axis=2),
        log_p + log_size,
        _at(expected_p, targets) - log_p,
        ops.cast(commonest, 'float32') * share,
    )


def _log_density(slots: Slots, counts: np.ndarray) -> Tensor:
    """[R, J, T] float32: log p of every place, without its text.

    Args:
        slots: what the candidates are.
        counts: [BINS + 1], above 0.
    """
    tokens = slots.own.shape[2]
    size = ops.maximum(slots.size, 1)[:, :, None]
    column = ops.arange(tokens, dtype='int32')[None, None, :]
    part = twentieth(column - slots.first[:, :, None], size)
    part = ops.clip(part, 0, BINS - 1)
    # Places i of part k: those with k n <= BINS i < (k + 1) n.
    places = -(-(part + 1) * size // BINS) + -part * size // BINS
    log_counts = np.log(counts).astype('float32')
    log_p = ops.take(log_counts, part) - ops.log(
        ops.cast(ops.maximum(places, 1), 'float32')
    )
    log_p = ops.where(slots.context, log_p, float(log_counts[BINS]))
    log_p = ops.where(slots.own, log_p, NEVER)
    return log_p - ops.logsumexp(log_p, axis=2, keepdims=True)


def _log_sum(own: Tensor, scores: Tensor) -> Tensor:
    """Of each example over its candidates: [R, J, T], [R, T] -> [R, J]."""
    scores = ops.where(own, scores[:, None, :], NEVER)
    return ops.logsumexp(scores, axis=2)


def log_softmax(own: Tensor, scores: Tensor) -> Tensor:
    """The same, -> [R, J, T]; `NEVER` for what is no candidate."""
    total = _log_sum(own, scores)[:, :, None]
    return ops.where(own, scores[:, None, :] - total, NEVER)


def _at(x: Tensor, places: Tensor) -> Tensor:
    """[R, J, T] at [R, J] -> [R, J]."""
    return ops.take_along_axis(x, places[:, :, None], axis=2)[:, :, 0]



ROW = Row(
    objective=Spans,
    a='question and context',
    b='where the answer begins, and ends',
    relation='the answer that people marked',
    candidates='places of the context',
    views={VIEW: Reads('text')},
    encoders={'transformer': {}, 'relative': {}, 'modern': {}},
    vector=as_started,
    answers=('spans',),
)
