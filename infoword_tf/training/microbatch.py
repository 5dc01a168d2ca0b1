"""Microbatches: the gradient of a batch in the memory of a few sequences.

Only one microbatch at a time has its forward and backward pass in memory. The
loss of rows whose candidates depend on no state is a sum over pairs, so their
gradients add up. Rows that compare vectors across the batch
(`Objective.vectors`) take three steps (Gao et al. 2021, "Scaling deep
contrastive learning batch size under memory limited setup"): all microbatches
are encoded without a tape, which gives the vectors; these are scored, which
gives the gradient of each vector; and the microbatches are encoded once more
to propagate that gradient. Dropout is the same both times, and that of the
whole batch, since its key says which sequences a microbatch has. So the
gradient is that of the whole batch, but for the order of sums.

Glossary of shapes: n sequences of a microbatch.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infoword_tf import errors
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import Batch, Replicas, Statistics
from infoword_tf.views import View, flatten, unflatten


@dataclasses.dataclass
class MicrobatchStep:
    """Step over a batch that is encoded in microbatches.

    Attributes:
        model, views, statistics, key, replicas, state: arguments of
            `Model.outcomes`.
        size: n, at most.
        batches: whole batches before they are encoded, by row.
        comparing: rows that are scored over the whole batch.
        separable: rows that are scored microbatch by microbatch.
    """

    model: Model
    views: Mapping[str, View]
    statistics: Statistics
    key: tf.Tensor
    replicas: Replicas
    state: Mapping[str, Any]
    size: int

    def __post_init__(self):
        """Prepares candidates and weights, for which nothing is encoded.

        Raises:
            ValueError: a row needs the whole batch at once.
        """
        rows, replicas = self.model.objectives, self.replicas
        self.batches = self.model.unencoded(
            self.views,
            self.statistics,
            key=self.key,
            replicas=replicas,
            state=self.state,
        )
        self.comparing = [row for row in rows if rows[row].has_vectors]
        self.separable = [row for row in rows if row not in self.comparing]
        self.candidates, self.factors = {}, {}
        for row in self.separable:
            if f'objectives/{row}' in self.state:
                raise errors.InputError(
                    'microbatch_with_state',
                    f'{row} has a state and no `vectors`, so its batch cannot '
                    'be taken in microbatches; leave out --microbatch',
                )
            if rows[row].needs_whole_batch:
                raise errors.InputError(
                    'microbatch_of_whole_batch',
                    f'{row} reads what is of the whole batch, which cannot '
                    'be taken in microbatches then; leave out --microbatch',
                )
            self.candidates[row] = rows[row].candidates(self.batches[row])
            weight = replicas.sum(rows[row].weight(self.batches[row]))
            self.factors[row] = self.model.weights[row] / tf.maximum(
                weight, 1e-12
            )

    def gradients(
        self, variables: Sequence[Any]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor], dict[str, Any]]:
        """Computes gradients, as a tape over `Model.loss` would.

        Returns:
            This replica's share of each gradient; by row the sums of its
            `Outcome`; and the state of the next step.
        """
        groups = self._groups()
        vectors: dict[str, dict[str, tf.Tensor]] = {}
        for names in groups:
            if any(row in self.comparing for row in self._rows(names)):
                _, group_vectors = self._over_microbatches(names, self._vectors)
                vectors |= group_vectors
        total, sums, upstream, new = self._compare(variables, vectors)
        for names in groups:

            def backward(
                names: Sequence[str], begin: Any, size: int
            ) -> tuple[Any, Any]:
                return self._backward(
                    variables,
                    upstream,
                    names,
                    begin=begin,
                    size=size,
                )

            added, memories = self._over_microbatches(names, backward)
            total = [a + b for a, b in zip(total, added[0], strict=True)]
            sums |= added[1]
            new |= {name: _transposed(x) for name, x in memories.items()}
        return total, sums, new

    def _groups(self) -> list[tuple[str, ...]]:
        """Groups views that have the same number of sequences."""
        groups: dict[int, list[str]] = {}
        for name, view in self.views.items():
            groups.setdefault(view.ids.shape[0], []).append(name)
        for row, reads in self.model.reads.items():
            counts = {self.views[name].ids.shape[0] for name in reads}
            if len(counts) > 1:
                raise errors.InputError(
                    'microbatch_unequal_views',
                    f'{row} reads views of {sorted(counts)} sequences, which '
                    'cannot be split into the same microbatches',
                )
        return [tuple(names) for names in groups.values()]

    def _rows(self, names: Sequence[str]) -> list[str]:
        """Returns the rows that read any of the named views."""
        reads = self.model.reads
        return [row for row in reads if not reads[row].keys().isdisjoint(names)]

    def _encode(
        self, names: Sequence[str], begin: Any, size: int
    ) -> tuple[dict[str, Batch], dict[str, Any]]:
        """Encodes a microbatch; returns batches by row, and new memories."""
        flat = flatten({name: self.views[name] for name in names})
        memories = {}
        for name in names:
            if (memory := self.state.get(f'memory/{name}')) is not None:
                memory = tf.nest.map_structure(
                    lambda x: _slice(x, begin, size), _transposed(memory)
                )
                memories[f'memory/{name}'] = _transposed(memory)
        sliced = {path: _slice(x, begin, size) for path, x in flat.items()}
        return self.model.batches(
            unflatten(sliced),
            self.statistics,
            key=dropout.of_rows(self.key, begin, size),
            replicas=self.replicas,
            state=memories,
        )

    def _vectors(
        self, names: Sequence[str], begin: Any, size: int
    ) -> tuple[Any, Any]:
        batches, _ = self._encode(names, begin, size)
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
        """Scores the vectors of the whole batch.

        Returns:
            Gradients of weights; by row the sums of its `Outcome`; by row and
            name gradients of vectors; and the state of the next step.
        """
        new = {}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            outcomes = {}
            for row in self.comparing:
                objective = self.model.objectives[row]
                batch = self.batches[row]._replace(vectors=vectors[row])
                candidates = objective.candidates(batch)
                outcomes[row] = objective.score(batch, candidates)
                if f'objectives/{row}' in self.state:
                    new[f'objectives/{row}'] = objective.update_state(batch)
            loss = self.model.loss(outcomes, self.replicas)
        if not outcomes:
            return [tf.zeros(v.shape) for v in variables], {}, {}, {}
        gradients, upstream = tape.gradient(
            loss,
            (list(variables), vectors),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        sums = {row: tf.stack(outcomes[row].sums) for row in outcomes}
        return list(map(tf.convert_to_tensor, gradients)), sums, upstream, new

    def _backward(
        self,
        variables: Sequence[Any],
        upstream: Mapping[str, Mapping[str, tf.Tensor]],
        names: Sequence[str],
        begin: Any,
        size: int,
    ) -> tuple[Any, Any]:
        """Computes gradients, sums and new memories of a microbatch."""
        objectives = self.model.objectives
        sequences = self.views[names[0]].ids.shape[0]
        outcomes = {}
        with tf.GradientTape() as tape:
            batches, memories = self._encode(names, begin, size)
            loss = tf.zeros(())
            for row in self._rows(names):
                if row in self.separable:
                    outcomes[row] = objectives[row].score(
                        batches[row], self.candidates[row]
                    )
                    loss += self.factors[row] * outcomes[row].loss
                    continue
                vectors = objectives[row].vectors(batches[row])
                for name, x in vectors.items():
                    each = upstream[row][name]
                    count = each.shape[0] // sequences
                    each = _slice(each, begin, size, count)
                    x, each = (tf.cast(y, tf.float32) for y in (x, each))
                    loss += tf.reduce_sum(x * each)
        gradients = tape.gradient(
            loss,
            list(variables),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        sums = {row: tf.stack(outcomes[row].sums) for row in outcomes}
        return (list(map(tf.convert_to_tensor, gradients)), sums), {
            name: _transposed(memory) for name, memory in memories.items()
        }

    def _over_microbatches(
        self, names: Sequence[str], function: Callable[..., tuple[Any, Any]]
    ) -> tuple[Any, Any]:
        """Applies `function(names, begin, size)` to all microbatches of views.

        Returns:
            Its first results added up; its second ones concatenated.
        """
        sequences = self.views[names[0]].ids.shape[0]
        size = min(self.size, sequences)
        count, rest = divmod(sequences, size)
        one = tf.function(
            lambda begin, size: function(names, begin, size), autograph=False
        )
        first = one(tf.constant(0), size)
        total, joined = map(tf.nest.flatten, first)
        if count > 1:

            def body(i: Any, total: Any, arrays: Any) -> tuple[Any, Any, Any]:
                added, slices = map(tf.nest.flatten, one(i * size, size))
                total = [a + b for a, b in zip(total, added, strict=True)]
                arrays = [
                    array.write(i - 1, x)
                    for array, x in zip(arrays, slices, strict=True)
                ]
                return i + 1, total, arrays

            arrays = [
                tf.TensorArray(x.dtype, count - 1, element_shape=x.shape)
                for x in joined
            ]
            _, total, arrays = tf.while_loop(
                lambda i, *_: i < count,
                body,
                (tf.constant(1), total, arrays),
                parallel_iterations=1,
            )
            for k, (x, array) in enumerate(zip(joined, arrays, strict=True)):
                whole = tf.concat([x, array.concat()], axis=0)
                shape = (count * x.shape[0], *x.shape[1:])
                joined[k] = tf.ensure_shape(whole, shape)
        if rest:
            last = one(tf.constant(count * size), rest)
            added, slices = map(tf.nest.flatten, last)
            total = [a + b for a, b in zip(total, added, strict=True)]
            joined = [
                tf.concat([x, y], axis=0)
                for x, y in zip(joined, slices, strict=True)
            ]
        return (
            tf.nest.pack_sequence_as(first[0], total),
            tf.nest.pack_sequence_as(first[1], joined),
        )


def _slice(x: tf.Tensor, begin: Any, size: int, each: int = 1) -> tf.Tensor:
    """Slices the entries of a microbatch, `each` entries a sequence."""
    start = [begin * each, *[0] * (x.shape.rank - 1)]
    # XLA needs a size that is the same in each iteration.
    return tf.slice(x, start, (size * each, *x.shape[1:]))


def _transposed(memory: Any) -> Any:
    """Swaps the first two axes of a memory [L, B, ...]; [B] stays."""

    def transposed(x: tf.Tensor) -> tf.Tensor:
        if x.shape.rank == 1:
            return x
        rest = range(2, x.shape.rank)
        return tf.transpose(x, (1, 0, *rest))

    return tf.nest.map_structure(transposed, memory)
