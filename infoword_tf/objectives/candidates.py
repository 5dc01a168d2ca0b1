"""Candidates of a pair, and the zero of mutual information.

Candidates are gathered over the replicas, or kept from earlier steps (`Pool`);
counts of b say what MI a critic has that does not read a (`Statistics`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf.layers import dropout
from infoword_tf.lazy import ops
from infoword_tf.objectives.infonce import Marginal
from infoword_tf.tensors import Tensor
from infoword_tf.views import View

if TYPE_CHECKING:
    from infoword_tf.objectives.objective import Batch


class Replicas:
    """The replicas of a step; by default one."""

    id: Any = 0
    count: int = 1

    def gather(self, x: Tensor) -> Tensor:
        """Gathers [B, ...] of all replicas, [R B, ...], with gradients."""
        return x

    def sum(self, x: Tensor) -> Tensor:
        """Sums x over the replicas, without a gradient."""
        return x


class Pool(NamedTuple):
    """Candidates of a global batch, by sequence.

    Attributes:
        ids: [M] int32, equal where candidates are the same b.
        sequences: [M] int32; -1: of no sequence, a negative for every pair.
        weights: [M] float32, 0 for padding.
        limit: use the first so many of other sequences, None for all.
        states: [M, D] float32 where they are encoded, else None.
        earlier: candidates of earlier steps, kept apart because they are many
            (`queue_scores`).
        lengths: [M] int32, tokens of each, where candidates of one length are
            compared, else None.
        kinds: [M] int32, which text of its example each is, where the loss
            contrasts several kinds and the bound one, else None.
    """

    ids: Tensor
    sequences: Tensor
    weights: Tensor
    limit: int | None
    states: Tensor | None = None
    earlier: 'Pool | None' = None
    lengths: Tensor | None = None
    kinds: Tensor | None = None

    def others(self, sequences: Tensor, among: Tensor | None = None) -> Tensor:
        """Marks, for each pair, the candidates of other sequences.

        Args:
            sequences: [N] int32, of each pair.
            among: [N, M] or [1, M] bool, which candidates may be marked;
                None: all.

        Returns:
            [N, M] float32: 1, or 0.
        """
        other = ops.not_equal(self.sequences[None, :], sequences[:, None])
        if among is not None:
            other = ops.logical_and(other, among)
        counts = ops.where(other, self.weights[None, :], 0.0)
        if self.limit is not None:
            limit = ops.cast(self.limit, 'float32')
            first = ops.less_equal(ops.cumsum(counts, axis=1), limit)
            counts = ops.where(first, counts, 0.0)
        return counts


def gather_pool(
    view: View,
    row: str,
    replicas: Replicas,
    limit: int | None,
    states: Tensor | None = None,
) -> Pool:
    """Gathers a row's targets of a view over all replicas.

    Args:
        view, row: view, and name of the row whose targets and weights [B, P]
            there are gathered.
        replicas: all that gather; integers alone, unless there are states.
        limit: field of `Pool`.
        states: [B, P, D] of the candidates, or None.
    """
    targets = view.targets[row]
    sequences = ops.reshape(view.sequences, (-1,))
    if len(view.sequences.shape) == 1:
        sequences = ops.repeat(sequences, targets.shape[1])
    if states is not None:
        states = ops.cast(states, 'float32')
        states = replicas.gather(ops.reshape(states, (-1, states.shape[-1])))
    return Pool(
        replicas.gather(ops.reshape(targets, (-1,))),
        replicas.gather(sequences),
        replicas.gather(ops.reshape(view.weights[row], (-1,))),
        limit=limit,
        states=states,
    )


def gather_vectors(
    batch: 'Batch',
    ids: Tensor,
    sequences: Tensor,
    states: Tensor,
    weights: Tensor | None = None,
    kind: int | None = None,
) -> Pool:
    """Gathers vectors of all replicas as candidates.

    Args:
        batch: input of the step.
        ids: [n] int32, of this replica, equal where candidates are the same b.
        sequences: [n] int32, -1 for vectors of no sequence.
        states: [n, D] float32.
        weights: [n] float32, 0 for padding; None: there is no padding.
        kind: index of each text in the example, see `Pool.kinds`.
    """
    gather = batch.replicas.gather
    if weights is None:
        weights = ops.ones_like(ids, 'float32')
    ids = gather(ids)
    return Pool(
        ids,
        gather(sequences),
        gather(weights),
        limit=batch.limit,
        states=gather(states),
        kinds=None if kind is None else ops.full_like(ids, kind),
    )


def join_pools(*pools: Pool) -> Pool:
    """Concatenates the candidates of pools; the limit is that of the first."""

    def whole(name: str) -> Tensor | None:
        fields = [getattr(pool, name) for pool in pools]
        missing = any(x is None for x in fields)
        return None if missing else ops.concatenate(fields)

    names = 'ids', 'sequences', 'weights', 'states', 'kinds'
    return Pool(limit=pools[0].limit, **{name: whole(name) for name in names})


def text_ids(
    ids: Tensor, real: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Hashes texts, so that the same tokens get the same number.

    In the graph, for rows whose views do not number their texts. Numbers of
    `views.sentences.text_numbers` are others.

    Args:
        ids: [B, T] int32.
        real: [B, T] bool, False for padding; or [B, J, T], of J texts that
            share a sequence.
        positions: [B, T] int32, of each token in its text; None: in its
            sequence.

    Returns:
        [B] or [B, J] int32, not below 0.
    """
    places = dropout.random_bits(dropout.new_key(0), (ids.shape[1],))
    if positions is not None:
        places = ops.cast(places, 'int32')  # GPUs take no unsigned integers
        places = ops.cast(ops.take(places, positions, axis=0), 'uint32')
    else:
        places = places[None]
    mixed = dropout.mixed(ops.cast(ids, 'uint32'), places)
    mixed = ops.right_shift(mixed, np.uint32(1))
    mixed = ops.cast(mixed, 'int32')
    if len(real.shape) == 3:
        mixed = mixed[:, None]
    mixed = ops.where(real, mixed, 0)
    return ops.bitwise_and(ops.sum(mixed, axis=-1), np.int32(0x7FFFFFFF))


class ScatterUpdate(NamedTuple):
    """New entries of an array of `Objective.update_state`; the others stay.

    Attributes:
        values: [n, ...].
        places: [n] int32, each at most once.
    """

    values: Tensor
    places: Tensor


class Ring(NamedTuple):
    """A queue of the last `size` vectors.

    Attributes:
        size: number of vectors that it holds.
        width: D.
        dtype: that numbers are rounded to; they are stored in float32.
    """

    size: int
    width: int
    dtype: str = 'float32'

    def empty(self) -> dict[str, Tensor]:
        """Creates an empty queue: 'rows' [size, D], 'texts' [size], 'count'."""
        return {
            'rows': ops.zeros((self.size, self.width), 'float32'),
            'texts': ops.full((self.size,), -1, 'int32'),
            'count': ops.zeros((), 'int32'),
        }

    def pool(self, state: Mapping[str, Tensor]) -> Pool:
        """Returns the queue's vectors as candidates of no sequence."""
        filled = ops.arange(self.size, dtype='int32') < state['count']
        return Pool(
            state['texts'],
            ops.full((self.size,), -1, 'int32'),
            ops.cast(filled, 'float32'),
            limit=None,
            states=state['rows'],
        )

    def add(
        self,
        state: Mapping[str, Tensor],
        vectors: Tensor,
        texts: Tensor,
        weights: Tensor | None = None,
    ) -> dict[str, Any]:
        """Replaces the oldest vectors; see `Objective.update_state`.

        Args:
            state: before.
            vectors: [n, D] float32, of the whole global batch; of more than
                `size` the last ones are taken.
            texts: [n] int32, equal where they are the same b.
            weights: [n] float32, 0 for padding; None: there is no padding.
        """
        total = vectors.shape[0]
        if weights is not None:  # a stable sort puts padding first
            order = ops.argsort(weights)
            vectors, texts = (
                ops.take(x, order, axis=0) for x in (vectors, texts)
            )
            real = ops.take(weights, order) > 0
            total = ops.sum(ops.cast(real, 'int32'))
        n = min(vectors.shape[0], self.size)
        vectors = ops.cast(ops.cast(vectors[-n:], self.dtype), 'float32')
        texts = texts[-n:]
        first = state['count'] + total - n
        places = (first + ops.arange(n, dtype='int32')) % self.size
        if weights is not None:  # padding leaves the old entries as they are
            real = real[-n:]
            old = ops.take(state['rows'], places, axis=0)
            vectors = ops.where(real[:, None], vectors, old)
            texts = ops.where(real, texts, ops.take(state['texts'], places))
        return {
            'rows': ScatterUpdate(vectors, places),
            'texts': ScatterUpdate(texts, places),
            'count': state['count'] + total,
        }


class Statistics(NamedTuple):
    """Counts of each token; of special tokens only of [UNK].

    Attributes:
        training: [V] counts of the training text.
        measured: [V] counts of the text that the batch is from: the training
            text, or the held-out text.
        answers: commonest b among the measured pairs, by row, where they are
            known beforehand (held-out text).
        by_row: counts of b that are no tokens of the corpus, by row: of
            classes, say, or of tokens of other texts.
    """

    training: np.ndarray
    measured: np.ndarray
    answers: Mapping[str, int] = {}
    by_row: Mapping[str, 'Statistics'] = {}

    def of(self, row: str) -> 'Statistics':
        """Returns the counts of a row's b: `by_row`, or else of tokens."""
        return self.by_row.get(row, self)

    @property
    def p(self) -> np.ndarray:
        """[V] float64, p(b) of the measured text."""
        return self.measured / max(1, self.measured.sum())

    @property
    def expected(self) -> np.ndarray:
        """[V] float64, p(b) as estimated from the training text.

        One is added to each count: a token that never occurred there may
        still come.
        """
        return (self.training + 1) / (self.training.sum() + len(self.training))

    def marginal(
        self,
        row: str,
        targets: Tensor,
        q: np.ndarray | None = None,
        drawn: Tensor | None = None,
        inclusion: np.ndarray | None = None,
    ) -> Marginal:
        """Computes the MI that targets have for a critic without a text.

        That is log p(b) / q(b), the zero of MI; the MI of the frequencies of
        the training text; and whether the best guess without a is right. This
        guess is the most frequent token. If each token is a candidate with a
        probability w, it is the token of the highest p / w.
        (Not of p / q: a copy of b is no wrong answer, and for many draws w is
        far from proportional to q.)

        Args:
            row: whose targets they are.
            targets: [N] int32.
            q: [V], what candidates are drawn from; None: from p(b), where
                the zero is 0: no score of b alone has an MI above it.
            drawn: [n, M] int32, the draws from q that N / n pairs each, one
                after the other, have for candidates; -1 for no draw. None:
                all tokens are candidates, or those of the batch.
            inclusion: [V], w; None: of M draws, each from q.

        Returns:
            [N] float32 each, or scalars.
        """
        # What is not counted (separators) is never measured, but stays finite.
        known = np.where(self.measured > 0, self.p, 1.0)
        if drawn is None:
            answer = self.answers.get(row, int(np.argmax(self.measured)))
            right = ops.equal(targets, answer)
        else:
            if inclusion is None:
                assert q is not None, 'candidates are drawn from q'
                inclusion = 1 - (1 - q) ** drawn.shape[1]
            order = np.argsort(np.argsort(self.p / inclusion, kind='stable'))
            order = ops.convert_to_tensor(order.astype('int32'))
            others = ops.take(order, ops.maximum(drawn, 0))
            others = ops.max(ops.where(drawn < 0, -1, others), axis=1)
            of_b = ops.reshape(ops.take(order, targets), (drawn.shape[0], -1))
            # Equal are copies of b alone, which are no wrong answers.
            right = ops.greater_equal(of_b, others[:, None])
        chance = ops.cast(ops.reshape(right, (-1,)), 'float32')
        if q is None:
            return Marginal(0.0, 0.0, chance)
        logs = np.stack([np.log(known / q), np.log(self.expected / known)])
        logs = ops.take(logs.astype('float32'), targets, axis=1)
        return Marginal(logs[0], logs[1], chance)
