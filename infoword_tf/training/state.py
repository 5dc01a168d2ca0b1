"""All that lasts from step to step beside weights and moments.

The memory of streams, the queue of an objective, whatever `Model.empty_state`
has: variables here, arguments and results of a step. State of the rows of a
batch is divided over the replicas; the rest is the same on all.

Moving averages of weights last too, as weights of the model; they are updated
here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from infoword_tf.model import Model, StateEntry
from infoword_tf.objectives import ScatterUpdate
from infoword_tf.training.distribution import is_several, own_replicas


def arrays_of(value: Any) -> dict[str, Any]:
    """The arrays of an entry by name; it is a named tuple or a dict."""
    return dict(value) if isinstance(value, Mapping) else value._asdict()


def _like(value: Any, arrays: Mapping[str, Any]) -> Any:
    """What `arrays_of` was given, with other arrays."""
    if isinstance(value, Mapping):
        return dict(arrays)
    return type(value)(**arrays)


def whole(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A new state in which rows that changed stand among those that stay."""
    found = dict(new)
    for name, arrays in new.items():
        if isinstance(arrays, Mapping):
            found[name] = {
                part: tf.tensor_scatter_nd_update(
                    old[name][part], value.places[:, None], value.values
                )
                if isinstance(value, ScatterUpdate)
                else value
                for part, value in arrays.items()
            }
    return found


def _read(variable: tf.Variable) -> tf.Tensor:
    """What the replica that runs has, not copied.

    Writing some rows of a variable makes every later read of it a copy, which
    of a long queue costs as much as its products.
    """
    handle = variable.handle
    tf.raw_ops.DisableCopyOnRead(resource=handle)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)


def _write_rows(
    variable: tf.Variable, rows: ScatterUpdate, allowed: tf.Tensor
) -> None:
    """Writes some rows of the replica that runs, and touches no other."""
    handle = variable.handle  # of that replica
    # What the step read of it has been used by then, and needs no copy.
    with tf.control_dependencies([allowed, rows.values]):
        old = tf.raw_ops.ResourceGather(
            resource=handle, indices=rows.places, dtype=variable.dtype
        )
    values = tf.where(allowed, tf.cast(rows.values, variable.dtype), old)
    tf.raw_ops.ResourceScatterUpdate(
        resource=handle, indices=rows.places, updates=values
    )


@tf.function(autograph=False)
def _alone(variable: tf.Variable) -> tf.Tensor:
    """What the replica that runs has, as one of a row of replicas."""
    return variable.read_value()[None]


class State:
    """The variables of a run's state.

    Floats are float32 whatever the model computes in, which keeps bfloat16
    exactly.

    Attributes:
        compiled: whether steps are programs of XLA, as those of a TPU, which
            decide themselves what is copied.
    """

    def __init__(
        self, model: Model, strategy: tf.distribute.Strategy, batch_size: int
    ):
        """Makes the variables, empty; none where nothing lasts."""
        self.model, self.strategy = model, strategy
        self.compiled = isinstance(strategy, tf.distribute.TPUStrategy)
        local_size = batch_size // strategy.num_replicas_in_sync
        self.entries: dict[str, StateEntry] = model.empty_state(local_size)
        self._variables: dict[str, dict[str, tf.Variable]] = {}
        with strategy.scope():
            for name, entry in self.entries.items():
                self._variables[name] = {
                    part: self._variable(value)
                    for part, value in arrays_of(entry.empty).items()
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
        """By name, what the replica that runs finds."""
        values = {}
        for name, variables in self._variables.items():
            empty = self.entries[name].empty
            read = tf.convert_to_tensor if self.compiled else _read
            values[name] = _like(
                empty,
                {
                    part: tf.cast(read(variables[part]), value.dtype)
                    for part, value in arrays_of(empty).items()
                },
            )
        return values

    def write(self, new: Mapping[str, Any], allowed: tf.Tensor) -> None:
        """Keeps what the replica that runs leaves to the next step, where
        allowed.
        """
        for name, variables in self._variables.items():
            arrays = arrays_of(new[name])
            for part, variable in variables.items():
                value = arrays[part]
                if isinstance(value, ScatterUpdate):
                    _write_rows(variable, value, allowed)
                    continue
                value = tf.cast(value, variable.dtype)
                old = variable.read_value()
                variable.assign(tf.where(allowed, value, old))

    def parts(self) -> dict[str, tf.Variable | None]:
        """The variables by path, as a checkpoint sets them.

        `state/NAME/PART/REPLICA` for what each replica has of its own, None
        for those of other processes; `state/NAME/PART` for the rest, which
        `broadcast` puts on all.
        """
        parts: dict[str, tf.Variable | None] = {}
        for name, part, variable in self._each():
            local = self.strategy.experimental_local_results(variable)
            path = f'state/{name}/{part}'
            if not self.entries[name].by_row:
                parts[path] = local[0]
                continue
            for replica in range(self.strategy.num_replicas_in_sync):
                parts[f'{path}/{replica}'] = None
            own = own_replicas(self.strategy)
            for replica, value in zip(own, local, strict=True):
                parts[f'{path}/{replica}'] = value
        return parts

    def gathered(self) -> dict[str, Any]:
        """What `parts` names, for a checkpoint: of other processes too.

        Of several processes all must ask, for they wait for each other.
        """
        found: dict[str, Any] = self.parts()
        for name, part, variable in self._each():
            if self.entries[name].by_row and is_several(self.strategy):
                rows = self.strategy.run(_alone, args=(variable,))
                for replica, value in enumerate(
                    self.strategy.gather(rows, axis=0)
                ):
                    found[f'state/{name}/{part}/{replica}'] = value
        return found

    def _each(self) -> Iterator[tuple[str, str, tf.Variable]]:
        """Entry, part and variable of all that there is."""
        for name, variables in self._variables.items():
            for part, variable in variables.items():
                yield name, part, variable

    def broadcast(self) -> None:
        """Gives all replicas what the first one has, after `parts` are set."""
        for name, _, variable in self._each():
            if not self.entries[name].by_row:
                first, *others = self.strategy.experimental_local_results(
                    variable
                )
                for other in others:
                    other.assign(first)

    def follow(self, allowed: tf.Tensor) -> None:
        """Moves averages of weights, after an update, on this replica."""
        averages = self.model.averages
        if not averages:
            return

        def move() -> tf.Tensor:
            for name, pairs in averages.items():
                momentum = self.model.companions[name].momentum
                for copy, source in pairs:
                    # By handles: each replica has the same numbers.
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
