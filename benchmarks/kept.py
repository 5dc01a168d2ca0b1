"""Runs of commands, whose results stay in folders of one commit."""

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
from infoword_tf.critics import CRITICS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / '.venv-peers' / 'bin' / 'python'
THREADS = 2  # of peers, whose libraries ask for a number
# Of processes that are measured: `commands.start` sets variables, and a server
# or a Python program has none of them.
ENVIRON = dict(os.environ)


class Used(NamedTuple):
    """Resources that a process and all child processes have used.

    Attributes:
        seconds: processor time.
        bytes: peak of memory, of the largest process or of all.
    """

    seconds: float
    bytes: int


def call(log: pathlib.Path, *command: str) -> Used:
    """Runs a process that can import the project, with output to `log`.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, 'w') as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**ENVIRON, 'PYTHONPATH': str(ROOT)},
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


def run(module: str, log: pathlib.Path, *typed: str) -> Used:
    """Runs a command of the project with flags, see `call`."""
    return call(log, sys.executable, '-m', module, *typed)


def evaluate(
    folder: pathlib.Path,
    task: str,
    *typed: str,
    init: str | pathlib.Path | None = None,
) -> dict[str, Any]:
    """Runs a command of tasks/ on a workdir, unless finished before.

    `folder` is its --workdir; the workdir is `init`, or the folder's parent.

    Returns:
        Its metrics.json.
    """
    if not (folder / 'metrics.json').exists():
        run(
            f'tasks.{task}', folder.parent / f'{folder.name}.log',
            f'--init={init or folder.parent}', *typed, f'--workdir={folder}',
        )  # fmt: skip
    return read_json(folder / 'metrics.json')


def search(
    folder: pathlib.Path,
    critic: str,
    *typed: str,
    init: str | pathlib.Path | None = None,
) -> dict[str, Any]:
    """Runs tasks.retrieval on a workdir of a critic, see `evaluate`.

    A critic of pairs orders the best hundred of BM25.
    """
    first = ['--first=bm25'] if CRITICS[critic].of_pairs else []
    return evaluate(
        folder, 'retrieval', *typed, *first, '--nobaselines',
        '--precision=auto', init=init,
    )  # fmt: skip


def check_data(data: Sequence[str | pathlib.Path]) -> None:
    """Checks that data exist, before anything is trained.

    Raises:
        UsageError: a file is missing.
    """
    for path in data:
        if not pathlib.Path(path).exists():
            raise errors.UsageError(
                'benchmark_lacks_file',
                f'{path}: this table reads it and it is not here; put it, or '
                'a link, into the folder where you run this',
            )


def side_by_side(
    function: Callable[[Any], Any], items: Sequence[Any], lanes: int
) -> list[Any]:
    """Maps a function over items, several at a time; results in order.

    Args:
        function: runs on the processors of one lane.
        items: one after the other as lanes are free.
        lanes: share the processors; at most one for each processor.
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
    """Reads a JSON object."""
    return json.loads(path.read_text())


def records_of(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Reads metrics.jsonl."""
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def commit() -> str:
    """Returns the commit of the checkout, with `+` if files were changed."""
    done = subprocess.run(
        ['git', 'describe', '--always', '--dirty=+', '--exclude=*'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or 'unknown'


def write_table(
    folder: pathlib.Path, lines: Sequence[str], origin: str
) -> None:
    """Writes a table and the commit to FOLDER/table.md, and prints both.

    `origin` names seeds, and what else the figures depend on.
    """
    text = '\n'.join([*lines, '', f'Commit {commit()}, {origin}.', ''])
    with files.written(folder / 'table.md') as partial:
        partial.write_text(text)
    print(text)


def bind_commit(folder: pathlib.Path) -> None:
    """Binds a folder, where finished runs stay, to the current commit.

    Raises:
        UsageError: it is bound to another commit.
    """
    path, now = folder / 'commit', commit()
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with files.written(path) as partial:
            partial.write_text(now)
    elif (first := path.read_text()) != now:
        raise errors.UsageError(
            'begun_at_other_commit',
            f'--workdir={folder} was begun at commit {first}, and this is '
            f'{now}; take another folder, or go back to that commit',
        )
