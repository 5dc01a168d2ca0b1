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

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import flag
from tasks import sts


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'The workdir of a finished run.', model=True)
    output: str | None = flag(
        None, 'The base path of the model; versions are folders in it.')
    version: int = flag(
        1, 'The number of the version; servers take the highest.', at_least=1)
    precision: str = flag(
        'float32', 'Precision in which the encoder is stored and computed; '
        'vectors are float32.', choices=('float32', 'bfloat16'))
    dims: int | None = flag(
        None, 'The first so many numbers of each vector alone.', at_least=1)
    sts: str | None = flag(
        None, 'A file of STS-B, see tasks.sts; the model card then says what '
        '--precision costs on it.')


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """The whole command."""
    commands.require(
        vars(given),
        init='the workdir to export',
        output='a folder for the versions of this model',
    )
    if given.sts:
        sts.read(pathlib.Path(given.sts))  # complains before the work
    began = time.monotonic()
    from export import bundle, serving_ops

    output = pathlib.Path(given.output)
    version = bundle.write(
        given.init, output, given.version, given.precision, given.sts,
        given.dims,
    )  # fmt: skip
    size = sum(p.stat().st_size for p in version.rglob('*') if p.is_file())
    signatures = serving_ops.read(version).signature_def
    names = [n for n in sorted(signatures) if not n.startswith('__saved')]
    print(
        f'{version}/: {", ".join(names)}; {given.precision}, '
        f'{size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


if __name__ == '__main__':
    commands.start(run)
