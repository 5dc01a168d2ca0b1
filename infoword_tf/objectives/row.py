"""What a row of the table is, as data: no Keras is needed to know it."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infoword_tf.settings import Setting
from infoword_tf.views import Reads

# What a model can be asked because of a row; and of a model without such rows,
# for complaints, what they do. Vectors of texts all models give.
ANSWERS = {
    'vectors': 'have learned no weights',  # of states, for their mean
    'blanks': 'fill no blanks',
    'blanks_by_counts': 'fill no blanks',  # with those of the training text
    'next': 'score no next piece',
    'classes': 'know no labels',
    'numbers': 'know no scores',
    'spans': 'answer nothing',
}


class Vector(NamedTuple):
    """How a text becomes a vector, and how two of them are compared.

    Attributes:
        pooling: in layers.pooling.POOLINGS.
        similarity: 'cosine' or 'dot'.
        layout: in text.layout.LAYOUTS, what stands around a text that is
            encoded alone. All rows of a sum have the same.
        rank: in a sum the row of the highest rank decides.
    """

    pooling: str = 'mean'
    similarity: str = 'cosine'
    layout: str = 'bert'
    rank: int = 0


def plain_vector(settings: Mapping[str, Any]) -> Vector:
    """Of rows that compare no whole texts: the mean of the states."""
    del settings
    return Vector()


class Companion(NamedTuple):
    """An encoder that a row brings along, beside the one that is trained.

    It has the trained one's sizes, and is never exported.

    Attributes:
        arguments: in which it differs from the trained encoder.
        frozen: whether no gradient changes it.
        momentum: it is an average of the trained encoder, which starts as its
            copy and after each update moves by 1 - momentum; None: it is not.
        dropout: whether it drops, as the trained one does.
        saved: whether checkpoints hold it; one that is not is made anew from
            the run's seed.
    """

    arguments: Mapping[str, Any] = {}
    frozen: bool = True
    momentum: float | None = None
    dropout: bool = False
    saved: bool = True


class _Named:
    """A field that names a class by its place, until somebody asks for it.

    The file it stands in is imported then, and Keras with it.
    """

    def __set_name__(self, owner: type, name: str):
        """Called by Python: which field this is."""
        del owner
        self._field = name

    def __get__(self, row: Any, owner: type | None = None) -> type:
        """The class; of no row there is none, which means: no default."""
        if row is None:
            raise AttributeError(self._field)
        found = vars(row)[self._field]
        if isinstance(found, str):
            file, _, name = found.partition('.')
            module = importlib.import_module(f'{__package__}.{file}')
            found = getattr(module, name)
        return found

    def __set__(self, row: Any, value: type | str):
        """Keeps what is given."""
        vars(row)[self._field] = value


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table (Kong et al. 2019, Table 1).

    Attributes:
        objective: the class, or of a file of objectives/ its place there,
            'mlm.MaskedPieces'.
        a, b, relation: the two views and p(a, b), in words.
        candidates: B~, in words.
        views: by name in VIEWS, what it wants there.
        encoders: by name in ENCODERS, those that it allows, each with the
            arguments that this row fixes. The default is the first of
            ENCODERS that all rows of a sum allow.
        settings: what a run may choose: arguments of the class, or what
            fixes some of the encoder. Those of its views are settings of the
            row too, see `settings_of`.
        heldout_candidates: M of held-out text, None for the vocabulary, or
            where each batch holds each pair's own candidates.
        vector: how a text becomes a vector, by the settings; None as its
            answer: as the encoder that the run started from has it.
        companions: by name, the encoders that it brings along.
        head: the row whose scores this one reads, see `Batch.head`. It is
            built even where its weight is 0.
        answers: in ANSWERS, what a trained model can be asked because of it.
    """

    objective: Any = _Named()
    a: str
    b: str
    relation: str
    candidates: str
    views: Mapping[str, Reads]
    encoders: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=lambda: {'transformer': {'causal': False}}
    )
    settings: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    heldout_candidates: int | None = None
    vector: Callable[[Mapping[str, Any]], Vector | None] = plain_vector
    companions: Mapping[str, Companion] = dataclasses.field(
        default_factory=dict
    )
    head: str | None = None
    answers: tuple[str, ...] = ()

    def reads(
        self, settings: Mapping[str, Any], contextual: bool = True
    ) -> dict[str, Reads]:
        """Its views with these settings, by name.

        Args:
            settings: of the row.
            contextual: whether the encoder is. Of one that is not no state
                sums a text up: who wants that one gets those of all tokens.
        """

        def holds(condition: tuple[str, Any]) -> bool:
            name, value = condition
            return settings[name] == value

        found = {}
        for view, reads in self.views.items():
            if isinstance(reads.layers, tuple):
                reads = reads._replace(layers=holds(reads.layers))
            if isinstance(reads.everywhere, tuple):
                reads = reads._replace(everywhere=holds(reads.everywhere))
            if reads.states == 'example' and not contextual:
                reads = reads._replace(everywhere=True)
            if reads.when is None or holds(reads.when):
                found[view] = reads
        return found
