"""Corpora by name: pydocs, text:GLOB, jsonl:GLOB, tfds:NAME, store:DIR, ...

The text before the first colon is the kind of a corpus and selects an entry of
`CORPORA`; the rest is the kind's own.
"""

import functools
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from infoword_tf import errors, files
from infoword_tf.data import prepared, pydocs, readers, sharded, textfiles
from infoword_tf.data.documents import Document

Documents = Callable[[], Iterator[Document]]  # begins a new pass over them
# Documents, and how many records have no text; None: not counted.
Counted = Generator[Document, None, int | None]


class Corpus(NamedTuple):
    """Documents to train on, and documents to measure on.

    Attributes:
      fingerprint: hexadecimal; changes when the text would. Stores and learned
        vocabularies lie in the cache under keys made of it.
      train: documents, in the same order in every pass.
      heldout: likewise; none of its documents is in `train`.
      every: the whole corpus in order; None where held-out text has a name of
        its own (files, a split).
      chunks: size in bytes -> the corpus in chunks of about that size, each of
        which is read alone; None: only train and heldout are.
      rule: decides which documents of `every` are held out.
      store: prepared store; such a corpus has no text to read.
    """

    name: str
    fingerprint: str
    train: Documents
    heldout: Documents
    every: Documents | None = None
    chunks: Callable[[int], list['CorpusChunk']] | None = None
    rule: Callable[[], textfiles.HeldoutRule] | None = None
    store: sharded.PreparedStore | None = None


class CorpusChunk(NamedTuple):
    """Chunk of a corpus.

    Attributes:
      kind: 'train' or 'heldout', or 'every', which the corpus' rule divides.
      read: yields its documents; returns how many records have no text.
    """

    kind: str
    read: Callable[[], Counted]


def chunks_of(corpus: Corpus, size: int) -> list[CorpusChunk]:
    """Divides a corpus into chunks of about `size` bytes, in order."""
    if corpus.chunks is not None:
        return corpus.chunks(size)
    kinds = {'train': corpus.train, 'heldout': corpus.heldout}
    return [
        CorpusChunk(kind, functools.partial(_uncounted, read))
        for kind, read in kinds.items()
    ]


def _uncounted(read: Documents) -> Counted:
    """Yields the documents of a pass."""
    yield from read()
    return None


def whole(name: str) -> tuple[str, Documents]:
    """Opens a corpus; returns the fingerprint, and all documents."""
    corpus = open_corpus(name)
    return corpus.fingerprint, corpus.every or (
        lambda: itertools.chain(corpus.train(), corpus.heldout())
    )


def no_documents() -> Iterator[Document]:
    """Reads the held-out text of a corpus that holds none out."""
    return iter(())


def open_corpus(
    name: str,
    heldout: str | None = None,
    cache: pathlib.Path | None = None,
    whole: bool = False,
) -> Corpus:
    """Opens a corpus by name.

    Args:
      name: `pydocs` (built at the first use, in half a minute), `text:GLOB`,
        `lines:GLOB`, `jsonl:GLOB[:FIELD]`, `parquet:` or `arrow:` likewise,
        `tfds:NAME[/CONFIG][:VERSION][:FEATURE]`, a data set that
        tensorflow-datasets has prepared, or `store:DIR`, what
        `infoword_tf.prepare` has made.
      heldout: a second GLOB whose documents are held out instead of some of the
        corpus, or a split of `tfds:`. Not for `pydocs`; `lines:` must have one,
        since removed lines would tear its text.
      whole: whether `lines:` may come without `heldout`, and none is held out.

    Raises:
      ValueError: no such corpus, or no text. Later bytes that are no UTF-8 are
        reported when they are read.
    """
    kind, _, spec = name.partition(':')
    if kind not in CORPORA:
        known = ', '.join(CORPORA)
        raise errors.InputError(
            'unknown_corpus',
            f'Unknown corpus {name!r}: its kind must be one of {known}. '
            'Files of your own are text:GLOB, for example '
            "'text:books/**/*.txt'.",
        )
    if kind == 'lines' and heldout is None and not whole:
        raise errors.InputError(
            'corpus_without_heldout',
            f'{name} is one text, without a held-out part of its own: '
            'name held-out files with --heldout=GLOB',
        )
    return CORPORA[kind](spec, heldout, cache or files.cache_dir())


def chained(corpora: Sequence[Corpus]) -> Corpus:
    """Joins several corpora, each after the other."""
    if len(corpora) == 1:
        return corpora[0]

    def of(split: str) -> Documents:
        return lambda: itertools.chain.from_iterable(
            getattr(corpus, split)() for corpus in corpora
        )

    whole = all(corpus.every is not None for corpus in corpora)
    return Corpus(
        ' and '.join(corpus.name for corpus in corpora),
        '-'.join(corpus.fingerprint for corpus in corpora),
        train=of('train'),
        heldout=of('heldout'),
        every=of('every') if whole else None,
    )


def _pydocs(spec: str, heldout: str | None, cache: pathlib.Path) -> Corpus:
    if spec:
        raise errors.InputError(
            'pydocs_with_colon',
            f'pydocs takes nothing after a colon, not {spec!r}.',
        )
    if heldout is not None:
        raise errors.InputError(
            'pydocs_with_heldout',
            f'pydocs has a held-out part of its own: leave out --heldout '
            f'(here {heldout!r}), which is for text:GLOB.',
        )
    folder = pydocs.prepare(cache)
    train, held = (
        functools.partial(pydocs.read, folder / f'{split}.jsonl')
        for split in ('train', 'heldout')
    )
    return Corpus(
        'pydocs',
        folder.name.removeprefix('pydocs-'),
        train=train,
        heldout=held,
        every=lambda: itertools.chain(train(), held()),
    )


def _by_hash(
    name: str,
    fingerprint: str,
    every: Documents,
    chunks: Callable[[int], list[CorpusChunk]],
) -> Corpus:
    """Makes a corpus in which documents are held out by hash."""
    # Decided once, when documents are first needed, since it reads some.
    rule = functools.cache(lambda: textfiles.split(every(), name))
    return Corpus(
        name,
        fingerprint,
        train=lambda: textfiles.train(every(), rule()),
        heldout=lambda: textfiles.heldout(every(), rule()),
        every=every,
        chunks=chunks,
        rule=rule,
    )


def _tfds(spec: str, heldout: str | None, cache: pathlib.Path) -> Corpus:
    del cache  # TFDS has a folder of its own
    name, feature = prepared.parse(spec, 'FEATURE')
    dataset = prepared.open_prepared(name)
    feature = prepared.text_feature(dataset, feature)
    splits = dataset.splits
    if heldout is None and len(splits) > 1:
        heldout = next((s for s in prepared.HELDOUT if s in splits), None)
    train = splits[0] if len(splits) == 1 else 'train'
    for split in filter(None, (train, heldout)):
        prepared.check_split(dataset, split)
    if train == heldout:
        raise errors.InputError(
            'heldout_is_train_split',
            f'tfds:{spec} is trained on its split {train}: --heldout={heldout} '
            'must name another one',
        )

    def every(
        split: str, examples: prepared.ExampleRange = prepared.ALL
    ) -> Generator[Document, None, None]:
        return prepared.read_documents(dataset, split, feature, examples)

    def chunks(size: int) -> list[CorpusChunk]:
        kinds = {'every': train} if heldout is None else {
            'train': train, 'heldout': heldout
        }  # fmt: skip
        return [
            CorpusChunk(kind, functools.partial(every, split, examples))
            for kind, split in kinds.items()
            for examples in prepared.ranges(dataset, split, size)
        ]

    used = [split for split in (train, heldout) if split]
    of_all = f'tfds:{spec}', prepared.fingerprint(dataset, feature, used)
    of_train = functools.partial(every, train)
    if heldout is None:
        return _by_hash(*of_all, of_train, chunks)
    of_heldout = functools.partial(every, heldout)
    return Corpus(*of_all, of_train, of_heldout, chunks=chunks)


def _store(spec: str, heldout: str | None, cache: pathlib.Path) -> Corpus:
    del cache  # it is prepared
    if heldout is not None:
        raise errors.InputError(
            'store_with_heldout',
            f'store:{spec} has a held-out part of its own: leave out '
            f'--heldout={heldout}, or prepare the text with it',
        )
    opened = sharded.open_prepared(spec)

    def no_text() -> Iterator[Document]:
        raise errors.InputError(
            'store_without_text',
            f'store:{spec} holds tokens and no text, which is needed here; '
            'name the text itself',
        )

    return Corpus(
        f'store:{spec}',
        opened.fingerprint,
        train=no_text,
        heldout=no_text,
        every=no_text,
        store=opened,
    )


def _files(
    kind: str, spec: str, heldout: str | None, cache: pathlib.Path
) -> Corpus:
    """Opens files as a corpus; `heldout` matches other files."""
    del cache  # nothing is built: the files are the corpus
    reader, paths, every = _opened(kind, spec)
    name = f'{kind}:{spec}'
    if heldout is None and kind == 'lines':
        return Corpus(
            name,
            _fingerprint(reader.key, paths, []),
            train=every,
            heldout=no_documents,
            every=every,
            chunks=_chunks({'train': (reader, paths)}),
        )
    if heldout is None:
        key = _fingerprint(f'{reader.key}, split', paths, [])
        return _by_hash(name, key, every, _chunks({'every': (reader, paths)}))
    field = getattr(reader, 'field', readers.FIELD)
    heldout_spec = heldout.removeprefix(f'{kind}:')
    other, heldout_paths, every_heldout = _opened(kind, heldout_spec, field)
    both = {p.resolve() for p in paths} & {p.resolve() for p in heldout_paths}
    if both:
        raise errors.InputError(
            'heldout_files_trained',
            f'{min(both)} and {len(both) - 1} other file(s) match both '
            f'{name} and --heldout={heldout}: what is held out must not '
            'be trained on. Narrow one of the patterns.',
        )
    key = ' '.join(dict.fromkeys((reader.key, other.key)))
    return Corpus(
        name,
        _fingerprint(key, paths, heldout_paths),
        train=every,
        heldout=every_heldout,
        chunks=_chunks(
            {'train': (reader, paths), 'heldout': (other, heldout_paths)}
        ),
    )


def _opened(
    kind: str, spec: str, field: str = readers.FIELD
) -> tuple[textfiles.Files, list[pathlib.Path], Documents]:
    """Returns the reader of a kind, the checked files, and all documents."""
    reader, pattern = textfiles.Files(kind), spec
    if kind in readers.READERS:
        pattern, field = readers.split_spec(spec, field)
        reader = textfiles.Records(kind, field)
    paths = reader.find(pattern)
    # Of the Hub's a look at each would take as long as thousands of requests.
    reader.check(paths[: 1 if files.is_of_hub(paths[0]) else None])
    every = functools.partial(reader.read, paths, pattern)
    next(every())  # raises here where there is no text at all
    return reader, paths, every


def _chunks(
    groups: Mapping[str, tuple[textfiles.Files, Sequence[pathlib.Path]]],
) -> Callable[[int], list[CorpusChunk]]:
    """Returns a function that divides files, by kind, into chunks."""

    def chunks(size: int) -> list[CorpusChunk]:
        corpus_chunks = []
        for kind, (reader, paths) in groups.items():
            together: list[list[textfiles.Chunk]] = []
            room = 0
            for chunk in reader.chunks(paths, size):
                if not together or chunk.size > room:
                    together.append([])
                    room = size
                together[-1].append(chunk)
                room -= chunk.size
            corpus_chunks += [
                CorpusChunk(kind, functools.partial(reader.read_chunks, group))
                for group in together
            ]
        return corpus_chunks

    return chunks


def _fingerprint(
    kind: str, paths: Sequence[pathlib.Path], heldout: Sequence[pathlib.Path]
) -> str:
    """Hashes the files' paths, sizes and times of change: 32 hex digits.

    Of the Hub's, names with their commit.
    """
    digest = hashlib.blake2b(f'{kind} 1'.encode(), digest_size=16)
    for group in (paths, heldout):
        for path in group:
            if files.is_of_hub(path):
                digest.update(repr(os.fspath(path)).encode())
                continue
            stat = path.stat()
            record = (os.fspath(path.resolve()), stat.st_size, stat.st_mtime_ns)
            digest.update(repr(record).encode())
        digest.update(b'|')
    return digest.hexdigest()


CORPORA: dict[str, Callable[[str, str | None, pathlib.Path], Corpus]] = {
    'pydocs': _pydocs,
    **{
        kind: functools.partial(_files, kind)
        for kind in ('text', 'lines', *readers.READERS)
    },
    'tfds': _tfds,
    'store': _store,
}
