"""Runs of the real command in a second or two, for tests of what they leave.

Most of a short run is the time to trace its graph. A test of the graph itself
(of --xla, or that a function is traced once) wants `eagerly=False`. As a
program it is one such run, in a process of its own; --graphs for graphs.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

import infoword_tf
from infoword_tf import commands, sizes
from infoword_tf.choices import RunChoices
from infoword_tf.data import batches
from infoword_tf.training import checkpoint

TINY = {'layers': 1, 'width': 64, 'heads': 1}
HELDOUT = 64


@contextlib.contextmanager
def small(eagerly: bool = True) -> Iterator[None]:
    """Inside, tiny is one layer of 64, and 64 sequences are held out."""
    before = tf.config.functions_run_eagerly()
    with (
        mock.patch.dict(sizes.SIZES, tiny=TINY),
        mock.patch.object(batches, 'HELDOUT_SEQUENCES', HELDOUT),
        warnings.catch_warnings(),
    ):
        # That datasets stay graphs, which is as it should be.
        warnings.filterwarnings('ignore', 'Even though the `tf.config')
        tf.config.run_functions_eagerly(eagerly)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def stopped(at: int) -> Iterator[None]:
    """A run inside is stopped before its checkpoint of a step."""
    save = checkpoint.Checkpoints.save

    def stop(self, step, variables):
        if step == at:
            raise KeyboardInterrupt
        save(self, step, variables)

    with (
        mock.patch.object(checkpoint.Checkpoints, 'save', stop),
        contextlib.suppress(KeyboardInterrupt),
    ):
        yield
        raise AssertionError('the run was not stopped')


def given(*arguments: str, kind: type = RunChoices) -> Any:
    """All choices, these flags among them."""
    return kind(**commands.parse(kind, arguments))


def run(*arguments: str, eagerly: bool = True) -> None:
    """`python -m infoword_tf.train` with these flags, small, in-process."""
    with small(eagerly):
        infoword_tf.train(**commands.parse(RunChoices, arguments))


if __name__ == '__main__':
    graphs = '--graphs' in sys.argv
    run(*[x for x in sys.argv[1:] if x != '--graphs'], eagerly=not graphs)
