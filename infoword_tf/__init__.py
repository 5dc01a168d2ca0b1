"""Language representations as InfoNCE over two views of a text."""

from typing import Any


def load(
    workdir: Any, precision: str = 'float32', arguments: Any = None
) -> Any:
    """Loads a trained workdir; see `infoword_tf.inference.load`.

    TensorFlow says no more than TF_CPP_MIN_LOG_LEVEL lets it, which is fatal
    errors alone where it is not set.
    """
    from infoword_tf import commands
    from infoword_tf.config import Config

    Config.read(workdir)  # complains before TensorFlow is imported
    commands.hush_tensorflow()
    from infoword_tf.inference.load import load as load_workdir

    return load_workdir(workdir, precision, arguments)
