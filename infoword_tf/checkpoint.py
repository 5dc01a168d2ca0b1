"""The workdir: the unit that travels, and what a run resumes from.

    config.json  vocab.txt or spm.model  weights.safetensors
                                               what `load` needs
    flags.txt  checkpoints/                    what resuming needs
    metrics.jsonl  metrics.json  bounds.png    what happened

A checkpoint is one safetensors file of every weight and moment by its path:
written beside its place, flushed and renamed, so it is there whole or not at
all. One path to a weight, whatever holds the layer (a list of layers is
invisible to other ways of saving).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

PATTERN = 'step-{:09d}.safetensors'
DIGEST = 'blake2b'  # its name in a file's metadata


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Holds a workdir for one run.

    Raises:
        RuntimeError: another run holds it.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    with open(workdir / '.lock', 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f'{workdir}: another run is writing to it; wait for it, stop '
                'it, or give this one a --workdir of its own'
            ) from None
        yield


def _umask() -> int:
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
    partial = path.with_name(f'.{path.name}.{os.getpid()}')
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


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON, whole or not at all."""
    with written(path) as partial:
        partial.write_text(json.dumps(value, indent=2) + '\n')


def write_tensors(
    path: pathlib.Path, tensors: Mapping[str, np.ndarray]
) -> None:
    """Writes named arrays with their digest, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors

    tensors = {k: np.asarray(v, order='C') for k, v in tensors.items()}
    with written(path) as partial:
        try:
            safetensors.save_file(
                tensors, partial, {DIGEST: _digest(tensors)}
            )
        except SafetensorError as error:
            raise OSError(None, str(error)) from error


def read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads named arrays.

    Raises:
        ValueError: the file is cut, damaged or no safetensors file.
    """
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


def _digest(tensors: Mapping[str, np.ndarray]) -> str:
    """Of names, shapes and bytes."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        found.update(f'{name} {array.dtype} {array.shape}'.encode())
        found.update(array.reshape(-1).view(np.uint8))
    return found.hexdigest()


def assign(
    variables: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    where: str,
) -> None:
    """Sets every variable from the array of the same path.

    Raises:
        ValueError: paths or shapes differ.
    """
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


class Checkpoints:
    """The last few states of a run."""

    def __init__(self, workdir: pathlib.Path, keep: int, chief: bool = True):
        """Opens the folder.

        Args:
            workdir: of the run.
            keep: how many checkpoints to keep.
            chief: whether this process is the one that writes.
        """
        self.folder, self.keep = workdir / 'checkpoints', keep
        self.chief = chief
        if chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            for partial in self.folder.glob('.step-*'):
                partial.unlink()  # of a run that was killed while it wrote

    def paths(self) -> list[pathlib.Path]:
        """Checkpoints there are, the oldest first."""
        return sorted(self.folder.glob('step-*.safetensors'))

    def save(self, step: int, variables: Mapping[str, Any]) -> None:
        """Writes the state after `step` updates; drops the oldest ones."""
        tensors = {k: np.asarray(v) for k, v in variables.items()}
        tensors['step'] = np.asarray(step, np.int64)
        write_tensors(self.folder / PATTERN.format(step), tensors)
        for path in self.paths()[: -self.keep]:
            path.unlink()

    def restore(
        self,
        variables: Mapping[str, Any],
        memory: Mapping[str, Any] | None = None,
    ) -> int:
        """Sets variables from the newest checkpoint that is whole.

        Args:
            variables: by path, all that the checkpoint holds but
            memory: by path, `memory/...`, one of each replica. That of
                another number of replicas is left out, and that is said.

        Returns:
            Updates made so far, 0 where there is no checkpoint.

        Raises:
            ValueError: there are checkpoints, and none can be read.
        """
        failures = []
        for path in reversed(self.paths()):
            try:
                tensors = read_tensors(path)
            except ValueError as error:
                failures.append(str(error))
                continue
            for failure in failures:
                print(f'skipped a damaged checkpoint: {failure}', flush=True)
            step = int(tensors.pop('step'))
            remembered = {
                k: tensors.pop(k)
                for k in list(tensors)
                if k.startswith('memory/')
            }
            assign(variables, tensors, str(path))
            print(f'resuming from {path} (step {step})', flush=True)
            memory = memory or {}
            if set(memory) == set(remembered):
                assign(memory, remembered, str(path))
            else:
                print(
                    'memory starts empty: the checkpoint has none of these '
                    'replicas',
                    flush=True,
                )
            # A run goes on from here: damaged newer ones are set aside.
            if self.chief:
                for damaged in self.paths():
                    if damaged > path:
                        damaged.rename(damaged.with_suffix('.damaged'))
            return step
        if failures:
            raise ValueError(
                'no checkpoint can be read: '
                + '; '.join(failures)
                + '; delete the folder to start from the beginning'
            )
        return 0


class Metrics:
    """metrics.jsonl: one object a logging step, in the order of steps."""

    def __init__(self, workdir: pathlib.Path, step: int, chief: bool = True):
        """Opens the file and cuts it to `step`, from where a run goes on.

        Who is not the chief only reads it.
        """
        self.path = workdir / 'metrics.jsonl'
        self.records: list[dict[str, Any]] = []
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # a line cut by a kill
                    record = json.loads(line)
                    if record['step'] <= step:
                        self.records.append(record)
        if chief:
            with written(self.path) as partial:
                partial.write_text(
                    ''.join(json.dumps(r) + '\n' for r in self.records)
                )

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line."""
        self.records.append(record)
        with open(self.path, 'a') as file:
            file.write(json.dumps(record) + '\n')
