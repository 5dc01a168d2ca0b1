"""The recipe of a run's batches: views, and the sources and draws of them.

A view is drawn once and shared by all rows that read it. `make_plan` is pure:
settings of rows in, a `Plan` out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from infoword_tf.errors import InputError
from infoword_tf.objectives import TABLE, decided
from infoword_tf.views import VIEWS, Draw, Reads, ViewSpec
from infoword_tf.views.masked import MASKED_SHARE, MASKINGS

# The input of a source; other sources read a corpus.
_INPUTS = {
    'examples': 'examples',
    'text_pairs': 'pairs',
    'translations': 'translations',
}


class SourceSpec(NamedTuple):
    """A source with arguments.

    Attributes:
        source: name in data.sources.SOURCES.
        arguments: (name, value) of that class, sorted: `length` in tokens,
            and others.
    """

    source: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def reads(self) -> str:
        """Name of a field of `data.batches.RunInputs`."""
        return _INPUTS.get(self.source, 'text')


class ViewPlan(NamedTuple):
    """Recipe of a view of the run.

    Attributes:
        spec: description of the view's family.
        rows: parts of the view that a row reads, by row.
        source_spec: the text that the view is made from.
        draw: description of what is sampled in that text; None: nothing.
        settings: settings of the view.
    """

    spec: ViewSpec
    rows: dict[str, Reads]
    source_spec: SourceSpec
    draw: Draw | None
    settings: Mapping[str, Any] = {}


class Plan(NamedTuple):
    """Recipe of the batches of a run.

    Attributes:
        views: views by name.
        masking: name in views.masked.MASKINGS; None: nothing is masked.
        mask_share: masked share of the tokens; None: nothing is masked.
    """

    views: dict[str, ViewPlan]
    masking: str | None
    mask_share: float | None

    @property
    def source_specs(self) -> list[SourceSpec]:
        """Sources of the views, each once."""
        return list(dict.fromkeys(v.source_spec for v in self.views.values()))

    def reads(self, field: str) -> bool:
        """Tells whether a row reads a field of `data.batches.RunInputs`."""
        return any(spec.reads == field for spec in self.source_specs)

    @property
    def labelled(self) -> bool:
        """True if a row reads labelled examples."""
        return self.reads('examples')

    def readers_of(self, field: str) -> list[str]:
        """Lists the rows that read a field of `data.batches.RunInputs`."""
        return list(
            dict.fromkeys(
                row
                for spec in self.source_specs
                if spec.reads == field
                for row in self.readers(spec)
            )
        )

    def readers(self, source_spec: SourceSpec) -> list[str]:
        """Lists the rows that read a source."""
        return list(
            dict.fromkeys(
                row
                for view in self.views.values()
                if view.source_spec == source_spec
                for row in view.rows
            )
        )


def make_plan(
    rows: Mapping[str, Mapping[str, Any]],
    length: int,
    masking: str | None = None,
    mask_share: float | None = None,
) -> Plan:
    """Combines the views, sources and draws of all rows.

    Args:
        rows: settings by row.
        length: T, tokens of a sequence.
        masking: name in views.masked.MASKINGS; None: what the rows require,
            else 'tokens'.
        mask_share: masked share of the tokens; None: 0.15.

    Raises:
        InputError: two rows read one view in different ways, or a length or a
            masking does not suit them.
    """
    reads_of = {row: TABLE[row].reads(rows[row]) for row in rows}
    for row, by_view in reads_of.items():
        for view, reads in by_view.items():
            _check_reads(row, view, reads, rows[row])
    chosen, masking = masking, _masking_of(reads_of, masking)
    share, sources = mask_share or MASKED_SHARE, _sources_of(reads_of)
    views: dict[str, ViewPlan] = {}
    for view in dict.fromkeys(v for row in rows for v in reads_of[row]):
        readers = {
            row: reads_of[row][view] for row in rows if view in reads_of[row]
        }
        spec = VIEWS[VIEWS.root(view)]
        source = sources.get(VIEWS.root(view), spec.source)
        where = {
            reads.where
            for by_view in reads_of.values()
            for other, reads in by_view.items()
            if VIEWS.root(other) == VIEWS.root(view)
        }
        of_row = rows[next(iter(readers))]  # alike in all rows that read it
        of_view = {name: of_row[name] for name in spec.settings}
        settings = {
            'masking': masking, 'mask_share': share, 'where': where, **of_view
        }  # fmt: skip
        draw = spec.draw(settings) if spec.draw else None
        arguments = spec.source_args(length, {**settings, 'source': source})
        source_spec = SourceSpec(source, tuple(sorted(arguments.items())))
        views[view] = ViewPlan(
            VIEWS[view], readers, source_spec, draw=draw, settings=of_view
        )
    # A draw is a masking, or contains one.
    draws = [view.draw for view in views.values() if view.draw]
    drawn = {draw.settings.get('masking', draw.name) for draw in draws}
    if masking in drawn:
        return Plan(views, masking, share)
    for flag, value in (('masking', chosen), ('mask_share', mask_share)):
        if value is not None:
            raise InputError(
                'nothing_is_masked',
                f'{flag} {value} does nothing where nothing is masked; leave '
                f'out --{flag}',
            )
    return Plan(views, None, None)


def _masking_of(
    reads_of: Mapping[str, Mapping[str, Reads]], masking: str | None
) -> str:
    """Returns the masking that all rows share; 'tokens' if none asks for one.

    Raises:
        InputError: two rows, or a row and `masking`, differ.
    """
    if masking not in (None, *MASKINGS):
        raise InputError(
            'unknown_masking',
            f'masking {masking}: known are {", ".join(MASKINGS)}',
        )
    for row, by_view in reads_of.items():
        for reads in by_view.values():
            if reads.masking and masking not in (None, reads.masking):
                raise InputError(
                    'row_masks_otherwise',
                    f'masking {masking} is not for {row}, which masks '
                    f'{reads.masking}; leave out --masking, or {row}',
                )
            masking = reads.masking or masking
    return masking or 'tokens'


def _sources_of(
    reads_of: Mapping[str, Mapping[str, Reads]],
) -> dict[str, str]:
    """Returns the source of each view, by root, that a row decides.

    Raises:
        InputError: two rows differ.
    """
    sources: dict[str, str] = {}
    narrowed_by: dict[str, str] = {}
    for row, by_view in reads_of.items():
        for view, reads in by_view.items():
            origin = VIEWS.root(view)
            if not reads.source:
                continue
            if sources.setdefault(origin, reads.source) != reads.source:
                raise InputError(
                    'view_of_two_sources',
                    f'{narrowed_by[origin]} reads {sources[origin]} and {row} '
                    f'reads {reads.source}, but the view {origin!r} is one for '
                    'all rows; leave out one of the two',
                )
            narrowed_by.setdefault(origin, row)
    return sources


def _check_reads(
    row: str, view: str, reads: Reads, settings: Mapping[str, Any]
) -> None:
    """Raises InputError for an unknown view or an undeclared encoder."""
    if view not in VIEWS:
        raise InputError(
            'unknown_view',
            f'{row} reads the view {view!r}; known are {", ".join(VIEWS)}',
        )
    known = {'encoder', *decided(TABLE[row].auxiliaries, settings)}
    if lacking := sorted(set(reads.encoders) - known):
        raise InputError(
            'undeclared_auxiliary_encoder',
            f'{row} reads {view!r} with the encoder {lacking[0]!r}, which is '
            'none of its auxiliary encoders',
        )
