"""The contract: what a row of the table is, and what it has to do.

A row is data (`Row`, in TABLE) and an objective (a subclass of `Objective`, in
a file of its own). The trainer draws the row's views, encodes each view once
for all rows that share it, and hands the states over.

Glossary of shapes: B sequences, P places, N = B P pairs, M candidates,
D width, R replicas.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from infoword_tf.objectives.infonce import Outcome
from infoword_tf.views import Specials, View

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table (Kong et al. 2019, Table 1).

    Attributes:
        objective: the class.
        a, b, relation: the two views and p(a, b), in words.
        candidates: B~, in words.
        views: by name in VIEWS, what it wants there: 'words', 'queries',
            'start', 'next' or 'text'.
        encoders: names in ENCODERS that it allows, the default first.
        arguments: of the encoder, which this row fixes.
        reading: for a row that reads its source in a way of its own, a
            function of T and its settings that returns arguments of the
            source: `length`, the tokens read, and others it has. None: T - 2
            tokens.
        masking: the one name in MASKINGS that it can use, or None for any.
        settings: what a run may choose, with defaults: arguments of the
            class, or of the draw.
        drawn: which of the settings go to the draw.
        heldout_candidates: M of held-out text, None for the vocabulary, or
            where the views hold each pair's own candidates.
        pooling: for a row that makes a vector of a whole text, how it does
            (`Loaded.embed`); None for others. Later rows of TABLE win.
        layout: in text.layout.LAYOUTS, how a text is encoded alone.
        similarity: how such vectors are compared, 'cosine' or 'dot'.
        sources: by view, the name in data.batches.SOURCES that it is made
            from, for all rows that share the view; views that are not named
            keep their own.
        bounded: its loss bounds mutual information. Binary NCE does not: then
            MI and ceiling are left out of the metrics.
    """

    objective: type['Objective']
    a: str
    b: str
    relation: str
    candidates: str
    views: dict[str, str]
    encoders: tuple[str, ...] = ('transformer',)
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    reading: Callable[[int, Mapping[str, Any]], dict[str, Any]] | None = None
    masking: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    heldout_candidates: int | None = None
    pooling: str | None = None
    similarity: str = 'cosine'
    layout: str = 'bert'
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    bounded: bool = True


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


class Pool(NamedTuple):
    """Candidates of a global batch, each with the sequence it is from.

    Attributes:
        ids: [M] int32, equal where candidates are the same b.
        sequences: [M] int32.
        weights: [M] float32, 0 for padding.
        limit: use the first so many of other sequences, None for all.
        states: [M, D] float32 where they are encoded, else None.
    """

    ids: Tensor
    sequences: Tensor
    weights: Tensor
    limit: int | None
    states: Tensor | None = None

    def others(self, sequences: Tensor) -> Tensor:
        """[N, M] float32: 1 for candidates of other sequences than [N]."""
        other = ops.not_equal(self.sequences[None, :], sequences[:, None])
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
    if states is not None:
        states = ops.cast(states, 'float32')
        states = replicas.gather(ops.reshape(states, (-1, states.shape[-1])))
    return Pool(
        replicas.gather(ops.reshape(targets, (-1,))),
        replicas.gather(ops.repeat(view.sequences, targets.shape[1])),
        replicas.gather(ops.reshape(view.weights[row], (-1,))),
        limit,
        states,
    )


class Objective(keras.layers.Layer):
    """What a row adds to an encoder: its candidates and its scores.

    It owns only what it alone uses (a transform, a bias, a temperature);
    g_psi of lookup rows is the encoder's input embedding.
    """

    def __init__(
        self, row: str, encoder: Any, specials: Specials, dtype: Any = None
    ):
        """Sets what every row has; settings of a row come by keyword.

        Args:
            row: its name in TABLE.
            encoder: what it scores with.
            specials: of the vocabulary.
            dtype: Keras dtype policy.
        """
        super().__init__(dtype=dtype, name=row)
        self.row, self.encoder = row, _Unowned(encoder)
        self.specials = specials

    def build(self) -> None:
        """Makes the row's own weights; most have none."""
        self.built = True

    def kl(self, frequencies: np.ndarray) -> float:
        """KL(p(b) || q) in nats; 0 where candidates come from the batch.

        Args:
            frequencies: [V] float64, p(b) of the text that is measured.
        """
        return 0.0

    def candidates(
        self,
        views: dict[str, View],
        states: dict[str, Tensor],
        replicas: Replicas,
        limit: int | None = None,
    ) -> Any:
        """What all pairs of a global batch are compared with.

        Args:
            views: this replica's rows of the views that the row reads.
            states: by view, [B, P, D], this row's states.
            replicas: to gather over.
            limit: of held-out text, M: each pair uses the first M that come
                from other sequences.

        Returns:
            Whatever `score` wants; None for the vocabulary.
        """
        return None

    def score(
        self,
        views: dict[str, View],
        states: dict[str, Tensor],
        candidates: Any,
        kl: float,
        key: Tensor | None = None,
    ) -> Outcome:
        """Scores this replica's pairs.

        (Not `call`: a layer's call would cast candidates to its own dtype.)

        Args:
            views, states: as in `candidates`.
            candidates: what `candidates` returned.
            kl: what `kl` returned.
            key: [2] uint32 in training, None otherwise.

        Returns:
            Sums over this replica's pairs.
        """
        raise NotImplementedError


class _Unowned:
    """Holds the encoder without making its weights the objective's own."""

    def __init__(self, layer: Any):
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)
