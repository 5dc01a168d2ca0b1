"""Runs of the real command in a second or two, for tests of what they leave.

Most of a short run is the time to trace its graph. A test of the graph itself
(of --xla, or that a function is traced once) wants `eagerly=False`. As a
program it is one such run, in a process of its own; --graphs for graphs.
"""

import contextlib
import functools
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import infoword_tf
from infoword_tf import checkpoint, commands, sizes
from infoword_tf.choices import RunChoices
from infoword_tf.data import batches
from infoword_tf.training import report

TINY = {'layers': 1, 'width': 64, 'heads': 1}
HELDOUT = 64


@contextlib.contextmanager
def small(eagerly: bool = True, pictures: bool = False) -> Iterator[None]:
    """Inside, tiny is one layer of 64, and 64 sequences are held out.

    Args:
        eagerly: whether steps are no graphs.
        pictures: whether the report is drawn, which takes half a second.
    """
    from tests import eager

    with contextlib.ExitStack() as stack:
        for changed in (
            mock.patch.dict(sizes.SIZES, tiny=TINY),
            mock.patch.object(batches, 'HELDOUT_SEQUENCES', HELDOUT),
            eager.eagerly(eagerly),
        ):
            stack.enter_context(changed)
        if not pictures:
            stack.enter_context(mock.patch.object(report, 'draw_bounds'))
        yield


@contextlib.contextmanager
def copy_before(
    workdir: pathlib.Path, copy: pathlib.Path, at: int
) -> Iterator[None]:
    """Copies the workdir of a run as a kill before a checkpoint leaves it.

    Args:
        workdir: of the run.
        copy: where the copy goes.
        at: the step of the checkpoint that the copy lacks.
    """
    save = checkpoint.Checkpoints.save

    def keep(self, step, variables):
        if step == at:
            shutil.copytree(workdir, copy)
        save(self, step, variables)

    with mock.patch.object(checkpoint.Checkpoints, 'save', keep):
        yield


def choices(*arguments: str, kind: type = RunChoices) -> Any:
    """Returns the choices of a command line."""
    return kind(**commands.parse(kind, arguments))


def run(*arguments: str, **ways: bool) -> None:
    """`python -m infoword_tf.train` with these flags, `small`, in-process."""
    with small(**ways):
        infoword_tf.train(**commands.parse(RunChoices, arguments))


if __name__ == '__main__':
    commands.own_process()
    commands.hush_tensorflow()
    from tests import eager

    graphs = '--graphs' in sys.argv
    eager.keys_at_once()
    rest = [x for x in sys.argv[1:] if x != '--graphs']
    commands.guard(
        functools.partial(run, *rest, eagerly=not graphs), sys.argv[:1]
    )
