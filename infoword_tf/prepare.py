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

--beam_options=runner=... gives the shards to a pipeline of Apache Beam, with
the same bytes (data/beam.py).
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import shutil
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands, files, lazy
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
    filters,
    opened,
    sharded,
    sharding,
    textfiles,
)
from infoword_tf.data import store as stores
from infoword_tf.data.sharding import HELDOUT, SETTINGS, TRAIN, WORK, Job

MEGABYTE = 1 << 20
_ALIVE = 1.0  # seconds after which a process looks for the one that began it


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
    beam_options: tuple[str, ...] = flag(
        (), 'Shards are made by a pipeline of Apache Beam with these options, '
        "as runner=DirectRunner (pip install 'infoword_tf[beam]').")
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
        choices=filters.DUPLICATES)
    similarity: float = flag(
        0.8, 'From which Jaccard similarity on two documents are near.',
        at_least=0.6, at_most=1.0)


def _begin(threads: int, parent: int) -> None:
    """A process of several: its share of the cores, and no GPU.

    It ends with the one that began it, however that ended.
    """
    lazy.lean()
    os.environ['TF_NUM_INTRAOP_THREADS'] = str(threads)
    os.environ['TF_NUM_INTEROP_THREADS'] = '1'
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_ALIVE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_processes(job: Job, count: int, processes: int) -> None:
    """Makes what is not finished of so many shards, on this machine."""
    reasons: list[np.ndarray] | None = None
    if job.filters.are_any:
        todo = [n for n in range(count) if not job.looked(n).exists()]
        _each(
            sharding.look, job, dict.fromkeys(todo, ()), processes, 'reading'
        )
        reasons = sharding.decided(job, count)
    calls = {
        number: (None if reasons is None else reasons[number],)
        for number in range(count)
        if not job.finished(number).exists()
    }
    _each(sharding.write, job, calls, processes, 'tokenizing')


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

    parts = sharding.parts(job)
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


def _job(given: Choices) -> Job:
    """What is asked for; of a text that nobody has looked at."""
    (name,) = given_several(given.corpus)
    heldout = given_several(given.heldout)
    return Job(
        pathlib.Path(given.output).expanduser(),
        name,
        heldout[0] if heldout else None,
        max(1, int(given.shard_size * MEGABYTE)),
        filters.Filters(
            *(getattr(given, name) for name in filters.Filters._fields)
        ),
    )


def _check(given: Choices) -> None:
    """Complains of choices before anything is read."""
    commands.require(vars(given), corpus='a text', output='a folder for it')
    if '://' in given.output:
        raise commands.UsageError(
            f'--output={given.output} is no folder of this machine; write to '
            'one, and copy it there: --corpus=store:... reads it from there'
        )
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
    if name.startswith('lines:') and _job(given).filters.are_any:
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
        filters.language_of(given.language)
    if given.beam_options:
        if given.processes:
            raise commands.UsageError(
                f'--processes={given.processes} is for this machine, and the '
                'runner of --beam_options has workers of its own; leave out '
                'one of the two'
            )
        _pipeline()


def _pipeline() -> types.ModuleType:
    """The module that needs Apache Beam; UsageError: it is not installed."""
    try:
        from infoword_tf.data import beam
    except ImportError as error:
        raise commands.UsageError(
            f'--beam_options needs Apache Beam ({error}): make an environment '
            "with pip install 'infoword_tf[beam]', or leave it out"
        ) from None
    return beam


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
    job = _job(given)
    folder = job.output
    if 'similarity' in chosen and given.duplicates != 'near':
        raise commands.UsageError(
            f'--similarity={given.similarity} goes with --duplicates=near'
        )
    with files.locked(folder):
        corpus = job.opened()
        rule = corpus.rule() if corpus.rule is not None else None
        job = job._replace(rule=rule, text=corpus.fingerprint)
        sharding.parts.cache_clear()
        sharding.tokenizer.cache_clear()
        asked = _asked(given, corpus)
        if (folder / sharded.INDEX).exists():
            there = sharded.open_prepared(folder)
            index = there.index
            _check_same(folder, index['asked'], asked)
            there.check()
        else:
            index = _made(given, job, corpus, asked)
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
    given: Choices, job: Job, corpus: corpora.Corpus, asked: dict[str, Any]
) -> Mapping[str, Any]:
    """Makes a store, or what it lacks; returns its index."""
    tokenizer = _begun(given, job, corpus, asked)
    count = len(sharding.parts(job))
    if given.beam_options:
        _pipeline().make(job, count, given.beam_options)
    else:
        _in_processes(job, count, given.processes or files.cpus())
    return _finish(job, count, corpus, tokenizer, asked)


def _asked(given: Choices, corpus: corpora.Corpus) -> dict[str, Any]:
    """What decides the bytes of a store."""
    values = dataclasses.asdict(given)
    for name in ('output', 'processes', 'beam_options', 'language_exponent'):
        del values[name]
    for name in ('corpus', 'heldout'):
        values[name] = given_several(values[name])
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


def _begun(
    given: Choices, job: Job, corpus: corpora.Corpus, asked: dict[str, Any]
) -> Any:
    """Begins a store, or goes on with it; gives its tokenizer."""
    work = job.output / WORK
    path = work / SETTINGS
    if path.exists():
        settings = json.loads(path.read_text())
        _check_same(job.output, settings['asked'], asked)
        tokenizer = sharding.tokenizer(job)
    else:
        others = [x.name for x in job.output.iterdir()
                  if x.name not in ('.lock', WORK)]  # fmt: skip
        if others or (work.is_dir() and any(work.glob('[!.]*/'))):
            raise commands.UsageError(
                f'--output={job.output} holds {min([*others, WORK])} and is no '
                'store; name another folder'
            )
        tokenizer = opened.open_tokenizer(
            given, {'': corpus}, files.cache_dir()
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
    if job.opened().fingerprint != job.text:
        raise job.changed()
    heldout = len(joined.documents) - 1
    left_out = {
        name: lost
        for name in filters.REASONS
        if (lost := sum(x['left_out'].get(name, 0) for x in made))
    }
    written = (sharded.Shard(*made[n][HELDOUT]).documents for n in held)
    beyond = sum(x['beyond'] for x in made) + sum(written) - heldout
    if beyond:
        left_out['beyond the held-out'] = beyond
    if lacking := sum(x['lacking'] for x in made):
        left_out['without a text'] = lacking
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
