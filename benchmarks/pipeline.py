"""Whether the input pipeline keeps up with training: tokens a second.

    python -m benchmarks.pipeline

On the standard library's own reference text: what a training step of `bert_nce`
consumes, tokenizing, batches of masked views through tf.data, and batches that
are each of one of many languages. Each is a process of its own (`--serve`), all
in turns. Batches should come at least FASTER times as fast as training takes
them.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

from benchmarks import report, turns
from infoword_tf import commands

os.environ['KERAS_BACKEND'] = 'tensorflow'

MEGABYTES = flags.DEFINE_float(
    'megabytes', 20.0, 'Text that is tokenized.', lower_bound=0.5)
VOCAB_SIZE = flags.DEFINE_integer(
    'vocab_size', 8192, 'Pieces to learn.', lower_bound=100)
SIZE = flags.DEFINE_string('size', 'tiny', 'Of the encoder that is trained.')
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Sequences of a batch.', lower_bound=1)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', 128, 'Tokens of a sequence, with specials.', lower_bound=8)
BATCHES = flags.DEFINE_integer(
    'batches', 300, 'Batches that are drawn.', lower_bound=1)
STEPS = flags.DEFINE_integer(
    'steps', 30, 'Training steps of a turn, after a warm-up of 5.',
    lower_bound=1)
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Turns of each.', lower_bound=1)
SERVE = flags.DEFINE_string(
    'serve', None, 'Only: answer lines, as training, tokenizing, languages or '
    'the name of a masking.')
LANGUAGES = flags.DEFINE_integer(
    'languages', 20, 'Texts of a mixture.', lower_bound=2)
PRECISION = flags.DEFINE_enum(
    'precision', 'auto', ['auto', 'float32', 'mixed_bfloat16'],
    'As in training.')

FASTER = 5
WARM_UP = 5


def read_documents() -> list[Any]:
    """The reference of the language, half a megabyte of real text."""
    from pydoc_data import topics

    from infoword_tf.data.documents import Document, split_sentences

    return [
        Document(tuple(split_sentences(text)), name)
        for name, text in topics.topics.items()
    ]


def repeated(documents: Sequence[Any], megabytes: float) -> Iterator[Any]:
    """The documents over and over, until there is so much text."""
    size = sum(len(d.text.encode()) for d in documents)
    times = max(1, round(megabytes * 1e6 / size))
    return itertools.chain.from_iterable(itertools.repeat(documents, times))


def tokenizing(
    documents: Sequence[Any], tokenizer: Any
) -> Callable[[], dict[str, int]]:
    """A turn of `store.tokenized`."""
    from infoword_tf.data import store

    for _ in store.tokenized(documents, tokenizer):  # warm
        pass

    def turn() -> dict[str, int]:
        text = repeated(documents, MEGABYTES.value)
        found = store.tokenized(text, tokenizer)
        return {'amount': sum(len(ids) for ids, _, _ in found)}

    return turn


def make_batches(
    store: Any, tokenizer: Any, masking: str, row: str = 'mlm'
) -> Any:
    """Batches of the view that a row reads, masked this way."""
    from infoword_tf.data.batches import Batches, open_sources
    from infoword_tf.plan import make_plan

    plan = make_plan({row: {}}, SEQ_LEN.value, masking)
    sources = open_sources(store, plan, BATCH_SIZE.value, 0)
    return Batches(sources, plan, tokenizer.specials, 0)


def mixture(
    documents: Sequence[Any], tokenizer: Any, folder: pathlib.Path
) -> Any:
    """The same text, its documents dealt out to so many languages."""
    from infoword_tf.data.mixture import Mixture
    from infoword_tf.data.store import write_store

    each = MEGABYTES.value / 4 / LANGUAGES.value
    return Mixture(
        {
            f'x{number}': write_store(
                folder / f'x{number}',
                repeated(documents[number :: LANGUAGES.value], each),
                tokenizer,
                progress=False,
            )
            for number in range(LANGUAGES.value)
        },
        0.7,
    )


def drawing(batches: Any) -> Callable[[], None]:
    """A turn of `Batches.dataset`."""
    iterator = iter(batches.dataset(0, WARM_UP + ROUNDS.value * BATCHES.value))
    for _ in range(WARM_UP):
        next(iterator)

    def turn() -> None:
        for _ in range(BATCHES.value):
            next(iterator)

    return turn


def training(
    store: Any, tokenizer: Any, batches: Any, precision: str
) -> Callable[[], None]:
    """A turn of training `bert_nce`."""
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.objectives import Statistics
    from infoword_tf.resolve import ModelChoices, resolve
    from infoword_tf.training import distribution, loop, optim

    config = resolve(
        ModelChoices(
            size=SIZE.value,
            positions=max(512, SEQ_LEN.value),
            seq_len=SEQ_LEN.value,
            batch_size=BATCH_SIZE.value,
        )
    ).config(len(tokenizer), precision=precision)
    strategy = distribution.make_strategy('one')
    with strategy.scope():
        model = Model(config, tokenizer.specials)
        optimizer = optim.AdamW(model.trainable)
    steps = WARM_UP + ROUNDS.value * STEPS.value
    trainer = loop.Trainer(
        model,
        batches.dataset(0, steps),
        strategy,
        optimizer,
        tf.Variable(0, dtype=tf.int64, trainable=False),
        lambda step: optim.schedule(step, 1e-3, steps, steps),
        Statistics(store.counts, store.counts),
        seed=0,
        batch_size=BATCH_SIZE.value,
    )
    trainer.train(tf.constant(WARM_UP))

    def turn() -> None:
        trainer.train(tf.constant(STEPS.value))

    return turn


def contestant(
    folder: pathlib.Path,
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What --serve names, as `turns.serve` takes it; places of batches count.

    A few batches are made ahead while others have their turns; so turns are
    long.
    """
    from infoword_tf.data.store import write_store
    from infoword_tf.text import vocabulary
    from infoword_tf.text.wordpiece import WordPiece
    from infoword_tf.training import precision as precisions

    documents = read_documents()
    pieces = vocabulary.learn((d.text for d in documents), VOCAB_SIZE.value)
    tokenizer = WordPiece(pieces)
    if SERVE.value == 'tokenizing':
        return tokenizing(documents, tokenizer), {}
    places = BATCH_SIZE.value * SEQ_LEN.value
    if SERVE.value == 'languages':
        text = mixture(documents, tokenizer, folder)
        turn = drawing(make_batches(text, tokenizer, 'tokens'))
        return turn, {'amount': BATCHES.value * places}
    store = write_store(
        folder / 'train',
        repeated(documents, MEGABYTES.value / 4),
        tokenizer,
        progress=False,
    )
    if SERVE.value != 'training':
        turn = drawing(make_batches(store, tokenizer, SERVE.value))
        return turn, {'amount': BATCHES.value * places}
    precision = PRECISION.value
    if precision == 'auto':
        precision = precisions.faster()
    batches = make_batches(store, tokenizer, 'spans', 'bert_nce')
    turn = training(store, tokenizer, batches, precision)
    return turn, {'amount': STEPS.value * places}


def main() -> None:
    """Serves one, or lets all run and prints the table."""
    if SERVE.value:
        with tempfile.TemporaryDirectory() as folder:
            turns.serve(lambda: contestant(pathlib.Path(folder)))
        return
    from infoword_tf.views.masking import MASKINGS

    own = flags.FLAGS.flags_by_module_dict()[sys.argv[0]]
    typed = [each.serialize() for each in own if each.present]
    names = {'training': f'training bert_nce, {SIZE.value}'}
    names['tokenizing'] = f'tokenizing {MEGABYTES.value:g} MB'
    for masking in MASKINGS:
        names[masking] = f'batches, masked {masking}'
    names['languages'] = f'the same of {LANGUAGES.value} languages'
    started = [
        turns.Served(
            name,
            turns.module('benchmarks.pipeline', *typed, f'--serve={serve}'),
        )
        for serve, name in names.items()
    ]
    with turns.ended(started):
        record = turns.compete(started, 'tokens', [{}] * ROUNDS.value)
    for row, training in report.grouped(record):
        found = statistics.median(report.ratios(row, training))
        if row is not training and found < FASTER:
            print(f'{row["name"]}: {found:.1f} times, and should be {FASTER}')
    report.show(record)


if __name__ == '__main__':
    commands.start(main)
