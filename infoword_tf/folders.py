"""A folder that others wrote, as the workdir that `convert` makes of it.

    folder = workdir_of('MiniLM')     # of sentence-transformers, say

The workdir is kept in the cache, by the bytes of the folder's files, so that it
is made once. Whatever is no such folder stays as it is. `load` and all choices
that name a model go through here.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from infoword_tf import files
from infoword_tf.choices import SETTINGS, flags_of

# Another number where `convert` makes something else of the same folder.
_FORM = 2
_CONFIG, _MODULES = 'config.json', 'modules.json'
# Not read: what other libraries and other frameworks have beside weights.
_BESIDE = {'.md', '.msgpack', '.onnx', '.h5', '.ot', '.gguf'}


def is_of_others(folder: pathlib.Path) -> bool:
    """Whether transformers, sentence-transformers, or BERT's or XLNet's own
    code wrote it."""
    if (folder / _MODULES).is_file():
        return True
    if (folder / _CONFIG).is_file():
        try:
            said = json.loads((folder / _CONFIG).read_text())
        except (OSError, ValueError):
            return False
        # A workdir has both an encoder and a version.
        return isinstance(said, dict) and 'encoder' not in said and (
            'model_type' in said or 'architectures' in said
        )  # fmt: skip
    return folder.is_dir() and any(folder.glob('*.index'))


def workdir_of(folder: str | os.PathLike) -> pathlib.Path:
    """The workdir of a folder; one that is no folder of others is itself.

    Raises:
        ValueError: it holds what has no place here, as the message says.
    """
    folder = pathlib.Path(folder)
    if not is_of_others(folder):
        return folder
    models = files.cache_dir() / 'models'
    made = models / _digest(folder)
    if (made / _CONFIG).is_file():
        return made
    models.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models, prefix='.') as partial:
        # In a process of its own: this one has not chosen its devices yet.
        done = subprocess.run(
            [
                sys.executable, '-m', 'infoword_tf.convert',
                f'--source={folder}', f'--workdir={partial}/{made.name}',
            ],
            env={**os.environ, 'CUDA_VISIBLE_DEVICES': '-1'},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ['killed'])[-1]
            said = said.removeprefix('error: ').removeprefix('--source=')
            raise ValueError(
                said if str(folder) in said else f'{folder}: {said}'
            )
        shutil.rmtree(made, ignore_errors=True)  # damaged
        try:
            os.rename(f'{partial}/{made.name}', made)
        except OSError:
            if not (made / _CONFIG).is_file():  # another one was faster
                raise
    print(f'{folder}: converted, and kept as {made}', file=sys.stderr)
    return made


def resolved(kind: type, named: Mapping[str, Any]) -> dict[str, Any]:
    """Choices by name, with workdirs for folders of others.

    Args:
        kind: the dataclass of the choices; those of its flags that are a
            `model`, and such settings, may name folders.

    Raises:
        ValueError: as `workdir_of`.
    """
    found = dict(named)
    for name in _models(kind, found):
        if found[name]:
            found[name] = str(workdir_of(found[name]))
    if found.get(SETTINGS):
        from infoword_tf.objectives import TABLE

        settings = dict(found[SETTINGS])
        for name, value in settings.items():
            row, _, setting = name.partition('.')
            known = TABLE[row].settings.get(setting) if row in TABLE else None
            if value and known is not None and known.model:
                settings[name] = str(workdir_of(value))
        found[SETTINGS] = settings
    return found


def _models(kind: type, named: Mapping[str, Any]) -> Iterable[str]:
    known = flags_of(kind)
    return [name for name in named if name in known and known[name][1].model]


def _digest(folder: pathlib.Path) -> str:
    """Of the names and bytes of all files that may say something."""
    hashed = hashlib.blake2b(str(_FORM).encode(), digest_size=10)
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder)
        hidden = any(part.startswith('.') for part in name.parts)
        if hidden or path.suffix in _BESIDE or not path.is_file():
            continue
        hashed.update(f'{name.as_posix()} {path.stat().st_size}\0'.encode())
        for chunk in files.chunks(path):
            hashed.update(chunk)
    return hashed.hexdigest()
