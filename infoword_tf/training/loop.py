"""The training loop: one step over the replicas, held-out values, the clock.

Orbit drives it (`fit.py`); `run.py` and `built.py` put the pieces together.

Glossary of shapes: B sequences, E held-out sequences, M candidates.
"""

import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orbit
import tensorflow as tf

from infoword_tf.data.batches import HELDOUT_BATCH
from infoword_tf.data.streams import StreamSource
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Statistics
from infoword_tf.objectives.infonce import SUMS
from infoword_tf.training import optim, parts
from infoword_tf.training.distribution import StrategyReplicas, shard
from infoword_tf.training.state import State, whole
from infoword_tf.views import VIEWS, View, flatten, root, unflatten

BOUNDS = 'mi', 'ceiling', 'log_candidates', 'unigram_mi'
ANSWERS = 'accuracy', 'chance'
# Of the predictions for all held-out examples, by name, and their view: what
# they come to, by name.
Measure = Callable[[dict[str, np.ndarray], View], dict[str, float]]


class NonFiniteLoss(RuntimeError):
    """A loss or gradient was not finite; no weight was changed by it.

    Attributes:
        step: the update that failed, from 0.
        where: whose loss it was, for people.
    """

    def __init__(self, step: int, where: str, why: str = ''):
        """Args: as the attributes; why the run does not go around it."""
        super().__init__(
            f'step {step + 1}: {where} is not finite. No weight was changed by '
            'it. Go on from the last checkpoint with a lower --learning_rate '
            'or --clip_norm: --init=THIS_WORKDIR and another --workdir; a run '
            'without a checkpoint begins anew. '
            + (f'It does not go around this batch, since {why}' if why else
               '--on_nonfinite=rewind goes around such batches')
        )  # fmt: skip
        self.step, self.where = step, where


def summarise(
    row: str,
    sums: Sequence[float],
    bounded: bool | None = None,
    more: Sequence[str] | None = None,
) -> dict[str, float]:
    """Means of `Outcome.sums` (and `more`) summed over batches and replicas.

    Without what there is of bounds alone where the row bounds nothing, and of
    answers where it gives none. What a setting decides of that (`bounded`,
    `more`) is given.
    """
    objective = TABLE[row].objective
    more = objective.more if more is None else more
    values = dict(zip((*SUMS, *more), sums, strict=False))
    weight, measured = (
        max(values.pop(name), 1e-12) for name in ('weight', 'measured')
    )
    if bounded is None:
        bounded = objective.bounded
    left_out = () if bounded else BOUNDS
    for name in left_out if objective.ranked else (*left_out, *ANSWERS):
        del values[name]
    return {
        f'{row}/{name}': value / (weight if name == 'loss' else measured)
        for name, value in values.items()
    }


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
        statistics: Statistics,
        seed: int,
        batch_size: int,
        xla: bool = False,
        state: State | None = None,
        microbatch: int | None = None,
    ):
        """Args: what a step needs; the dataset has global batches, the
        statistics are of the training text. A batch is encoded `microbatch`
        rows of the global one at a time; None: at once.

        Each replica takes its rows of the global batch by itself: batches are
        small, and the iterator that tf.distribute would put in front of the
        dataset has a tuner that no option reaches, whose thread sleeps for up
        to a minute before the iterator can end.

        Without a `state` it is empty.
        """
        super().__init__(dataset)
        self.model, self.strategy, self.optimizer = model, strategy, optimizer
        self.step, self.learning_rate = step, learning_rate
        self.statistics = statistics
        self.seed = tf.Variable(seed, dtype=tf.int64, trainable=False)
        self.state = state or State(model, strategy, batch_size)
        self.microbatch = microbatch
        self.rows = list(model.objectives)
        self.count_names = [
            name for name in dataset.element_spec if '/counts/' in name
        ]
        self.sums = tf.Variable(tf.zeros((len(self.rows), len(SUMS))))
        self.counts = tf.Variable(tf.zeros((len(self.count_names),)))
        self.failed_step = tf.Variable(-1, dtype=tf.int64)
        self.failed_rows = tf.Variable(tf.zeros((len(self.rows),), tf.bool))
        self.gradients = self._gradients
        if xla:
            # Around forward and backward only: updates stay outside.
            self.gradients = tf.function(
                self._gradients, jit_compile=True, autograph=False
            )

    def begin_again(
        self, dataset: tf.data.Dataset, seed: int | None = None
    ) -> None:
        """Trains on another dataset of the same shapes: another run, or the
        same one (without a seed) from elsewhere.

        Weights, moments, step and state are the caller's to set.
        """
        self.train_dataset = dataset
        if seed is not None:
            self.seed.assign(seed)
        self.failed_step.assign(-1)
        self.failed_rows.assign(tf.zeros_like(self.failed_rows))

    def train_loop_begin(self) -> None:
        """Forgets the sums of the last loop."""
        self.sums.assign(tf.zeros_like(self.sums))
        self.counts.assign(tf.zeros_like(self.counts))

    # There is no Python here that depends on tensors, so nothing to convert.
    @tf.autograph.experimental.do_not_convert
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
        """Returns the global sums [rows, F], counts, whether it updated."""
        replicas = StrategyReplicas()
        batch = {
            name: shard(x, replicas.id, replicas.count)
            for name, x in batch.items()
        }
        key = dropout.new_key(self.seed.read_value(), step)
        gradients, sums, state = self.gradients(batch, key, self.state.read())
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
        self.state.write(state, updated)
        self.state.follow(updated)
        return sums, counts, updated

    def _gradients(
        self,
        batch: Mapping[str, tf.Tensor],
        key: tf.Tensor,
        state: Mapping[str, Any],
    ) -> tuple[list[Any], tf.Tensor, dict[str, Any]]:
        """This replica's gradient, sums [rows, F] and new state."""
        replicas = StrategyReplicas()
        variables = list(self.optimizer.variables.values())
        if self.microbatch is not None:
            size = -(-self.microbatch // replicas.count)
            step = parts.Step(
                self.model, unflatten(batch), self.statistics, key, replicas,
                state, size,
            )  # fmt: skip
            gradients, found, state = step.gradients(variables)
            return gradients, tf.stack([found[row] for row in self.rows]), state
        with tf.GradientTape() as tape:
            outcomes, state = self.model.outcomes(
                unflatten(batch), self.statistics, key, replicas, state=state
            )
            loss = self.model.loss(outcomes, replicas)
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        sums = tf.stack([tf.stack(outcomes[row].sums) for row in self.rows])
        return list(map(self.optimizer.gradient, gradients)), sums, state

    def train_loop_end(self) -> dict[str, Any]:
        """Means over the loop, by metric; or NonFiniteLoss."""
        failed = int(self.failed_step)
        if failed >= 0:
            wrong = self.failed_rows.numpy()
            rows = [r for r, w in zip(self.rows, wrong, strict=True) if w]
            where = ', '.join(rows) or 'the gradient of the sum'
            raise NonFiniteLoss(failed, where)
        sums = self.sums.numpy()
        report: dict[str, Any] = {}
        for row, outcome in zip(self.rows, sums, strict=True):
            bounded = self.model.objectives[row].bounded
            report.update(summarise(row, outcome.tolist(), bounded))
        for name, count in zip(
            self.count_names, self.counts.numpy(), strict=True
        ):
            view, _, what = name.split('/')
            report[f'{view}/{what}'] = float(count)
        return report


class Heldout(orbit.AbstractEvaluator):
    """Every row's values on the held-out sequences, dropout off.

    They run on one device whatever the strategy, so that they do not depend
    on it. What lasts from step to step has a course of its own, empty at the
    first batch.
    """

    def __init__(
        self,
        model: Model,
        views: Mapping[str, View],
        statistics: Statistics,
        measures: Mapping[str, Measure] = types.MappingProxyType({}),
    ):
        """Args: views of all held-out sequences [E, ...]; the statistics of
        their text; by row, what its predictions for all examples come to.
        """
        self.model, self.measures = model, dict(measures)
        self.rows = [
            row
            for row in model.objectives
            if views.keys() >= model.reads[row].keys()
        ]
        self.examples = views.get('examples')
        self.statistics = statistics._replace(answers=commonest(views))
        flat = flatten(dict(views))
        sequences = len(next(iter(flat.values())))
        size = min(HELDOUT_BATCH, sequences)
        rows = StreamSource.heldout_rows
        self.state = {
            name: entry.empty for name, entry in model.empty_state(rows).items()
        }
        if any(name.startswith('memory/') for name in self.state):
            size = rows
        self.batches = [
            {k: tf.constant(v[i : i + size]) for k, v in flat.items()}
            for i in range(0, sequences, size)
        ]
        # The first sequences, enough to hold M candidates besides one's own.
        most = 0
        for row in self.rows:
            wanted = model.heldout_candidates[row] or 0
            for view in views.values():
                if wanted and row in view.weights:
                    each = np.sum(view.weights[row], axis=1)
                    enough = np.cumsum(each) >= wanted + each.max()
                    first = np.argmax(enough) if enough.any() else sequences
                    most = max(most, int(first) + 1)
        # Of the views of these rows alone.
        read = {
            name
            for row in self.rows
            if model.heldout_candidates[row] is not None
            for name in model.reads[row]
        }
        self.first_views = {
            k: tf.constant(v[:most])
            for k, v in flat.items()
            if k.split('/')[0] in read
        }
        self._sums = tf.function(self._batch_sums, autograph=False)
        self._candidates = tf.function(self._head_candidates, autograph=False)

    def _head_candidates(self) -> dict[str, Any]:
        """By row, where they are of the first sequences."""
        limits = {
            row: limit
            for row in self.rows
            if (limit := self.model.heldout_candidates[row]) is not None
        }
        if not limits:
            return {}
        views = unflatten(self.first_views)
        batches, _ = self.model.batches(views, self.statistics, limits=limits)
        return {
            row: self.model.objectives[row].candidates(batches[row])
            for row in limits
        }

    def _batch_sums(
        self,
        batch: dict[str, tf.Tensor],
        candidates: dict[str, Any],
        state: dict[str, Any],
    ) -> tuple[list[tf.Tensor], dict[str, Any], dict[str, Any]]:
        outcomes, new = self.model.outcomes(
            unflatten(batch),
            self.statistics,
            candidates=candidates,
            state=state,
            rows=self.rows,
        )
        state, objectives = whole(state, new), self.model.objectives
        sums = [
            tf.stack([*o.sums, *(o.more[x] for x in objectives[row].more)])
            for row, o in outcomes.items()
        ]
        said = {row: dict(outcomes[row].predictions) for row in self.measures}
        return sums, state, said

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """All held-out sequences; returns `heldout/ROW/...`."""
        sums, report = self.measure()
        return heldout_means(self.model, sums) | report

    def measure(self) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """By row its sums over all sequences; and what its measures say."""
        candidates, state = self._candidates(), self.state
        parts, predicted = [], []
        for batch in self.batches:
            sums, state, said = self._sums(batch, candidates, state)
            parts.append([x.numpy().astype(np.float64) for x in sums])
            predicted.append(said)
        sums = {
            row: sum(outcomes)
            for row, *outcomes in zip(self.rows, *parts, strict=True)
        }
        report = {}
        for row, measure in self.measures.items():
            values = {
                name: np.concatenate([said[row][name] for said in predicted])
                for name in predicted[0][row]
            }
            for name, value in measure(values, self.examples).items():
                report[f'heldout/{row}/{name}'] = value
        return sums, report


def heldout_means(
    model: Model, sums: Mapping[str, np.ndarray], part: str = ''
) -> dict[str, float]:
    """`heldout/ROW/NAME` of sums by row, or `heldout/ROW/PART_NAME`."""
    report = {}
    for row, found in sums.items():
        known = model.objectives[row]
        means = summarise(row, found.tolist(), known.bounded, known.more)
        for name, value in means.items():
            name = name.removeprefix(f'{row}/')
            report[f'heldout/{row}/{part}{name}'] = value
    return report


class HeldoutParts(orbit.AbstractEvaluator):
    """Held-out text of several languages: each apart, and all together.

    Each has candidates, and a zero of MI, of its own.
    """

    def __init__(self, parts: Mapping[str, Heldout]):
        """Args: by language, or two of them ('de-en'), the text."""
        self.parts = dict(parts)
        self.model = next(iter(self.parts.values())).model

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """All parts; `heldout/ROW/...`, and `heldout/ROW/LANGUAGE_...`."""
        report: dict[str, float] = {}
        total: dict[str, np.ndarray] = {}
        for name, part in self.parts.items():
            sums, more = part.measure()
            report |= more
            if name:
                report |= heldout_means(self.model, sums, f'{name}_')
            for row, found in sums.items():
                total[row] = total.get(row, 0) + found
        return heldout_means(self.model, total) | report


def commonest(views: Mapping[str, View]) -> dict[str, int]:
    """By row, the b that most of its measured pairs have."""
    answers = {}
    for name, view in views.items():
        if VIEWS[root(name)].any_encoder:
            continue  # counted by class, or no class at all
        for row, targets in view.targets.items():
            weights = view.weights[row] * view.measured.get(row, 1.0)
            weights = np.broadcast_to(weights, np.shape(targets))
            counts = np.bincount(np.ravel(targets), np.ravel(weights))
            answers[row] = int(np.argmax(counts))
    return answers


class Clock:
    """Seconds and rate of the part of a run that this process does."""

    def __init__(self, step: int, seconds: float):
        """Args: where the run goes on, and the seconds it took so far."""
        self.before = seconds
        self.start = self.last = time.monotonic()
        self.last_step = step

    def lap(self, step: int) -> tuple[float, float]:
        """Seconds of the whole run, steps a second since the last lap."""
        now = time.monotonic()
        rate = (step - self.last_step) / max(now - self.last, 1e-9)
        self.last, self.last_step = now, step
        return self.before + now - self.start, rate

    def skip(self) -> None:
        """What was done since the last lap was no training."""
        self.last = time.monotonic()
