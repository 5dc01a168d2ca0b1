r"""What `infoword_tf.prepare` takes: time beyond tokenizing, and memory.

    python -m benchmarks.preparing --workdir=runs/preparing
    python -m benchmarks.preparing --megabytes=2000 --ways=near \
        --workdir=runs/large

Text is made of what pydocs has, or of --text, again and again with its words in
another order, so that no document repeats another one. Each way of preparing it
runs in a process of its own, of one core, and so does the tokenizing alone of
the same text. What counts is the processor time beyond that, and beyond what
the first megabyte takes, in megabytes of text a second. The last line is one
JSON object; the workdir keeps it too.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from benchmarks.kept import ROOT
from infoword_tf import commands, files

TEXT = flags.DEFINE_string(
    'text', None, 'Files of text, as of text:GLOB; by default pydocs.')
MEGABYTES = flags.DEFINE_float(
    'megabytes', 40.0, 'Text that is prepared.', lower_bound=1)
WORDS = flags.DEFINE_integer(
    'words', 100, 'Of a document.', lower_bound=10)
WORKDIR = flags.DEFINE_string('workdir', None, 'Where all of it goes.')

WAYS = {
    'plain': (),
    'exact': ('--duplicates=exact', '--min_words=5'),
    'near': ('--duplicates=near', '--min_words=5'),
}
CHOSEN = flags.DEFINE_list('ways', list(WAYS), f'Of {", ".join(WAYS)}.')
SENTENCE = 20  # words of a line
FIRST = 1 << 20  # bytes that are prepared for what it takes to begin
LEARNED = 100.0  # megabytes that a vocabulary is learned from
# Reads the text and tokenizes it, as `prepare` does, and writes nothing.
ALONE = """
import itertools, sys, time
from infoword_tf.data import corpora, store
from infoword_tf.text.wordpiece import WordPiece
corpus = corpora.open_corpus('text:' + sys.argv[1])
tokenizer = WordPiece.read(sys.argv[2], True)
seconds = 0.0
documents = corpus.every()
while some := list(itertools.islice(documents, 20_000)):
    strings = [s.encode() for d in some for s in d.sentences]
    began = time.process_time()
    for begin in range(0, len(strings), 4096):
        tokenizer.pieces(strings[begin : begin + 4096])
    seconds += time.process_time() - began
print(seconds)
"""


def texts() -> Iterator[str]:
    """The words of a corpus, one text after the other."""
    from infoword_tf.data import corpora

    name = f'text:{TEXT.value}' if TEXT.value else 'pydocs'
    corpus = corpora.open_corpus(name, whole=True)
    for document in corpus.train():
        yield document.text


def write_text(path: pathlib.Path) -> None:
    """Writes so many megabytes, in documents of WORDS words."""
    words = np.array(' '.join(texts()).split(' '), object)
    random = np.random.default_rng(0)
    size, wanted = 0, MEGABYTES.value * 1e6
    with files.written(path) as partial, open(partial, 'wb') as file:
        while size < wanted:
            random.shuffle(words)
            for begin in range(0, len(words), WORDS.value):
                some = words[begin : begin + WORDS.value]
                lines = [
                    ' '.join(some[i : i + SENTENCE])
                    for i in range(0, len(some), SENTENCE)
                ]
                size += file.write(('\n'.join(lines) + '\n\n').encode())
                if size >= wanted:
                    break


def called(log: pathlib.Path, *command: str) -> tuple[float, float, str]:
    """Runs a process; its processor seconds, megabytes of memory, output.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, 'w') as errors:
        done = subprocess.run(
            [sys.executable, '-c', MEASURED, *command],
            cwd=ROOT, env={**os.environ, 'TF_NUM_INTRAOP_THREADS': '1'},
            stdout=subprocess.PIPE, stderr=errors, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f'{log}: {log.read_text()[-1000:]}')
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(
        getattr(after, x) - getattr(before, x) for x in ('ru_utime', 'ru_stime')
    )
    *said, most = done.stdout.strip().splitlines()
    return seconds, float(most) * 1024 / 1e6, '\n'.join(said)


# Of a command alone: the largest of all its processes.
MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def run() -> None:
    """Makes the text, prepares it in each way, and says what that took."""
    given = flags.FLAGS.flag_values_dict()
    commands.require(given, workdir='a folder for it')
    for way in CHOSEN.value:
        if way not in WAYS:
            raise commands.UsageError(
                f'--ways={way}: choose of {", ".join(WAYS)}'
            )
    folder = pathlib.Path(WORKDIR.value).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / 'text.txt'
    write_text(text)
    little = folder / 'little.txt'
    with open(text, 'rb') as file:
        little.write_bytes(file.read(FIRST) + b'\n')
    megabytes = (text.stat().st_size - FIRST) / 1e6

    def prepared(way: str, text: pathlib.Path, *more: str) -> Any:
        output = folder / way
        shutil.rmtree(output, ignore_errors=True)
        return called(
            folder / f'{way}.log', '-m', 'infoword_tf.prepare', *WAYS[way],
            f'--corpus=text:{text}', f'--output={output}', '--processes=1',
            *more,
        )  # fmt: skip

    # One vocabulary for all.
    prepared('plain', text if MEGABYTES.value <= LEARNED else little)
    vocab = folder / 'vocab.txt'
    shutil.copy(folder / 'plain' / 'vocab.txt', vocab)
    seconds = {
        size: float(called(folder / 'alone.log', '-c', ALONE, str(size),
                           str(vocab))[2])
        for size in (little, text)
    }  # fmt: skip
    tokenizing = seconds[text] - seconds[little]
    found: dict[str, Any] = {
        'megabytes': round(megabytes),
        'tokenizing_mb_a_second': round(megabytes / tokenizing, 1),
    }
    for way in CHOSEN.value:
        begun, _, _ = prepared(way, little, f'--vocab={vocab}')
        all_of_it, most, _ = prepared(way, text, f'--vocab={vocab}')
        left = files.read_json(folder / way / 'store.json')
        found[way] = {
            'beyond_mb_a_second': round(
                megabytes / (all_of_it - begun - tokenizing), 1),
            'memory_mb': round(most),
            'documents': left['documents']['train'],
        }  # fmt: skip
        print(way, found[way], flush=True)
    for way in {'plain', *CHOSEN.value}:
        shutil.rmtree(folder / way)
    little.unlink()
    text.unlink()
    commands.record(folder, found)


if __name__ == '__main__':
    commands.start(run)
