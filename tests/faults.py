"""Faults, injected into real runs: what happens, and whether it should.

    python -m tests.faults [--only=kill,full] [--output=TABLE.md]

Each fault befalls a run of the command, mostly in a process that is forked for
it; then the same command goes on, and what it leaves is compared, bit for bit,
with what an undisturbed run has left. Disks that are full are tmpfs, mounted
where nobody else sees them (`unshare`).
"""

import contextlib
import ctypes
import functools
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import infoword_tf
from infoword_tf import checkpoint, commands, errors, files
from infoword_tf.config import FILE, WEIGHTS
from infoword_tf.data import corpora, source
from infoword_tf.data import store as stores
from infoword_tf.training import loop, record
from infoword_tf.training import run as training
from tests import places, quick, runs
from tests.runs import python

INSIDE = 'INFOWORD_FAULTS_INSIDE'  # set where tmpfs may be mounted
# Steps of `runs.SMALL`: logged 1, evaluated 3 and 6, saved 2, 4 and 6.
FLAGS = '--objectives=bert_nce', '--grace_seconds=600'
SAVED = 'checkpoints/step-{:09d}.safetensors'
OLDER = pathlib.Path(__file__).parent / 'older'
Act = Callable[..., None]


class NotTried(Exception):
    """Fault that this machine cannot try; the message says why."""


class Ended(NamedTuple):
    """End of a process: status, negative of a signal, and output."""

    status: int
    output: str


# ------------------------------------------------------------------------- runs


def spawn(call: Callable[[], Any], log: pathlib.Path) -> int:
    """Forks a process that calls a function; returns its number.

    TensorFlow is imported already, and nothing of it may have run: then a
    fork is a process as good as any, seconds earlier.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        call()
        status = 0
    except SystemExit as left:
        status = left.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def waited(child: int, log: pathlib.Path) -> Ended:
    """Waits for the end of a process that `spawn` started."""
    _, code = os.waitpid(child, 0)
    output = log.read_text(errors='replace') if log.exists() else ''
    return Ended(os.waitstatus_to_exitcode(code), output)


def forked(call: Callable[[], Any], log: pathlib.Path) -> Ended:
    return waited(spawn(call, log), log)


def here(call: Callable[[], Any], log: pathlib.Path) -> Ended:
    """Calls a function in the running process, for faults that do not kill."""
    del log
    output, status = io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            call()
        except SystemExit as left:
            status = left.code or 0
    return Ended(status, output.getvalue())


class Bench:
    """Folder in which runs are disturbed.

    Attributes:
        folder: of this fault, empty at first.
        way: how the command is called, `forked` or `here`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        way: Callable[[Callable[[], Any], pathlib.Path], Ended] = forked,
    ):
        self.folder, self.way = folder, way

    def call(
        self,
        name: str,
        *flags: str,
        hook: contextlib.AbstractContextManager | None = None,
        cache: pathlib.Path | None = None,
    ) -> Callable[[], None]:
        """Returns a call of the command, with a fault.

        Args:
            name: of the workdir.
            flags: besides FLAGS.
            hook: entered around it.
            cache: its own; None: that of all.
        """
        arguments = runs.arguments(self.folder / name, *FLAGS, *flags)

        def called() -> None:
            with contextlib.ExitStack() as stack:
                if cache is not None:
                    changed = {places.CACHE: str(cache)}
                    stack.enter_context(mock.patch.dict(os.environ, changed))
                stack.enter_context(hook or contextlib.nullcontext())
                done = functools.partial(quick.run, *arguments)
                commands.guard(done, [''])

        return called

    def run(self, name: str, *flags: str, **more: Any) -> Ended:
        """Runs the command; arguments of `call`."""
        return self.way(self.call(name, *flags, **more), self.log(name))

    def log(self, name: str) -> pathlib.Path:
        return self.folder / f'{name}.log'

    def whole(self, *flags: str) -> pathlib.Path:
        """Returns the workdir of an undisturbed run, made only once."""
        parent = pathlib.Path(runs.TEXT['heldout']).parent
        chosen = '_'.join(x for x in flags if 'corpus' not in x)
        folder = parent / f'whole{chosen}'
        if not folder.exists():
            ended = Bench(parent, self.way).run(folder.name, *flags)
            assert ended.status == 0, ended.output
        return folder

    def goes_on(self, name: str, *flags: str, **more: Any) -> str:
        """Resumes a run, and compares it with an undisturbed one.

        Returns:
            From where it went on, in words.
        """
        ended = self.run(name, *flags, **more)
        assert ended.status == 0, ended.output
        same(self.whole(*flags), self.folder / name)
        step = 0
        for line in ended.output.splitlines():
            if line.startswith('resuming from'):
                step = int(line.rsplit('(step ', 1)[1].rstrip(')'))
        return f'went on from step {step}, the same bytes'


def same(whole: pathlib.Path, other: pathlib.Path) -> None:
    """Asserts that two runs left the same weights, moments and measures."""
    last = checkpoint.last_step(whole)
    for name in (WEIGHTS, SAVED.format(last), 'vocab.txt'):
        a, b = ((run / name).read_bytes() for run in (whole, other))
        assert a == b, f'{name} differs'
    assert runs.untimed(whole) == runs.untimed(other), 'metrics.jsonl differs'
    left = [path.name for path in (*other.glob('.*'), *other.glob('*/.*'))]
    assert left == ['.lock'], f'{left} are left'


def one_sentence(ended: Ended, *words: str) -> str:
    """Returns the complaint of a command, and checks words in it."""
    last = ended.output.strip().splitlines()[-1:]
    assert ended.status == 1, f'status {ended.status}: {ended.output}'
    assert last and last[0].startswith('error: '), ended.output
    assert 'Traceback' not in ended.output, ended.output
    for word in words:
        assert word in last[0], f'{word!r} is not in {last[0]}'
    return last[0]


def at(
    owner: Any,
    name: str,
    act: Act,
    when: Callable[..., bool] = lambda *_: True,
    number: int = 1,
) -> contextlib.AbstractContextManager:
    """Patches a function so that a fault happens before one of the calls.

    Args:
        owner, name: of the function.
        act: called with its arguments.
        when: which calls are counted.
        number: which of these it is.
    """
    real, calls = getattr(owner, name), 0

    def called(*args: Any, **more: Any) -> Any:
        nonlocal calls
        if when(*args):
            calls += 1
            if calls == number:
                act(*args)
        return real(*args, **more)

    return mock.patch.object(owner, name, called)


def _is(name: str) -> Callable[..., bool]:
    """Returns a condition: a file is renamed to this name."""
    return lambda source, target, *_: name in str(target)


# The phases of a run: what it does just then.
PHASES: dict[str, Callable[[Act], contextlib.AbstractContextManager]] = {
    'text is tokenized': lambda act: at(stores, '_append', act, number=2),
    'the model is built': lambda act: at(training, 'start_from_init', act),
    'a batch is made': lambda act: at(
        source.WindowSource, 'batch', act, lambda _, step: step == 5
    ),
    'held-out text is measured': lambda act: at(loop.Heldout, 'evaluate', act),
    'a checkpoint is written': lambda act: at(
        os, 'replace', act, _is(SAVED.format(4)[12:])
    ),
    'it has its name, the encoder is old': lambda act: at(
        checkpoint, 'write_weights', act, number=2
    ),
    'the encoder is written': lambda act: at(
        os, 'replace', act, _is(WEIGHTS), number=2
    ),
    'the run ends': lambda act: at(
        files, 'write_json', act, lambda path, _: path.name == 'metrics.json'
    ),
}


# ----------------------------------------------------------------------- faults


def _kill(*args: Any) -> None:
    """Kills the process by -9; truncates a file that is being renamed."""
    first = args[0]
    if isinstance(first, pathlib.Path) and first.name.startswith('.'):
        if first.is_file():
            os.truncate(first, first.stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)


def _term(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def end(bench: Bench, phase: str, act: Act) -> str:
    """Injects kill -9 or SIGTERM in a phase."""
    cache = bench.folder / 'cache' if 'tokenized' in phase else None
    ended = bench.run('run', hook=PHASES[phase](act), cache=cache)
    status = -signal.SIGKILL if act is _kill else errors.Preempted.status
    assert ended.status == status, ended
    if act is _term:
        assert ended.output.rstrip().splitlines()[-1].startswith(
            'stopped by SIGTERM: the same command goes on'
        ), ended.output
    result = bench.goes_on('run', cache=cache)
    if cache:
        left = sorted(x.name for x in (cache / 'stores').glob('*/*'))
        assert left == ['heldout', 'train'], left
    return result if act is _kill else f'status 42; {result}'


def term_while_importing(bench: Bench) -> str:
    """Injects SIGTERM while a command imports TensorFlow."""
    code = (
        'import os, runpy, sys\n'
        'class Now:\n'
        '    def find_spec(name, *rest):\n'
        '        if name == "tensorflow":\n'
        '            os.kill(os.getpid(), 15)\n'
        'sys.meta_path.insert(0, Now)\n'
        'runpy.run_module("infoword_tf.train", run_name="__main__")\n'
    )
    arguments = runs.arguments(bench.folder / 'run', *FLAGS)
    done = python('-c', code, *arguments)
    assert done.returncode == errors.Preempted.status, done.stderr
    message = 'stopped by SIGTERM: the same command goes on\n'
    assert done.stderr == message, done.stderr
    return 'status 42'


def kill_of_export(bench: Bench) -> str:
    """Injects kill -9 in an export that is almost complete."""
    init, output = bench.whole(), bench.folder / 'export'

    def export(to: pathlib.Path) -> None:
        from export import bundle

        bundle.write(init, to)

    whole = functools.partial(export, bench.folder / 'whole')
    assert bench.way(whole, bench.log('whole')).status == 0
    call = functools.partial(export, output)
    with at(os, 'rename', _kill):
        ended = bench.way(call, bench.log('export'))
    assert ended.status == -signal.SIGKILL, ended
    assert not (output / '1').exists()
    ended = bench.way(call, bench.log('export'))
    assert ended.status == 0, ended.output
    written = [
        {str(x.relative_to(top)) for x in top.rglob('*')}
        for top in (bench.folder / 'whole', output)
    ]
    assert written[0] == written[1], written[0] ^ written[1]
    (weights,) = (output / '1' / 'variables').glob('*.data-*')
    other = bench.folder / 'whole' / weights.relative_to(output)
    assert weights.read_bytes() == other.read_bytes()
    return 'no version was there; made anew, the same weights'


def kill_at_random(bench: Bench, kills: int = 20) -> str:
    """Kills one run by -9 at several random moments."""
    flags = '--steps=60', '--eval_every=20'
    began = time.monotonic()
    bench.run('short', '--steps=1')
    opening = time.monotonic() - began
    random, reached = np.random.default_rng(0), []
    for _ in range(kills):
        child = spawn(bench.call('run', *flags), bench.log('run'))
        time.sleep(random.uniform(0.0, 1.5) * opening)
        os.kill(child, signal.SIGKILL)
        ended = waited(child, bench.log('run'))
        assert ended.status == -signal.SIGKILL, ended
        reached.append(checkpoint.last_step(bench.folder / 'run') or 0)
    assert len(set(reached)) > 3, reached
    result = bench.goes_on('run', *flags)
    return f'killed from step 0 to {reached[-1]}; {result}'


@contextlib.contextmanager
def _older(bench: Bench) -> Iterator[Callable[[str], Ended]]:
    """Yields the command in the folder of old files, as `Bench.run`."""
    for name in ('train.txt', 'heldout.txt'):
        shutil.copy(OLDER / name, bench.folder)
    flags = (OLDER / 'run' / 'flags.txt').read_text().split()
    size = {'layers': 1, 'width': 16, 'heads': 2}

    def run(name: str) -> Ended:
        called = functools.partial(quick.run, *flags, f'--workdir={name}')
        return bench.way(lambda: commands.guard(called, ['']), bench.log(name))

    with (
        contextlib.chdir(bench.folder),
        mock.patch.dict(quick.TINY, size),
        mock.patch.dict(os.environ, {places.CACHE: str(bench.folder / 'c')}),
    ):
        yield run


def older(bench: Bench) -> str:
    """Loads and resumes a workdir that code of version 2 has written.

    It was stopped at step 2 of 4. What is expected is what that code gave.
    """
    texts = ['A view of the text.', '',
             'Every row is a sum, or so; nothing else counts.']  # fmt: skip
    workdir = bench.folder / 'run'
    shutil.copytree(OLDER / 'run', workdir)
    with np.load(OLDER / 'golden.npz') as golden, _older(bench) as run:
        expected = dict(golden)
        # It knows files by where they lie, and when they were changed.
        path = workdir / FILE
        values = json.loads(path.read_text())
        text = corpora.open_corpus('text:train.txt', 'heldout.txt')
        values['run'][record.FINGERPRINT] = text.fingerprint
        path.write_text(json.dumps(values))

        def encoded(name: str) -> Callable[[], None]:
            def called() -> None:
                vectors = infoword_tf.load(workdir).encode(
                    texts, progress=False
                )
                np.testing.assert_allclose(vectors, expected[name], atol=2e-4)

            return called

        for name in ('run', 'whole'):
            ended = bench.way(encoded(name), bench.log(name))
            assert ended.status == 0, ended.output
            if name == 'run':
                ended = run('run')
                assert ended.status == 0, ended.output
                assert '(step 2)' in ended.output, ended.output
    return 'the vectors of then; went on to the weights of then'


def clocks(bench: Bench) -> str:
    """Lets the clock jump by years, and gives files random times."""
    random = np.random.default_rng(0)
    real = time.time

    def jumping() -> float:
        return real() + random.uniform(-1e8, 1e8)

    bench.whole()
    jumps = mock.patch.object(time, 'time', jumping)
    hook = PHASES['it has its name, the encoder is old']

    def stopped(*_: Any) -> None:
        raise errors.Preempted('here')

    with jumps:
        ended = bench.run('run', hook=hook(stopped))
        assert ended.status == errors.Preempted.status, ended
        for path in sorted((bench.folder / 'run').rglob('*')):
            then = random.uniform(1e8, 4e9)
            os.utime(path, (then, then))
        return bench.goes_on('run')


# ---------------------------------------------------------------------- damages


def _cut(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: pathlib.Path) -> None:
    """Flips a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[-len(data) // 3] ^= 4
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[pathlib.Path], None]] = {
    'cut': _cut,
    'a bit flipped': _flip,
    'gone': pathlib.Path.unlink,
}


def damaged_workdir(bench: Bench, name: str, how: str) -> str:
    """Damages a file: `load` refuses it, the command writes it anew."""
    shutil.copytree(bench.whole(), bench.folder / 'run')
    path = bench.folder / 'run' / name
    DAMAGES[how](path)
    load = functools.partial(infoword_tf.load, path.parent)
    ended = bench.way(lambda: commands.guard(load, ['']), bench.log('load'))
    one_sentence(ended, name)
    bench.goes_on('run')
    return 'load refuses it by name; the same command writes it anew'


def damaged_cache(bench: Bench, pattern: str, how: str) -> str:
    cache = bench.folder / 'cache'
    bench.whole()
    shutil.copytree(os.environ[places.CACHE], cache)
    (path,) = cache.glob(pattern)
    DAMAGES[how](path)
    one_sentence(bench.run('run', cache=cache), path.name, 'delete')
    if how != 'a bit flipped':
        return 'refused by name'
    path.unlink()
    bench.goes_on('run', cache=cache)
    return 'refused by name; deleted, the same bytes'


# ------------------------------------------------------------------------ disks


@contextlib.contextmanager
def _disk(folder: pathlib.Path, kilobytes: int) -> Iterator[None]:
    """Mounts a disk of a size; NotTried: not permitted."""
    if not os.environ.get(INSIDE):
        raise NotTried('no tmpfs can be mounted here (unshare)')
    folder.mkdir(exist_ok=True)
    size = f'size={kilobytes}k'
    _sh('mount', '-t', 'tmpfs', '-o', size, 'none', folder)
    try:
        yield
    finally:
        _sh('umount', '-l', folder)


def _sh(*command: Any) -> None:
    subprocess.run(list(map(str, command)), check=True)


def full(bench: Bench, sizes: int = 12) -> str:
    """Fills disks of smaller and smaller sizes."""
    whole, cache = bench.whole(), pathlib.Path(os.environ[places.CACHE])
    every = [*whole.rglob('*'), *cache.rglob('*')]
    needed = sum(-(-x.stat().st_size // 4096) * 4 for x in every)
    disk, actual = bench.folder / 'disk', {}
    for number in range(1, sizes):
        with _disk(disk, 4 + needed * number // sizes):
            one = Bench(disk)
            one.log = bench.log
            ended = one.run('run', cache=disk / 'cache')
            if ended.status == 0:
                continue  # what was needed for a moment alone
            complaint = one_sentence(
                ended, 'No space left on device', str(disk)
            )
            actual[complaint.split(' could')[0].rsplit('/')[-1]] = number
            _sh('mount', '-o', 'remount,size=99m', disk)
            ended = one.run('run', cache=disk / 'cache')
            assert ended.status == 0, ended.output
            same(whole, disk / 'run')
    assert len(actual) > 2, actual
    return f'stopped by name at {len(actual)} files; with room the same bytes'


def read_only(bench: Bench, name: str) -> str:
    """Makes the folder read-only from the second checkpoint on."""
    folder = bench.folder / 'run' / name
    bench.whole()

    def protect(*_: Any) -> None:
        folder.chmod(0o555)
        if os.geteuid() == 0:
            _give_up_rights()

    when = at(
        files, 'write_tensors', protect,
        lambda path, *_: SAVED.format(4)[12:] in str(path),
    )  # fmt: skip
    ended = bench.run('run', hook=when)
    folder.chmod(0o755)
    one_sentence(ended, 'Permission denied', str(folder))
    return f'stopped by name; {bench.goes_on("run")}'


def _give_up_rights() -> None:
    """Drops root's permission to write to any file."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
        raise NotTried('rights of root cannot be given up')


# ------------------------------------------------------------------------- all

Fault = Callable[[Bench], str]


def _each(fault: Callable[..., str], what: str, *options: Any) -> dict:
    """Returns a fault with each of several options, by description."""
    actual = {}
    for option in options:
        values = option if isinstance(option, tuple) else (option,)
        words = what.format(*values)
        actual[words] = functools.partial(
            lambda bench, values: fault(bench, *values), values=values
        )
    return actual


_HOW = tuple(DAMAGES)
FAULTS: dict[str, dict[str, Fault]] = {
    'kill': {
        **_each(end, '`kill -9` while {}', *((x, _kill) for x in PHASES)),
        '`kill -9` 20 times at random moments': kill_at_random,
        '`kill -9` of an export': kill_of_export,
    },
    'term': {
        'SIGTERM while TensorFlow is imported': term_while_importing,
        **_each(end, 'SIGTERM while {}', *((x, _term) for x in PHASES)),
    },
    'disk': {
        'the disk is full': full,
        **_each(read_only, 'nothing may be written to `WORKDIR/{}`',
                'checkpoints', ''),
    },
    'damage': {
        **_each(damaged_workdir, '`{0}` of a workdir: {1}',
                *itertools.product((WEIGHTS, 'vocab.txt'), _HOW)),
        **_each(damaged_cache, '{0} of the cache: {1}', *(
            ('vocabularies/*.txt', how) for how in ('cut', 'a bit flipped')
        )),
    },
    'other': {
        'clocks jump, and files are of any time': clocks,
        'a workdir of version 2': older,
    },
}  # fmt: skip


def main() -> None:
    """Injects all faults, or a selection, and prints a table."""
    options = dict(x.removeprefix('--').split('=') for x in sys.argv[1:])
    if INSIDE not in os.environ and shutil.which('unshare'):
        # Mounts of its own, as root or as somebody who may be root there.
        alone = ['unshare', '-m' if os.geteuid() == 0 else '-rm']
        if not subprocess.run([*alone, 'true'], check=False).returncode:
            os.environ[INSIDE] = '1'
            again = [sys.executable, '-m', 'tests.faults', *sys.argv[1:]]
            os.execvp('unshare', [*alone, *again])
    kinds = options['only'].split(',') if 'only' in options else FAULTS
    runs.set_up()
    rows = ['| fault | what happened | held? |', '|---|---|---|']
    failed = False
    for kind in kinds:
        for what, fault in FAULTS[kind].items():
            if options.get('like', '') not in what:
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix='faults_') as folder:
                try:
                    result, held = fault(Bench(pathlib.Path(folder))), 'yes'
                except NotTried as error:
                    result, held = str(error), 'not tried'
                except Exception as error:
                    traceback.print_exc()
                    result, held = str(error).splitlines()[:1], 'no'
                    failed = True
            rows.append(f'| {what} | {result} | {held} |')
            seconds = time.monotonic() - began
            print(f'{rows[-1]} {seconds:.0f} s', flush=True)
    if 'output' in options:
        pathlib.Path(options['output']).write_text('\n'.join(rows) + '\n')
    unittest.doModuleCleanups()
    sys.exit(failed)


if __name__ == '__main__':
    main()
