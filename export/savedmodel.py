"""Makes a SavedModel of a trained workdir: strings in, vectors out.

    python -m export.savedmodel --init=runs/books --output=models/books

`models/books/1/` needs nothing but TensorFlow and the operations of
tensorflow_text, as TensorFlow Serving 2.12 to 2.20 link them. `embed` gives
what `encode` gives; `tokens` the state of every token and its bytes;
`fill_mask`, where a row fills blanks, what may stand at each [MASK];
`next_token`, of a row of next words, what may come next; and a
fine-tuned workdir gives what it was trained for: `classify`, `regress`,
`choose`, `answer`. A request that names no signature gets that, otherwise
vectors.
"""

import pathlib
import time

from absl import flags

from infoword_tf import commands
from tasks import sts

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

INIT = flags.DEFINE_string('init', None, 'The workdir of a finished run.',
    flag_values=FLAGS)
OUTPUT = flags.DEFINE_string(
    'output', None, 'The base path of the model; versions are folders in it.',
    flag_values=FLAGS)
VERSION = flags.DEFINE_integer(
    'version', 1, 'The number of the version; servers take the highest.',
    lower_bound=1,
    flag_values=FLAGS)
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'bfloat16'],
    'Precision in which the encoder is stored and computed; vectors are '
    'float32.',
    flag_values=FLAGS)
STS = flags.DEFINE_string(
    'sts', None, 'A file of STS-B, see tasks.sts; the model card then says '
    'what --precision costs on it.', flag_values=FLAGS)


def run() -> None:
    """The whole command."""
    commands.require(
        FLAGS.flag_values_dict(),
        init='the workdir to export',
        output='a folder for the versions of this model',
    )
    if STS.value:
        sts.read(pathlib.Path(STS.value))  # complains before the work
    began = time.monotonic()
    from export import bundle, serving_ops

    output = pathlib.Path(OUTPUT.value)
    version = bundle.write(
        INIT.value, output, VERSION.value, PRECISION.value, STS.value
    )
    size = sum(p.stat().st_size for p in version.rglob('*') if p.is_file())
    signatures = serving_ops.read(version).signature_def
    names = [n for n in sorted(signatures) if not n.startswith('__saved')]
    print(
        f'{version}/: {", ".join(names)}; {PRECISION.value}, '
        f'{size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


if __name__ == '__main__':
    commands.start(run)
