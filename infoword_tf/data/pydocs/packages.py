"""Which packages `pydocs` reads, and which of their files.

The standard library, and every installed distribution that the project's
requirements lead to. Tests and generated code are left out.
"""

import importlib.metadata
import os
import pathlib
import re
import sys
import sysconfig
from collections.abc import Sequence
from typing import NamedTuple

PROJECT = 'infoword_tf'
STDLIB = 'python'  # the "distribution" of the standard library, and its package


class File(NamedTuple):
    """A source file: its place on disk, and its name in `Document.source`."""

    path: str
    name: str


_SKIPPED_FOLDERS = frozenset(
    'test tests idle_test site-packages dist-packages __pycache__'.split()
)


def _is_wanted(parts: tuple[str, ...]) -> bool:
    name = parts[-1]
    return (
        name.endswith('.py')
        and not name.endswith(('_test.py', '_pb2.py', '_pb2_grpc.py'))
        and not name.startswith('test_')
        and _SKIPPED_FOLDERS.isdisjoint(p.lower() for p in parts[:-1])
    )


def stdlib_files() -> list[File]:
    """The standard library's source files, sorted, tests left out."""
    root = pathlib.Path(sysconfig.get_path('stdlib'))
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [f for f in subfolders if f not in _SKIPPED_FOLDERS]
        parts = pathlib.Path(folder).relative_to(root).parts
        names += ['/'.join((*parts, f)) for f in files]
    return [
        File(str(root / name), f'{STDLIB}/{name}')
        for name in sorted(names)
        if _is_wanted(tuple(name.split('/')))
    ]


def _normalised(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def dependency_closure(
    requirements: Sequence[str] | None = None,
) -> dict[str, importlib.metadata.Distribution]:
    """Installed distributions that the requirements lead to, without extras.

    Args:
        requirements: where to begin, as in setup.py; by default what the
          installed distribution of this project requires.

    Returns:
        Normalised name -> distribution, sorted by name.

    Raises:
        RuntimeError: the project is not an installed distribution.
    """
    from packaging.requirements import Requirement

    if requirements is None:
        try:
            requirements = importlib.metadata.requires(PROJECT) or []
        except importlib.metadata.PackageNotFoundError:
            raise RuntimeError(
                f'The corpus pydocs reads what {PROJECT} depends on, but '
                f'{PROJECT} is not installed in {sys.prefix}: run '
                '`pip install -e .` in the root of the project first.'
            ) from None
    closure: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        marker = requirement.marker
        name = _normalised(requirement.name)
        if name in closure or (marker and not marker.evaluate({'extra': ''})):
            continue
        try:
            closure[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # what is not installed has nothing to read
        waiting += closure[name].requires or []
    return dict(sorted(closure.items()))


def distribution_files(
    distribution: importlib.metadata.Distribution,
) -> list[File]:
    """The source files that a distribution installed, sorted."""
    names = {
        '/'.join(f.parts)
        for f in distribution.files or []
        if '..' not in f.parts and _is_wanted(f.parts)
    }
    return [
        File(str(distribution.locate_file(name)), name)
        for name in sorted(names)
    ]
