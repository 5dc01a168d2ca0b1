"""How fast a training step is, beside Model Garden's BERT in the same run.

    python -m benchmarks.step
    python -m benchmarks.step --size=tiny --rows=mlm --precisions=float32

Every contestant makes whole updates: forward, backward, one clip of the global
norm, AdamW, in one `tf.function`. All are built first; then each round lets
every contestant make some steps, in an order that rotates. A machine's speed
drifts, so only ratios within a round count: the table gives the median over
rounds of tokens a second, their lowest and highest, and two medians of ratios
to a contestant of the same precision: of the speed to the peer's, and of the
time of a step to that of `bert_nce`. Tokens are those of the text, each once:
no specials, no second view of it, nothing that is read again. Texts are full,
so there is no padding but that of packed n-grams.

The last column is the share of the machine's own matrix-product rate: the
operations of all matrix products of a step, over its time, over the rate of
one large product in the same precision, measured between the rounds.

Glossary of shapes: B sequences, T tokens of each, D width, V vocabulary.
"""

import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks import work
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
JSON = flags.DEFINE_bool('json', False, 'Ends with all figures as JSON.')



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


class Contestant(NamedTuple):
    """One model in one precision, ready to run.

    Attributes:
        name: the row or sum, with + and its memory if any, or PEER.
        precision: Keras dtype policy.
        step: makes one update and returns a tensor of it.
        weights: how many trainable numbers there are.
        operations: floating-point operations of a step's matrix products.
        tokens: of text that a step reads.
    """

    name: str
    precision: str
    step: Callable[[], Any]
    weights: int
    operations: int
    tokens: int


class Score(NamedTuple):
    """What the rounds came to, for one contestant.

    Attributes:
        name, precision: of the contestant.
        tokens_per_second, lowest, highest: median and range over rounds.
        microseconds: of a step, from the median.
        ratio: median over rounds of the ratio to the peer.
        cost: median over rounds of a step's time over that of the first row
            in the same precision.
        share: of the machine's matrix-product rate in this precision.
        weights, operations: of the contestant.
    """

    name: str
    precision: str
    tokens_per_second: float
    lowest: float
    highest: float
    microseconds: float
    ratio: float
    cost: float
    share: float
    weights: int
    operations: int


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

    return Contestant(
        f'{objectives}+{memory_length}' if memory_length else objectives,
        precision,
        step,
        sum(int(tf.size(v)) for v in optimizer.variables.values()),
        own.operations(made),
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

    return Contestant(
        PEER,
        precision,
        step,
        sum(int(tf.size(v)) for v in trained),
        peer_operations(),
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


# ---------------------------------------------------------------------- rounds


def run_rounds(
    contestants: Sequence[Contestant],
) -> tuple[np.ndarray, dict[str, float]]:
    """Lets everybody run in turn.

    Returns:
        Tokens a second [rounds, contestants]; by precision, the best rate of
        a matrix product in operations a second.
    """
    for contestant in contestants:
        for _ in range(2):
            contestant.step().numpy()
    speeds = np.zeros((ROUNDS.value, len(contestants)))
    rates = {c.precision: 0.0 for c in contestants}
    for repeat in range(ROUNDS.value):
        for i in range(len(contestants)):
            who = (i + repeat) % len(contestants)
            tokens = STEPS.value * contestants[who].tokens
            speeds[repeat, who] = tokens / seconds_of(contestants[who])
        measured = product_rates([p.removeprefix('mixed_') for p in rates])
        for precision, rate in zip(rates, measured, strict=True):
            rates[precision] = max(rates[precision], rate)
    return speeds, rates


def product_rates(dtypes: Sequence[str]) -> list[float]:
    """Floating-point operations a second of one matrix product of each dtype.

    The best of some repeats, taken in turns, so that a busy machine misleads
    less.

    Args:
        dtypes: names of floating dtypes.
    """
    import tensorflow as tf

    x = tf.random.stateless_normal((PRODUCT_SIZE, PRODUCT_SIZE), (1, 2))
    product = tf.function(lambda a: tf.reduce_sum(tf.matmul(a, a)))
    operands = [tf.cast(x, dtype) for dtype in dtypes]
    best = [float('inf')] * len(operands)
    for repeat in range(PRODUCT_REPEATS + 1):
        for i, operand in enumerate(operands):
            began = time.perf_counter()
            product(operand).numpy()
            if repeat:  # the first one traces
                best[i] = min(best[i], time.perf_counter() - began)
    return [2 * PRODUCT_SIZE**3 / seconds for seconds in best]


def seconds_of(contestant: Contestant) -> float:
    """Time of --steps steps."""
    began = time.perf_counter()
    for _ in range(STEPS.value):
        made = contestant.step()
    made.numpy()
    return time.perf_counter() - began


def first_row(named: Sequence[Contestant | Score]) -> str:
    """The name of the first that is not the peer: others are compared to it."""
    return next(one.name for one in named if one.name != PEER)


def score(
    contestants: Sequence[Contestant],
    speeds: np.ndarray,
    rates: dict[str, float],
) -> list[Score]:
    """Medians over rounds, of speeds and of ratios to PEER and first row."""
    basis = first_row(contestants)
    speeds_of = {
        (c.name, c.precision): speeds[:, i] for i, c in enumerate(contestants)
    }
    seconds_of_step = {
        (c.name, c.precision): c.tokens / speeds[:, i]
        for i, c in enumerate(contestants)
    }
    found = []
    for contestant, own in zip(contestants, speeds.T, strict=True):
        median = statistics.median(own)
        seconds = contestant.tokens / median
        rate = contestant.operations / seconds
        peers = speeds_of[PEER, contestant.precision]
        first = seconds_of_step[basis, contestant.precision]
        found.append(
            Score(
                contestant.name,
                contestant.precision,
                median,
                min(own),
                max(own),
                1e6 * seconds,
                statistics.median(own / peers),
                statistics.median(contestant.tokens / own / first),
                rate / rates[contestant.precision],
                contestant.weights,
                contestant.operations,
            )
        )
    return found


# ---------------------------------------------------------------------- report


def hardware() -> dict[str, Any]:
    """Processor, cores, bfloat16 instructions, versions, who else runs."""
    from infoword_tf.training import precision

    path = precision.CPUINFO
    text = path.read_text() if path.exists() else ''
    fields = dict(
        (part.strip() for part in line.split(':', 1))
        for line in text.splitlines()
        if ':' in line
    )
    own = precision.instructions() or ()
    packages = ('tensorflow', 'keras', 'tf_keras', 'tf-models-official')
    return {
        'processor': fields.get('model name') or platform.machine(),
        'cores': os.cpu_count(),
        **{name: name in own for name in precision.INSTRUCTIONS},
        **{name: metadata.version(name) for name in packages},
        'load before': round(os.getloadavg()[0], 2),
    }


def print_head(machine: dict[str, Any]) -> None:
    """Says what runs on what."""
    words = [str(machine.pop('processor')), f'{machine.pop("cores")} cores']
    for name, value in machine.items():
        if isinstance(value, bool):
            value = 'yes' if value else 'no'
        words.append(f'{name} {value}')
    print(', '.join(words))
    one = work_of('mlm')
    print(
        f'{SIZE.value} ({one.layers} x {one.width}), {BATCH_SIZE.value} x '
        f'{SEQ_LEN.value} tokens a step, {one.places} places a sequence, '
        f'{VOCAB_SIZE.value:,} pieces, dropout {DROPOUT.value}; '
        f'{ROUNDS.value} rounds of {STEPS.value} steps'
    )


def print_table(scores: Sequence[Score], rates: dict[str, float]) -> None:
    """The table, and the lines that explain it."""
    for precision, rate in rates.items():
        print(f'matrix products, {precision}: {rate / 1e9:,.0f} GFLOP/s')
    for name, some in itertools.groupby(
        sorted(scores, key=lambda s: s.name), key=lambda s: s.name
    ):
        one = next(some)
        print(
            f'{name}: {one.weights:,} weights, '
            f'{one.operations / 1e9:,.1f} GFLOP of products a step'
        )
    print(
        f'\n{"precision":15}{"contestant":18}{"tokens/s":>9}'
        f'{"lowest-highest":>17}{"x peer":>8}{"us/step":>11}'
        f'{"x " + first_row(scores):>12}{"of rate":>9}'
    )
    for s in scores:
        spread = f'{s.lowest:,.0f}-{s.highest:,.0f}'
        print(
            f'{s.precision:15}{s.name:18}{s.tokens_per_second:9,.0f}'
            f'{spread:>17}{s.ratio:8.2f}{s.microseconds:11,.0f}'
            f'{s.cost:12.2f}{s.share:9.0%}'
        )


def main() -> None:
    """Builds everything, runs the rounds, prints."""
    machine = hardware()
    print_head(dict(machine))
    contestants = []
    for precision in PRECISIONS.value:
        contestants.append(peer(precision))
        contestants.extend(
            ours(row, precision, length)
            for row in ROWS.value
            for length in lengths_of(row)
        )
    speeds, rates = run_rounds(contestants)
    scores = score(contestants, speeds, rates)
    print_table(scores, rates)
    if JSON.value:
        settings = {
            name: flags.FLAGS[name].value
            for name in ('size', 'batch_size', 'seq_len', 'vocab_size',
                         'dropout', 'memory_length', 'rounds', 'steps')
        }
        figures = {
            'machine': machine,
            'settings': settings,
            'product_rates': rates,
            'scores': [s._asdict() for s in scores],
        }
        print(json.dumps(figures))


if __name__ == '__main__':
    commands.start(main)
