"""How fast a training step is on one GPU, under JAX.

    python -m benchmarks.gpu --size=base
    python -m benchmarks.gpu --size=large

It wants jax (with CUDA), keras, numpy and absl-py, and a checkout; TensorFlow
is not imported. A step is the trainer's: forward, backward, one clip of the
global norm, AdamW, dropout on, compiled whole. It runs over and over on one
batch of random text that lies on the device, so that nothing is measured but
the step. The default, 32 x 512 tokens, is meant for one GPU of 80 GB: for the
backward pass `infoword` keeps 10 GiB at `base` and 28 GiB at `large`, beside
1.6 and 5.0 GiB of weights, moments and gradients. What the compiler asks for
in all is printed before anything runs.

Utilisation is the operations of the step's matrix products, counted from the
views (work.py), over its time, over the device's rate of dense bfloat16
products: the published one where the device is known, or --peak_tflops.
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
# TFLOP/s of dense bfloat16 products by the name that JAX gives a device, as
# NVIDIA's data sheets have them.
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
class Choices:
    """All that the command may choose."""

    objectives: str = flag(
        'infoword', 'A row, a sum with a name, or weighted rows.')
    size: str = flag('base', 'Of the encoder.', choices=tuple(SIZES))
    batch_size: int = flag(32, 'Sequences.', at_least=2)
    seq_len: int = flag(
        512, 'Tokens of a sequence, with specials.', at_least=8)
    vocab_size: int = flag(30522, 'Pieces.', at_least=16)
    precision: str = flag(
        'mixed_bfloat16', 'Keras dtype policy.',
        choices=('float32', 'mixed_bfloat16'))
    rounds: int = flag(5, 'Turns, each timed.', at_least=1)
    steps: int = flag(20, 'Steps of a turn.', at_least=1)
    peak_tflops: float | None = flag(
        None, "The device's rate; None: as published.", at_least=0.001)


# ------------------------------------------------------------------------ step


class Program(NamedTuple):
    """A training step and what it runs on.

    Attributes:
        step: (state, batch) -> (state, loss), jitted; the state is donated.
        state: number of the step, weights, moments.
        batch: flat views.
        weights: how many trainable numbers there are.
        operations: floating-point operations of a step's matrix products.
    """

    step: Callable[[Any, Any], tuple[Any, Any]]
    state: tuple[Any, list[Any], list[Any]]
    batch: Mapping[str, Any]
    weights: int
    operations: int


def make_program(own: work.Work, precision: str) -> Program:
    """The step of a row or sum, as the trainer on one device makes it.

    Args:
        own: what it works on.
        precision: Keras dtype policy.
    """
    import jax
    import keras

    from infoword_tf import views
    from infoword_tf.layers import dropout
    from infoword_tf.model import Model

    model = Model(own.config(precision), own.specials, work.SEED)
    variables = list(model.trainable.values())
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, **ADAMW)
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in variables if not v.path.endswith(DECAYING)]
    )
    optimizer.build(variables)
    made = own.make_views()

    def loss_of(weights: Any, batch: Any, key: Any) -> Any:
        pairs = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            outcomes, _ = model.outcomes(
                views.unflatten(batch), own.statistics, key
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
        jax.jit(step, donate_argnums=0),
        (
            jax.numpy.zeros((), 'int32'),
            [v.value for v in variables],
            [v.value for v in optimizer.variables],
        ),
        jax.device_put(views.flatten(made)),
        sum(math.prod(v.shape) for v in variables),
        own.operations(made),
    )


# ---------------------------------------------------------------------- report


def say(what: str, value: str) -> None:
    """Prints a line of the report."""
    print(f'{what:<14}{value}', flush=True)


def checked(loss: Any, step: int) -> float:
    """Makes a number of the loss.

    Raises:
        FloatingPointError: it is not finite.
    """
    loss = float(loss)
    if not math.isfinite(loss):
        raise FloatingPointError(f'the loss of step {step} is {loss}')
    return loss


def utilisation(given: Choices, device: str, rate: float) -> str:
    """Compares TFLOP/s with what a device can, where that is known."""
    peak, source = given.peak_tflops, 'as --peak_tflops says'
    if peak is None and given.precision == 'mixed_bfloat16':
        peak, source = PEAKS.get(device), 'as published'
    if peak is None:
        return f'{rate:,.4g} TFLOP/s; --peak_tflops says of how many'
    return f'{rate / peak:.1%}, {rate:,.4g} of {peak:,.4g} TFLOP/s ({source})'


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Compiles, runs, prints.

    Raises:
        UsageError: there is no such row.
        FloatingPointError: a loss is not finite.
    """
    del chosen
    try:
        work.rows_of(given.objectives)
    except ValueError as error:
        raise errors.UsageError(f'--objectives: {error}') from None
    import jax

    device = jax.devices()[0].device_kind
    own = work.Work(
        given.objectives,
        given.size,
        given.batch_size,
        given.seq_len,
        given.vocab_size,
    )
    say('device', f'{device}, jax {jax.__version__}')
    say(
        'work',
        f'{own.objectives}, {own.size}, {own.batch_size} x {own.seq_len} '
        f'tokens a step, {own.vocab_size:,} pieces, dropout {own.rate}, '
        f'{given.precision}',
    )
    program = make_program(own, given.precision)
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
    for _ in range(given.rounds):
        began = time.perf_counter()
        for _ in range(given.steps):
            state, loss = step(state, program.batch)
        jax.block_until_ready((state, loss))
        times.append((time.perf_counter() - began) / given.steps)
    last = checked(loss, int(state[0]))

    seconds = statistics.median(times)
    tokens = work.tokens_of(own.make_views())
    say(
        'tokens/s',
        f'{tokens / seconds:,.0f} ({tokens / max(times):,.0f}-'
        f'{tokens / min(times):,.0f}), median of {given.rounds} rounds of '
        f'{given.steps} steps (lowest-highest)',
    )
    say('step', f'{1e3 * seconds:,.2f} ms')
    rate = program.operations / seconds / 1e12
    say('utilisation', utilisation(given, device, rate))
    say('loss', f'{first:.5f} -> {last:.5f}, step 1 -> {int(state[0])}')


if __name__ == '__main__':
    os.environ['KERAS_BACKEND'] = 'jax'  # before Keras is imported
    commands.start(run)
