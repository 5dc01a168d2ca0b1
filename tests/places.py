"""Folders and the cache of tests, restored after a module or class.

    def setUpModule():
        folder = places.make()

    @classmethod
    def setUpClass(cls):
        cls.folder = places.make(cls.addClassCleanup)

A single test has `self.create_tempdir()`, or `places.make(self.addCleanup)`,
and each test of a class that is a `places.Folder` too has `self.folder`.
"""

import functools
import os
import pathlib
import shutil
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

CACHE = 'INFOWORD_CACHE'


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
    return folder


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
