"""Makes a file for LiteRT (TensorFlow Lite) of a trained workdir.

    python -m export.litert --init=runs/phone --output=models/phone
    python models/phone/model.py "strings in"

`models/phone/` needs nothing but numpy and ai-edge-litert: model.tflite takes
ids, and model.py beside it strings, which it tokenizes as the workdir does. A
fine-tuned workdir gives what it was trained for, classes or numbers of single
texts or of pairs; any other gives vectors. MODEL_CARD.md says what --precision
costs: on texts of all kinds, on --dev, on --sts.
"""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from export.tflite import PRECISIONS
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.plan import answering
from tasks import sts


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'The workdir of a finished run.', model=True)
    output: str | None = flag(None, 'A folder that is not there yet.')
    seq_len: int | None = flag(
        None, 'Maximum length of a text in tokens; by default that of '
        'training.', at_least=4)
    precision: str = flag(
        'int8', 'Precision of the weights; int8 also multiplies in 8 bits.',
        choices=PRECISIONS)
    dev: str | None = flag(
        None, 'A labelled table, see tasks.classify; the model card then has '
        'the scores on it.')
    text: str = flag('text', 'Column of its texts.')
    pair: str | None = flag(None, 'Column of its second texts.')
    label: str = flag('label', 'Column of its labels.')
    sts: str | None = flag(
        None, 'The same for vectors: a file of STS-B, see tasks.sts.')


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """The whole command."""
    commands.require(
        vars(given),
        init='the workdir to write for LiteRT',
        output='a folder that is not there yet',
    )
    began = time.monotonic()
    from export import tflite
    from infoword_tf.config import Config

    output = pathlib.Path(given.output)
    config = Config.read(pathlib.Path(given.init))
    tflite.check(config, given.init, output)
    knows = answering(tflite.HEADS, config.rows)
    if given.dev and not knows:
        raise commands.UsageError(
            f'--dev is of labelled texts, and --init={given.init} was taught '
            'none; of vectors --sts says what they are worth'
        )
    if given.sts and knows:
        raise commands.UsageError(
            f'--sts is of vectors, and --init={given.init} gives classes or '
            'numbers; --dev says what they are worth'
        )
    if given.sts:
        sts.read(pathlib.Path(given.sts))  # complains before the work
    dev = None
    if given.dev:
        from infoword_tf.data import tables

        dev = tables.examples_of(
            tables.open_table(given.dev), given.text, given.pair, given.label,
            bool(answering(('numbers',), knows)),
        )  # fmt: skip
    found = tflite.write(
        given.init, output, given.seq_len, given.precision, dev, given.sts
    )
    print(
        f'{output}/: {", ".join(found["signatures"])}; {given.precision}, '
        f'{found["bytes"] / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


if __name__ == '__main__':
    commands.start(run)
