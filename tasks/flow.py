r"""Makes the vectors of a workdir normal: a last network, fitted on text.

    python -m tasks.flow --init=runs/books --corpus='text:books/*.txt' \
        --pooling=first_last --workdir=runs/books_flow

An invertible network (layers/flow.py) is trained to give sentences of the
corpus standard normal vectors, by their exact likelihood (Li et al. 2020, "On
the Sentence Embeddings from Pre-trained Language Models"). The encoder stays as
it is, without dropout. The new workdir is that of --init with the network as
its last layer, so that `encode`, exports and every evaluation have it.

As published: 3 levels of 3 steps, couplings 32 wide, AdamW with a constant
learning rate, weight decay 0.01, gradients of norm 1 at most, and first weights
for which the first vectors have mean 0 and deviation 1 in every step.

Where text spans fewer directions than vectors have numbers, its likelihood has
no bound. So noise is added while fitting, of which epsilon is the variance as a
share of the mean variance of a number.

Bits are those of a number of a vector, -log2 p(x) / D, in the vectors' own
scale; of held-out sentences too, where the corpus has some. The last line of
the output is one JSON object, also in WORKDIR/metrics.json.

Glossary of shapes: n vectors, B of an update, D width.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands, progress
from infoword_tf.choices import flag
from infoword_tf.config import FlowConfig
from infoword_tf.data import corpora
from tasks import whiten

if TYPE_CHECKING:  # they make Keras layers
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.layers.flow import Flow

FIRST = 4096  # vectors that decide the first weights, at most
HELDOUT = 2000  # sentences that are measured, at most
WEIGHT_DECAY, CLIP_NORM = 0.01, 1.0


@dataclasses.dataclass(frozen=True)
class Choices(whiten.LayerChoices):
    """All that the command may choose."""

    levels: int = flag(
        3, 'Levels of the network, each of half the numbers of the last one.',
        at_least=1)
    depth: int = flag(3, 'Steps of a level.', at_least=1)
    hidden: int = flag(32, 'Width of the networks of couplings.', at_least=1)
    epochs: int = flag(10, 'How often every sentence is seen.', at_least=1)
    batch_size: int = flag(128, 'Sentences of an update.', at_least=1)
    learning_rate: float = flag(
        1e-3, 'Learning rate, which is constant.', at_least=0.0)
    epsilon: float = flag(
        1e-6, 'Variance of the noise, as a share of the mean variance of a '
        'number.', at_least=0.0)
    seed: int = flag(
        0, 'Random seed of the first weights, of order and of noise.',
        at_least=0)


def bits(flow: 'Flow', vectors: np.ndarray) -> float:
    """-log2 p(x) / D, the mean over [n, D]."""
    width = vectors.shape[1]
    squares = [
        np.square(np.float64(flow(some))).sum(axis=1)
        for some in np.array_split(vectors, math.ceil(len(vectors) / FIRST))
    ]
    nats = (
        np.concatenate(squares).mean() / 2
        + width * math.log(2 * math.pi) / 2
        - float(flow.log_det())
    )
    return nats / (width * math.log(2))


def begin(flow: 'Flow', x: np.ndarray, random: np.random.Generator) -> None:
    """First weights: all numbers of mean 0 and deviation 1, then a rotation.

    Couplings add nothing yet.

    Args:
        flow: with weights of any values.
        x: [n, D], by which.
        random: draws rotations, and the inner weights of couplings.
    """
    for number, step in enumerate(flow.steps):
        if number and number % flow.depth == 0:
            x, _ = flow.parted(x)
        rotation, upper = np.linalg.qr(random.standard_normal([x.shape[1]] * 2))
        rotation *= np.sign(np.diag(upper))  # uniform over all rotations
        mean, deviation = x.mean(axis=0), x.std(axis=0)
        deviation = np.maximum(deviation, 1e-6 * deviation.max())
        kernel = rotation / deviation[:, None]
        step.mix.kernel.assign(kernel)
        step.mix.bias.assign(-mean @ kernel)
        *inner, last = step.net
        for layer in inner:
            drawn = random.standard_normal(layer.kernel.shape)
            layer.kernel.assign(drawn * math.sqrt(2 / layer.width))
        last.kernel.assign(np.zeros(last.kernel.shape))
        x = np.asarray(step(x))


def fit(flow: 'Flow', vectors: np.ndarray, given: Choices) -> None:
    """Gives a flow the weights that make vectors likely.

    Args:
        flow: with weights of any values.
        vectors: [n, D].
        given: how.

    Raises:
        UsageError: vectors are not finite or all the same, or the loss did
            not stay finite.
    """
    import keras
    import tensorflow as tf
    x, mean = whiten.check(vectors)
    # Numbers of variance 1 on average: no rate depends on the vectors' scale.
    scale = math.sqrt(np.square(x - mean).mean())
    x = np.float32((x - mean) / scale)
    random = np.random.default_rng(given.seed)
    noise = math.sqrt(given.epsilon)

    def noisy(rows: np.ndarray) -> np.ndarray:
        drawn = random.standard_normal((len(rows), x.shape[1]), np.float32)
        return x[rows] + np.float32(noise) * drawn

    begin(flow, noisy(random.permutation(len(x))[:FIRST]), random)
    weights = flow.trainable_weights
    optimizer = keras.optimizers.AdamW(
        given.learning_rate,
        weight_decay=WEIGHT_DECAY,
        global_clipnorm=CLIP_NORM,
    )
    optimizer.exclude_from_weight_decay(var_names=['bias'])
    optimizer.build(weights)

    @tf.function(input_signature=[tf.TensorSpec((None, x.shape[1]))])
    def update(batch: tf.Tensor) -> tf.Tensor:
        """One update; its loss in nats, but for what is constant."""
        with tf.GradientTape() as tape:
            squares = tf.reduce_sum(tf.square(flow(batch)), axis=1)
            loss = tf.reduce_mean(squares) / 2 - flow.log_det()
        gradients = tape.gradient(loss, [w.value for w in weights])
        optimizer.apply(gradients, weights)
        return loss

    updates = math.ceil(len(x) / given.batch_size)
    with progress.bar(total=given.epochs * updates, unit=' updates') as bar:
        for _ in range(given.epochs):
            order = random.permutation(len(x))
            for rows in np.array_split(order, updates):
                loss = float(update(tf.constant(noisy(rows))))
                if not math.isfinite(loss):
                    raise commands.UsageError(
                        'the likelihood did not stay finite; raise --epsilon '
                        f'(now {given.epsilon:g}) or lower --learning_rate '
                        f'(now {given.learning_rate:g})'
                    )
                bar.set_postfix(nats=f'{loss:.1f}', refresh=False)
                bar.update()
    first = flow.steps[0].mix  # of what was not scaled
    kernel = np.float64(first.kernel) / scale
    first.bias.assign(np.float64(first.bias) - mean @ kernel)
    first.kernel.assign(kernel)


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command; as `whiten.extend`."""

    def normal(
        loaded: 'Loaded', texts: list[str], corpus: corpora.Corpus
    ) -> whiten.Fitted:
        from infoword_tf.layers.flow import Flow

        sizes = loaded.vector_width(), given.levels, given.depth, given.hidden
        flow = Flow(*sizes)
        flow.build()
        vectors = loaded.encode(texts)
        fit(flow, vectors, given)
        measured = {'bits': round(bits(flow, vectors), 4)}
        if heldout := whiten.spread(corpus.heldout, HELDOUT):
            held = loaded.encode(heldout, progress=False)
            measured['heldout_bits'] = round(bits(flow, held), 4)
        said = ', '.join(f'{name} {x:.3f}' for name, x in measured.items())
        return whiten.Fitted(
            FlowConfig(*sizes),
            {w.path.removeprefix(f'{flow.name}/'): w for w in flow.weights},
            f'made normal on {len(texts):,} sentences: {said}',
            measured,
        )

    return whiten.extend('flow', given, normal)


if __name__ == '__main__':
    commands.start(run)
