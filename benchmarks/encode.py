"""How fast `encode` is, beside the same model called batch by batch.

    python -m benchmarks.encode --init=runs/quickstart

5,000 sentences of `pydocs`, as they come. The plain way takes them in their
order, 32 at a time, and pads each batch to the longest of all texts; `encode`
sorts them by length and fills batches with tokens. Both run the same graph on
the same strings, tokenizing included, in turns; the table has the median rate
of each and of the ratios of each turn.

    python -m benchmarks.encode --init=W --peers=FOLDER --lines=FILE

asks sentence-transformers and ONNX Runtime for the same vectors instead, each
in a process of its own (`peers`); FOLDER is a sentence-transformers folder with
the weights of the workdir.

Glossary of shapes: n texts, B texts of a batch, T tokens, D width.
"""

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from infoword_tf import commands

os.environ['KERAS_BACKEND'] = 'tensorflow'

INIT = flags.DEFINE_string('init', None, 'A workdir.', required=True)
TEXTS = flags.DEFINE_integer('texts', 5000, 'Sentences.', lower_bound=1)
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Texts of a batch of the plain way.', lower_bound=1)
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Turns of each.', lower_bound=1)
PEERS = flags.DEFINE_string(
    'peers', None, 'A sentence-transformers folder with the same weights.')
LINES = flags.DEFINE_multi_string(
    'lines', [], 'Files with a sentence a line, up to a tab, for pydocs.')


def sentences(count: int) -> list[str]:
    """The first sentences of --lines or of `pydocs`."""
    from benchmarks import peers
    from infoword_tf.data import corpora

    if LINES.value:
        return peers.read_lines(LINES.value)[:count]

    found: list[str] = []
    for document in corpora.open_corpus('pydocs').train():
        found += document.sentences
        if len(found) >= count:
            break
    return found[:count]


def plain(model: Any, texts: Sequence[str]) -> np.ndarray:
    """Vectors in input order, fixed batches, padded to the longest text."""
    import tensorflow as tf

    embed = model.graph()
    tokenizer = model.tokenizer
    pieces = tokenizer.tokenize(list(texts))[:, : model.free_length]
    around = len(model.before) + len(model.after)
    longest = int(pieces.bounding_shape()[1]) + around
    vectors = []
    for begin in range(0, len(texts), BATCH_SIZE.value):
        some = pieces[begin : begin + BATCH_SIZE.value]
        rows = some.nrows()
        ids = tf.concat(
            [
                tf.tile([model.before], (rows, 1)),
                some,
                tf.tile([model.after], (rows, 1)),
            ],
            axis=1,
        )
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        padded = ids.to_tensor(tokenizer.pad_id, shape=(None, longest))
        vectors.append(embed(padded, lengths).numpy())
    return np.concatenate(vectors)


def beside_peers() -> None:
    """Prints how long each side takes for all texts."""
    from benchmarks import peers

    texts = sentences(TEXTS.value)
    sides = [
        peers.Side('encode', INIT.value),
        peers.Side('sentence-transformers', PEERS.value),
        peers.Side('onnxruntime', PEERS.value),
    ]
    seconds, apart = peers.in_turns(sides, [texts] * (1 + ROUNDS.value))
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(f'{len(texts):,} sentences of {words:.1f} words on average')
    print('\n'.join(peers.table(seconds, apart, len(texts))))
    for side in sides:
        side.close()


def main() -> None:
    """Measures and prints the table."""
    if PEERS.value:
        beside_peers()
        return
    import infoword_tf

    model = infoword_tf.load(INIT.value)
    texts = sentences(TEXTS.value)
    ways = {
        'plain': lambda: plain(model, texts),
        'encode': lambda: model.encode(texts, progress=False),
    }
    made = {name: way() for name, way in ways.items()}  # warm
    apart = np.abs(made['plain'] - made['encode']).max()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS.value):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            rates[name].append(len(texts) / (time.perf_counter() - began))
    ratios = [
        e / p for e, p in zip(rates['encode'], rates['plain'], strict=True)
    ]
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(f'{len(texts):,} sentences of {words:.1f} words on average')
    for name, values in rates.items():
        print(
            f'{name:<7} {statistics.median(values):8,.0f} sentences/s '
            f'({min(values):,.0f}-{max(values):,.0f})'
        )
    print(f'ratio   {statistics.median(ratios):8.2f}')
    print(f'vectors differ by at most {apart:.1e}')


if __name__ == '__main__':
    commands.start(main)
