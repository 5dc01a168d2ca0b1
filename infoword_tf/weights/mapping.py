"""Weights under other names: of a public model to this project's, and back."""

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.critics import CRITICS
from infoword_tf.weights.names import Form, Naming, names_in, names_of
from infoword_tf.weights.tensors import Tensors

_ELEMENT = re.compile(r'(.*)\[(\d+)\]$')


class Line(NamedTuple):
    """A weight of infoword_tf and the counterparts in a public model.

    Attributes:
        ours: path of the weight.
        theirs: names of the counterparts.
        form: functions between both arrangements of arrays.
    """

    ours: str
    theirs: tuple[str, ...]
    form: Form


def lines(
    naming: Naming, prefix: str, layers: int, rows: Sequence[str]
) -> Iterator[Line]:
    """Yields all weights of a model with `layers` and the heads of rows, or of
    critics.
    """

    def line(
        ours: str,
        theirs: str | tuple[str, ...],
        form: Form,
        before: str = '',
        i: int = 0,
    ) -> Line:
        named = tuple(
            before + _fill(name, prefix, i) for name in names_of(theirs)
        )
        return Line(ours, named, form)

    for path, entry in naming.encoder.items():
        yield line(f'encoder/{path}', *entry, before=prefix)
    for i in range(layers):
        for path, entry in naming.layer.items():
            yield line(f'encoder/layer_{i}/{path}', *entry, before=prefix, i=i)
    for row in rows:
        for path, entry in naming.heads[row].items():
            yield line(f'{place_of(row)}/{path}', *entry)


def place_of(row: str) -> str:
    """Returns where the weights of a row lie, or of the head of a critic."""
    return row if row in CRITICS else f'objectives/{row}'


def _fill(name: str, prefix: str, i: int = 0) -> str:
    return name.format(p=prefix, i=i, i4=i + 4)


class PublicWeights(NamedTuple):
    """Weights of a public model.

    Attributes:
        tensors: arrays by name, older names replaced.
        prefix: beginning of the encoder's names.
        heads: names of the heads that are among them, as of `Naming`.
    """

    tensors: Mapping[str, np.ndarray]
    prefix: str
    heads: tuple[str, ...]


def find(naming: Naming, tensors: Tensors) -> PublicWeights:
    """Finds prefix and heads; ValueError: weights of another encoder."""
    readers: dict[str, Callable[[], np.ndarray]] = {}
    for name in tensors:
        now = name
        for old, new in naming.old.items():
            now = re.sub(old, new, now)
        read = functools.partial(tensors.__getitem__, name)
        readers |= _parts(naming, now, read)
    by_name = Tensors(readers, tensors.where)
    [first] = names_of(naming.encoder['word_embeddings'][0])
    for prefix in naming.prefixes:
        if prefix + first in by_name:
            break
    else:
        raise errors.InputError(
            'other_encoder_weights',
            f'{tensors.where} has no {first}: these are not the weights of '
            'such an encoder',
        )
    heads = []
    for name, head in naming.heads.items():
        # A head is there if a weight is there that no other head has.
        others = {
            theirs
            for other, lines_of in naming.heads.items()
            for theirs in names_in(lines_of)
            if other != name
        }
        names = [
            theirs
            for theirs in names_in(head)
            if '{p}' not in theirs and theirs not in others
        ]
        if any(_fill(theirs, prefix) in by_name for theirs in names):
            heads.append(name)
    return PublicWeights(by_name, prefix, tuple(heads))





def _parts(
    naming: Naming, name: str, read: Callable[[], np.ndarray]
) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that read an array, or all that are `fused`."""
    for pattern, parts in naming.fused.items():
        if re.search(pattern, name):
            return {
                re.sub(pattern, part, name): functools.partial(
                    _part, read, i, len(parts)
                )
                for i, part in enumerate(parts)
            }
    return {name: read}


def _part(
    read: Callable[[], np.ndarray], number: int, count: int
) -> np.ndarray:
    return np.split(read(), count)[number]


def match(
    naming: Naming,
    weights: PublicWeights,
    rows: Sequence[str],
    layers: int,
    paths: Collection[str],
    where: str,
) -> tuple[list[Line], list[str]]:
    """Matches every name on both sides.

    Args:
        naming: names of the weights, with heads by row (`Naming.at`).
        weights: the public ones.
        rows: rows, and critics, whose heads are among them.
        layers: L.
        paths: names of weights here.
        where: the file, for errors.

    Returns:
        A line for each of `paths`, and descriptions of what has no place
        here, such as heads that are not known.

    Raises:
        ValueError: missing names, or unknown ones of the encoder; a tied
            weight that differs.
    """
    matched = [
        line
        for line in lines(naming, weights.prefix, layers, rows)
        if line.ours in paths
    ]
    names = {_whole(name) for line in matched for name in line.theirs}
    if lacking := sorted(names - set(weights.tensors)):
        raise errors.InputError(
            'public_weights_lacking',
            f'{where} lacks {_listed(lacking)}; config.json asks for them',
        )
    if unmatched := sorted(set(paths) - {line.ours for line in matched}):
        raise errors.InputError(
            'unmatched_weights',
            f'{where} has no weights for {_listed(unmatched)}',
        )
    return matched, _surplus(naming, weights, names, layers, where=where)


def _surplus(
    naming: Naming,
    weights: PublicWeights,
    names: Collection[str],
    layers: int,
    where: str,
) -> list[str]:
    """Describes public weights without a counterpart.

    Args:
        naming: names of the weights.
        weights: the public ones.
        names: those that have a place.
        layers: L.
        where: the file, for errors.

    Raises:
        ValueError: an unknown name of the encoder; a tied weight that differs.
    """
    copies = {
        _fill(copy, weights.prefix): _fill(source, weights.prefix)
        for copy, source in naming.copies.items()
    }
    dropped: dict[str, None] = {}
    unknown = []
    for name in sorted(set(weights.tensors).difference(names)):
        if name in copies:
            if copies[name] not in names:
                unknown.append(name)
                continue
            if np.array_equal(
                weights.tensors[name], weights.tensors[copies[name]]
            ):
                continue
            if not _begins(name, naming.dropped, layers):
                raise errors.InputError(
                    'untied_copy',
                    f'{where}: {name} differs from {copies[name]}; untied '
                    'weights cannot be converted',
                )
        bare = name.removeprefix(weights.prefix)
        if _begins(bare, naming.ignored, layers) or _begins(
            name.split('/')[-1], ('adam_m', 'adam_v'), layers
        ):
            continue
        if beginning := _begins(bare, naming.dropped, layers):
            dropped[naming.dropped[beginning]] = None
        elif not name.startswith(weights.prefix):  # a head's alone
            dropped[f'the head {re.split("[./]", name)[0]}'] = None
        else:
            unknown.append(name)
    if unknown:
        raise errors.InputError(
            'unknown_public_weights',
            f'{where} has {_listed(unknown)}, which has no place here; '
            'is its model_type right?',
        )
    return list(dropped)


def read_weight(
    line: Line,
    weights: PublicWeights,
    shape: tuple[int, ...],
    heads: int,
    where: str,
) -> np.ndarray:
    """Reads a weight of infoword_tf; ValueError: another shape."""
    arrays = [_array(weights.tensors, name) for name in line.theirs]
    try:
        weight = np.ascontiguousarray(line.form.read(arrays))
    except ValueError:
        weight = None
    if weight is None or weight.shape != shape:
        asked = line.form.write(np.empty(shape, np.float32), heads)
        others = [
            f'{name} has the shape {array.shape} in the file, the '
            f'configuration asks for {other.shape}'
            for name, array, other in zip(
                line.theirs, arrays, asked, strict=True
            )
            if array.shape != other.shape
        ]
        raise errors.InputError(
            'public_weight_shape', f'{where}: {"; ".join(others)}'
        )
    return weight


def write(
    naming: Naming,
    tensors: Mapping[str, Any],
    layers: int,
    heads: int,
    rows: Sequence[str],
) -> dict[str, np.ndarray]:
    """Renames weights of infoword_tf, by path, for a public model.

    Raises:
        ValueError: a weight without a counterpart.
    """
    # Without a head the encoder's names have no prefix.
    prefix = naming.prefixes[0 if rows else -1]
    theirs, unnamed = {}, set(tensors)
    for line in lines(naming, prefix, layers, rows):
        if line.ours not in tensors:
            continue
        unnamed.discard(line.ours)
        arrays = line.form.write(np.asarray(tensors[line.ours]), heads)
        for name, array in zip(line.theirs, arrays, strict=True):
            theirs[name] = np.ascontiguousarray(array)
    if unnamed:
        raise errors.InputError(
            'unnamed_weights',
            f'there is no name for {_listed(sorted(unnamed))} there',
        )
    return theirs


def _whole(name: str) -> str:
    """Removes an index: 'r_w_bias[3]' becomes 'r_w_bias'."""
    matched = _ELEMENT.match(name)
    return matched[1] if matched else name


def _array(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Reads an array, or by an index one layer, unless layers share all."""
    matched = _ELEMENT.match(name)
    if not matched:
        return tensors[name]
    array = tensors[matched[1]]
    return array if array.ndim == 2 else array[int(matched[2])]


def _begins(name: str, known: Any, layers: int) -> str | None:
    """Returns the one of `known` that begins a name; `{i}` is any number."""
    for begin in known:
        pattern = re.escape(begin).replace(r'\{i\}', r'\d+')
        pattern = pattern.replace(r'\{last\}', str(layers + 4))
        if re.match(pattern, name):
            return begin
    return None


def _listed(names: Sequence[str]) -> str:
    """Lists three names, and how many more."""
    more = f' and {len(names) - 3} more' if len(names) > 3 else ''
    return ', '.join(names[:3]) + more
