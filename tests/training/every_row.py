r"""Every row on several replicas, held to one device: a program.

    python -m tests.training.every_row --replicas=4
    python -m infoword_tf.workers --workers=3 -- tests.training.every_row

The first is on logical devices of one process, the second on one replica in
each of several. test_distribution.py does it with two logical devices.
"""

import sys
import time
from collections.abc import Sequence

import tensorflow as tf
from absl import app, flags, logging

from tests import zoo
from tests.training import test_distribution

REPLICAS = flags.DEFINE_integer(
    'replicas', None, 'Logical devices of this process; None: workers.')
CASES = flags.DEFINE_list('cases', None, 'Of tests/zoo.py; by default all.')


def main(argv: Sequence[str]) -> None:
    """Prints a line a case; the exit status is whether all hold."""
    del argv
    tf.get_logger().setLevel('ERROR')
    logging.set_verbosity(logging.ERROR)
    count = REPLICAS.value
    if count is None:
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
        began = time.monotonic()
        # Shared by any of these numbers of replicas.
        size = -(-size // (2 * count)) * 2 * count
        try:
            test_distribution.SameAsOneTest().check(
                name, size, in_graph, count
            )
        except AssertionError as error:
            failed.append(name)
            print(f'{name}: {error}', flush=True)
        print(
            f'{name}: {size} texts, {count} replicas: '
            f'{"FAILED" if name in failed else "as on one"}, '
            f'{time.monotonic() - began:.0f} s', flush=True,
        )  # fmt: skip
    sys.exit(bool(failed))


if __name__ == '__main__':
    app.run(main)
