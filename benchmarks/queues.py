"""What a queue costs an update of `simcse`, beside the products that it needs.

    python -m benchmarks.queues --queue=131072

Whole updates as the trainer makes them, of random sentences that fill their
places, with a full queue and without one; and the two products of a queue
alone, the scores and the gradient of what asks. Each is a process of its own
(`--serve`), all in turns.
"""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import report, turns, work
from infoword_tf import commands
from infoword_tf.choices import ModelChoices, flag
from infoword_tf.data import store
from infoword_tf.data.batches import Batches, open_sources
from infoword_tf.resolve import Resolved, resolve
from infoword_tf.views import flatten

# The backend is chosen before Keras is imported.
os.environ['KERAS_BACKEND'] = 'tensorflow'

ROW = 'simcse'
LEARNING_RATE, UPDATES = 1e-4, 8  # so many batches of text there are
WAYS = ('no queue', 'queue', 'products')


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    queue: int = flag(131_072, 'Vectors that it holds.', at_least=1)
    size: str = flag('mini', 'Of the encoder.')
    batch_size: int = flag(64, 'Sentences.', at_least=2)
    seq_len: int = flag(32, 'Tokens of a sentence, with specials.', at_least=4)
    vocab_size: int = flag(8192, 'Pieces.', at_least=16)
    precision: str = flag(
        'float32', 'Keras dtype policy.', choices=('float32', 'mixed_bfloat16')
    )
    rounds: int = flag(5, 'Turns of each.', at_least=1)
    steps: int = flag(4, 'Updates of a turn.', at_least=1)
    serve: str | None = flag(
        None, 'Only: answer lines, as one of them.', choices=WAYS
    )


def vectors(count: int, width: int, seed: int) -> np.ndarray:
    """[count, width] float32, uniform over directions."""
    random = np.random.default_rng(seed)
    drawn = random.standard_normal((count, width), np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def sentences(given: Choices) -> store.Store:
    """As many as the updates read, each a document of random pieces."""
    random = np.random.default_rng(work.SEED)
    count, tokens = given.batch_size * UPDATES, given.seq_len - 1
    ids = random.integers(5, given.vocab_size, (count, tokens), np.int32)
    flags = np.full(ids.shape, store.WORD_START, np.uint8)
    flags[:, 0] |= store.SENTENCE_START
    flags[:, -1] |= store.SEPARATOR
    return store.Store(
        ids.ravel(),
        flags.ravel(),
        np.arange(count + 1) * tokens,
        np.ones(given.vocab_size, np.int64),
        pathlib.Path(),
    )


def resolved_of(given: Choices, queue: int) -> Resolved:
    """What the trainer would decide."""
    return resolve(
        ModelChoices(
            objectives=ROW, size=given.size, seq_len=given.seq_len,
            batch_size=given.batch_size, settings={f'{ROW}.queue': queue},
        )
    )  # fmt: skip


def batches(given: Choices, queue: int) -> Batches:
    """Those of the trainer."""
    plan, size = resolved_of(given, queue).plan, given.batch_size
    sources = open_sources(sentences(given), plan, size, work.SEED)
    one = work.Work(ROW, given.size, size, given.seq_len, given.vocab_size)
    return Batches(sources, plan, one.specials, work.SEED)


def update(
    given: Choices, queue: int
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """An update of the trainer, with a queue that is full; and its costs."""
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.objectives import Statistics
    from infoword_tf.training import distribution, loop, optim

    made = batches(given, queue)
    views = made.views(0)
    batch = {name: tf.constant(array) for name, array in flatten(views).items()}
    config = resolved_of(given, queue).config(
        given.vocab_size, precision=given.precision
    )
    model = Model(config, made.specials, work.SEED)
    trainer = loop.Trainer(
        model,
        tf.data.Dataset.from_tensors(batch),
        distribution.make_strategy('one'),
        optim.AdamW(model.trainable, optim.chosen()),
        tf.Variable(0, dtype=tf.int64, trainable=False),
        lambda step: tf.constant(LEARNING_RATE),
        Statistics(*[np.ones(given.vocab_size)] * 2),
        work.SEED,
        given.batch_size,
    )
    if queue:
        held = trainer.state.parts()
        width = model.encoder.width
        held[f'state/objectives/{ROW}/rows'].assign(vectors(queue, width, 0))
        held[f'state/objectives/{ROW}/count'].assign(queue)

    @tf.function
    def step() -> Any:
        trainer.train_step(itertools.repeat(batch))
        return trainer.sums.read_value()

    one = work.Work(
        ROW, given.size, given.batch_size, given.seq_len, given.vocab_size
    )
    weights = sum(int(tf.size(v)) for v in model.trainable.values())
    # Scores of a queue, and the gradient of what asks; its vectors are read
    # for both.
    queued = given.batch_size * queue
    return step, {
        'tokens': given.batch_size,  # a step's amount
        'operations': one.operations(views) + 2 * 2 * queued * one.width,
        'traffic': one.traffic(views, weights)
        + 2 * 4 * queue * one.width
        + work.OF_SCORE * queued,
    }


def products(given: Choices, width: int) -> Callable[[], Any]:
    """The scores of a queue, and the gradient of what asks, with them."""
    import tensorflow as tf

    rows = tf.constant(vectors(given.queue, width, 0))
    asking = tf.constant(vectors(given.batch_size, width, 1))

    @tf.function
    def both() -> Any:
        scores = tf.matmul(asking, rows, transpose_b=True)
        return tf.matmul(scores, rows)

    return both


def contestant(given: Choices) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What --serve names, as `turns.serve` takes it."""
    if given.serve == 'products':
        width = work.Work(ROW, given.size, 2, 8, given.vocab_size).width
        way, said = products(given, width), {}
    else:
        queue = given.queue if given.serve == 'queue' else 0
        way, said = update(given, queue)
    for _ in range(2):
        way().numpy()

    def turn() -> None:
        for _ in range(given.steps):
            made = way()
        made.numpy()

    return turn, {'amount': given.steps * given.batch_size, **said}


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Serves one, or lets all run and prints the table."""
    if given.serve:
        turns.serve(lambda: contestant(given))
        return
    record = turns.ways_of(
        'benchmarks.queues', WAYS, commands.typed(chosen), 'sentences',
        given.rounds,
    )  # fmt: skip
    record['settings'] = dataclasses.asdict(given)
    report.show(record)


if __name__ == '__main__':
    commands.start(run)
