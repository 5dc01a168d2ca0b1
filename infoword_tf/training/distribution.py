"""Replicas under `tf.distribute`: strategies, and what objectives ask of them.
"""

from typing import Any

import tensorflow as tf

from infoword_tf.commands import UsageError
from infoword_tf.objectives.objective import Replicas

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
    size = -(-x.shape[0] // count)
    if lacking := size * count - x.shape[0]:
        x = tf.pad(x, [[0, lacking]] + [[0, 0]] * (x.shape.rank - 1))
    begin = replica * size
    return tf.ensure_shape(x[begin : begin + size], (size, *x.shape[1:]))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes to the workdir."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    first = 'chief' if 'chief' in cluster else 'worker'
    return (resolver.task_type or first, resolver.task_id or 0) == (first, 0)


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
