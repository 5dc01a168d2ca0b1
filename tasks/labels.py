"""Sentences about the labels of a table, before a model learns them.

A line counts them. Labels that nobody meant are doubted: marks of a row without
a label, several labels in one cell, numbers in place of names.
"""

from collections.abc import Iterable, Iterator, Mapping

from infoword_tf.choices import DELIMITERS
from infoword_tf.data.labelling import NO_LABEL

_SHOWN = 3  # labels at either end, where there are more than twice as many
_SEPARATORS = [x for x in DELIMITERS.values() if not x.isspace()]


def line(where: str, counts: Mapping[str, int], what: str = 'rows') -> str:
    """Describes labels by frequency, the commonest first."""
    names = sorted(counts, key=lambda name: -counts[name])
    cells = [f'{name!r} {counts[name]:,}' for name in names]
    if len(cells) > 2 * _SHOWN:
        cells[_SHOWN:-_SHOWN] = ['...']
    count = '1 label' if len(names) == 1 else f'{len(names):,} labels'
    return f'{where}: {count} of {what}, by frequency {", ".join(cells)}'


def doubts(where: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yields advice about labels of rows that nobody may have meant.

    Args:
        where: the table, for people.
        counts: rows by label.
    """
    for mark in NO_LABEL:
        others = {name for name in counts if name != mark}
        if mark in counts and (mark == '-' or is_named(others)):
            yield (
                f'{where}: {counts[mark]:,} rows have the label {mark!r}; if '
                f'that means none, --drop_label={mark} leaves them out'
            )
    for separator in _SEPARATORS:
        several = [name for name in counts if separator in name]
        parts = {x.strip() for name in counts for x in name.split(separator)}
        if 2 * len(several) >= len(counts) > len(parts):
            yield (
                f'{where}: labels as {several[0]!r} look like several; if they '
                f"are, --separator='{separator}' parts them"
            )


def doubts_of_words(where: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yields advice about labels of words that are numbers alone."""
    if all(name.isdecimal() for name in counts):
        yield (
            f'{where}: the labels are numbers; --names=O,B-PER,I-PER, say, '
            'names them from 0 on, and names such as these mark spans'
        )


def is_named(labels: Iterable[str]) -> bool:
    """Tells whether labels are names, or the numbers of names from 0 on."""
    numbers = [label for label in labels if label.lstrip('+-').isdecimal()]
    return not numbers or {*numbers} == {*map(str, range(len(numbers)))}
