"""What the rows of a run want of the text, put together.

A view is drawn once and shared by all rows that read it, so their settings of
it must agree. Views that read a source in the same way share its text, and
those that sample alike in it share the draw.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from infoword_tf.objectives import TABLE, Auxiliary, decided
from infoword_tf.views import VIEWS, Draw, Reads, ViewSpec, root
from infoword_tf.views.masking import MASKED_SHARE, MASKINGS

# By source, what it reads; others read a corpus.
_INPUTS = {
    'examples': 'examples',
    'text_pairs': 'pairs',
    'translations': 'translations',
}


class SourceSpec(NamedTuple):
    """A source and how it is read.

    Attributes:
        source: name in data.sources.SOURCES.
        arguments: of that class, (name, value) in order: `length`, the tokens
            that are read, and others that it has.
    """

    source: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def reads(self) -> str:
        """The field of `data.batches.RunInputs` that it reads."""
        return _INPUTS.get(self.source, 'text')


class ViewPlan(NamedTuple):
    """How a view of the run comes about.

    Attributes:
        spec: how such views are made.
        rows: what each row wants there.
        source_spec: the text that it is made from.
        draw: what is drawn in that; None: nothing.
    """

    spec: ViewSpec
    rows: dict[str, Reads]
    source_spec: SourceSpec
    draw: Draw | None


class Plan(NamedTuple):
    """How the batches of a run are made.

    Attributes:
        views: by name.
        masking: what is masked, a name in views.masking.MASKINGS; None where
            nothing is.
        mask_share: of the tokens, likewise.
    """

    views: dict[str, ViewPlan]
    masking: str | None
    mask_share: float | None

    @property
    def source_specs(self) -> list[SourceSpec]:
        """Every text that is read, once."""
        return list(dict.fromkeys(v.source_spec for v in self.views.values()))

    def reads(self, what: str) -> bool:
        """Whether some row reads this field of `data.batches.RunInputs`."""
        return any(spec.reads == what for spec in self.source_specs)

    @property
    def labelled(self) -> bool:
        """Whether some row reads labelled examples."""
        return self.reads('examples')

    def readers_of(self, what: str) -> list[str]:
        """The rows that read a field of `data.batches.RunInputs`, in order."""
        return list(
            dict.fromkeys(
                row
                for spec in self.source_specs
                if spec.reads == what
                for row in self.readers(spec)
            )
        )

    def readers(self, source_spec: SourceSpec) -> list[str]:
        """The rows that read a text, in order."""
        return list(
            dict.fromkeys(
                row
                for view in self.views.values()
                if view.source_spec == source_spec
                for row in view.rows
            )
        )


def answering(
    answers: Container[str], rows: Iterable[str] = TABLE
) -> list[str]:
    """Those of some rows that give one of these answers (`Row.answers`)."""
    return [
        row
        for row in rows
        if row in TABLE and any(a in answers for a in TABLE[row].answers)
    ]


def encoder_arguments(
    row: str, encoder: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an encoder that a row fixes, by its settings too."""
    arguments = dict(decided(TABLE[row].encoders, settings)[encoder])
    for name, setting in TABLE[row].settings.items():
        if setting.encoder:
            arguments |= setting.encoder[settings[name]]
    return arguments


def make_plan(
    rows: Mapping[str, Mapping[str, Any]],
    length: int,
    masking: str | None = None,
    mask_share: float | None = None,
) -> Plan:
    """Puts the wishes of rows together.

    Args:
        masking: name in views.masking.MASKINGS; None: what the rows want,
            else 'tokens'.
        mask_share: of the tokens, what is masked; None: 15 in 100.

    Raises:
        ValueError: two rows want one view in different ways, or a length or a
            masking does not suit them.
    """
    if masking not in (None, *MASKINGS):
        raise ValueError(f'masking {masking}: known are {", ".join(MASKINGS)}')
    chosen = masking
    sources: dict[str, str] = {}  # by the view that others are cut out of
    narrowed_by: dict[str, str] = {}
    wanted = {row: TABLE[row].reads(rows[row]) for row in rows}
    for row in rows:
        for view, reads in wanted[row].items():
            _check(row, view, reads, rows[row])
            if reads.masking and masking not in (None, reads.masking):
                raise ValueError(
                    f'masking {masking} is not for {row}, which masks '
                    f'{reads.masking}; leave out --masking, or {row}'
                )
            masking = reads.masking or masking
            origin = root(view)
            if not reads.source:
                continue
            if sources.setdefault(origin, reads.source) != reads.source:
                raise ValueError(
                    f'{narrowed_by[origin]} reads {sources[origin]} and {row} '
                    f'reads {reads.source}, but the view {origin!r} is one for '
                    'all rows; leave out one of the two'
                )
            narrowed_by.setdefault(origin, row)
    masking, share = masking or 'tokens', mask_share or MASKED_SHARE
    views: dict[str, ViewPlan] = {}
    for view in dict.fromkeys(v for row in rows for v in wanted[row]):
        readers = {
            row: wanted[row][view] for row in rows if view in wanted[row]
        }
        spec = VIEWS[root(view)]
        source = sources.get(root(view), spec.source)
        where = {
            reads.where
            for wishes in wanted.values()
            for other, reads in wishes.items()
            if root(other) == root(view)
        }
        settings = {
            'masking': masking,
            'mask_share': share,
            'where': where,
            **_shared(view, readers, rows),
        }
        draw = spec.draw(settings) if spec.draw else None
        arguments = spec.source_args(length, {**settings, 'source': source})
        source_spec = SourceSpec(source, tuple(sorted(arguments.items())))
        views[view] = ViewPlan(VIEWS[view], readers, source_spec, draw)
    # A draw is of a masking itself, or has one among what it draws.
    draws = [view.draw for view in views.values() if view.draw]
    drawn = {draw.settings.get('masking', draw.name) for draw in draws}
    if masking in drawn:
        return Plan(views, masking, share)
    for flag, value in (('masking', chosen), ('mask_share', mask_share)):
        if value is not None:
            raise ValueError(
                f'{flag} {value} does nothing where nothing is masked; leave '
                f'out --{flag}'
            )
    return Plan(views, None, None)


def auxiliaries_of(
    rows: Mapping[str, Mapping[str, Any]],
) -> dict[str, Auxiliary]:
    """The encoders that rows bring along, by name.

    Raises: ValueError: two rows bring different ones of one name, or one is
    what it cannot be.
    """
    auxiliaries: dict[str, Auxiliary] = {}
    for row, settings in rows.items():
        brought = decided(TABLE[row].auxiliaries, settings)
        for name, auxiliary in brought.items():
            if auxiliary.momentum is not None and not auxiliary.frozen:
                raise ValueError(
                    f'{name!r} of {row} is a moving average and learns too: '
                    'make it frozen, or leave out its momentum'
                )
            copied = auxiliary.copied or auxiliary.momentum is not None
            if copied and auxiliary.workdir:
                raise ValueError(
                    f'{name!r} of {row} begins as a copy of the trained '
                    'encoder, not with the weights of '
                    f'{auxiliary.workdir}'
                )
            changes = auxiliary.momentum is not None or not auxiliary.frozen
            if (changes or copied) and not auxiliary.saved:
                raise ValueError(
                    f'{name!r} of {row} changes in training, or began as a '
                    'copy, so checkpoints must hold it: leave out saved=False'
                )
            if auxiliaries.setdefault(name, auxiliary) != auxiliary:
                raise ValueError(
                    f'{row} brings another {name!r} than the rows before it; '
                    'train them apart'
                )
    return auxiliaries


def _check(
    row: str, view: str, reads: Reads, settings: Mapping[str, Any]
) -> None:
    """Complains of a row that reads what there is not."""
    if view not in VIEWS:
        raise ValueError(
            f'{row} reads the view {view!r}; known are {", ".join(VIEWS)}'
        )
    known = {'encoder', *decided(TABLE[row].auxiliaries, settings)}
    if lacking := sorted(set(reads.encoders) - known):
        raise ValueError(
            f'{row} reads {view!r} with the encoder {lacking[0]!r}, which is '
            'none of its auxiliary encoders'
        )


def _shared(
    view: str, readers: Mapping[str, Reads], rows: Mapping[str, Mapping]
) -> dict[str, Any]:
    """The settings of a view, on which its rows have to agree."""
    settings: dict[str, Any] = {}
    for name in VIEWS[root(view)].settings:
        values = {row: rows[row][name] for row in readers}
        if len(set(values.values())) > 1:
            listed = ', '.join(f'--{r}.{name}={v}' for r, v in values.items())
            raise ValueError(
                f'the view {view!r} is one for all rows, but they set it '
                f'differently ({listed}); give them one value'
            )
        settings[name] = next(iter(values.values()))
    return settings
