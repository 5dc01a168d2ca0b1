"""A batch in parts: its gradient in the memory of a few rows.

The forward and backward pass of a part need memory, not the batch. Rows of the
table whose candidates depend on no state have a loss that is a sum over pairs:
their gradients add up. Rows that compare vectors across the batch
(`Objective.vectors`) are taken in three steps (Gao et al. 2021, "Scaling deep
contrastive learning batch size under memory limited setup"): all parts are
encoded without a tape, which leaves the vectors; these are scored, which gives
the gradient of each vector; and the parts are encoded once more, where that
gradient is handed down. Dropout is the same both times, and that of the whole
batch, since its key says which rows a part has. So the gradient is that of the
whole batch, but for the order of sums.

Glossary of shapes: R rows of a view (its first axis, on this replica), n rows
of a part.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import Batch, Replicas, Statistics
from infoword_tf.views import View, flatten, unflatten


@dataclasses.dataclass
class Step:
    """A step over a batch that is encoded in parts.

    Attributes:
        model, views, statistics, key, replicas, state: as of
            `Model.outcomes`.
        size: n, at most.
        comparing: rows of the table that are scored over the whole batch.
        alone: those that are scored part by part.
    """

    model: Model
    views: Mapping[str, View]
    statistics: Statistics
    key: tf.Tensor
    replicas: Replicas
    state: Mapping[str, Any]
    size: int

    def __post_init__(self):
        """Sets what is known before anything is encoded."""
        rows, replicas = self.model.objectives, self.replicas
        self.whole = self.model.unencoded(
            self.views, self.statistics, self.key, replicas, self.state
        )
        self.comparing = [row for row in rows if rows[row].compares]
        self.alone = [row for row in rows if row not in self.comparing]
        self.candidates, self.factors = {}, {}
        for row in self.alone:
            if f'objectives/{row}' in self.state:
                raise ValueError(
                    f'{row} has a state and no `vectors`, so its batch cannot '
                    'be taken in parts; leave out --microbatch'
                )
            if rows[row].whole:
                raise ValueError(
                    f'{row} reads what is of the whole batch, which cannot '
                    'be taken in parts then; leave out --microbatch'
                )
            self.candidates[row] = rows[row].candidates(self.whole[row])
            weight = replicas.sum(rows[row].weight(self.whole[row]))
            self.factors[row] = self.model.weights[row] / tf.maximum(
                weight, 1e-12
            )

    def gradients(
        self, variables: Sequence[Any]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor], dict[str, Any]]:
        """What one tape over `Model.outcomes` and `Model.loss` gives.

        Args: whose gradients are wanted.

        Returns:
            This replica's share of each gradient; by row the sums of its
            `Outcome`; and the state of the next step.
        """
        groups = self._groups()
        vectors: dict[str, dict[str, tf.Tensor]] = {}
        for names in groups:
            if any(row in self.comparing for row in self._rows(names)):
                _, found = self._over_parts(names, self._vectors)
                vectors |= found
        total, sums, upstream, new = self._compare(variables, vectors)
        for names in groups:

            def backward(
                names: Sequence[str], begin: Any, size: int
            ) -> tuple[Any, Any]:
                return self._backward(variables, upstream, names, begin, size)

            added, memories = self._over_parts(names, backward)
            total = [a + b for a, b in zip(total, added[0], strict=True)]
            sums |= added[1]
            new |= {name: _turned(memory) for name, memory in memories.items()}
        return total, sums, new

    def _groups(self) -> list[tuple[str, ...]]:
        """Views of one number of rows, which are parted together."""
        found: dict[int, list[str]] = {}
        for name, view in self.views.items():
            found.setdefault(view.ids.shape[0], []).append(name)
        for row, reads in self.model.reads.items():
            counts = {self.views[name].ids.shape[0] for name in reads}
            if len(counts) > 1:
                raise ValueError(
                    f'{row} reads views of {sorted(counts)} rows, which '
                    'cannot be split into the same parts'
                )
        return [tuple(names) for names in found.values()]

    def _rows(self, names: Sequence[str]) -> list[str]:
        """The rows of the table that read these views."""
        reads = self.model.reads
        return [row for row in reads if not reads[row].keys().isdisjoint(names)]

    def _batches(
        self, names: Sequence[str], begin: Any, size: int
    ) -> tuple[dict[str, Batch], dict[str, Any]]:
        """Some rows, encoded; and what the encoder remembers of them."""
        flat = flatten({name: self.views[name] for name in names})
        remembered = {}
        for name in names:
            if (memory := self.state.get(f'memory/{name}')) is not None:
                some = tf.nest.map_structure(
                    lambda x: _cut(x, begin, size), _turned(memory)
                )
                remembered[f'memory/{name}'] = _turned(some)
        return self.model.batches(
            unflatten({path: _cut(x, begin, size) for path, x in flat.items()}),
            self.statistics,
            dropout.of_rows(self.key, begin, size),
            self.replicas,
            remembered,
        )

    def _vectors(
        self, names: Sequence[str], begin: Any, size: int
    ) -> tuple[Any, Any]:
        batches, _ = self._batches(names, begin, size)
        return (), {
            row: self.model.objectives[row].vectors(batches[row])
            for row in self._rows(names)
            if row in self.comparing
        }

    def _compare(
        self,
        variables: Sequence[Any],
        vectors: Mapping[str, Mapping[str, tf.Tensor]],
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor], Any, dict[str, Any]]:
        """Scores what was encoded: gradients of weights, and of vectors."""
        new = {}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            outcomes = {}
            for row in self.comparing:
                objective = self.model.objectives[row]
                batch = self.whole[row]._replace(vectors=vectors[row])
                candidates = objective.candidates(batch)
                outcomes[row] = objective.score(batch, candidates)
                if f'objectives/{row}' in self.state:
                    new[f'objectives/{row}'] = objective.remember(batch)
            loss = self.model.loss(outcomes, self.replicas)
        if not outcomes:
            return [tf.zeros(v.shape) for v in variables], {}, {}, {}
        found, upstream = tape.gradient(
            loss,
            (list(variables), vectors),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        sums = {row: tf.stack(outcomes[row].sums) for row in outcomes}
        return list(map(tf.convert_to_tensor, found)), sums, upstream, new

    def _backward(
        self,
        variables: Sequence[Any],
        upstream: Mapping[str, Mapping[str, tf.Tensor]],
        names: Sequence[str],
        begin: Any,
        size: int,
    ) -> tuple[Any, Any]:
        """Of some rows: gradients and sums; and what is remembered of them."""
        objectives = self.model.objectives
        rows = self.views[names[0]].ids.shape[0]
        outcomes = {}
        with tf.GradientTape() as tape:
            batches, memories = self._batches(names, begin, size)
            loss = tf.zeros(())
            for row in self._rows(names):
                if row in self.alone:
                    outcomes[row] = objectives[row].score(
                        batches[row], self.candidates[row]
                    )
                    loss += self.factors[row] * outcomes[row].loss
                    continue
                vectors = objectives[row].vectors(batches[row])
                for name, x in vectors.items():
                    each = upstream[row][name]
                    each = _cut(each, begin, size, each.shape[0] // rows)
                    x, each = (tf.cast(y, tf.float32) for y in (x, each))
                    loss += tf.reduce_sum(x * each)
        found = tape.gradient(
            loss,
            list(variables),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        sums = {row: tf.stack(outcomes[row].sums) for row in outcomes}
        return (list(map(tf.convert_to_tensor, found)), sums), {
            name: _turned(memory) for name, memory in memories.items()
        }

    def _over_parts(
        self, names: Sequence[str], function: Callable[..., tuple[Any, Any]]
    ) -> tuple[Any, Any]:
        """What `function(names, begin, size)` gives of some views, n rows after
        n rows: what it gives first added up, the rest put together.
        """
        rows = self.views[names[0]].ids.shape[0]
        size = min(self.size, rows)
        count, rest = divmod(rows, size)
        some = tf.function(
            lambda begin, size: function(names, begin, size), autograph=False
        )
        found = some(tf.constant(0), size)
        added, kept = map(tf.nest.flatten, found)
        if count > 1:

            def body(i: Any, added: Any, arrays: Any) -> tuple[Any, Any, Any]:
                more, parts = map(tf.nest.flatten, some(i * size, size))
                added = [a + b for a, b in zip(added, more, strict=True)]
                arrays = [
                    array.write(i - 1, part)
                    for array, part in zip(arrays, parts, strict=True)
                ]
                return i + 1, added, arrays

            arrays = [
                tf.TensorArray(x.dtype, count - 1, element_shape=x.shape)
                for x in kept
            ]
            _, added, arrays = tf.while_loop(
                lambda i, *_: i < count,
                body,
                (tf.constant(1), added, arrays),
                parallel_iterations=1,
            )
            for k, (x, array) in enumerate(zip(kept, arrays, strict=True)):
                whole = tf.concat([x, array.concat()], axis=0)
                shape = (count * x.shape[0], *x.shape[1:])
                kept[k] = tf.ensure_shape(whole, shape)
        if rest:
            last = some(tf.constant(count * size), rest)
            more, parts = map(tf.nest.flatten, last)
            added = [a + b for a, b in zip(added, more, strict=True)]
            kept = [
                tf.concat([x, y], axis=0)
                for x, y in zip(kept, parts, strict=True)
            ]
        return (
            tf.nest.pack_sequence_as(found[0], added),
            tf.nest.pack_sequence_as(found[1], kept),
        )


def _cut(x: tf.Tensor, begin: Any, size: int, each: int = 1) -> tf.Tensor:
    """The rows of a part, of an array with `each` of them for a row."""
    start = [begin * each, *[0] * (x.shape.rank - 1)]
    return tf.slice(x, start, (size * each, *x.shape[1:]))  # XLA: of one size


def _turned(memory: Any) -> Any:
    """A memory [L, B, ...] (or [B]) with rows first; or again as it was."""

    def turned(x: tf.Tensor) -> tf.Tensor:
        if x.shape.rank == 1:
            return x
        rest = range(2, x.shape.rank)
        return tf.transpose(x, (1, 0, *rest))

    return tf.nest.map_structure(turned, memory)
