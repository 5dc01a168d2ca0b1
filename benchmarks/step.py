"""Speed of a training step, compared with Model Garden's BERT.

    python -m benchmarks.step
    python -m benchmarks.step --size=tiny --rows=mlm --precisions=float32

Every contestant makes whole updates in a process (`--serve`): forward,
backward, one clip of the global norm, AdamW, in one `tf.function`. In each
round every contestant makes some steps, in turn (turns.py). Since a machine's
speed drifts, only ratios within a round count, to the peer in the same
precision. Tokens of the text count once: no specials, no second view, nothing
that is read again. Texts are full, so only packed n-grams have padding.

The share of matrix products is the operations of all products of a step, over
the time of a step, over the best rate of one large product in the same
precision, which is another contestant.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import report, turns, work
from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.sizes import SIZES

# The backend is chosen before Keras is imported.
os.environ['KERAS_BACKEND'] = 'tensorflow'

POLICIES = 'float32', 'mixed_bfloat16'
PEER, PRODUCTS = 'Model Garden', 'products'  # contestants that are no rows
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0
SEGMENTS = 2
PRODUCT_SIZE, PRODUCT_REPEATS = 2048, 3  # repeats in each round


@dataclasses.dataclass(frozen=True)
class StepChoices:
    """Choices of the command."""

    size: str = flag('mini', 'Of the encoder, on both sides.',
                     choices=tuple(SIZES))
    batch_size: int = flag(32, 'Sequences.', at_least=1)
    seq_len: int = flag(
        128, 'Tokens of a sequence, with specials.', at_least=8)
    vocab_size: int = flag(30522, 'Tokens of the vocabulary.', at_least=16)
    dropout: float = flag(
        0.1, 'Share dropped of states and attention weights.', at_least=0.0)
    rows: tuple[str, ...] = flag(
        ('bert_nce', 'mlm', 'infoword'),
        'Rows of the table, and named sums.')
    memory_length: int = flag(
        0, 'Tokens of memory: rows whose encoder has one run without it and, '
        'as ROW+LENGTH, with it.', at_least=0)
    precisions: tuple[str, ...] = flag(POLICIES, 'Keras dtype policies.')
    rounds: int = flag(5, 'Turns of each contestant.', at_least=1)
    steps: int = flag(6, 'Steps of a turn.', at_least=1)
    no_peer: bool = flag(False, 'Rows alone.')
    serve: str | None = flag(
        None, 'Only: answer lines, as one contestant in one precision: a row, '
        f'{PEER} or {PRODUCTS}.')


class Contestant(NamedTuple):
    """A model in one precision, ready to run.

    Attributes:
        step: makes one update; returns a tensor to wait for.
        facts: `operations` of a step, floating-point operations of matrix
            products, and `tokens` of text.
    """

    step: Callable[[], Any]
    facts: dict[str, int]


# ------------------------------------------------------------------------ work


def work_of(
    choices: StepChoices, objectives: str, memory_length: int = 0
) -> work.Work:
    """Returns the work of a row or sum with the chosen sizes."""
    return work.Work(
        objectives,
        choices.size,
        choices.batch_size,
        choices.seq_len,
        choices.vocab_size,
        choices.dropout,
        memory_length,
    )


def peer_operations(choices: StepChoices) -> int:
    """Counts operations of the peer's step.

    Every block has queries at all tokens. The head has a D x D transform. The
    segment embedding is a product of one-hot vectors that need no gradient. The
    pooler is not part of the loss and does not run.
    """
    one = work_of(choices, 'mlm')
    b, t, d = choices.batch_size, choices.seq_len, one.width
    pairs = b * one.places
    forward = (
        one.layers * work.block_operations(b, t, t, d)
        + 2 * pairs * d * d
        + 2 * pairs * d * choices.vocab_size
    )
    segments = 2 * b * t * SEGMENTS * d
    return 3 * forward + 2 * segments


def tensors_of(batch: Any) -> dict[str, Any]:
    """Converts views to flat tensors, the trainer's inputs."""
    import tensorflow as tf

    from infoword_tf import views

    flat = views.flatten(batch)
    return {name: tf.constant(array) for name, array in flat.items()}


# ----------------------------------------------------------------- contestants


def ours(
    choices: StepChoices,
    objectives: str,
    precision: str,
    memory_length: int = 0,
) -> Contestant:
    """Makes a row or sum, stepped by the trainer of `infoword_tf.train`.

    A step costs the same with an empty memory.
    """
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.training import distribution, loop, optim
    from infoword_tf.training.state import State

    task = work_of(choices, objectives, memory_length)
    strategy = distribution.make_strategy('one')
    with strategy.scope():
        model = Model(task.config(precision), task.specials, work.SEED)
        optimizer = optim.AdamW(
            model.trainable,
            optim.preset(weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM),
        )
    views = task.make_views()
    batch = tensors_of(views)
    trainer = loop.Trainer(
        tf.data.Dataset.from_tensors(batch),
        State(model, strategy, choices.batch_size),
        optimizer,
        lambda step: tf.constant(LEARNING_RATE),
        task.statistics,
        seed=work.SEED,
    )

    @tf.function
    def step() -> Any:
        trainer.train_step(itertools.repeat(batch))
        return trainer.sums.read_value()

    return Contestant(step, {
        'operations': task.operations(views), 'tokens': work.tokens_of(views),
    })  # fmt: skip


def peer(choices: StepChoices, precision: str) -> Contestant:
    """Makes Model Garden's BERT with a masked-word head over V at P places."""
    import tensorflow as tf
    import tf_keras

    views = work_of(choices, 'mlm').make_views()
    view = tensors_of(views)
    ids, labels = view['masked/ids'], view['masked/targets/mlm']
    weights = view['masked/weights/mlm']
    inputs = {
        'input_word_ids': ids,
        'input_mask': tf.ones_like(ids),
        'input_type_ids': tf.zeros_like(ids),
        'masked_lm_positions': view['masked/places/mlm'],
    }
    tf_keras.mixed_precision.set_global_policy(precision)
    try:
        model = _peer_model(choices)
        model(inputs)  # builds the head, under the policy, too
    finally:
        tf_keras.mixed_precision.set_global_policy('float32')
    # The pooler has no part in the loss.
    trained = [v for v in model.trainable_variables if 'pooler' not in v.name]
    optimizer = tf_keras.optimizers.AdamW(
        LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-6,
    )
    optimizer.exclude_from_weight_decay(
        var_names=['bias', 'layer_norm', 'LayerNorm']
    )
    optimizer.build(trained)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)['mlm_logits']
            losses = tf_keras.losses.sparse_categorical_crossentropy(
                labels, tf.cast(logits, tf.float32), from_logits=True
            )
            loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
        gradients = tape.gradient(loss, trained)
        gradients, _ = tf.clip_by_global_norm(gradients, CLIP_NORM)
        optimizer.apply_gradients(zip(gradients, trained, strict=True))
        return loss

    return Contestant(step, {
        'operations': peer_operations(choices),
        'tokens': work.tokens_of(views),
    })  # fmt: skip


def _peer_model(choices: StepChoices) -> Any:
    import tf_keras
    from official.nlp.modeling import models, networks

    def gelu(x: Any) -> Any:
        return tf_keras.activations.gelu(x, approximate=True)

    sizes = SIZES[choices.size]
    encoder = networks.BertEncoderV2(
        vocab_size=choices.vocab_size,
        hidden_size=sizes['width'],
        num_layers=sizes['layers'],
        num_attention_heads=sizes['heads'],
        max_sequence_length=work.POSITIONS,
        type_vocab_size=SEGMENTS,
        inner_dim=4 * sizes['width'],
        inner_activation=gelu,
        output_dropout=choices.dropout,
        attention_dropout=choices.dropout,
    )
    return models.BertPretrainerV2(encoder, mlm_activation=gelu)


# -------------------------------------------------------- one in its process


def products(dtype: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Makes turns of one large matrix product, the best of several."""
    import tensorflow as tf

    x = tf.random.stateless_normal((PRODUCT_SIZE, PRODUCT_SIZE), (1, 2))
    x = tf.cast(x, dtype)
    product = tf.function(lambda a: tf.reduce_sum(tf.matmul(a, a)))
    product(x).numpy()  # traces

    def turn() -> dict[str, float]:
        seconds = []
        for _ in range(PRODUCT_REPEATS):
            began = time.perf_counter()
            product(x).numpy()
            seconds.append(time.perf_counter() - began)
        return {'seconds': min(seconds)}

    return turn, {'amount': 2 * PRODUCT_SIZE**3}


def contestant(
    choices: StepChoices,
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Makes the contestant of --serve, for `turns.serve`."""
    (precision,) = choices.precisions
    if choices.serve == PRODUCTS:
        return products(precision.removeprefix('mixed_'))
    if choices.serve == PEER:
        one = peer(choices, precision)
    else:
        one = ours(choices, choices.serve, precision, choices.memory_length)
    for _ in range(2):
        one.step().numpy()

    def turn() -> None:
        for _ in range(choices.steps):
            result = one.step()
        result.numpy()

    return turn, {'amount': choices.steps * one.facts['tokens'], **one.facts}


# ----------------------------------------------------------------- all of them


def entries(choices: StepChoices) -> list[tuple[str, str, int]]:
    """Lists contestants: value of --serve, name, tokens of memory."""
    listed = [] if choices.no_peer else [(PEER, PEER, 0)]
    for row in choices.rows:
        listed.append((row, row, 0))
        if choices.memory_length and work_of(choices, row).has_memory:
            listed.append((row, f'{row}+{choices.memory_length}',
                           choices.memory_length))  # fmt: skip
    return [*listed, (PRODUCTS, PRODUCTS, 0)]


def contest(choices: StepChoices) -> dict[str, Any]:
    """Runs all contestants, in each precision.

    Returns:
        A record of `turns`, whose `rows` have `tokens` and `operations` of a
        step; operations of products a second are in `products`, by group.

    Raises:
        RuntimeError: products failed.
    """
    same = {
        name: getattr(choices, name)
        for name in ('size', 'batch_size', 'seq_len', 'vocab_size', 'dropout',
                     'steps')
    }
    started = [
        turns.Served(name, turns.module('benchmarks.step', *commands.typed({
            **same, 'precisions': [precision], 'memory_length': length,
            'serve': serve,
        })), precision)
        for precision in choices.precisions
        for serve, name, length in entries(choices)
    ]  # fmt: skip
    with turns.closing(started):
        record = turns.compete(started, 'tokens', [{}] * choices.rounds)
    best = [row for row in record['rows'] if row['name'] == PRODUCTS]
    for row in best:
        if 'failed' in row:
            raise RuntimeError(row['failed'])
        record['rows'].remove(row)
    record['products'] = {
        row['group']: max(report.rates(row)) for row in best
    }
    record['settings'] = {**same, 'rounds': choices.rounds}
    return record


@commands.takes(StepChoices)
def run(choices: StepChoices, chosen: Mapping[str, Any]) -> None:
    """Serves one contestant, or runs all and prints the table.

    Raises:
        UsageError: an unknown row or precision.
    """
    del chosen
    from infoword_tf.objectives import SUMS, TABLE

    for name, values, known in (
        ('rows', choices.rows, (*TABLE, *SUMS)),
        ('precisions', choices.precisions, POLICIES),
    ):
        if not set(values) <= set(known) or len(set(values)) < len(values):
            raise errors.UsageError(
                'step_unknown_choice',
                f'--{name}={",".join(values)}: take each once, of '
                f'{", ".join(known)}',
            )
    if choices.serve:
        turns.serve(lambda: contestant(choices))
        return
    report.show(contest(choices))


if __name__ == '__main__':
    commands.start(run)
