"""Late interaction: vectors of tokens, compared token by token.

    f(a, b) = sum over tokens i of a of max over tokens j of b of a_i . b_j

(Khattab & Zaharia 2020, "ColBERT", §3.3, MaxSim). A fused operation, see
`fused.py`: all scores of tokens [N, M, Ta, Tb] are never held at once, but
those of a chunk of b; the backward pass knows each largest one by its place.

Glossary of shapes: Ta, Tb tokens of a and of b, W width of a token's vector, C
texts b of a chunk.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from infoword_tf.layers.dense import Dense
from infoword_tf.layers.fused import (
    compiled,
    over_columns,
    to_float,
    with_gradient,
)
from infoword_tf.lazy import Layer, ops

Tensor = Any
NEVER = -1e30
SCORES_AT_ONCE = 2**22  # of tokens, 16 MiB, unless MOST_CHUNKS makes them more
MOST_CHUNKS = 32  # that a graph holds


class TokenVectors(Layer):
    """Dense layers over the states of tokens, which give vectors.

    Attributes:
        first: whether the first state of a text has a vector.
        mean: whether scores are divided by the number of vectors of a.
    """

    def __init__(
        self,
        dense: Sequence[Dense],
        first: bool = True,
        mean: bool = False,
        name: str = 'late',
    ):
        """Sets the layers, the first of D, and the attributes."""
        super().__init__(name=name)
        self.dense, self.first, self.mean = list(dense), first, mean

    def build(self) -> None:
        """Makes the weights."""
        for layer in self.dense:
            layer.build()
        self.built = True

    @property
    def width(self) -> int:
        """W."""
        return self.dense[-1].wide

    def projected(self, states: Tensor) -> Tensor:
        """Applies the dense layers: [..., D] -> [..., W] float32."""
        x = ops.reshape(states, (-1, states.shape[-1]))
        for layer in self.dense:
            x = layer(x)
        return ops.reshape(x, (*ops.shape(states)[:-1], self.width))


@compiled
def _largest(products, real):
    """Returns largest products and places: [N, Ta, C] of [N, Ta, C, Tb].

    real: [C, Tb] bool. The place is the first one where several are equal, and
    that of no token is Tb.
    """
    length = products.shape[-1]
    columns = ops.broadcast_to(ops.arange(length, dtype='int32'), real.shape)

    def masked(products, real, columns):
        del columns
        return ops.where(real, products, NEVER)

    def place(products, real, columns):
        is_best = masked(products, real, columns) >= best[..., None]
        return ops.where(ops.logical_and(is_best, real), columns, length)

    inputs = products, real, columns
    best = over_columns(masked, ops.maximum, ops.max, *inputs)
    places = over_columns(place, ops.minimum, ops.min, *inputs)
    return best, places


@compiled
def _spread(d_best, places, columns):
    """Puts gradients [N, Ta, C] at places: [N, Ta, C, Tb]."""
    at = ops.equal(places[..., None], columns)
    return ops.where(at, d_best[..., None], 0.0)


def late_scores(
    a: Tensor,
    a_real: Tensor,
    b: Tensor,
    b_real: Tensor,
    *,
    key: Tensor | None = None,
) -> Tensor:
    """Scores each a against each b.

    Args:
        a: [N, Ta, W] float32, vectors of tokens.
        a_real: [N, Ta] bool, which tokens count.
        b: [M, Tb, W] float32.
        b_real: [M, Tb] bool.
        key: None runs plain operations.

    Returns:
        [N, M] float32; 0 where a or b has no token that counts.
    """
    n, length, _ = a.shape
    count, columns, _ = b.shape
    chunks = -(-n * length * count * columns // SCORES_AT_ONCE)
    chunks = max(1, min(chunks, MOST_CHUNKS, count))
    ends = [i * count // chunks for i in range(chunks + 1)]
    scores = [
        _chunk_scores(a, a_real, b[begin:end], b_real[begin:end], key)
        for begin, end in itertools.pairwise(ends)
    ]
    return ops.concatenate(scores, axis=1)


def _chunk_scores(a, a_real, b, b_real, key):
    """Computes `late_scores` of a chunk of b, with a gradient."""
    largest, spread = _largest, _spread
    if key is None:
        largest, spread = (f.__wrapped__ for f in (largest, spread))
    n, length, width = a.shape
    count, columns = b.shape[:2]
    counts = ops.cast(a_real, 'float32')[:, :, None]
    # A b without tokens matches nothing.
    counts = counts * to_float(ops.any(b_real, axis=1))

    def function(a, b):
        flat_a = ops.reshape(a, (n * length, width))
        flat_b = ops.reshape(b, (count * columns, width))
        products = ops.matmul(flat_a, ops.transpose(flat_b))
        products = ops.reshape(products, (n, length, count, columns))
        best, places = largest(products, b_real)

        def grad(d_scores):
            total = spread(
                d_scores[:, None] * counts, places,
                ops.arange(columns, dtype='int32'),
            )  # fmt: skip
            total = ops.reshape(total, (n * length, count * columns))
            d_a = ops.matmul(total, flat_b)
            d_b = ops.matmul(ops.transpose(total), flat_a)
            return ops.reshape(d_a, a.shape), ops.reshape(d_b, b.shape)

        return ops.sum(best * counts, axis=1), grad

    return with_gradient(function, a, b)


def paired_scores(
    a: Tensor, a_real: Tensor, b: Tensor, b_real: Tensor
) -> Tensor:
    """Scores pairs of a and b: [N] float32.

    Args as of `late_scores`, with M = N.
    """
    products = ops.matmul(a, ops.transpose(b, (0, 2, 1)))  # [N, Ta, Tb]
    best = ops.max(ops.where(b_real[:, None], products, NEVER), axis=2)
    counts = ops.logical_and(a_real, ops.any(b_real, axis=1, keepdims=True))
    return ops.sum(ops.where(counts, best, 0.0), axis=1)
