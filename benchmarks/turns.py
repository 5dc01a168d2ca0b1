"""Contestants that run in turns, as processes, on a watched machine.

A contestant is a process that answers lines (`Served`), or a command that is
run once a turn (`Whole`). Every round gives each contestant a turn; each round
begins with another one, so that other work on the machine disturbs all alike.
Medians and ratios within a round count. A record also has the cores that a
contestant used, the share that others took meanwhile, and the peak of memory.

A contestant that fails is left out from then on, and the table says so. A
record (report.py makes tables of it) is

    {'unit': what is counted, 'before': share of the machine that was busy
     before, 'rows': [{'name', 'group', 'seconds': [...], 'amounts': [...],
     'cores', 'others', 'bytes', facts of the contestant, perhaps
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

from benchmarks.kept import ENVIRON, ROOT, Used

_LISTENED = 1.0  # seconds


# ----------------------------------------------------------------- contestants


class Served:
    """A process that answers each line of JSON with another line.

    Attributes:
        name, group: name and group in tables; ratios are within a group.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        group: str = '',
        ours: bool = True,
    ):
        """Starts a process, which can import the project if `ours`."""
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
            env={**ENVIRON, 'PYTHONPATH': str(ROOT) if ours else ''},
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the process prints when ready.

        Raises:
            RuntimeError: it ended; the message has the end of its output.
        """
        if self._facts is None:
            self._facts = self._answer()
        return self._facts

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request, and returns the answer; RuntimeError as `facts`."""
        _ = self.facts
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(json.dumps(request) + '\n')
            self._process.stdin.flush()
        return self._answer()

    def used(self) -> Used:
        """Returns the resources used so far."""
        process = psutil.Process(self._process.pid)
        processes = [process, *process.children(recursive=True)]
        return Used(
            sum(sum(each.cpu_times()) for each in processes),
            sum(_most_memory(each.pid) for each in processes),
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
    """A command that is run once a turn.

    Attributes:
        name, group: name and group in tables, see `Served`.
        facts: empty.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., tuple[dict[str, Any], Used]],
        group: str = '',
    ):
        """Stores `run`: (fields of a request) -> answer, used resources."""
        self.name, self.group, self.facts = name, group, {}
        self._run, self._used = run, Used(0.0, 0)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the command; returns the answer."""
        answer, used = self._run(**request)
        self._used = Used(
            self._used.seconds + used.seconds, max(self._used.bytes, used.bytes)
        )
        return answer

    def used(self) -> Used:
        """Returns the resources of all runs so far; memory of the largest."""
        return self._used

    def close(self) -> None:
        """Leaves everything, since every run has ended."""


def _most_memory(pid: int) -> int:
    """Reads the peak of a process's memory, in bytes."""
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1]) * 1024
    return 0


def module(name: str, *typed: str) -> list[str]:
    """Returns the command line that runs a module of the project."""
    return [sys.executable, '-m', name, *typed]


# ---------------------------------------------------------------------- rounds


def _busy() -> float:
    """Returns the busy seconds of all cores since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, 'iowait', 0.0)
    guests = getattr(times, 'guest', 0.0) + getattr(times, 'guest_nice', 0.0)
    return sum(times) - idle - guests  # guests are among the users' already


def listen(seconds: float = _LISTENED) -> float:
    """Measures the busy share of the machine while the process waits."""
    before, began = _busy(), time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - began
    # The kernel's counters are coarser than the clock.
    return max(0.0, (_busy() - before) / passed / os.cpu_count())


def compete(
    contestants: Sequence[Served | Whole],
    unit: str,
    requests: Iterable[Mapping[str, Any]],
    warm_up: int = 0,
    answered: Callable[[Mapping[str, Any]], None] = lambda answers: None,
) -> dict[str, Any]:
    """Runs contestants in turn.

    Args:
        contestants: contestants, whose names differ within a group.
        unit: unit of the amounts of answers.
        requests: requests to all contestants, one a round.
        warm_up: rounds that do not count.
        answered: called with the answers of a round.

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
    for number, request in enumerate(requests, -warm_up):
        answers = {}
        start = number % len(contestants)
        for who in sorted(running, key=lambda n: (n < start, n)):
            row, each = rows[who], contestants[who]
            with _failing(row):
                answer, took = _turn(each, request)
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
    for row, (passed, busy, used) in zip(rows, sums, strict=True):
        whole = max(passed, 1e-9)
        row['cores'] = float(used / whole)
        row['others'] = float(
            np.clip((busy - used) / whole / os.cpu_count(), 0, 1)
        )
    return {'unit': unit, 'before': before, 'rows': rows}


def ways_of(
    name: str,
    ways: Iterable[str],
    typed: Sequence[str],
    unit: str,
    rounds: int,
) -> dict[str, Any]:
    """Runs the contestants that a benchmark serves; returns a record.

    Args:
        name: name of the benchmark's module.
        ways: values of --serve, or a mapping of values to names in tables.
        typed: other flags.
        unit: unit of the amounts, see `compete`.
        rounds: number of turns.
    """
    names = ways if isinstance(ways, Mapping) else {w: w for w in ways}
    contestants = [
        Served(name_in_tables, module(name, *typed, f'--serve={way}'))
        for way, name_in_tables in names.items()
    ]
    with closing(contestants):
        return compete(contestants, unit, [{}] * rounds)


@contextlib.contextmanager
def _failing(row: dict[str, Any]) -> Iterator[None]:
    """Records the failure of a contestant."""
    try:
        yield
    except RuntimeError as error:
        row |= {'failed': str(error), 'seconds': [], 'amounts': []}


def _turn(
    contestant: Served | Whole, request: Mapping[str, Any]
) -> tuple[dict[str, Any], np.ndarray]:
    """Gives a contestant a turn.

    Returns:
        The answer; and seconds that passed, that all cores were busy, and that
        the contestant used.
    """
    used, busy = contestant.used().seconds, _busy()
    began = time.perf_counter()
    answer = contestant.ask(request)
    passed = time.perf_counter() - began
    busy = _busy() - busy
    return answer, np.array([passed, busy, contestant.used().seconds - used])


@contextlib.contextmanager
def closing(contestants: Sequence[Served | Whole]) -> Iterator[None]:
    """Closes contestants at the end, also after an error."""
    try:
        yield
    finally:
        for each in contestants:
            each.close()


# ------------------------------------------------------- inside such a process


def serve(
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]],
) -> None:
    """Answers every line of standard input.

    Args:
        make: returns a function that makes a turn, and facts. The `amount` of a
            turn is one of the facts, or of the further entries of an answer
            that the function may return.
    """
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)  # output of libraries goes to standard error

    def write(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + '\n')
        answers.flush()

    turn, facts = make()
    amount = facts.pop('amount', 1)
    write(facts)
    for line in sys.stdin:
        began = time.perf_counter()
        more = turn(**json.loads(line)) or {}
        seconds = time.perf_counter() - began
        write({'seconds': seconds, 'amount': amount, **more})
