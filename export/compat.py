"""Runs an export in the TensorFlow that TensorFlow Serving 2.12 was built from.

    make serving-compat
    make serving-compat MODEL=models/books/1

`make` sets up .venv-serving/ with tensorflow and tensorflow_text 2.12.1, whose
operations Serving 2.12 to 2.19 links. The same texts go through the export
there and here; the largest difference of each output is printed. Exit status
1 if one is above 1e-5 (0.1 in bfloat16).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from absl import app, flags, logging

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

MODEL = flags.DEFINE_string(
    'model', None, 'The folder of a version; by default a small model is '
    'trained on the documents of this project and exported.')
PYTHON = flags.DEFINE_string(
    'python', '.venv-serving/bin/python', 'The interpreter to compare with.')

ROOT = pathlib.Path(__file__).parent.parent
_SMALL = (
    f'--corpus=text:{ROOT}/README.md',
    f'--heldout={ROOT}/WORKSPACE.md',
    '--objectives=bert_nce',
    '--vocab_size=800',
    '--seq_len=32',
    '--batch_size=8',
    '--steps=20',
    '--precision=float32',
)


def small_model(folder: pathlib.Path) -> pathlib.Path:
    """Trains and exports a model of two layers: a version's folder."""
    run = [sys.executable, '-m']
    workdir, output = folder / 'workdir', folder / 'model'
    for command in (
        [*run, 'infoword_tf.train', *_SMALL, f'--workdir={workdir}'],
        [*run, 'export.savedmodel', f'--init={workdir}', f'--output={output}'],
    ):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = ' | '.join(done.stderr.strip().splitlines()[-3:])
            raise ValueError(f'{" ".join(command[1:4])} failed: {last}')
    return output / '1'


def compare(folder: pathlib.Path) -> bool:
    """The whole command.

    Returns:
        Whether all differences are small enough.
    """
    from export import comparison

    if not pathlib.Path(PYTHON.value).is_file():
        raise FileNotFoundError(
            f'--python={PYTHON.value} is not there; make serving-compat makes '
            'it'
        )
    model = pathlib.Path(MODEL.value) if MODEL.value else small_model(folder)
    _, export = comparison.read_export(model)
    tolerance = comparison.TOLERANCE[export['precision']]
    batches = comparison.batches(600)
    (there, old), (here, new) = (
        comparison.run_elsewhere(model, batches, python)
        for python in (os.path.abspath(PYTHON.value), sys.executable)
    )
    print(
        f'{model}: {len(batches["all"])} texts, one and none; TensorFlow '
        f'{old["tensorflow"]} beside {new["tensorflow"]}; largest differences'
    )
    return comparison.show(
        comparison.largest(there, here, tolerance), tolerance
    )


def main(argv: Sequence[str]) -> None:
    """Runs, and turns what a user can mend into one sentence."""
    logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise ValueError(f'{argv[1]!r} is no flag; flags begin with --')
        with tempfile.TemporaryDirectory() as name:
            if not compare(pathlib.Path(name)):
                sys.exit(1)
    except (ValueError, OSError) as error:
        if os.environ.get('INFOWORD_TRACEBACK'):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == '__main__':
    app.run(main)
