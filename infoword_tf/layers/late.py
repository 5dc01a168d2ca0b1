"""Late interaction: vectors of tokens, compared token by token.

    f(a, b) = sum over tokens i of a of max over tokens j of b of a_i . b_j

(Khattab & Zaharia 2020, "ColBERT", §3.3, MaxSim). A fused operation, see
`fused.py`: all scores of tokens [N, M, Ta, Tb] are never held at once, but
those of a few tokens of a, and none of its padding, which may be most of Ta.
The backward pass knows each largest one by its place.

Glossary of shapes: Ta, Tb tokens of a and of b, W width of a token's vector, R
tokens of a that are compared at once.
"""

from collections.abc import Callable, Sequence

from infoword_tf.layers.dense import Dense
from infoword_tf.layers.fused import (
    by_key,
    compiled,
    over_columns,
    with_gradient,
)
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

NEVER = -1e30
TOKENS_AT_ONCE = 128  # of a


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
    """Returns largest products and places: [R, M] of [R, M, Tb].

    real: [M, Tb] bool. The place is the first one where several are equal, and
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
    """Puts gradients [R, M] at places: [R, M, Tb]."""
    at = ops.equal(places[..., None], columns)
    return ops.where(at, d_best[..., None], 0.0)


class _Ranges:
    """Ranges of R tokens of all texts a, one range after another.

    Attributes:
        size: R.
        total: N Ta, rounded up to a multiple of R.
        order: [N Ta], numbers of tokens, those that count first, so that the
            loops end before the others.
    """

    def __init__(self, real: Tensor, texts: int, length: int):
        """Orders the tokens by `real` [N, Ta] bool: which tokens count."""
        self.texts, self.length = texts, length
        count = texts * length
        real = ops.reshape(real, (-1,))
        self.size = min(TOKENS_AT_ONCE, count)
        self.total = -(-count // self.size) * self.size
        self.order = ops.argsort(ops.cast(ops.logical_not(real), 'int32'))
        rest = ops.zeros(self.total - count, self.order.dtype)
        self._at = ops.concatenate([self.order, rest])
        self._number = ops.sum(ops.cast(real, 'int32'))

    def run(self, function: Callable, *sums: Tensor) -> tuple[Tensor, ...]:
        """Calls a function of R tokens and of sums so far, range by range.

        Args:
            function: maps the begin of a range, its tokens [R], their texts
                [R, N] float32 (one-hot) and the sums to new sums.
            *sums: sums before the first range.
        """
        size = self.size

        def body(begin, *sums):
            of_tokens = ops.slice(self._at, (begin,), (size,))  # [R]
            counts = begin + ops.arange(size, dtype='int32') < self._number
            text = ops.where(counts, of_tokens // self.length, -1)
            text = ops.one_hot(text, self.texts, dtype='float32')  # [R, N]
            return begin + size, *function(begin, of_tokens, text, *sums)

        begin = ops.zeros((), 'int32')
        more = ops.while_loop(
            lambda begin, *_: begin < self._number, body, (begin, *sums)
        )
        return more[1:]


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
    largest, spread = (by_key(f, key) for f in (_largest, _spread))
    n, length, width = a.shape
    count, columns = b.shape[:2]
    ranges = _Ranges(a_real, n, length)
    size, total = ranges.size, ranges.total
    # A b without tokens matches nothing.
    filled = ops.any(b_real, axis=1)  # [M]

    def function(a, b):
        flat_a = ops.reshape(a, (n * length, width))
        flat_b = ops.reshape(b, (count * columns, width))

        def compare(begin, of_tokens, text, scores, places):
            products = ops.matmul(
                ops.take(flat_a, of_tokens, axis=0), ops.transpose(flat_b)
            )
            products = ops.reshape(products, (size, count, columns))
            best, at_best = largest(products, b_real)
            scores = scores + ops.matmul(ops.transpose(text), best)
            return scores, ops.slice_update(places, (begin, 0), at_best)

        scores, places = ranges.run(
            compare, ops.zeros((n, count)), ops.zeros((total, count), 'int32')
        )

        def grad(d_scores):
            d_scores = ops.where(filled, d_scores, 0.0)

            def back(begin, of_tokens, text, d_a, d_b):
                d = spread(
                    ops.matmul(text, d_scores),
                    ops.slice(places, (begin, 0), (size, count)),
                    ops.arange(columns, dtype='int32'),
                )  # fmt: skip
                d = ops.reshape(d, (size, count * columns))
                x = ops.take(flat_a, of_tokens, axis=0)
                d_a = ops.slice_update(d_a, (begin, 0), ops.matmul(d, flat_b))
                return d_a, d_b + ops.matmul(ops.transpose(d), x)

            d_a, d_b = ranges.run(
                back, ops.zeros((total, width)), ops.zeros_like(flat_b)
            )
            d_a = ops.take(d_a, ops.argsort(ranges.order), axis=0)
            return ops.reshape(d_a, a.shape), ops.reshape(d_b, b.shape)

        return ops.where(filled, scores, 0.0), grad

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
