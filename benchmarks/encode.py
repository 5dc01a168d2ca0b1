"""How fast `encode` is, beside the same model called batch by batch.

    python -m benchmarks.encode --init=runs/quickstart

2,000 sentences of `pydocs`, as they come. The plain way takes them in their
order, 32 at a time, and pads each batch to the longest of all texts; `encode`
sorts them by length and fills batches with tokens. Both run the same graph on
the same strings, tokenizing included, each in a process of its own, in turns.

    python -m benchmarks.encode --init=W --peers=FOLDER --lines=FILE

asks sentence-transformers and ONNX Runtime for the same vectors too; FOLDER is
a sentence-transformers folder with the weights of the workdir. Where the
workdir is a table lookup, FOLDER is its teacher, and model2vec makes a table of
it instead. With --tokenize they only tokenize, ours and `tokenizers`; then
characters count.

Glossary of shapes: n texts, B texts of a batch, T tokens, D width.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from benchmarks import report, turns
from infoword_tf import commands

os.environ['KERAS_BACKEND'] = 'tensorflow'

INIT = flags.DEFINE_string('init', None, 'A workdir.', required=True)
TEXTS = flags.DEFINE_integer('texts', 2000, 'Sentences.', lower_bound=1)
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Turns of each.', lower_bound=1)
PEERS = flags.DEFINE_string(
    'peers', None, 'A sentence-transformers folder with the same weights.')
LINES = flags.DEFINE_multi_string(
    'lines', [], 'Files with a sentence a line, up to a tab, for pydocs.')
TOKENIZE = flags.DEFINE_bool('tokenize', False, 'Only that.')


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


def plain(
    model: Any, texts: Sequence[str], batch_size: int
) -> np.ndarray:
    """Vectors in input order, fixed batches, padded to the longest text."""
    import tensorflow as tf

    embed = model.graph()
    tokenizer = model.tokenizer
    pieces = tokenizer.tokenize(list(texts))[:, : model.free_length]
    around = len(model.before) + len(model.after)
    longest = int(pieces.bounding_shape()[1]) + around
    vectors = []
    for begin in range(0, len(texts), batch_size):
        some = pieces[begin : begin + batch_size]
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


def sides() -> list[Any]:
    """Starts all that the flags ask for."""
    from benchmarks.peers import Side
    from infoword_tf.config import Config

    init, peers = INIT.value, PEERS.value
    config = Config.read(pathlib.Path(init))
    if TOKENIZE.value:
        return [Side('tokenizers', peers), Side('wordpiece', init)]
    if config.encoder.name == 'lookup':
        return [Side('model2vec', peers), Side('encode', init)]
    kinds = {}
    if peers:
        kinds = {'sentence-transformers': peers, 'onnxruntime': peers}
    kinds |= {'plain': init, 'encode': init}
    found = [Side(kind, path) for kind, path in kinds.items()]
    return [*found, Side('encode', init, 'encode 1', threads=1)]


def main() -> None:
    """Measures and prints the table."""
    from benchmarks.peers import in_turns

    if TOKENIZE.value and not PEERS.value:
        raise commands.UsageError('--peers is missing: name a folder')
    texts = sentences(TEXTS.value)
    started = sides()
    with turns.ended(started):
        record = in_turns(
            started,
            [texts] * (1 + ROUNDS.value),
            unit='characters' if TOKENIZE.value else 'texts',
        )
    if started[0].name == 'model2vec':  # a table of its own
        for row in record['rows']:
            row['apart'] = None
    record['settings'] = {
        'texts': len(texts),
        'words': sum(len(text.split()) for text in texts) / len(texts),
        'rounds': ROUNDS.value,
    }
    report.show(record)


if __name__ == '__main__':
    commands.start(main)
