r"""Runs a command as several workers of one machine: --strategy=multiworker.

    python -m infoword_tf.workers --workers=2 -- infoword_tf.train \
        --strategy=multiworker --flagfile=tasks/flags/mlm_tiny.flags

A worker is a process with a TF_CONFIG of its own and its share of the cores; of
GPUs each would take all: one worker a machine is what those want.
Lines that it prints begin with its number. Workers wait for each other, so when
one fails the others are stopped. The exit status is 42 where the same command
goes on: a worker was stopped or killed.
"""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.preemption import STATUS, Preempted

HOST = '127.0.0.1'
PATIENCE = 40.0  # seconds that the others have after one has failed


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    workers: int = flag(2, 'Processes on this machine.', at_least=1)


def cluster(hosts: Sequence[str], index: int) -> str:
    """TF_CONFIG of a worker.

    Args:
        hosts: HOST:PORT of every worker, the same on all.
        index: which one this is; 0 writes the workdir.
    """
    task = {'type': 'worker', 'index': index}
    return json.dumps({'cluster': {'worker': list(hosts)}, 'task': task})


def _hosts(count: int) -> list[str]:
    """As many free ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [f'{HOST}:{one.getsockname()[1]}' for one in sockets]


def _show(stream: IO[str], number: int) -> None:
    """Passes on what a worker prints, until it ends, if anybody reads it."""
    for line in stream:
        with contextlib.suppress(OSError):
            print(f'[{number}] {line}', end='', flush=True)


def _ended(workers: Sequence[subprocess.Popen]) -> int:
    """Waits for all; the status of the first that failed, or 0."""
    failed, deadline = 0, float('inf')
    while True:
        statuses = [worker.poll() for worker in workers]
        if not failed and any(statuses):
            # Of several at once whoever knows more than that another is gone.
            number, failed = min(
                ((n, x) for n, x in enumerate(statuses) if x),
                key=lambda found: found[1] == STATUS,
            )
            how = f'signal {-failed}' if failed < 0 else f'status {failed}'
            print(f'worker {number} ended with {how}', flush=True)
            deadline = time.monotonic() + PATIENCE
            for worker in workers:
                worker.terminate()
        if None not in statuses:
            return failed
        if time.monotonic() > deadline:
            for worker in workers:
                worker.kill()
        time.sleep(0.05)


@commands.takes(Choices)
def run(words: list[str], given: Choices, chosen: dict) -> bool:
    """Starts the workers, and waits for them."""
    del chosen
    if not words:
        raise commands.UsageError(
            'name the command after --: infoword_tf.train and its flags'
        )
    hosts = _hosts(given.workers)
    threads = str(max(1, files.cpus() // given.workers))
    workers = [
        subprocess.Popen(
            [sys.executable, '-u', '-m', *words],
            env={
                'TF_NUM_INTRAOP_THREADS': threads,
                **os.environ,
                'TF_CONFIG': cluster(hosts, index),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
        )
        for index in range(given.workers)
    ]
    for number, worker in enumerate(workers):
        print(f'worker {number}: process {worker.pid}', flush=True)
    shown = [
        threading.Thread(target=_show, args=(worker.stdout, number))
        for number, worker in enumerate(workers)
    ]
    for thread in shown:
        thread.start()

    def stop(*_: object) -> None:
        for worker in workers:
            worker.terminate()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        status = _ended(workers)
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        for thread in shown:
            thread.join()
    if status in (STATUS, -signal.SIGTERM, -signal.SIGKILL):
        raise Preempted('before the end: the same command goes on')
    return not status


if __name__ == '__main__':
    commands.start(run, words='the command', stopped=commands.GOES_ON)
