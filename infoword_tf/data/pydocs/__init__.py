"""The corpus `pydocs`: the English docstrings that every machine already has.

  packages.py    which source files are read
  extraction.py  sources -> docstrings -> documents, without duplicates
  prose.py       docstring -> English sentences
  heldout.py     what trains, what is held out, what is neither

It is built once for an environment, then read.
"""

import hashlib
import json
import pathlib
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence

from infoword_tf.data.documents import Document
from infoword_tf.data.pydocs import extraction, heldout, packages

# Part of the cache's name: count up when the same files give other documents.
EXTRACTION = 1
_FIGURES = (
    'pydocs: {documents:,} documents, {words:,} words, {megabytes:.1f} MB '
    'from {files:,} files ({skipped_files} skipped) in {seconds:.0f} s; '
    '{train:,} to train on; of {candidates:,} held-out candidates '
    '{dropped:,} dropped, {heldout:,} kept'
)


def prepare(
    cache: pathlib.Path, names: Sequence[str] = packages.PACKAGES
) -> pathlib.Path:
    """Returns the folder of the corpus, built if need be.

    Prints one line of figures. Before it builds, says so, and which packages
    are not installed.

    Args:
        cache: the folder in which the corpus is, or will be.
        names: packages that are read besides the standard library.

    Returns:
        A folder with `train.jsonl` and `heldout.jsonl` (one document a line)
        and `figures.json`; its name changes when the documents might.

    Raises:
        OSError: the cache cannot be written.
    """
    installed = packages.installed(names)
    parts = [
        f'extraction {EXTRACTION}',
        f'{platform.python_implementation()} {platform.python_version()}',
        *(f'{name} {x.version}' for name, x in installed.items()),
    ]
    text = '\n'.join(parts).encode()
    digest = hashlib.blake2b(text, digest_size=16).hexdigest()
    folder = cache / f'pydocs-{digest}'
    if not folder.exists():
        print('pydocs: reading docstrings, once for this environment')
        if absent := [name for name in names if name not in installed]:
            print(f'pydocs: without {", ".join(absent)}: not installed')
        _build(folder, packages.source_files(installed.values()))
    figures = json.loads((folder / 'figures.json').read_text())
    print(_FIGURES.format(**figures), flush=True)
    return folder


def _build(folder: pathlib.Path, sources: list[packages.SourceFile]) -> None:
    """Writes the folder of the corpus, whole or not at all."""
    began = time.monotonic()
    corpus, skipped = extraction.extract(sources)
    train, held, dropped = heldout.split_heldout(corpus)
    figures = {
        'documents': len(corpus),
        'words': sum(x.text.count(' ') + 1 for x in corpus),
        'megabytes': sum(len(x.text.encode()) for x in corpus) / 1e6,
        'train': len(train),
        'candidates': len(held) + dropped,
        'dropped': dropped,
        'heldout': len(held),
        'files': len(sources),
        'skipped_files': skipped,
        'seconds': time.monotonic() - began,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f'{folder.name}.', dir=folder.parent
    ) as temporary:
        staging = pathlib.Path(temporary, 'staging')
        staging.mkdir()
        _write(staging / 'train.jsonl', train)
        _write(staging / 'heldout.jsonl', held)
        (staging / 'figures.json').write_text(json.dumps(figures, indent=1))
        try:
            staging.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            # Another process was first; its documents are equal.


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
