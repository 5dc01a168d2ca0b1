"""Makes a SavedModel of a trained workdir: strings in, vectors out.

    python -m export.savedmodel --init=runs/books --output=models/books

`models/books/1/` needs nothing but TensorFlow and the operations of
tensorflow_text, as TensorFlow Serving 2.12 to 2.20 link them. `embed` gives
what `encode` gives; `tokens` the state of every token and its bytes;
`fill_mask`, where a row knows words, what may stand at each [MASK].
"""

import os
import pathlib
import sys
import time
from collections.abc import Sequence

from absl import app, flags, logging

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

INIT = flags.DEFINE_string('init', None, 'The workdir of a finished run.')
OUTPUT = flags.DEFINE_string(
    'output', None, 'The base path of the model; versions are folders in it.')
VERSION = flags.DEFINE_integer(
    'version', 1, 'Its number: servers take the highest.', lower_bound=1)
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'mixed_bfloat16'],
    'What the encoder computes in; vectors are float32.')


class UsageError(Exception):
    """Something that was asked for cannot be; the message says what to do."""


def export() -> None:
    """The whole command."""
    if INIT.value is None:
        raise UsageError('--init is missing: name the workdir to export')
    if OUTPUT.value is None:
        raise UsageError(
            '--output is missing: name a folder for the versions of this model'
        )
    began = time.monotonic()
    from export import bundle, serving_ops

    output = pathlib.Path(OUTPUT.value)
    version = bundle.write(INIT.value, output, VERSION.value, PRECISION.value)
    size = sum(p.stat().st_size for p in version.rglob('*') if p.is_file())
    signatures = serving_ops.read(version).signature_def
    names = [n for n in sorted(signatures) if not n.startswith('__saved')]
    print(
        f'{version}/: {", ".join(names)}; {PRECISION.value}, '
        f'{size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


def main(argv: Sequence[str]) -> None:
    """Runs, and turns what a user can mend into one sentence."""
    logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise UsageError(f'{argv[1]!r} is no flag; flags begin with --')
        export()
    except (UsageError, ValueError, OSError) as error:
        if os.environ.get('INFOWORD_TRACEBACK'):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == '__main__':
    app.run(main)
