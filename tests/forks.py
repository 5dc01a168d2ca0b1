"""Tests in a fork of the worker, which is replaced when it has grown.

What TensorFlow, XLA and the allocator keep of a graph is more than Python can
free: a worker that runs all modules itself ends with ten gigabytes. Here the
worker imports and collects, which takes longest and holds no graph, and a fork
of it runs modules of tests until it is LARGE. The next one begins as small as
the worker is.

The worker hands a fork one item at a time, and passes its reports on. Only
Linux: elsewhere libraries do not survive a fork. Threads do not either, so the
worker itself may run no operation of TensorFlow: a fork would wait for ever.
"""

import atexit
import gc
import multiprocessing
import os
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pytest

LARGE = 1.6 * 2**30  # bytes of a process after a module


class Fork(NamedTuple):
    """A process that runs tests, and the pipe to it."""

    pid: int
    pipe: Connection


class Forks:
    """Plugin of a process that has collected all tests."""

    def __init__(self, config: pytest.Config):
        """Remembers the configuration; no fork runs yet."""
        self.config, self.fork, self.index = config, None, {}
        self.culprit = ''

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remembers the first module that ran an operation at import."""
        if not self.culprit and tensorflow_runs():
            module = report.nodeid.split('::')[0]
            self.culprit = module or 'tests/conftest.py'

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Numbers the items, which are the same in every fork.

        They stay to the end, so no fork looks for garbage among them. It looks
        for none at all: that took a sixth of the time of some modules, and what
        is left goes with the fork.
        """
        if self.culprit:
            session.shouldstop = (
                f'{self.culprit} runs an operation of TensorFlow when it is '
                'imported, after which forks hang: move it into a test, '
                'setUpClass or a function under functools.cache'
            )
            return True
        gc.collect()
        gc.freeze()
        gc.disable()
        self.index = {item: n for n, item in enumerate(session.items)}
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool:
        """Has a test run in the fork; returns that it ran."""
        if self.fork is None:
            self.fork = self.begin()
        self.fork.pipe.send((self.index[item], self.index.get(nextitem)))
        hook = item.ihook
        try:
            while (message := self.fork.pipe.recv())[0] != 'done':
                kind, data = message
                if kind == 'report':
                    data = hook.pytest_report_from_serializable(
                        config=self.config, data=data
                    )
                    hook.pytest_runtest_logreport(report=data)
                elif kind == 'warning':
                    hook.pytest_warning_recorded.call_historic(kwargs=data)
                else:
                    getattr(hook, kind)(**data)
        except EOFError:
            died = f'the process of this test ended: {self.end()}'
            report = pytest.TestReport(
                item.nodeid, item.location, {}, 'failed', died, 'call'
            )
            hook.pytest_runtest_logreport(report=report)
            return True
        if message[1]:
            self.end()
        return True

    def pytest_sessionfinish(self) -> None:
        if self.fork:
            self.end()

    def begin(self) -> Fork:
        """Forks; the fork never returns."""
        ours, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            theirs.close()
            return Fork(pid, ours)
        ours.close()
        status = 1
        try:
            self.serve(theirs)
            status = 0
        finally:
            atexit._run_exitfuncs()
            os._exit(status)

    def end(self) -> int:
        """Waits for the fork to end; returns its exit status."""
        self.fork.pipe.close()
        _, status = os.waitpid(self.fork.pid, 0)
        self.fork = None
        return os.waitstatus_to_exitcode(status)

    def serve(self, pipe: Connection) -> None:
        """Runs items of a worker, until the pipe is closed."""
        manager = self.config.pluginmanager
        manager.unregister(self)
        # Both would speak to the controller.
        for plugin in manager.get_plugins():
            if type(plugin).__name__ == 'WorkerInteractor':
                manager.unregister(plugin)
        teller = Teller(self.config, pipe)
        manager.register(teller)  # which hears of all warnings so far
        teller.ready = True
        items = list(self.index)
        while True:
            try:
                number, following = pipe.recv()
            except EOFError:
                return
            item = items[number]
            nextitem = None if following is None else items[following]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            ended = nextitem is None or nextitem.path != item.path
            pipe.send(('done', ended and resident() > LARGE))


class Teller:
    """Plugin of a fork: what happens there is told to the worker."""

    def __init__(self, config: pytest.Config, pipe: Connection):
        self.config, self.pipe, self.ready = config, pipe, False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sends the report of a test, or of a part of one."""
        data = self.config.hook.pytest_report_to_serializable(
            config=self.config, report=report
        )
        self.pipe.send(('report', data))

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        data = {'nodeid': nodeid, 'location': location}
        self.pipe.send(('pytest_runtest_logstart', data))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        data = {'nodeid': nodeid, 'location': location}
        self.pipe.send(('pytest_runtest_logfinish', data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Sends a warning, without the object that gave rise to it."""
        x = warning_message
        if self.ready:
            self.pipe.send(('warning', {
                'warning_message': warnings.WarningMessage(
                    x.message, x.category, x.filename, x.lineno
                ),
                'when': when, 'nodeid': nodeid, 'location': location,
            }))  # fmt: skip


def tensorflow_runs() -> bool:
    """Returns whether this process has begun to run operations."""
    context = sys.modules.get('tensorflow.python.eager.context')
    return context is not None and context.context()._initialized


def resident(pid: int | str = 'self') -> int:
    """Returns the bytes of memory of a process."""
    with open(f'/proc/{pid}/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
