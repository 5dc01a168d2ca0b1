"""Answers of other people's programs, kept in files beside this one.

An oracle is a module here that runs such a program. `make oracles` runs them
again, in an environment of their own, and compares; the tests read the files
and need none of those programs. Nothing in this folder imports this project.

A file holds arrays by name, and a digest of them all.
"""

import argparse
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).parent
DIGEST = 'digest'
NEAR = 2e-6  # between two versions, or processors, of what is asked


def digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """[16] uint8, of names, kinds, shapes and bytes."""
    actual = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        actual.update(f'{name} {array.dtype.str} {array.shape}\n'.encode())
        actual.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(actual.digest(), np.uint8)


def as_bytes(value: Any) -> np.ndarray:
    """Writes JSON as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_bytes(array: np.ndarray) -> Any:
    """Reads what `as_bytes` wrote."""
    return json.loads(array.tobytes())


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays and their digest."""
    np.savez_compressed(path, **{DIGEST: digest(arrays)}, **arrays)


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises:
        ValueError: a number is not what was written.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if not np.array_equal(arrays.pop(DIGEST), digest(arrays)):
        raise ValueError(
            f'{path} is not what an oracle wrote; `make oracles WRITE=1` '
            'writes it anew'
        )
    return arrays


def compare(
    actual: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    near: float = NEAR,
) -> float:
    """The largest difference.

    Raises:
        ValueError: names, shapes or whole numbers differ, or others by more
            than `near`.
    """
    if set(actual) != set(expected):
        raise ValueError(f'names differ: {sorted(set(actual) ^ set(expected))}')
    largest = 0.0
    for name, array in expected.items():
        if array.shape != actual[name].shape:
            raise ValueError(f'{name}: {array.shape}, {actual[name].shape}')
        whole = array.dtype.kind != 'f'
        gap = float(np.abs(array - actual[name].astype(array.dtype)).max())
        if not gap <= (0 if whole else near):
            raise ValueError(f'{name} differs by {gap:.1e}')
        largest = max(largest, gap)
    return largest


def main(
    name: str,
    make: Callable[[], dict[str, np.ndarray]],
    load: Callable[[pathlib.Path], float] | None = None,
    near: float = NEAR,
    asked: str | None = None,
) -> None:
    """The command of an oracle: compares with its file, or writes it.

    With `load` it also takes --folders, which our converter wrote, and prints
    how far they are from what is expected at most.

    Args:
        name: of the file.
        make: returns what is in it.
        load: asks folders, and returns the largest difference.
        near: bound of `compare`.
        asked: what names of arrays that are no answers have in them.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument('--write', action='store_true', help='the file anew')
    if load:
        parser.add_argument('--folders', type=pathlib.Path)
    arguments = parser.parse_args()
    if load and arguments.folders:
        print(f'{load(arguments.folders):.1e} apart at most')
        return
    path = FOLDER / f'{name}.npz'
    arrays = make()
    if arguments.write:
        write(path, arrays)
        print(f'{path}: {path.stat().st_size / 1e3:.0f} kB')
    else:
        now, before = (
            {k: x for k, x in part.items() if not (asked and asked in k)}
            for part in (arrays, read(path))
        )
        print(f'{name}: {compare(now, before, near):.1e} apart at most')
