"""A machine is taken back: SIGTERM, by which schedulers say so."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

STATUS = 42  # as TensorFlow's preemption handler has it: start it again


class Preempted(BaseException):
    """A run ended that goes on by the same command; the message says why.

    No `Exception`: it comes at any moment, also inside of what catches those.
    """


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Inside, SIGTERM raises `Preempted`: where there is nothing to save."""
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
def asked_to_stop(grace: float | None) -> Iterator[threading.Event]:
    """Inside, SIGTERM sets an event, and ends the process if nothing else does.

    Args:
        grace: seconds until then; None: signals are left alone.
    """
    asked = threading.Event()
    in_main = threading.current_thread() is threading.main_thread()
    if grace is None or not in_main:  # signals are the main thread's
        yield asked
        return
    # A handler waits until TensorFlow's loop returns to Python; what it wakes
    # does not.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    done = threading.Event()

    def wait() -> None:
        while (told := os.read(reading, 1)) not in (b'', b'\0'):
            if told[0] == signal.SIGTERM:
                asked.set()
                if not done.wait(grace):
                    os._exit(STATUS)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGTERM, before)
        done.set()
        os.write(writing, b'\0')
        thread.join()
        os.close(reading)
        os.close(writing)
