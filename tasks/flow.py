r"""A normalizing flow: a last network over vectors, trained on text.

    python -m tasks.flow --init=runs/books --corpus='text:books/*.txt' \
        --pooling=first_last --workdir=runs/books_flow

An invertible network (layers/flow.py) is trained to make the vectors of
sentences standard normal, by exact likelihood (Li et al. 2020, "On the Sentence
Embeddings from Pre-trained Language Models"). The encoder does not change. The
new workdir is --init with the network as its last layer, which `encode`,
exports and every evaluation apply.

As in the published program (bohanli/BERT-flow): 3 levels of 3 steps, each with
a norm of every number, a reversal of the numbers and a coupling 32 wide;
batches of 64 sentences (32 pairs); the loss in bits a number; BERT's Adam with
a constant learning rate, weight decay 0.01 of all weights, and its clip of the
loss summed over both sentences of a pair. --permutation=learned has a trained
matrix instead of norm and reversal.

Five differences: vectors have no dropout; they are scaled to variance 1 first,
so that no rate depends on their scale; the initial weights give mean 0 and
deviation 1 to the vectors of up to 4,096 sentences (there: of the first batch);
there are ten epochs (there: one); and there is noise, whose variance is epsilon
times the mean variance of a number. Without noise, the likelihood of text that
spans fewer directions than a vector has numbers is unbounded.

Bits are -log2 p(x) / D, in the scale of the vectors, also of held-out sentences
if the corpus has any. The last line of the output is one JSON object, also in
WORKDIR/metrics.json.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.config import LEARNED, PERMUTATIONS, REVERSAL, FlowConfig
from infoword_tf.data import corpora

from . import whiten

if TYPE_CHECKING:  # they make Keras layers
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.layers.flow import ActNorm, Flow, Step

FIRST = 4096  # vectors that determine the initial weights, at most
HELDOUT = 2000  # sentences that are measured, at most
# optimization_bert_flow.py excludes no weight of the flow from decay. There the
# loss is the sum over both sentences of a pair; here it is the mean.
DECAYING, CLIP_NORM = ('kernel', 'bias', 'log_scale'), 0.5
DEVIATION = 0.05  # of the initial kernels of couplings, glow_ops_1x1.py


@dataclasses.dataclass(frozen=True)
class FlowChoices(whiten.LayerChoices):
    """Choices of the command."""

    levels: int = flag(
        3, 'Levels of the network, each of half the numbers of the last one.',
        at_least=1)
    depth: int = flag(3, 'Steps of a level.', at_least=1)
    hidden: int = flag(32, 'Width of the networks of couplings.', at_least=1)
    permutation: str = flag(
        REVERSAL, 'What a step does before its coupling: it norms every '
        'number and reverses their order, as published; or it has a matrix '
        'that is trained.', choices=PERMUTATIONS)
    epochs: int = flag(10, 'How often every sentence is seen.', at_least=1)
    batch_size: int = flag(64, 'Sentences of an update.', at_least=1)
    learning_rate: float = flag(
        1e-3, 'Learning rate, which is constant.', at_least=0.0)
    epsilon: float = flag(
        1e-6, 'Variance of the noise, as a share of the mean variance of a '
        'number.', at_least=0.0)
    seed: int = flag(
        0, 'Random seed of initial weights, order and noise.',
        at_least=0)


def bits(flow: 'Flow', vectors: np.ndarray) -> float:
    """Averages -log2 p(x) / D over vectors [n, D]."""
    width = vectors.shape[1]
    squares = [
        np.square(np.float64(flow(chunk))).sum(axis=1)
        for chunk in np.array_split(vectors, math.ceil(len(vectors) / FIRST))
    ]
    nats = (
        np.concatenate(squares).mean() / 2
        + width * math.log(2 * math.pi) / 2
        - float(flow.log_det())
    )
    return nats / (width * math.log(2))


def begin(flow: 'Flow', x: np.ndarray, random: np.random.Generator) -> None:
    """Sets initial weights: mean 0 and deviation 1 after every step.

    Couplings add 0. A matrix is a norm followed by a rotation.

    Args:
        flow: network with weights of any values.
        x: [n, D], vectors that are normed.
        random: draws rotations, and the inner weights of couplings.
    """
    for number, step in enumerate(flow.steps):
        if number and number % flow.depth == 0:
            x, _ = flow.split_level(x)
        if step.permutation == LEARNED:
            begin_matrix(step, x, random)
            *hidden, last = step.net
            for layer in hidden:
                drawn = random.standard_normal(layer.kernel.shape)
                layer.kernel.assign(drawn * math.sqrt(2 / layer.width))
        else:
            begin_norm(step.mix, x)
            inner = np.asarray(step.mixed(x))[:, : step.half]
            *pairs, (last, _) = zip(step.net[::2], step.net[1::2], strict=True)
            for layer, norm in pairs:
                drawn = random.standard_normal(layer.kernel.shape)
                layer.kernel.assign(drawn * DEVIATION)
                inner = np.asarray(layer(inner))
                begin_norm(norm, inner)
                inner = np.asarray(norm(inner))
        last.kernel.assign(np.zeros(last.kernel.shape))
        x = np.asarray(step(x))


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and deviation of each number, [D]; no deviation is 0."""
    deviation = x.std(axis=0)
    return x.mean(axis=0), np.maximum(deviation, 1e-6 * deviation.max())


def begin_norm(norm: 'ActNorm', x: np.ndarray) -> None:
    """Sets the weights of a norm by vectors [n, D]."""
    from infoword_tf.layers.flow import LOG_FACTOR

    mean, deviation = moments(x)
    norm.bias.assign(-mean)
    norm.log_scale.assign(-np.log(deviation) / LOG_FACTOR)


def begin_matrix(
    step: 'Step', x: np.ndarray, random: np.random.Generator
) -> None:
    """Sets the matrix of a step: vectors [n, D] are normed, then rotated."""
    rotation, upper = np.linalg.qr(random.standard_normal([x.shape[1]] * 2))
    rotation *= np.sign(np.diag(upper))  # uniform over all rotations
    mean, deviation = moments(x)
    kernel = rotation / deviation[:, None]
    step.mix.kernel.assign(kernel)
    step.mix.bias.assign(-mean @ kernel)


def unscale(step: 'Step', mean: np.ndarray, scale: float) -> None:
    """Folds the scaling (x - mean) / scale into the first step."""
    from infoword_tf.layers.flow import LOG_FACTOR

    mix = step.mix
    if step.permutation == LEARNED:
        kernel = np.float64(mix.kernel) / scale
        mix.bias.assign(np.float64(mix.bias) - mean @ kernel)
        mix.kernel.assign(kernel)
    else:
        mix.bias.assign(scale * np.float64(mix.bias) - mean)
        mix.log_scale.assign(
            np.float64(mix.log_scale) - math.log(scale) / LOG_FACTOR
        )


def fit(flow: 'Flow', vectors: np.ndarray, choices: FlowChoices) -> None:
    """Trains a flow to make vectors [n, D] likely.

    Raises:
        UsageError: vectors are not finite or all the same, or the loss is not
            finite.
    """
    import tensorflow as tf

    from infoword_tf.training import optim

    x, mean = whiten.check(vectors)
    scale = math.sqrt(np.square(x - mean).mean())
    x = ((x - mean) / scale).astype(np.float32)
    random = np.random.default_rng(choices.seed)
    noise = math.sqrt(choices.epsilon)

    def noisy(numbers: np.ndarray) -> np.ndarray:
        shape = len(numbers), x.shape[1]
        drawn = random.standard_normal(shape, np.float32)
        return x[numbers] + np.float32(noise) * drawn

    begin(flow, noisy(random.permutation(len(x))[:FIRST]), random)
    weights = flow.trainable_weights
    optimizer = optim.AdamW(
        {w.path: w for w in weights},
        optim.PRESETS['bert']._replace(decaying=DECAYING, clip_norm=CLIP_NORM),
    )
    rate = tf.constant(choices.learning_rate, tf.float32)
    bits = 1 / (x.shape[1] * math.log(2))

    @tf.function(
        input_signature=[tf.TensorSpec((None, x.shape[1]))], autograph=False
    )
    def update(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Updates weights; returns nats less a constant, and success."""
        with tf.GradientTape() as tape:
            squares = tf.reduce_sum(tf.square(flow(batch)), axis=1)
            nats = tf.reduce_mean(squares) / 2 - flow.log_det()
            loss = nats * bits
        gradients = tape.gradient(loss, [w.value for w in weights])
        finite = tf.math.is_finite(nats)
        # Without `corrected` the count of updates is not used.
        return nats, optimizer.apply(gradients, rate, tf.constant(0), finite)

    updates = math.ceil(len(x) / choices.batch_size)
    with commands.bar(total=choices.epochs * updates, unit=' updates') as bar:
        for _ in range(choices.epochs):
            order = random.permutation(len(x))
            for batch in np.array_split(order, updates):
                nats, updated = update(tf.constant(noisy(batch)))
                if not updated:
                    raise errors.UsageError(
                        'flow_not_finite',
                        'the likelihood did not stay finite; raise --epsilon '
                        f'(now {choices.epsilon:g}) or lower --learning_rate '
                        f'(now {choices.learning_rate:g})',
                    )
                bar.set_postfix(nats=f'{float(nats):.1f}', refresh=False)
                bar.update()
    unscale(flow.steps[0], mean, scale)


@commands.takes(FlowChoices)
def run(choices: FlowChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a flow to a workdir; see `whiten.extend`."""

    def normal(
        loaded: 'Loaded', texts: list[str], corpus: corpora.Corpus
    ) -> whiten.Fitted:
        from infoword_tf.layers.flow import Flow

        width = loaded.vector_width()
        sizes = width, choices.levels, choices.depth, choices.hidden
        flow = Flow(*sizes, choices.permutation)
        flow.build()
        vectors = loaded.encode(texts)
        fit(flow, vectors, choices)
        measured = {'bits': round(bits(flow, vectors), 4)}
        if heldout := whiten.spread(corpus.heldout, HELDOUT):
            held = loaded.encode(heldout, progress=False)
            measured['heldout_bits'] = round(bits(flow, held), 4)
        figures = ', '.join(f'{name} {x:.3f}' for name, x in measured.items())
        return whiten.Fitted(
            FlowConfig(*sizes, choices.permutation),
            {w.path.removeprefix(f'{flow.name}/'): w for w in flow.weights},
            f'made normal on {len(texts):,} sentences: {figures}',
            measured,
        )

    return whiten.extend('flow', choices, normal)


if __name__ == '__main__':
    commands.start(run)
