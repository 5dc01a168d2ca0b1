"""Puts weights under other names: theirs to ours, and ours to theirs."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.weights.names import Form, Naming
from infoword_tf.weights.tensors import Tensors

_PART = re.compile(r'(.*)\[(\d+)\]$')


class Line(NamedTuple):
    """One weight of ours.

    Attributes:
        ours: its path.
        theirs: the names that it is made of.
        form: how.
    """

    ours: str
    theirs: tuple[str, ...]
    form: Form


def lines(
    naming: Naming, prefix: str, layers: int, rows: Sequence[str]
) -> Iterator[Line]:
    """All that a model of so many layers, with the heads of rows, has."""

    def line(ours, theirs, form, before='', i=0):
        names = (theirs,) if isinstance(theirs, str) else theirs
        named = tuple(before + _fill(name, prefix, layers, i) for name in names)
        return Line(ours, named, form)

    for path, entry in naming.encoder.items():
        yield line(f'encoder/{path}', *entry, before=prefix)
    for i in range(layers):
        for path, entry in naming.layer.items():
            yield line(f'encoder/layer_{i}/{path}', *entry, before=prefix, i=i)
    for row in rows:
        for path, entry in naming.heads[row].items():
            yield line(f'objectives/{row}/{path}', *entry)


def _fill(name: str, prefix: str, layers: int, i: int = 0) -> str:
    return name.format(p=prefix, i=i, i4=i + 4, last=layers + 4)


class Held(NamedTuple):
    """What a file holds.

    Attributes:
        tensors: by the names of today.
        prefix: before the encoder's names.
        rows: whose heads it has.
    """

    tensors: Mapping[str, np.ndarray]
    prefix: str
    rows: tuple[str, ...]


def look(naming: Naming, tensors: Tensors) -> Held:
    """Finds out what is there; ValueError: no name of such an encoder is."""
    renamed = {}
    for name in tensors:
        now = name
        for old, new in naming.old.items():
            now = re.sub(old, new, now)
        renamed[now] = name
    found = Tensors(
        {
            now: (lambda name=name: tensors[name])
            for now, name in renamed.items()
        },
        tensors.where,
    )
    first = naming.encoder['word_embeddings'][0]
    for prefix in naming.prefixes:
        if prefix + first in found:
            break
    else:
        raise ValueError(
            f'{tensors.where} has no {first}: these are not the weights of '
            'such an encoder'
        )
    rows = []
    for row, head in naming.heads.items():
        # All of a head but what other heads have, too.
        others = {
            theirs
            for other, lines_of in naming.heads.items()
            for theirs, _ in lines_of.values()
            if other != row
        }
        own = [
            theirs
            for theirs, _ in head.values()
            if '{p}' not in theirs and theirs not in others
        ]
        if any(_fill(name, prefix, 0) in found for name in own):
            rows.append(row)
    return Held(found, prefix, tuple(rows))


def check(
    naming: Naming, held: Held, layers: int, paths: Collection[str], where: str
) -> tuple[list[Line], list[str]]:
    """Checks every name.

    Returns:
        What `take` makes each of ours of, and what has no place here, for
        people.

    Raises:
        ValueError: names that are missing, or that nobody knows; a tied
            weight that differs.
    """
    wanted = [
        line
        for line in lines(naming, held.prefix, layers, held.rows)
        if line.ours in paths
    ]
    names = {_whole(name) for line in wanted for name in line.theirs}
    if lacking := sorted(names - set(held.tensors)):
        raise ValueError(
            f'{where} lacks {_some(lacking)}; config.json asks for them'
        )
    if unmade := sorted(set(paths) - {line.ours for line in wanted}):
        raise ValueError(f'{where} has no weights for {_some(unmade)}')
    surplus = sorted(set(held.tensors) - names)
    copies = {
        _fill(copy, held.prefix, layers): _fill(whose, held.prefix, layers)
        for copy, whose in naming.copies.items()
    }
    dropped, unknown = {}, []
    for name in surplus:
        if name in copies:
            if copies[name] not in names:
                unknown.append(name)
            elif not np.array_equal(
                held.tensors[name], held.tensors[copies[name]]
            ):
                raise ValueError(
                    f'{where}: {name} differs from {copies[name]}; untied '
                    'weights cannot be converted'
                )
            continue
        bare = name.removeprefix(held.prefix)
        if _begins(bare, naming.unsaid, layers) or _begins(
            name.split('/')[-1], ('adam_m', 'adam_v'), layers
        ):
            continue
        what = _begins(bare, naming.dropped, layers)
        if what:
            dropped[naming.dropped[what]] = None
        else:
            unknown.append(name)
    if unknown:
        raise ValueError(
            f'{where} has {_some(unknown)}, which has no place here; '
            'is its model_type right?'
        )
    return wanted, list(dropped)


def take(
    line: Line, held: Held, shape: tuple[int, ...], where: str
) -> np.ndarray:
    """One of ours from what is held; ValueError: it has another shape."""
    parts = [_part(held.tensors, name) for name in line.theirs]
    try:
        array = np.ascontiguousarray(line.form.read(parts))
    except ValueError:
        array = np.empty(0)
    if array.shape != shape:
        raise ValueError(
            f'{where}: {" and ".join(line.theirs)} '
            f'{"has" if len(parts) == 1 else "have"} the shape '
            f'{" and ".join(str(part.shape) for part in parts)}, but the '
            f'configuration asks for {shape} as {line.ours}'
        )
    return array


def give(
    naming: Naming,
    tensors: Mapping[str, Any],
    layers: int,
    heads: int,
    rows: Sequence[str],
) -> dict[str, np.ndarray]:
    """Ours, by path, to theirs; ValueError: one has no name there."""
    # Without a head the encoder's names stand alone.
    prefix = naming.prefixes[0 if rows else -1]
    theirs, left = {}, set(tensors)
    for line in lines(naming, prefix, layers, rows):
        if line.ours not in tensors:
            continue
        left.discard(line.ours)
        parts = line.form.write(np.asarray(tensors[line.ours]), heads)
        for name, part in zip(line.theirs, parts, strict=True):
            theirs[name] = np.ascontiguousarray(part)
    if left:
        raise ValueError(f'there is no name for {_some(sorted(left))} there')
    return theirs


def _whole(name: str) -> str:
    """'r_w_bias[3]' -> 'r_w_bias'."""
    match = _PART.match(name)
    return match[1] if match else name


def _part(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """An array, or one layer's of one of all (untied biases: one for all)."""
    match = _PART.match(name)
    if not match:
        return tensors[name]
    array = tensors[match[1]]
    return array if array.ndim == 2 else array[int(match[2])]


def _begins(name: str, known: Any, layers: int) -> str | None:
    """Which of `known` a name begins with; `{i}` is any number."""
    for begin in known:
        pattern = re.escape(begin).replace(r'\{i\}', r'\d+')
        pattern = pattern.replace(r'\{last\}', str(layers + 4))
        if re.match(pattern, name):
            return begin
    return None


def _some(names: Sequence[str]) -> str:
    """The first three, and how many more."""
    more = f' and {len(names) - 3} more' if len(names) > 3 else ''
    return ', '.join(names[:3]) + more
