"""One shard of a prepared store: its text is looked at, then tokenized.

`look` finds what decides which documents of a shard are kept, `decided` says
it of all shards together, and `write` makes the tokens of those. Each knows
nothing but a `Job` and writes whole files or none, so that any process of any
machine that reaches the text and the folder may call it, in any order, and
again. The folder of the store then has

    work/settings.json, vocab.txt   what was asked, and the tokenizer
    work/000000.npz                 what `look` found
    work/sketches.bin               that of all shards, while it is compared
    work/000000.done.json           a shard that `write` has finished
    work/heldout/000000/            what it holds out
    train/000000/                   what is trained on
"""

import functools
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import corpora, documents, duplicates, sharded, textfiles
from infoword_tf.data import store as stores
from infoword_tf.data.documents import Document
from infoword_tf.data.filters import REASONS, Filters, number_of

WORK, TRAIN, HELDOUT, SETTINGS = 'work', 'train', 'heldout', 'settings.json'
_LOOKED_AT = 1 << 20  # characters of which sketches are made at a time


class Job(NamedTuple):
    """What whoever makes a shard needs to know; all of it decides bytes.

    Attributes:
        output: DIR.
        corpus: its name.
        heldout: what else is held out; None: a part of the corpus.
        shard_size: bytes of text in a shard.
        filters: which documents are kept.
        rule: of the corpus, if it has one.
        text: its fingerprint.
    """

    output: pathlib.Path
    corpus: str
    heldout: str | None
    shard_size: int
    filters: Filters
    rule: textfiles.HeldoutRule | None = None
    text: str = ''

    def opened(self) -> corpora.Corpus:
        """The text, as it is now."""
        return corpora.open_corpus(self.corpus, self.heldout)

    def looked(self, number: int) -> pathlib.Path:
        """What was found of the documents of a shard."""
        return self.output / WORK / f'{number:06d}.npz'

    def finished(self, number: int) -> pathlib.Path:
        """What says that a shard is whole."""
        return self.output / WORK / f'{number:06d}.done.json'

    def folder(self, part: str, number: int) -> pathlib.Path:
        """Its tokens to train on, or those that it holds out."""
        parent = self.output / (TRAIN if part == TRAIN else f'{WORK}/{part}')
        return parent / f'{number:06d}'

    def changed(self) -> ValueError:
        """The complaint that the text is no longer the same."""
        return ValueError(
            f'{self.corpus} has changed while it was read, or {self.output} '
            'lies among its files; leave the text alone, or name another '
            f'--output, delete {self.output} and run again'
        )


@functools.lru_cache(1)
def parts(job: Job) -> list[corpora.Part]:
    """The corpus in parts, of each a shard; opened once a process."""
    corpus = job.opened()
    if corpus.fingerprint != job.text:
        raise job.changed()
    return corpora.parts_of(corpus, job.shard_size)


@functools.lru_cache(1)
def tokenizer(job: Job) -> Any:
    """That of all shards."""
    from infoword_tf.text.tokenizers import TOKENIZERS

    settings = json.loads((job.output / WORK / SETTINGS).read_text())
    config = TokenizerConfig(**settings['tokenizer'])
    kind = TOKENIZERS[config.kind]
    path = job.output / WORK / kind.file
    return kind.read(path, config.lower_case, **config.options)


def look(job: Job, number: int) -> None:
    """Finds what decides which documents of a part are kept."""
    reasons, hashes, waiting = [], [], []
    sketches = [np.zeros((0, duplicates.BINS), np.uint16)]
    is_near, size = job.filters.duplicates == 'near', 0
    part = parts(job)[number]
    for document in (part.texts or part.read)():
        reasons.append(job.filters.reason(document))
        hashes.append(documents.text_hash(document.text))
        if is_near:
            waiting.append(document.text)
            size += len(document.text) + 1
            if size >= _LOOKED_AT:
                sketches.append(duplicates.sketches(waiting))
                waiting, size = [], 0
    if waiting:
        sketches.append(duplicates.sketches(waiting))
    path = job.looked(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.written(path) as partial, open(partial, 'wb') as file:
        np.savez(
            file,
            reasons=np.array(reasons, np.uint8),
            hashes=np.array(hashes, np.uint64),
            sketches=np.concatenate(sketches),
        )


def decided(job: Job, count: int) -> list[np.ndarray]:
    """By part, why each of its documents is left out, uint8; 0: it is not."""
    reasons, hashes = [], []
    for number in range(count):
        with np.load(job.looked(number)) as found:
            reasons.append(found['reasons'])
            hashes.append(found['hashes'])
    ends = np.cumsum([len(x) for x in reasons])
    every = np.concatenate(reasons)
    if job.filters.duplicates != 'keep':
        left = np.flatnonzero(every == 0)
        again = duplicates.repeated(np.concatenate(hashes)[left])
        every[left[again]] = number_of('duplicate')
    if job.filters.duplicates == 'near':
        left = np.flatnonzero(every == 0)
        # In a file: of many documents they are more than memory has.
        path = job.output / WORK / 'sketches.bin'
        with open(path, 'wb') as file:
            for number, kept in enumerate(np.split(every == 0, ends[:-1])):
                with np.load(job.looked(number)) as found:
                    found['sketches'][kept].tofile(file)
        sketches = np.zeros((0, duplicates.BINS), np.uint16)
        if len(left):
            sketches = np.memmap(path, np.uint16, 'r').reshape(
                -1, duplicates.BINS
            )
        again = duplicates.near(sketches, job.filters.similarity)
        every[left[again]] = number_of('near')
    return np.split(every, ends[:-1])


def write(job: Job, number: int, reasons: np.ndarray | None) -> None:
    """Tokenizes the documents of a part that are kept.

    Args:
        reasons: [documents of the part] uint8 of `decided`; None: all are
            kept.
    """
    part = parts(job)[number]
    held: list[Document] = []
    beyond = lacking = 0

    def counted() -> Iterator[Document]:
        nonlocal lacking
        lacking = yield from part.read()

    def kept() -> Iterator[Document]:
        place = -1
        for place, document in enumerate(counted()):
            if reasons is not None and place >= len(reasons):
                raise job.changed()
            if reasons is None or not reasons[place]:
                yield document
        if reasons is not None and place + 1 != len(reasons):
            raise job.changed()

    def training() -> Iterator[Document]:
        nonlocal beyond
        for document in kept():
            trained, out = job.rule.parted(document)
            if out is not None:
                # No more are held out of all parts together.
                if len(held) == textfiles.MAX_HELDOUT:
                    beyond += 1
                else:
                    held.append(out)
            if trained is not None:
                yield trained

    made: dict[str, Any] = {}
    for some, texts in (
        (TRAIN, {'train': kept, 'every': training}.get(part.kind, tuple)()),
        (HELDOUT, kept() if part.kind == HELDOUT else held),
    ):
        folder, texts = job.folder(some, number), iter(texts)
        shutil.rmtree(folder, ignore_errors=True)
        first = next(texts, None)
        if first is not None:
            stores.write_store(
                folder, itertools.chain([first], texts), tokenizer(job),
                progress=False,
            )  # fmt: skip
            made[some] = list(sharded.describe(folder))
    made['beyond'], made['lacking'] = beyond, lacking or 0
    made['left_out'] = {} if reasons is None else {
        name: int(np.count_nonzero(reasons == number_of(name)))
        for name in REASONS
    }
    files.write_json(job.finished(number), made)

