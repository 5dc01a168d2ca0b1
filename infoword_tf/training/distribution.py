"""Replicas under `tf.distribute`: strategies, and what objectives ask of them.

Glossary of shapes: B rows of a replica, R replicas.
"""

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.errors import UsageError
from infoword_tf.objectives.objective import Replicas
from infoword_tf.preemption import Preempted

STRATEGIES = ('one', 'mirrored', 'multiworker', 'tpu')


def make_strategy(name: str, logical_cpus: int = 1) -> tf.distribute.Strategy:
    """Makes a strategy: once a process, before anything touches a device.

    Args:
        name: 'one' device, 'mirrored' over the devices of this machine,
            'multiworker' over the machines of TF_CONFIG, or 'tpu'.
        logical_cpus: parts that the CPU is split into, to try strategies on.

    Raises: ValueError: an unknown name, or logical CPUs without use.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f'--strategy={name}: known are {", ".join(STRATEGIES)}'
        )
    gpus = tf.config.list_physical_devices('GPU')
    if logical_cpus > 1:
        if name != 'mirrored':
            raise ValueError(
                f'--logical_cpus={logical_cpus} is for --strategy=mirrored'
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
    """Complains of a batch or a compiler that replicas cannot have."""
    if batch_size % replicas:
        raise UsageError(
            f'--batch_size={batch_size} cannot be shared by {replicas} '
            f'replicas; take a multiple of {replicas}'
        )
    if xla and one_cpu:
        raise UsageError(
            '--xla cannot cross the devices of one CPU; leave out --xla or '
            '--logical_cpus'
        )


def shard(x: tf.Tensor, replica: Any, count: int) -> tf.Tensor:
    """The rows of a replica of `count`, of a part [B, ...] of the global views.

    Where texts share rows the replicas may not divide them: then zeros make up
    the number, which weigh nothing.
    """
    if count == 1:
        return x
    size = -(-x.shape[0] // count)
    if lacking := size * count - x.shape[0]:
        x = tf.pad(x, [[0, lacking]] + [[0, 0]] * (x.shape.rank - 1))
    begin = replica * size
    return tf.ensure_shape(x[begin : begin + size], (size, *x.shape[1:]))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes to the workdir."""
    if not is_several(strategy):
        return True
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    first = 'chief' if 'chief' in cluster else 'worker'
    return (resolver.task_type or first, resolver.task_id or 0) == (first, 0)


def is_several(strategy: tf.distribute.Strategy) -> bool:
    """Whether the replicas are those of several processes."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


@contextlib.contextmanager
def others_lost() -> Iterator[None]:
    """Inside, that another process is gone is no error but the end for now.

    Raises:
        Preempted: it is gone, and the same command goes on.
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


def own_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """The numbers of the replicas that this process has."""
    found = []

    def note(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        found.append(context.replica_id_in_sync_group)
        return tf.zeros(())

    strategy.experimental_distribute_values_from_function(note)
    return found


def everyones(strategy: tf.distribute.Strategy, *numbers: int) -> np.ndarray:
    """[R, n] int64, what the process of every replica says.

    Of several processes all must ask, at the same place of their course: they
    wait for each other.

    Args:
        strategy: of the run.
        numbers: n of them, at least one; what this process says.
    """
    if not is_several(strategy):
        return np.asarray([numbers], np.int64)
    own = strategy.experimental_distribute_values_from_function(
        lambda _: tf.constant([numbers], tf.int64)
    )
    return strategy.gather(own, axis=0).numpy()


def any_says(
    strategy: tf.distribute.Strategy, *wishes: bool
) -> tuple[bool, ...]:
    """Each, as True where any process says so; called as `everyones`."""
    found = everyones(strategy, *map(int, wishes))
    return tuple(map(bool, found.any(axis=0)))


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, where nothing is exchanged, one process that fails ends all.

    Else the others would wait for it, and take it for lost.

    Raises:
        UsageError: another one has failed.
    """
    try:
        yield
    except Exception:
        any_says(strategy, True)
        raise
    (failed,) = any_says(strategy, False)
    if failed:
        raise UsageError('another worker has complained, and says of what')


def differing(
    strategy: tf.distribute.Strategy, record: Mapping[str, Any]
) -> list[str]:
    """Names of what processes say differently; called as `everyones`."""

    def number(value: Any) -> int:
        return zlib.crc32(repr(value).encode())

    names = sorted(record)
    known = everyones(strategy, number(names))
    if (known != known[0]).any():
        return ['what there is to choose (their code is not the same)']
    found = everyones(strategy, *(number(record[name]) for name in names))
    unlike = (found != found[0]).any(axis=0)
    return [name for name, other in zip(names, unlike, strict=True) if other]


class StrategyReplicas(Replicas):
    """The replicas of the step that runs; make one inside `strategy.run`."""

    def __init__(self):
        """Reads the replica context."""
        self._context = tf.distribute.get_replica_context()
        self.id = self._context.replica_id_in_sync_group
        self.count = self._context.num_replicas_in_sync

    def gather(self, x: Any) -> Any:
        """[B, ...] -> [R B, ...]; the gradient is that of the sum of all
        replicas' losses.
        """
        if self.count == 1:
            return x
        found = self._context.all_gather(x, axis=0)
        # Between workers the static size is lost on the way.
        return tf.ensure_shape(found, (self.count * x.shape[0], *x.shape[1:]))

    def sum(self, x: Any) -> Any:
        """The sum over replicas, without a gradient."""
        x = tf.stop_gradient(x)
        if self.count == 1:
            return x
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, x)

    def sum_all(self, gradients: list[Any]) -> list[Any]:
        """Each tensor summed over replicas, in one exchange."""
        if self.count == 1:
            return gradients
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
