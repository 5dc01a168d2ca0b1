r"""A command as several workers of this machine, for --strategy=multiworker.

    python -m tests.workers --workers=3 -- tests.training.every_row

Each worker is a process with a TF_CONFIG of its own and its share of the cores,
and its lines begin with its number. The exit status is that of the first worker
that failed, the others are stopped then.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from absl import app, flags

from infoword_tf import files
from infoword_tf.errors import Preempted

WORKERS = flags.DEFINE_integer('workers', 2, 'Processes on this machine.')
PATIENCE = 40.0  # seconds that the others have after one has failed


def start(words: Sequence[str], count: int) -> list[subprocess.Popen]:
    """Starts a module with flags as `count` workers, on free ports."""
    sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(count)]
    hosts = ['{}:{}'.format(*one.getsockname()) for one in sockets]
    for one in sockets:
        one.close()
    threads = str(max(1, files.cpus() // count))
    return [
        subprocess.Popen(
            [sys.executable, '-u', '-m', *words],
            env={
                'TF_NUM_INTRAOP_THREADS': threads,
                **os.environ,
                'TF_CONFIG': json.dumps({
                    'cluster': {'worker': hosts},
                    'task': {'type': 'worker', 'index': index},
                }),
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors='replace',
        )
        for index in range(count)
    ]  # fmt: skip


def _show(worker: subprocess.Popen, number: int) -> None:
    for line in worker.stdout:
        print(f'[{number}] {line}', end='', flush=True)


def wait(workers: Sequence[subprocess.Popen]) -> int:
    """Waits for all; returns the status of the first that failed, or 0."""
    failed, deadline = 0, float('inf')
    while any(worker.poll() is None for worker in workers):
        statuses = [worker.poll() for worker in workers]
        if not failed and any(statuses):
            # Of several at once whoever knows more than that another is gone.
            number, failed = min(
                ((n, x) for n, x in enumerate(statuses) if x),
                key=lambda ended: ended[1] == Preempted.status,
            )
            print(f'worker {number} ended with {failed}', flush=True)
            deadline = time.monotonic() + PATIENCE
            for worker in workers:
                worker.terminate()
        if time.monotonic() > deadline:
            for worker in workers:
                worker.kill()
        time.sleep(0.05)
    return failed or max(worker.returncode for worker in workers)


def main(argv: Sequence[str]) -> None:
    """Runs the command after `--`."""
    workers = start(argv[1:], WORKERS.value)
    for number, worker in enumerate(workers):
        print(f'worker {number}: process {worker.pid}', flush=True)
    shown = [
        threading.Thread(target=_show, args=(worker, number))
        for number, worker in enumerate(workers)
    ]
    for thread in shown:
        thread.start()
    status = wait(workers)
    for thread in shown:
        thread.join()
    sys.exit(Preempted.status if status < 0 else status)


if __name__ == '__main__':
    app.run(main)
