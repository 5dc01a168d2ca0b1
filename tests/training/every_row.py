r"""Every row on several replicas, held to one device: a program.

    python -m tests.training.every_row --replicas=4
    python -m tests.workers --workers=3 -- tests.training.every_row
    python -m tests.training.every_row --compiled

The first is on logical devices of one process, the second on one replica in
each of several: test_distribution.py does it with two logical devices. The
third makes each whole step one program of XLA, as test_compiled.py of some.
"""

import sys
import time
from collections.abc import Sequence

import tensorflow as tf
from absl import app, flags, logging

from tests import zoo
from tests.training import test_compiled, test_distribution

REPLICAS = flags.DEFINE_integer(
    'replicas', None, 'Logical devices of this process; None: workers.')
COMPILED = flags.DEFINE_bool(
    'compiled', False, 'Instead: make each an HLO program, and compile it.')
CASES = flags.DEFINE_list('cases', None, 'Of tests/zoo.py; by default all.')


def main(argv: Sequence[str]) -> None:
    """Prints a line a case; the exit status is whether all hold."""
    del argv
    tf.get_logger().setLevel('ERROR')
    logging.set_verbosity(logging.ERROR)
    count = REPLICAS.value
    if COMPILED.value:
        count, strategy = 1, None
    elif count is None:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        count = strategy.num_replicas_in_sync
    else:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices('CPU')[0],
            [tf.config.LogicalDeviceConfiguration()] * count,
        )
        strategy = tf.distribute.MirroredStrategy(
            [f'/cpu:{number}' for number in range(count)]
        )
    one = zoo.strategy(1)
    zoo.strategy = lambda replicas: one if replicas == 1 else strategy
    failed = []
    for name, size, in_graph in test_distribution.BATCHES:
        if CASES.value and name not in CASES.value:
            continue
        began, held = time.monotonic(), True
        # Shared by any of these numbers of replicas.
        size = -(-size // (2 * count)) * 2 * count
        try:
            if COMPILED.value:
                test_compiled.program(name, 'optimized_hlo')
            else:
                test_distribution.SameAsOneTest().check(
                    name, size, in_graph, count
                )
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            print(f'{name}: {error}', flush=True)
            failed.append(name)
            held = False
        what = 'compiled' if COMPILED.value else f'{count} replicas as one'
        print(
            f'{name}: {what}: {"yes" if held else "NO"}, '
            f'{time.monotonic() - began:.0f} s', flush=True,
        )  # fmt: skip
    sys.exit(bool(failed))


if __name__ == '__main__':
    app.run(main)
