"""The contract of an objective: what a row of the table computes in a step.

A row is data (`Row`, in TABLE) and an objective (a subclass of `Objective`, in
a file of its own). The trainer draws the row's views, encodes each view once
for all rows that share it, and hands a `Batch` to each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf.encoders.encoder import Encoded, Encoder
from infoword_tf.errors import InputError
from infoword_tf.lazy import Layer, Variable, ops
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.objectives.pools import Replicas
from infoword_tf.objectives.statistics import Statistics
from infoword_tf.settings import Configurable
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials, View


class Copy(NamedTuple):
    """A weight of a row that begins as a copy, after --init is read.

    Attributes:
        weight: the copy.
        source: the weight, of the row itself or of the encoder.
        follows: the momentum encoder with whose momentum the copy moves
            towards the source after each update; None: it does not.
    """

    weight: Variable
    source: Variable
    follows: str | None = None


def _nothing(*args: Any, **kwargs: Any) -> Encoded:
    raise InputError('nothing_to_encode', 'nothing can be encoded here')


class Batch(NamedTuple):
    """The input of a row in a step: a replica's share of the global batch.

    Attributes:
        views: by name, the views of the run.
        encoded: by view and encoder, the output of each pass at the places of
            the row.
        statistics: counts of tokens.
        replicas: to share candidates with.
        key: [2] uint32 of the row in this step, the same on all replicas and
            for all held-out batches: for what the objective itself draws.
        training: False for held-out text, where plain operations run.
        state: by name, what `Objective.update_state` returned in the step
            before.
        limit: of held-out text, M: each pair uses the first M candidates
            that come from other sequences. None: all.
        scorer_batch: of a row with a `Row.scored_by`, the batch of that row:
            its scores are then the same, dropout and all.
        vectors: of a batch that was encoded in microbatches, their
            `Objective.vectors`, concatenated; nothing is `encoded` then.
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
        """Returns [B, P, D] of a view at the row's places, or [B, T, D].

        Args:
            view: one that the row reads.
            encoder: one of `Reads.encoders`.
            pass_index: which of `Reads.passes`.
        """
        return self.encoded[view][encoder][pass_index].states

    def layers(
        self, view: str, encoder: str = 'encoder', pass_index: int = 0
    ) -> Sequence[Tensor]:
        """Returns L + 1 times [B, P, D], embeddings first; see `Reads.layers`.

        L times where these are 'below'.
        """
        return self.encoded[view][encoder][pass_index].layers

    @property
    def fused_key(self) -> Tensor | None:
        """Key of fused operations; None where plain operations run."""
        return self.key if self.training else None


class Objective(Configurable, Layer):
    """The part of a model that belongs to a row: candidates and scores.

    It owns only what it alone uses (a transform, a bias, a temperature);
    g_psi of lookup rows is the encoder's input embedding. What a run may
    choose are its fields, each a `settings.setting`.

    Attributes:
        bounded: whether its loss bounds mutual information. If not, as of
            binary NCE and distances, MI and ceiling are left out of the
            metrics. `build` sets it where a setting decides it.
        contrasts: whether candidates are b of other pairs of the batch, which
            then says something of MI only if pairs are drawn independently.
        ranked: whether its answers are right or wrong; else there is no
            accuracy, and the row is compared by its loss.
        more: names of further measures of held-out text; `build` sets it where
            a setting decides it.
        needs_whole_batch: whether microbatches cannot be encoded one by one.
        steps: updates of the run; 0: of none.
        init_complaint: the complaint about a run that has no --init with the
            row's weights; empty where it needs none.
        auxiliaries: by name, the auxiliary encoders, which own their weights.
        auxiliary_rows: by auxiliary encoder of a workdir, the rows of that
            workdir, likewise.
        dense: layers over the vector of a text, which the model owns.
        no_decay, not_exported: paths of weights that do not decay, and of
            weights that are not exported, see `make_weight`.
    """

    bounded: bool = True
    contrasts: ClassVar[bool] = False
    ranked: ClassVar[bool] = True
    more: tuple[str, ...] = ()
    needs_whole_batch: bool = False
    steps: int = 0
    init_complaint: str = ''

    def __init__(
        self,
        row: str,
        encoder: Encoder,
        specials: Specials,
        *,
        dtype: Any = None,
        **chosen: Any,
    ):
        """Sets the fields of every row; the only constructor of an objective.

        Args:
            row: its name in TABLE.
            encoder: what it scores with.
            specials: of the vocabulary.
            dtype: Keras dtype policy.
            **chosen: settings that differ from their defaults.

        Raises:
            TypeError, ValueError: as `Configurable.set_values`.
        """
        super().__init__(dtype=dtype, name=row)
        self.set_values(chosen)
        self.row, self.encoder = row, Shared(encoder)
        self.specials = specials
        self.scorer: Any = None
        self.auxiliaries: Mapping[str, Any] = {}
        self.auxiliary_rows: Mapping[str, Mapping[str, Any]] = {}
        self.dense: list[Any] = []
        self.no_decay: set[str] = set()
        self.not_exported: set[str] = set()

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses settings that do not fit together; most rows refuse none.

        A run does so before it reads its text, a model before it is built.

        Args:
            row: its name.
            rows: settings of all rows of the sum, by row.

        Raises:
            InputError: the message says what to leave out.
        """

    def set_scorer(self, scorer: 'Objective') -> None:
        """Sets the objective of `Row.scored_by`, without owning weights."""
        self.scorer = Shared(scorer)

    def set_encoders(
        self,
        encoders: Mapping[str, Encoder],
        auxiliary_rows: Mapping[str, Mapping[str, 'Objective']],
    ) -> None:
        """Sets the auxiliary encoders, and the rows of workdirs."""
        self.auxiliaries = {k: Shared(x) for k, x in encoders.items()}
        self.auxiliary_rows = {
            name: {row: Shared(objective) for row, objective in rows.items()}
            for name, rows in auxiliary_rows.items()
        }

    def set_dense(self, dense: Sequence[Layer]) -> None:
        """Sets the layers over the vector of a text."""
        self.dense = [Shared(layer) for layer in dense]

    def set_critics(self, heads: Mapping[str, Layer]) -> None:
        """Sets the heads of critics, by name, which the model owns."""

    def limit_texts(self, longest: tuple[int, int]) -> None:
        """Tells a row that compares texts of --pairs the longest lengths.

        Args:
            longest: tokens of the longest a and b; 0: of any length.
        """

    def build(self) -> None:
        """Makes the row's own weights; most have none."""
        self.built = True

    def make_weight(
        self,
        name: str,
        *shape: int,
        initializer: str = 'zeros',
        trained: bool = True,
        decayed: bool = True,
        exported: bool = True,
    ) -> Variable:
        """Makes a float32 weight of the row; for `build`.

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

    def initial_weights(self) -> dict[str, np.ndarray]:
        """Returns, by path, weights that are not drawn; most rows have none.

        Of another workdir, say.
        """
        return {}

    def copied_weights(self) -> list[Copy]:
        """Names weights that begin as copies; most rows have none."""
        return []

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the `Batch.state` of the first step; most rows have none.

        It is the same on all replicas.
        """
        return {}

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Computes the vectors to compare across the global batch, by name.

        A row whose candidates are encoded has it; read it with `vectors_of`.
        Each text or pair is computed by itself, so that a batch may be encoded
        in microbatches: the row then scores these vectors, and no states.
        Rows without it score microbatches one by one: their candidates depend
        on no state.

        Returns:
            [n, ...] each, n a multiple of the sequences of the views.
        """
        raise NotImplementedError

    @property
    def has_vectors(self) -> bool:
        """Availability of `vectors`, which a setting may decide."""
        return type(self).vectors is not Objective.vectors

    def vectors_of(self, batch: Batch) -> Mapping[str, Tensor]:
        """Returns `vectors`, also of a batch encoded in microbatches."""
        return self.vectors(batch) if batch.vectors is None else batch.vectors

    def weight(self, batch: Batch) -> Tensor:
        """Sums the weights of a replica's pairs: `Outcome.weight`.

        Known before anything is encoded.
        """
        weights = next(
            view.weights[self.row]
            for view in batch.views.values()
            if self.row in view.weights
        )
        return ops.sum(weights)

    def candidates(self, batch: Batch) -> Any:
        """Returns the candidates of all pairs of a global batch.

        Of held-out text it is called once, on its first sequences, where the
        row has `heldout_candidates`, else on every batch.

        Returns:
            Whatever `score` wants; None for the vocabulary.
        """
        return None

    def score(self, batch: Batch, candidates: Any) -> Outcome:
        """Scores the pairs of a replica.

        (Not `call`: a layer's call would cast candidates to its own dtype.)

        Args:
            batch: of the step.
            candidates: what `candidates` returned.

        Returns:
            Sums over this replica's pairs.
        """
        raise NotImplementedError

    def update_state(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the state of the next step, after the loss; no gradient.

        Equal on all replicas: gather over `Batch.replicas` first. Arrays, or
        a `ScatterUpdate` of one: a queue is written in place.
        """
        return dict(batch.state)


class Shared:
    """Wrapper of a layer whose weights are not the objective's own."""

    def __init__(self, layer: Any):
        """Stores the layer, whose attributes the wrapper has."""
        self._layer = layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer."""
        return self._layer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the layer."""
        return getattr(self._layer, name)
