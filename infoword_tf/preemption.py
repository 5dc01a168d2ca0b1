"""Preemption: SIGTERM, which schedulers send before they take a machine."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

STATUS = 42  # that of TensorFlow's preemption handler: start the job again
_WITHOUT = (
    'stopped by SIGTERM, {:g} s later (--grace_seconds) and without saving: '
    'the same command goes on from the last checkpoint\n'
)


class Preempted(BaseException):
    """End of a run that the same command continues; the message says why.

    No `Exception`, so that code which catches all exceptions lets it pass.
    """


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Raises `Preempted` on SIGTERM, within a context with nothing to save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise Preempted('by SIGTERM: the same command goes on')

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
                    os._exit(STATUS)

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
