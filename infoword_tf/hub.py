"""Names of the Hugging Face Hub, as folders and files on this disk.

    hf://OWNER/NAME[@REVISION]                 a model
    hf://datasets/OWNER/NAME[@REVISION]/PATH   files of a data set; globs too

`huggingface_hub` downloads, into a cache of its own, what is not there yet: it
knows HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE, and after a download
that broke off it fetches the files that are missing. Of a model only files are
taken that the kinds of folders read here. Nothing that was downloaded is run.

Files of a corpus are not downloaded: `files_of` lists them, and `open_file`
reads them where they are, as far as the reader goes.
"""

import contextlib
import errno
import glob
import io
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, NoReturn

from infoword_tf.errors import InputError

PREFIX = 'hf://'
DATASETS = f'{PREFIX}datasets/'
_FORM = re.compile(
    r'hf:/{1,2}(datasets/)?(?!datasets/)([\w.-]+(?:/[\w.-]+)?)'
    r'(?:@([^/@]+))?(?:/(.+?))?/*'
)
# Settings, vocabularies and small heads; then weights, of which the first kind
# in a repository is taken.
SETTINGS = '*.json', '*.txt', '*.model', '*.spm', '*.jinja', '*_linear.pt'
WEIGHTS = ('*.safetensors',), ('*.bin', '*.ckpt.*'), ('*.weights.h5',)
# Other frameworks' files, and copies of the same weights.
_OTHERS = (
    'onnx/*', 'openvino/*', 'coreml/*', 'original/*', '*/onnx/*',
    '*/openvino/*', 'consolidated*', 'training_args.bin', 'optimizer.*',
)  # fmt: skip
_SHOWN = 12  # files in a complaint
_AHEAD = 16  # how many times what a reader takes at once is fetched
# What to do about a cache that takes no file. hf_xet, in Rust, has the number
# in its message alone.
_UNWRITABLE = {
    errno.ENOSPC: 'free space there', errno.EDQUOT: 'free space there',
    errno.EACCES: 'make it writable', errno.EROFS: 'make it writable',
    errno.EPERM: 'make it writable',
}  # fmt: skip
_NUMBER = re.compile(r'\(os error (\d+)\)')


class HubName(NamedTuple):
    """A parsed name.

    Attributes:
        kind: 'model' or 'dataset'.
        repository: OWNER/NAME, of some old ones NAME.
        revision: a branch, a tag or a commit; None: the main branch.
        path: behind the repository, with globs; '': all of the repository.
    """

    kind: str
    repository: str
    revision: str | None
    path: str

    def __str__(self) -> str:
        """Writes the name, without the path."""
        datasets = 'datasets/' if self.kind == 'dataset' else ''
        revision = f'@{self.revision}' if self.revision else ''
        return f'{PREFIX}{datasets}{self.repository}{revision}'


def parse(name: str | os.PathLike) -> HubName:
    """Splits a name into kind, repository, revision and path.

    Raises:
        InputError: the name has another form.
    """
    match = _FORM.fullmatch(os.fspath(name))
    path = (match and match[4]) or ''
    # A repository without an owner has no path: it would look like one.
    if match is None or '..' in path.split('/') or (
        path and '/' not in match[2]
    ):
        raise InputError(
            'hub_name',
            f'{name}: expected hf://OWNER/NAME[@REVISION] for a model, or '
            'hf://datasets/OWNER/NAME[@REVISION]/PATH for files of a data set',
        )
    revision = match[3] and urllib.parse.unquote(match[3])
    kind = 'dataset' if match[1] else 'model'
    return HubName(kind, match[2], revision, path)


def folder_of(name: str | os.PathLike) -> pathlib.Path:
    """Downloads a model that the cache lacks; returns the folder.

    Raises:
        InputError: as `parse`; the repository or the revision does not exist,
            needs permission or cannot be reached, or has no weights of a known
            kind.
    """
    known = parse(name)
    within = f'{known.path}/' if known.path else ''
    for weights in WEIGHTS:
        patterns = [f'{within}{pattern}' for pattern in (*SETTINGS, *weights)]
        folder = _download(known, patterns) / known.path
        if any(x for pattern in weights for x in folder.rglob(pattern)):
            return folder
    raise InputError(
        'hub_without_weights',
        f'{name} has no weights of a known kind (*.safetensors, *.bin, '
        f'*.ckpt.index or *.weights.h5); it has {_listed(known)}',
    )


def path_of(name: str) -> str:
    """Downloads files of a data set; returns a path or a pattern.

    Raises:
        InputError: as `folder_of`; or no file matches.
    """
    known = parse(name)
    path = known.path
    patterns = [path, f'{path}/*'] if path else ['*']
    folder = str(_download(known, patterns))
    if glob.has_magic(path):
        folder = glob.escape(folder)
    local = os.path.join(folder, path) if path else folder
    if not (os.path.exists(local) or glob.glob(local, recursive=True)):
        _raise_without_file(name, known)
    return local


def files_of(name: str) -> list[pathlib.Path]:
    """Lists files of a data set, with the commit, for `open_file`.

    Returns:
        The name of each as a path, hf:/datasets/OWNER/NAME@COMMIT/PATH, sorted.

    Raises:
        InputError: as `path_of`.
    """
    import huggingface_hub
    from huggingface_hub import errors

    known = parse(name)
    if known.kind != 'dataset':
        raise InputError(
            'hub_no_data_set',
            f'{name}: files of a data set are '
            'hf://datasets/OWNER/NAME[@REVISION]/PATH',
        )
    with _complaints(known):
        try:
            commit = huggingface_hub.HfApi().dataset_info(
                known.repository, revision=known.revision
            ).sha
        except errors.HfHubHTTPError:
            raise
        except (errors.OfflineModeIsEnabled, errors.HTTPError):
            commit = None
    if commit is None:  # out of reach: what an earlier download has left
        folder = _download(known, [known.path])
        local = os.path.join(glob.escape(str(folder)), known.path)
        known = known._replace(revision=folder.name)
        names = [
            os.path.relpath(path, folder)
            for path in glob.glob(local, recursive=True)
            if os.path.isfile(path)
        ]
    else:
        known = known._replace(revision=commit)
        with _complaints(known):
            listed = _filesystem().glob(f'{known}/{known.path}', detail=True)
        within = f'{str(known).removeprefix(PREFIX)}/'
        names = [
            path.removeprefix(within)
            for path, about in listed.items()
            if about['type'] == 'file'
        ]
    if not names:
        _raise_without_file(name, known)
    return sorted(pathlib.Path(f'{known}/{path}') for path in names)


def open_file(path: pathlib.Path, buffer: int) -> BinaryIO:
    """Opens a file to read that `files_of` has listed.

    Args:
        path: name of the file.
        buffer: bytes that are read at once.
    """
    known = parse(path)
    if local := _cached_file(known):
        return open(local, 'rb')
    with _complaints(known):
        file = _filesystem().open(
            f'{known}/{known.path}', block_size=buffer * _AHEAD
        )
    return io.BufferedReader(_Remote(known, file), buffer)


def size_of(path: pathlib.Path) -> int:
    """Returns the bytes of a file that `files_of` has listed."""
    known = parse(path)
    if local := _cached_file(known):
        return os.path.getsize(local)
    with _complaints(known):
        return _filesystem().info(f'{known}/{known.path}')['size']


def commit_of(folder: pathlib.Path) -> str:
    """Returns the name of a downloaded folder, with the commit; '': another.

    Read from the place in the cache, `models--OWNER--NAME/snapshots/COMMIT`.
    """
    parts = pathlib.Path(os.path.abspath(folder)).parts
    for before, snapshots, commit in zip(
        parts, parts[1:], parts[2:], strict=False
    ):
        if snapshots == 'snapshots' and before.startswith('models--'):
            return f'{PREFIX}{before[8:].replace("--", "/")}@{commit}'
    return ''


def _download(known: HubName, patterns: Sequence[str]) -> pathlib.Path:
    """Downloads the files of a repository that match; returns the folder."""
    import huggingface_hub

    ignored = list(_OTHERS) if known.kind == 'model' else None
    with _complaints(known):
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                known.repository,
                repo_type=known.kind,
                revision=known.revision,
                allow_patterns=list(patterns),
                ignore_patterns=ignored,
                library_name='infoword_tf',
            )
        )


class _Remote(io.RawIOBase):
    """Bytes of a file of the Hub, with the complaints of `_complaints`."""

    def __init__(self, known: HubName, file: Any):
        """Reads an open file of `HfFileSystem`."""
        self._known, self._file = known, file

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True: a reader may begin anywhere."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the place of the next byte."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Returns the place of the next byte."""
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        """Reads as many bytes as fit, less at the end."""
        with _complaints(self._known):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _filesystem() -> Any:
    """Returns the file system of the Hub; one for each server."""
    import huggingface_hub
    from huggingface_hub import constants

    return huggingface_hub.HfFileSystem(endpoint=constants.ENDPOINT)


def _cached_file(known: HubName) -> str | None:
    """Returns the path of a file in the cache; None: nothing is cached."""
    import huggingface_hub

    path = huggingface_hub.try_to_load_from_cache(
        known.repository, known.path, repo_type=known.kind,
        revision=known.revision,
    )  # fmt: skip
    return path if isinstance(path, str) else None


def _raise_without_file(name: str, known: HubName) -> NoReturn:
    """Raises InputError: no file matches."""
    raise InputError(
        'hub_without_file',
        f'{name}: there is no such file; {known} has {_listed(known)}',
    )


def _listed(known: HubName) -> str:
    """Names files of a repository, for a complaint."""
    import huggingface_hub

    try:
        names = huggingface_hub.HfApi().list_repo_files(
            known.repository, repo_type=known.kind, revision=known.revision
        )
    except (OSError, huggingface_hub.errors.HTTPError):
        return 'what cannot be listed now'
    shown = ', '.join(names[:_SHOWN])
    return (shown or 'no file') + ', ...' * (len(names) > _SHOWN)


def _cached(known: HubName) -> str:
    """Names the revisions of a repository that the cache has."""
    from huggingface_hub import constants

    name = f'{known.kind}s--{known.repository.replace("/", "--")}'
    folder = pathlib.Path(constants.HF_HUB_CACHE) / name / 'snapshots'
    commits = sorted(x.name for x in folder.glob('*') if x.is_dir())
    if not commits:
        return f'nothing of it is in the cache ({constants.HF_HUB_CACHE})'
    return f'the cache has {", ".join(commits)}: name one behind @'


@contextlib.contextmanager
def _complaints(known: HubName) -> Iterator[None]:
    """Turns errors of `huggingface_hub` into InputErrors, each one line."""
    from huggingface_hub import constants, errors

    where = constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError:
        raise InputError(
            'hub_gated',
            f'{known} asks for permission: accept its terms on '
            f'{where}/{known.repository}, and set HF_TOKEN to a token of yours',
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError(
            'hub_revision',
            f'{known.repository} has no revision {known.revision}; name a '
            'branch, a tag or a commit of it, or none for its main branch',
        ) from None
    except errors.RepositoryNotFoundError:
        raise InputError(
            'hub_repository',
            f'{known}: there is no such {known.kind} at {where}, or HF_TOKEN '
            'gives no right to read it',
        ) from None
    except errors.HFValidationError as error:
        raise InputError('hub_no_name', f'{known}: {error}') from None
    except (errors.IncompleteSnapshotError, errors.LocalEntryNotFoundError):
        why = (
            'HF_HUB_OFFLINE is set' if constants.HF_HUB_OFFLINE
            else f'{where} cannot be reached'
        )  # fmt: skip
        raise InputError(
            'hub_out_of_reach', f'{known}: {why}, and {_cached(known)}'
        ) from None
    except (errors.HTTPError, OSError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        number = getattr(error, 'errno', None)
        if match := _NUMBER.search(str(error)):
            number = int(match[1])
        if number in _UNWRITABLE:
            raise InputError(
                'hub_cache',
                f'{known}: the cache {constants.HF_HUB_CACHE} takes no file '
                f'({os.strerror(number)}): {_UNWRITABLE[number]}, or set '
                'HF_HOME to another folder; the same command fetches what is '
                'missing',
            ) from None
        if number is not None and not isinstance(error, errors.HTTPError):
            raise
        raise InputError(
            'hub_download',
            f'{known}: the download broke off ({reason}); the same command '
            'fetches what is missing',
        ) from None
