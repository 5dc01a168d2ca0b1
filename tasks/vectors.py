"""Vectors of documents on disk, so that more of them than memory are searched.

Glossary of shapes: n vectors, D width, m vectors of a block.
"""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np


class VectorFile:
    """[n, D] in a .npy that grows by blocks.

    It holds whole blocks at any time: its header counts a block when that is
    on the disk, so whoever was stopped goes on after the last one.

    Attributes:
        path: of the file; there is none while n is 0.
        rows: n.
        dtype: of the numbers.
    """

    def __init__(self, path: pathlib.Path, dtype: Any = np.float32):
        """Opens a file to go on with, or begins one."""
        self.path, self.rows = path, 0
        self.dtype = np.dtype(dtype)
        self._map: np.ndarray | None = None
        if path.is_file() and path.stat().st_size:
            self.rows = len(self._mapped())

    def append(self, vectors: np.ndarray) -> None:
        """Adds a block [m, D].

        Raises:
            ValueError: D is not that of the blocks before.
        """
        vectors = np.ascontiguousarray(vectors, self.dtype)
        width = vectors.shape[1]
        if self.rows and self._mapped().shape[1] != width:
            raise ValueError(
                f'{self.path} holds vectors of {self._mapped().shape[1]} '
                f'numbers, these have {width}'
            )
        rows = self.rows + len(vectors)
        with open(self.path, 'r+b' if self.rows else 'w+b') as file:
            begin = _write_header(file, (self.rows, width), self.dtype)
            file.seek(begin + self.dtype.itemsize * width * self.rows)
            file.write(vectors.reshape(-1).view(np.uint8))
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
            _write_header(file, (rows, width), self.dtype)
        self.rows, self._map = rows, None

    def read(self, begin: int, end: int) -> np.ndarray:
        """[end - begin, D], read from the disk when it is used."""
        return self._mapped()[begin:end]

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Those of some numbers [m], in memory: [m, D]."""
        # A map of its own: pages that were read do not add up.
        return np.load(self.path, mmap_mode='r')[numbers]

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All of them, at most `size` at a time: [m, D].

        They share memory: each holds until the next one is asked for.

        Raises:
            ValueError: the file has become shorter.
        """
        if not self.rows:
            return
        whole = self._mapped()
        buffer = np.empty([min(size, self.rows), whole.shape[1]], self.dtype)
        with open(self.path, 'rb', buffering=0) as file:
            file.seek(whole.offset)
            for begin in range(0, self.rows, size):
                block = buffer[: self.rows - begin]
                rest = memoryview(block).cast('B')
                while rest:
                    if not (read := file.readinto(rest)):
                        raise ValueError(f'{self.path} has become shorter')
                    rest = rest[read:]
                yield block

    def _mapped(self) -> np.ndarray:
        if self._map is None:
            self._map = np.load(self.path, mmap_mode='r')
        return self._map


def _write_header(
    file: BinaryIO, shape: tuple[int, int], dtype: np.dtype
) -> int:
    """Says at its beginning how many rows a file has; returns its own size.

    That is the same for all n: NumPy leaves room for arrays that grow.
    """
    file.seek(0)
    np.lib.format.write_array_header_1_0(
        file, {'descr': dtype.str, 'fortran_order': False, 'shape': shape}
    )
    return file.tell()


def digest(
    folder: pathlib.Path, paths: Iterable[pathlib.Path] | None = None
) -> str:
    """32 hex digits that change when files below a folder do; None: any."""
    if paths is None:
        paths = (p for p in folder.rglob('*') if p.is_file())
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted(paths):
        hashed.update(path.relative_to(folder).as_posix().encode())
        with open(path, 'rb') as file:
            hashed.update(hashlib.file_digest(file, 'blake2b').digest())
    return hashed.hexdigest()
