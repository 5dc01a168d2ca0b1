"""An invertible network that maps vectors to a normal distribution.

It is Glow (Kingma & Dhariwal 2018), for vectors instead of images as in
BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language
Models", §4). `levels` times there are `depth` steps; each is

    x <- reversed((x + b) exp(3 l))     a norm of each number, a permutation
    x1, x2 <- x1, x2 + net(x1)          additive coupling of both halves

as in the published program (`permutation` 'reversal'), or, with a trained
matrix instead of the norm and the permutation ('learned', the 1x1 convolution
of Glow),

    x <- x W + b.

After each level half of the numbers is final, and the next level reads the
other half; the final halves, level by level, are the result. The determinant of
the Jacobian is the product of those of the steps, for every x. All numbers are
compared with a standard normal, as in the published program.

Glossary of shapes: F width of the networks of couplings.
"""

from infoword_tf import errors
from infoword_tf.config import LEARNED
from infoword_tf.layers.attention import vector
from infoword_tf.layers.dense import ACTIVATIONS, Dense
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

# Glow's `logscale_factor`, by which scales learn at a larger rate.
LOG_FACTOR = 3.0


class ActNorm(Layer):
    """A norm activation((x + b) exp(3 l)) (Kingma & Dhariwal 2018, §3.1)."""

    def __init__(self, width: int, activation: str, name: str):
        """Sets D, a name in dense.ACTIVATIONS, and the layer's name."""
        super().__init__(name=name)
        self.width, self.activation = width, activation

    def build(self) -> None:
        """Makes the weights, which change nothing at first."""
        self.bias = vector(self, 'bias', self.width)
        self.log_scale = vector(self, 'log_scale', self.width)

    def call(self, x: Tensor) -> Tensor:
        """Maps [B, D] to [B, D] float32."""
        x = (x + self.bias) * ops.exp(LOG_FACTOR * self.log_scale)
        return ACTIVATIONS[self.activation](x)


class Step(Layer):
    """A map of all numbers, then a coupling of both halves."""

    def __init__(self, width: int, hidden: int, permutation: str, name: str):
        """Sets D (at least 2), F, a name in PERMUTATIONS, the layer's name."""
        super().__init__(name=name)
        self.half = half = width // 2
        self.permutation = permutation
        if permutation == LEARNED:
            self.mix = Dense(width, width, 'identity', name='mix')
            self.net = [
                Dense(half, hidden, 'relu', name='net_0'),
                Dense(hidden, hidden, 'relu', name='net_1'),
                Dense(hidden, width - half, 'identity', name='net_2'),
            ]
            return
        self.mix = ActNorm(width, 'identity', name='norm')
        widths = half, hidden, hidden, width - half
        self.net = []
        for number, activation in enumerate(('relu', 'relu', 'identity')):
            narrow, wide = widths[number : number + 2]
            self.net += [
                Dense(narrow, wide, 'identity', False, name=f'net_{number}'),
                ActNorm(wide, activation, name=f'norm_{number}'),
            ]

    def build(self) -> None:
        """Makes the weights."""
        for layer in (self.mix, *self.net):
            layer.build()

    def mixed(self, x: Tensor) -> Tensor:
        """Maps [B, D] to the [B, D] float32 that the coupling takes."""
        x = self.mix(x)
        return x if self.permutation == LEARNED else ops.flip(x, axis=1)

    def call(self, x: Tensor) -> Tensor:
        """Maps [B, D] to [B, D] float32."""
        x = self.mixed(x)
        shift = first = x[:, : self.half]
        for layer in self.net:
            shift = layer(shift)
        return ops.concatenate([first, x[:, self.half :] + shift], axis=1)

    def log_det(self) -> Tensor:
        """Returns log |det| of the Jacobian, equal for every x: a scalar."""
        if self.permutation == LEARNED:
            return ops.slogdet(self.mix.kernel)[1]
        return LOG_FACTOR * ops.sum(self.mix.log_scale)


class Flow(Layer):
    """An invertible map of [B, D] to [B, D]."""

    def __init__(
        self,
        width: int,
        levels: int,
        depth: int,
        hidden: int,
        permutation: str,
        name: str = 'flow',
    ):
        """Sets D, levels, steps of each, F, and a name in PERMUTATIONS.

        Raises:
            ValueError: the last level has no two halves.
        """
        super().__init__(name=name)
        self.wide, self.depth = width, depth
        widths = [width]
        for _ in range(levels - 1):
            widths.append((widths[-1] + 1) // 2)
        if widths[-1] < 2:
            raise errors.InputError(
                'too_many_levels',
                f'{levels} levels halve vectors of {width} numbers to less '
                'than two; take fewer',
            )
        self.steps = [
            Step(widths[i // depth], hidden, permutation, f'step_{i}')
            for i in range(levels * depth)
        ]

    def build(self) -> None:
        """Makes the weights."""
        for step in self.steps:
            step.build()

    def call(self, x: Tensor) -> Tensor:
        """Maps [B, D] to [B, D] float32."""
        x, results = ops.cast(x, 'float32'), []
        for number, step in enumerate(self.steps):
            if number and number % self.depth == 0:
                x, result = self.split_level(x)
                results.append(result)
            x = step(x)
        return ops.concatenate([*results, x], axis=1)

    @staticmethod
    def split_level(x: Tensor) -> tuple[Tensor, Tensor]:
        """Splits [B, D] into the next level's input and final numbers."""
        count = (x.shape[1] + 1) // 2
        return x[:, :count], x[:, count:]

    def log_det(self) -> Tensor:
        """Returns log |det| of the Jacobian, equal for every x: a scalar."""
        return sum(step.log_det() for step in self.steps)
