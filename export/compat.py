"""A check of an export in the TensorFlow of TensorFlow Serving 2.12.

    make serving-compat
    make serving-compat MODEL=models/books/1

`make` sets up .venv-serving/ with tensorflow and tensorflow_text 2.12.1, whose
operations Serving 2.12 to 2.19 links. The same texts go through the export
there and here; the largest difference of each output is printed. Exit status
1 if one is above 1e-5 (0.1 in bfloat16).
"""

import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import infoword_tf
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.config import read_exported

ROOT = pathlib.Path(__file__).parent.parent
SMALL = {
    'corpus': f'text:{ROOT}/README.md', 'heldout': f'{ROOT}/WORKSPACE.md',
    'objectives': 'bert_nce', 'vocab_size': 800, 'seq_len': 32,
    'batch_size': 8, 'steps': 20, 'precision': 'float32',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class CompatChoices:
    """The choices of the command."""

    model: str | None = flag(
        None, 'The folder of a version; by default a small model is trained '
        'on the documents of this project and exported.')
    python: str = flag(
        '.venv-serving/bin/python', 'The interpreter to compare with.')


def small_model(folder: pathlib.Path) -> pathlib.Path:
    """Trains and exports a model of two layers; returns the version."""
    from . import bundle

    infoword_tf.train(**SMALL, workdir=str(folder / 'workdir'))
    return bundle.write(folder / 'workdir', folder / 'model')


@commands.takes(CompatChoices)
def run(choices: CompatChoices, chosen: Mapping[str, Any]) -> bool:
    """Runs the command; returns whether all differences are small enough."""
    if not pathlib.Path(choices.python).is_file():
        raise FileNotFoundError(
            f'--python={choices.python} is not there; make serving-compat '
            'makes it'
        )
    from . import comparison

    with tempfile.TemporaryDirectory() as name:
        model = pathlib.Path(choices.model or small_model(pathlib.Path(name)))
        _, export = read_exported(model)
        tolerance = comparison.TOLERANCE[export['precision']]
        batches = comparison.batches(600)
        (served, old), (local, new) = (
            comparison.run_elsewhere(model, batches, python)
            for python in (os.path.abspath(choices.python), sys.executable)
        )
    print(
        f'{model}: {len(batches["all"])} texts, one and none; TensorFlow '
        f'{old["tensorflow"]} beside {new["tensorflow"]}; largest differences'
    )
    return comparison.show(
        comparison.largest(served, local, tolerance), tolerance
    )


if __name__ == '__main__':
    commands.start(run)
