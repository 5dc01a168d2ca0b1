"""The corpus `pydocs` on disk: built once for an environment, then read."""

import hashlib
import importlib.metadata
import json
import pathlib
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infoword_tf.data.documents import Document
from infoword_tf.data.pydocs import extraction, heldout, packages

# Part of the cache's name: count up when the same files give other documents.
EXTRACTION = 1


def environment_hash(
    closure: Mapping[str, importlib.metadata.Distribution],
) -> str:
    """32 hex digits that change when the documents might."""
    parts = [
        f'extraction {EXTRACTION}',
        f'{platform.python_implementation()} {platform.python_version()}',
        *(f'{name} {d.version}' for name, d in closure.items()),
    ]
    text = '\n'.join(parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def prepare(
    cache: pathlib.Path,
    requirements: Sequence[str] | None = None,
    processes: int | None = None,
) -> pathlib.Path:
    """The folder of the corpus for this environment, built if need be.

    Prints one line of figures.

    Returns:
        A folder with `train.jsonl` and `heldout.jsonl` (one document a line)
        and `figures.json`; its name changes when the documents might.

    Raises:
        RuntimeError: the project is not installed.
        OSError: the cache cannot be written.
    """
    closure = packages.dependency_closure(requirements)
    folder = cache / f'pydocs-{environment_hash(closure)}'
    if not folder.exists():
        print('pydocs: reading docstrings, once for this environment')
        files = packages.stdlib_files()
        for distribution in closure.values():
            files += packages.distribution_files(distribution)
        _build(folder, files, processes)
    figures = json.loads((folder / 'figures.json').read_text())
    print(describe(figures), flush=True)
    return folder


def _build(
    folder: pathlib.Path, files: Sequence[packages.File], processes: int | None
) -> None:
    """Writes the folder of the corpus atomically: all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    corpus, skipped = extraction.extract(files, processes)
    split = heldout.split_heldout(corpus)
    figures = {
        'documents': len(corpus),
        'words': sum(d.text.count(' ') + 1 for d in corpus),
        'megabytes': sum(len(d.text.encode()) for d in corpus) / 1e6,
        'train': len(split.train),
        'candidates': len(split.heldout) + split.dropped,
        'dropped': split.dropped,
        'heldout': len(split.heldout),
        'files': len(files),
        'skipped_files': skipped,
        'seconds': time.monotonic() - began,
    }
    with tempfile.TemporaryDirectory(
        prefix=f'{folder.name}.', dir=folder.parent, ignore_cleanup_errors=True
    ) as temporary:
        staging = pathlib.Path(temporary) / 'staging'
        staging.mkdir()
        _write(staging / 'train.jsonl', split.train)
        _write(staging / 'heldout.jsonl', split.heldout)
        (staging / 'figures.json').write_text(json.dumps(figures, indent=1))
        try:
            staging.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            # Another process was first: its documents are the same.


def describe(figures: Mapping[str, float]) -> str:
    """The line that is printed when the corpus is built or opened."""
    return (
        'pydocs: {documents:,} documents, {words:,} words, '
        '{megabytes:.1f} MB from {files:,} files ({skipped_files} skipped) '
        'in {seconds:.0f} s; {train:,} to train on; of {candidates:,} '
        'held-out candidates {dropped:,} dropped, {heldout:,} kept'
    ).format(**figures)


def _write(path: pathlib.Path, corpus: Iterable[Document]) -> None:
    with open(path, 'w', encoding='utf-8') as stream:
        for document in corpus:
            line = {'source': document.source, 'sentences': document.sentences}
            stream.write(json.dumps(line, ensure_ascii=False) + '\n')


def read(path: pathlib.Path) -> Iterator[Document]:
    """Yields the documents of `train.jsonl` or `heldout.jsonl`."""
    with open(path, encoding='utf-8') as stream:
        for line in stream:
            fields = json.loads(line)
            yield Document(tuple(fields['sentences']), fields['source'])
