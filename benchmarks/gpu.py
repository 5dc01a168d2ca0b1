"""Speed of a training step on one GPU, under JAX.

    python -m benchmarks.gpu --size=base
    python -m benchmarks.gpu --size=large

Needs jax (with CUDA), keras, numpy and absl-py, and a checkout; TensorFlow is
not imported. A step is the trainer's: forward, backward, one clip of the global
norm, AdamW, dropout on, compiled whole. It runs again and again on one batch of
random text on the device, so that only the step is measured. The default, 32 x
512 tokens, is meant for one GPU of 80 GB: for the backward pass `infoword`
keeps 10 GiB at `base` and 28 GiB at `large`, beside 1.6 and 5.0 GiB of weights,
moments and gradients. The compiler's memory is printed before anything runs.

Utilisation is the operations of the step's matrix products, counted from the
views (work.py), over the time of a step, over the device's rate of dense
bfloat16 products: the published one of a known device, or --peak_tflops.
"""

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import work
from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.sizes import SIZES

LEARNING_RATE = 1e-4
# As in infoword_tf/training/optim.py, which needs TensorFlow.
ADAMW = {
    'weight_decay': 0.01,
    'beta_1': 0.9,
    'beta_2': 0.98,
    'epsilon': 1e-6,
    'global_clipnorm': 1.0,
}
DECAYING = ('kernel', 'embedding', 'embeddings')
# Of XLA on a GPU. Products of two views with the same weights would be merged,
# which copies the states of both side by side; and states that are rounded to
# bfloat16 would be kept in float32.
COMPILER = {
    'xla_gpu_dot_merger_threshold_mb': 0,
    'xla_allow_excess_precision': False,
}
# TFLOP/s of dense bfloat16 products in NVIDIA's data sheets, by JAX's name of
# the device.
PEAKS = {
    'NVIDIA H200': 989.0,
    'NVIDIA H100 80GB HBM3': 989.0,
    'NVIDIA H100 PCIe': 756.0,
    'NVIDIA A100-SXM4-80GB': 312.0,
    'NVIDIA A100-SXM4-40GB': 312.0,
    'NVIDIA A100 80GB PCIe': 312.0,
    'NVIDIA A100-PCIE-40GB': 312.0,
}


@dataclasses.dataclass(frozen=True)
class GpuChoices:
    """Choices of the command."""

    objectives: str = flag(
        'infoword', 'A row, a sum with a name, or weighted rows.')
    size: str = flag('base', 'Of the encoder.', choices=tuple(SIZES))
    batch_size: int = flag(32, 'Sequences.', at_least=2)
    seq_len: int = flag(
        512, 'Tokens of a sequence, with specials.', at_least=8)
    vocab_size: int = flag(30522, 'Tokens of the vocabulary.', at_least=16)
    precision: str = flag(
        'mixed_bfloat16', 'Keras dtype policy.',
        choices=('float32', 'mixed_bfloat16'))
    rounds: int = flag(5, 'Turns, each timed.', at_least=1)
    steps: int = flag(20, 'Steps of a turn.', at_least=1)
    peak_tflops: float | None = flag(
        None, "The device's rate; None: as published.", at_least=0.001)


# ------------------------------------------------------------------------ step


class Program(NamedTuple):
    """A training step, with state and batch.

    Attributes:
        step: (state, batch) -> (state, loss), jitted; the state is donated.
        state: number of the step, weights, moments.
        batch: flat views.
        weights: number of trainable weights.
        operations: floating-point operations of a step's matrix products.
    """

    step: Callable[[Any, Any], tuple[Any, Any]]
    state: tuple[Any, list[Any], list[Any]]
    batch: Mapping[str, Any]
    weights: int
    operations: int


def make_program(task: work.Work, precision: str) -> Program:
    """Builds the step of a row or sum, as the trainer on one device."""
    import jax
    import keras

    from infoword_tf import views
    from infoword_tf.layers import dropout
    from infoword_tf.model import Model

    model = Model(task.config(precision), task.specials, work.SEED)
    variables = list(model.trainable.values())
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, **ADAMW)
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in variables if not v.path.endswith(DECAYING)]
    )
    optimizer.build(variables)
    batch = task.make_views()

    def loss_of(weights: Any, batch: Any, key: Any) -> Any:
        pairs = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            outcomes, _ = model.outcomes(
                views.unflatten(batch), task.statistics, key
            )
            return model.loss(outcomes)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        number, weights, moments = state
        key = dropout.new_key(work.SEED, number)
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch, key)
        weights, moments = optimizer.stateless_apply(
            moments, gradients, weights
        )
        return (number + 1, weights, moments), loss

    return Program(
        jax.jit(step, donate_argnums=0, compiler_options=COMPILER),
        (
            jax.numpy.zeros((), 'int32'),
            [v.value for v in variables],
            [v.value for v in optimizer.variables],
        ),
        jax.device_put(views.flatten(batch)),
        sum(math.prod(v.shape) for v in variables),
        task.operations(batch),
    )


# ---------------------------------------------------------------------- report


def say(what: str, value: str) -> None:
    """Prints a line of the report."""
    print(f'{what:<14}{value}', flush=True)


def checked(loss: Any, step: int) -> float:
    """Converts a loss to a number.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    loss = float(loss)
    if not math.isfinite(loss):
        raise FloatingPointError(f'the loss of step {step} is {loss}')
    return loss


def utilisation(choices: GpuChoices, device: str, rate: float) -> str:
    """Compares TFLOP/s with the peak rate of a device, if known."""
    peak, source = choices.peak_tflops, 'as --peak_tflops says'
    if peak is None and choices.precision == 'mixed_bfloat16':
        peak, source = PEAKS.get(device), 'as published'
    if peak is None:
        return f'{rate:,.4g} TFLOP/s; --peak_tflops says of how many'
    return f'{rate / peak:.1%}, {rate:,.4g} of {peak:,.4g} TFLOP/s ({source})'


@commands.takes(GpuChoices)
def run(choices: GpuChoices, chosen: Mapping[str, Any]) -> None:
    """Compiles and runs a training step, and prints the figures.

    Raises:
        UsageError: no such row.
        FloatingPointError: a loss is not finite.
    """
    del chosen
    try:
        work.rows_of(choices.objectives)
    except ValueError as error:
        raise errors.UsageError(
            'gpu_unknown_rows', f'--objectives: {error}'
        ) from None
    import jax

    device = jax.devices()[0].device_kind
    task = work.Work(
        choices.objectives,
        choices.size,
        choices.batch_size,
        choices.seq_len,
        choices.vocab_size,
    )
    say('device', f'{device}, jax {jax.__version__}')
    say(
        'work',
        f'{task.objectives}, {task.size}, {task.batch_size} x {task.seq_len} '
        f'tokens a step, vocabulary {task.vocab_size:,}, dropout {task.rate}, '
        f'{choices.precision}',
    )
    program = make_program(task, choices.precision)
    say('weights', f'{program.weights:,}')
    say('products', f'{program.operations / 1e12:,.4g} TFLOP a step')
    began = time.perf_counter()
    step = program.step.lower(program.state, program.batch).compile()
    say('compiled in', f'{time.perf_counter() - began:.1f} s')
    memory = step.memory_analysis()
    if memory is not None:
        most = (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes
            + memory.temp_size_in_bytes
        )
        say('memory', f'{most / 2**30:.2f} GiB')

    state, first = step(program.state, program.batch)
    first = checked(first, 1)
    state, loss = step(state, program.batch)  # warm
    jax.block_until_ready(state)
    times = []
    for _ in range(choices.rounds):
        began = time.perf_counter()
        for _ in range(choices.steps):
            state, loss = step(state, program.batch)
        jax.block_until_ready((state, loss))
        times.append((time.perf_counter() - began) / choices.steps)
    last = checked(loss, int(state[0]))

    seconds = statistics.median(times)
    tokens = work.tokens_of(task.make_views())
    say(
        'tokens/s',
        f'{tokens / seconds:,.0f} ({tokens / max(times):,.0f}-'
        f'{tokens / min(times):,.0f}), median of {choices.rounds} rounds of '
        f'{choices.steps} steps (lowest-highest)',
    )
    say('step', f'{1e3 * seconds:,.2f} ms')
    rate = program.operations / seconds / 1e12
    say('utilisation', utilisation(choices, device, rate))
    say('loss', f'{first:.5f} -> {last:.5f}, step 1 -> {int(state[0])}')


if __name__ == '__main__':
    os.environ['KERAS_BACKEND'] = 'jax'  # before Keras is imported
    commands.start(run)
