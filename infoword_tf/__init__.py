"""Language representations as InfoNCE over two views of a text."""

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.training.begin import train as train


def __getattr__(name: str) -> Any:
    """Imports `train` at the first use, so that `import infoword_tf` is quick.
    """
    if name != 'train':
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from infoword_tf.training.begin import train

    return train


def load(
    workdir: str | pathlib.Path,
    precision: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> 'Loaded':
    """Loads a trained workdir; see `workdir.Workdir.read`.

    Public folders are converted first: those of transformers and
    sentence-transformers, and checkpoints of BERT's or XLNet's own code
    (`folders.workdir_of`).

    TensorFlow logs by TF_CPP_MIN_LOG_LEVEL, by default fatal errors alone; XLA
    does not heed it. Unless TensorFlow is imported already, it multiplies by
    oneDNN (TF_ENABLE_ONEDNN_OPTS=0: only where it would do so by itself).
    Without a precision it is float32, and a Python program is told if this
    processor would answer faster in bfloat16.
    """
    from infoword_tf import commands
    from infoword_tf.config import Config
    from infoword_tf.folders import workdir_of

    workdir = workdir_of(workdir)
    Config.read(workdir)  # complains before TensorFlow is imported
    commands.hush_tensorflow()
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.workdir import Workdir

    if precision is None and not commands.runs():
        from infoword_tf.training import record

        how = "with infoword_tf.load(..., 'mixed_bfloat16')"
        if hint := record.faster_in_bfloat16(how):
            print(hint, flush=True)
    return Loaded(Workdir.read(workdir, precision or 'float32', arguments))
