"""Answers of an export in this process: five seconds less than another."""

import contextlib
import pathlib
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from export import comparison, runner, serving_ops
from infoword_tf.config import read_exported
from tests.eager import eagerly
from tests.export import workdirs


@eagerly()
def in_python(*arguments):
    """As `comparison.in_python`, without graphs: tracing takes longer."""
    return comparison.in_python(*arguments)


def elsewhere(model, batches, python, done=None, timed=()):
    """`comparison.run_elsewhere`, where a test needs no process of its own."""
    del python, done
    report = {'imported': [], 'imported_by_the_model': []}
    if timed:
        function = workdirs.serve(str(model)).signatures['serving_default']
        report['speed'] = runner.speed_of(function, tf.constant(timed))
    return here(model, batches), {**report, 'tensorflow': tf.__version__}


@contextlib.contextmanager
def verified_here():
    """Inside, `verify` takes no process, no graphs, no texts of 1 MB."""
    short = comparison.NASTY[:-2]
    with (
        mock.patch.object(comparison, 'run_elsewhere', elsewhere),
        mock.patch.object(comparison, 'NASTY', short),
        eagerly(),
    ):
        yield


def here(model, batches):
    """As `comparison.run_elsewhere`, without a process; no report."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for batch, content in batches.items():
            runner.write_texts(folder / f'{batch}.texts', content)
        with mock.patch.object(tf.saved_model, 'load', workdirs.serve):
            runner.main(str(model), str(folder))
        return {
            batch: dict(np.load(folder / f'{batch}.npz')) for batch in batches
        }


def check(test, version, model, default, *contents, near=1e-5):
    """Asserts that a version says what its workdir says, of no texts too.

    Args:
        test: what asserts.
        version, model: the folder, and the workdir in memory.
        default: the signature that needs no name.
        *contents: lists of texts.
        near: the largest difference that may be.

    Returns:
        Outputs of the version and of the workdir, of the first list.
    """
    test.assertEmpty(serving_ops.unservable(version))
    _, export = read_exported(version)
    test.assertEqual(export['default'], default)
    names = [*export['signatures'], 'serving_default']
    batches = {str(i): texts for i, texts in enumerate((*contents, []))}
    actual = here(version, batches)
    expected = {
        batch: in_python(model, texts, names, default)
        for batch, texts in batches.items()
    }
    gaps = comparison.largest(actual, expected, 1e-5)
    test.assertLess(max(gaps.values()), near, gaps)
    return actual['0'], expected['0']
