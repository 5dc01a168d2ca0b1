"""State that steps hand on, other than weights and moments.

Memories of streams, queues of objectives, all that `Model.empty_state` names:
variables here, arguments and results of a step. State of a batch's sequences
is divided over the replicas; the rest is the same on all.

Moving averages of weights are weights of the model, but are updated here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from infoword_tf.model import Model, StateEntry
from infoword_tf.objectives import ScatterUpdate
from infoword_tf.training.distribution import is_multiworker, local_replicas


def arrays_of(value: Any) -> dict[str, Any]:
    """Returns the arrays of an entry, a named tuple or a dict, by name."""
    return dict(value) if isinstance(value, Mapping) else value._asdict()


def _like(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Inverts `arrays_of`: packs other arrays as an entry like `value`."""
    if isinstance(value, Mapping):
        return dict(arrays)
    return type(value)(**arrays)


def apply_updates(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, Any]:
    """Applies `ScatterUpdate`s and returns the full new state."""
    state = dict(new)
    for name, arrays in new.items():
        if isinstance(arrays, Mapping):
            state[name] = {
                field: tf.tensor_scatter_nd_update(
                    old[name][field], value.places[:, None], value.values
                )
                if isinstance(value, ScatterUpdate)
                else value
                for field, value in arrays.items()
            }
    return state


def _read(variable: tf.Variable) -> tf.Tensor:
    """Reads a variable on the running replica, without a copy.

    After a scattered write TensorFlow copies a variable at every read, which
    of a long queue costs as much as its products.
    """
    handle = variable.handle
    tf.raw_ops.DisableCopyOnRead(resource=handle)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)


def _scatter(
    variable: tf.Variable, update: ScatterUpdate, allowed: tf.Tensor
) -> None:
    """Applies a scattered update to the running replica's variable."""
    handle = variable.handle  # of the running replica
    # After all uses of what the step has read, which therefore needs no copy.
    with tf.control_dependencies([allowed, update.values]):
        old = tf.raw_ops.ResourceGather(
            resource=handle, indices=update.places, dtype=variable.dtype
        )
    values = tf.where(allowed, tf.cast(update.values, variable.dtype), old)
    tf.raw_ops.ResourceScatterUpdate(
        resource=handle, indices=update.places, updates=values
    )


@tf.function(autograph=False)
def _with_axis(variable: tf.Variable) -> tf.Tensor:
    """Returns the running replica's value as [1, ...], to be gathered."""
    return variable.read_value()[None]


class State:
    """Variables of a run's state.

    Floats are float32 whatever the model computes in, which keeps bfloat16
    exactly.

    Attributes:
        entries: entries by name, see `Model.empty_state`.
        compiled: whether steps are programs of XLA, as on a TPU: XLA decides
            then what is copied.
    """

    def __init__(
        self, model: Model, strategy: tf.distribute.Strategy, batch_size: int
    ):
        """Creates the variables with the empty state."""
        self.model, self.strategy = model, strategy
        self.compiled = isinstance(strategy, tf.distribute.TPUStrategy)
        local_size = batch_size // strategy.num_replicas_in_sync
        self.entries: dict[str, StateEntry] = model.empty_state(local_size)
        self._variables: dict[str, dict[str, tf.Variable]] = {}
        with strategy.scope():
            for name, entry in self.entries.items():
                self._variables[name] = {
                    field: self._variable(value)
                    for field, value in arrays_of(entry.empty).items()
                }

    @staticmethod
    def _variable(value: Any) -> tf.Variable:
        value = tf.convert_to_tensor(value)
        if value.dtype.is_floating:
            value = tf.cast(value, tf.float32)
        return tf.Variable(
            value,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.NONE,
        )

    def read(self) -> dict[str, Any]:
        """Returns the running replica's state by name."""
        values = {}
        for name, variables in self._variables.items():
            empty = self.entries[name].empty
            read = tf.convert_to_tensor if self.compiled else _read
            values[name] = _like(
                empty,
                {
                    field: tf.cast(read(variables[field]), value.dtype)
                    for field, value in arrays_of(empty).items()
                },
            )
        return values

    def write(self, new: Mapping[str, Any], allowed: tf.Tensor) -> None:
        """Writes the running replica's new state, if allowed."""
        for name, variables in self._variables.items():
            arrays = arrays_of(new[name])
            for field, variable in variables.items():
                value = arrays[field]
                if isinstance(value, ScatterUpdate):
                    _scatter(variable, value, allowed)
                    continue
                value = tf.cast(value, variable.dtype)
                old = variable.read_value()
                variable.assign(tf.where(allowed, value, old))

    def variables(self) -> dict[str, tf.Variable | None]:
        """Returns the variables by path, for a checkpoint to set.

        `state/NAME/FIELD/REPLICA` where replicas differ, None for replicas of
        other processes; `state/NAME/FIELD` for the rest, which `broadcast`
        copies to all replicas.
        """
        variables: dict[str, tf.Variable | None] = {}
        for name, field, variable in self._fields():
            local = self.strategy.experimental_local_results(variable)
            path = f'state/{name}/{field}'
            if not self.entries[name].per_sequence:
                variables[path] = local[0]
                continue
            for replica in range(self.strategy.num_replicas_in_sync):
                variables[f'{path}/{replica}'] = None
            replicas = local_replicas(self.strategy)
            for replica, value in zip(replicas, local, strict=True):
                variables[f'{path}/{replica}'] = value
        return variables

    def gather(self) -> dict[str, Any]:
        """Returns the values of `variables`, also of other processes.

        All processes must call it at the same place: they wait for each other.
        """
        values: dict[str, Any] = self.variables()
        for name, field, variable in self._fields():
            per_sequence = self.entries[name].per_sequence
            if per_sequence and is_multiworker(self.strategy):
                local = self.strategy.run(_with_axis, args=(variable,))
                gathered = self.strategy.gather(local, axis=0)
                for replica, value in enumerate(gathered):
                    values[f'state/{name}/{field}/{replica}'] = value
        return values

    def _fields(self) -> Iterator[tuple[str, str, tf.Variable]]:
        """Yields the names of entry and field, and the variable."""
        for name, variables in self._variables.items():
            for field, variable in variables.items():
                yield name, field, variable

    def broadcast(self) -> None:
        """Copies the first replica's values, once `variables` are set."""
        for name, _, variable in self._fields():
            if not self.entries[name].per_sequence:
                first, *others = self.strategy.experimental_local_results(
                    variable
                )
                for other in others:
                    other.assign(first)

    def update_averages(self, allowed: tf.Tensor) -> None:
        """Updates averages of weights on the running replica."""
        averages = self.model.averages
        if not averages:
            return

        def move() -> tf.Tensor:
            for name, pairs in averages.items():
                momentum = self.model.momenta[name]
                for copy, source in pairs:
                    # By handles, since all replicas compute the same.
                    old, new = (
                        tf.raw_ops.ReadVariableOp(
                            resource=x.value.handle, dtype=tf.float32
                        )
                        for x in (copy, source)
                    )
                    tf.raw_ops.AssignVariableOp(
                        resource=copy.value.handle,
                        value=momentum * old + (1.0 - momentum) * new,
                    )
            return tf.constant(True)

        tf.cond(allowed, move, lambda: tf.constant(False))
