"""The documents of many source files, parsed in parallel, without duplicates.

Processes that parse are plain subprocesses: `fork` would not be safe beside
TensorFlow's threads, and `multiprocessing`'s `spawn` imports the main module
again, which in a training run is TensorFlow itself. Hence all that this file
imports must be light.
"""

import concurrent.futures
import contextlib
import json
import pathlib
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

from infoword_tf.data.documents import Document
from infoword_tf.data.pydocs.docstrings import read_source
from infoword_tf.data.pydocs.packages import File

_BATCH = 48  # files parsed per message to a process: ~0.1 s of work


def extract(
    files: Sequence[File], processes: int | None = None
) -> tuple[list[Document], int]:
    """Reads the documents of all files.

    Returns:
        Documents without duplicates (by lower-case text; the first stays), and
        the number of files that could not be parsed.
    """
    import tqdm

    from infoword_tf.files import cpus  # not light

    processes = processes or cpus()
    batches = [files[i : i + _BATCH] for i in range(0, len(files), _BATCH)]
    answers = (
        map(_read_batch, batches)
        if processes == 1
        else _in_processes(batches, processes)
    )
    unique: dict[str, Document] = {}
    skipped = 0
    with tqdm.tqdm(total=len(files), desc='pydocs', unit=' files') as progress:
        for answer in answers:
            for read in answer:
                skipped += read is None
                for document in read or []:
                    unique.setdefault(document.text.lower(), document)
            progress.update(len(answer))
    return list(unique.values()), skipped


def _read_batch(batch: Iterable[File]) -> list[list[Document] | None]:
    return [read_source(file) for file in batch]


def _in_processes(
    batches: Sequence[Sequence[File]], processes: int
) -> Iterator[list[list[Document] | None]]:
    """What `_read_batch` returns for each batch, in order, of `_serve`."""
    idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()

    def ask(batch: Sequence[File]) -> list[list[Document] | None]:
        process = idle.get()
        try:
            process.stdin.write(json.dumps(batch) + '\n')
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        finally:
            idle.put(process)
        if not answer:
            raise RuntimeError(
                'A process that parses docstrings for pydocs ended early '
                f'(exit status {process.wait()}) at the files {batch[0].path} '
                f'.. {batch[-1].path}. If memory was short, run with fewer '
                'CPUs (`taskset -c 0 ...`).'
            )
        return [
            read and [Document(tuple(s), *rest) for s, *rest in read]
            for read in json.loads(answer)
        ]

    root = pathlib.Path(__file__).resolve().parents[3]
    with contextlib.ExitStack() as stack:
        for _ in range(min(processes, len(batches))):
            idle.put(stack.enter_context(_parser(root)))
        pool = concurrent.futures.ThreadPoolExecutor(processes)
        stack.callback(pool.shutdown, cancel_futures=True)
        yield from pool.map(ask, batches)


@contextlib.contextmanager
def _parser(root: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `_serve`, and ends with the context.

    (Leaving a `Popen` as a context writes what is left to write: of a process
    that has ended, that is an error which hides the one that says so.)
    """
    process = subprocess.Popen(
        [sys.executable, '-c', _SERVE, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # at which it ends
        process.wait()


_SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from infoword_tf.data.pydocs import extraction
extraction._serve()
"""


def _serve() -> None:
    """Answers each batch of files on stdin by a line on stdout."""
    for line in sys.stdin:
        batch = [File(*file) for file in json.loads(line)]
        print(json.dumps(_read_batch(batch)), flush=True)
