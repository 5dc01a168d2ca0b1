"""Writer of a prepared store: shards in any order, joined at last.

`write` knows nothing but a `Job` and writes whole files or none, so that any
process of any machine that reaches the text and the folder may call it, in any
order, and again. Until `finish` the folder of the store then has

    work/settings.json, vocab.txt   the choices, and the tokenizer
    work/000000.done.json           a shard that `write` has finished
    work/heldout/000000/            held-out text of the shard
    train/000000/                   training text of the shard
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.data import corpora, opened, sharded, textfiles
from infoword_tf.data import store as stores
from infoword_tf.data.documents import Document

WORK, TRAIN, HELDOUT, SETTINGS = 'work', 'train', 'heldout', 'settings.json'


class Job(NamedTuple):
    """Description of a store to make, which decides all bytes.

    Attributes:
        output: DIR.
        corpus: name of the text.
        heldout: name of the held-out text; None: documents of the corpus.
        shard_size: bytes of text in a shard.
        rule: decides which documents are held out, where the corpus does not.
        text: fingerprint of the corpus.
    """

    output: pathlib.Path
    corpus: str
    heldout: str | None
    shard_size: int
    rule: textfiles.HeldoutRule | None
    text: str

    def open(self) -> corpora.Corpus:
        """Opens the text; ValueError: changed since the job began."""
        corpus = corpora.open_corpus(self.corpus, self.heldout)
        if corpus.fingerprint != self.text:
            raise errors.InputError(
                'corpus_changed',
                f'{self.corpus} has changed while it was read, or '
                f'{self.output} lies among its files; leave the text alone, or '
                f'name another --output, delete {self.output} and run again',
            )
        return corpus

    def finished(self, number: int) -> pathlib.Path:
        """Returns the file that exists once a shard is whole."""
        return self.output / WORK / f'{number:06d}.done.json'

    def folder(self, split: str, number: int) -> pathlib.Path:
        """Returns the folder of a shard's training or held-out tokens."""
        parent = self.output if split == TRAIN else self.output / WORK
        return parent / split / f'{number:06d}'


@functools.lru_cache(1)
def chunks(job: Job) -> list[corpora.CorpusChunk]:
    """Divides the corpus, a chunk a shard; opened once a process."""
    return corpora.chunks_of(job.open(), job.shard_size)


@functools.lru_cache(1)
def tokenizer(job: Job) -> Any:
    """Reads the tokenizer of all shards."""
    settings = files.read_json(job.output / WORK / SETTINGS)
    return sharded.read_tokenizer(job.output / WORK, settings['tokenizer'])


def write(number: int, job: Job) -> None:
    """Tokenizes the documents of a shard."""
    chunk = chunks(job)[number]
    held: list[Document] = []
    beyond = lacking = 0

    def counted() -> Iterator[Document]:
        nonlocal lacking
        lacking = (yield from chunk.read()) or 0

    rule = job.rule or textfiles.BY_HASH

    def training() -> Iterator[Document]:
        nonlocal beyond
        for document in counted():
            trained, out = rule.divide(document)
            if out is not None:
                # No more are held out of all shards together.
                if len(held) == textfiles.MAX_HELDOUT:
                    beyond += 1
                else:
                    held.append(out)
            if trained is not None:
                yield trained

    # Where a rule divides the text, `held` is full when `training` has ended.
    readers: dict[str, dict[str, Callable[[], Iterable[Document]]]] = {
        'train': {TRAIN: counted},
        'heldout': {HELDOUT: counted},
        'every': {TRAIN: training, HELDOUT: lambda: held},
    }
    for name, texts in readers[chunk.kind].items():
        folder, documents = job.folder(name, number), iter(texts())
        shutil.rmtree(folder, ignore_errors=True)
        if first := next(documents, None):
            documents = itertools.chain([first], documents)
            stores.write_store(folder, documents, tokenizer(job), False)
    counts = {'beyond': beyond, 'lacking': lacking}
    files.write_json(job.finished(number), counts)


def finish(job: Job, count: int, decisive: Mapping[str, Any]) -> dict[str, Any]:
    """Joins `count` shards into a store; returns the index.

    `decisive` is all that decided the bytes, for the index.

    Raises:
        ValueError: no document is trained on, or held out; the text has
            changed.
    """
    train, held = (
        [folder for number in range(count)
         if (folder := job.folder(split, number)).is_dir()]
        for split in (TRAIN, HELDOUT)
    )  # fmt: skip
    for folders, kind in ((train, 'training'), (held, 'held-out')):
        if not folders:
            raise errors.InputError(
                'store_without_documents',
                f'{job.corpus} has no {kind} documents; give more text, or '
                'name held-out files with --heldout (and another --output, or '
                f'delete {job.output})',
            )
    job.open()  # raises if the text has changed
    learned = tokenizer(job)
    heldout, left_out = _join_heldout(job, held, count)
    metas = [files.read_json(folder / stores.META) for folder in train]
    shards = [
        sharded.Shard(
            folder.name, meta['tokens'], meta['documents'],
            *(meta[stores.SUMS][f'{name}.bin'] for name in ('ids', 'flags')),
        )
        for folder, meta in zip(train, metas, strict=True)
    ]  # fmt: skip
    tokens = [shard.tokens for shard in shards]
    paths = _write_whole(job, train, tokens)
    paths += sorted((job.output / HELDOUT).iterdir())
    identity = opened.identity_of(learned)
    key = json.dumps([decisive, identity], sort_keys=True).encode()
    index = {
        'version': sharded.VERSION,
        'dtype': metas[0]['dtype'],
        'tokens': sum(tokens),
        'fingerprint': hashlib.blake2b(key, digest_size=16).hexdigest(),
        'identity': identity,
        'tokenizer': dataclasses.asdict(learned.config),
        'vocabulary': paths[0].name,
        'documents': {
            'train': sum(shard.documents for shard in shards),
            'heldout': heldout,
        },
        'left_out': {why: n for why, n in left_out.items() if n},
        'asked': decisive,
        'files': {
            str(path.relative_to(job.output)): stores.crc(path)
            for path in paths
        },
        'shards': shards,
    }
    files.write_json(job.output / sharded.INDEX, index)
    return index


def _join_heldout(
    job: Job, held: Sequence[pathlib.Path], count: int
) -> tuple[int, dict[str, int]]:
    """Joins the held-out documents of `count` shards into one store.

    Returns:
        How many there are, and how many documents are left out, by the reason.
    """
    folder = job.output / HELDOUT
    shutil.rmtree(folder, ignore_errors=True)
    learned = tokenizer(job)
    of_shards = [stores.open_store(x, learned) for x in held]
    limit = None if job.rule is None else textfiles.MAX_HELDOUT
    joined = stores.join(folder, of_shards, limit, learned)
    numbers = [len(store.documents) - 1 for store in (joined, *of_shards)]
    done = [files.read_json(job.finished(number)) for number in range(count)]
    return numbers[0], {
        'beyond the held-out': sum(x['beyond'] for x in done)
        + sum(numbers[1:]) - numbers[0],
        'without a text': sum(x.get('lacking', 0) for x in done),
    }  # fmt: skip


def _write_whole(
    job: Job, train: Sequence[pathlib.Path], tokens: Sequence[int]
) -> list[pathlib.Path]:
    """Writes the files of all shards together: vocabulary, counts, documents.

    Args:
        job: whose output they lie in.
        train: folders of the shards.
        tokens: numbers of tokens, by shard.

    Returns:
        The files, the vocabulary first.
    """
    ends = np.cumsum([0, *tokens])
    begins = [
        files.read_integers(folder / 'documents.npy')[:-1] + end
        for folder, end in zip(train, ends, strict=False)
    ]
    whole = {
        'counts': sum(files.read_integers(x / 'counts.npy') for x in train),
        'documents': np.concatenate([*begins, ends[-1:]]),
    }
    paths = [job.output / type(tokenizer(job)).file]
    with files.written(paths[0]) as partial:
        shutil.copyfile(job.output / WORK / paths[0].name, partial)
    for name, array in whole.items():
        paths.append(job.output / TRAIN / f'{name}.npy')
        with files.written(paths[-1]) as partial, open(partial, 'wb') as file:
            np.save(file, array)
    return paths
