"""Orbit's loop over a trainer: what happens at logging steps, and at the end.
"""

import contextlib
import dataclasses
import io
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orbit
import tensorflow as tf

from infoword_tf import checkpoint, files, preemption
from infoword_tf.checkpoint import Metrics
from infoword_tf.training import events, loop, report
from infoword_tf.training.evaluators import Evaluator

# Of held-out text, the loss of the sum: the rows' with their weights.
LOSS = 'heldout_loss'
TENSORBOARD = 'tensorboard'  # of a workdir, the folder of its events
# By what --minutes becomes steps: so many at a time, until they took a share of
# the minutes or so long.
TRIAL_STEPS, TRIAL_SHARE, TRIAL_SECONDS = 5, 0.05, 10.0


_COMPLAINT = re.compile(r'ValueError: (.*)')


class Pace(NamedTuple):
    """How often things happen, in updates.

    Attributes:
        steps: of the run.
        log: between logging steps.
        evaluate, save: between held-out values and checkpoints; multiples of
            `log`.
    """

    steps: int
    log: int
    evaluate: int
    save: int


class Goal(NamedTuple):
    """By what the exported weights are selected: the highest value.

    Attributes:
        name: of a held-out value, 'heldout/ROW/NAME' or LOSS, or of what an
            evaluator measures.
        patience: held-out values without a better one after which a run ends;
            None: it never ends early.
        lowest: whether the lowest is the best, as of a loss.
    """

    name: str
    patience: int | None = None
    lowest: bool = False

    def best(
        self, records: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """The record with the best value, the first of equal ones."""
        measured = [r for r in records if self.name in r]
        choose = min if self.lowest else max
        return choose(measured, key=lambda r: r[self.name], default=None)

    def reached(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Whether nothing better has come for too long."""
        if self.patience is None:
            return False
        measured = [r for r in records if self.name in r]
        best = self.best(measured)
        return best is not None and (
            len(measured) - 1 - measured.index(best) >= self.patience
        )


class _Enough(Exception):
    """A run ends before its last step."""


def make_pace(
    steps: int,
    log: int | None = None,
    evaluate: int | None = None,
    save: int | None = None,
) -> Pace:
    """Fills in what was not chosen, and rounds up to logging steps.

    Args:
        log: None: steps / 50, at most 100.
        evaluate: None: steps / 10.
        save: None: steps / 10, at most 1000.
    """
    log = log or min(100, max(1, steps // 50))

    def rounded(every: int) -> int:
        return -(-every // log) * log

    return Pace(
        steps,
        log,
        rounded(evaluate or max(1, steps // 10)),
        rounded(save or min(1000, max(1, steps // 10))),
    )


def steps_in(minutes: float, trainer: loop.Trainer) -> int:
    """Updates that so many minutes have room for, by the rate of a few.

    These are made, traced before the clock starts, so the trainer is of no
    use afterwards: a run of that many updates makes another one.
    """
    trainer.train(tf.constant(TRIAL_STEPS))
    steps, seconds = 0, 0.0
    enough = min(TRIAL_SECONDS, TRIAL_SHARE * 60 * minutes)
    while not steps or seconds < enough:
        began = time.monotonic()
        trainer.train(tf.constant(TRIAL_STEPS))
        seconds += time.monotonic() - began
        steps += TRIAL_STEPS
    return max(1, round(60 * minutes * steps / seconds))


def places_of(dataset: tf.data.Dataset) -> dict[str, int]:
    """By view, the places of a global batch of flat views: [B, T] in all."""
    return {
        name.split('/')[0]: spec.shape.num_elements()
        for name, spec in dataset.element_spec.items()
        if name.endswith('/ids')
    }


def count_tokens(
    values: dict[str, Any], places: Mapping[str, int], steps: int
) -> int:
    """Takes tokens and padding out of what a loop counted: tokens of text that
    were read, no padding, none of them twice.

    Padding comes back as shares of the places that are computed: 'padding'
    and, where a view has any, 'VIEW/padding'.
    """
    tokens = sum(values.pop(f'{view}/tokens', 0) for view in places)
    padding = 0.0
    for view, size in places.items():
        if f'{view}/padding' in values:
            padding += values[f'{view}/padding']
            values[f'{view}/padding'] /= steps * size
    values['padding'] = padding / (steps * sum(places.values()))
    return int(tokens)


def _alone(*wishes: bool) -> tuple[bool, ...]:
    """What one process says, which is all there are."""
    return wishes


@dataclasses.dataclass
class Fit:
    """A run's steps, to the last; at logging steps the chief writes and shows.

    Attributes:
        workdir: of the run.
        trainer, heldout: what trains and what measures.
        pace: how often.
        places: by view, those that a step computes: `places_of`.
        save: keeps the state after so many updates.
        keep: keeps the weights that were best so far, of a goal.
        chief: whether this process is the one that writes.
        goal: by what weights are chosen; None: the last ones are.
        evaluator: measures more than the held-out values, with them.
        rewind: goes back to the last checkpoint, and on with an update that
            is later than the one it was made after; returns that one.
        checkpoints: which know how often that was.
        rewinds: how often it may be, of a run and all that resumed it.
        grace: seconds that there are after SIGTERM; None: none, it ends the
            process.
        any_says: of several processes, what any of them says; called at each
            logging step, where they wait for each other.
    """

    workdir: pathlib.Path
    trainer: loop.Trainer
    heldout: loop.Heldout | loop.HeldoutParts
    pace: Pace
    places: Mapping[str, int]
    save: Callable[[int], None]
    keep: Callable[[int], None]
    chief: bool
    goal: Goal | None
    evaluator: Evaluator | None = None
    rewind: Callable[[int], int] | None = None
    checkpoints: checkpoint.Checkpoints | None = None
    rewinds: int = 0
    grace: float | None = None
    any_says: Callable[..., tuple[bool, ...]] = _alone

    def run(self) -> dict[str, Any]:
        """Trains from the step of the trainer on.

        Returns:
            What metrics.json holds: the last record, or of a goal the best
            one, with the seconds of the whole run.
        """
        first = int(self.trainer.step)
        self.rows = list(self.trainer.model.objectives)
        self.metrics = Metrics(self.workdir, first, self.chief)
        if self.chief:
            events.cut(self.workdir / TENSORBOARD, first)
        records = self.metrics.records
        seconds = records[-1]['seconds'] if records else 0.0
        self.clock = loop.Clock(first, seconds)
        # A run that was stopped between its checkpoint and its weights.
        best = self._best()
        if self.chief and best and best['step'] == first:
            self.keep(first)
        (enough,) = self.any_says(self.chief and self._enough())
        if not enough:
            self._train()
        found = self._close(first) if self.chief else {}
        self.any_says(False)  # none leaves while another one writes
        return found

    def _best(self) -> Mapping[str, Any] | None:
        return self.goal and self.goal.best(self.metrics.records)

    def _enough(self) -> bool:
        return self.goal is not None and self.goal.reached(self.metrics.records)

    def _train(self) -> None:
        """Orbit's loop."""
        pace, self.shown = self.pace, sys.stdout
        controller = orbit.Controller(
            strategy=self.trainer.strategy,
            trainer=self.trainer,
            global_step=self.trainer.step,
            steps_per_loop=lambda s: int(
                min(pace.log - s % pace.log, pace.steps - s)
            ),
            summary_dir=(
                str(self.workdir / TENSORBOARD) if self.chief else None
            ),
            train_actions=[self._act],
        )
        # Orbit prints lines of its own, with less in them than ours.
        with (
            preemption.asked_to_stop(self.grace) as self.asked,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.suppress(_Enough),
        ):
            while int(self.trainer.step) < pace.steps:
                try:
                    controller.train(pace.steps, checkpoint_at_completion=False)
                except loop.NonFiniteLoss as error:
                    self._go_around(error)
                except tf.errors.InvalidArgumentError as error:
                    # What making a batch has complained of.
                    if said := _COMPLAINT.search(error.message):
                        raise ValueError(said[1]) from None
                    raise

    def _go_around(self, error: loop.NonFiniteLoss) -> None:
        """Goes on after a batch that failed, from older weights.

        That the weights before it were good nobody knows; so what has changed
        them since the last checkpoint is taken back, and those batches are
        passed over (Chowdhery et al. 2022, "PaLM", section 5.1).

        Raises:
            NonFiniteLoss: not, or not once more, or there is no checkpoint.
        """
        behind = error.step + 1
        if self.rewind is None:
            raise error
        (nothing,) = self.any_says(checkpoint.last_step(self.workdir) is None)
        for lacking, why in (
            (self.checkpoints.rewinds >= self.rewinds,
             f'the run has gone back {self.checkpoints.rewinds} times '
             '(--rewinds)'),
            (behind >= self.pace.steps, 'there is no batch after it'),
            (nothing, 'there is no checkpoint to go back to'),
        ):  # fmt: skip
            if lacking:
                raise loop.NonFiniteLoss(error.step, error.where, why)
        with contextlib.redirect_stdout(self.shown):
            saved = self.rewind(behind)
            print(
                f'step {behind:,}: {error.where} is not finite; on with step '
                f'{behind + 1:,} from the weights of step {saved:,} '
                f'({self.checkpoints.rewinds} of {self.rewinds})',
                flush=True,
            )
        if self.chief:
            self.metrics.forget(saved)
        self.clock.lap(behind)

    def _act(self, values: dict[str, Any]) -> None:
        """A logging step; Orbit writes `values` to TensorBoard afterwards."""
        now, pace = int(self.trainer.step), self.pace
        better = enough = lone = False
        failed: Exception | None = None
        if self.chief:
            try:
                record = self._measure(now, values)
            except Exception as error:  # of which the others have to know
                failed = error
            else:
                better, enough = self._best() is record, self._enough()
                # Weights without a checkpoint would be those of another run.
                lone = better and checkpoint.last_step(self.workdir) is None
        stop = self.asked.is_set() and now < pace.steps
        enough, lone, stop, lost = self.any_says(
            enough, lone, stop, failed is not None
        )
        if lost:
            raise failed or RuntimeError('worker 0 has failed, and says why')
        due = now % pace.save == 0 or now == pace.steps
        if due or enough or lone or stop:
            self.save(now)
        if better:
            self.keep(now)
        if enough:
            raise _Enough
        if stop:
            self.any_says(False)  # until it is written
            raise preemption.Preempted(
                f'by SIGTERM: the same command goes on from step {now:,}'
            )
        self.clock.skip()

    def _measure(self, now: int, values: dict[str, Any]) -> dict[str, Any]:
        """The record of a logging step, written and shown."""
        pace = self.pace
        steps = now - self.clock.last_step
        elapsed, rate = self.clock.lap(now)
        tokens = count_tokens(values, self.places, steps)
        values['learning_rate'] = float(self.trainer.learning_rate(now - 1))
        if now % pace.evaluate == 0 or now == pace.steps:
            began = time.monotonic()
            values.update(self.heldout.evaluate())
            values[LOSS] = sum(
                weight * values[f'heldout/{row}/loss']
                for row, weight in self.trainer.model.weights.items()
            )
            if self.evaluator is not None:
                values.update(self.evaluator())
            values['heldout_seconds'] = round(time.monotonic() - began, 3)
        if self.checkpoints and self.checkpoints.rewinds:
            values[checkpoint.REWINDS] = self.checkpoints.rewinds
        record = {
            'step': now,
            'seconds': round(elapsed, 2),
            'tokens_per_second': round(rate * tokens / steps, 1),
            'steps_per_second': round(rate, 4),
            **values,
        }
        self.metrics.append(record)
        left = (pace.steps - now) / rate
        shown = self.goal or self.evaluator
        name = shown and shown.name
        line = report.progress_line(record, self.rows, pace.steps, left, name)
        print(line, file=self.shown, flush=True)
        return record

    def _close(self, first: int) -> dict[str, Any]:
        """What is written and said at the end."""
        workdir, records, rows = self.workdir, self.metrics.records, self.rows
        last = dict(records[-1]) if records else {'step': first}
        kept = self._best()
        if kept:
            last = {**kept, 'seconds': last['seconds']}
        if f'heldout/{rows[0]}/loss' not in last:
            last.update(self.heldout.evaluate())
        files.write_json(workdir / 'metrics.json', last)
        chosen = kept and (self.goal.name, kept['step'])
        report.draw_bounds(workdir / 'bounds.png', records, rows, chosen)
        print(report.closing_table(last, rows))
        if kept and self.evaluator is not None:
            print(f'{self.goal.name}: {last[self.goal.name]:.4f}')
        of = f' of step {kept["step"]:,}' if kept else ''
        print(f'{workdir}/ holds the encoder{of}, metrics.jsonl and bounds.png')
        return last
