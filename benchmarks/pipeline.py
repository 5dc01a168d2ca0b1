"""Whether the input pipeline keeps up with training: tokens a second.

    python -m benchmarks.pipeline

Measures, in one run on the standard library's own reference text: tokenizing,
batches of masked views through tf.data, also where each is of one of many
languages, and what a training step of `bert_nce` consumes. Batches should come
at least FASTER times as fast as training takes them.
"""

import itertools
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

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
    'steps', 30, 'Training steps, after a warm-up of 5.', lower_bound=1)
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


def tokenizing_rate(documents: Sequence[Any], tokenizer: Any) -> float:
    """Tokens a second of `store.tokenized`."""
    from infoword_tf.data import store

    for _ in store.tokenized(documents, tokenizer):  # warm
        pass
    began = time.perf_counter()
    tokens = sum(
        len(ids)
        for ids, _, _ in store.tokenized(
            repeated(documents, MEGABYTES.value), tokenizer
        )
    )
    return tokens / (time.perf_counter() - began)


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


def batches_rate(batches: Any) -> float:
    """Tokens a second of `Batches.dataset`, with specials."""
    iterator = iter(batches.dataset(0, WARM_UP + BATCHES.value))
    for _ in range(WARM_UP):
        next(iterator)
    began = time.perf_counter()
    for _ in iterator:
        pass
    seconds = time.perf_counter() - began
    return BATCHES.value * BATCH_SIZE.value * SEQ_LEN.value / seconds


def training_rate(
    store: Any, tokenizer: Any, batches: Any, precision: str
) -> float:
    """Tokens a second that training `bert_nce` consumes, with specials."""
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
    steps = WARM_UP + STEPS.value
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
    began = time.perf_counter()
    trainer.train(tf.constant(STEPS.value))
    seconds = time.perf_counter() - began
    return STEPS.value * BATCH_SIZE.value * SEQ_LEN.value / seconds


def main() -> None:
    """Measures and prints the table."""
    from infoword_tf.data.store import write_store
    from infoword_tf.text import vocabulary
    from infoword_tf.text.wordpiece import WordPiece
    from infoword_tf.training import precision as precisions
    from infoword_tf.views.masking import MASKINGS

    documents = read_documents()
    pieces = vocabulary.learn((d.text for d in documents), VOCAB_SIZE.value)
    tokenizer = WordPiece(pieces)
    precision = PRECISION.value
    if precision == 'auto':
        precision = precisions.faster()

    table: list[tuple[str, str]] = []
    rate = tokenizing_rate(documents, tokenizer)
    what = f'tokenizing {MEGABYTES.value:g} MB, {len(pieces):,} pieces'
    table.append((what, f'{rate:,.0f} tokens/s'))
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(
            pathlib.Path(folder) / 'train',
            repeated(documents, MEGABYTES.value / 4),
            tokenizer,
            progress=False,
        )
        for masking in MASKINGS:
            batches = make_batches(store, tokenizer, masking)
            rates[masking] = batches_rate(batches)
            table.append((
                f'batches {BATCH_SIZE.value} x {SEQ_LEN.value}, {masking}',
                f'{rates[masking]:,.0f} tokens/s',
            ))
        text = mixture(documents, tokenizer, pathlib.Path(folder))
        rate = batches_rate(make_batches(text, tokenizer, 'tokens'))
        table.append((
            f'the same of {LANGUAGES.value} languages, tokens',
            f'{rate / rates["tokens"]:,.2f} times',
        ))
        batches = make_batches(store, tokenizer, 'spans', 'bert_nce')
        training = training_rate(store, tokenizer, batches, precision)
    what = f'training bert_nce, {SIZE.value}, {precision}'
    table.append((what, f'{training:,.0f} tokens/s'))
    for masking, rate in rates.items():
        ratio = rate / training
        verdict = '' if ratio >= FASTER else f'  (should be {FASTER} or more)'
        table.append((
            f'batches / training, {masking}',
            f'{ratio:,.1f} times   {verdict}'.rstrip(),
        ))
    left = max(len(what) for what, _ in table)
    right = max(value.index(' ') for _, value in table)
    for what, value in table:
        number, _, unit = value.partition(' ')
        print(f'{what:<{left}}  {number:>{right}} {unit}')


if __name__ == '__main__':
    commands.start(main)
