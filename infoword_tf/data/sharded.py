"""A prepared store: many token stores, one after the other, read as one.

    DIR/store.json        what it was made of, and its shards with checksums
    DIR/vocab.txt         or another tokenizer's file
    DIR/train/000000/...  token stores of `data.store`, one a shard
    DIR/train/documents.npy, counts.npy   of all shards together
    DIR/heldout/          one token store

Opening looks at no shard, whatever their number: one is mapped, and its bytes
are checked, when the first batch reads from it. All other files are checked
when the store is opened.

Glossary of shapes: N tokens, S shards, V vocabulary.
"""

import json
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import store as stores
from infoword_tf.data.store import Store

INDEX, VERSION = 'store.json', 1


class Shard(NamedTuple):
    """A shard, as the index has it.

    Attributes:
        name: of its folder.
        tokens, documents: how many it has.
        ids, flags: CRC-32 of these two files.
    """

    name: str
    tokens: int
    documents: int
    ids: int
    flags: int


class Array:
    """[N] entries of the files of all shards, as if they were one file.

    It takes what sources ask: a slice, or an integer array of any shape.
    """

    def __init__(
        self, folder: pathlib.Path, file: str, shards: Sequence[Shard],
        dtype: np.dtype,
    ):  # fmt: skip
        """Args: the folder of shards; 'ids' or 'flags'; its entries."""
        self.folder, self.file, self.dtype = folder, file, dtype
        self.shards = list(shards)
        self.ends = np.cumsum([shard.tokens for shard in shards])  # [S]
        self.opened: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()  # batches are made by two threads

    def __len__(self) -> int:
        """N."""
        return int(self.ends[-1])

    def part(self, number: int) -> np.ndarray:
        """[n] the entries of a shard.

        Raises:
            ValueError: its file is missing, cut or damaged.
        """
        with self._lock:
            if number not in self.opened:
                shard = self.shards[number]
                path = self.folder / shard.name / f'{self.file}.bin'
                size = shard.tokens * self.dtype.itemsize
                what = None
                if not path.is_file() or path.stat().st_size != size:
                    what = 'missing or cut'
                elif crc(path) != getattr(shard, self.file):
                    what = 'damaged: its bytes are not those that were written'
                if what is not None:
                    raise ValueError(
                        f'{path} is {what}; {_again(self.folder.parent)}'
                    )
                self.opened[number] = np.memmap(path, self.dtype, 'r')
            return self.opened[number]

    def __getitem__(self, place: slice | np.ndarray) -> np.ndarray:
        """What a NumPy array gives for it; places are 0 to N - 1."""
        if isinstance(place, slice):
            return self._slice(*place.indices(len(self)))
        place = np.asarray(place)
        flat = place.ravel()
        found = np.empty(len(flat), self.dtype)
        numbers = np.searchsorted(self.ends, flat, 'right')
        for number in np.unique(numbers):
            here = numbers == number
            begin = self.ends[number] - self.shards[number].tokens
            found[here] = self.part(number)[flat[here] - begin]
        return found.reshape(place.shape)

    def _slice(self, begin: int, end: int, step: int) -> np.ndarray:
        assert step == 1
        first = int(np.searchsorted(self.ends, begin, 'right'))
        parts = []
        while begin < end:
            start = int(self.ends[first]) - self.shards[first].tokens
            stop = min(end, int(self.ends[first]))
            parts.append(self.part(first)[begin - start : stop - start])
            begin, first = stop, first + 1
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)


def crc(path: pathlib.Path) -> int:
    """CRC-32 of a file's bytes."""
    return files.crc(files.chunks(path))


def _again(folder: pathlib.Path) -> str:
    return f'delete {folder} and prepare the text again'


class Opened(NamedTuple):
    """A prepared store.

    Attributes:
        folder: DIR.
        index: what store.json says.
    """

    folder: pathlib.Path
    index: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Changes when the text or the tokenizer does; the text's is in it."""
        return f'{self.index["fingerprint"]} {self.index["asked"]["text"]}'

    @property
    def arrays(self) -> tuple[Array, Array]:
        """Ids and flags of what is trained on."""
        shards = [Shard(*one) for one in self.index['shards']]
        dtypes = {'ids': self.index['dtype'], 'flags': 'uint8'}
        return tuple(
            Array(self.folder / 'train', file, shards, np.dtype(dtype))
            for file, dtype in dtypes.items()
        )

    def check(self) -> None:
        """Complains, with ValueError, of what is lost or damaged anywhere."""
        for array in self.arrays:
            for number in range(len(array.shards)):
                array.part(number)
        for name in self.index['files']:
            self._checked(name)

    def _checked(self, name: str) -> pathlib.Path:
        """A file that is no shard's."""
        path = self.folder / name
        if not path.is_file() or crc(path) != self.index['files'][name]:
            raise ValueError(
                f'{path} is missing or damaged: its bytes are not those that '
                f'were written; {_again(self.folder)}'
            )
        return path

    def tokenizer(self) -> Any:
        """That of its vocabulary; ValueError: the file is damaged."""
        self._checked(self.index['vocabulary'])
        return read_tokenizer(self.folder, self.index['tokenizer'])

    def stores(self, tokenizer: Any) -> tuple[Store, Store]:
        """What is trained on and what is held out.

        Args:
            tokenizer: the one it was made with, or an equal one.

        Raises:
            ValueError: a file is missing or damaged.
        """
        for name in self.index['files']:
            if name.startswith('heldout/'):
                self._checked(name)
        documents, counts = (
            np.load(self._checked(f'train/{name}.npy'), mmap_mode='r')
            for name in ('documents', 'counts')
        )
        train = Store(
            *self.arrays, documents, np.array(counts), self.folder / 'train',
            tokenizer.unk_id,
        )  # fmt: skip
        return train, stores.open_store(self.folder / 'heldout', tokenizer)


def read_tokenizer(folder: pathlib.Path, config: Mapping[str, Any]) -> Any:
    """The tokenizer whose file lies in a folder, of its config as JSON."""
    from infoword_tf.text.tokenizers import TOKENIZERS

    told = TokenizerConfig(**config)
    kind = TOKENIZERS[told.kind]
    return kind.read(folder / kind.file, told.lower_case, **told.options)


def open_prepared(folder: str | pathlib.Path) -> Opened:
    """Opens what `infoword_tf.prepare` made.

    Raises:
        ValueError: it is none, is not finished, or of another version.
    """
    if '://' in str(folder):
        raise ValueError(
            f'store:{folder} is no folder of this machine; copy it here '
            '(gsutil, rclone) or mount it (gcsfuse), and name that folder'
        )
    folder = pathlib.Path(folder).expanduser()
    path = folder / INDEX
    if not path.is_file():
        raise ValueError(
            f'store:{folder} is no prepared text: there is no {INDEX}; make '
            'one with `python -m infoword_tf.prepare`, or run the same '
            'command again if it was stopped'
        )
    try:
        index = json.loads(path.read_bytes())
        version = index['version']
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f'{path} is damaged ({error}); {_again(folder)}'
        ) from error
    if version != VERSION:
        raise ValueError(
            f'{path} is of version {version}, and this reads {VERSION}; '
            f'{_again(folder)}'
        )
    return Opened(folder, index)
