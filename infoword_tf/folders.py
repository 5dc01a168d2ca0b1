"""Public folders as workdirs.

    workdir = workdir_of('MiniLM')     # of sentence-transformers, say

`convert` makes the workdir once: the cache has it under a hash of the folder's
bytes. Other folders stay as they are. `load` and all choices that name a model,
or files of a data set of the Hub, go through here.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from infoword_tf import files, hub
from infoword_tf.choices import SETTINGS, flags_of
from infoword_tf.errors import InputError, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Flags of texts that are read where they are.
STREAMED = 'corpus', 'heldout'
# Raised when `convert` makes another workdir of the same folder.
_FORM = 6
Choices = TypeVar('Choices', bound='DataclassInstance')
Convert = Callable[[pathlib.Path, pathlib.Path], None]
NOTE = 'note: '  # begins lines about weights that were not converted
_CONFIG, _MODULES = 'config.json', 'modules.json'
ADAPTER = 'adapter_config.json'  # of a folder of PEFT
_NOTES = 'notes.txt'  # of a workdir in the cache: what is said of its folder
# Not hashed: files of other libraries and frameworks.
_IGNORED = {'.md', '.msgpack', '.onnx', '.h5', '.ot', '.gguf'}
_PRESET = '.weights.h5'  # how names of KerasHub's weights end, which count


def is_public(folder: pathlib.Path) -> bool:
    """Tells whether a folder is public: of transformers, sentence-transformers,
    PEFT, KerasHub, or BERT's or XLNet's own code."""
    if (folder / _MODULES).is_file():
        return True
    if (folder / ADAPTER).is_file() and not (folder / _CONFIG).is_file():
        return True
    if (folder / _CONFIG).is_file():
        try:
            config = json.loads((folder / _CONFIG).read_text())
        except (OSError, ValueError):
            return False
        # A workdir has both an encoder and a version.
        return isinstance(config, dict) and 'encoder' not in config and (
            'model_type' in config or 'architectures' in config
            or 'registered_name' in config
        )  # fmt: skip
    return folder.is_dir() and any(folder.glob('*.index'))


def adapted_by(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder that adapters in a folder change; without any None.

    Raises:
        InputError: that folder is not here; or as `hub.folder_of`.
    """
    if not (folder / ADAPTER).is_file():
        return None
    about = files.read_json(folder / ADAPTER)
    named = about.get('base_model_name_or_path')
    # Adapters of the Hub are of a model there, whatever has this name here.
    if named and hub.commit_of(folder):
        revision = about.get('revision')
        named = f'{hub.PREFIX}{named}' + f'@{revision}' * bool(revision)
    if named and files.is_of_hub(named):
        return hub.folder_of(named)
    base = pathlib.Path(named or '')
    for path in (base, folder / base):
        if named and path.is_dir() and not path.samefile(folder):
            return path
    raise InputError(
        'no_base_of_adapter',
        f'{folder} holds adapters ({ADAPTER}) of {named}, which is no folder '
        'here; set base_model_name_or_path there to the folder of that model, '
        'or to hf://OWNER/NAME',
    )


def workdir_of(
    folder: str | os.PathLike, convert: Convert | None = None
) -> pathlib.Path:
    """Converts a public folder, once; returns any other folder unchanged.

    Args:
        folder: path of a model, or hf://OWNER/NAME[@REVISION].
        convert: converts (folder, workdir) in this process; None: a process of
            its own converts, since this one has not chosen its devices yet.

    Raises:
        ValueError: the folder cannot be converted, or as `hub.folder_of`; the
            message says why.
    """
    folder = hub.folder_of(folder) if files.is_of_hub(folder) else (
        pathlib.Path(folder)
    )
    if not is_public(folder):
        return folder
    models = files.cache_dir() / 'models'
    workdir = models / _digest(folder)
    if not (workdir / _CONFIG).is_file():
        _make(folder, workdir, convert)
    notes = workdir / _NOTES
    if notes.is_file():
        for line in notes.read_text(encoding='utf-8').splitlines():
            name = hub.commit_of(folder) or folder
            print(f'{name}: {line}', file=sys.stderr)
    return workdir


def _make(
    folder: pathlib.Path, workdir: pathlib.Path, convert: Convert | None
) -> None:
    """Makes the workdir of a public folder; args as of `workdir_of`."""
    models = workdir.parent
    models.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models, prefix='.') as partial:
        try:
            printed = _converted(
                folder, pathlib.Path(partial) / workdir.name, convert
            )
        except (UsageError, ValueError, OSError, RuntimeError) as error:
            message = (str(error).strip().splitlines() or ['killed'])[-1]
            message = message.removeprefix('error: ')
            message = message.removeprefix('--source=')
            raise InputError(
                'folder_not_converted',
                message if str(folder) in message else f'{folder}: {message}',
            ) from None
        lines = [x for x in printed.splitlines() if x.startswith(NOTE)]
        (pathlib.Path(partial) / workdir.name / _NOTES).write_text(
            ''.join(f'{line}\n' for line in lines), encoding='utf-8'
        )
        shutil.rmtree(workdir, ignore_errors=True)  # damaged
        try:
            os.rename(f'{partial}/{workdir.name}', workdir)
        except OSError:
            if not (workdir / _CONFIG).is_file():  # another one was faster
                raise
    name = hub.commit_of(folder) or folder
    print(f'{name}: converted, and kept as {workdir}', file=sys.stderr)


def _converted(
    folder: pathlib.Path, workdir: pathlib.Path, convert: Convert | None
) -> str:
    """Converts by a function or another process; returns the printed lines."""
    if convert is not None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            convert(folder, workdir)
        return printed.getvalue()
    done = subprocess.run(
        [
            sys.executable, '-m', 'infoword_tf.convert',
            f'--source={folder}', f'--workdir={workdir}',
        ],
        env={**os.environ, 'CUDA_VISIBLE_DEVICES': '-1'},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise InputError('conversion_failed', done.stderr)
    return done.stdout


def with_workdirs(
    choices: Choices,
    chosen: Mapping[str, Any],
    convert: Convert | None = None,
) -> Choices:
    """Replaces the public folders in choices by converted workdirs.

    Args:
        choices: a dataclass of flags; those that are a `model`, and such
            settings, may name folders.
        chosen: the explicit ones, by name.
        convert: converts a folder, see `workdir_of`.

    Returns:
        The choices, with workdirs. (`chosen` is what people have typed: flags
        of a run are kept as they typed them.)

    Raises:
        ValueError: as `workdir_of`.
    """
    changes: dict[str, Any] = {}
    for name, (_, flag) in flags_of(type(choices)).items():
        if flag.model and chosen.get(name):
            changes[name] = str(workdir_of(chosen[name], convert))
    settings = {}
    for name, value in chosen.get(SETTINGS, {}).items():
        from infoword_tf.objectives import TABLE

        row, _, setting = name.partition('.')
        known = TABLE[row].settings.get(setting) if row in TABLE else None
        if value and known is not None and known.model:
            settings[name] = str(workdir_of(value, convert))
    if settings:
        changes[SETTINGS] = {**getattr(choices, SETTINGS), **settings}
    return dataclasses.replace(choices, **changes) if changes else choices


def with_files(choices: Choices, chosen: Mapping[str, Any]) -> Choices:
    """Replaces names of a data set's files in choices by local paths.

    Names of corpora stay, see `hub.files_of`.

    Args:
        choices: a dataclass of flags.
        chosen: the explicit ones by name.

    Raises:
        InputError: as `hub.path_of`.
    """
    changes = {}
    for name in set(chosen).difference(STREAMED):
        value = getattr(choices, name, None)
        if isinstance(value, str) and hub.DATASETS in value:
            changes[name] = _with_paths(value)
        elif isinstance(value, tuple | list) and hub.DATASETS in str(value):
            changes[name] = type(value)(map(_with_paths, value))
    return dataclasses.replace(choices, **changes) if changes else choices


def _with_paths(value: Any) -> Any:
    """Replaces names of files within a string, as `parquet:hf://...:FIELD`.

    Returns:
        The string with paths on this disk, and any other value as it is.
    """
    if not isinstance(value, str):
        return value
    pattern = rf'{hub.DATASETS}[^:,]+'
    return re.sub(pattern, lambda match: hub.path_of(match[0]), value)


def _digest(folder: pathlib.Path) -> str:
    """Hashes the commit, and names and bytes of files that conversion reads."""
    hashed = hashlib.blake2b(str(_FORM).encode(), digest_size=10)
    hashed.update(hub.commit_of(folder).encode())  # which config.json names
    if base := adapted_by(folder):
        hashed.update(_digest(base).encode())
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder)
        hidden = any(part.startswith('.') for part in name.parts)
        ignored = path.suffix in _IGNORED and not path.name.endswith(_PRESET)
        if hidden or ignored or not path.is_file():
            continue
        hashed.update(f'{name.as_posix()} {path.stat().st_size}\0'.encode())
        for chunk in files.chunks(path):
            hashed.update(chunk)
    return hashed.hexdigest()
