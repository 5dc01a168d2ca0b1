"""A prepared store: many token stores, one after the other, read as one.

    DIR/store.json        what it was made of, and its shards with checksums
    DIR/vocab.txt         or another tokenizer's file
    DIR/train/000000/...  token stores of `data.store`, one a shard
    DIR/train/documents.npy, counts.npy   of all shards together
    DIR/heldout/          one token store

Opening looks at no shard, whatever their number: one is mapped, and its bytes
are checked, when the first batch reads from it. All other files are checked
when the store is opened.

DIR may be elsewhere (gs://BUCKET/DIR). There nothing can be mapped: of shards
blocks are read and kept, as data/remote.py says, and all other files are copied
to the cache.

Glossary of shapes: N tokens, S shards, V vocabulary.
"""

import hashlib
import json
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import remote
from infoword_tf.data import store as stores
from infoword_tf.data.remote import Place
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
        self,
        folder: pathlib.Path | Place,
        file: str,
        shards: Sequence[Shard],
        dtype: np.dtype,
    ):
        """Args: the folder of shards; 'ids' or 'flags'; its entries."""
        self.folder, self.file, self.dtype = folder, file, dtype
        self.shards = list(shards)
        self.ends = np.cumsum([shard.tokens for shard in shards])  # [S]
        self.opened: dict[int, np.ndarray | remote.Entries] = {}
        self._lock = threading.Lock()  # batches are made by two threads

    def __len__(self) -> int:
        """N."""
        return int(self.ends[-1])

    def part(self, number: int) -> np.ndarray | remote.Entries:
        """[n] the entries of a shard.

        Raises:
            ValueError: its file is missing, cut or damaged.
        """
        with self._lock:
            if number not in self.opened:
                self.opened[number] = self._open(self.shards[number])
            return self.opened[number]

    def _open(self, shard: Shard) -> np.ndarray | remote.Entries:
        path = self.folder / shard.name / f'{self.file}.bin'
        size = shard.tokens * self.dtype.itemsize
        if remote.size(path) != size:
            raise ValueError(
                f'{path} is missing or cut; {_again(self.folder.parent)}'
            )
        found = None
        if isinstance(path, Place):
            found = remote.Entries(path, self.dtype, size)
        if (_crc(path) if found is None else found.crc) != getattr(
            shard, self.file
        ):
            raise ValueError(
                f'{path} is damaged: its bytes are not those that were '
                f'written; {_again(self.folder.parent)}'
            )
        return np.memmap(path, self.dtype, 'r') if found is None else found

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


def _crc(path: pathlib.Path | Place) -> int:
    """CRC-32 of a file's bytes."""
    return files.crc(remote.chunks(path))


def _again(folder: pathlib.Path | Place) -> str:
    return f'delete {folder} and prepare the text again'


def describe(folder: pathlib.Path) -> Shard:
    """A finished shard, for the index."""
    meta = json.loads((folder / 'meta.json').read_text())
    return Shard(
        folder.name,
        meta['tokens'],
        meta['documents'],
        _crc(folder / 'ids.bin'),
        _crc(folder / 'flags.bin'),
    )


def write_index(
    folder: pathlib.Path, shards: Sequence[Shard], more: Mapping[str, Any]
) -> dict[str, Any]:
    """Makes one store of finished shards; the index is written last.

    Args:
        folder: DIR, with train/ and heldout/ in it.
        shards: those of train/ that have a document, in order.
        more: what else the index says: fingerprint, identity (of the
            tokenizer), tokenizer, vocabulary (the name of its file), and what
            is for people.

    Returns:
        The index.
    """
    train = folder / 'train'
    counts: np.ndarray | int = 0
    begins, tokens = [], 0
    for shard in shards:
        counts = counts + files.read_integers(
            train / shard.name / 'counts.npy'
        )
        own = files.read_integers(train / shard.name / 'documents.npy')
        begins.append(own[:-1] + tokens)
        tokens += shard.tokens
    begins.append(np.array([tokens], np.int64))
    whole = {'counts': counts, 'documents': np.concatenate(begins)}
    for name, array in whole.items():
        with (
            files.written(train / f'{name}.npy') as partial,
            open(partial, 'wb') as file,
        ):
            np.save(file, array)
    meta = json.loads((train / shards[0].name / 'meta.json').read_text())
    others = [train / f'{name}.npy' for name in whole]
    others += sorted((folder / 'heldout').iterdir())
    index = {
        'version': VERSION,
        'dtype': meta['dtype'],
        'tokens': tokens,
        **more,
        'files': {
            str(path.relative_to(folder)): _crc(path)
            for path in [folder / more['vocabulary'], *others]
        },
        'shards': [list(shard) for shard in shards],
    }
    files.write_json(folder / INDEX, index)
    return index


class Opened(NamedTuple):
    """A prepared store.

    Attributes:
        folder: DIR.
        index: what store.json says.
        cache: where files of a store elsewhere are copied to.
    """

    folder: pathlib.Path | Place
    index: Mapping[str, Any]
    cache: pathlib.Path | None = None

    @property
    def fingerprint(self) -> str:
        """Changes when the text or the tokenizer does; the text's is in it."""
        return f'{self.index["fingerprint"]} {self.index["asked"]["text"]}'

    def check(self) -> None:
        """Complains, with ValueError, of what is lost or damaged anywhere."""
        train = self.folder / 'train'
        shards = [Shard(*one) for one in self.index['shards']]
        for file, dtype in (('ids', self.index['dtype']), ('flags', 'uint8')):
            array = Array(train, file, shards, np.dtype(dtype))
            for number in range(len(shards)):
                array.part(number)
        for name in self.index['files']:
            self._checked(name)

    def _checked(self, name: str) -> pathlib.Path:
        """A file that is no shard's, here."""
        path = self.folder / name
        found = self._copied(name) if isinstance(path, Place) else path
        if not found.is_file() or _crc(found) != self.index['files'][name]:
            raise ValueError(
                f'{path} is missing or damaged: its bytes are not those that '
                f'were written; {_again(self.folder)}'
            )
        return found

    def _copied(self, name: str) -> pathlib.Path:
        """Where the copy of a file is, if there is such a file."""
        key = hashlib.blake2b(
            json.dumps([self.fingerprint, self.index['files']]).encode(),
            digest_size=10,
        ).hexdigest()
        path, copy = self.folder / name, self.cache / 'prepared' / key / name
        lost = not copy.is_file() or _crc(copy) != self.index['files'][name]
        if lost and remote.size(path) is not None:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with files.written(copy) as partial, open(partial, 'wb') as file:
                file.writelines(remote.chunks(path))
        return copy

    def tokenizer(self) -> Any:
        """That of its vocabulary; ValueError: the file is damaged."""
        from infoword_tf.text.tokenizers import TOKENIZERS

        config = TokenizerConfig(**self.index['tokenizer'])
        kind = TOKENIZERS[config.kind]
        path = self._checked(self.index['vocabulary'])
        return kind.read(path, config.lower_case, **config.options)

    def stores(self, tokenizer: Any) -> tuple[Store, Store]:
        """What is trained on and what is held out.

        Args:
            tokenizer: the one it was made with, or an equal one.

        Raises:
            ValueError: a file is missing or damaged.
        """
        shards = [Shard(*one) for one in self.index['shards']]
        train = self.folder / 'train'
        whole = {
            name: np.load(self._checked(f'train/{name}.npy'), mmap_mode='r')
            for name in ('documents', 'counts')
        }
        for name in self.index['files']:
            if name.startswith('heldout/'):
                heldout = self._checked(name).parent
        dtype = np.dtype(self.index['dtype'])
        return (
            Store(
                Array(train, 'ids', shards, dtype),
                Array(train, 'flags', shards, np.dtype(np.uint8)),
                whole['documents'],
                np.array(whole['counts']),
                train,
                tokenizer.unk_id,
            ),
            stores.open_store(heldout, tokenizer),
        )


def open_prepared(
    folder: str | pathlib.Path, cache: pathlib.Path | None = None
) -> Opened:
    """Opens what `infoword_tf.prepare` made.

    Args:
        folder: of this machine, or a path that `tf.io.gfile` reads.
        cache: of the second kind, where small files are copied to.

    Raises:
        ValueError: it is none, is not finished, or of another version.
    """
    folder = remote.place(folder)
    path = folder / INDEX
    if remote.size(path) is None:
        raise ValueError(
            f'store:{folder} is no prepared text: there is no {INDEX}; make '
            'one with `python -m infoword_tf.prepare`, or run the same '
            'command again if it was stopped'
        )
    data = b''.join(remote.chunks(path))
    try:
        index = json.loads(data)
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
    return Opened(folder, index, cache)
