"""Compares an export with the workdir that it was made from.

    python -m export.verify --model=models/books/1 --init=runs/books

Runs a moved copy in a process that imports TensorFlow and tensorflow_text
alone, on real text and on nasty strings, and prints the largest difference
from `infoword_tf.load` for each output. Exit status 1 if one is too large:
above 1e-5 in float32, 0.1 in bfloat16, where vectors depend on the batch.
"""

import json
import os
import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags, logging

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

MODEL = flags.DEFINE_string('model', None, 'The folder of a version: DIR/1.')
INIT = flags.DEFINE_string('init', None, 'The workdir it was made from.')
TEXTS = flags.DEFINE_integer(
    'texts', 600, 'Real texts, beside the nasty ones.', lower_bound=1)


class UsageError(Exception):
    """Something that was asked for cannot be; the message says what to do."""


def verify() -> bool:
    """The whole command.

    Returns:
        Whether all differences are small enough.
    """
    if MODEL.value is None or INIT.value is None:
        raise UsageError(
            'name both --model=DIR/1, an export, and --init, its workdir'
        )
    from export import comparison, serving_ops

    model, workdir = pathlib.Path(MODEL.value), pathlib.Path(INIT.value)
    config, export = comparison.read_export(model)
    if not (workdir / 'config.json').is_file():
        raise UsageError(
            f'--init={workdir} is no workdir: it has no config.json'
        )
    if config != json.loads((workdir / 'config.json').read_text()):
        raise UsageError(
            f'--model={model} was not made from --init={workdir}: their '
            'config.json differ'
        )
    batches = comparison.batches(TEXTS.value)
    found, report = comparison.run_elsewhere(model, batches, sys.executable)
    problems = serving_ops.unservable(model)
    for what, names in (
        ('imported', {'infoword_tf', 'export'}),
        ('imported_by_the_model', {'keras', 'tf_keras'}),
    ):
        problems += [
            f'{name} was imported'
            for name in sorted(names.intersection(report[what]))
        ]

    import infoword_tf

    loaded = infoword_tf.load(workdir, export['precision'])
    tolerance = comparison.TOLERANCE[export['precision']]
    names = [*export['signatures'], 'serving_default']
    wanted = {
        batch: comparison.in_python(loaded, texts, names)
        for batch, texts in batches.items()
    }
    print(
        f'{model} beside {workdir}: {len(batches["all"])} texts, one and none, '
        f'{export["precision"]}, TensorFlow {report["tensorflow"]}; largest '
        'differences'
    )
    close = comparison.show(
        comparison.largest(found, wanted, tolerance), tolerance
    )
    for problem in problems:
        print(f'  {problem}')
    return close and not problems


def main(argv: Sequence[str]) -> None:
    """Runs, and turns what a user can mend into one sentence."""
    logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise UsageError(f'{argv[1]!r} is no flag; flags begin with --')
        if not verify():
            sys.exit(1)
    except (UsageError, ValueError, OSError) as error:
        if os.environ.get('INFOWORD_TRACEBACK'):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == '__main__':
    app.run(main)
