"""Contestants in turns, each a process of its own; the machine is watched.

A contestant is a process that answers lines (`Served`), or a command that is
run once a turn (`Whole`). Every round gives each of them a turn, beginning with
another one each time, so that what else a machine does falls on all of them;
what counts are medians and ratios within a round. Beside the seconds of a turn
a record has what the contestant took of the machine, what others took
meanwhile, and the most memory that its processes had.

Whoever fails takes part no more, and the table says so. A record is what
tables are made of (report.py):

    {'unit': what is counted, 'before': share of the machine that was busy
     before, 'rows': [{'name', 'group', 'seconds': [...], 'amounts': [...],
     'cores', 'others', 'bytes', what the contestant said of itself, perhaps
     'scores' of its turns, perhaps 'failed'}]}
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from benchmarks.kept import ROOT, Used

_LISTENED = 1.0  # seconds


# ----------------------------------------------------------------- contestants


class Served:
    """A process that answers each line of JSON with another one.

    Attributes:
        name, group: in tables; ratios are of one group.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        group: str = '',
        ours: bool = True,
    ):
        """Starts it; it need not be ready when this returns.

        Args:
            name: in tables.
            command: whose first line on standard output says it is ready.
            group: of those that are compared.
            ours: whether it finds this project.

        """
        self.name, self.group = name, group
        self._facts: dict[str, Any] | None = None
        self._errors = tempfile.TemporaryFile()
        self._process = None
        if not pathlib.Path(command[0]).exists():  # a peer's environment
            self._errors.write(f'no {command[0]}: make bench-peers'.encode())
            return
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT if ours else None,
            env={**os.environ, 'PYTHONPATH': str(ROOT) if ours else ''},
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What it says of itself; waits until it is ready.

        Raises:
            RuntimeError: it ended instead; the message has its last words.
        """
        if self._facts is None:
            self._facts = self._answer()
        return self._facts

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer; RuntimeError: it ended."""
        _ = self.facts
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(json.dumps(asked) + '\n')
            self._process.stdin.flush()
        return self._answer()

    def used(self) -> Used:
        """By now."""
        process = psutil.Process(self._process.pid)
        found = [process, *process.children(recursive=True)]
        return Used(
            sum(sum(each.cpu_times()) for each in found),
            sum(_most_memory(each.pid) for each in found),
        )

    def _answer(self) -> dict[str, Any]:
        if self._process and (line := self._process.stdout.readline()):
            return json.loads(line)
        self._errors.seek(0)
        words = self._errors.read().decode(errors='replace').strip()
        raise RuntimeError(f'{self.name} ended: {words[-1000:]}')

    def close(self) -> None:
        """Ends the process."""
        if self._process:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
        self._errors.close()


class Whole:
    """A command that is run anew each turn.

    Attributes:
        name, group: as of `Served`.
        facts: none.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., tuple[dict[str, Any], Used]],
        group: str = '',
    ):
        """Args: its name; what runs it: the answer and what it used; group."""
        self.name, self.group, self.facts = name, group, {}
        self._run, self._used = run, Used(0.0, 0)

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer."""
        answer, used = self._run(**asked)
        self._used = Used(
            self._used.seconds + used.seconds, max(self._used.bytes, used.bytes)
        )
        return answer

    def used(self) -> Used:
        """By all runs so far; memory of the largest."""
        return self._used

    def close(self) -> None:
        """Nothing is left to end."""


def _most_memory(pid: int) -> int:
    """Reads the bytes that a process had at most."""
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1]) * 1024
    return 0


def module(name: str, *given: str) -> list[str]:
    """The command that runs a module of this project."""
    return [sys.executable, '-m', name, *given]


# ---------------------------------------------------------------------- rounds


def _busy() -> float:
    """Seconds that all cores have worked since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, 'iowait', 0.0)
    guests = getattr(times, 'guest', 0.0) + getattr(times, 'guest_nice', 0.0)
    return sum(times) - idle - guests  # guests are among the users' already


def listen(seconds: float = _LISTENED) -> float:
    """The share of the machine that is busy while this process waits."""
    before, began = _busy(), time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - began
    # Counters of the kernel are coarser than its clock.
    return max(0.0, (_busy() - before) / passed / os.cpu_count())


def compete(
    contestants: Sequence[Served | Whole],
    unit: str,
    asked: Iterable[Mapping[str, Any]],
    warm_up: int = 0,
    answered: Callable[[Mapping[str, Any]], None] = lambda answers: None,
) -> dict[str, Any]:
    """Lets everybody run in turn.

    Args:
        contestants: of different names in a group.
        unit: what an answer's `amount` counts.
        asked: what all are asked, round by round.
        warm_up: rounds that do not count.
        answered: is called with the answers of a round.

    Returns:
        A record; see above.
    """
    rows, sums, running = [], [], []
    for who, each in enumerate(contestants):
        rows.append({'name': each.name, 'group': each.group})
        rows[who] |= {'seconds': [], 'amounts': []}
        sums.append(np.zeros(3))
        with _failing(rows[who]):
            rows[who] |= each.facts  # waits until it is ready
            running.append(who)
    before = listen()
    for number, given in enumerate(asked, -warm_up):
        answers = {}
        start = number % len(contestants)
        for who in sorted(running, key=lambda n: (n < start, n)):
            row, each = rows[who], contestants[who]
            with _failing(row):
                answer, took = _turn(each, given)
                sums[who] += took
                answers[each.name] = answer
                if number >= 0:
                    row['seconds'].append(answer['seconds'])
                    row['amounts'].append(answer['amount'])
                    if 'score' in answer:
                        row.setdefault('scores', []).append(answer['score'])
                row['bytes'] = each.used().bytes
            if 'failed' in row:
                running.remove(who)
        answered(answers)
        if number == -1:
            sums = [np.zeros(3) for _ in contestants]
    for row, (passed, busy, own) in zip(rows, sums, strict=True):
        whole = max(passed, 1e-9)
        row['cores'] = float(own / whole)
        row['others'] = float(
            np.clip((busy - own) / whole / os.cpu_count(), 0, 1)
        )
    return {'unit': unit, 'before': before, 'rows': rows}


def ways_of(
    name: str,
    ways: Iterable[str],
    typed: Sequence[str],
    unit: str,
    rounds: int,
) -> dict[str, Any]:
    """Makes a record of what a benchmark serves, a process for each way.

    Args:
        name: of its module.
        ways: that its --serve takes; a mapping has their names in tables.
        typed: its other flags.
        unit, rounds: as of `compete`.
    """
    names = ways if isinstance(ways, Mapping) else {w: w for w in ways}
    started = [
        Served(shown, module(name, *typed, f'--serve={way}'))
        for way, shown in names.items()
    ]
    with ended(started):
        return compete(started, unit, [{}] * rounds)


@contextlib.contextmanager
def _failing(row: dict[str, Any]) -> Iterator[None]:
    """A contestant that fails takes part no more, and its row says why."""
    try:
        yield
    except RuntimeError as error:
        row |= {'failed': str(error), 'seconds': [], 'amounts': []}


def _turn(
    contestant: Served | Whole, given: Mapping[str, Any]
) -> tuple[dict[str, Any], np.ndarray]:
    """Gives a turn: the answer, and three numbers of seconds.

    These passed, all cores worked, and the contestant worked itself.
    """
    own, busy = contestant.used().seconds, _busy()
    began = time.perf_counter()
    answer = contestant.ask(given)
    passed = time.perf_counter() - began
    busy = _busy() - busy
    return answer, np.array([passed, busy, contestant.used().seconds - own])


@contextlib.contextmanager
def ended(contestants: Sequence[Served | Whole]) -> Iterator[None]:
    """Ends them, whatever happens."""
    try:
        yield
    finally:
        for each in contestants:
            each.close()


# ------------------------------------------------------- inside such a process


def serve(
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]],
) -> None:
    """Answers every line of standard input until there are no more.

    Args:
        make: gives what makes a turn, which may return more for the answer,
            its amount if that is not always the same, and says of it: its
            `amount`, and what a row has besides.
    """
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)  # whatever a library prints goes to the errors

    def write(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + '\n')
        answers.flush()

    turn, said = make()
    amount = said.pop('amount', 1)
    write(said)
    for line in sys.stdin:
        began = time.perf_counter()
        more = turn(**json.loads(line)) or {}
        seconds = time.perf_counter() - began
        write({'seconds': seconds, 'amount': amount, **more})
