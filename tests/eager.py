"""Functions without graphs, for tests of what they compute.

Tracing and compiling a graph takes far longer than a tiny model does.
"""

import contextlib
import warnings
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def eagerly(wanted: bool = True) -> Iterator[None]:
    """Inside, every `tf.function` runs as the Python that it is."""
    before = tf.config.functions_run_eagerly()
    with warnings.catch_warnings():
        # That datasets stay graphs, which is as it should be.
        warnings.filterwarnings('ignore', 'Even though the `tf.config')
        tf.config.run_functions_eagerly(wanted)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)
