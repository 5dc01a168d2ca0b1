"""The files of a workdir: what is loaded, and what a run resumes from.

    config.json  vocab.txt or spm.model  weights.safetensors
                                               what `load` needs
    flags.txt  checkpoints/                    what resuming needs
    metrics.jsonl  metrics.json  bounds.png  tensorboard/
                                               what happened

A checkpoint is one safetensors file of every weight and moment by its path:
written beside its place, flushed and renamed, so it is there whole or not at
all. One path to a weight, whatever holds the layer (a list of layers is
invisible to other ways of saving).
"""

import contextlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf import files
from infoword_tf.config import WEIGHTS

FOLDER, PATTERN = 'checkpoints', 'step-{:09d}.safetensors'
# Among the tensors of a file: the updates made so far, and how often the run
# has gone back, if it has.
STEP, REWINDS = 'step', 'rewinds'


class Checkpoints:
    """The last few states of a run.

    Attributes:
        rewinds: how often it has gone back to an older one.
    """

    rewinds = 0

    def __init__(self, workdir: pathlib.Path, keep: int, chief: bool = True):
        """Args: of the run; how many to keep; whether this process writes."""
        self.folder, self.keep = workdir / FOLDER, keep
        self.chief = chief
        if chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            for partial in self.folder.glob('.step-*'):
                partial.unlink()  # of a run that was killed while it wrote

    def paths(self) -> list[pathlib.Path]:
        """Checkpoints there are, the oldest first."""
        return sorted(self.folder.glob('step-*.safetensors'))

    def save(self, step: int, variables: Mapping[str, Any]) -> None:
        """Writes the state after `step` updates; drops the oldest ones.

        Only where this process writes.
        """
        if not self.chief:
            return
        self._write(step, variables)
        for path in self.paths()[: -self.keep]:
            path.unlink()

    def rewound(
        self, before: int, step: int, variables: Mapping[str, Any]
    ) -> None:
        """The state after `before` updates becomes that after `step`."""
        self.rewinds += 1
        if self.chief:
            self._write(step, variables)
            # Older ones stay: who knows whether this one is good.
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
            state: by path, `State.parts`; None: of another process. What is
                there for another number of replicas is left out, and that is
                said.

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


def _assign_state(
    state: Mapping[str, Any], checkpointed: Mapping[str, np.ndarray], where: str
) -> None:
    """Sets each entry whose parts are all there, and says which are not."""

    def by_entry(paths: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path, value in paths.items():
            _, kind, name, *_ = path.split('/')
            found.setdefault(f'{kind}/{name}', {})[path] = value
        return found

    there = by_entry(checkpointed)
    for entry, variables in by_entry(state).items():
        if set(variables) == set(there.get(entry, {})):
            own = {k: v for k, v in variables.items() if v is not None}
            files.assign(own, {k: there[entry][k] for k in own}, where)
        else:
            print(
                f'{entry} starts empty: the checkpoint has none of these '
                'replicas',
                flush=True,
            )


def write_weights(
    workdir: pathlib.Path, tensors: Mapping[str, np.ndarray], step: int
) -> None:
    """Writes weights.safetensors, which says of which step it is."""
    tensors = {**tensors, STEP: np.asarray(step, np.int64)}
    files.write_tensors(workdir / WEIGHTS, tensors)


def weights_step(workdir: pathlib.Path, checked: bool = False) -> int | None:
    """The step of weights.safetensors.

    None: it is not there, cannot be read, or does not say.

    Args:
        checked: whether all of it is read, and what is damaged has no step.
    """
    path = workdir / WEIGHTS
    if not path.is_file():
        return None
    try:
        if checked:
            step = files.read_tensors(path).get(STEP)
        else:
            step = files.read_tensor(path, STEP)
    except ValueError:  # whoever reads all of it complains
        return None
    return None if step is None else int(step)


def last_step(workdir: pathlib.Path) -> int | None:
    """The step of the newest checkpoint; None: there is none."""
    paths = sorted((workdir / FOLDER).glob('step-*.safetensors'))
    return int(paths[-1].stem.removeprefix('step-')) if paths else None


class Metrics:
    """metrics.jsonl: one object a logging step, in the order of steps."""

    def __init__(self, workdir: pathlib.Path, step: int, chief: bool = True):
        """Opens the file; the chief cuts it to `step`, from where a run goes
        on.
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
