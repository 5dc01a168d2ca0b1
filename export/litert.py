"""Makes a file for LiteRT (TensorFlow Lite) of a trained workdir.

    python -m export.litert --init=runs/phone --output=models/phone
    python models/phone/model.py "strings in"

`models/phone/` needs nothing but numpy and ai-edge-litert: model.tflite takes
ids, and model.py beside it strings, which it tokenizes as the workdir does. A
fine-tuned workdir gives what it was trained for, classes or numbers of single
texts or of pairs; any other gives vectors. MODEL_CARD.md says what --precision
costs: on texts of all kinds, on --dev, on --sts.
"""

import pathlib
import time

from absl import flags

from export.tflite import PRECISIONS
from infoword_tf import commands
from infoword_tf.plan import answering
from tasks import sts

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

INIT = flags.DEFINE_string('init', None, 'The workdir of a finished run.',
    flag_values=FLAGS)
OUTPUT = flags.DEFINE_string(
    'output', None, 'A folder that is not there yet.', flag_values=FLAGS)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', None, 'Maximum length of a text in tokens; by default that of '
    'training.', lower_bound=4, flag_values=FLAGS)
PRECISION = flags.DEFINE_enum(
    'precision', 'int8', PRECISIONS, 'Precision of the weights; int8 also '
    'multiplies in 8 bits.', flag_values=FLAGS)
DEV = flags.DEFINE_string(
    'dev', None, 'A labelled table, see tasks.classify; the model card then '
    'has the scores on it.', flag_values=FLAGS)
TEXT = flags.DEFINE_string(
    'text', 'text', 'Column of its texts.', flag_values=FLAGS)
PAIR = flags.DEFINE_string(
    'pair', None, 'Column of its second texts.', flag_values=FLAGS)
LABEL = flags.DEFINE_string(
    'label', 'label', 'Column of its labels.', flag_values=FLAGS)
STS = flags.DEFINE_string(
    'sts', None, 'The same for vectors: a file of STS-B, see tasks.sts.',
    flag_values=FLAGS)


def run() -> None:
    """The whole command."""
    commands.require(
        FLAGS.flag_values_dict(),
        init='the workdir to write for LiteRT',
        output='a folder that is not there yet',
    )
    began = time.monotonic()
    from export import tflite
    from infoword_tf.config import Config

    output = pathlib.Path(OUTPUT.value)
    config = Config.read(pathlib.Path(INIT.value))
    tflite.check(config, INIT.value, output)
    knows = answering(tflite.HEADS, config.rows)
    if DEV.value and not knows:
        raise commands.UsageError(
            f'--dev is of labelled texts, and --init={INIT.value} was taught '
            'none; of vectors --sts says what they are worth'
        )
    if STS.value and knows:
        raise commands.UsageError(
            f'--sts is of vectors, and --init={INIT.value} gives classes or '
            'numbers; --dev says what they are worth'
        )
    if STS.value:
        sts.read(pathlib.Path(STS.value))  # complains before the work
    dev = None
    if DEV.value:
        from infoword_tf.data import tables

        dev = tables.rows_of(
            tables.open_table(DEV.value),
            TEXT.value,
            PAIR.value,
            LABEL.value,
            bool(answering(('numbers',), knows)),
        )
    found = tflite.write(
        INIT.value, output, SEQ_LEN.value, PRECISION.value, dev, STS.value
    )
    print(
        f'{output}/: {", ".join(found["signatures"])}; {PRECISION.value}, '
        f'{found["bytes"] / 1e6:.1f} MB, {time.monotonic() - began:.0f} s; '
        f'{output}/MODEL_CARD.md describes it'
    )


if __name__ == '__main__':
    commands.start(run)
