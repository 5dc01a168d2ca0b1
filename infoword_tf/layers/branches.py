"""Blocks in branches that are computed side by side.

Attention is a sum over heads, and a feed-forward one over inner numbers. So a
block can be computed in branches that share nothing but input and output, each
with a share of the heads and of the inner numbers, and are summed (Shoeybi et
al. 2019, "Megatron-LM", §3). There it is devices, here threads: the products of
one short text are too small to occupy several. A layer has branches where its
weights are replaced by `Parts` (`lazy.instead`), as export/branches.py does.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from infoword_tf.lazy import parts_of

Tensor = Any


class Branch(NamedTuple):
    """A branch of a layer.

    Attributes:
        weights: the shares of its weights.
        number, count: which branch, and of how many.
    """

    weights: tuple[Any, ...]
    number: int
    count: int

    def share(self, mask: Tensor | None) -> Tensor | None:
        """Takes the branch's heads of a mask or bias [B or 1, 1 or H, Q, T]."""
        if self.count == 1 or mask is None or mask.shape[1] == 1:
            return mask
        # Not ops.split: where oneDNN adds a bias within a product of batches,
        # TensorFlow 2.20 gives it the first output of that operation.
        size = mask.shape[1] // self.count
        return mask[:, self.number * size : (self.number + 1) * size]


def summed(function: Callable[[Branch], Tensor], *weights: Any) -> Tensor:
    """Adds the results of a function of each branch of weights."""
    return functools.reduce(operator.add, map(function, _branches(*weights)))


def _branches(*weights: Any) -> list[Branch]:
    """Returns the branches of weights, the first of which is a kernel.

    One with the weights themselves, unless the kernel is replaced by `Parts`.
    """
    parts = [parts_of(weight) for weight in weights]
    if parts[0] is None:
        return [Branch(weights, 0, 1)]
    count = len(parts[0].values)
    each = zip(
        *(x.values if x else (None,) * count for x in parts), strict=True
    )
    return [Branch(share, number, count) for number, share in enumerate(each)]
