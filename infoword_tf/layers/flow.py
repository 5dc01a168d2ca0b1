"""An invertible network that makes vectors normal: BERT-flow's Glow.

Kingma & Dhariwal 2018 (Glow), for vectors instead of images as Li et al. 2020
("On the Sentence Embeddings from Pre-trained Language Models", §4) have it.
`levels` times there are `depth` steps, of which each is

    x <- reversed((x + b) exp(3 l))     a norm of each number, a permutation
    x1, x2 <- x1, x2 + net(x1)          additive coupling of both halves

as the published program has it (`permutation` 'reversal'), or, with a matrix
that is trained in their place ('learned', the 1x1 convolution of Glow),

    x <- x W + b.

After each level half of the numbers is done; the next level sees the other
half. What is done, level by level, is the vector. The determinant of the
Jacobian is the product of those of the steps, for every x. All numbers are
compared with a standard normal, as in the published program.

Glossary of shapes: B texts, D width, H width of the networks of couplings.
"""

from typing import Any

from infoword_tf.config import LEARNED
from infoword_tf.layers.attention import vector
from infoword_tf.layers.dense import ACTIVATIONS, Dense
from infoword_tf.lazy import Layer, ops

Tensor = Any
# Of what is trained, Glow's `logscale_factor`: rates of scales are larger.
LOG_FACTOR = 3.0


class ActNorm(Layer):
    """activation((x + b) exp(3 l)): Kingma & Dhariwal 2018, §3.1."""

    def __init__(self, width: int, activation: str, name: str):
        """Args: D; a name in dense.ACTIVATIONS; name of the layer."""
        super().__init__(name=name)
        self.width, self.activation = width, activation

    def build(self) -> None:
        """Makes the weights, with which nothing changes."""
        self.bias = vector(self, 'bias', self.width)
        self.log_scale = vector(self, 'log_scale', self.width)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, D] float32."""
        x = (x + self.bias) * ops.exp(LOG_FACTOR * self.log_scale)
        return ACTIVATIONS[self.activation](x)


class Step(Layer):
    """A map of all numbers, then a coupling of both halves."""

    def __init__(self, width: int, hidden: int, permutation: str, name: str):
        """Args: D, at least 2; H; one of PERMUTATIONS; name of the layer."""
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
        self.built = True

    def mixed(self, x: Tensor) -> Tensor:
        """Maps [B, D] to the [B, D] float32 that the coupling takes."""
        x = self.mix(x)
        return x if self.permutation == LEARNED else ops.flip(x, axis=1)

    def call(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, D] float32."""
        x = self.mixed(x)
        moved = first = x[:, : self.half]
        for layer in self.net:
            moved = layer(moved)
        return ops.concatenate([first, x[:, self.half :] + moved], axis=1)

    def log_det(self) -> Tensor:
        """log |det| of the Jacobian, of any x: a scalar."""
        if self.permutation == LEARNED:
            return ops.slogdet(self.mix.kernel)[1]
        return LOG_FACTOR * ops.sum(self.mix.log_scale)


class Flow(Layer):
    """[B, D] -> [B, D], and back if one wishes."""

    def __init__(
        self,
        width: int,
        levels: int,
        depth: int,
        hidden: int,
        permutation: str,
        name: str = 'flow',
    ):
        """Args: D; levels, steps of each, H; one of PERMUTATIONS; name of the
        layer.

        Raises:
            ValueError: the last level has no two halves.
        """
        super().__init__(name=name)
        self.wide, self.depth = width, depth
        widths = [width]
        for _ in range(levels - 1):
            widths.append((widths[-1] + 1) // 2)
        if widths[-1] < 2:
            raise ValueError(
                f'{levels} levels halve vectors of {width} numbers to less '
                'than two; take fewer'
            )
        self.steps = [
            Step(widths[i // depth], hidden, permutation, f'step_{i}')
            for i in range(levels * depth)
        ]

    def build(self) -> None:
        """Makes the weights."""
        for step in self.steps:
            step.build()
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, D] float32."""
        x, done = ops.cast(x, 'float32'), []
        for number, step in enumerate(self.steps):
            if number and number % self.depth == 0:
                x, finished = self.parted(x)
                done.append(finished)
            x = step(x)
        return ops.concatenate([*done, x], axis=1)

    @staticmethod
    def parted(x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, D]: what the next level sees, and what is done."""
        kept = (x.shape[1] + 1) // 2
        return x[:, :kept], x[:, kept:]

    def log_det(self) -> Tensor:
        """log |det| of the Jacobian, of any x: a scalar."""
        return sum(step.log_det() for step in self.steps)
