"""A row of the table, as data."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from infoword_tf.encoders import ENCODERS, able
from infoword_tf.settings import Setting
from infoword_tf.views import VIEWS, Reads, View, root

if TYPE_CHECKING:
    from infoword_tf.objectives.objective import Objective
    from infoword_tf.text.layout import Layout

T = TypeVar('T')
Settings = Mapping[str, Any]
# What a setting may decide: a value, or a function of the row's settings.
Decided = T | Callable[[Settings], T]


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
        pooling: in layers.pooling.POOLINGS.
        similarity: 'cosine' or 'dot'.
        layout: in text.layout.LAYOUTS, what stands around a text that is
            encoded alone. All rows of a sum have the same.
        priority: in a sum the row of the highest priority decides (0 to 4).
        dense: activations of layers over the pooled vector, as wide as it is,
            where --init has none.
        keeps: whether dense layers, normalisation and prompts of --init stay.
        critic: in critics.CRITICS, what compares two texts by default.
        head: settings of the row that decide the critic's head; None: it has
            none.
    """

    pooling: str = 'mean'
    similarity: str = 'cosine'
    layout: 'str | Layout' = 'bert'
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
        workdir: whose weights it begins with; it has that workdir's sizes
            and rows (`Objective.auxiliary_rows`). None: it is `copied`, or
            drawn anew.
        answers: one of these (`Row.answers`) that workdir must give.
        copied: whether it begins as a copy of the trained encoder, after that
            has what --init gives; momentum encoders do.
        arguments: in which it differs from the trained encoder, or from that
            of its workdir.
        frozen: whether no gradient changes it.
        momentum: of a momentum encoder: a moving average of the trained one,
            which starts as its copy and after each update moves by
            1 - momentum. None: it is no momentum encoder.
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
        settings: of the row.
        views: by name, of the global batch.
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
        views: by name in VIEWS, what it wants there; None: it is not read.
        needs: in encoders.ABILITIES, what it asks of an encoder, which is from
            scratch the first of ENCODERS that all rows of a sum allow.
        heldout_candidates: M, how many candidates all held-out pairs share;
            None for the vocabulary, or where each batch has its own.
        vector: how a text becomes a vector; None as its answer: as the
            encoder that the run started from has it.
        auxiliaries: by name, its auxiliary encoders.
        scored_by: the row whose scores this one reads, see
            `Batch.scorer_batch`. It is built even where its weight is 0.
        answers: in ANSWERS, what a trained model can be asked because of it.
        init_advice: what to do before a run without --init, after the row's
            name; '': nothing.
        begins_as: the row whose weights it takes where --init has none of its
            own, or that of another row that begins so.
        public_head: in weights.heads.HEADS, what public models call its head;
            None: they have none.
        taught_by: the row that learns a teacher's outputs by its scores.
        of_tokens: whether it scores each token, or place, of a text.
        products: counts the multiplications of a step's scores, forward, for
            benchmarks/step.py; None: no benchmark makes its text.
    """

    objective: 'type[Objective]'
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
            settings |= VIEWS[root(view)].settings
        return settings

    @property
    def view_of(self) -> dict[str, str]:
        """View of each setting that is a view's: the one that draws."""
        views = map(root, self.views)
        return {name: view for view in views for name in VIEWS[view].settings}

    def encoders(self, settings: Settings) -> dict[str, dict[str, Any]]:
        """Returns the encoders that the row allows, with the fixed arguments.

        A setting about an argument allows the encoders that have that argument;
        its default allows the others too.

        Args:
            settings: all of the row.
        """
        allowed = {}
        for encoder, arguments in able(decided(self.needs, settings)).items():
            lacking = False
            for name, known in self.settings.items():
                fixed = known.encoder.get(settings[name], {})
                for argument, value in fixed.items():
                    if argument in ENCODERS[encoder].settings:
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
            settings: of the row.
            contextual: whether the encoder is. One that is not has no pooled
                state such as [CLS]: a row that wants it gets all states.
        """
        wishes = {}
        for view, choice in self.views.items():
            reads = decided(choice, settings)
            if reads is None:
                continue
            if reads.where == 'example' and not contextual:
                reads = reads._replace(everywhere=True)
            wishes[view] = reads
        return wishes
