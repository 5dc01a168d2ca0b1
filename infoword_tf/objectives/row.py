"""What a row of the table is, as data."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from infoword_tf.settings import Setting
from infoword_tf.views import VIEWS, Reads, root

if TYPE_CHECKING:
    from infoword_tf.objectives.objective import Objective

T = TypeVar('T')
Settings = Mapping[str, Any]
# What a setting may decide: a value, or a function of the row's settings.
Decided = T | Callable[[Settings], T]


# By what a model can be asked because of a row: what the rows of a model that
# cannot be asked do, for complaints. Every model gives vectors of texts.
ANSWERS = {
    'vectors': 'have learned no weights',  # of states, for their mean
    'blanks': 'fill no blanks',
    'blanks_by_counts': 'fill no blanks',  # with those of the training text
    'next': 'score no next piece',
    'classes': 'know no labels',
    'numbers': 'know no scores',
    'spans': 'answer nothing',
}


def decided(value: Decided[T], settings: Settings) -> T:
    """What it is with these settings of the row."""
    return value(settings) if callable(value) else value


class Vector(NamedTuple):
    """How a text becomes a vector, and how two of them are compared.

    Attributes:
        pooling: in layers.pooling.POOLINGS.
        similarity: 'cosine' or 'dot'.
        layout: in text.layout.LAYOUTS, what stands around a text that is
            encoded alone. All rows of a sum have the same.
        priority: in a sum the row of the highest priority decides.
        dense: activations of layers over that, as wide as it is, where --init
            has none.
        keeps: whether layers, length 1 and prompts of --init stay.
    """

    pooling: str = 'mean'
    similarity: str = 'cosine'
    layout: str = 'bert'
    priority: int = 0
    dense: tuple[str, ...] = ()
    keeps: bool = False


def as_started(settings: Settings) -> None:
    """None: texts are pooled as in the workdir of --init."""
    del settings


class Companion(NamedTuple):
    """An encoder that a row brings along, beside the one that is trained.

    It has the trained one's sizes, or those of its workdir, and is never
    exported.

    Attributes:
        workdir: where it begins, with that one's sizes and rows, which
            are `Objective.companion_rows`. None: it is `copied`, or drawn
            anew.
        answers: one of these (`Row.answers`) that workdir must give.
        copied: whether it begins as a copy of the trained one, after that has
            what --init gives; averages do.
        arguments: in which it differs from the trained encoder, or from that
            of its workdir.
        frozen: whether no gradient changes it.
        momentum: makes it a momentum encoder, a moving average of the trained
            one, which starts as its copy and after each update moves by
            1 - momentum; None: it is none.
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


# Of rows that read what stands on both sides of a place.
BOTH_SIDES: dict[str, dict[str, Any]] = {
    'transformer': {'causal': False},
    'modern': {},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table (Kong et al. 2019, Table 1).

    What a setting may decide is a value here, or a function of the row's
    settings that gives one: see `decided`.

    Attributes:
        objective: the class; its fields are the row's settings.
        a, b, relation: the two views and p(a, b), in words.
        candidates: B~, in words.
        views: by name in VIEWS, what it wants there; None: it is not read.
        encoders: by name in ENCODERS, those that it allows, each with the
            arguments that this row fixes. The default is the first of
            ENCODERS that all rows of a sum allow.
        heldout_candidates: M of held-out text, None for the vocabulary, or
            where each batch holds each pair's own candidates.
        vector: how a text becomes a vector; None as its answer: as the
            encoder that the run started from has it.
        companions: by name, the encoders that it brings along.
        scored_by: the row whose scores this one reads, see
            `Batch.scorer_batch`. It is built even where its weight is 0.
        answers: in ANSWERS, what a trained model can be asked because of it.
        begins_as: the row whose weights it takes where --init has none of its
            own, or that of another row that begins so; and as which public
            formats know it.
    """

    objective: 'type[Objective]'
    a: str
    b: str
    relation: str
    candidates: str
    views: Mapping[str, Decided[Reads | None]]
    encoders: Decided[Mapping[str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=lambda: {'transformer': {'causal': False}}
    )
    heldout_candidates: Decided[int | None] = None
    vector: Decided[Vector | None] = Vector()
    companions: Decided[Mapping[str, Companion]] = dataclasses.field(
        default_factory=dict
    )
    scored_by: str | None = None
    answers: tuple[str, ...] = ()
    begins_as: str | None = None

    @property
    def settings(self) -> dict[str, Setting]:
        """All that a run may choose: of the row, and of its views."""
        settings = dict(self.objective.settings)
        for view in self.views:
            settings |= VIEWS[root(view)].settings
        return settings

    def reads(
        self, settings: Settings, contextual: bool = True
    ) -> dict[str, Reads]:
        """Its views with these settings, by name.

        Args:
            settings: of the row.
            contextual: whether the encoder is. One that is not has no pooled
                state such as [CLS]: a row that wants it gets all states.
        """
        wishes = {}
        for view, wanted in self.views.items():
            reads = decided(wanted, settings)
            if reads is None:
                continue
            if reads.where == 'example' and not contextual:
                reads = reads._replace(everywhere=True)
            wishes[view] = reads
        return wishes
