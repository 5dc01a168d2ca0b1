"""Which precision this machine multiplies matrices in fastest."""

import pathlib
import time
from collections.abc import Sequence

from infoword_tf.commands import UsageError
from infoword_tf.config import FILE, Config

THRESHOLD = 1.5  # below it bfloat16's conversions eat its gain


def product_rates(
    dtypes: Sequence[str], size: int = 1024, repeats: int = 10
) -> list[float]:
    """Floating-point operations a second of one matrix product of each dtype.

    The best of some repeats, taken in turns, so that a busy machine misleads
    less.

    Args:
        dtypes: names of floating dtypes.
        size: rows and columns of the square matrices.
        repeats: turns.
    """
    import tensorflow as tf

    x = tf.random.stateless_normal((size, size), (1, 2))
    product = tf.function(lambda a: tf.reduce_sum(tf.matmul(a, a)))
    operands = [tf.cast(x, dtype) for dtype in dtypes]
    best = [float('inf')] * len(operands)
    for turn in range(repeats + 1):
        for i, operand in enumerate(operands):
            began = time.perf_counter()
            product(operand).numpy()
            if turn:  # the first one traces
                best[i] = min(best[i], time.perf_counter() - began)
    return [2 * size**3 / seconds for seconds in best]


def faster() -> str:
    """'mixed_bfloat16' where its products are 1.5 times as fast.

    A fraction of a second; the run records the decision, so that resuming
    keeps it.
    """
    single, half = product_rates(('float32', 'bfloat16'))
    chosen = 'mixed_bfloat16' if half >= THRESHOLD * single else 'float32'
    print(
        f'precision: a bfloat16 product is {half / single:.1f} times as fast '
        f'as a float32 one here: {chosen}',
        flush=True,
    )
    return chosen


def check(chosen: str, strategy: str) -> None:
    """Complains, before the work, of workers that could decide differently.

    Args:
        chosen: 'auto', or a Keras dtype policy.
        strategy: of the run.

    Raises:
        UsageError: they could.
    """
    if chosen == 'auto' and strategy == 'multiworker':
        raise UsageError(
            '--precision=auto may decide differently on each worker; name it'
        )


def decide(chosen: str, workdir: pathlib.Path) -> str:
    """A precision, with `auto` decided once for a workdir.

    Args:
        chosen: 'auto', or a Keras dtype policy.
        workdir: of the run, which keeps what was decided.
    """
    if chosen != 'auto':
        return chosen
    if (workdir / FILE).exists():
        return Config.read(workdir).precision
    return faster()
