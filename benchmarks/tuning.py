"""Flags of the benchmarks that fine-tune, and what seeds gave, for people."""

import statistics
from collections.abc import Sequence

from absl import flags

INIT = flags.DEFINE_string('init', None, 'A workdir.')
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, "GLUE's data.")
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where runs and the table go.')
SEEDS = flags.DEFINE_integer(
    'seeds', 3, 'Runs of each.', lower_bound=1)
EPOCHS = flags.DEFINE_integer(
    'epochs', 3, 'Of each run.', lower_bound=1)
EXAMPLES = flags.DEFINE_integer(
    'examples', 6000, 'Training examples at most.')
LEARNING_RATE = flags.DEFINE_float(
    'learning_rate', 5e-5, 'Its peak.')
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Examples of an update.')
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', 128, 'Tokens of an example.')
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'mixed_bfloat16'], 'Of all sides.')


def given() -> list[str]:
    """What they all say to a command of tasks/ that fine-tunes."""
    return [
        f'--init={INIT.value}',
        f'--data_dir={DATA_DIR.value}',
        f'--examples={EXAMPLES.value}',
        f'--learning_rate={LEARNING_RATE.value}',
        f'--batch_size={BATCH_SIZE.value}',
        f'--seq_len={SEQ_LEN.value}',
        f'--precision={PRECISION.value}',
        '--notest',
    ]


def shown(values: Sequence[float], digits: int = 3) -> str:
    """Mean (lowest-highest)."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f'{mean:.{digits}f}'
    return (
        f'{mean:.{digits}f} ({min(values):.{digits}f}-'
        f'{max(values):.{digits}f})'
    )
