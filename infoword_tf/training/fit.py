"""Orbit's loop over a trainer: logging steps, rewinds, SIGTERM, and the end."""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orbit
import tensorflow as tf
from tensorflow.core.util import event_pb2

from infoword_tf import checkpoint, errors, files
from infoword_tf.checkpoint import Metrics
from infoword_tf.training import loop, report

if TYPE_CHECKING:
    from infoword_tf.training.evaluators import Evaluator

LOSS = 'heldout_loss'  # the weighted sum of the rows' held-out losses
TENSORBOARD = 'tensorboard'  # folder of events in a workdir
# --minutes is measured by trials of a few steps, until they took this share of
# the minutes or this many seconds.
TRIAL_STEPS, TRIAL_SHARE, TRIAL_SECONDS = 5, 0.05, 10.0
_WITHOUT = (
    'stopped by SIGTERM, {:g} s later (--grace_seconds) and without saving: '
    'the same command goes on from the last checkpoint\n'
)
_COMPLAINT = re.compile(r'(?:Value|Input)Error: (.*)')


class Pace(NamedTuple):
    """Intervals of a run, in updates.

    Attributes:
        steps: updates of the run.
        log: between logging steps.
        evaluate, save: between held-out values and checkpoints; multiples of
            `log`.
    """

    steps: int
    log: int
    evaluate: int
    save: int


class Goal(NamedTuple):
    """Criterion that selects the exported weights.

    Attributes:
        name: name of a held-out value, 'heldout/ROW/NAME' or LOSS, or of an
            evaluator's measure.
        patience: evaluations without a better value after which a run ends;
            None: it never ends early.
        lowest: whether the lowest value is the best, as of a loss.
    """

    name: str
    patience: int | None = None
    lowest: bool = False

    def best(
        self, records: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """Returns the record with the best value, the first of equals."""
        measured = [r for r in records if self.name in r]
        choose = min if self.lowest else max
        return choose(measured, key=lambda r: r[self.name], default=None)

    def reached(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Tells whether patience is exhausted."""
        if self.patience is None:
            return False
        measured = [r for r in records if self.name in r]
        best = self.best(measured)
        return best is not None and (
            len(measured) - 1 - measured.index(best) >= self.patience
        )


class _Enough(Exception):
    """Signal that ends a run before the last step."""


def make_pace(
    steps: int,
    log: int | None = None,
    evaluate: int | None = None,
    save: int | None = None,
) -> Pace:
    """Fills in defaults, and rounds up to logging steps.

    Args:
        log: None: steps / 50, at most 100.
        evaluate: None: steps / 10.
        save: None: steps / 10, at most 1000.
    """
    log = log or min(100, max(1, steps // 50))
    tenth = -(-steps // 10)  # rounded up: ten evaluations at most

    def rounded(every: int) -> int:
        return -(-every // log) * log

    return Pace(
        steps,
        log,
        rounded(evaluate or tenth),
        rounded(save or min(1000, tenth)),
    )


def steps_in(minutes: float, trainer: loop.Trainer) -> int:
    """Estimates how many updates a trainer makes in so many minutes.

    The trainer makes a few, traced before the clock starts, and cannot be
    used for a run afterwards.
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


def view_sizes(dataset: tf.data.Dataset) -> dict[str, int]:
    """Returns B T of each view, padding included, in global batches."""
    return {
        name.split('/')[0]: spec.shape.num_elements()
        for name, spec in dataset.element_spec.items()
        if name.endswith('/ids')
    }


def count_tokens(
    values: dict[str, Any], sizes: Mapping[str, int], steps: int
) -> int:
    """Pops the counts of tokens, and turns counts of padding into shares.

    'padding' and 'VIEW/padding' become shares of B T (`sizes`).

    Returns:
        Tokens of text, without padding, each counted once.
    """
    tokens = sum(values.pop(f'{view}/tokens', 0) for view in sizes)
    padding = 0.0
    for view, size in sizes.items():
        if f'{view}/padding' in values:
            padding += values[f'{view}/padding']
            values[f'{view}/padding'] /= steps * size
    values['padding'] = padding / (steps * sum(sizes.values()))
    return int(tokens)


@contextlib.contextmanager
def stop_on_sigterm(grace: float | None) -> Iterator[threading.Event]:
    """Sets an event on SIGTERM, and ends the process after a grace period.

    Args:
        grace: seconds in which the context has to end; None: signals are left
            alone.
    """
    stopping = threading.Event()
    in_main = threading.current_thread() is threading.main_thread()
    if grace is None or not in_main:  # only the main thread handles signals
        yield stopping
        return
    # Python runs a handler only once TensorFlow's loop has returned. The byte
    # that the interpreter writes at the signal wakes this thread at once.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    done = threading.Event()

    def wait() -> None:
        while (byte := os.read(reading, 1)) not in (b'', b'\0'):
            if byte[0] == signal.SIGTERM:
                stopping.set()
                if not done.wait(grace):
                    os.write(2, _WITHOUT.format(grace).encode())
                    os._exit(errors.Preempted.status)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield stopping
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, before)
        done.set()
        os.write(writing, b'\0')
        thread.join()
        os.close(reading)
        os.close(writing)


def truncate_events(folder: pathlib.Path, step: int) -> None:
    """Drops events of TensorBoard after a step, where a run resumes.

    The records after damage are dropped too: a killed process has not written
    the end. A file without an event is deleted.
    """
    for path in sorted(folder.rglob('events.out.tfevents.*')):
        records, dropped = [], False
        for record, is_whole in _records(path):
            event = event_pb2.Event.FromString(record)
            if is_whole and event.step <= step:
                records.append((record, event.WhichOneof('what')))
            else:
                dropped = True
        if all(kind == 'file_version' for _, kind in records):
            path.unlink()
        elif dropped:
            with files.written(path) as partial:
                with tf.io.TFRecordWriter(str(partial)) as writer:
                    for record, _ in records:
                        writer.write(record)


def _records(path: pathlib.Path) -> Iterator[tuple[bytes, bool]]:
    """Yields (record, True) in order, and (b'', False) where damage begins."""
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            yield record.numpy(), True
    except tf.errors.DataLossError:
        yield b'', False


@dataclasses.dataclass
class Fit:
    """Training to the last step, with logging steps of the chief.

    Attributes:
        sizes: B T of each view, see `view_sizes`.
        save: writes a checkpoint after so many updates.
        keep: writes the weights, which are the best so far.
        goal: selects the weights; None: the last ones are exported.
        evaluator: measures beside the held-out values.
        rewind: restores the last checkpoint and continues with the update of
            this number; returns that of the checkpoint.
        checkpoints: they count rewinds.
        rewinds: most of them, in a run and all that resumed it.
        grace: seconds between SIGTERM and the end; None: it ends the process.
        any_process: combines truth values of all processes, which wait for
            each other; called at each logging step.
    """

    workdir: pathlib.Path
    trainer: loop.Trainer
    heldout: loop.Heldout | loop.HeldoutLanguages
    pace: Pace
    sizes: Mapping[str, int]
    save: Callable[[int], None]
    keep: Callable[[int], None]
    chief: bool
    goal: Goal | None
    checkpoints: checkpoint.Checkpoints
    evaluator: 'Evaluator | None'
    rewind: Callable[[int], int] | None
    rewinds: int
    grace: float | None
    any_process: Callable[..., tuple[bool, ...]]

    def run(self) -> dict[str, Any]:
        """Trains from the step of the trainer on.

        Returns:
            Content of metrics.json: the last record, or with a goal the best
            one, with the seconds of the whole run.
        """
        first = int(self.trainer.step)
        self.rows = list(self.trainer.model.objectives)
        self.metrics = Metrics(self.workdir, first, self.chief)
        if self.chief:
            truncate_events(self.workdir / TENSORBOARD, first)
        records = self.metrics.records
        seconds = records[-1]['seconds'] if records else 0.0
        self.clock = loop.Clock(first, seconds)
        # The run was stopped after a checkpoint, before the weights.
        best = self._best()
        if self.chief and best and best['step'] == first:
            self.keep(first)
        (enough,) = self.any_process(self.chief and self._enough())
        if not enough:
            self._train()
        metrics = self._close(first) if self.chief else {}
        self.any_process(False)  # none leaves while another one writes
        return metrics

    def _best(self) -> Mapping[str, Any] | None:
        return self.goal and self.goal.best(self.metrics.records)

    def _enough(self) -> bool:
        return self.goal is not None and self.goal.reached(self.metrics.records)

    def _train(self) -> None:
        """Runs Orbit's loop."""
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
        # Orbit prints progress lines too, which say less than ours.
        with (
            stop_on_sigterm(self.grace) as self.stopping,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.suppress(_Enough),
        ):
            while int(self.trainer.step) < pace.steps:
                try:
                    controller.train(pace.steps, checkpoint_at_completion=False)
                except loop.NonFiniteLoss as error:
                    self._go_around(error)
                except tf.errors.InvalidArgumentError as error:
                    # The pipeline wraps what making a batch complains of.
                    if complaint := _COMPLAINT.search(error.message):
                        raise errors.InputError(
                            'batch_failed', complaint[1]
                        ) from None
                    raise

    def _go_around(self, error: loop.NonFiniteLoss) -> None:
        """Continues after a batch that failed, from the last checkpoint.

        The weights before the failure may be bad already; so all updates
        since the last checkpoint are undone, and their batches are skipped
        (Chowdhery et al. 2022, "PaLM", section 5.1).

        Raises:
            NonFiniteLoss: rewinding was not chosen, was done too often, or
                there is no checkpoint.
        """
        done = error.step + 1
        if self.rewind is None:
            raise error
        (nothing,) = self.any_process(
            checkpoint.last_step(self.workdir) is None
        )
        for impossible, why in (
            (self.checkpoints.rewinds >= self.rewinds,
             f'the run has gone back {self.checkpoints.rewinds} times '
             '(--rewinds)'),
            (done >= self.pace.steps, 'there is no batch after it'),
            (nothing, 'there is no checkpoint to go back to'),
        ):  # fmt: skip
            if impossible:
                raise loop.NonFiniteLoss(error.step, error.where, why)
        with contextlib.redirect_stdout(self.shown):
            saved = self.rewind(done)
            print(
                f'step {done:,}: {error.where} is not finite; on with step '
                f'{done + 1:,} from the weights of step {saved:,} '
                f'({self.checkpoints.rewinds} of {self.rewinds})',
                flush=True,
            )
        if self.chief:
            self.metrics.forget(saved)
        self.clock.lap(done)

    def _act(self, values: dict[str, Any]) -> None:
        """Handles a logging step; Orbit then writes `values` to TensorBoard."""
        now, pace = int(self.trainer.step), self.pace
        better = enough = unsaved = False
        failed: Exception | None = None
        if self.chief:
            try:
                record = self._measure(now, values)
            except Exception as error:  # raised once all processes know of it
                failed = error
            else:
                better, enough = self._best() is record, self._enough()
                # Weights without a checkpoint would be those of another run.
                unsaved = better and checkpoint.last_step(self.workdir) is None
        stop = self.stopping.is_set() and now < pace.steps
        enough, unsaved, stop, lost = self.any_process(
            enough, unsaved, stop, failed is not None
        )
        if lost:
            raise failed or RuntimeError('worker 0 has failed, and says why')
        due = now % pace.save == 0 or now == pace.steps
        if due or enough or unsaved or stop:
            self.save(now)
        if better:
            self.keep(now)
        if enough:
            raise _Enough
        if stop:
            self.any_process(False)  # waits until the chief has written
            raise errors.Preempted(
                f'by SIGTERM: the same command goes on from step {now:,}'
            )
        self.clock.skip()

    def _measure(self, now: int, values: dict[str, Any]) -> dict[str, Any]:
        """Measures, writes and shows the record of a logging step."""
        pace = self.pace
        steps = now - self.clock.last_step
        elapsed, rate = self.clock.lap(now)
        tokens = count_tokens(values, self.sizes, steps)
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
        if self.checkpoints.rewinds:
            values[checkpoint.REWINDS] = self.checkpoints.rewinds
        record = {
            'step': now,
            'seconds': round(elapsed, 2),
            'tokens_per_second': round(rate * tokens / steps, 1),
            'steps_per_second': round(rate, 4),
            **values,
        }
        self.metrics.append(record)
        seconds = (pace.steps - now) / rate
        name = self.evaluator.name if self.evaluator else None
        line = report.progress_line(
            record,
            self.rows,
            pace.steps,
            seconds,
            goal=self.goal.name if self.goal else name,
        )
        print(line, file=self.shown, flush=True)
        return record

    def _close(self, first: int) -> dict[str, Any]:
        """Writes metrics.json and bounds.png, and prints the results."""
        workdir, records, rows = self.workdir, self.metrics.records, self.rows
        last: dict[str, Any] = dict(records[-1]) if records else {'step': first}
        goal, best = self.goal, self._best()
        if best:
            last = {**best, 'seconds': last['seconds']}
        if f'heldout/{rows[0]}/loss' not in last:
            last.update(self.heldout.evaluate())
        files.write_json(workdir / 'metrics.json', last)
        shown = (goal.name, best['step']) if goal and best else None
        report.draw_bounds(workdir / 'bounds.png', records, rows, shown)
        print(report.closing_table(last, rows))
        for sentence in report.unmeasured(last, rows):
            print(sentence)
        if goal and best and self.evaluator is not None:
            print(f'{goal.name}: {last[goal.name]:.4f}')
        step = f' of step {best["step"]:,}' if best else ''
        print(
            f'{workdir}/ holds the encoder{step}, metrics.jsonl and bounds.png'
        )
        return last
