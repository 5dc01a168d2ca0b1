"""How long an export takes from strings to vectors, beside `encode`.

    python -m benchmarks.serving --init=runs/quickstart

Exports the workdir and asks `embed` for the vectors of real sentences, one
and 32 at a time, in turns with `Loaded.encode` on the same strings. The
tokenizer is timed alone, in turns with both. A server adds its network and
its queue to this.

    python -m benchmarks.serving --init=W --peers=FOLDER --lines=FILE

asks sentence-transformers and ONNX Runtime for the same vectors instead, each
in a process of its own (`peers`), 32 texts of 100 words and one of 12 at a
time; FOLDER is a sentence-transformers folder with the weights of the workdir.
Where the workdir is a table lookup, FOLDER is its teacher, and model2vec makes
a table of it too.

    python -m benchmarks.serving --init=TEACHER --student=STUDENT

asks a student instead, as a SavedModel and in LiteRT in int8 with one thread
and with two, one text of 12 words and one of 40 at a time; both workdirs give
vectors.
"""

import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from benchmarks import report
from infoword_tf import commands

os.environ['KERAS_BACKEND'] = 'tensorflow'

INIT = flags.DEFINE_string('init', None, 'The workdir of a finished run.')
ROUNDS = flags.DEFINE_integer(
    'rounds', 500, 'Calls of each kind.', lower_bound=10)
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'bfloat16'],
    'What the encoder computes in, on both sides.')
PEERS = flags.DEFINE_string(
    'peers', None, 'A sentence-transformers folder with the same weights.')
STUDENT = flags.DEFINE_string(
    'student', None, 'A workdir that is small, for LiteRT.')
LINES = flags.DEFINE_multi_string(
    'lines', [], 'Files with a sentence a line, up to a tab, for pydocs.')

BATCHES = (1, 32)
PEERS_BATCHES = {(32, 100): 0.1, (1, 12): 1}  # texts, words: share of --rounds
STUDENTS_BATCHES = {(1, 12): 1, (1, 40): 1}
WARM_UP = 20


def read_sentences() -> list[str]:
    """The reference of the language, sentence by sentence, or --lines."""
    from benchmarks import peers

    return peers.read_lines(LINES.value) if LINES.value else peers.reference()


def in_turns(
    paths: dict[str, Callable[[list[str]], object]],
    sentences: Sequence[str],
    batch: int,
) -> dict[str, np.ndarray]:
    """Seconds of each call, by path.

    Every round asks all paths for the same strings, each time beginning with
    another one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    names = list(paths)
    for number in range(-WARM_UP, ROUNDS.value):
        begin = (number + WARM_UP) * batch % (len(sentences) - batch)
        texts = list(sentences[begin : begin + batch])
        start = number % len(names)
        for name in names[start:] + names[:start]:
            began = time.perf_counter()
            paths[name](texts)
            seconds[name].append(time.perf_counter() - began)
    return {name: np.array(s[WARM_UP:]) for name, s in seconds.items()}


def beside_peers() -> None:
    """Exports the workdir and prints how long each side takes for a call."""
    from benchmarks import peers
    from export import bundle
    from infoword_tf.config import Config

    words = ' '.join(read_sentences()).split()
    kinds = ['sentence-transformers', 'onnxruntime']
    if Config.read(pathlib.Path(INIT.value)).encoder.name == 'lookup':
        kinds = ['model2vec', 'sentence-transformers']
    elif PRECISION.value != 'float32':
        kinds.append('sentence-transformers-bfloat16')
    with tempfile.TemporaryDirectory() as folder:
        version = bundle.write(
            INIT.value, pathlib.Path(folder), 1, PRECISION.value
        )
        sides = [peers.Side('savedmodel', str(version))]
        sides += [peers.Side(kind, PEERS.value) for kind in kinds]
        print(
            f'{PRECISION.value}; seconds until a model is in memory: '
            + ', '.join(f'{side.name} {side.ready:.1f}' for side in sides)
        )
        ask(sides, words, PEERS_BATCHES)


def beside_a_student() -> None:
    """Exports both workdirs and prints how long each takes for a call."""
    from benchmarks import peers
    from export import bundle, tflite

    words = ' '.join(read_sentences()).split()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sides = []
        for side, init in (
            ('teacher', INIT.value), ('student', STUDENT.value)
        ):  # fmt: skip
            version = bundle.write(init, folder / side)
            sides.append(peers.Side('savedmodel', str(version), side))
        found = tflite.write(STUDENT.value, folder / 'int8', 128)
        sides += [
            peers.Side('litert', str(folder / 'int8'), f'int8, {n} threads', n)
            for n in (1, 2)
        ]
        print(
            f'LiteRT in int8: {found["bytes"] / 1e6:.1f} MB, '
            f'{found["bytes"] / (4 * found["weights"]):.0%} of float32'
        )
        ask(sides, words, STUDENTS_BATCHES)


def ask(
    sides: Sequence[Any],
    words: Sequence[str],
    kinds: Mapping[tuple[int, int], float],
) -> None:
    """Prints how long each side takes for a call, and ends them.

    Args:
        sides: `peers.Side`s.
        words: what texts are made of.
        kinds: by texts and words of each, the share of --rounds.
    """
    from benchmarks import peers

    records = []
    for (texts, length), share in kinds.items():
        warm_up = max(2, round(WARM_UP * share))
        rounds = warm_up + max(5, round(ROUNDS.value * share))
        batches = peers.batches_of(words, texts, length, rounds)
        record = peers.in_turns(sides, batches, warm_up)
        record['basis'] = sides[1].name
        for row in record['rows']:
            row['group'] = f'{texts} of {length} words, {PRECISION.value}'
        records.append(record)
    for side in sides:
        side.close()
    report.show(*records)


def main() -> None:
    """Measures and prints the table."""
    if INIT.value is None:
        raise commands.UsageError('--init is missing: name a workdir')
    if PEERS.value:
        beside_peers()
        return
    if STUDENT.value:
        beside_a_student()
        return
    import tensorflow as tf

    import infoword_tf
    from export import bundle

    loaded = infoword_tf.load(
        INIT.value, bundle.POLICIES[PRECISION.value]
    )
    with tempfile.TemporaryDirectory() as folder:
        version = bundle.write(
            INIT.value, pathlib.Path(folder), 1, PRECISION.value
        )
        model = tf.saved_model.load(str(version))
    embed = model.signatures['embed']
    tokenize = tf.function(
        lambda texts: loaded.tokenizer.tokenize(texts).flat_values,
        input_signature=[tf.TensorSpec((None,), tf.string)],
    )
    paths = {
        'SavedModel embed': lambda texts: embed(texts=tf.constant(texts))[
            'embeddings'
        ].numpy(),
        'Loaded.encode': lambda texts: loaded.encode(texts, progress=False),
        'the tokenizer alone': lambda texts: tokenize(
            tf.constant(texts)
        ).numpy(),
    }
    sentences = read_sentences()
    print(
        f'{INIT.value}: {len(sentences):,} sentences, {PRECISION.value}, '
        f'{ROUNDS.value} calls of each kind'
    )
    print(f'{"texts":>5}  {"":<19} {"p50 ms":>8} {"p99 ms":>8} {"texts/s":>9}')
    for batch in BATCHES:
        found = in_turns(paths, sentences, batch)
        for name, seconds in found.items():
            p50, p99 = np.percentile(1e3 * seconds, (50, 99))
            print(
                f'{batch:>5}  {name:<19} {p50:>8.2f} {p99:>8.2f} '
                f'{batch / seconds.mean():>9,.0f}'
            )
        graph, python, pieces = (np.median(s) for s in found.values())
        print(
            f'{batch:>5}  encode / embed {python / graph:.2f}, the '
            f'tokenizer {pieces / graph:.0%} of embed (medians)'
        )


if __name__ == '__main__':
    commands.start(main)
