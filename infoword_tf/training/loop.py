"""The training loop: one step over the replicas, held-out values, the report.

Orbit drives it; `train.py` puts the pieces together.

Glossary of shapes: B sequences, E held-out sequences, M candidates.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orbit
import tensorflow as tf

from infoword_tf.data.batches import HELDOUT_BATCH
from infoword_tf.data.streams import StreamSource
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Replicas
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.training import optim
from infoword_tf.training.distribution import StrategyReplicas
from infoword_tf.views import View, flatten, unflatten

FIELDS = Outcome._fields


class NonFiniteLoss(RuntimeError):
    """A loss or gradient was not finite; no weight was changed by it."""


def summarise(row: str, sums: np.ndarray) -> dict[str, float]:
    """Means of an `Outcome` [7] summed over batches and replicas.

    Without MI and ceiling where the row bounds none.
    """
    outcome = Outcome(*sums.tolist())
    hidden = max(outcome.hidden, 1e-12)
    found = {f'{row}/loss': outcome.loss / max(outcome.weight, 1e-12)}
    if TABLE[row].bounded:
        found[f'{row}/mi'] = outcome.mi / hidden
        found[f'{row}/ceiling'] = outcome.ceiling / hidden
    found[f'{row}/accuracy'] = outcome.accuracy / hidden
    found[f'{row}/chance'] = outcome.chance / hidden
    return found


class Memories:
    """What the encoder remembers from step to step: the one state of a run.

    By view two variables, each a part of its own on every replica: rows of a
    batch lie on the same replica at every step. They are float32 whatever the
    model computes in, which keeps bfloat16 exactly.
    """

    def __init__(
        self, model: Model, strategy: tf.distribute.Strategy, batch_size: int
    ):
        """Makes the variables, empty; none where nothing is remembered.

        Args:
            model: whose config has a `memory_length`.
            strategy: of the run.
            batch_size: B of the global batch.
        """
        self.strategy = strategy
        share = batch_size // strategy.num_replicas_in_sync
        self.dtype = model.encoder.compute_dtype

        def variable(value: Any, dtype: str) -> tf.Variable:
            return tf.Variable(
                tf.zeros(value.shape, dtype),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.NONE,
            )

        with strategy.scope():
            self.variables = {
                name: memory._replace(
                    states=variable(memory.states, 'float32'),
                    filled=variable(memory.filled, 'int32'),
                )
                for name, memory in model.empty_memories(share).items()
            }

    def read(self) -> dict[str, Any]:
        """By view, the memory of the replica that runs."""
        return {
            name: memory._replace(
                states=tf.cast(memory.states.read_value(), self.dtype),
                filled=memory.filled.read_value(),
            )
            for name, memory in self.variables.items()
        }

    def write(self, memories: Mapping[str, Any], allowed: tf.Tensor) -> None:
        """Keeps the new memories of the replica that runs.

        Args:
            memories: by view.
            allowed: bool; False leaves everything as it is.
        """
        for name, memory in self.variables.items():
            for field in ('states', 'filled'):
                variable = getattr(memory, field)
                new = tf.cast(getattr(memories[name], field), variable.dtype)
                old = variable.read_value()
                variable.assign(tf.where(allowed, new, old))

    def parts(self) -> dict[str, tf.Variable]:
        """Each replica's own part by path, for a checkpoint.

        Nothing where replicas are on several machines: only one of them
        writes.
        """
        found = {}
        for name, memory in self.variables.items():
            for field in ('states', 'filled'):
                parts = self.strategy.experimental_local_results(
                    getattr(memory, field)
                )
                if len(parts) < self.strategy.num_replicas_in_sync:
                    return {}
                for replica, part in enumerate(parts):
                    found[f'memory/{name}/{field}/{replica}'] = part
        return found


class Trainer(orbit.StandardTrainer):
    """One training step on every replica, and the sums that it leaves."""

    def __init__(
        self,
        model: Model,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        optimizer: optim.AdamW,
        step: tf.Variable,
        learning_rate: Callable[[tf.Tensor], tf.Tensor],
        kl: Mapping[str, float],
        seed: int,
        batch_size: int,
        xla: bool = False,
        memories: Memories | None = None,
    ):
        """Args: what a step needs; the dataset has global batches, kl is of
        the training text.

        Each replica takes its rows of the global batch by itself: batches are
        small, and the iterator that tf.distribute would put in front of the
        dataset has a tuner that no option reaches, whose thread sleeps for up
        to a minute before the iterator can end.

        Without `memories` they are empty.
        """
        super().__init__(dataset)
        self.model, self.strategy, self.optimizer = model, strategy, optimizer
        self.step, self.learning_rate = step, learning_rate
        self.kl, self.seed = kl, seed
        self.share = batch_size // strategy.num_replicas_in_sync
        self.memories = memories or Memories(model, strategy, batch_size)
        self.rows = list(model.objectives)
        self.count_names = [
            name for name in dataset.element_spec if '/counts/' in name
        ]
        self.sums = tf.Variable(tf.zeros((len(self.rows), len(FIELDS))))
        self.counts = tf.Variable(tf.zeros((len(self.count_names),)))
        self.failed_step = tf.Variable(-1, dtype=tf.int64)
        self.failed_rows = tf.Variable(tf.zeros((len(self.rows),), tf.bool))
        self.gradients = self._gradients
        if xla:
            # Around forward and backward only: updates stay outside.
            self.gradients = tf.function(self._gradients, jit_compile=True)

    def train_loop_begin(self) -> None:
        """Forgets the sums of the last loop."""
        self.sums.assign(tf.zeros_like(self.sums))
        self.counts.assign(tf.zeros_like(self.counts))

    def train_step(self, iterator: Any) -> None:
        """One update, unless its loss or gradient is not finite."""
        batch = next(iterator)
        alive = self.failed_step < 0
        sums, counts, updated = self.strategy.run(
            self._replica_step, args=(batch, self.step.read_value(), alive)
        )
        first = self.strategy.experimental_local_results
        sums, updated = first(sums)[0], first(updated)[0]
        finite = tf.reduce_all(tf.math.is_finite(sums), axis=1)
        failed = tf.logical_and(alive, tf.logical_not(updated))
        self.failed_step.assign(tf.where(failed, self.step, self.failed_step))
        self.failed_rows.assign(
            tf.where(failed, tf.logical_not(finite), self.failed_rows)
        )
        self.sums.assign_add(sums)
        self.counts.assign_add(first(counts)[0])
        self.step.assign_add(1)

    def _replica_step(
        self, batch: Mapping[str, tf.Tensor], step: tf.Tensor, alive: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the global sums [rows, 7], counts, whether it updated."""
        replicas = StrategyReplicas()
        begin = replicas.id * self.share
        batch = {
            name: tf.ensure_shape(
                x[begin : begin + self.share], (self.share, *x.shape[1:])
            )
            for name, x in batch.items()
        }
        key = dropout.new_key(self.seed, step, replicas.id)
        gradients, sums, memories = self.gradients(
            batch, key, self.memories.read()
        )
        counts = [
            tf.reduce_sum(tf.cast(batch[name], tf.float32))
            for name in self.count_names
        ]
        counts = replicas.sum(tf.stack(counts) if counts else tf.zeros((0,)))
        sums = replicas.sum(sums)
        gradients = replicas.sum_all(gradients)
        finite = tf.reduce_all(tf.math.is_finite(sums))
        updated = self.optimizer.apply(
            gradients,
            self.learning_rate(step),
            step,
            tf.logical_and(alive, finite),
        )
        self.memories.write(memories, updated)
        return sums, counts, updated

    def _gradients(
        self,
        batch: Mapping[str, tf.Tensor],
        key: tf.Tensor,
        memories: Mapping[str, Any],
    ) -> tuple[list[tf.Tensor], tf.Tensor, dict[str, Any]]:
        """This replica's share of the gradient, its sums [rows, 7], and its
        new memories.
        """
        replicas = StrategyReplicas()
        with tf.GradientTape() as tape:
            outcomes, memories = self.model.outcomes(
                unflatten(batch), self.kl, key, replicas, memories=memories
            )
            loss = self.model.loss(outcomes, replicas)
        gradients = tape.gradient(
            loss,
            list(self.optimizer.variables.values()),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        sums = tf.stack([tf.stack(outcomes[row]) for row in self.rows])
        return [tf.convert_to_tensor(g) for g in gradients], sums, memories

    def train_loop_end(self) -> dict[str, Any]:
        """Means over the loop, by metric; raises if a step went wrong.

        Raises:
            NonFiniteLoss: names the step and the rows.
        """
        failed = int(self.failed_step)
        if failed >= 0:
            wrong = self.failed_rows.numpy()
            rows = [r for r, w in zip(self.rows, wrong, strict=True) if w]
            where = ', '.join(rows) or 'the gradient of the sum'
            raise NonFiniteLoss(
                f'step {failed}: {where} is not finite. No weight was changed '
                'by it. Go on from the last checkpoint with a lower '
                '--learning_rate or --clip_norm: --init=THIS_WORKDIR and '
                'another --workdir'
            )
        sums = self.sums.numpy()
        report: dict[str, Any] = {}
        for row, outcome in zip(self.rows, sums, strict=True):
            report.update(summarise(row, outcome))
        for name, count in zip(
            self.count_names, self.counts.numpy(), strict=True
        ):
            view, _, what = name.split('/')
            report[f'{view}/{what}'] = float(count)
        return report


class Heldout(orbit.AbstractEvaluator):
    """Every row's values on the held-out sequences, dropout off.

    They run on one device whatever the strategy, so that they do not depend
    on it. Views that go on have a memory of their own, empty at the first
    step.
    """

    def __init__(
        self, model: Model, views: Mapping[str, View], kl: Mapping[str, float]
    ):
        """Args: views of all held-out sequences [E, ...], kl of their text."""
        self.model, self.kl = model, kl
        flat = flatten(dict(views))
        sequences = len(next(iter(flat.values())))
        size = min(HELDOUT_BATCH, sequences)
        self.memories = model.empty_memories(StreamSource.heldout_rows)
        if self.memories:
            size = StreamSource.heldout_rows
        self.batches = [
            {k: tf.constant(v[i : i + size]) for k, v in flat.items()}
            for i in range(0, sequences, size)
        ]
        # The first sequences, enough to hold M candidates besides one's own.
        most = 0
        for row in model.objectives:
            wanted = TABLE[row].heldout_candidates or 0
            for view in views.values():
                if wanted and row in view.weights:
                    each = np.sum(view.weights[row], axis=1)
                    enough = np.cumsum(each) >= wanted + each.max()
                    first = np.argmax(enough) if enough.any() else sequences
                    most = max(most, int(first) + 1)
        # Of the views of these rows alone.
        read = {
            name
            for row in model.objectives
            if TABLE[row].heldout_candidates is not None
            for name in TABLE[row].views
        }
        self.head = {
            k: tf.constant(v[:most])
            for k, v in flat.items()
            if k.split('/')[0] in read
        }
        self._sums = tf.function(self._batch_sums)
        self._candidates = tf.function(self._head_candidates)

    def _head_candidates(self) -> dict[str, Any]:
        views = unflatten(self.head)
        states, _ = self.model.encode(views)
        found = {}
        for row, objective in self.model.objectives.items():
            limit = TABLE[row].heldout_candidates
            found[row] = None
            if limit is not None:
                found[row] = objective.candidates(
                    views, states[row], Replicas(), limit
                )
        return found

    def _batch_sums(
        self,
        batch: dict[str, tf.Tensor],
        candidates: dict[str, Any],
        memories: dict[str, Any],
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        outcomes, memories = self.model.outcomes(
            unflatten(batch),
            self.kl,
            candidates=candidates,
            memories=memories,
        )
        return tf.stack([tf.stack(o) for o in outcomes.values()]), memories

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """All held-out sequences; returns `heldout/ROW/...`."""
        candidates, memories = self._candidates(), self.memories
        sums = 0.0
        for batch in self.batches:
            more, memories = self._sums(batch, candidates, memories)
            sums = sums + more.numpy().astype(np.float64)
        report = {}
        for row, outcome in zip(self.model.objectives, sums, strict=True):
            for name, value in summarise(row, outcome).items():
                report[f'heldout/{name}'] = value
        return report


class Clock:
    """Seconds and rate of the part of a run that this process does."""

    def __init__(self, step: int, seconds: float):
        """Args: where the run goes on, and the seconds it took so far."""
        self.before = seconds
        self.start = self.last = time.monotonic()
        self.first_step = self.last_step = step

    def lap(self, step: int) -> tuple[float, float]:
        """Seconds of the whole run, steps a second since the last lap."""
        now = time.monotonic()
        rate = (step - self.last_step) / max(now - self.last, 1e-9)
        self.last, self.last_step = now, step
        return self.before + now - self.start, rate

    def skip(self) -> None:
        """What was done since the last lap was no training."""
        self.last = time.monotonic()
