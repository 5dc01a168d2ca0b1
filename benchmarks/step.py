"""How fast a training step is, beside Model Garden's BERT in the same run.

    python -m benchmarks.step
    python -m benchmarks.step --size=tiny --rows=mlm --precisions=float32

Every contestant makes whole updates: forward, backward, one clip of the
global norm, AdamW, in one `tf.function`, in a process of its own (`--serve`).
Each round lets every contestant make some steps, in turn (turns.py).
A machine's speed drifts, so only ratios within a round count: to the peer in
the same precision. Tokens are those of the text, each once: no specials, no
second view of it, nothing that is read again. Texts are full, so there is no
padding but that of packed n-grams.

The share is of the machine's own matrix-product rate: the operations of all
matrix products of a step, over its time, over the best rate of one large
product in the same precision, which takes turns with the others.

Glossary of shapes: B sequences, T tokens of each, D width, V vocabulary.
"""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import flags

from benchmarks import report, turns, work
from benchmarks.turns import COPIES, PRODUCTS
from infoword_tf import commands

# The backend is chosen before Keras is imported.
os.environ['KERAS_BACKEND'] = 'tensorflow'

# ----------------------------------------------------------------------- flags

SIZE = flags.DEFINE_enum(
    'size', 'mini', ['tiny', 'mini', 'small', 'medium', 'base', 'large'],
    'Of the encoder, on both sides.')
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Sequences.', lower_bound=1)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', 128, 'Tokens of a sequence, with specials.', lower_bound=8)
VOCAB_SIZE = flags.DEFINE_integer(
    'vocab_size', 30522, 'Pieces.', lower_bound=16)
DROPOUT = flags.DEFINE_float(
    'dropout', 0.1, 'Share dropped of states and attention weights.',
    lower_bound=0.0, upper_bound=0.99)
ROWS = flags.DEFINE_list(
    'rows', 'bert_nce,mlm,infoword', 'Rows of the table, and sums of them '
    'that have a name.')
MEMORY_LENGTH = flags.DEFINE_integer(
    'memory_length', 0, 'Tokens of memory: rows whose encoder has one run '
    'without it and, as ROW+LENGTH, with it.', lower_bound=0)
PRECISIONS = flags.DEFINE_list(
    'precisions', 'float32,mixed_bfloat16', 'Keras dtype policies.')
ROUNDS = flags.DEFINE_integer(
    'rounds', 5, 'Turns of each contestant.', lower_bound=1)
STEPS = flags.DEFINE_integer('steps', 6, 'Steps of a turn.', lower_bound=1)
NO_PEER = flags.DEFINE_bool('no_peer', False, 'Rows alone.')
SERVE = flags.DEFINE_string(
    'serve', None, 'Only: answer lines, as one contestant in one precision: a '
    'row, the peer, products or copies.')


@flags.validator('rows')
def _are_known(rows: Sequence[str]) -> bool:
    from infoword_tf.objectives import SUMS, TABLE

    for row in rows:
        if row not in (*TABLE, *SUMS):
            raise flags.ValidationError(
                f'there is no row or sum {row!r}; known are '
                f'{", ".join([*TABLE, *SUMS])}'
            )
    if len(set(rows)) < len(rows):
        raise flags.ValidationError('one of them is there twice')
    return True


flags.register_validator(
    'precisions', lambda names: set(names) <= {'float32', 'mixed_bfloat16'},
    'has float32 and mixed_bfloat16 alone')

PEER = 'Model Garden'
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0
SEGMENTS = 2
PRODUCT_SIZE, PRODUCT_REPEATS = 2048, 3  # repeats in each round
COPIED = 1 << 26  # numbers, 256 MiB: more than any cache


class Contestant(NamedTuple):
    """One model in one precision, ready to run.

    Attributes:
        step: makes one update and returns a tensor of it.
        weights: how many trainable numbers there are.
        operations: floating-point operations of a step's matrix products.
        traffic: bytes that a step reads and writes, at least.
        tokens: of text that a step reads.
    """

    step: Callable[[], Any]
    weights: int
    operations: int
    traffic: int
    tokens: int


# ------------------------------------------------------------------------ work


def work_of(objectives: str, memory_length: int = 0) -> work.Work:
    """A row or sum at the size that the flags name."""
    return work.Work(
        objectives,
        SIZE.value,
        BATCH_SIZE.value,
        SEQ_LEN.value,
        VOCAB_SIZE.value,
        DROPOUT.value,
        memory_length,
    )


def lengths_of(objectives: str) -> list[int]:
    """Tokens of memory that a row or sum runs with."""

    if MEMORY_LENGTH.value and work_of(objectives).remembers:
        return [0, MEMORY_LENGTH.value]
    return [0]


def peer_operations() -> int:
    """Operations of the peer's step.

    Every block asks everywhere. Its head has a D x D transform. Its segment
    embedding is a product too, of one-hot rows that need no gradient. Its
    pooler is not part of the loss and does not run.
    """
    one = work_of('mlm')
    b, t, d = BATCH_SIZE.value, SEQ_LEN.value, one.width
    pairs = b * one.places
    forward = (
        one.layers * work.block_operations(b, t, t, d)
        + 2 * pairs * d * d
        + 2 * pairs * d * VOCAB_SIZE.value
    )
    segments = 2 * b * t * SEGMENTS * d
    return 3 * forward + 2 * segments


def tensors_of(batch: Any) -> dict[str, Any]:
    """Views as the trainer gets them, flat tensors."""
    import tensorflow as tf

    from infoword_tf import views

    flat = views.flatten(batch)
    return {name: tf.constant(array) for name, array in flat.items()}


# ----------------------------------------------------------------- contestants


def ours(
    objectives: str,
    precision: str,
    memory_length: int = 0,
    moments: str = 'float32',
    remat: bool = False,
) -> Contestant:
    """A row or sum, stepped by the trainer of `infoword_tf.train`.

    A step costs the same however full its memory is.
    """
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.training import distribution, loop, optim

    own = work_of(objectives, memory_length)
    strategy = distribution.make_strategy('one')
    with strategy.scope():
        model = Model(own.config(precision), own.specials, work.SEED)
        model.encoder.remat = remat
        optimizer = optim.AdamW(
            model.trainable,
            optim.chosen(
                weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM, moments=moments
            ),
        )
    made = own.make_views()
    batch = tensors_of(made)
    trainer = loop.Trainer(
        model,
        tf.data.Dataset.from_tensors(batch),
        strategy,
        optimizer,
        tf.Variable(0, dtype=tf.int64, trainable=False),
        lambda step: tf.constant(LEARNING_RATE),
        own.statistics,
        work.SEED,
        BATCH_SIZE.value,
    )

    @tf.function
    def step() -> Any:
        trainer.train_step(itertools.repeat(batch))
        return trainer.sums.read_value()

    weights = sum(int(tf.size(v)) for v in optimizer.variables.values())
    return Contestant(
        step,
        weights,
        own.operations(made),
        own.traffic(made, weights),
        work.tokens_of(made),
    )


def peer(precision: str) -> Contestant:
    """Model Garden's BERT with its masked-word head over V at P places."""
    import tensorflow as tf
    import tf_keras

    made = work_of('mlm').make_views()
    view = tensors_of(made)
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
        model = _peer_model()
        model(inputs)  # makes the head's layers, under the policy too
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

    count = sum(int(tf.size(v)) for v in trained)
    return Contestant(
        step,
        count,
        peer_operations(),
        work_of('mlm').traffic(made, count),
        work.tokens_of(made),
    )


def _peer_model() -> Any:
    import tf_keras
    from official.nlp.modeling import models, networks

    from infoword_tf.sizes import SIZES

    def gelu(x: Any) -> Any:
        return tf_keras.activations.gelu(x, approximate=True)

    sizes = SIZES[SIZE.value]
    encoder = networks.BertEncoderV2(
        vocab_size=VOCAB_SIZE.value,
        hidden_size=sizes['width'],
        num_layers=sizes['layers'],
        num_attention_heads=sizes['heads'],
        max_sequence_length=work.POSITIONS,
        type_vocab_size=SEGMENTS,
        inner_dim=4 * sizes['width'],
        inner_activation=gelu,
        output_dropout=DROPOUT.value,
        attention_dropout=DROPOUT.value,
    )
    return models.BertPretrainerV2(encoder, mlm_activation=gelu)


# --------------------------------------------------------- one in its process


def products(dtype: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """One large matrix product: a turn's best of some, in operations."""
    import tensorflow as tf

    x = tf.random.stateless_normal((PRODUCT_SIZE, PRODUCT_SIZE), (1, 2))
    x = tf.cast(x, dtype)
    product = tf.function(lambda a: tf.reduce_sum(tf.matmul(a, a)))
    return _best(lambda: product(x).numpy()), {
        'amount': 2 * PRODUCT_SIZE**3
    }


def copies() -> tuple[Callable[[], Any], dict[str, Any]]:
    """One large array moved in place by another: a turn's best, in bytes."""
    import tensorflow as tf

    x, delta = tf.Variable(tf.zeros(COPIED)), tf.zeros(COPIED)

    @tf.function
    def move() -> Any:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=x.handle, alpha=1.0, delta=delta
        )
        return x[0]

    return _best(lambda: move().numpy()), {'amount': 3 * 4 * COPIED}


def _best(run: Callable[[], Any]) -> Callable[[], dict[str, float]]:
    """A turn that says its shortest time; the first call traces."""
    run()

    def turn() -> dict[str, float]:
        found = []
        for _ in range(PRODUCT_REPEATS):
            began = time.perf_counter()
            run()
            found.append(time.perf_counter() - began)
        return {'seconds': min(found)}

    return turn


def contestant() -> tuple[Callable[[], Any], dict[str, Any]]:
    """What --serve names, as `turns.serve` takes it."""
    (precision,) = PRECISIONS.value
    if SERVE.value == PRODUCTS:
        return products(precision.removeprefix('mixed_'))
    if SERVE.value == COPIES:
        return copies()
    if SERVE.value == PEER:
        found = peer(precision)
    else:
        found = ours(SERVE.value, precision, MEMORY_LENGTH.value)
    for _ in range(2):
        found.step().numpy()

    def turn() -> None:
        for _ in range(STEPS.value):
            made = found.step()
        made.numpy()

    return turn, {
        'amount': STEPS.value * found.tokens,
        'weights': found.weights,
        'tokens': found.tokens,
        'operations': found.operations,
        'traffic': found.traffic,
    }


# ------------------------------------------------------------------ all of them


def contest() -> dict[str, Any]:
    """Lets all that the flags name run, in each precision.

    Returns:
        A record of `turns`; rows have `weights`, and of a step `tokens`,
        `operations` and `traffic`. Operations of products a second are under
        `products`, by group.
    """
    same = {
        name: flags.FLAGS[name].value
        for name in ('size', 'batch_size', 'seq_len', 'vocab_size', 'dropout',
                     'steps')
    }
    started = []
    for precision in PRECISIONS.value:
        given = {**same, 'precisions': precision}
        named = [] if NO_PEER.value else [(PEER, PEER, 0)]
        for row in ROWS.value:
            for length in lengths_of(row):
                name = f'{row}+{length}' if length else row
                named.append((row, name, length))
        for serve, name, length in [*named, (PRODUCTS, PRODUCTS, 0)]:
            started.append(
                turns.step(
                    serve, name, precision, memory_length=length, **given
                )
            )
    with turns.ended(started):
        record = turns.compete(started, 'tokens', [{}] * ROUNDS.value)
    record['products'] = turns.best_of(record, PRODUCTS)
    record['settings'] = {**same, 'rounds': ROUNDS.value}
    return record


def main() -> None:
    """Serves one, or lets all run and prints the table."""
    if SERVE.value:
        turns.serve(contestant)
        return
    report.show(contest())


if __name__ == '__main__':
    commands.start(main)
