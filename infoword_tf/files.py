"""Files that are whole or not there: locks, atomic writes, named arrays."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import secrets
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_ASKING = threading.Lock()
DIGEST = 'blake2b'  # its name in a file's metadata
_CHUNK = 1 << 24  # bytes that are summed at a time
_DTYPES = {
    'bool': 'BOOL', 'uint8': 'U8', 'int8': 'I8', 'int16': 'I16',
    'int32': 'I32', 'int64': 'I64', 'float16': 'F16', 'float32': 'F32',
    'float64': 'F64', 'bfloat16': 'BF16', 'uint16': 'U16', 'uint32': 'U32',
    'uint64': 'U64',
}  # fmt: skip


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Holds a workdir for one run; deletes what one that was killed left half
    written.

    Raises: RuntimeError: another run holds it, or it is a file.
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
    """$INFOWORD_CACHE, else infoword_tf in $XDG_CACHE_HOME or ~/.cache."""
    if path := os.environ.get('INFOWORD_CACHE'):
        return pathlib.Path(path).expanduser()
    parent = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return pathlib.Path(parent).expanduser() / 'infoword_tf'


def cpus() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, 'sched_getaffinity'):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _umask() -> int:
    with _ASKING:  # another thread would be told 0, and put that back
        mask = os.umask(0)
        os.umask(mask)
    return mask


@contextlib.contextmanager
def written(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a temporary path that becomes `path` when all went well.

    Raises:
        OSError: the disk is full or the like; what was at `path` is still
            there, and nothing else is left.
    """
    # Processes of several machines may have the same number.
    own = f'{os.getpid()}.{secrets.token_hex(3)}'
    partial = path.with_name(f'.{path.name}.{own}')
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
    """An object of a file; ValueError: it is none."""
    try:
        value = json.loads(path.read_text(encoding='utf-8-sig'))
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is no JSON: {error}') from None
    if not isinstance(value, dict):
        raise ValueError(f'{path} holds no object')
    return value


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON, whole or not at all."""
    with written(path) as partial:
        partial.write_text(json.dumps(value, indent=2) + '\n')


def read_integers(path: pathlib.Path) -> np.ndarray:
    """Integers in a row, [n], of a .npy.

    Raises:
        ValueError: it holds something else, or less than it promises: no
            memory is taken for what is not there.
    """
    try:
        found = np.load(path, mmap_mode='r')
    except (OverflowError, MemoryError) as error:
        raise ValueError(f'{path} is damaged: {error}') from None
    if found.ndim != 1 or found.dtype.kind not in 'iu':
        raise ValueError(
            f'{path} holds {found.dtype} {list(found.shape)}, not integers in '
            'a row'
        )
    return np.array(found)


def write_tensors(
    path: pathlib.Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes named arrays with their digest, whole or not at all.

    The digest is all that its header has, unless `metadata` stands there
    instead: equal arrays are equal bytes. What is no array yet (a variable)
    becomes one when it is written.
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
    # By hand, one array after the other: the library wants them all at once,
    # and so holds twice what are variables; it orders metadata by chance.
    with written(path) as partial, open(partial, 'wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text)
        for name in sorted(tensors):
            array = np.ascontiguousarray(tensors[name])
            file.write(array.reshape(-1).view(np.uint8))


def read_tensor(path: pathlib.Path, name: str) -> np.ndarray | None:
    """One of the named arrays, unchecked, or None; ValueError: a cut file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, 'numpy') as file:
            return file.get_tensor(name) if name in file.keys() else None
    except SafetensorError as error:
        raise ValueError(f'{path} cannot be read ({error})') from error


def read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads named arrays; ValueError: the file is cut, damaged or none such."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, 'numpy') as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(f'{path} cannot be read ({error})') from error
    # A file from elsewhere has no digest.
    if metadata.get(DIGEST, digest := _digest(tensors)) != digest:
        raise ValueError(
            f'{path} is damaged: its numbers are not those that were '
            'written; take it from a backup, or train again'
        )
    return tensors


def chunks(path: pathlib.Path) -> Iterator[bytes]:
    """A file's bytes, in parts."""
    with open(path, 'rb') as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def crc(parts: Iterable[bytes]) -> int:
    """CRC-32 of bytes that come in parts."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def digest_of(path: pathlib.Path) -> str:
    """Of a file's bytes."""
    return hashlib.blake2b(path.read_bytes(), digest_size=10).hexdigest()


def _digest(tensors: Mapping[str, Any]) -> str:
    """Of names, shapes and bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        hashed.update(f'{name} {array.dtype} {array.shape}'.encode())
        hashed.update(array.reshape(-1).view(np.uint8))
    return hashed.hexdigest()


def assign(
    variables: Mapping[str, Any], tensors: Mapping[str, np.ndarray], where: str
) -> None:
    """Sets variables from arrays of the same paths; ValueError: they differ."""
    lacking = sorted(set(variables) - set(tensors))
    surplus = sorted(set(tensors) - set(variables))
    if lacking or surplus:
        raise ValueError(
            f'{where} does not fit the model: it lacks {lacking[:3]} and has '
            f'{surplus[:3]} besides'
        )
    for path, variable in variables.items():
        shape = tuple(tensors[path].shape)
        if shape != tuple(variable.shape):
            raise ValueError(
                f'{where}: {path} has shape {shape}, the model wants '
                f'{tuple(variable.shape)}'
            )
        variable.assign(tensors[path])
