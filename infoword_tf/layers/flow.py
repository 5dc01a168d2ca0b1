"""An invertible network that makes vectors normal: BERT-flow's Glow.

Kingma & Dhariwal 2018 (Glow), for vectors instead of images as Li et al. 2020
("On the Sentence Embeddings from Pre-trained Language Models", §4) have it.
`levels` times there are `depth` steps, of which each is

    x <- x W + b                    actnorm and a 1x1 convolution, multiplied
    x1, x2 <- x1, x2 + net(x1)      additive coupling of both halves

and after each level half of the numbers is done; the next level sees the other
half. What is done, level by level, is the vector. The determinant of the
Jacobian is the product of those of W, for every x. Numbers that are done are
compared with a standard normal, not with one that depends on the others.

Glossary of shapes: B texts, D width, H width of the networks of couplings.
"""

from typing import Any

from infoword_tf.layers.dense import Dense
from infoword_tf.lazy import Layer, ops

Tensor = Any


class Step(Layer):
    """An affine map of all numbers, then a coupling of both halves."""

    def __init__(self, width: int, hidden: int, name: str):
        """Args: D, at least 2; H; name of the layer."""
        super().__init__(name=name)
        self.half = half = width // 2
        self.mix = Dense(width, width, 'identity', name='mix')
        self.net = [
            Dense(half, hidden, 'relu', name='net_0'),
            Dense(hidden, hidden, 'relu', name='net_1'),
            Dense(hidden, width - half, 'identity', name='net_2'),
        ]

    def build(self) -> None:
        """Makes the weights."""
        for layer in (self.mix, *self.net):
            layer.build()
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, D] float32."""
        x = self.mix(x)
        moved = first = x[:, : self.half]
        for layer in self.net:
            moved = layer(moved)
        return ops.concatenate([first, x[:, self.half :] + moved], axis=1)


class Flow(Layer):
    """[B, D] -> [B, D], and back if one wishes."""

    def __init__(
        self,
        width: int,
        levels: int,
        depth: int,
        hidden: int,
        name: str = 'flow',
    ):
        """Args: D; levels, steps of each, H; name of the layer.

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
            Step(widths[number // depth], hidden, f'step_{number}')
            for number in range(levels * depth)
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
        return sum(ops.slogdet(step.mix.kernel)[1] for step in self.steps)
