"""Scores against every row of a table, such as the vocabulary's embeddings.

A fused piece, see `fused.py`, that reads [N, V] numbers once each way.

Glossary of shapes: N states, D width, V vocabulary.
"""

from typing import Any

from keras import ops

from infoword_tf.layers.fused import compiled, read, to_float, upstream_of

Tensor = Any
SCORES_AT_ONCE = 2**25  # numbers, 128 MiB of float32; see `vocabulary_scores`


@compiled
def _log_sum_and_rank(scores, highest, positive):
    """[N, V], [N], [N] -> log sum exp [N], how many are as high [N]."""
    total = ops.sum(ops.exp(scores - highest[:, None]), axis=1)
    as_high = ops.greater_equal(scores, positive[:, None])
    rank = ops.sum(to_float(as_high), axis=1) - 1.0
    return highest + ops.log(total), rank


@compiled
def _scores_grad(scores, targets, log_sum, d_positive, d_log_sum, *, dtype):
    columns = ops.arange(scores.shape[1], dtype='int32')
    own = ops.equal(columns, targets[:, None])
    total = ops.exp(scores - log_sum[:, None]) * d_log_sum[:, None]
    return ops.cast(total + ops.where(own, d_positive[:, None], 0.0), dtype)


def vocabulary_scores(
    states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    dtype: str = 'float32',
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores states against every row of a table, reading [N, V] once each way.

    Beyond `SCORES_AT_ONCE` scores the states are taken in chunks, one after
    the other, and the backward pass makes their scores again: the same
    numbers, in memory that does not grow with N.

    Args:
        states: [N, D] float32.
        table: [V, D] float32.
        bias: [V] float32, or None.
        targets: [N] int32, each state's own row.
        dtype: in which the gradient's products are computed; the scores
            themselves are float32 always.
        key: None runs plain operations.

    Returns:
        The target's score [N]; log sum exp of all scores [N]; the target's
        rank [N] float32, which has no gradient: how many other rows score at
        least as high, 0 where it is the best.
    """
    biases = () if bias is None else (read(bias),)
    size = states.shape[0]
    if size is not None and size * table.shape[0] > SCORES_AT_ONCE:
        return _chunked_scores(states, table, biases, targets, dtype, key)

    if key is None:
        scores, positive = _score(states, table, biases, targets)
        as_high = to_float(ops.greater_equal(scores, positive[:, None]))
        return (
            positive,
            ops.logsumexp(scores, axis=1),
            ops.stop_gradient(ops.sum(as_high, axis=1) - 1.0),
        )

    @ops.custom_gradient
    def function(states, table, *bias):
        scores, positive = _score(states, table, bias, targets)
        log_sum, rank = _log_sum_and_rank(
            scores, ops.max(scores, axis=1), positive
        )

        def grad(*args, upstream=None):
            d_positive, d_log_sum, _ = upstream_of(args, upstream)
            total = _scores_grad(
                scores, targets, log_sum, d_positive, d_log_sum, dtype=dtype
            )
            d_states = ops.matmul(total, ops.cast(table, dtype))
            d_table = ops.matmul(ops.transpose(total), ops.cast(states, dtype))
            d_bias = [to_float(ops.sum(total, axis=0)) for _ in bias]
            return to_float(d_states), to_float(d_table), *d_bias

        return (positive, log_sum, rank), grad

    return function(states, read(table), *biases)


def _score(states, table, bias, targets):
    """[N, D], [V, D], a tuple of [V] or nothing -> [N, V], [N]."""
    scores = ops.matmul(states, ops.transpose(table))
    if bias:
        scores = scores + bias[0]
    positive = ops.take_along_axis(scores, targets[:, None], axis=1)
    return scores, positive[:, 0]


def _chunked_scores(states, table, bias, targets, dtype, key):
    """`vocabulary_scores` in chunks of rows; `scan` runs one at a time."""
    summarise, gradient_of = _log_sum_and_rank, _scores_grad
    if key is None:
        summarise, gradient_of = (
            piece.__wrapped__ for piece in (summarise, gradient_of)
        )
    size, width = states.shape
    chunks = -(-size * table.shape[0] // SCORES_AT_ONCE)
    chunks = min(chunks, size)
    rows = -(-size // chunks)
    numbers = ops.arange(chunks, dtype='int32')

    def in_chunks(x):
        """[N, ...] -> [chunks, rows, ...], padded with zeros at the end."""
        padding = ((0, chunks * rows - size),) + ((0, 0),) * (len(x.shape) - 1)
        return ops.reshape(ops.pad(x, padding), (chunks, rows, *x.shape[1:]))

    def from_chunks(x):
        """[chunks, rows, ...] -> [N, ...], without the padding."""
        return ops.reshape(x, (-1, *x.shape[2:]))[:size]

    @ops.custom_gradient
    def function(states, table, *bias):
        def forward(carry, chunk):
            scores, positive = _score(chunk[0], table, bias, chunk[1])
            log_sum, rank = summarise(
                scores, ops.max(scores, axis=1), positive
            )
            return (results := (positive, log_sum, rank)), results

        zeros = (ops.zeros((rows,), 'float32'),) * 3
        _, results = ops.scan(
            forward, zeros, (in_chunks(states), in_chunks(targets))
        )
        positive, log_sum, rank = map(from_chunks, results)

        def grad(*args, upstream=None):
            d_positive, d_log_sum, _ = upstream_of(args, upstream)

            def backward(carry, chunk):
                d_states, d_table, *d_bias = carry
                number, x, targets, log_sum, *upstream = chunk
                scores, _ = _score(x, table, bias, targets)
                total = gradient_of(
                    scores, targets, log_sum, *upstream, dtype=dtype
                )
                own = ops.equal(numbers, number)[:, None, None]
                d_x = to_float(ops.matmul(total, ops.cast(table, dtype)))
                d_states = ops.where(own, d_x[None], d_states)
                d_table = d_table + to_float(
                    ops.matmul(ops.transpose(total), ops.cast(x, dtype))
                )
                d_bias = [d + to_float(ops.sum(total, axis=0)) for d in d_bias]
                return (d_states, d_table, *d_bias), None

            zeros = (
                ops.zeros((chunks, rows, width), 'float32'),
                ops.zeros(table.shape, 'float32'),
                *(ops.zeros(b.shape, 'float32') for b in bias),
            )
            inputs = (states, targets, log_sum, d_positive, d_log_sum)
            (d_states, *rest), _ = ops.scan(
                backward, zeros, (numbers, *map(in_chunks, inputs))
            )
            return from_chunks(d_states), *rest

        return (positive, log_sum, rank), grad

    return function(states, read(table), *bias)
