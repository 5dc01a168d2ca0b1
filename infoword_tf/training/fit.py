"""Orbit's loop over a trainer: what happens at logging steps, and at the end.
"""

import contextlib
import io
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orbit
import tensorflow as tf

from infoword_tf import files
from infoword_tf.training import checkpoint, loop, report
from infoword_tf.training.checkpoint import Metrics

# Of held-out text, the loss of the sum: the rows' with their weights.
LOSS = 'heldout_loss'
# By what --minutes becomes steps: so many at a time, until they took a share of
# the minutes or so long.
TRIAL_STEPS, TRIAL_SHARE, TRIAL_SECONDS = 5, 0.05, 10.0


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
        name: of a held-out value, 'heldout/ROW/NAME' or LOSS.
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
        found = [r for r in records if self.name in r]
        choose = min if self.lowest else max
        return choose(found, key=lambda r: r[self.name], default=None)

    def reached(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Whether nothing better has come for too long."""
        if self.patience is None:
            return False
        found = [r for r in records if self.name in r]
        best = self.best(found)
        return best is not None and (
            len(found) - 1 - found.index(best) >= self.patience
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
        steps: of the run.
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

    Args:
        minutes: of training alone.
        trainer: fresh, of a dataset without end.
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
    """Takes what views count of tokens and padding out of a loop's values.

    Padding comes back as shares of the places that are computed: 'padding'
    and, where a view has any, 'VIEW/padding'.

    Args:
        values: by name, what the loop counted; changed in place.
        places: as in `fit`.
        steps: of the loop.

    Returns:
        Tokens of text that were read: no padding, none of them twice.
    """
    tokens = sum(values.pop(f'{view}/tokens', 0) for view in places)
    padding = 0.0
    for view, size in places.items():
        if f'{view}/padding' in values:
            padding += values[f'{view}/padding']
            values[f'{view}/padding'] /= steps * size
    values['padding'] = padding / (steps * sum(places.values()))
    return int(tokens)


def fit(
    workdir: pathlib.Path,
    trainer: loop.Trainer,
    heldout: loop.Heldout,
    save: Callable[[int], None],
    pace: Pace,
    places: Mapping[str, int],
    chief: bool = True,
    goal: Goal | None = None,
    keep: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Trains to the last step; at logging steps the chief writes and shows.

    Args:
        workdir: of the run.
        trainer, heldout: what trains and what measures.
        save: keeps the state after so many updates.
        pace: how often.
        places: by view, those that a step computes: `places_of`.
        chief: whether this process is the one that writes.
        goal: by what weights are chosen; None: the last ones are.
        keep: keeps the weights that were best so far, of a goal.

    Returns:
        What metrics.json holds: the last record, or of a goal the best one,
        with the seconds of the whole run.
    """
    first = int(trainer.step)
    rows = list(trainer.model.objectives)
    metrics = Metrics(workdir, first, chief)
    seconds = metrics.records[-1]['seconds'] if metrics.records else 0.0
    clock = loop.Clock(first, seconds)
    # A run that was stopped between its checkpoint and its weights.
    best = goal and goal.best(metrics.records)
    if chief and best and best['step'] == first:
        keep(first)

    def act(values: dict[str, Any]) -> None:
        if not chief:
            return
        now = int(trainer.step)
        steps = now - clock.last_step
        elapsed, rate = clock.lap(now)
        tokens = count_tokens(values, places, steps)
        # Orbit writes `values` to TensorBoard afterwards.
        values['learning_rate'] = float(trainer.learning_rate(now - 1))
        if now % pace.evaluate == 0 or now == pace.steps:
            began = time.monotonic()
            values.update(heldout.evaluate())
            values[LOSS] = sum(
                weight * values[f'heldout/{row}/loss']
                for row, weight in trainer.model.weights.items()
            )
            values['heldout_seconds'] = round(time.monotonic() - began, 3)
        record = {
            'step': now,
            'seconds': round(elapsed, 2),
            'tokens_per_second': round(rate * tokens / steps, 1),
            'steps_per_second': round(rate, 4),
            **values,
        }
        metrics.append(record)
        left = (pace.steps - now) / rate
        name = goal and goal.name
        line = report.progress_line(record, rows, pace.steps, left, name)
        shown.write(line + '\n')
        shown.flush()
        better = goal and goal.best(metrics.records) is record
        enough = goal is not None and goal.reached(metrics.records)
        # Weights without a checkpoint would be those of another run.
        lone = better and checkpoint.last_step(workdir) is None
        if now % pace.save == 0 or now == pace.steps or enough or lone:
            save(now)
        if better:
            keep(now)
        if enough:
            raise _Enough
        clock.skip()

    controller = orbit.Controller(
        strategy=trainer.strategy,
        trainer=trainer,
        global_step=trainer.step,
        steps_per_loop=lambda s: int(
            min(pace.log - s % pace.log, pace.steps - s)
        ),
        summary_dir=str(workdir / 'tensorboard') if chief else None,
        train_actions=[act],
    )
    # Orbit prints lines of its own, with less in them than ours.
    shown = sys.stdout
    done = goal is not None and goal.reached(metrics.records)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(_Enough),
    ):
        if not done:
            controller.train(pace.steps, checkpoint_at_completion=False)
    if not chief:
        return {}
    last = dict(metrics.records[-1]) if metrics.records else {'step': first}
    kept = goal and goal.best(metrics.records)
    if kept:
        last = {**kept, 'seconds': last['seconds']}
    if f'heldout/{rows[0]}/loss' not in last:
        last.update(heldout.evaluate())
    files.write_json(workdir / 'metrics.json', last)
    report.draw_bounds(
        workdir / 'bounds.png',
        metrics.records,
        rows,
        kept and (goal.name, kept['step']),
    )
    print(report.closing_table(last, rows))
    of = f' of step {kept["step"]:,}' if kept else ''
    print(f'{workdir}/ holds the encoder{of}, metrics.jsonl and bounds.png')
    return last
