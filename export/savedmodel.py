"""A SavedModel of a trained workdir: strings in, vectors out.

    python -m export.savedmodel --init=runs/books --output=models/books

`models/books/1/` needs nothing but TensorFlow and the operations of
tensorflow_text, as TensorFlow Serving 2.12 to 2.20 link them. Its signatures:
`embed` computes vectors, `embed_tokens` and `embed_sparse` those of other
critics, `tokens` the state and the bytes of every token; if a row can,
`fill_mask` fills in each [MASK], and `next_token` goes on with a text; and a
fine-tuned workdir has the signature that it was trained for: `classify`,
`regress`, `choose`, `answer` or `tag`, which is then the default.
"""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.evaluation import sts


@dataclasses.dataclass(frozen=True)
class SavedModelChoices:
    """The choices of the command."""

    init: str = flag('', 'The workdir of a finished run.', model=True)
    output: str = flag(
        '', 'The base path of the model; versions are folders in it.')
    version: int = flag(
        1, 'The number of the version; servers take the highest.', at_least=1)
    precision: str = flag(
        'float32', 'Precision in which the encoder is stored and computed; '
        'vectors are float32.', choices=('float32', 'bfloat16'))
    dims: int | None = flag(
        None, 'How many first numbers of vectors are exported; by default all.',
        at_least=1)
    branches: int = flag(
        1, 'Into how many branches each block of the encoder is split, which '
        'as many threads of the server compute side by side: 2 answers single '
        'short texts faster.', at_least=1)
    sts: str | None = flag(
        None, 'A file of STS-B, see tasks.sts; the model card then says what '
        '--precision costs on it.')


@commands.takes(SavedModelChoices)
def run(choices: SavedModelChoices, chosen: Mapping[str, Any]) -> None:
    """Runs the command."""
    commands.require(
        vars(choices),
        init='the workdir to export',
        output='a folder for the versions of this model',
    )
    if choices.sts:
        sts.read(pathlib.Path(choices.sts))  # complains before the work
    began = time.monotonic()
    from infoword_tf.training.record import faster_in_bfloat16

    from . import bundle, serving_ops

    output = pathlib.Path(choices.output)
    version = bundle.write(
        choices.init,
        output,
        version=choices.version,
        precision=choices.precision,
        sts=choices.sts,
        dims=choices.dims,
        branches=choices.branches,
    )
    size = sum(p.stat().st_size for p in version.rglob('*') if p.is_file())
    signatures = serving_ops.read(version).signature_def
    names = [n for n in sorted(signatures) if not n.startswith('__saved')]
    print(
        f'{version}/: {", ".join(names)}; {choices.precision}, '
        f'{size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )
    hint = faster_in_bfloat16('with --precision=bfloat16')
    if hint and choices.precision == 'float32':
        print(hint)


if __name__ == '__main__':
    commands.start(run)
