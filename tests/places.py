"""Folders and the cache of tests, restored after a module or class.

    def setUpModule():
        folder = places.make()

    @classmethod
    def setUpClass(cls):
        cls.folder = places.make(cls.addClassCleanup)

A single test has `self.create_tempdir()`, or `places.make(self.addCleanup)`,
and each test of a class that is a `places.Folder` too has `self.folder`.
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import pickle
import re
import shutil
import tempfile
import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CACHE = 'INFOWORD_CACHE'
SHARED = 'INFOWORD_TESTS_SHARED'


def make(
    cleanup: Callable[..., Any] = unittest.addModuleCleanup,
    cache: bool = True,
) -> pathlib.Path:
    """Makes a folder.

    Args:
        cleanup: what takes a function and arguments to call at the end.
        cache: whether INFOWORD_CACHE is inside it until then.
    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix='infoword_tests_'))
    cleanup(shutil.rmtree, folder, ignore_errors=True)
    if cache:
        cleanup(_put_back, os.environ.get(CACHE))
        os.environ[CACHE] = str(folder / 'cache')
        if SHARED in os.environ:  # what libraries say of every code point
            answers = shared() / 'normalization'
            answers.mkdir(exist_ok=True)
            (folder / 'cache').mkdir()
            (folder / 'cache' / answers.name).symlink_to(answers)
    return folder


def write(
    folder: pathlib.Path, files: Mapping[str, str | bytes]
) -> pathlib.Path:
    """Writes files into a folder, by name; returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
    return folder


def shared() -> pathlib.Path:
    """Returns the folder that all processes of a run of pytest share."""
    return pathlib.Path(os.environ[SHARED])


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Makes the folder that this process and those it starts share."""
    with tempfile.TemporaryDirectory(prefix='infoword_shared_') as folder:
        os.environ[SHARED] = folder
        try:
            yield
        finally:
            del os.environ[SHARED]


def once(write: Callable[..., Any], name: str = '') -> Callable[..., Any]:
    """Lets one process call a function, and all others read what it returned.

    For functions that take long and write into the shared folder.

    Args:
        write: function of strings, whose value can be pickled.
        name: what tells it from a function of the same name and module.
    """

    @functools.cache
    def call(*arguments: str) -> Any:
        words = write.__module__, write.__qualname__, name, *arguments
        path = shared() / re.sub(r'\W', '_', '.'.join(words))
        with open(path, 'a+b') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not (data := file.read()):
                data = pickle.dumps(write(*arguments))
                file.write(data)
        return pickle.loads(data)

    return call


class Folder:
    """Mixin of a TestCase whose tests have a folder each."""

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        """Folder that is empty at first, and deleted after the test."""
        return make(self.addCleanup, cache=False)


def _put_back(value: str | None) -> None:
    if value is None:
        os.environ.pop(CACHE, None)
    else:
        os.environ[CACHE] = value
