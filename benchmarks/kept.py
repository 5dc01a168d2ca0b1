"""What tables are made of: commands that were run, in folders of one commit."""

import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors, files

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / '.venv-peers' / 'bin' / 'python'
THREADS = 2  # of peers, whose libraries ask for a number


class Used(NamedTuple):
    """What a process and its children have used.

    Attributes:
        seconds: of processors.
        bytes: of memory at most, of the largest of them or of all.
    """

    seconds: float
    bytes: int


def call(log: pathlib.Path, *command: str) -> Used:
    """Runs a process that finds this project; its output is in `log`.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, 'w') as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, 'PYTHONPATH': str(ROOT)},
        )
        try:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode:
        raise RuntimeError(f'{log}: {log.read_text()[-1000:]}')
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def run(module: str, log: pathlib.Path, *given: str) -> Used:
    """`call` of a command of this project."""
    return call(log, sys.executable, '-m', module, *given)


def asked(
    folder: pathlib.Path,
    task: str,
    *given: str,
    init: str | pathlib.Path | None = None,
) -> dict[str, Any]:
    """Asks a command of tasks/ about a workdir, once.

    Args:
        folder: where it says it.
        task: the command.
        given: its other flags.
        init: the workdir; None: the one that `folder` is in.

    Returns:
        What its metrics.json has.
    """
    if not (folder / 'metrics.json').exists():
        run(
            f'tasks.{task}', folder.parent / f'{folder.name}.log',
            f'--init={init or folder.parent}', *given, f'--workdir={folder}',
        )  # fmt: skip
    return read_json(folder / 'metrics.json')


def check_there(data: Sequence[str | pathlib.Path]) -> None:
    """Complains of data that are missing, before anything is trained.

    Raises:
        UsageError: they are.
    """
    for path in data:
        if not pathlib.Path(path).exists():
            raise errors.UsageError(
                f'{path}: this table reads it and it is not here; put it, or '
                'a link, into the folder where you run this'
            )


def side_by_side(
    function: Callable[[Any], Any], items: Sequence[Any], lanes: int
) -> list[Any]:
    """What a function gives of each item, several at a time, in order.

    Args:
        function: its processes run on the processors of a lane alone.
        items: one after the other as lanes are free.
        lanes: at most as many as there are processors, which they share.
    """
    if lanes == 1:
        return [function(item) for item in items]
    cores = sorted(os.sched_getaffinity(0))
    lanes = min(lanes, len(cores))
    free: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for lane in range(lanes):
        free.put(cores[lane::lanes])

    def work(item: Any) -> Any:
        share = free.get()
        os.sched_setaffinity(0, share)  # of this thread and its processes
        try:
            return function(item)
        finally:
            free.put(share)

    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(work, items))


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """One object."""
    return json.loads(path.read_text())


def records_of(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def commit() -> str:
    """Of the checkout, `+` after it where files were changed since."""
    done = subprocess.run(
        ['git', 'describe', '--always', '--dirty=+', '--exclude=*'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or 'unknown'


def begin(folder: pathlib.Path) -> None:
    """Holds a folder to one commit: what is finished there is kept.

    Raises:
        UsageError: the table was begun at another.
    """
    path, now = folder / 'commit', commit()
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with files.written(path) as partial:
            partial.write_text(now)
    elif (begun := path.read_text()) != now:
        raise errors.UsageError(
            f'--workdir={folder} was begun at commit {begun}, and this is '
            f'{now}; take another folder, or go back to that commit'
        )
