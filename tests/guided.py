"""Files that are made to reach new lines of the readers, by atheris.

    python -m tests.guided --inputs=40000 [--only=tsv,csv] [--folder=DIR]

Each reader of tests/fuzz.py has a process of its own, in which libFuzzer
changes files, half of them as tests/fuzz.py damages them; those that reach
lines of ours which no file before them has reached are kept and changed
further. Of what is no complaint by name the first file is shown. `pip install
atheris` brings what is needed.
"""

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np

LONGEST = 4096  # bytes of a file
MOST = 2  # accidents at a time
GIGABYTES = 6  # that a process may have; a file that wants more is a crash


def changed(fuzz: Any, kind: str, folder: pathlib.Path, inputs: int) -> None:
    """Reads many files of a kind, and exits the process.

    Args:
        fuzz: tests.fuzz, imported where atheris sees which lines are reached.
    """
    import atheris

    name, good, reader = fuzz.READERS[kind]
    corpus, read = folder / 'kept', folder / 'read'
    for path in (corpus, read):
        path.mkdir(parents=True)
    (corpus / 'good').write_bytes(good)
    actual: dict[str, int] = {}
    crashes: dict[str, str] = {}
    count = 0

    def one(data: bytes) -> None:
        nonlocal count
        how, crash = fuzz.judged(reader, read / name, data)
        count += 1
        actual[how] = actual.get(how, 0) + 1
        if crash:
            crashes.setdefault(crash, repr(data))
        if count == inputs:
            ended = {'found': actual, 'crashes': crashes}
            (folder / 'ended.json').write_text(json.dumps(ended))
            os._exit(0)

    def another(data: bytes, most: int, seed: int) -> bytes:
        if seed % 2:
            return atheris.Mutate(data, most)
        random = np.random.default_rng(seed)
        return fuzz.damaged(data, random, MOST)[:most]

    arguments = [f'-max_len={LONGEST}', '-verbosity=0', '-seed=1',
             f'-rss_limit_mb={GIGABYTES << 10}', f'-artifact_prefix={folder}/']
    arguments = [sys.argv[0], *arguments, str(corpus)]
    atheris.Setup(arguments, one, custom_mutator=another)
    atheris.Fuzz()


def main() -> None:
    """Tries all kinds, one after the other, and prints the outcomes."""
    try:
        import atheris
    except ImportError:
        sys.exit('error: atheris is not installed: pip install atheris')
    with atheris.instrument_imports(include=['infoword_tf', 'tasks']):
        from tests import fuzz

    options = dict(x.removeprefix('--').split('=') for x in sys.argv[1:])
    inputs = int(options.get('inputs', 40_000))
    memory = pathlib.Path('/dev/shm')
    parent = options.get('folder') or tempfile.mkdtemp(
        dir=memory if memory.is_dir() else None
    )
    total, failed = 0, False
    only = options.get('only')
    for kind in only.split(',') if only else fuzz.READERS:
        folder = pathlib.Path(parent) / kind
        sys.stdout.flush()
        child = os.fork()
        if not child:
            changed(fuzz, kind, folder, inputs)
        _, status = os.waitpid(child, 0)
        if status:
            failed = True
            print(f'{kind}: the process ended with {status}; see {folder}')
            continue
        ended = json.loads((folder / 'ended.json').read_text())
        total += inputs
        print(kind, inputs, ended['found'], flush=True)
        for what, data in ended['crashes'].items():
            failed = True
            print(f'  {what}\n    {data}')
    print(f'{total:,} files were read')
    sys.exit(failed)


if __name__ == '__main__':
    main()
