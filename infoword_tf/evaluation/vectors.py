"""Vectors of texts on disk, for searches that do not fit into memory."""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.critics import CRITICS
from infoword_tf.critics.texts import (
    Texts,
    Tokens,
    flat,
    numbers_of,
    restored,
)
from infoword_tf.evaluation import ranking

VECTORS = 'cosine'  # the critic whose texts are vectors
BLOCK = 1024  # texts of `EncodedTexts` that are encoded and written at once


class VectorFile:
    """A .npy of [n, D] float32 that grows by blocks.

    Its header counts a block only when that is on the disk, so a command that
    was stopped goes on after the last whole block.

    Attributes:
        path: name of the file, which does not exist while n is 0.
        rows: n.
    """

    def __init__(self, path: pathlib.Path):
        """Opens a file to append to, or a new one."""
        self.path, self.rows = path, 0
        self._map: np.ndarray | None = None
        if path.is_file() and path.stat().st_size:
            self.rows = len(self._mapped())

    def append(self, vectors: np.ndarray) -> None:
        """Appends a block [m, D].

        Raises:
            ValueError: the blocks before have another D.
        """
        vectors = np.ascontiguousarray(vectors, np.float32)
        width = vectors.shape[1]
        if self.rows and self._mapped().shape[1] != width:
            raise errors.InputError(
                'vectors_other_width',
                f'{self.path} holds vectors of {self._mapped().shape[1]} '
                f'numbers, these have {width}',
            )
        rows = self.rows + len(vectors)
        with open(self.path, 'r+b' if self.rows else 'w+b') as file:
            begin = _write_header(file, (self.rows, width))
            file.seek(begin + vectors.itemsize * width * self.rows)
            file.write(vectors.reshape(-1).view(np.uint8).data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
            _write_header(file, (rows, width))
        self.rows, self._map = rows, None

    def read(self, begin: int, end: int) -> np.ndarray:
        """Returns [end - begin, D], memory-mapped."""
        return self._mapped()[begin:end]

    def _mapped(self) -> np.ndarray:
        if self._map is None:
            self._map = np.load(self.path, mmap_mode='r')
        return self._map


class TokenFile:
    """Texts of the critics `late` and `lexical`, which grows by blocks.

    Two files: the numbers of all tokens as in `Tokens`, and in NAME-sizes.npy
    how many tokens a text has, which is written last.

    Attributes:
        path: file of the numbers.
    """

    def __init__(self, path: pathlib.Path):
        """Opens two files to append to, or makes both."""
        self.path = path
        self._sizes = VectorFile(path.with_stem(f'{path.stem}-sizes'))
        self._tokens = VectorFile(path)
        self._ends = np.zeros(1, np.int64)
        if self._sizes.rows:
            self._count(self._sizes.read(0, self._sizes.rows))
        # Of a block that was stopped the tokens are written again.
        self._tokens.rows = int(self._ends[-1])

    def _count(self, sizes: np.ndarray) -> None:
        more = self._ends[-1] + np.cumsum(sizes[:, 0], dtype=np.int64)
        self._ends = np.append(self._ends, more)

    @property
    def rows(self) -> int:
        """Number of texts."""
        return self._sizes.rows

    def append(self, texts: Texts) -> None:
        """Appends a block; errors as of `VectorFile.append`."""
        texts = flat(texts)
        sizes = texts.sizes[:, None]
        self._tokens.append(texts.vectors)
        self._sizes.append(sizes)
        self._count(sizes)

    def read(self, begin: int, end: int) -> Tokens:
        """Returns a part, memory-mapped; see `restored` of critics/texts.py."""
        ends = self._ends[begin : end + 1]
        return Tokens(self._tokens.read(ends[0], ends[-1]), np.diff(ends))


def file_of(path: pathlib.Path, critic: str) -> VectorFile | TokenFile:
    """Opens or makes the file of texts of a critic."""
    kind = VectorFile if CRITICS[critic].of_vectors else TokenFile
    return kind(path)


class EncodedTexts:
    """Texts of a folder that are encoded once: texts.jsonl and vectors.npy.

    Attributes:
        texts: strings in the order of their vectors.
    """

    def __init__(self, folder: pathlib.Path, critic: str):
        """Opens the files, or begins new files."""
        self._path = folder / 'texts.jsonl'
        self._vectors = file_of(folder / 'vectors.npy', critic)
        lines = []
        if self._vectors.rows:
            lines = self._path.read_text().split('\n')[:-1]
        # Of a block that was stopped the vectors are missing.
        self.texts = [json.loads(x) for x in lines[: self._vectors.rows]]

    def add(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str], str | None], Texts],
    ) -> None:
        """Encodes and appends texts, block by block.

        Raises:
            ValueError: the encoder made a vector that is not finite.
        """
        with files.written(self._path) as partial:
            partial.write_text(_lines(self.texts))
        with commands.bar(
            total=len(texts), desc='encoding', unit=' passages'
        ) as bar:
            for begin in range(0, len(texts), BLOCK):
                block = list(texts[begin : begin + BLOCK])
                vectors = encode(block, 'passage')
                ranking.finite(numbers_of(vectors), np.float32)
                with open(self._path, 'a') as file:
                    file.write(_lines(block))
                self._vectors.append(vectors)
                self.texts += block
                bar.update(len(block))

    def read(self, places: np.ndarray, queries: Texts) -> Texts:
        """Reads texts of the critic of queries, by place."""
        texts = self._vectors.read(0, self._vectors.rows)[places]
        return restored(texts, queries)


def _lines(texts: Iterable[str]) -> str:
    return ''.join(f'{json.dumps(text)}\n' for text in texts)


def _write_header(file: BinaryIO, shape: tuple[int, int]) -> int:
    """Writes the header of a .npy; returns the header's size in bytes.

    The size is the same for all n: NumPy leaves room for arrays that grow.
    """
    file.seek(0)
    np.lib.format.write_array_header_1_0(
        file, {'descr': '<f4', 'fortran_order': False, 'shape': shape}
    )
    return file.tell()


def digest(
    folder: pathlib.Path, paths: Iterable[pathlib.Path] | None = None
) -> str:
    """Hashes `paths` in a folder, or all files of the folder: 32 hex digits."""
    if paths is None:
        paths = (p for p in folder.rglob('*') if p.is_file())
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted(paths):
        hashed.update(path.relative_to(folder).as_posix().encode())
        with open(path, 'rb') as file:
            hashed.update(hashlib.file_digest(file, 'blake2b').digest())
    return hashed.hexdigest()
