"""Prepared stores: many token stores, one after the other, read as one.

    DIR/store.json        what it was made of, and its shards with checksums
    DIR/vocab.txt         or another tokenizer's file
    DIR/train/000000/...  token stores of `data.store`, one a shard
    DIR/train/documents.npy, counts.npy   of all shards together
    DIR/heldout/          one token store

Opening looks at no shard, whatever their number: a shard is mapped, and its
bytes are checked, when the first batch reads from it. All other files are
checked when the store is opened.

Glossary of shapes: W tokens, S shards.
"""

import dataclasses
import json
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import store as stores
from infoword_tf.data.store import Store, crc

INDEX, VERSION = 'store.json', 1


class Shard(NamedTuple):
    """Entry of the index for a shard.

    Attributes:
        name: last part of its folder.
        tokens, documents: numbers of both.
        ids, flags: CRC-32 of these two files.
    """

    name: str
    tokens: int
    documents: int
    ids: int
    flags: int


class ShardedArray:
    """Files of all shards, as one array [W].

    Takes a slice, or an integer array of any shape.
    """

    def __init__(
        self, folder: pathlib.Path, file: str, shards: Sequence[Shard],
        dtype: np.dtype,
    ):  # fmt: skip
        """Reads `file`, 'ids' or 'flags', of the shards in a folder."""
        self.folder, self.file, self.dtype = folder, file, dtype
        self.shards = list(shards)
        self.ends = np.cumsum([shard.tokens for shard in shards])  # [S]
        self.opened: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()  # batches are made by two threads

    def __len__(self) -> int:
        """Returns W."""
        return int(self.ends[-1])

    def shard(self, number: int) -> np.ndarray:
        """Returns the entries of a shard, [n].

        Raises:
            ValueError: its file is missing or damaged.
        """
        with self._lock:
            if number not in self.opened:
                shard = self.shards[number]
                path = self.folder / shard.name / f'{self.file}.bin'
                size = shard.tokens * self.dtype.itemsize
                fault = None
                if not path.is_file() or path.stat().st_size != size:
                    fault = 'missing or cut'
                elif crc(path) != getattr(shard, self.file):
                    fault = 'damaged: its bytes are not those that were written'
                if fault is not None:
                    raise errors.InputError(
                        'shard_damaged',
                        f'{path} is {fault}; {_remedy(self.folder.parent)}',
                    )
                self.opened[number] = np.memmap(path, self.dtype, 'r')
            return self.opened[number]

    def __getitem__(self, place: slice | np.ndarray) -> np.ndarray:
        """Returns entries, as a NumPy array does; places are 0 to W - 1."""
        if isinstance(place, slice):
            return self._slice(*place.indices(len(self)))
        place = np.asarray(place)
        flat = place.ravel()
        entries = np.empty(len(flat), self.dtype)
        numbers = np.searchsorted(self.ends, flat, 'right')
        for number in np.unique(numbers):
            is_here = numbers == number
            begin = self.ends[number] - self.shards[number].tokens
            entries[is_here] = self.shard(number)[flat[is_here] - begin]
        return entries.reshape(place.shape)

    def _slice(self, begin: int, end: int, step: int) -> np.ndarray:
        assert step == 1
        first = int(np.searchsorted(self.ends, begin, 'right'))
        slices = []
        while begin < end:
            start = int(self.ends[first]) - self.shards[first].tokens
            stop = min(end, int(self.ends[first]))
            slices.append(self.shard(first)[begin - start : stop - start])
            begin, first = stop, first + 1
        return np.concatenate(slices) if slices else np.empty(0, self.dtype)


def _remedy(folder: pathlib.Path) -> str:
    return f'delete {folder} and prepare the text again'


@dataclasses.dataclass(frozen=True)
class PreparedStore:
    """Prepared store.

    Attributes:
        folder: DIR.
        index: content of store.json.
    """

    folder: pathlib.Path
    index: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of store and text."""
        return f'{self.index["fingerprint"]} {self.index["asked"]["text"]}'

    @property
    def arrays(self) -> tuple[ShardedArray, ShardedArray]:
        """Ids and flags of the training text."""
        shards = [Shard(*fields) for fields in self.index['shards']]
        ids, flags = (
            ShardedArray(self.folder / 'train', file, shards, np.dtype(dtype))
            for file, dtype in (('ids', self.index['dtype']),
                                ('flags', 'uint8'))
        )  # fmt: skip
        return ids, flags

    def check(self) -> None:
        """Checks all bytes; ValueError: a file is missing or damaged."""
        for array in self.arrays:
            for number in range(len(array.shards)):
                array.shard(number)
        for name in self.index['files']:
            self._checked(name)

    def _checked(self, name: str) -> pathlib.Path:
        """Returns the path of a file after a check of all bytes."""
        path = self.folder / name
        if not path.is_file() or crc(path) != self.index['files'][name]:
            raise errors.InputError(
                'store_file_damaged',
                f'{path} is missing or damaged: its bytes are not those that '
                f'were written; {_remedy(self.folder)}',
            )
        return path

    def tokenizer(self) -> Any:
        """Reads the tokenizer; ValueError: the file is damaged."""
        self._checked(self.index['vocabulary'])
        return read_tokenizer(self.folder, self.index['tokenizer'])

    def stores(self, tokenizer: Any) -> tuple[Store, Store]:
        """Opens the training and the held-out store with a tokenizer."""
        for name in self.index['files']:
            if name.startswith('heldout/'):
                self._checked(name)
        documents, counts = (
            np.load(self._checked(f'train/{name}.npy'), mmap_mode='r')
            for name in ('documents', 'counts')
        )
        ids, flags = self.arrays
        train = Store(
            ids,
            flags,
            documents=documents,
            counts=np.array(counts),
            path=self.folder / 'train',
            unk_id=tokenizer.unk_id,
        )
        return train, stores.open_store(self.folder / 'heldout', tokenizer)


def read_tokenizer(folder: pathlib.Path, config: Mapping[str, Any]) -> Any:
    """Reads the tokenizer in a folder, described by `TokenizerConfig`."""
    from infoword_tf.text.tokenizers import TOKENIZERS

    read = TokenizerConfig(**config)
    kind = TOKENIZERS[read.kind]
    return kind.read(folder / kind.file, read.lower_case, **read.options)


def open_prepared(folder: str | pathlib.Path) -> PreparedStore:
    """Opens a prepared store.

    Raises:
        ValueError: the folder is no prepared store, unfinished, or of another
            version.
    """
    if '://' in str(folder):
        raise errors.InputError(
            'store_not_here',
            f'store:{folder} is no folder of this machine; copy it here '
            '(gsutil, rclone) or mount it (gcsfuse), and name that folder',
        )
    folder = pathlib.Path(folder).expanduser()
    path = folder / INDEX
    if not path.is_file():
        raise errors.InputError(
            'store_not_prepared',
            f'store:{folder} is no prepared text: there is no {INDEX}; make '
            'one with `python -m infoword_tf.prepare`, or run the same '
            'command again if it was stopped',
        )
    try:
        index = json.loads(path.read_bytes())
        version = index['version']
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise errors.InputError(
            'store_index_damaged',
            f'{path} is damaged ({error}); {_remedy(folder)}',
        ) from error
    if version != VERSION:
        raise errors.InputError(
            'store_other_version',
            f'{path} is of version {version}, and this reads {VERSION}; '
            f'{_remedy(folder)}',
        )
    return PreparedStore(folder, index)
