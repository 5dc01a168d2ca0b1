"""The contract of an objective: what a row of the table computes in a step.

A row is data (`Row`, in TABLE) and an objective (a subclass of `Objective`, in
a file of its own). The trainer draws the row's views, encodes each view once
for all rows that share it, and hands a `Batch` to each.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from infoword_tf.config import Layout
from infoword_tf.encoders import ENCODERS
from infoword_tf.encoders.encoder import Encoded, Encoder
from infoword_tf.errors import InputError
from infoword_tf.lazy import Layer, Variable, ops
from infoword_tf.objectives.candidates import Replicas, Statistics
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.settings import Configurable, Setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import VIEWS, Reads, Specials, View

T = TypeVar('T')
Settings = Mapping[str, Any]
# What a setting may decide: a value, or a function of the row's settings.
Decided: TypeAlias = T | Callable[[Settings], T]


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
        views: views of the run, by name.
        encoded: output of each pass at the places of the row, by view and
            encoder.
        statistics: counts of tokens.
        replicas: all that share candidates.
        key: [2] uint32 of the row in this step, the same on all replicas and
            for all held-out batches: for what the objective itself draws.
        training: False for held-out text, where plain operations run.
        state: result of `Objective.update_state` in the step before, by name.
        limit: M of held-out text: each pair uses the first M candidates that
            come from other sequences. None: all.
        scorer_batch: batch of the row `Row.scored_by`, if any, whose scores
            are then the same, dropout and all.
        vectors: `Objective.vectors`, computed once; of a batch that was encoded
            in microbatches those of all, and nothing is `encoded` then. None:
            not computed yet.
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
            pass_index: number of a pass, below `Reads.passes`.
        """
        return self.encoded[view][encoder][pass_index].states

    def layers(
        self, view: str, encoder: str = 'encoder', pass_index: int = 0
    ) -> Sequence[Tensor]:
        """Returns L + 1 times [B, P, D], embeddings first; see `Reads.layers`.

        L times where these are 'below', and none where they are not read.
        """
        return self.encoded[view][encoder][pass_index].layers or []

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
        steps: updates of the run; 0: of none.
        auxiliaries: auxiliary encoders, by name, which own their weights.
        auxiliary_rows: rows of a workdir, by the auxiliary encoder of that
            workdir, likewise.
        dense: layers over the vector of a text, which the model owns.
        no_decay, not_exported: paths of weights that do not decay, and of
            weights that are not exported, see `make_weight`.
    """

    bounded: bool = True
    contrasts: ClassVar[bool] = False
    ranked: ClassVar[bool] = True
    more: tuple[str, ...] = ()
    steps: int = 0

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
            encoder: encoder whose states it scores.
            specials: properties of the vocabulary.
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

    @property
    def needs_whole_batch(self) -> bool:
        """True if microbatches cannot be encoded one by one."""
        return False

    @property
    def init_complaint(self) -> str:
        """Complaint about a run that has no --init with the row's weights.

        Empty where it needs none.
        """
        return ''

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
            *shape: sizes of it.
            initializer: name of the first values of what is no matrix.
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
        """Returns `vectors` of a batch: computed before, or now."""
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
            batch: input of the step.
            candidates: result of `candidates`.

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


# What a model can be asked because of a row; and, for complaints, what the
# rows of a model lack that cannot be asked. Every model gives vectors of texts.
ANSWERS = {
    'vectors': 'have learned no weights',  # of states, for their mean
    'blanks': 'fill no blanks',
    'blanks_by_counts': 'fill no blanks',  # with those of the training text
    'next': 'score no next token',
    'classes': 'know no labels',
    'numbers': 'know no scores',
    'spans': 'answer nothing',
    'tags': 'label no words',
}


def decided(value: Decided[T], settings: Settings) -> T:
    """Evaluates a `Decided` value for settings of a row."""
    return value(settings) if callable(value) else value


class Vector(NamedTuple):
    """Pooling of a text to a vector, and comparison of two vectors.

    Attributes:
        pooling: name in layers.pooling.POOLINGS.
        similarity: 'cosine' or 'dot'.
        layout: name in text.layout.LAYOUTS of what stands around a text that
            is encoded alone. All rows of a sum have the same.
        priority: rank among the rows of a sum, 0 to 4: the highest decides.
        dense: activations of layers over the pooled vector, as wide as it is,
            where --init has none.
        keeps: whether dense layers, normalisation and prompts of --init stay.
        critic: name in critics.CRITICS of what compares two texts by default.
        head: settings of the row that decide the critic's head; None: it has
            none.
    """

    pooling: str = 'mean'
    similarity: str = 'cosine'
    layout: str | Layout = 'bert'
    priority: int = 0
    dense: tuple[str, ...] = ()
    keeps: bool = False
    critic: str = 'cosine'
    head: Mapping[str, Any] | None = None


def vector_of_init(settings: Settings) -> None:
    """Returns None: texts are pooled as in the workdir of --init."""
    del settings


class Auxiliary(NamedTuple):
    """An auxiliary encoder of a row: momentum, frozen or further trained.

    It has the trained encoder's sizes, or those of its workdir, and is never
    exported.

    Attributes:
        workdir: source of the weights that it begins with; it has that
            workdir's sizes and rows (`Objective.auxiliary_rows`). None: it is
            `copied`, or drawn anew.
        answers: one of these (`Row.answers`) that workdir must give.
        copied: whether it begins as a copy of the trained encoder, after that
            has what --init gives; momentum encoders do.
        arguments: differences from the trained encoder, or from that of its
            workdir.
        frozen: whether no gradient changes it.
        momentum: share that stays in each update of a momentum encoder: a
            moving average of the trained one, which starts as its copy and
            moves by 1 - momentum. None: it is no momentum encoder.
        dropout: whether it drops, as the trained one does.
        saved: whether checkpoints hold it; one that is not is made anew, from
            its workdir or the run's seed.
    """

    workdir: str | None = None
    answers: tuple[str, ...] = ()
    copied: bool = False
    arguments: Mapping[str, Any] = {}
    frozen: bool = True
    momentum: float | None = None
    dropout: bool = False
    saved: bool = True


class Scoring(NamedTuple):
    """The scores of a row in a step, for `Row.products`.

    Attributes:
        row: its name.
        settings: those of the row.
        views: views of the global batch, by name.
        batch_size: B.
        width: D of the encoder.
        vocab_size: V.
    """

    row: str
    settings: Settings
    views: Mapping[str, View]
    batch_size: int
    width: int
    vocab_size: int

    def all_pairs(self, candidates: int | None = None) -> int:
        """Counts the products of all targets with M candidates, V if None.

        And those of a dense layer before the scores (`transform`).
        """
        (view,) = (v for v in self.views.values() if self.row in v.targets)
        columns = self.vocab_size if candidates is None else candidates
        if self.settings.get('transform'):
            columns += self.width
        return view.targets[self.row].size * self.width * columns


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table (Kong et al. 2019, Table 1).

    What a setting may decide is a value here, or a function of the row's
    settings that gives one: see `decided`.

    Attributes:
        objective: the class; its fields are the row's settings.
        a, b, relation: the two views and p(a, b), in words.
        candidates: B~, in words.
        views: wishes, by name in VIEWS; None: that view is not read.
        needs: names in encoders.ABILITIES, asked of an encoder, which is from
            scratch the first of ENCODERS that all rows of a sum allow.
        heldout_candidates: M, the candidates that all held-out pairs share;
            None for the vocabulary, or where each batch has its own.
        vector: way from a text to a vector; None as its answer: that of the
            encoder that the run started from.
        auxiliaries: auxiliary encoders of the row, by name.
        scored_by: the row whose scores this one reads, see
            `Batch.scorer_batch`. It is built even where its weight is 0.
        answers: names in ANSWERS of what a trained model can be asked because
            of it.
        init_advice: advice before a run without --init, to stand after the
            row's name; '': none.
        begins_as: the row whose weights it takes where --init has none of its
            own, or that of another row that begins so.
        public_head: name in weights.heads.HEADS of its head in public models;
            None: they have none.
        taught_by: the row that learns a teacher's outputs by its scores.
        of_tokens: whether it scores each token, or place, of a text.
        products: counts the multiplications of a step's scores, forward, for
            benchmarks/step.py; None: no benchmark makes its text.
    """

    objective: type[Objective]
    a: str
    b: str
    relation: str
    candidates: str
    views: Mapping[str, Decided[Reads | None]]
    needs: Decided[tuple[str, ...]] = ('alone', 'both_sides')
    heldout_candidates: Decided[int | None] = None
    vector: Decided[Vector | None] = Vector()
    auxiliaries: Decided[Mapping[str, Auxiliary]] = dataclasses.field(
        default_factory=dict
    )
    scored_by: str | None = None
    answers: tuple[str, ...] = ()
    init_advice: Decided[str] = ''
    begins_as: str | None = None
    public_head: str | None = None
    taught_by: str | None = None
    of_tokens: bool = False
    products: Callable[[Scoring], int] | None = None

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings that a run may choose: of the row and of the views."""
        settings = dict(self.objective.settings)
        for view in self.views:
            settings |= VIEWS[VIEWS.root(view)].settings
        return settings

    @property
    def view_of(self) -> dict[str, str]:
        """View of each setting that is a view's: the one that draws."""
        views = map(VIEWS.root, self.views)
        return {name: view for view in views for name in VIEWS[view].settings}

    def encoders(self, settings: Settings) -> dict[str, dict[str, Any]]:
        """Returns the encoders that the row allows, with the fixed arguments.

        A setting about an argument allows the encoders that have that argument;
        its default allows the others too.

        Args:
            settings: all those of the row.
        """
        allowed, needs = {}, decided(self.needs, settings)
        for encoder, kind in ENCODERS.items():
            if not all(need in kind.abilities for need in needs):
                continue
            lacking = False
            arguments = {
                k: x for need in needs for k, x in kind.abilities[need].items()
            }
            for name, known in self.settings.items():
                fixed = known.encoder.get(settings[name], {})
                for argument, value in fixed.items():
                    if argument in kind.settings:
                        arguments[argument] = value
                    else:
                        lacking |= settings[name] != known.default
            if not lacking:
                allowed[encoder] = arguments
        return allowed

    def reads(
        self, settings: Settings, contextual: bool = True
    ) -> dict[str, Reads]:
        """Returns the `Reads` of each view that the row reads.

        Args:
            settings: those of the row.
            contextual: whether the encoder is. One that is not has no pooled
                state such as [CLS]: a row that wants it gets all states.
        """
        wishes = {}
        for view, choice in self.views.items():
            reads: Reads | None = decided(choice, settings)
            if reads is None:
                continue
            if reads.where == 'example' and not contextual:
                reads = reads._replace(everywhere=True)
            wishes[view] = reads
        return wishes
