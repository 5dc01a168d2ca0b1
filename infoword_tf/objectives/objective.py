"""The contract: what a row of the table has to do.

A row is data (`Row`, in TABLE) and an objective (a subclass of `Objective`, in
a file of its own). The trainer draws the row's views, encodes each view once
for all rows that share it, and hands a `Batch` over.

Glossary of shapes: B sequences, P places, N = B P pairs, M candidates,
D width, R replicas, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf.encoders.encoder import Encoded, Encoder
from infoword_tf.layers import dropout
from infoword_tf.lazy import Layer, Variable, ops
from infoword_tf.objectives.infonce import Marginal, Outcome
from infoword_tf.settings import Settled
from infoword_tf.views import Specials, View

Tensor = Any


class Replicas:
    """The other replicas of a step; these defaults are for one alone."""

    id: Any = 0
    count: int = 1

    def gather(self, x: Tensor) -> Tensor:
        """[B, ...] of each replica -> [R B, ...], with exact gradients."""
        return x

    def sum(self, x: Tensor) -> Tensor:
        """The sum over replicas, without a gradient."""
        return x


class Statistics(NamedTuple):
    """How often each piece occurs; of special tokens only [UNK].

    Attributes:
        training: [V] counts of the text that is trained on.
        measured: [V] counts of the text that this batch is from: the same
            in training, the held-out text's otherwise.
        answers: by row, the commonest b among its measured pairs, where they
            are known beforehand (held-out text).
        own: by row, counts of its b where these are not pieces of the corpus:
            of classes, say, or of pieces of other texts.
    """

    training: np.ndarray
    measured: np.ndarray
    answers: Mapping[str, int] = {}
    own: Mapping[str, 'Statistics'] = {}

    def of(self, row: str) -> 'Statistics':
        """Those of a row's b: its own, or these."""
        return self.own.get(row, self)

    @property
    def p(self) -> np.ndarray:
        """[V] float64, p(b) of the measured text."""
        return self.measured / max(1, self.measured.sum())

    @property
    def expected(self) -> np.ndarray:
        """[V] float64, p(b) as estimated from the training text.

        One is added to each count: a piece that never occurred there may still
        come.
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
        """What is known of pieces without their text.

        The best guess without a is the most frequent piece. If each piece is a
        candidate with a probability w, it is that of the highest p / w. (Not of
        p / q: a copy of b is no wrong answer, and for many draws w is far from
        proportional to q.)

        Args:
            row: whose they are.
            targets: [N] int32.
            q: [V], what candidates are drawn from; None: from p(b). There no
                score of b alone is better than 0.
            drawn: [K, M] int32, the draws from q that N / K pairs each, one
                after the other, have for candidates; -1 for none. None: all
                pieces are candidates, or those of the batch.
            inclusion: [V], w; None: of M draws, each from q.
        """
        # What is not counted (separators) is never measured, but stays finite.
        known = np.where(self.measured > 0, self.p, 1.0)
        if drawn is None:
            answer = self.answers.get(row, int(np.argmax(self.measured)))
            right = ops.equal(targets, answer)
        else:
            if inclusion is None:
                inclusion = 1 - (1 - q) ** drawn.shape[1]
            order = np.argsort(np.argsort(self.p / inclusion, kind='stable'))
            order = ops.convert_to_tensor(order.astype('int32'))
            others = ops.take(order, ops.maximum(drawn, 0))
            others = ops.max(ops.where(drawn < 0, -1, others), axis=1)
            own = ops.reshape(ops.take(order, targets), (drawn.shape[0], -1))
            # Equal are copies of b alone, which are no wrong answers.
            right = ops.greater_equal(own, others[:, None])
        chance = ops.cast(ops.reshape(right, (-1,)), 'float32')
        if q is None:
            return Marginal(0.0, 0.0, chance)
        columns = np.stack([np.log(known / q), np.log(self.expected / known)])
        found = ops.take(columns.astype('float32'), targets, axis=1)
        return Marginal(found[0], found[1], chance)


class Copy(NamedTuple):
    """A weight of a row that begins as another one, after --init is read.

    Attributes:
        weight: the copy.
        source: what it is a copy of, of the row itself or of the encoder.
        follows: the companion with whose momentum it follows the source after
            each update; None: it goes its own way.
    """

    weight: Variable
    source: Variable
    follows: str | None = None


def _nothing(*args: Any, **kwargs: Any) -> Encoded:
    raise ValueError('nothing can be encoded here')


class Batch(NamedTuple):
    """What a row gets of a step: this replica's rows of the global batch.

    Attributes:
        views: by name, the views of the run.
        encoded: by view and encoder, what each pass gave at the places of
            this row.
        statistics: counts of pieces.
        replicas: to share candidates with.
        key: [2] uint32 of the row in this step, the same on all replicas and
            for all held-out batches: for what the objective itself draws.
        training: False for held-out text, where plain operations run.
        state: what `Objective.remember` kept of the step before, by name.
        limit: of held-out text, M: each pair uses the first M candidates
            that come from other sequences. None: all.
        scorer_batch: of a row with a `Row.scored_by`, what that row gets: its
            scores are then the same, dropout and all.
        vectors: of a batch that was encoded in parts, what
            `Objective.vectors` made of them, one after the other; then
            nothing is `encoded`.
        encode: encodes what the row has made in this step, such as a text in
            which a generator chose words: (inputs, encoder, name) and by
            keyword what `Encoder.call` takes -> `Encoded`. The name is that
            of its dropout.
    """

    views: Mapping[str, View]
    encoded: Mapping[str, Mapping[str, list[Encoded]]]
    statistics: Statistics
    replicas: Replicas
    key: Tensor
    training: bool = True
    state: Mapping[str, Tensor] = {}
    limit: int | None = None
    scorer_batch: Any = None
    vectors: Mapping[str, Tensor] | None = None
    encode: Callable[..., Encoded] = _nothing

    def states(
        self, view: str, encoder: str = 'encoder', pass_index: int = 0
    ) -> Tensor:
        """[B, P, D] of a view at the row's places; [B, T, D] of a text.

        Args:
            view: one that the row reads.
            encoder: one of `Reads.encoders`.
            pass_index: which of `Reads.passes`.
        """
        return self.encoded[view][encoder][pass_index].states

    def layers(
        self, view: str, encoder: str = 'encoder', pass_index: int = 0
    ) -> list[Tensor]:
        """L + 1 times [B, P, D], embeddings first, where `Reads.layers`.

        L times where these are 'below'.
        """
        return self.encoded[view][encoder][pass_index].layers

    @property
    def fused(self) -> Tensor | None:
        """The key of fused pieces; None where plain operations run."""
        return self.key if self.training else None


class Pool(NamedTuple):
    """Candidates of a global batch, each with the sequence it is from.

    Attributes:
        ids: [M] int32, equal where candidates are the same b.
        sequences: [M] int32.
        weights: [M] float32, 0 for padding.
        limit: use the first so many of other sequences, None for all.
        states: [M, D] float32 where they are encoded, else None.
        earlier: of earlier steps, apart from these: many, for `queue_scores`.
        lengths: [M] int32, tokens of each, where those of one length are
            compared, else None.
        kinds: [M] int32, which text of its example each is, where the loss
            contrasts several and the bound those of one kind, else None.

    Several can be `joined`: the batch, a row's own negatives, a queue. What is
    of no sequence (-1) is another's for every pair.
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
        """[N, M] float32: 1 for candidates of other sequences than [N].

        Those of `among`, [N, M] or [1, M] bool; None: all are.
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
    """A row's targets of a view, over all replicas.

    Args:
        view, row: whose targets and weights [B, P].
        replicas: to gather over; integers alone, unless there are states.
        limit: as in `Pool`.
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
        limit,
        states,
    )


def gathered(
    batch: Batch,
    ids: Tensor,
    sequences: Tensor,
    states: Tensor,
    weights: Tensor | None = None,
    kind: int | None = None,
) -> Pool:
    """Vectors of the global batch as candidates, all of them.

    Args:
        batch: of the step.
        ids: [n] int32, of this replica, equal where candidates are the same b.
        sequences: [n] int32, -1 for those of no sequence.
        states: [n, D] float32.
        weights: [n] float32, 0 for those that are none; None: all are.
        kind: which text of its example each is, see `Pool.kinds`.
    """
    gather = batch.replicas.gather
    if weights is None:
        weights = ops.ones_like(ids, 'float32')
    ids = gather(ids)
    return Pool(
        ids,
        gather(sequences),
        gather(weights),
        batch.limit,
        gather(states),
        kinds=None if kind is None else ops.full_like(ids, kind),
    )


def joined(*pools: Pool) -> Pool:
    """All candidates of several pools, in order; the limit is the first's."""

    def whole(name: str) -> Tensor | None:
        parts = [getattr(pool, name) for pool in pools]
        return None if any(x is None for x in parts) else ops.concatenate(parts)

    names = 'ids', 'sequences', 'weights', 'states', 'kinds'
    return Pool(limit=pools[0].limit, **{name: whole(name) for name in names})


def text_ids(
    ids: Tensor, real: Tensor, positions: Tensor | None = None
) -> Tensor:
    """A number for each text, the same for the same tokens: a hash.

    In the graph, for rows whose views do not say what is the same. Views of
    whole texts do (`views.sentences.text_numbers`); those numbers are others.

    Args:
        ids: [B, T] int32.
        real: [B, T] bool, False for padding; or [B, J, T], of J texts that
            share a row.
        positions: [B, T] int32, of each token in its text; None: in its row.

    Returns:
        [B] or [B, J] int32, not below 0.
    """
    places = dropout.random_bits(dropout.new_key(0), (ids.shape[1],))
    if positions is not None:
        places = ops.cast(places, 'int32')  # of which GPUs take some
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
    """Some rows of an array that lasts: of `remember`; the others stay.

    Attributes:
        values: [n, ...].
        places: [n] int32, none twice.
    """

    values: Tensor
    places: Tensor


class Ring(NamedTuple):
    """A queue of the last S vectors, the oldest of which go first.

    Attributes:
        size: S.
        width: D.
        dtype: that its numbers are rounded to; they are kept in float32.
    """

    size: int
    width: int
    dtype: str = 'float32'

    def empty(self) -> dict[str, Tensor]:
        """As `Objective.empty_state`: 'rows' [S, D], 'texts' [S], 'count'."""
        return {
            'rows': ops.zeros((self.size, self.width), 'float32'),
            'texts': ops.full((self.size,), -1, 'int32'),
            'count': ops.zeros((), 'int32'),
        }

    def pool(self, state: Mapping[str, Tensor]) -> Pool:
        """What it holds, as candidates of no sequence."""
        there = ops.arange(self.size, dtype='int32') < state['count']
        return Pool(
            state['texts'],
            ops.full((self.size,), -1, 'int32'),
            ops.cast(there, 'float32'),
            None,
            state['rows'],
        )

    def add(
        self,
        state: Mapping[str, Tensor],
        rows: Tensor,
        texts: Tensor,
        weights: Tensor | None = None,
    ) -> dict[str, Any]:
        """As `Objective.remember`, of the last S of these.

        Args:
            state: before.
            rows: [n, D] float32, of the whole global batch.
            texts: [n] int32, equal where they are the same b.
            weights: [n] float32, 0 for rows that are none; None: all are.
        """
        total = rows.shape[0]
        if weights is not None:  # those that are, in order, come last
            order = ops.argsort(weights)
            rows, texts = (ops.take(x, order, axis=0) for x in (rows, texts))
            there = ops.take(weights, order) > 0
            total = ops.sum(ops.cast(there, 'int32'))
        n = min(rows.shape[0], self.size)
        rows = ops.cast(ops.cast(rows[-n:], self.dtype), 'float32')
        texts = texts[-n:]
        first = state['count'] + total - n
        places = (first + ops.arange(n, dtype='int32')) % self.size
        if weights is not None:  # of the others what is there stays
            there = there[-n:]
            old = ops.take(state['rows'], places, axis=0)
            rows = ops.where(there[:, None], rows, old)
            texts = ops.where(there, texts, ops.take(state['texts'], places))
        return {
            'rows': ScatterUpdate(rows, places),
            'texts': ScatterUpdate(texts, places),
            'count': state['count'] + total,
        }


class Objective(Settled, Layer):
    """What a row adds to an encoder: its candidates and its scores.

    It owns only what it alone uses (a transform, a bias, a temperature);
    g_psi of lookup rows is the encoder's input embedding. What a run may
    choose are its fields, each a `settings.setting`.

    Attributes:
        bounded: whether its loss bounds mutual information. That of binary NCE
            does not, so MI and ceiling are left out of the metrics. `build`
            sets it where a setting decides it.
        ranked: whether its answers are right or wrong; else there is no
            accuracy, and the row is compared by its loss.
        more: names of what its outcomes of held-out text measure besides;
            `build` sets it where a setting decides it.
        companions: by name, the encoders that it brings along, whose weights
            stay there.
        companion_rows: by companion of a workdir, that one's rows, likewise.
        begun: whether a run has to start from a workdir that has its weights:
            words for the complaint where it has none, else empty.
        whole: whether it can only be scored where its batch is encoded as a
            whole, not in parts.
        dense: layers over the vector of a text, which the model owns.
        no_decay, not_exported: paths of its weights that do not decay, and of
            those that are not exported, see `weight_of`.
    """

    bounded: bool = True
    ranked: ClassVar[bool] = True
    more: tuple[str, ...] = ()
    whole: bool = False
    begun: str = ''

    def __init__(
        self,
        row: str,
        encoder: Encoder,
        specials: Specials,
        *,
        dtype: Any = None,
        **chosen: Any,
    ):
        """Sets what every row has; the only constructor of an objective.

        Args:
            row: its name in TABLE.
            encoder: what it scores with.
            specials: of the vocabulary.
            dtype: Keras dtype policy.
            **chosen: of its settings, those that are not as by default.

        Raises:
            TypeError, ValueError: as `Settled.settle`.
        """
        super().__init__(dtype=dtype, name=row)
        self.settle(chosen)
        self.row, self.encoder = row, _Shared(encoder)
        self.specials = specials
        self.scorer: Any = None
        self.companions: Mapping[str, Any] = {}
        self.companion_rows: Mapping[str, Mapping[str, Any]] = {}
        self.dense: list[Any] = []
        self.no_decay: set[str] = set()
        self.not_exported: set[str] = set()

    def score_with(self, scorer: 'Objective') -> None:
        """Gives it the objective of `Row.scored_by`; weights stay there."""
        self.scorer = _Shared(scorer)

    def meet(
        self,
        encoders: Mapping[str, Encoder],
        companion_rows: Mapping[str, Mapping[str, 'Objective']],
    ) -> None:
        """Gives it its companions, and the rows of their workdirs."""
        self.companions = {k: _Shared(x) for k, x in encoders.items()}
        self.companion_rows = {
            name: {row: _Shared(objective) for row, objective in rows.items()}
            for name, rows in companion_rows.items()
        }

    def follow(self, dense: Sequence[Layer]) -> None:
        """Gives it the layers over the vector of a text."""
        self.dense = [_Shared(layer) for layer in dense]

    def build(self) -> None:
        """Makes the row's own weights; most have none."""
        self.built = True

    def weight_of(
        self,
        name: str,
        *shape: int,
        initializer: str = 'zeros',
        trained: bool = True,
        decayed: bool = True,
        exported: bool = True,
    ) -> Variable:
        """A weight of the row, float32; for `build`.

        Matrices are drawn with all others, after that.

        Args:
            name: last part of its path, by which the optimizer knows whether
                it decays: a kernel or embeddings.
            *shape: of it.
            initializer: of what is no matrix.
            trained: whether gradients change it.
            decayed: False: it does not decay, whatever its name.
            exported: whether workdirs and exports hold it; checkpoints do.
        """
        weight = self.add_weight(
            shape=shape,
            initializer=initializer,
            name=name,
            trainable=trained,
            autocast=False,
        )
        if not decayed:
            self.no_decay.add(weight.path)
        if not exported:
            self.not_exported.add(weight.path)
        return weight

    def first_weights(self) -> dict[str, np.ndarray]:
        """By path, weights that begin otherwise than drawn; most rows: none.

        Of another workdir, say.
        """
        return {}

    def copied_weights(self) -> list[Copy]:
        """Names weights that begin as copies of others; most rows: none."""
        return []

    def empty_state(self) -> dict[str, Tensor]:
        """What the first step finds in `Batch.state`: the same on all
        replicas; nothing for most rows.
        """
        return {}

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """What this row compares across the global batch, by name.

        A row whose candidates are encoded has it; ask for it with `compared`.
        It is of each text or pair by itself: with it alone, and no state, the
        row can score a batch that was encoded in parts. Other rows score the
        parts one by one: their candidates depend on no state.

        Returns:
            [n, ...] each, n a multiple of the rows of the views.
        """
        raise NotImplementedError

    @property
    def compares(self) -> bool:
        """Whether it has `vectors`; of some rows a setting decides."""
        return type(self).vectors is not Objective.vectors

    def compared(self, batch: Batch) -> Mapping[str, Tensor]:
        """The `vectors` of a batch, also where it was encoded in parts."""
        return self.vectors(batch) if batch.vectors is None else batch.vectors

    def weight(self, batch: Batch) -> Tensor:
        """The sum of the weights of this replica's pairs: `Outcome.weight`.

        Known before anything is encoded.
        """
        weights = next(
            view.weights[self.row]
            for view in batch.views.values()
            if self.row in view.weights
        )
        return ops.sum(weights)

    def candidates(self, batch: Batch) -> Any:
        """What all pairs of a global batch are compared with.

        Of held-out text it is called once, on its first sequences, where the
        row has `heldout_candidates`, else on every batch.

        Returns:
            Whatever `score` wants; None for the vocabulary.
        """
        return None

    def score(self, batch: Batch, candidates: Any) -> Outcome:
        """Scores this replica's pairs.

        (Not `call`: a layer's call would cast candidates to its own dtype.)

        Args:
            batch: of the step.
            candidates: what `candidates` returned.

        Returns:
            Sums over this replica's pairs.
        """
        raise NotImplementedError

    def remember(self, batch: Batch) -> dict[str, Tensor]:
        """The state of the next step, after the loss; no gradient enters.

        Equal on all replicas: gather over `Batch.replicas` first. Arrays, or
        a `ScatterUpdate` of one: a queue is written in place.
        """
        return dict(batch.state)


class _Shared:
    """Holds a layer without making its weights the objective's own."""

    def __init__(self, layer: Any):
        self._layer = layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._layer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)
