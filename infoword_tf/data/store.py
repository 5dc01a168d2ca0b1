"""The token store: a corpus as memory-mapped arrays, made once.

Documents lie one after the other, a [SEP] after each, so that a window of
text is one slice. A store is written beside its place and moved there when it
is whole; opening it compares its bytes with their checksums.

Files: `ids.bin` (uint16 or uint32) and `flags.bin` (uint8), one entry a token;
`documents.npy`, where each document begins (one more entry: the end);
`counts.npy`, how often each token of the vocabulary occurs; `meta.json`, which
has their checksums.

Glossary of shapes: W tokens of the text.
"""

import concurrent.futures
import contextlib
import errno
import fcntl
import itertools
import json
import operator
import os
import pathlib
import shutil
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.data.documents import Document, split_at_unknown

if TYPE_CHECKING:  # it imports this file
    from infoword_tf.data.sharded import ShardedArray

WORD_START, SENTENCE_START, SEPARATOR = 1, 2, 4
META, SUMS = 'meta.json', 'crc32'
_DTYPES = {'uint16': np.uint16, 'uint32': np.uint32}
# Errors of damaged JSON, and of the line of Python that a .npy begins with.
_DAMAGED = (
    KeyError, TypeError, AttributeError, RecursionError, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip
_SENTENCES_A_CALL = 4096
_BLOCK = 1 << 24  # flags looked at at once

# (ids [n] int32, flags [n] uint8, lengths of documents [m] int64) of whole
# documents in order, each with its closing [SEP].
Texts = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]


class Store(NamedTuple):
    """Opened token store.

    Attributes:
        ids: [W] memory-mapped ids, [SEP] after each document.
        flags: [W] uint8, a sum of WORD_START, SENTENCE_START and SEPARATOR; a
            separator counts as a word.
        documents: [documents + 1] int64 begins.
        counts: [V] int64, separators not counted.
        path: the folder.
        unk_id: id of [UNK]; None: the vocabulary has none.
        prompt: ids that stand before each sentence where it is a text of its
            own; not in files.
    """

    ids: 'np.ndarray | ShardedArray'
    flags: 'np.ndarray | ShardedArray'
    documents: np.ndarray
    counts: np.ndarray
    path: pathlib.Path
    unk_id: int | None = None
    prompt: Sequence[int] = ()


def crc(path: pathlib.Path) -> int:
    """Returns the CRC-32 of a file's bytes."""
    return files.crc(files.chunks(path))


def sentence_starts(store: Store) -> Iterator[np.ndarray]:
    """Yields places [n] int64 of first tokens of sentences, block by block."""
    for begin in range(0, len(store.flags), _BLOCK):
        flags = store.flags[begin : begin + _BLOCK]
        yield begin + np.flatnonzero(flags & SENTENCE_START)


def open_store(path: str | pathlib.Path, tokenizer: Any) -> Store:
    """Opens a token store that `write_store` made.

    Raises:
        ValueError: the folder is damaged, or is no token store.
    """
    path = pathlib.Path(path)
    name_read = META
    try:
        meta = json.loads((path / name_read).read_text())
        dtype = np.dtype(_DTYPES[meta['dtype']])
        tokens = operator.index(meta['tokens'])
        sums = dict(meta.get(SUMS, {}))  # stores of older code have none
        name_read = 'documents.npy'
        documents = files.read_integers(path / name_read)
        name_read = 'counts.npy'
        counts = files.read_integers(path / name_read)
    except (OSError, ValueError, EOFError, *_DAMAGED) as error:
        raise errors.InputError(
            'tokens_cannot_be_read',
            f'{path} is no whole token store: {name_read} cannot be read '
            f'({error}); delete the folder and run again',
        ) from error
    for name, size in (('ids', dtype.itemsize), ('flags', 1)):
        file = path / f'{name}.bin'
        if not file.is_file() or file.stat().st_size != size * tokens:
            raise errors.InputError(
                'tokens_cut',
                f'{file} is cut or missing, or {META} is damaged; delete '
                f'{path} and run again',
            )
    for name, value in sums.items():
        if crc(path / name) != value:
            raise errors.InputError(
                'tokens_damaged',
                f'{path / name} is damaged: its bytes are not those that were '
                f'written; delete {path} and run again',
            )
    return Store(
        ids=np.memmap(path / 'ids.bin', dtype, 'r'),
        flags=np.memmap(path / 'flags.bin', np.uint8, 'r'),
        documents=documents,
        counts=counts,
        path=path,
        unk_id=tokenizer.unk_id,
    )


def tokenized(documents: Iterable[Document], tokenizer: Any) -> Texts:
    """Tokenizes documents in large calls, two at a time.

    A word `<unk>` of the text is one [UNK].
    """

    def batches() -> Iterator[list[Document]]:
        batch: list[Document] = []
        sentences = 0
        for document in documents:
            batch.append(document)
            sentences += len(document.sentences)
            if sentences >= _SENTENCES_A_CALL:
                yield batch
                batch, sentences = [], 0
        if batch:
            yield batch

    def work(batch: list[Document]) -> tuple[np.ndarray, ...]:
        # After each string comes nothing (-1), [UNK], or, after an empty
        # string that closes each document, [SEP].
        strings: list[bytes] = []
        after: list[int] = []
        is_begin: list[bool] = []  # string with which a sentence begins
        for document in batch:
            for sentence in document.sentences:
                first, *others = split_at_unknown(sentence)
                strings.append(first.encode())
                is_begin.append(True)
                for other in others:
                    strings.append(other.encode())
                    after.append(unk_id)
                    is_begin.append(False)
                after.append(-1)
            strings.append(b'')
            after.append(tokenizer.sep_id)
            is_begin.append(False)
        flat = tokenizer.tokenize_flat(strings)
        begins, ends = flat.row_splits[:-1], flat.row_splits[1:]
        opens, added = np.array(is_begin), np.array(after)
        flags = flat.word_starts.astype(np.uint8) * WORD_START
        flags[begins[opens & (ends > begins)]] |= SENTENCE_START
        is_sep = added == tokenizer.sep_id
        more = np.where(is_sep, WORD_START | SEPARATOR, WORD_START)
        more[opens & (ends == begins) & ~is_sep] |= SENTENCE_START
        adds = added >= 0
        ids = np.insert(flat.ids, ends[adds], added[adds])
        flags = np.insert(flags, ends[adds], more[adds])
        closing = (ends[adds] + np.arange(adds.sum()))[is_sep[adds]]
        return ids, flags, np.diff(closing, prepend=-1)

    unk_id = tokenizer.unk_id

    # The tokenizer's kernel runs outside Python's lock: two calls at a time
    # use two cores, and reading goes on meanwhile.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting: list[concurrent.futures.Future] = []
        for batch in batches():
            waiting.append(pool.submit(work, batch))
            if len(waiting) > 3:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def write_store(
    path: str | pathlib.Path,
    documents: Iterable[Document],
    tokenizer: Any,
    progress: bool = True,
) -> Store:
    """Tokenizes documents into a new token store, whole or not at all.

    Raises:
        OSError: the disk is full (nothing is left behind).
    """
    return _write(path, tokenized(documents, tokenizer), tokenizer, progress)


def join(
    path: str | pathlib.Path,
    stores: Sequence[Store],
    limit: int | None,
    tokenizer: Any,
) -> Store:
    """Joins token stores into one of at most `limit` documents."""

    def texts() -> Texts:
        room = limit
        for store in stores:
            begins = store.documents
            if room is not None:
                begins = begins[: room + 1]
                room -= len(begins) - 1
            end = begins[-1]
            yield store.ids[:end], store.flags[:end], np.diff(begins)

    return _write(path, texts(), tokenizer, progress=False)


def _write(
    path: str | pathlib.Path,
    texts: Texts,
    tokenizer: Any,
    progress: bool,
) -> Store:
    """Writes texts into a new token store, and returns the store."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.uint16 if len(tokenizer) <= 2**16 else np.uint32
    _sweep(path)
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=path.name + '.', dir=path.parent)
    )
    holding = os.open(partial, os.O_RDONLY)
    try:
        _hold(holding)
        counts = np.zeros(len(tokenizer), np.int64)
        begins: list[np.ndarray] = []
        total = 0
        with (
            open(partial / 'ids.bin', 'wb') as ids_file,
            open(partial / 'flags.bin', 'wb') as flags_file,
            commands.bar(
                desc=f'tokenizing {path.name}',
                unit=' tokens',
                unit_scale=True,
                disable=not progress,
            ) as bar,
        ):
            for ids, flags, lengths in texts:
                text = ids[(flags & SEPARATOR) == 0]
                counts += np.bincount(text, minlength=len(counts))
                _append(ids_file, ids.astype(dtype))
                _append(flags_file, flags)
                # A document without a token (control characters alone) stays
                # as a lone [SEP], harmless and rare.
                begins.append(total + np.cumsum(lengths) - lengths)
                total += len(ids)
                bar.update(len(ids))
            for file in (ids_file, flags_file):
                file.flush()
                os.fsync(file.fileno())
        begin = np.concatenate([*begins, [total]]).astype(np.int64)
        np.save(partial / 'documents.npy', begin)
        np.save(partial / 'counts.npy', counts)
        meta = {
            'dtype': np.dtype(dtype).name,
            'tokens': total,
            'documents': len(begin) - 1,
            SUMS: {file.name: crc(file) for file in sorted(partial.iterdir())},
        }
        (partial / META).write_text(json.dumps(meta, indent=2) + '\n')
        partial.chmod(0o755)  # mkdtemp excludes other users; caches are shared
        try:
            os.rename(partial, path)
        except OSError as error:  # another process may have been first
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f'{path} could not be written ({error.strerror}); nothing was '
            'left there: make room, or name a folder elsewhere (that of the '
            'cache with INFOWORD_CACHE)',
        ) from error
    finally:
        os.close(holding)
        shutil.rmtree(partial, ignore_errors=True)
    return open_store(path, tokenizer)


def _hold(folder: int) -> bool:
    """Locks an opened folder; False: another process has, or none can."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(path: pathlib.Path) -> None:
    """Deletes half-written stores of killed processes."""
    for left in path.parent.glob(f'{path.name}.*/'):
        with contextlib.suppress(OSError):
            opened = os.open(left, os.O_RDONLY)
            try:
                if _hold(opened):
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(opened)


def _append(file: BinaryIO, array: np.ndarray) -> None:
    file.write(array.data)


def peek(documents: Iterable[Document], where: str) -> Iterator[Document]:
    """Returns the documents; ValueError (`where`): no document."""
    documents = iter(documents)
    first = next(documents, None)
    if first is None:
        raise errors.InputError('no_documents', where)
    return itertools.chain([first], documents)
