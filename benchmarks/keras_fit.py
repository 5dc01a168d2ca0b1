"""What a step under Keras' `fit` costs, beside the trainer's.

    python -m benchmarks.keras_fit --size=mini

Both train the same encoder and a layer of classes over [CLS], as the row
`label` does, on one batch of random texts that fill their places: the trainer
by its own step, Keras by `fit` of a functional model around a `Backbone`, with
Keras' AdamW of the same settings, one clip of the global norm among them. Both
take turns, and each turn begins an iterator of its own, as `fit` does: on some
machines a step runs on one core or on all, by the threads that its iterator
got. So the table has the shortest time of a step, and the median over turns of
the seconds of all cores and of their ratio to the trainer in the same turn.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import work
from infoword_tf import commands
from infoword_tf.choices import ModelChoices, flag
from infoword_tf.data.batches import Batches
from infoword_tf.data.examples import Examples
from infoword_tf.resolve import Resolved, resolve
from infoword_tf.views import flatten

# The backend is chosen before Keras is imported.
os.environ['KERAS_BACKEND'] = 'tensorflow'

ROW, CLASSES = 'label', 2
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0
BETA_2, EPSILON = 0.98, 1e-6


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    size: str = flag('mini', 'Of the encoder.')
    batch_size: int = flag(32, 'Texts.', at_least=2)
    seq_len: int = flag(128, 'Tokens of a text, with specials.', at_least=4)
    vocab_size: int = flag(8192, 'Pieces.', at_least=16)
    precision: str = flag(
        'float32', 'Keras dtype policy.', choices=('float32', 'mixed_bfloat16')
    )
    rounds: int = flag(5, 'Turns of each.', at_least=1)
    steps: int = flag(10, 'Steps of a turn.', at_least=1)


def resolved_of(given: Choices) -> Resolved:
    """What the trainer would decide."""
    return resolve(
        ModelChoices(
            objectives=ROW, size=given.size, seq_len=given.seq_len,
            batch_size=given.batch_size,
        )
    )  # fmt: skip


def examples(given: Choices) -> Examples:
    """As many as a batch has: full texts of random pieces."""
    random = np.random.default_rng(work.SEED)
    b, t = given.batch_size, given.seq_len
    ids = random.integers(5, given.vocab_size, (b, t), np.int32)
    return Examples(
        ids.ravel(),
        np.zeros(b * t, np.int8),
        np.arange(b + 1) * t,
        np.zeros(b, np.int32),
        {ROW: random.integers(0, CLASSES, b).astype(np.int32)},
    )


def trainer_steps(given: Choices) -> Callable[[], Any]:
    """Makes the steps of a turn as the trainer does."""
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.objectives import Statistics
    from infoword_tf.training import distribution, loop, optim

    one = work.Work(
        ROW, given.size, given.batch_size, given.seq_len, given.vocab_size
    )
    resolved = resolved_of(given)
    numbers = np.arange(given.batch_size)
    text = examples(given).batch(numbers, numbers[:, None], given.seq_len)
    source = work.StepSource(lambda step: text)
    (source_spec,) = resolved.plan.source_specs
    made = Batches(
        {source_spec: source}, resolved.plan, one.specials, work.SEED
    )
    batch = {k: tf.constant(x) for k, x in flatten(made.views(0)).items()}
    config = resolved.config(given.vocab_size, precision=given.precision)
    model = Model(config, one.specials, work.SEED)
    counts = np.ones(given.vocab_size)
    classes = Statistics(*[np.ones(CLASSES)] * 2)
    rules = optim.chosen(weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM)
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    trainer = loop.Trainer(
        model,
        dataset,
        distribution.make_strategy('one'),
        optim.AdamW(model.trainable, rules),
        tf.Variable(0, dtype=tf.int64, trainable=False),
        lambda step: tf.constant(LEARNING_RATE),
        Statistics(counts, counts, own={ROW: classes}),
        work.SEED,
        given.batch_size,
    )

    @tf.function
    def step(iterator: Any) -> Any:
        trainer.train_step(iterator)
        return trainer.sums.read_value()

    def steps() -> None:
        iterator = iter(dataset)
        for _ in range(given.steps):
            made = step(iterator)
        made.numpy()

    return steps


def fit_steps(given: Choices) -> Callable[[], Any]:
    """Makes the steps of a turn by `fit`."""
    import keras
    import tensorflow as tf

    from infoword_tf import keras_models
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model
    from infoword_tf.text.numbers import Numbers

    pieces = list(map(str, range(given.vocab_size)))
    tokenizer = Numbers(pieces, specials=range(5))
    config = resolved_of(given).config(
        given.vocab_size, precision=given.precision
    )
    config = config.replace(rows={}, pooling='cls')
    model = Model(config, tokenizer.specials, work.SEED)
    backbone = keras_models.Backbone(Loaded(model, tokenizer, config))
    x = backbone.output[keras_models.VECTORS]
    x = keras.layers.Dropout(config.encoder.arguments['rate'])(x)
    model = keras.Model(
        backbone.input, keras.layers.Dense(CLASSES, dtype='float32')(x)
    )
    model.compile(
        keras.optimizers.AdamW(
            LEARNING_RATE,
            WEIGHT_DECAY,
            beta_2=BETA_2,
            epsilon=EPSILON,
            global_clipnorm=CLIP_NORM,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    text = examples(given)
    ids = text.ids.reshape(given.batch_size, -1)
    fields = {
        keras_models.IDS: ids,
        keras_models.SEGMENTS: np.zeros_like(ids),
        keras_models.MASK: np.ones_like(ids),
    }
    dataset = tf.data.Dataset.from_tensors((fields, text.targets[ROW]))
    dataset = dataset.repeat()

    def steps() -> None:
        model.fit(
            dataset, steps_per_epoch=given.steps, shuffle=False, verbose=0
        )

    return steps


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Measures, and prints the table."""
    del chosen
    ways = {'trainer': trainer_steps(given), 'fit': fit_steps(given)}
    times, cores = np.zeros((2, len(ways), 1 + given.rounds))
    for turn in range(1 + given.rounds):
        for i, way in enumerate(ways.values()):
            began = time.perf_counter(), time.process_time()
            way()
            times[i, turn] = time.perf_counter() - began[0]
            cores[i, turn] = time.process_time() - began[1]
    # The first turn traces.
    times, cores = (x[:, 1:] / given.steps for x in (times, cores))
    shortest, ratios = times.min(axis=1), cores / cores[0]
    print(
        f'{given.size}, {given.batch_size} x {given.seq_len} tokens, '
        f'{given.precision}'
    )
    for i, name in enumerate(ways):
        print(
            f'{name:<9}{shortest[i]:.3f} s, '
            f'{shortest[i] / shortest[0]:.2f} x; of all cores '
            f'{np.median(cores[i]):.3f} s, {np.median(ratios[i]):.2f} x '
            f'({ratios[i].min():.2f}-{ratios[i].max():.2f})'
        )


if __name__ == '__main__':
    commands.start(run)
