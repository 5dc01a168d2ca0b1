"""Files elsewhere: gs://, hdfs://, and whatever else `tf.io.gfile` opens.

They cannot be mapped. What is small is copied once; of large files blocks are
read, and those that were used last are kept: so many bytes of all files
together, however large they are.

Glossary of shapes: N entries of a file.
"""

import collections
import concurrent.futures
import contextlib
import pathlib
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from infoword_tf import files

# Bytes that are read at once. Rows that go on from step to step read some
# hundred bytes of as many shards as there are rows: whole shards would be read
# anew for each of them.
BLOCK = 1 << 20
KEPT = 1 << 30  # bytes of blocks in memory
_CHUNK = 16 * BLOCK  # bytes that are copied at a time
_REQUESTS = 8  # made at a time: most of one is waiting


class Place:
    """A path with a scheme, and what stores ask of a `pathlib.Path`."""

    def __init__(self, path: str):
        """Args: as people write it."""
        self.path = path.rstrip('/')

    def __truediv__(self, name: str) -> 'Place':
        """What lies in it."""
        return Place(f'{self.path}/{name}')

    def __str__(self) -> str:
        """As people write it."""
        return self.path

    @property
    def parent(self) -> 'Place':
        """The folder that it lies in."""
        return Place(self.path.rpartition('/')[0])


def place(path: str | pathlib.Path) -> pathlib.Path | Place:
    """A path of this machine, or one with a scheme."""
    if '://' in str(path):
        return Place(str(path))
    return pathlib.Path(path).expanduser()


@contextlib.contextmanager
def _tensorflow(path: Place) -> Iterator[Any]:
    """TensorFlow, whose complaints about a file are of one sentence."""
    import tensorflow as tf

    try:
        yield tf
    except tf.errors.OpError as error:
        (why, *_) = error.message.splitlines() or [type(error).__name__]
        raise ValueError(f'{path} cannot be read ({why})') from None


def size(path: pathlib.Path | Place) -> int | None:
    """Bytes of a file; None: there is none.

    Raises:
        ValueError: nobody can tell, of one elsewhere.
    """
    if isinstance(path, pathlib.Path):
        return path.stat().st_size if path.is_file() else None
    with _tensorflow(path) as tf:
        try:
            found = tf.io.gfile.stat(str(path))
        except tf.errors.NotFoundError:
            return None
        return None if found.is_directory else found.length


def chunks(path: pathlib.Path | Place) -> Iterator[bytes]:
    """A file's bytes, in parts; ValueError: it is elsewhere and unreadable."""
    if isinstance(path, pathlib.Path):
        yield from files.chunks(path)
        return
    with (
        _tensorflow(path) as tf,
        tf.io.gfile.GFile(str(path), 'rb') as file,
    ):
        while chunk := file.read(_CHUNK):
            yield chunk


class Kept:
    """Blocks of files by key: those used last, of so many bytes at most."""

    def __init__(self) -> None:
        """With none."""
        self.blocks: collections.OrderedDict[Any, np.ndarray] = (
            collections.OrderedDict()
        )
        self.bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Any) -> np.ndarray | None:
        """A block, which then was used last; None: it is not kept."""
        with self._lock:
            if key in self.blocks:
                self.blocks.move_to_end(key)
            return self.blocks.get(key)

    def put(self, key: Any, block: np.ndarray) -> None:
        """Keeps a block, in place of those that were used longest ago."""
        with self._lock:
            if key not in self.blocks:
                self.blocks[key] = block
                self.bytes += block.nbytes
            while self.bytes > KEPT:
                _, oldest = self.blocks.popitem(last=False)
                self.bytes -= oldest.nbytes


kept = Kept()  # of this process, whatever it reads


class Entries:
    """[N] entries of a file elsewhere, as NumPy would map one of here.

    The whole file is read once, since its CRC is of all of it. What is read of
    it later is compared with what it was then.

    Attributes:
        crc: CRC-32 of the file, when it was looked at.
    """

    def __init__(self, path: Place, dtype: np.dtype, bytes_: int):
        """Args: the file; its entries; its size.

        Raises:
            ValueError: it cannot be read.
        """
        self.path, self.dtype, self.bytes = path, dtype, bytes_
        self.crcs: np.ndarray | None = None
        crcs, self.crc = [], 0
        count = -(-bytes_ // BLOCK)
        for begin in range(0, count, _REQUESTS):
            numbers = range(begin, min(begin + _REQUESTS, count))
            for block in self._blocks(numbers).values():
                crcs.append(zlib.crc32(block))
                self.crc = zlib.crc32(block, self.crc)
        self.crcs = np.array(crcs, np.uint32)

    def __getitem__(self, at: slice | np.ndarray) -> np.ndarray:
        """What a NumPy array gives for places of 0 to N - 1; step 1."""
        each = BLOCK // self.dtype.itemsize
        if isinstance(at, slice):
            if at.start >= at.stop:
                return np.empty(0, self.dtype)
            first = at.start // each
            found = self._blocks(range(first, (at.stop - 1) // each + 1))
            whole = np.concatenate(list(found.values())).view(self.dtype)
            return whole[at.start - first * each : at.stop - first * each]
        entries = np.empty(len(at), self.dtype)
        numbers = at // each
        found = self._blocks(np.unique(numbers).tolist())
        for number, block in found.items():
            here = numbers == number
            entries[here] = block.view(self.dtype)[at[here] - number * each]
        return entries

    def _blocks(self, numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """By number, uint8; those that are not kept are read."""
        found = {n: kept.get((self, n)) for n in numbers}
        lacking = [number for number, block in found.items() if block is None]
        if lacking:
            with concurrent.futures.ThreadPoolExecutor(
                min(_REQUESTS, len(lacking))
            ) as pool:
                found |= zip(
                    lacking, pool.map(self._read, lacking), strict=True
                )
        return found

    def _read(self, number: int) -> np.ndarray:
        with (
            _tensorflow(self.path) as tf,
            tf.io.gfile.GFile(str(self.path), 'rb') as file,
        ):
            file.seek(number * BLOCK)
            block = np.frombuffer(file.read(BLOCK), np.uint8)
        if self.crcs is not None and zlib.crc32(block) != self.crcs[number]:
            raise ValueError(
                f'{self.path} has changed while it was read; leave it alone'
            )
        kept.put((self, number), block)
        return block
