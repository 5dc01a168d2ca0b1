r"""Prepares text that is trained on often, or by many: a sharded token store.

    python -m infoword_tf.prepare --corpus='text:dump/**/*.txt' --output=DIR \
        --vocab_size=32000 --duplicates=near --min_words=20
    python -m infoword_tf.train --corpus=store:DIR --objectives=mlm ...

Text is read and tokenized in shards, one process a core. A shard that is whole
stays: a command that was stopped goes on with the others, and makes the same
bytes whatever the number of processes. The same command once more checks every
byte of a store that is finished. Without filters a run trains on a store
exactly as on its text.

Documents can be left out: those of too few or too many words, in another
language, and those that an earlier one repeats, exactly or nearly (the Jaccard
similarity of their 5-word shingles, see data/duplicates.py). What is held out
is compared too. DIR/store.json says how many documents each reason cost.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, files
from infoword_tf.choices import (
    TextChoices,
    again,
    by_language,
    flag,
    given_several,
)
from infoword_tf.data import (
    corpora,
    documents,
    duplicates,
    opened,
    sharded,
    textfiles,
)
from infoword_tf.data import store as stores
from infoword_tf.data.documents import Document

REASONS = ('short', 'long', 'language', 'duplicate', 'near')  # from 1; 0: kept
DUPLICATES = ('keep', 'exact', 'near')
MEGABYTE = 1 << 20
_LOOKED_AT = 4 * MEGABYTE  # characters of which sketches are made at a time
_ALIVE = 1.0  # seconds after which a process looks for the one that began it
_CHARACTERS = 2000  # of a document that tell its language
WORK, TRAIN, HELDOUT, SETTINGS = 'work', 'train', 'heldout', 'settings.json'


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    corpus: tuple[str, ...] = again(
        TextChoices, 'corpus', (), help='The text, as of infoword_tf.train; '
        'one, without a language. Of several languages prepare each, with '
        'one --vocab.')
    heldout: tuple[str, ...] = again(TextChoices, 'heldout', ())
    tokenizer: str | None = again(TextChoices, 'tokenizer', None)
    vocab: str | None = again(TextChoices, 'vocab', None)
    vocab_size: int | None = again(TextChoices, 'vocab_size', None)
    lower_case: bool | None = again(TextChoices, 'lower_case', None)
    language_exponent: float = 1.0
    output: str | None = flag(None, 'Folder for the store.')
    shard_size: float = flag(
        64.0, 'Megabytes of text in a shard.', at_least=1e-4)
    processes: int | None = flag(
        None, 'Shards made at a time; by default one a core.', at_least=1)
    min_words: int | None = flag(
        None, 'Documents of fewer words are left out.', at_least=1)
    max_words: int | None = flag(
        None, 'Documents of more words are left out.', at_least=1)
    language: str | None = flag(
        None, 'Documents in another language are left out, by py3langid '
        "(pip install 'infoword_tf[prepare]'); its code, as en.")
    duplicates: str = flag(
        'keep', 'Which documents are left out that an earlier one repeats: '
        'none, those of equal text, or those that are near it as well.',
        choices=DUPLICATES)
    similarity: float = flag(
        0.8, 'From which Jaccard similarity on two documents are near.',
        at_least=0.6, at_most=1.0)


class Job(NamedTuple):
    """What a process needs to know; all of it decides bytes.

    Attributes:
        given: choices, but for their number of processes.
        rule: of the corpus, if it has one.
        text: its fingerprint.
    """

    given: Choices
    rule: textfiles.HeldoutRule | None = None
    text: str = ''

    @property
    def output(self) -> pathlib.Path:
        """DIR."""
        return pathlib.Path(self.given.output)

    @property
    def is_filtered(self) -> bool:
        """Whether documents may be left out."""
        return self.given.duplicates != 'keep' or any(
            (self.given.min_words, self.given.max_words, self.given.language)
        )

    def looked(self, number: int) -> pathlib.Path:
        """What was found of the documents of a shard."""
        return self.output / WORK / f'{number:06d}.npz'

    def finished(self, number: int) -> pathlib.Path:
        """What says that a shard is whole."""
        return self.output / WORK / f'{number:06d}.json'

    def folder(self, part: str, number: int) -> pathlib.Path:
        """Its tokens to train on, or those that it holds out."""
        parent = self.output / (TRAIN if part == TRAIN else f'{WORK}/{part}')
        return parent / f'{number:06d}'


# ------------------------------------------------------------ in one process


@functools.lru_cache(1)
def _parts(job: Job) -> list[corpora.Part]:
    """The corpus in parts; opened once a process."""
    corpus = _opened(job.given)
    if corpus.fingerprint != job.text:
        raise _changed(job)
    size = max(1, int(job.given.shard_size * MEGABYTE))
    return corpora.parts_of(corpus, size)


def _opened(given: Choices) -> corpora.Corpus:
    (name,) = given_several(given.corpus)
    heldout = given_several(given.heldout)
    return corpora.open_corpus(name, heldout[0] if heldout else None)


def _changed(job: Job) -> ValueError:
    return ValueError(
        f'{" ".join(job.given.corpus)} has changed while it was read, or '
        f'{job.output} lies among its files; leave the text alone, or name '
        f'another --output, delete {job.output} and run again'
    )


@functools.lru_cache(1)
def _tokenizer(job: Job) -> Any:
    from infoword_tf.config import TokenizerConfig
    from infoword_tf.text.tokenizers import TOKENIZERS

    settings = json.loads((job.output / WORK / SETTINGS).read_text())
    config = TokenizerConfig(**settings['tokenizer'])
    kind = TOKENIZERS[config.kind]
    path = job.output / WORK / kind.file
    return kind.read(path, config.lower_case, **config.options)


@functools.lru_cache(1)
def _identifier(language: str) -> Any:
    """Text -> the code of its language.

    Raises:
        UsageError: py3langid is not installed, or does not know the language.
    """
    try:
        import py3langid
    except ImportError as error:
        raise commands.UsageError(
            f'--language needs py3langid ({error}): pip install py3langid, or '
            'leave it out'
        ) from None
    known = sorted(code for code, _ in py3langid.rank(''))
    if language not in known:
        raise commands.UsageError(
            f'--language={language}: py3langid knows {", ".join(known)}'
        )
    return lambda text: py3langid.classify(text[:_CHARACTERS])[0]


def reason(document: Document, given: Choices) -> int:
    """Why a document is left out by itself: its number in REASONS; 0: not."""
    if given.min_words or given.max_words:
        words = document.text.count(' ') + bool(document.sentences)
        if given.min_words and words < given.min_words:
            return 1 + REASONS.index('short')
        if given.max_words and words > given.max_words:
            return 1 + REASONS.index('long')
    language = given.language
    if language and _identifier(language)(document.text) != language:
        return 1 + REASONS.index('language')
    return 0


def look(job: Job, number: int) -> None:
    """Finds what decides which documents of a part are kept."""
    reasons, hashes, waiting = [], [], []
    sketches = [np.zeros((0, duplicates.BINS), np.uint16)]
    is_near, size = job.given.duplicates == 'near', 0
    for document in _parts(job)[number].read():
        reasons.append(reason(document, job.given))
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


def write(job: Job, number: int, dropped: np.ndarray | None) -> None:
    """Tokenizes the documents of a part that are kept.

    Args:
        dropped: [documents of the part] bool; None: all are kept.
    """
    part, tokenizer = _parts(job)[number], _tokenizer(job)
    held: list[Document] = []
    beyond = 0

    def kept() -> Iterator[Document]:
        place = -1
        for place, document in enumerate(part.read()):
            if dropped is not None and place >= len(dropped):
                raise _changed(job)
            if dropped is None or not dropped[place]:
                yield document
        if dropped is not None and place + 1 != len(dropped):
            raise _changed(job)

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

    made = {}
    for some, texts in (
        (TRAIN, {'train': kept, 'every': training}.get(part.kind, tuple)()),
        (HELDOUT, kept() if part.kind == HELDOUT else held),
    ):
        folder, texts = job.folder(some, number), iter(texts)
        shutil.rmtree(folder, ignore_errors=True)
        first = next(texts, None)
        if first is not None:
            stores.write_store(
                folder, itertools.chain([first], texts), tokenizer,
                progress=False,
            )  # fmt: skip
            made[some] = list(sharded.describe(folder))
    files.write_json(job.finished(number), {**made, 'beyond': beyond})


def _begin(threads: int, parent: int) -> None:
    """A process of several: its share of the cores, and no GPU.

    It ends with the one that began it, however that ended.
    """
    os.environ['TF_NUM_INTRAOP_THREADS'] = str(threads)
    os.environ['TF_NUM_INTEROP_THREADS'] = '1'
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_ALIVE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------- all of it


def _each(
    work: Callable[..., None],
    job: Job,
    calls: Mapping[int, Sequence[Any]],
    processes: int,
    what: str,
) -> None:
    """Calls `work(job, number, ...)` for some shards, several at a time.

    Raises:
        RuntimeError: a process was killed.
    """
    import tqdm

    parts = _parts(job)
    total = sum(parts[number].size for number in calls)
    with tqdm.tqdm(
        desc=what, total=total or len(calls), unit='B' if total else ' shards',
        unit_scale=True, disable=not calls,
    ) as bar:  # fmt: skip

        def advance(number: int) -> None:
            bar.update(parts[number].size if total else 1)

        if processes == 1 or len(calls) < 2:
            for number, more in calls.items():
                work(job, number, *more)
                advance(number)
            return
        pool = concurrent.futures.ProcessPoolExecutor(
            min(processes, len(calls)),
            multiprocessing.get_context('spawn'),
            _begin,
            (max(1, files.cpus() // processes), os.getpid()),
        )
        try:
            waiting = {
                pool.submit(work, job, number, *more): number
                for number, more in calls.items()
            }
            for done in concurrent.futures.as_completed(waiting):
                done.result()
                advance(waiting[done])
        except concurrent.futures.process.BrokenProcessPool:
            raise RuntimeError(
                'a process was killed, perhaps for want of memory; the same '
                'command goes on with what is not finished, and takes less '
                'with fewer --processes'
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def decided(job: Job, count: int) -> list[np.ndarray]:
    """By part, why each of its documents is left out, uint8; 0: it is not."""
    reasons, hashes = [], []
    for number in range(count):
        with np.load(job.looked(number)) as found:
            reasons.append(found['reasons'])
            hashes.append(found['hashes'])
    ends = np.cumsum([len(x) for x in reasons])
    every = np.concatenate(reasons)
    if job.given.duplicates != 'keep':
        left = np.flatnonzero(every == 0)
        again = duplicates.repeated(np.concatenate(hashes)[left])
        every[left[again]] = 1 + REASONS.index('duplicate')
    if job.given.duplicates == 'near':
        left = np.flatnonzero(every == 0)
        # All of them once: they are most of what is in memory.
        sketches = np.empty((len(left), duplicates.BINS), np.uint16)
        begin = 0
        for number, kept in enumerate(np.split(every == 0, ends[:-1])):
            with np.load(job.looked(number)) as found:
                end = begin + int(kept.sum())
                sketches[begin:end] = found['sketches'][kept]
                begin = end
        again = duplicates.near(sketches, job.given.similarity)
        every[left[again]] = 1 + REASONS.index('near')
    return np.split(every, ends[:-1])


def _check(given: Choices) -> None:
    """Complains of choices before anything is read."""
    commands.require(vars(given), corpus='a text', output='a folder for it')
    for name in ('corpus', 'heldout'):
        values = given_several(getattr(given, name))
        if len(values) > 1 or any(by_language(values)):
            raise commands.UsageError(
                f'--{name}={" ".join(values)}: a store has one text, without '
                'a language; prepare each with the same --vocab, and train '
                'with --corpus=de=store:DIR for each'
            )
    name = given_several(given.corpus)[0]
    if name.startswith('store:'):
        raise commands.UsageError(f'--corpus={name} is prepared already')
    if name.startswith('lines:') and Job(given).is_filtered:
        raise commands.UsageError(
            f'--corpus={name} is one text, of which no line can be left out; '
            'leave out --min_words, --max_words, --language and --duplicates'
        )
    if (given.min_words or 0) > (given.max_words or np.inf):
        raise commands.UsageError(
            f'--max_words={given.max_words} is below --min_words='
            f'{given.min_words}: nothing would be left'
        )
    if given.language:
        _identifier(given.language)


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command; returns what store.json says, without its shards.

    Raises:
        UsageError: choices that do not go together, or the folder holds
            another store.
        ValueError: of the text, as the message says.
        RuntimeError: another command writes to the folder.
    """
    _check(given)
    opened.choose_tokenizer(given)  # complains
    folder = pathlib.Path(given.output).expanduser()
    processes = given.processes or files.cpus()
    if 'similarity' in chosen and given.duplicates != 'near':
        raise commands.UsageError(
            f'--similarity={given.similarity} goes with --duplicates=near'
        )
    with files.locked(folder):
        # Hashable, and what decides bytes alone.
        same = dataclasses.replace(
            given,
            corpus=given_several(given.corpus),
            heldout=given_several(given.heldout),
            output=str(folder),
            processes=None,
        )
        corpus = _opened(same)
        rule = corpus.rule() if corpus.rule is not None else None
        job = Job(same, rule, corpus.fingerprint)
        _parts.cache_clear()
        _tokenizer.cache_clear()
        asked = _asked(job, corpus)
        if (folder / sharded.INDEX).exists():
            there = sharded.open_prepared(folder)
            index = there.index
            _check_same(folder, index['asked'], asked)
            there.check()
        else:
            index = _made(job, corpus, asked, processes)
        shutil.rmtree(folder / WORK, ignore_errors=True)
    print(
        f'{folder}: {index["tokens"]:,} tokens of '
        f'{index["documents"]["train"]:,} documents to train on, '
        f'{index["documents"]["heldout"]:,} held out; left out: '
        + (
            ', '.join(f'{n:,} {x}' for x, n in index['left_out'].items())
            or 'none'
        ),
        flush=True,
    )
    return _said(index)


def _made(
    job: Job, corpus: corpora.Corpus, asked: dict[str, Any], processes: int
) -> Mapping[str, Any]:
    """Makes a store, or what it lacks; returns its index."""
    tokenizer = _begun(job, corpus, asked)
    parts = _parts(job)
    reasons: list[np.ndarray] | None = None
    if job.is_filtered:
        todo = [n for n in range(len(parts)) if not job.looked(n).exists()]
        _each(look, job, dict.fromkeys(todo, ()), processes, 'reading')
        reasons = decided(job, len(parts))
    calls = {
        number: (None if reasons is None else reasons[number] > 0,)
        for number in range(len(parts))
        if not job.finished(number).exists()
    }
    _each(write, job, calls, processes, 'tokenizing')
    return _finish(job, len(parts), corpus, tokenizer, asked, reasons)


def _asked(job: Job, corpus: corpora.Corpus) -> dict[str, Any]:
    """What decides the bytes of a store."""
    values = dataclasses.asdict(job.given)
    del values['output'], values['processes'], values['language_exponent']
    if values['vocab']:
        values['vocab'] = files.digest_of(pathlib.Path(values['vocab']))
    # As JSON gives it back.
    return json.loads(
        json.dumps(
            values | {
                'text': corpus.fingerprint,
                'splitting': documents.SPLITTING,
            }
        )
    )


def _check_same(
    folder: pathlib.Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    differing = [name for name in now if before.get(name) != now[name]]
    if differing:
        name = differing[0]
        what = 'its text has changed' if name == 'text' else (
            f'--{name} was {before.get(name)!r} and is {now[name]!r}'
        )
        raise commands.UsageError(
            f'--output={folder} was begun otherwise: {what}; name another '
            'folder, or delete this one'
        )


def _begun(job: Job, corpus: corpora.Corpus, asked: dict[str, Any]) -> Any:
    """Begins a store, or goes on with it; gives its tokenizer."""
    work = job.output / WORK
    path = work / SETTINGS
    if path.exists():
        settings = json.loads(path.read_text())
        _check_same(job.output, settings['asked'], asked)
        tokenizer = _tokenizer(job)
    else:
        others = [x.name for x in job.output.iterdir()
                  if x.name not in ('.lock', WORK)]  # fmt: skip
        if others or (work.is_dir() and any(work.glob('[!.]*/'))):
            raise commands.UsageError(
                f'--output={job.output} holds {min([*others, WORK])} and is no '
                'store; name another folder'
            )
        tokenizer = opened.open_tokenizer(
            job.given, {'': corpus}, corpora.cache_dir()
        )
        work.mkdir(exist_ok=True)
        with files.written(work / type(tokenizer).file) as partial:
            tokenizer.write(partial)
        config = dataclasses.asdict(tokenizer.config)
        files.write_json(path, {'asked': asked, 'tokenizer': config})
    # What a process left that was killed.
    for folder in (job.output / TRAIN, work / HELDOUT):
        for partial in folder.glob('[0-9]*.*/'):
            shutil.rmtree(partial)
    for partial in job.output.glob(f'{HELDOUT}.*/'):
        shutil.rmtree(partial)
    for folder in (job.output, job.output / TRAIN, work):
        for partial in folder.glob('.*.[0-9]*'):
            partial.unlink()
    return tokenizer


def _finish(
    job: Job,
    count: int,
    corpus: corpora.Corpus,
    tokenizer: Any,
    asked: dict[str, Any],
    reasons: list[np.ndarray] | None,
) -> Mapping[str, Any]:
    """Puts shards together; the index is what makes it a store."""
    made = [json.loads(job.finished(n).read_text()) for n in range(count)]
    shards = [sharded.Shard(*x[TRAIN]) for x in made if TRAIN in x]
    held = [n for n, x in enumerate(made) if HELDOUT in x]
    for some, what in ((shards, 'training'), (held, 'held-out')):
        if not some:
            raise commands.UsageError(
                f'{corpus.name}: no {what} documents are left; give more '
                'text, leave out fewer, or name held-out files with --heldout '
                f'(and another --output, or delete {job.output})'
            )
    limit = None if job.rule is None else textfiles.MAX_HELDOUT
    folder = job.output / HELDOUT
    shutil.rmtree(folder, ignore_errors=True)
    joined = stores.join(
        folder,
        [stores.open_store(job.folder(HELDOUT, n), tokenizer) for n in held],
        limit,
        tokenizer,
    )
    if _opened(job.given).fingerprint != job.text:
        raise _changed(job)
    heldout = len(joined.documents) - 1
    lost = collections.Counter(
        int(x) for part in reasons or () for x in part if x
    )
    left_out = {
        name: lost[number]
        for number, name in enumerate(REASONS, 1)
        if lost[number]
    }
    written = (sharded.Shard(*made[n][HELDOUT]).documents for n in held)
    beyond = sum(x['beyond'] for x in made) + sum(written) - heldout
    if beyond:
        left_out['beyond the held-out'] = beyond
    identity = opened.identity_of(tokenizer)
    key = json.dumps([asked, identity], sort_keys=True).encode()
    vocabulary = type(tokenizer).file
    with files.written(job.output / vocabulary) as partial:
        shutil.copyfile(job.output / WORK / vocabulary, partial)
    return sharded.write_index(
        job.output,
        shards,
        {
            'fingerprint': hashlib.blake2b(key, digest_size=16).hexdigest(),
            'identity': identity,
            'tokenizer': dataclasses.asdict(tokenizer.config),
            'vocabulary': vocabulary,
            'documents': {
                'train': sum(shard.documents for shard in shards),
                'heldout': heldout,
            },
            'left_out': left_out,
            'asked': asked,
        },
    )


def _said(index: Mapping[str, Any]) -> dict[str, Any]:
    return {k: x for k, x in index.items() if k not in ('shards', 'asked')}


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with what is not finished'
    )
