"""Language representations as InfoNCE over two views of a text."""

from typing import Any


def load(
    workdir: Any, precision: str = 'float32', arguments: Any = None
) -> Any:
    """Loads a trained workdir; see `infoword_tf.inference.load`."""
    from infoword_tf.inference.load import load as load_workdir

    return load_workdir(workdir, precision, arguments)
