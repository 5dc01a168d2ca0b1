"""The training loop: one step over the replicas, held-out values, the clock.

Orbit drives the loop (`fit.py`); `run.py` builds what it needs.

Glossary of shapes: E held-out sequences, F sums of a row.
"""

import time
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orbit
import tensorflow as tf

from infoword_tf.data.batches import HELDOUT_BATCH
from infoword_tf.data.streams import StreamSource
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Statistics
from infoword_tf.objectives.infonce import SUMS
from infoword_tf.training import optim
from infoword_tf.training.distribution import StrategyReplicas, shard
from infoword_tf.training.microbatch import MicrobatchStep
from infoword_tf.training.state import State, apply_updates
from infoword_tf.views import VIEWS, View, flatten, unflatten

BOUNDS = 'mi', 'ceiling', 'log_candidates', 'unigram_mi'
ANSWERS = 'accuracy', 'chance'
LEAST_CEILING = 1e-6  # nats; below it every candidate is the same
# Scores, by name, of the predictions for all held-out examples and their view.
Measure = Callable[[dict[str, np.ndarray], View], dict[str, float]]


class NonFiniteLoss(RuntimeError):
    """Complaint of a loss or gradient that is not finite.

    Attributes:
        step: the update that failed, from 0.
        where: whose loss it was, for people.
    """

    def __init__(self, step: int, where: str, why: str = ''):
        """Initializes the attributes; `why`: the run cannot skip the batch."""
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
    """Returns `ROW/NAME`, means over pairs; ANSWERS of rows that rank.

    Args:
        sums: [F] of `Outcome.sums`, then of `more`, over batches and replicas.
        bounded: whether BOUNDS are among them; None: as in the row's class.
        more: names of further sums; None: those of the class.
    """
    objective = TABLE[row].objective
    more = objective.more if more is None else more
    values = dict(zip((*SUMS, *more), sums, strict=False))
    weight, measured = (
        max(values.pop(name), 1e-12) for name in ('weight', 'measured')
    )
    if bounded is None:
        bounded = objective.bounded
    absent = () if bounded else BOUNDS
    for name in absent if objective.ranked else (*absent, *ANSWERS):
        del values[name]
    return {
        f'{row}/{name}': value / (weight if name == 'loss' else measured)
        for name, value in values.items()
    }


class Computation(NamedTuple):
    """Way in which the gradient of a step is computed.

    Attributes:
        xla: whether XLA compiles forward and backward pass.
        microbatch: sequences of the global batch that are encoded at a time;
            None: all.
    """

    xla: bool = False
    microbatch: int | None = None


PLAIN = Computation()


class Trainer(orbit.StandardTrainer):
    """Training step on every replica, and the sums of a loop of steps.

    Attributes:
        step: int64 variable, updates so far.
        model, strategy: model and devices of the state.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        state: State,
        optimizer: optim.AdamW,
        learning_rate: Callable[[tf.Tensor], tf.Tensor],
        statistics: Statistics,
        seed: int,
        computation: Computation = PLAIN,
        unmeasured: Collection[str] = (),
    ):
        """Creates the variables that a step writes.

        Each replica takes its sequences of the global batch by itself: batches
        are small, and the iterator that tf.distribute would put in front of
        the dataset has a tuner that no option reaches, whose thread sleeps for
        up to a minute before the iterator can end.

        Args:
            dataset: global batches, as flat views.
            state: variables that steps hand on, of a model.
            optimizer: updates of its weights.
            learning_rate: function of the step.
            statistics: counts of the training text.
            seed: seed of dropout.
            computation: way to the gradient.
            unmeasured: rows whose MI the batches cannot tell, see
                `batches.unmeasured`.
        """
        super().__init__(dataset)
        self.model, self.strategy = state.model, state.strategy
        self.state, self.optimizer = state, optimizer
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.learning_rate, self.statistics = learning_rate, statistics
        self.seed = tf.Variable(seed, dtype=tf.int64, trainable=False)
        self.microbatch = computation.microbatch
        self.unmeasured = unmeasured
        self.rows = list(self.model.objectives)
        self.count_names = [
            name for name in dataset.element_spec if '/counts/' in name
        ]
        self.sums = tf.Variable(tf.zeros((len(self.rows), len(SUMS))))
        self.counts = tf.Variable(tf.zeros((len(self.count_names),)))
        self.failed_step = tf.Variable(-1, dtype=tf.int64)
        self.failed_rows = tf.Variable(tf.zeros((len(self.rows),), tf.bool))
        self.gradients = self._gradients
        if computation.xla:
            # Around forward and backward only: updates stay outside.
            self.gradients = tf.function(
                self._gradients, jit_compile=True, autograph=False
            )

    def restart(
        self, dataset: tf.data.Dataset, seed: int | None = None
    ) -> None:
        """Switches to another dataset of the same shapes, and another seed.

        The caller sets weights, moments, step and state.
        """
        self.train_dataset = dataset
        if seed is not None:
            self.seed.assign(seed)
        self.failed_step.assign(-1)
        self.failed_rows.assign(tf.zeros_like(self.failed_rows))

    def train_loop_begin(self) -> None:
        """Sets the sums of the last loop to 0."""
        self.sums.assign(tf.zeros_like(self.sums))
        self.counts.assign(tf.zeros_like(self.counts))

    # No Python below depends on tensors, so AutoGraph has nothing to convert.
    @tf.autograph.experimental.do_not_convert
    def train_step(self, iterator: Any) -> None:
        """Makes one update, unless the loss or gradient is not finite."""
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
        """Makes one update of a replica, by the gradient of all replicas.

        Returns:
            Global sums [rows, F], counts, and whether an update was made.
        """
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
        self.state.update_averages(updated)
        return sums, counts, updated

    def _gradients(
        self,
        batch: Mapping[str, tf.Tensor],
        key: tf.Tensor,
        state: Mapping[str, Any],
    ) -> tuple[list[Any], tf.Tensor, dict[str, Any]]:
        """Returns gradients, sums [rows, F] and new state of a replica.

        The loss of a replica is its share of the global mean, so the sum of
        these gradients over replicas is the gradient of the global batch.
        """
        replicas = StrategyReplicas()
        variables = list(self.optimizer.variables.values())
        if self.microbatch is not None:
            size = -(-self.microbatch // replicas.count)
            step = MicrobatchStep(
                model=self.model,
                views=unflatten(batch),
                statistics=self.statistics,
                key=key,
                replicas=replicas,
                state=state,
                size=size,
            )
            gradients, sums, state = step.gradients(variables)
            return gradients, tf.stack([sums[row] for row in self.rows]), state
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
        """Returns means over the loop by metric.

        Raises:
            NonFiniteLoss: of the first step that failed.
        """
        failed = int(self.failed_step)
        if failed >= 0:
            marks = self.failed_rows.numpy()
            rows = [r for r, mark in zip(self.rows, marks, strict=True) if mark]
            where = ', '.join(rows) or 'the gradient of the sum'
            raise NonFiniteLoss(failed, where)
        sums = self.sums.numpy()
        report: dict[str, Any] = {}
        for row, outcome in zip(self.rows, sums, strict=True):
            bounded = self.model.objectives[row].bounded
            bounded = bounded and row not in self.unmeasured
            report.update(summarise(row, outcome.tolist(), bounded))
        for name, count in zip(
            self.count_names, self.counts.numpy(), strict=True
        ):
            view, _, kind = name.split('/')
            report[f'{view}/{kind}'] = float(count)
        return report


class Heldout(orbit.AbstractEvaluator):
    """Evaluation of every row on held-out sequences, without dropout.

    Runs on one device, so that values do not depend on the strategy. The state
    is empty at the first batch, and apart from that of training.
    """

    def __init__(
        self,
        model: Model,
        views: Mapping[str, View],
        statistics: Statistics,
        measures: Mapping[str, Measure] = types.MappingProxyType({}),
    ):
        """Splits views of all held-out sequences [E, ...] into batches.

        `measures` score the predictions of rows.
        """
        self.model, self.measures = model, dict(measures)
        self.rows = [
            row
            for row in model.objectives
            if views.keys() >= model.reads[row].keys()
        ]
        self.examples = views.get('examples')
        answers = most_common_targets(views)
        self.statistics = statistics._replace(answers=answers)
        flat = flatten(dict(views))
        sequences = len(next(iter(flat.values())))
        size = min(HELDOUT_BATCH, sequences)
        rows = StreamSource.heldout_sequences
        self.state = {
            name: entry.empty for name, entry in model.empty_state(rows).items()
        }
        if any(name.startswith('memory/') for name in self.state):
            size = rows
        self.batches = [
            {k: tf.constant(v[i : i + size]) for k, v in flat.items()}
            for i in range(0, sequences, size)
        ]
        # The first sequences, as many as M candidates of other ones need.
        most = 0
        for row in self.rows:
            candidates = model.heldout_candidates[row] or 0
            for view in views.values():
                if candidates and row in view.weights:
                    each = np.sum(view.weights[row], axis=1)
                    enough = np.cumsum(each) >= candidates + each.max()
                    first = np.argmax(enough) if enough.any() else sequences
                    most = max(most, int(first) + 1)
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
        self._candidates = tf.function(self._first_candidates, autograph=False)

    def _first_candidates(self) -> dict[str, Any]:
        """Returns candidates of the first sequences, of rows with a limit."""
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
        state = apply_updates(state, new)
        objectives = self.model.objectives
        sums = [
            tf.stack([*o.sums, *(o.more[x] for x in objectives[row].more)])
            for row, o in outcomes.items()
        ]
        predictions = {
            row: dict(outcomes[row].predictions) for row in self.measures
        }
        return sums, state, predictions

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """Evaluates all held-out sequences; returns `heldout/ROW/...`."""
        sums, report = self.measure()
        return heldout_means(self.model, sums) | report

    def measure(self) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Returns sums [F] by row, and `heldout/ROW/...` of the measures."""
        candidates, state = self._candidates(), self.state
        batch_sums, predictions = [], []
        for batch in self.batches:
            sums, state, predicted = self._sums(batch, candidates, state)
            batch_sums.append([x.numpy().astype(np.float64) for x in sums])
            predictions.append(predicted)
        sums = {
            row: sum(outcomes)
            for row, *outcomes in zip(self.rows, *batch_sums, strict=True)
        }
        report: dict[str, float] = {}
        if self.examples is None:  # nothing that people have labelled
            return sums, report
        for row, measure in self.measures.items():
            values = {
                name: np.concatenate([x[row][name] for x in predictions])
                for name in predictions[0][row]
            }
            for name, value in measure(values, self.examples).items():
                report[f'heldout/{row}/{name}'] = value
        return sums, report


def heldout_means(
    model: Model, sums: Mapping[str, np.ndarray], prefix: str = ''
) -> dict[str, float]:
    """Returns `heldout/ROW/PREFIX_NAME`, the means of sums [F] by row.

    Where a perfect critic has no MI, nothing is measured: then there are the
    loss, and `log_candidates` if a pair counts.
    """
    report = {}
    for row, row_sums in sums.items():
        objective = model.objectives[row]
        bounded, more = objective.bounded, objective.more
        means = summarise(row, row_sums.tolist(), bounded, more)
        if bounded and abs(means[f'{row}/ceiling']) < LEAST_CEILING:
            counts = row_sums[SUMS.index('measured')] > 0
            left = {'loss', 'log_candidates'} if counts else {'loss'}
            means = {k: v for k, v in means.items() if k.split('/')[1] in left}
        for name, value in means.items():
            name = name.removeprefix(f'{row}/')
            report[f'heldout/{row}/{prefix}{name}'] = value
    return report


class HeldoutLanguages(orbit.AbstractEvaluator):
    """Held-out text of several languages: each apart, and all together.

    Candidates and the zero of MI are those of a language.
    """

    def __init__(self, languages: Mapping[str, Heldout]):
        """Takes the text by language, or by two languages ('de-en')."""
        self.languages = dict(languages)
        self.model = next(iter(self.languages.values())).model

    def evaluate(self, num_steps: tf.Tensor | None = None) -> dict[str, float]:
        """Returns `heldout/ROW/...` of all, and `heldout/ROW/LANGUAGE_...`."""
        report: dict[str, float] = {}
        total: dict[str, np.ndarray] = {}
        for language, heldout in self.languages.items():
            sums, more = heldout.measure()
            report |= more
            if language:
                report |= heldout_means(self.model, sums, f'{language}_')
            for row, row_sums in sums.items():
                total[row] = total.get(row, 0) + row_sums
        return heldout_means(self.model, total) | report


def most_common_targets(views: Mapping[str, View]) -> dict[str, int]:
    """Returns the most common b among the measured pairs of each row."""
    answers = {}
    for name, view in views.items():
        if VIEWS[VIEWS.root(name)].any_encoder:
            continue  # labels: counted by class, in statistics of their own
        for row, targets in view.targets.items():
            weights = view.weights[row] * view.measured.get(row, 1.0)
            weights = np.broadcast_to(weights, np.shape(targets))
            counts = np.bincount(np.ravel(targets), np.ravel(weights))
            answers[row] = int(np.argmax(counts))
    return answers


class Clock:
    """Clock of a run: seconds over all processes, and the current rate."""

    def __init__(self, step: int, seconds: float):
        """Starts at a step, after the seconds of earlier processes."""
        self.before = seconds
        self.start = self.last = time.monotonic()
        self.last_step = step

    def lap(self, step: int) -> tuple[float, float]:
        """Returns seconds of the run, and steps a second since the last lap."""
        now = time.monotonic()
        rate = (step - self.last_step) / max(now - self.last, 1e-9)
        self.last, self.last_step = now, step
        return self.before + now - self.start, rate

    def skip(self) -> None:
        """Excludes the time since the last lap from the rate."""
        self.last = time.monotonic()
