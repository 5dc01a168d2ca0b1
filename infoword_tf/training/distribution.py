"""Replicas under `tf.distribute`: strategies, exchanges, `StrategyReplicas`.

Glossary of shapes: n numbers.
"""

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.errors import InputError, Preempted, UsageError
from infoword_tf.objectives.candidates import Replicas

STRATEGIES = ('one', 'mirrored', 'multiworker', 'tpu')


def make_strategy(name: str, logical_cpus: int = 1) -> tf.distribute.Strategy:
    """Creates a strategy: once a process, before any device is used.

    Args:
        name: 'one' device, 'mirrored' over the devices of this machine,
            'multiworker' over the machines of TF_CONFIG, or 'tpu'.
        logical_cpus: devices that the CPU is split into, to try strategies on.

    Raises:
        ValueError: an unknown name, or logical CPUs without use.
    """
    if name not in STRATEGIES:
        raise InputError(
            'unknown_strategy',
            f'--strategy={name}: known are {", ".join(STRATEGIES)}',
        )
    gpus = tf.config.list_physical_devices('GPU')
    if logical_cpus > 1:
        if name != 'mirrored':
            raise InputError(
                'logical_cpus_unused',
                f'--logical_cpus={logical_cpus} is for --strategy=mirrored',
            )
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices('CPU')[0],
            [tf.config.LogicalDeviceConfiguration()] * logical_cpus,
        )
        gpus = []
    if name == 'one':
        return tf.distribute.OneDeviceStrategy('/gpu:0' if gpus else '/cpu:0')
    if name == 'mirrored':
        kind = 'GPU' if gpus else 'CPU'
        devices = tf.config.list_logical_devices(kind)
        return tf.distribute.MirroredStrategy([d.name for d in devices])
    if name == 'multiworker':
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def check(
    replicas: int, batch_size: int, one_cpu: bool = False, xla: bool = False
) -> None:
    """Raises for a batch that replicas cannot share, and XLA over one CPU."""
    if batch_size % replicas:
        raise UsageError(
            'unequal_replicas',
            f'--batch_size={batch_size} cannot be shared by {replicas} '
            f'replicas; take a multiple of {replicas}',
        )
    if xla and one_cpu:
        raise UsageError(
            'xla_on_cpus',
            '--xla cannot cross the devices of one CPU; leave out --xla or '
            '--logical_cpus',
        )


def shard(x: tf.Tensor, replica: Any, count: int) -> tf.Tensor:
    """Slices one replica's share, [ceil(B / count), ...], out of [B, ...].

    The replicas may not divide packed sequences: zeros, of weight 0, are then
    appended.
    """
    if count == 1:
        return x
    size = -(-x.shape[0] // count)
    if padding := size * count - x.shape[0]:
        x = tf.pad(x, [[0, padding]] + [[0, 0]] * (x.shape.rank - 1))
    begin = replica * size
    return tf.ensure_shape(x[begin : begin + size], (size, *x.shape[1:]))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether the process is the chief, which writes to the workdir."""
    if not is_multiworker(strategy):
        return True
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    first = 'chief' if 'chief' in cluster else 'worker'
    return (resolver.task_type or first, resolver.task_id or 0) == (first, 0)


def is_multiworker(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether several processes share the replicas."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


@contextlib.contextmanager
def ended_by_lost_workers() -> Iterator[None]:
    """Turns errors of lost workers into `Preempted`, within the context.

    Raises:
        Preempted: another worker is gone; the same command goes on.
    """
    try:
        yield
    except tf.errors.OpError as error:
        aborted = 'Collective ops is aborted' in error.message
        if not (aborted or isinstance(error, tf.errors.UnavailableError)):
            raise
        raise Preempted(
            'since another worker is gone: start the same command on all'
        ) from None


def local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """Returns the numbers of the replicas of the calling process."""
    replicas = []

    def note(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        replicas.append(context.replica_id_in_sync_group)
        return tf.zeros(())

    strategy.experimental_distribute_values_from_function(note)
    return replicas


def gather_numbers(
    strategy: tf.distribute.Strategy, *numbers: int
) -> np.ndarray:
    """Gathers numbers of all processes, once for every replica.

    All processes must call it at the same place: they wait for each other.

    Returns:
        [R, n] int64, n at least 1.
    """
    if not is_multiworker(strategy):
        return np.asarray([numbers], np.int64)
    local = strategy.experimental_distribute_values_from_function(
        lambda _: tf.constant([numbers], tf.int64)
    )
    return strategy.gather(local, axis=0).numpy()


def any_process(
    strategy: tf.distribute.Strategy, *values: bool
) -> tuple[bool, ...]:
    """Combines truth values: True where any process has True.

    Called as `gather_numbers`.
    """
    numbers = gather_numbers(strategy, *map(int, values))
    return tuple(bool(column.any()) for column in numbers.T)


@contextlib.contextmanager
def failing_together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Makes all processes fail if one does, within the context.

    Otherwise the others would wait for it, and take it for lost. Nothing may
    be exchanged inside.

    Raises:
        UsageError: another process has failed.
    """
    try:
        yield
    except Exception:
        any_process(strategy, True)
        raise
    (failed,) = any_process(strategy, False)
    if failed:
        raise UsageError(
            'other_worker_failed',
            'another worker has complained, and says of what',
        )


def differing(
    strategy: tf.distribute.Strategy, record: Mapping[str, Any]
) -> list[str]:
    """Returns the names whose values differ between processes.

    Called as `gather_numbers`.
    """

    def number(value: Any) -> int:
        return zlib.crc32(repr(value).encode())

    names = sorted(record)
    known = gather_numbers(strategy, number(names))
    if (known != known[0]).any():
        return ['what there is to choose (their code is not the same)']
    values = gather_numbers(strategy, *(number(record[name]) for name in names))
    differ = (values != values[0]).any(axis=0)
    return [name for name, marked in zip(names, differ, strict=True) if marked]


class StrategyReplicas(Replicas):
    """Replicas of the running step, for use inside `strategy.run`."""

    def __init__(self):
        """Reads the replica context."""
        self._context = tf.distribute.get_replica_context()
        self.id = self._context.replica_id_in_sync_group
        self.count = self._context.num_replicas_in_sync

    def gather(self, x: Any) -> Any:
        """Gathers [B, ...] over replicas: [R B, ...].

        The gradient is that of the sum of all replicas' losses.
        """
        if self.count == 1:
            return x
        gathered = self._context.all_gather(x, axis=0)
        # Between workers the static size is lost on the way.
        shape = (self.count * x.shape[0], *x.shape[1:])
        return tf.ensure_shape(gathered, shape)

    def sum(self, x: Any) -> Any:
        """Sums over replicas, without a gradient."""
        x = tf.stop_gradient(x)
        if self.count == 1:
            return x
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, x)

    def sum_all(self, gradients: list[Any]) -> list[Any]:
        """Sums each gradient over replicas, all in one exchange."""
        if self.count == 1:
            return gradients
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
