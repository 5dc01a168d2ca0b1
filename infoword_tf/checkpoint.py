"""The files of a workdir, and the checkpoints of a run.

    config.json  vocab.txt or spm.model  weights.safetensors
                                               read by `load`
    flags.txt  checkpoints/                    read where a run resumes
    metrics.jsonl  metrics.json  bounds.png  tensorboard/
                                               records of the run

A checkpoint is one safetensors file of all weights and moments by path. It is
written to a temporary file, flushed and renamed, so it is whole or absent.
Paths do not depend on the object that holds a layer (tf.train.Checkpoint does
not see layers in a list).
"""

import contextlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import WEIGHTS

FOLDER, PATTERN = 'checkpoints', 'step-{:09d}.safetensors'
# Further tensors of a file: updates so far, and rewinds, if there were any.
STEP, REWINDS = 'step', 'rewinds'


class Checkpoints:
    """Checkpoints of a run, the last few.

    Attributes:
        rewinds: number of times that the run went back to one.
    """

    rewinds = 0

    def __init__(self, workdir: pathlib.Path, keep: int, chief: bool = True):
        """Creates the folder, which holds at most `keep` checkpoints."""
        self.folder, self.keep = workdir / FOLDER, keep
        self.chief = chief
        if chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            for partial in self.folder.glob('.step-*'):
                partial.unlink()  # of a run that was killed while it wrote

    def paths(self) -> list[pathlib.Path]:
        """Returns the checkpoints' paths, the oldest first."""
        return sorted(self.folder.glob('step-*.safetensors'))

    def save(self, step: int, variables: Mapping[str, Any]) -> None:
        """Writes the state after `step` updates, and deletes old checkpoints.

        Does nothing unless the process is the chief.
        """
        if not self.chief:
            return
        self._write(step, variables)
        for path in self.paths()[: -self.keep]:
            path.unlink()

    def rewound(
        self, before: int, step: int, variables: Mapping[str, Any]
    ) -> None:
        """Records the state after `before` updates as that after `step`."""
        self.rewinds += 1
        if self.chief:
            self._write(step, variables)
            # Older ones stay, since this one may be bad too.
            (self.folder / PATTERN.format(before)).unlink()

    def _write(self, step: int, variables: Mapping[str, Any]) -> None:
        tensors = {k: np.asarray(v) for k, v in variables.items()}
        tensors[STEP] = np.asarray(step, np.int64)
        if self.rewinds:
            tensors[REWINDS] = np.asarray(self.rewinds, np.int64)
        files.write_tensors(self.folder / PATTERN.format(step), tensors)

    def restore(
        self,
        variables: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
    ) -> int:
        """Sets variables from the newest checkpoint that is whole.

        Args:
            state: `State.variables`; None values are those of other processes.
                Entries saved by another number of replicas are not read, and a
                line is printed.

        Returns:
            Updates made so far, 0 where there is no checkpoint.

        Raises:
            ValueError: there are checkpoints, and none can be read.
        """
        failures = []
        for path in reversed(self.paths()):
            try:
                tensors = files.read_tensors(path)
            except ValueError as error:
                failures.append(str(error))
                continue
            for failure in failures:
                print(f'skipped a damaged checkpoint: {failure}', flush=True)
            step = int(tensors.pop(STEP))
            known = int(tensors.pop(REWINDS, 0))
            self.rewinds = max(known, self.rewinds)
            checkpointed = {
                k: tensors.pop(k)
                for k in list(tensors)
                if k.startswith('state/')
            }
            files.assign(variables, tensors, str(path))
            print(f'resuming from {path} (step {step})', flush=True)
            _assign_state(state or {}, checkpointed, str(path))
            # The run continues from this one: damaged newer ones are renamed.
            if self.chief:
                for damaged in self.paths():
                    if damaged > path:
                        damaged.rename(damaged.with_suffix('.damaged'))
            return step
        if failures:
            raise errors.InputError(
                'unreadable_checkpoints',
                'no checkpoint can be read: '
                + '; '.join(failures)
                + '; delete the folder to start from the beginning',
            )
        return 0


def _assign_state(
    state: Mapping[str, Any], checkpointed: Mapping[str, np.ndarray], where: str
) -> None:
    """Sets each entry that is complete in a checkpoint; reports the others."""

    def by_entry(paths: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for path, value in paths.items():
            _, kind, name, *_ = path.split('/')
            entries.setdefault(f'{kind}/{name}', {})[path] = value
        return entries

    saved = by_entry(checkpointed)
    for entry, variables in by_entry(state).items():
        if set(variables) == set(saved.get(entry, {})):
            local = {k: v for k, v in variables.items() if v is not None}
            files.assign(local, {k: saved[entry][k] for k in local}, where)
        else:
            print(
                f'{entry} starts empty: the checkpoint has none of these '
                'replicas',
                flush=True,
            )


def write_weights(
    workdir: pathlib.Path, tensors: Mapping[str, np.ndarray], step: int
) -> None:
    """Writes weights.safetensors, with the number of the step."""
    tensors = {**tensors, STEP: np.asarray(step, np.int64)}
    files.write_tensors(workdir / WEIGHTS, tensors)


def weights_step(workdir: pathlib.Path, checked: bool = False) -> int | None:
    """Reads the step of weights.safetensors, or None; `checked`: for damage."""
    path = workdir / WEIGHTS
    if not path.is_file():
        return None
    try:
        if checked:
            step = files.read_tensors(path).get(STEP)
        else:
            step = files.read_tensor(path, STEP)
    except ValueError:  # reported by whoever reads the weights
        return None
    return None if step is None else int(step)


def last_step(workdir: pathlib.Path) -> int | None:
    """Returns the step of the newest checkpoint, if any."""
    paths = sorted((workdir / FOLDER).glob('step-*.safetensors'))
    return int(paths[-1].stem.removeprefix('step-')) if paths else None


class Metrics:
    """File metrics.jsonl: one object a logging step, in the order of steps."""

    def __init__(self, workdir: pathlib.Path, step: int, chief: bool = True):
        """Reads the records up to `step`; the chief drops later lines."""
        self.path = workdir / 'metrics.jsonl'
        self.records: list[dict[str, Any]] = []
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                # A killed process may have left half a line.
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if record['step'] <= step:
                        self.records.append(record)
        if chief:
            self._write()

    def forget(self, step: int) -> None:
        """Drops the lines after a step."""
        self.records = [r for r in self.records if r['step'] <= step]
        self._write()

    def _write(self) -> None:
        with files.written(self.path) as partial:
            partial.write_text(
                ''.join(json.dumps(r) + '\n' for r in self.records)
            )

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line."""
        self.records.append(record)
        with open(self.path, 'a') as file:
            file.write(json.dumps(record) + '\n')
