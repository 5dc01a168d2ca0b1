"""Files: locks, writes that are whole or absent, named arrays.

Files that are only read may be of the Hugging Face Hub.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from infoword_tf import errors

_UMASK_LOCK = threading.Lock()
DIGEST = 'blake2b'  # key of a file's metadata
_BUFFER = 1 << 18  # bytes that a reader takes at once
_CHUNK = 1 << 24  # bytes that are summed at a time
_DTYPES = {
    'bool': 'BOOL', 'uint8': 'U8', 'int8': 'I8', 'int16': 'I16',
    'int32': 'I32', 'int64': 'I64', 'float16': 'F16', 'float32': 'F32',
    'float64': 'F64', 'bfloat16': 'BF16', 'uint16': 'U16', 'uint32': 'U32',
    'uint64': 'U64',
}  # fmt: skip


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Locks a workdir for one run, and deletes half-written files.

    Raises:
        RuntimeError: another run holds it, or it is a file.
    """
    if workdir.is_file():
        raise RuntimeError(f'{workdir} is a file; name a folder')
    workdir.mkdir(parents=True, exist_ok=True)
    with open(workdir / '.lock', 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f'{workdir}: another run is writing to it; wait for it, stop '
                'it, or give this one a folder of its own'
            ) from None
        for partial in workdir.glob('.*.[0-9]*'):  # as `written` calls them
            partial.unlink()
        yield


def cache_dir() -> pathlib.Path:
    """Returns $INFOWORD_CACHE, or infoword_tf in the user's cache folder."""
    if path := os.environ.get('INFOWORD_CACHE'):
        return pathlib.Path(path).expanduser()
    parent = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return pathlib.Path(parent).expanduser() / 'infoword_tf'


def is_of_hub(name: str | os.PathLike) -> bool:
    """Tells whether a name is of the Hugging Face Hub (hub.py).

    A path may have lost a slash of hf://.
    """
    return os.fspath(name).startswith('hf:/')


def open_file(path: pathlib.Path, buffer: int = _BUFFER) -> BinaryIO:
    """Opens a file to read, also one that `hub.files_of` has listed.

    Args:
        path: name of the file.
        buffer: bytes of the Hub's that are read at once; fewer where only parts
            are read.
    """
    if not is_of_hub(path):
        return open(path, 'rb')
    from infoword_tf import hub

    return hub.open_file(path, buffer)


def size_of(path: pathlib.Path) -> int:
    """Returns the bytes of a file, also of one that `hub.files_of` has listed.
    """
    if not is_of_hub(path):
        return path.stat().st_size
    from infoword_tf import hub

    return hub.size_of(path)


def cpus() -> int:
    """Returns the number of CPUs that the process may use."""
    if hasattr(os, 'sched_getaffinity'):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _umask() -> int:
    # The mask can only be read by setting it: another thread would read 0.
    with _UMASK_LOCK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


@contextlib.contextmanager
def written(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a temporary path, which becomes `path` unless an error occurs.

    Raises:
        OSError: such as a full disk; `path` is then as before, and the
            temporary file is deleted.
    """
    # Processes of several machines may have the same number.
    suffix = f'{os.getpid()}.{secrets.token_hex(3)}'
    partial = path.with_name(f'.{path.name}.{suffix}')
    try:
        yield partial
        with open(partial, 'rb') as file:
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # a library may have made it 0600
        os.replace(partial, path)
    except OSError as error:
        raise OSError(
            error.errno,
            f'{path} could not be written ({error.strerror or error}); '
            'nothing that was there is lost: make room and run the same '
            'command again',
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads an object; ValueError: the file holds none."""
    try:
        value = json.loads(path.read_text(encoding='utf-8-sig'))
    except (ValueError, RecursionError) as error:
        raise errors.InputError(
            'file_no_json', f'{path} is no JSON: {error}'
        ) from None
    if not isinstance(value, dict):
        raise errors.InputError('file_no_object', f'{path} holds no object')
    return value


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON, whole or not at all."""
    with written(path) as partial:
        partial.write_text(json.dumps(value, indent=2) + '\n')


def read_integers(path: pathlib.Path) -> np.ndarray:
    """Reads integers [n] of a .npy.

    Raises:
        ValueError: other content, or a truncated file, for which no memory is
            allocated.
    """
    try:
        array = np.load(path, mmap_mode='r')
    except (OverflowError, MemoryError) as error:
        raise errors.InputError(
            'damaged_integers', f'{path} is damaged: {error}'
        ) from None
    if array.ndim != 1 or array.dtype.kind not in 'iu':
        raise errors.InputError(
            'file_no_integers',
            f'{path} holds {array.dtype} {list(array.shape)}, not integers in '
            'one dimension',
        )
    return np.array(array)


def write_tensors(
    path: pathlib.Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes named arrays and a digest, whole or not at all.

    Equal arrays give equal bytes: the header has no metadata but the digest,
    or `metadata` in place of it. Variables are read one by one.
    """
    header: dict[str, Any] = {
        '__metadata__': dict(metadata or {DIGEST: _digest(tensors)})
    }
    end = 0
    for name in sorted(tensors):
        array = np.asarray(tensors[name])
        begin, end = end, end + array.nbytes
        header[name] = {
            'dtype': _DTYPES[array.dtype.name],
            'shape': array.shape,
            'data_offsets': [begin, end],
        }
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    # Written by hand, since the library needs all arrays at once, a second
    # copy of all variables, and orders metadata randomly. Without this, call
    # safetensors.numpy.save_file: files are then not equal byte by byte.
    with written(path) as partial, open(partial, 'wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text)
        for name in sorted(tensors):
            array = np.ascontiguousarray(tensors[name])
            file.write(array.reshape(-1).view(np.uint8).data)


@contextlib.contextmanager
def _safetensors(path: pathlib.Path) -> Iterator[Any]:
    """Opens a file of arrays; ValueError: a truncated or other file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, 'numpy') as file:
            yield file
    except SafetensorError as error:
        raise errors.InputError(
            'unreadable_tensors', f'{path} cannot be read ({error})'
        ) from error


def read_tensor(path: pathlib.Path, name: str) -> np.ndarray | None:
    """Reads one array, unchecked, or None; ValueError: a truncated file."""
    with _safetensors(path) as file:
        return file.get_tensor(name) if name in file.keys() else None


def _read_named(path: pathlib.Path, name: str) -> np.ndarray:
    """Reads one array that a file has, unchecked."""
    with _safetensors(path) as file:
        return file.get_tensor(name)


class Unread(Mapping[str, np.ndarray]):
    """Arrays by name, each of which is read at every access.

    Attributes:
        readers: functions that read them, by name.
    """

    def __init__(self, readers: Mapping[str, Callable[[], np.ndarray]]):
        """Stores the functions."""
        self.readers = dict(readers)

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads an array."""
        return np.asarray(self.readers[name]())

    def __iter__(self) -> Iterator[str]:
        """Iterates over names."""
        return iter(self.readers)

    def __len__(self) -> int:
        """Counts the arrays."""
        return len(self.readers)

    def where(self, condition: Callable[[str], bool]) -> 'Unread':
        """Returns the arrays whose names meet a condition."""
        return Unread({k: x for k, x in self.readers.items() if condition(k)})


def read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads named arrays; ValueError: a truncated, damaged or other file."""
    return _undamaged(path, dict)


def open_tensors(path: pathlib.Path) -> Unread:
    """Opens named arrays; errors as of `read_tensors`.

    All are read for their digest, and again at each access: not two of them
    are in memory at the same time.
    """
    return _undamaged(path, lambda unread: unread)


def _undamaged(path: pathlib.Path, hold: Callable[[Unread], Any]) -> Any:
    """Opens named arrays, applies `hold`, and compares the digest."""
    with _safetensors(path) as file:
        metadata, names = file.metadata() or {}, list(file.keys())
    readers = {n: functools.partial(_read_named, path, n) for n in names}
    tensors = hold(Unread(readers))
    # A file that another library wrote has no digest.
    if metadata.get(DIGEST, digest := _digest(tensors)) != digest:
        raise errors.InputError(
            'damaged_tensors',
            f'{path} is damaged: its numbers are not those that were '
            'written; take it from a backup, or train again',
        )
    return tensors


def chunks(path: pathlib.Path) -> Iterator[bytes]:
    """Yields the bytes of a file in chunks."""
    with open(path, 'rb') as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def crc(parts: Iterable[bytes]) -> int:
    """Computes CRC-32 of bytes that come in chunks."""
    value = 0
    for chunk in parts:
        value = zlib.crc32(chunk, value)
    return value


def digest_of(path: pathlib.Path) -> str:
    """Hashes the bytes of a file."""
    hashed = hashlib.blake2b(digest_size=10)
    for chunk in chunks(path):
        hashed.update(chunk)
    return hashed.hexdigest()


def _digest(tensors: Mapping[str, Any]) -> str:
    """Hashes names, shapes and bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        hashed.update(f'{name} {array.dtype} {array.shape}'.encode())
        hashed.update(array.reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def assign(
    variables: Mapping[str, Any], tensors: Mapping[str, np.ndarray], where: str
) -> None:
    """Sets variables from arrays; ValueError: paths or shapes differ."""
    missing = sorted(set(variables) - set(tensors))
    surplus = sorted(set(tensors) - set(variables))
    if missing or surplus:
        raise errors.InputError(
            'other_weights',
            f'{where} does not fit the model: it lacks {missing[:3]} and has '
            f'{surplus[:3]} besides',
        )
    for path, variable in variables.items():
        tensor = tensors[path]
        shape = tuple(tensor.shape)
        if shape != tuple(variable.shape):
            raise errors.InputError(
                'other_weight_shape',
                f'{where}: {path} has shape {shape}, the model wants '
                f'{tuple(variable.shape)}',
            )
        variable.assign(tensor)
