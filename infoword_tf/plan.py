"""What the rows of a run want of the text, put together.

A view is drawn once and shared by all rows that read it, and so is the text
that it is made from: wishes of several rows must agree.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infoword_tf import sampling
from infoword_tf.objectives import TABLE
from infoword_tf.views import VIEWS


class Plan(NamedTuple):
    """How the batches of a run are made.

    Attributes:
        rows: by view, what each row wants there (`Row.views`).
        sources: by view, the name in data.batches.SOURCES of its text.
        reading: by source, its arguments: `length`, the tokens that it reads,
            and others that it has.
        draws: by source, the name of what is drawn there, and the function;
            of a source that is not here nothing is drawn.
    """

    rows: dict[str, dict[str, str]]
    sources: dict[str, str]
    reading: dict[str, dict[str, Any]]
    draws: dict[str, tuple[str, Callable[..., Any]]]

    def readers(self, source: str) -> list[str]:
        """The rows that read a source, in order."""
        return list(
            dict.fromkeys(
                row
                for view, rows in self.rows.items()
                if self.sources[view] == source
                for row in rows
            )
        )


def make_plan(
    rows: Mapping[str, Mapping[str, Any]], length: int, masking: str = 'tokens'
) -> Plan:
    """Puts the wishes of rows together.

    Args:
        rows: by row, its settings.
        length: T.
        masking: name in sampling.MASKINGS.

    Raises:
        ValueError: two rows want one view or one source in different ways, or
            a length that does not suit them.
    """
    wanted: dict[str, dict[str, str]] = {}
    sources: dict[str, str] = {}
    narrowed_by: dict[str, str] = {}
    for row in rows:
        for view, what in TABLE[row].views.items():
            wanted.setdefault(view, {})[row] = what
        for view, source in TABLE[row].sources.items():
            if sources.setdefault(view, source) != source:
                raise ValueError(
                    f'{narrowed_by[view]} reads {sources[view]} and {row} '
                    f'reads {source}, but the view {view!r} is one for all '
                    'rows; leave out one of the two'
                )
            narrowed_by.setdefault(view, row)
    sources = {view: sources.get(view, VIEWS[view].source) for view in wanted}
    reading: dict[str, dict[str, Any]] = {}
    readers: dict[str, str] = {}
    for row, settings in rows.items():
        way = {'length': length - 2}
        if TABLE[row].reading is not None:
            way = TABLE[row].reading(length, settings)
        for view in TABLE[row].views:
            first = readers.setdefault(sources[view], row)
            if reading.setdefault(sources[view], way) != way:
                raise ValueError(
                    f'{first} and {row} read {sources[view]} in different '
                    'ways; train them apart'
                )
    hide = masking, sampling.masking(masking)
    draws = {
        'windows': hide,
        'pairs': hide,
        'next_pairs': hide,
        'documents': ('cloze', sampling.cloze),
    }
    drawn = {
        name: settings[name]
        for row, settings in rows.items()
        for name in TABLE[row].drawn
    }
    if drawn:
        sampling.halves(length, drawn['k'])  # complains
        permute = functools.partial(sampling.permutation, **drawn)
        draws['streams'] = 'permutation', permute
    return Plan(wanted, sources, reading, draws)
