r"""Prepares text that is trained on often, or by many: a sharded token store.

    python -m infoword_tf.prepare --corpus='text:dump/**/*.txt' --output=DIR \
        --vocab_size=32000
    python -m infoword_tf.train --corpus=store:DIR --objectives=mlm ...

Text is tokenized in shards, one process a core. Finished shards stay: a command
that was stopped continues with the others, and makes the same bytes whatever
the number of processes. The same command once more checks every byte of a
finished store. A run trains on a store exactly as on its text.

--beam_options=runner=... gives the shards to a pipeline of Apache Beam, with
the same bytes (data/beam.py).
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import commands, errors, files, lazy
from infoword_tf.choices import (
    TextChoices,
    again,
    by_language,
    flag,
    values_of,
)
from infoword_tf.data import corpora, documents, opened, sharded, sharding
from infoword_tf.data.sharding import SETTINGS, TRAIN, WORK, Job

MEGABYTE = 1 << 20
_ALIVE = 1.0  # seconds after which a process looks for the one that began it
# Choices of older versions, with the values that filter nothing, so that equal
# text still is an equal store.
_FORMERLY = {
    'min_words': None, 'max_words': None, 'language': None,
    'duplicates': 'keep', 'similarity': 0.8,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PrepareChoices:
    """Choices of the command."""

    corpus: tuple[str, ...] = again(
        TextChoices, 'corpus', (), help='The text, as of infoword_tf.train; '
        'one, without a language. Of several languages prepare each, with '
        'one --vocab.')
    heldout: tuple[str, ...] = again(TextChoices, 'heldout', ())
    tokenizer: str | None = again(TextChoices, 'tokenizer', None)
    vocab: str | None = again(TextChoices, 'vocab', None)
    vocab_size: int | None = again(TextChoices, 'vocab_size', None)
    lower_case: bool | None = again(TextChoices, 'lower_case', None)
    output: str | None = flag(None, 'Folder for the store.')
    shard_size: float = flag(
        64.0, 'Megabytes of text in a shard.', at_least=1e-4)
    processes: int | None = flag(
        None, 'Shards made at a time; by default one a core.', at_least=1)
    beam_options: tuple[str, ...] = flag(
        (), 'Shards are made by a pipeline of Apache Beam with these options, '
        "as runner=DirectRunner (pip install 'infoword_tf[beam]').")

    @property
    def of_text(self) -> TextChoices:
        """Choices of the text and of the tokenizer."""
        return TextChoices(
            corpus=self.corpus,
            heldout=self.heldout,
            tokenizer=self.tokenizer,
            vocab=self.vocab,
            vocab_size=self.vocab_size,
            lower_case=self.lower_case,
        )


def _begin(threads: int, parent: int) -> None:
    """Starts a worker process, with a share of the cores and no GPU.

    The process ends with its parent, however that ended.
    """
    os.environ['TF_NUM_INTRAOP_THREADS'] = str(threads)
    os.environ['TF_NUM_INTEROP_THREADS'] = '1'
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    lazy.lean()
    lazy.import_keras()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_ALIVE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_processes(job: Job, numbers: Sequence[int], processes: int) -> None:
    """Writes shards in processes, so many at a time."""
    with commands.bar(
        desc='tokenizing', total=len(numbers), unit=' shards',
        disable=not numbers,
    ) as bar:  # fmt: skip
        if processes == 1 or len(numbers) < 2:
            for number in numbers:
                sharding.write(number, job)
                bar.update()
            return
        pool = concurrent.futures.ProcessPoolExecutor(
            min(processes, len(numbers)),
            multiprocessing.get_context('spawn'),
            _begin,
            (max(1, files.cpus() // processes), os.getpid()),
        )
        try:
            waiting = [pool.submit(sharding.write, n, job) for n in numbers]
            for shard in concurrent.futures.as_completed(waiting):
                shard.result()
                bar.update()
        except concurrent.futures.process.BrokenProcessPool:
            raise RuntimeError(
                'a process was killed, perhaps for want of memory; the same '
                'command goes on with what is not finished, and takes less '
                'with fewer --processes'
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _check(choices: PrepareChoices) -> pathlib.Path:
    """Returns --output; UsageError: wrong choices, before anything is read."""
    _, output = commands.require(
        vars(choices), corpus='a text', output='a folder for it'
    )
    if '://' in output:
        raise errors.UsageError(
            'remote_output',
            f'--output={output} is no folder of this machine; write to one, '
            'and copy it there (gsutil, rclone)',
        )
    for name in ('corpus', 'heldout'):
        values = values_of(getattr(choices, name))
        if len(values) > 1 or any(by_language(values)):
            raise errors.UsageError(
                'several_texts',
                f'--{name}={" ".join(values)}: a store has one text, without '
                'a language; prepare each with the same --vocab, and train '
                'with --corpus=de=store:DIR for each',
            )
    name = values_of(choices.corpus)[0]
    if name.startswith('store:'):
        raise errors.UsageError(
            'prepared_already', f'--corpus={name} is prepared already'
        )
    opened.choose_tokenizer(choices.of_text)  # raises
    if choices.beam_options:
        if choices.processes:
            raise errors.UsageError(
                'processes_and_beam',
                f'--processes={choices.processes} is for this machine, and the '
                'runner of --beam_options has workers of its own; leave out '
                'one of the two',
            )
        commands.import_extra('apache_beam', 'beam', '--beam_options')
    return pathlib.Path(output).expanduser()


@commands.takes(PrepareChoices)
def run(choices: PrepareChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the command; returns the content of store.json without shards.

    Raises:
        UsageError: choices that do not go together, or the folder holds
            another store.
        ValueError: the text is missing or damaged, as the message says.
        RuntimeError: another command writes to the folder.
    """
    del chosen
    folder = _check(choices)
    (name,) = values_of(choices.corpus)
    heldout = next(iter(values_of(choices.heldout)), None)
    with files.locked(folder):
        corpus = corpora.open_corpus(name, heldout)
        decisive = _decisive(choices, corpus)
        if (folder / sharded.INDEX).exists():
            store = sharded.open_prepared(folder)
            index = store.index
            _check_same(folder, index['asked'], decisive)
            store.check()
        else:
            job = Job(
                output=folder,
                corpus=name,
                heldout=heldout,
                shard_size=max(1, int(choices.shard_size * MEGABYTE)),
                rule=None if corpus.rule is None else corpus.rule(),
                text=corpus.fingerprint,
            )
            sharding.chunks.cache_clear()
            sharding.tokenizer.cache_clear()
            _start(choices, job, corpus, decisive)
            count = len(sharding.chunks(job))
            todo = [n for n in range(count) if not job.finished(n).exists()]
            if choices.beam_options:
                from infoword_tf.data import beam

                beam.make(job, todo, choices.beam_options)
            else:
                _in_processes(job, todo, choices.processes or files.cpus())
            index = sharding.finish(job, count, decisive)
        shutil.rmtree(folder / WORK, ignore_errors=True)
    left_out = [f'{n:,} {why}' for why, n in index['left_out'].items()]
    print(
        f'{folder}: {index["tokens"]:,} tokens of '
        f'{index["documents"]["train"]:,} documents to train on, '
        f'{index["documents"]["heldout"]:,} held out; left out: '
        + (', '.join(left_out) or 'none'),
        flush=True,
    )
    return {k: x for k, x in index.items() if k not in ('shards', 'asked')}


def _decisive(
    choices: PrepareChoices, corpus: corpora.Corpus
) -> dict[str, Any]:
    """Returns all that decides the bytes of a store."""
    values = dataclasses.asdict(choices)
    for name in ('output', 'processes', 'beam_options'):
        del values[name]
    for name in ('corpus', 'heldout'):
        values[name] = values_of(values[name])
    if values['vocab']:
        values['vocab'] = files.digest_of(pathlib.Path(values['vocab']))
    values |= _FORMERLY
    values |= {'text': corpus.fingerprint, 'splitting': documents.SPLITTING}
    return json.loads(json.dumps(values))  # as it is read again


def _check_same(
    folder: pathlib.Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    for name in now:
        if before.get(name) != now[name]:
            what = 'its text has changed' if name == 'text' else (
                f'--{name} was {before.get(name)!r} and is {now[name]!r}'
            )
            raise errors.UsageError(
                'prepared_otherwise',
                f'--output={folder} was begun otherwise: {what}; name another '
                'folder, or delete this one',
            )


def _start(
    choices: PrepareChoices, job: Job, corpus: corpora.Corpus,
    decisive: dict[str, Any],
) -> None:  # fmt: skip
    """Starts a store, or continues an unfinished one."""
    work = job.output / WORK
    path = work / SETTINGS
    if path.exists():
        _check_same(job.output, files.read_json(path)['asked'], decisive)
        # Half-written files of a stopped command; stores sweep themselves.
        for partial in (job.output / TRAIN).glob('.*.[0-9]*'):
            partial.unlink()
        return
    others = [x.name for x in job.output.iterdir()
              if x.name not in ('.lock', WORK)]  # fmt: skip
    if others or (work.is_dir() and any(work.glob('[!.]*/'))):
        raise errors.UsageError(
            'output_no_store',
            f'--output={job.output} holds {min([*others, WORK])} and is no '
            'store; name another folder',
        )
    tokenizer = opened.open_tokenizer(
        choices.of_text, {'': corpus}, files.cache_dir()
    )
    work.mkdir(exist_ok=True)
    with files.written(work / type(tokenizer).file) as partial:
        tokenizer.write(partial)
    config = dataclasses.asdict(tokenizer.config)
    files.write_json(path, {'asked': decisive, 'tokenizer': config})


if __name__ == '__main__':
    commands.start(
        run, stopped='the same command goes on with what is not finished'
    )
