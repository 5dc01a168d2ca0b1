"""Corpora by name: pydocs, text:GLOB, jsonl:GLOB, tfds:NAME, store:DIR, ...

The part before the first colon is the kind of a corpus and selects a row of
`CORPORA`; the rest is the kind's own.
"""

import functools
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from infoword_tf import files
from infoword_tf.data import prepared, pydocs, records, sharded, textfiles
from infoword_tf.data.documents import Document

Documents = Callable[[], Iterator[Document]]  # begins a new pass over them


class Corpus(NamedTuple):
    """Documents to train on, and documents to measure on.

    Attributes:
      fingerprint: hexadecimal; changes when the text would. What is derived
        from a corpus is kept under it.
      train: in the same order in every pass.
      heldout: likewise; none of its documents is in `train`.
      every: likewise, all of it in its order; None where what is held out
        has a name of its own (files, a split).
      parts: size in bytes -> the same text in parts of about that size, each
        of which is read alone; None: there are but two, train and heldout.
      rule: decides which documents of `every` are held out.
      store: what was prepared; such a corpus has no text to read.
    """

    name: str
    fingerprint: str
    train: Documents
    heldout: Documents
    every: Documents | None = None
    parts: Callable[[int], list['Part']] | None = None
    rule: Callable[[], textfiles.HeldoutRule] | None = None
    store: sharded.Opened | None = None


class Part(NamedTuple):
    """A part of a corpus.

    Attributes:
      kind: 'train' or 'heldout', or 'every': the corpus' rule parts it.
      read: yields its documents; returns how many records have no text.
    """

    kind: str
    read: Documents


def parts_of(corpus: Corpus, size: int) -> list[Part]:
    """All of a corpus in order, in parts of about `size` bytes."""
    if corpus.parts is not None:
        return corpus.parts(size)
    return [Part('train', corpus.train), Part('heldout', corpus.heldout)]


def open_corpus(
    name: str,
    heldout: str | None = None,
    cache: pathlib.Path | None = None,
    whole: bool = False,
) -> Corpus:
    """Opens a corpus by its name.

    Args:
      name: `pydocs` (built at the first use, in half a minute), `text:GLOB`,
        `lines:GLOB`, `jsonl:GLOB[:FIELD]`, `parquet:` or `arrow:` likewise,
        `tfds:NAME[/CONFIG][:VERSION][:FEATURE]`, a data set that
        tensorflow-datasets has prepared, or `store:DIR`, what
        `infoword_tf.prepare` has made.
      heldout: a second GLOB whose documents are held out instead of a part
        of the corpus, of `tfds:` a split. Not for `pydocs`; `lines:` must
        have one, since lines that are taken out would tear its text.
      whole: whether `lines:` may come without one; nothing is held out then.

    Raises: ValueError: no such corpus, or no text. Of a file that is read to
    its end later, what is no UTF-8 is reported then.
    """
    kind, _, spec = name.partition(':')
    if kind not in CORPORA:
        known = ', '.join(CORPORA)
        raise ValueError(
            f'Unknown corpus {name!r}: its kind must be one of {known}. '
            'Files of your own are text:GLOB, for example '
            "'text:books/**/*.txt'."
        )
    if kind == 'lines' and heldout is None and not whole:
        raise ValueError(
            f'{name} is one text, without a held-out part of its own: '
            'name held-out files with --heldout=GLOB'
        )
    return CORPORA[kind](spec, heldout, cache or files.cache_dir())


def chained(corpora: Sequence[Corpus]) -> Corpus:
    """Several corpora as one, each after the other."""
    if len(corpora) == 1:
        return corpora[0]

    def of(part: str) -> Documents:
        return lambda: itertools.chain.from_iterable(
            getattr(corpus, part)() for corpus in corpora
        )

    whole = all(corpus.every is not None for corpus in corpora)
    return Corpus(
        ' and '.join(corpus.name for corpus in corpora),
        '-'.join(corpus.fingerprint for corpus in corpora),
        of('train'),
        of('heldout'),
        of('every') if whole else None,
    )


def _pydocs(spec: str, heldout: str | None, cache: pathlib.Path) -> Corpus:
    if spec:
        raise ValueError(f'pydocs takes nothing after a colon, not {spec!r}.')
    if heldout is not None:
        raise ValueError(
            f'pydocs has a held-out part of its own: leave out --heldout '
            f'(here {heldout!r}), which is for text:GLOB.'
        )
    folder = pydocs.prepare(cache)
    train, held = (
        functools.partial(pydocs.read, folder / f'{part}.jsonl')
        for part in ('train', 'heldout')
    )
    return Corpus(
        'pydocs',
        folder.name.removeprefix('pydocs-'),
        train,
        held,
        lambda: itertools.chain(train(), held()),
    )


def _by_hash(
    name: str,
    fingerprint: str,
    every: Documents,
    parts: Callable[[int], list[Part]],
) -> Corpus:
    """Documents of which some are held out by the hash of their text."""
    # Decided once, and where documents are wanted: it reads some of them.
    split = functools.cache(lambda: textfiles.split(every(), name))
    return Corpus(
        name,
        fingerprint,
        lambda: textfiles.train(every(), split()),
        lambda: textfiles.heldout(every(), split()),
        every,
        parts,
        split,
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
        raise ValueError(
            f'tfds:{spec} is trained on its split {train}: --heldout={heldout} '
            'must name another one'
        )

    def every(
        split: str, some: prepared.Examples = prepared.ALL
    ) -> Iterator[Document]:
        return prepared.read_documents(dataset, split, feature, some)

    def parts(size: int) -> list[Part]:
        kinds = {'every': train} if heldout is None else {
            'train': train, 'heldout': heldout
        }  # fmt: skip
        return [
            Part(kind, functools.partial(every, split, some))
            for kind, split in kinds.items()
            for some in prepared.parts(dataset, split, size)
        ]

    used = [split for split in (train, heldout) if split]
    of_all = f'tfds:{spec}', prepared.fingerprint(dataset, feature, used)
    of_train, of_heldout = (
        functools.partial(every, split) for split in (train, heldout)
    )
    if heldout is None:
        return _by_hash(*of_all, of_train, parts)
    return Corpus(*of_all, of_train, of_heldout, parts=parts)


def _store(spec: str, heldout: str | None, cache: pathlib.Path) -> Corpus:
    del cache  # it is prepared
    if heldout is not None:
        raise ValueError(
            f'store:{spec} has a held-out part of its own: leave out '
            f'--heldout={heldout}, or prepare the text with it'
        )
    opened = sharded.open_prepared(spec)

    def no_text() -> Iterator[Document]:
        raise ValueError(
            f'store:{spec} holds pieces and no text, which is needed here; '
            'name the text itself'
        )

    return Corpus(
        f'store:{spec}', opened.fingerprint, no_text, no_text, no_text,
        store=opened,
    )  # fmt: skip


def _files(
    kind: str, spec: str, heldout: str | None, cache: pathlib.Path
) -> Corpus:
    """Files of one's own; `heldout` names others."""
    del cache  # nothing is built: the files are the corpus
    how, paths, every = _opened(kind, spec)
    name = f'{kind}:{spec}'
    if heldout is None and kind == 'lines':
        return Corpus(
            name, _fingerprint(how.key, paths, []), every, lambda: iter(()),
            every, _parts({'train': (how, paths)}),
        )  # fmt: skip
    if heldout is None:
        key = _fingerprint(f'{how.key}, split', paths, [])
        return _by_hash(name, key, every, _parts({'every': (how, paths)}))
    field = getattr(how, 'field', records.FIELD)
    heldout_spec = heldout.removeprefix(f'{kind}:')
    other, heldout_paths, every_heldout = _opened(kind, heldout_spec, field)
    both = {p.resolve() for p in paths} & {p.resolve() for p in heldout_paths}
    if both:
        raise ValueError(
            f'{min(both)} and {len(both) - 1} other file(s) match both '
            f'{name} and --heldout={heldout}: what is held out must not '
            'be trained on. Narrow one of the patterns.'
        )
    key = ' '.join(dict.fromkeys((how.key, other.key)))
    both = {'train': (how, paths), 'heldout': (other, heldout_paths)}
    return Corpus(
        name, _fingerprint(key, paths, heldout_paths), every, every_heldout,
        parts=_parts(both),
    )  # fmt: skip


def _opened(
    kind: str, spec: str, field: str = records.FIELD
) -> tuple[textfiles.Files, list[pathlib.Path], Documents]:
    """What reads files of a kind, and those of a pattern, looked at."""
    how, pattern = textfiles.Files(kind), spec
    if kind in records.READERS:
        pattern, field = records.parted(spec, field)
        how = records.Records(kind, field)
    paths = how.find(pattern)
    how.check(paths)
    every = functools.partial(how.read, paths, pattern)
    next(every())  # complains now where there is no text at all
    return how, paths, every


def _parts(
    groups: Mapping[str, tuple[textfiles.Files, Sequence[pathlib.Path]]],
) -> Callable[[int], list[Part]]:
    """What cuts files into parts; by kind of a part, its files."""

    def parts(size: int) -> list[Part]:
        found = []
        for of, (how, paths) in groups.items():
            together: list[list[textfiles.Piece]] = []
            room = 0
            for piece in how.pieces(paths, size):
                if not together or piece.size > room:
                    together.append([])
                    room = size
                together[-1].append(piece)
                room -= piece.size
            found += [
                Part(of, functools.partial(how.read_pieces, pieces))
                for pieces in together
            ]
        return found

    return parts


def _fingerprint(
    kind: str, paths: Sequence[pathlib.Path], heldout: Sequence[pathlib.Path]
) -> str:
    """32 hex digits of the files' paths, sizes and times of change."""
    digest = hashlib.blake2b(f'{kind} 1'.encode(), digest_size=16)
    for part in (paths, heldout):
        for path in part:
            stat = path.stat()
            record = (os.fspath(path.resolve()), stat.st_size, stat.st_mtime_ns)
            digest.update(repr(record).encode())
        digest.update(b'|')
    return digest.hexdigest()


CORPORA = {
    'pydocs': _pydocs,
    **{
        kind: functools.partial(_files, kind)
        for kind in ('text', 'lines', *records.READERS)
    },
    'tfds': _tfds,
    'store': _store,
}
