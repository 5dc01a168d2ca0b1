"""Scores against a whole table, such as the vocabulary's embeddings.

A fused operation, see `fused.py`, that reads [N, V] numbers once each way.
"""

from typing import Any

from infoword_tf.layers import pointwise
from infoword_tf.layers.attention import matrix, project, vector
from infoword_tf.layers.fused import (
    by_key,
    compiled,
    over_columns,
    plus_bias,
    read,
    rounded,
    sum_rows,
    to_float,
    with_gradient,
)
from infoword_tf.layers.pointwise import Norm
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

# Up to this width the table's gradient in float32 takes a third of the time as
# the transpose of a product states^T total, instead of total^T states.
NARROW = 128
SCORES_AT_ONCE = 2**25  # numbers, 128 MiB of float32; see `vocabulary_scores`


@compiled
def _log_sum_and_rank(products, bias, positive):
    """Returns log sum exp [N] of [N, V], and how many reach `positive`."""

    def exponential(products, bias):
        return ops.exp(plus_bias(products, bias) - highest[:, None])

    def as_high(products, bias):
        scores = plus_bias(products, bias)
        return to_float(ops.greater_equal(scores, positive[:, None]))

    inputs = products, bias
    highest = over_columns(plus_bias, ops.maximum, ops.max, *inputs)
    total = over_columns(exponential, ops.add, ops.sum, *inputs)
    rank = over_columns(as_high, ops.add, ops.sum, *inputs) - 1.0
    return highest + ops.log(total), rank


@compiled
def _scores_grad(
    products, bias, columns, targets, log_sum, d_positive, d_log_sum, *, dtype
):
    """Returns gradients [N, V] of scores in `dtype`.

    `columns` are 0, 1, ... V - 1, which would be slow to make under XLA.
    """
    scores = plus_bias(products, bias)
    is_target = ops.equal(columns, targets[:, None])
    total = ops.exp(scores - log_sum[:, None]) * d_log_sum[:, None]
    total = total + ops.where(is_target, d_positive[:, None], 0.0)
    return rounded(total, dtype)


def vocabulary_scores(
    states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    dtype: str = 'float32',
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores states against all vectors of a table.

    Beyond `SCORES_AT_ONCE` scores the states are taken in chunks, one after
    another, and the backward pass computes the scores again: the same numbers,
    in memory that does not grow with N.

    Args:
        states: [N, D] float32.
        table: [V, D] float32.
        bias: [V] float32, or None.
        targets: [N] int32, each state's positive.
        dtype: dtype of the gradient's products; scores are always float32.
        key: None runs plain operations.

    Returns:
        The target's score [N]; log sum exp of all scores [N]; the target's
        rank [N] float32, without a gradient: how many other vectors score at
        least as high, 0 for the best.
    """
    biases = () if bias is None else (read(bias),)
    size = states.shape[0]
    if size is not None and size * table.shape[0] > SCORES_AT_ONCE:
        return _chunked_scores(
            states, table, biases, targets, dtype=dtype, key=key
        )

    if key is None:
        products, positive = _score(states, table, bias, targets)
        scores = plus_bias(products, bias)
        as_high = to_float(ops.greater_equal(scores, positive[:, None]))
        return (
            positive,
            ops.logsumexp(scores, axis=1),
            ops.stop_gradient(ops.sum(as_high, axis=1) - 1.0),
        )

    columns = ops.arange(table.shape[0], dtype='int32')

    def function(states, table, *biases):
        bias = biases[0] if biases else None
        products, positive = _score(states, table, bias, targets)
        log_sum, rank = _log_sum_and_rank(products, bias, positive)

        def grad(d_positive, d_log_sum, d_rank):
            total = _scores_grad(
                products, bias, columns, targets,
                log_sum=log_sum, d_positive=d_positive, d_log_sum=d_log_sum,
                dtype=dtype,
            )  # fmt: skip
            return _gradients(total, states, table, biases)

        return (positive, log_sum, rank), grad

    return with_gradient(function, states, read(table), *biases)


def _score(states, table, bias, targets):
    """Returns products [N, V] without bias, targets' scores [N] with bias."""
    products = ops.matmul(states, ops.transpose(table))
    positive = ops.take_along_axis(products, targets[:, None], axis=1)[:, 0]
    bias = None if bias is None else ops.take(bias, targets)
    return products, plus_bias(positive, bias)


def _gradients(total, states, table, biases):
    """Maps gradients of scores [N, V] to gradients of the three inputs."""
    d_states = ops.matmul(total, ops.cast(table, total.dtype))
    states = ops.cast(states, total.dtype)
    if total.dtype == 'float32' and states.shape[1] <= NARROW:
        d_table = ops.transpose(ops.matmul(ops.transpose(states), total))
    else:
        d_table = ops.matmul(ops.transpose(total), states)
    d_biases = [sum_rows(total) for _ in biases]
    return to_float(d_states), to_float(d_table), *d_biases


def _chunked_scores(states, table, biases, targets, *, dtype, key):
    """Computes `vocabulary_scores` in chunks, one after another by `scan`."""
    summarise, gradient_of = (
        by_key(operation, key)
        for operation in (_log_sum_and_rank, _scores_grad)
    )
    size, width = states.shape
    chunks = -(-size * table.shape[0] // SCORES_AT_ONCE)
    chunks = min(chunks, size)
    count = -(-size // chunks)
    numbers = ops.arange(chunks, dtype='int32')
    columns = ops.arange(table.shape[0], dtype='int32')

    def in_chunks(x):
        """Splits [N, ...] into [chunks, count, ...], padded with zeros."""
        padding = ((0, chunks * count - size),) + ((0, 0),) * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, padding), (chunks, count, *x.shape[1:]))

    def from_chunks(x):
        """Joins [chunks, count, ...] to [N, ...], without the padding."""
        return ops.reshape(x, (-1, *x.shape[2:]))[:size]

    def function(states, table, *biases):
        bias = biases[0] if biases else None

        def forward(carry, chunk):
            products, positive = _score(chunk[0], table, bias, chunk[1])
            log_sum, rank = summarise(products, bias, positive)
            results = positive, log_sum, rank
            return results, results

        zeros = (ops.zeros((count,), 'float32'),) * 3
        _, results = ops.scan(
            forward, zeros, (in_chunks(states), in_chunks(targets))
        )
        positive, log_sum, rank = map(from_chunks, results)

        def grad(d_positive, d_log_sum, d_rank):
            def backward(carry, chunk):
                d_states, *sums = carry
                number, x, targets, *rest = chunk
                products, _ = _score(x, table, bias, targets)
                total = gradient_of(
                    products, bias, columns, targets, *rest, dtype=dtype
                )
                d_x, *terms = _gradients(total, x, table, biases)
                is_chunk = ops.equal(numbers, number)[:, None, None]
                d_states = ops.where(is_chunk, d_x[None], d_states)
                sums = (x + y for x, y in zip(sums, terms, strict=True))
                return (d_states, *sums), None

            zeros = (
                ops.zeros((chunks, count, width), 'float32'),
                ops.zeros(table.shape, 'float32'),
                *(ops.zeros(b.shape, 'float32') for b in biases),
            )
            inputs = (states, targets, log_sum, d_positive, d_log_sum)
            (d_states, *rest), _ = ops.scan(
                backward, zeros, (numbers, *map(in_chunks, inputs))
            )
            return from_chunks(d_states), *rest

        return (positive, log_sum, rank), grad

    return with_gradient(function, states, read(table), *biases)


class Transformed:
    """A layer that may have the transform.

    Attributes:
        encoder: the one whose states are transformed, and whose sizes decide.
        compute_dtype: Keras' name of it.
        transform_activation: name in layers.pointwise.FORMS; None: the
            encoder's.
        transform_epsilon: epsilon of the norm; None: the encoder's.
        token_bias: [V] float32.
    """

    encoder: Any
    compute_dtype: str
    transform_activation: str | None = None
    transform_epsilon: float | None = None

    def make_transform(self) -> None:
        """Makes the weights; with biases where the encoder has biases."""
        d, e = self.encoder.width, self.encoder.embedding_width
        self.kernel = matrix(self, 'kernel', d, e)
        self.gamma = vector(self, 'norm_gamma', e, 'ones')
        self.bias = self.beta = None
        if self.encoder.biased:
            self.bias = vector(self, 'bias', e)
            self.beta = vector(self, 'norm_beta', e)
        self.token_bias = vector(self, 'piece_bias', self.encoder.vocab_size)

    def transformed(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Applies the transform: x [..., D] -> [..., E].

        Args:
            x: states in the compute dtype.
            key: None runs plain operations.
        """
        sizes = self.encoder.arguments
        x = pointwise.bias_gelu(
            project(x, ops.cast(self.kernel, x.dtype)),
            self.bias,
            form=self.transform_activation or sizes['activation'],
            key=key,
        )
        epsilon = self.transform_epsilon or sizes['epsilon']
        scale = Norm(self.gamma, self.beta, epsilon)
        return pointwise.norm(x, scale, dtype=self.compute_dtype, key=key)
