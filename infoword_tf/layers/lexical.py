"""Lexical vectors: a weight of each token of the vocabulary for a text.

    weight of v = log(1 + relu(max over tokens i of the text of s_i . e_v))

(Formal et al. 2021, "SPLADE v2", Eq. 6). s_i are states behind the output
transform of a masked language model, e_v the input embeddings. `tokens` has one
number a token instead, which counts for the token alone (Chen et al. 2024,
"BGE M3-Embedding", §3.1).

A fused operation, see `fused.py`: of the scores [B, T, V] one chunk of the
vocabulary is held at once, and the backward pass knows the largest ones by
their places. Tokens are compared in groups, each of one text: no score is
masked, and texts are told apart by the largest scores of groups alone.

Glossary of shapes: J texts of a sequence, P places of its groups, C tokens of a
chunk, E width of embeddings.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.fused import (
    by_key,
    compiled,
    in_turn,
    plus_bias,
    read,
    rounded,
    to_float,
    with_gradient,
)
from infoword_tf.layers.pooling import of_texts
from infoword_tf.layers.vocabulary_scores import Transformed
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

NEVER = -1e30
VOCABULARY, TOKENS = HEADS = ('vocabulary', 'tokens')
ACTIVATIONS = {
    'log1p_relu': lambda x: ops.log1p(ops.relu(x)),
    'log1p_log1p_relu': lambda x: ops.log1p(ops.log1p(ops.relu(x))),
    'relu': lambda x: ops.relu(x),
}
SCORES_AT_ONCE = 2**22  # of a chunk, 16 MiB, unless MOST_CHUNKS makes them more
MOST_CHUNKS = 32  # that a graph holds
GROUPS = 8, 4, 2, 1  # tokens of a text in a group, the most that FILLING allows
FILLING = 8  # tokens for each place that groups leave empty, at least
TEXTS_AT_ONCE = 32  # whose winners one kernel multiplies
SPARSE = 4  # zeros are left out if fewer than 1 in 4 is not 0


class Lexical(Transformed, Layer):
    """The head of lexical vectors.

    Attributes:
        encoder: the one whose states are read.
        head: name in HEADS.
        transform: whether states go through BERT's output transform.
        transform_activation: activation of the transform, in
            layers.pointwise.FORMS; None: the encoder's.
        transform_epsilon: epsilon of the norm; None: the encoder's.
    """

    def __init__(
        self,
        encoder: Any,
        head: str = VOCABULARY,
        transform: bool = False,
        transform_activation: str | None = None,
        transform_epsilon: float | None = None,
        activation: str = 'log1p_relu',
        top_k: int | None = None,
        left_out: Sequence[int] = (),
        dtype: Any = None,
        name: str = 'lexical',
    ):
        """Sets how weights are computed.

        Args:
            encoder, head, transform, transform_activation, transform_epsilon:
                attributes.
            activation: name in ACTIVATIONS.
            top_k: number of weights that stay, the largest, and of equal ones
                those of the lowest ids; None: all.
            left_out: ids without a weight, where a token counts for itself
                alone: those of special tokens.
            dtype: Keras dtype policy.
            name: first part of the paths.
        """
        super().__init__(dtype=dtype, name=name)
        self.left_out = list(left_out)
        self.encoder, self.head, self.transform = encoder, head, transform
        self.transform_activation = transform_activation
        self.transform_epsilon = transform_epsilon
        self.activation, self.top_k = activation, top_k

    def build(self) -> None:
        """Makes the weights."""
        if self.head == TOKENS:
            self.kernel = table(self, 'kernel', self.encoder.width, 1)
            # At first all tokens weigh the same.
            self.bias = vector(self, 'bias', 1, 'ones')
        elif self.transform:
            self.make_transform()

    def highest(
        self,
        states: Tensor,
        ids: Tensor,
        block_ids: Tensor,
        texts: int,
        key: Tensor | None = None,
    ) -> Tensor:
        """Computes the largest score of each token of the vocabulary.

        Args:
            states: [B, T, D].
            ids: [B, T] int32.
            block_ids: [B, T] int32, 0 to J - 1 by text; others are padding.
            texts: J.
            key: [2] uint32 of training, None for inference.

        Returns:
            [B J, V] float32; -1e30 or less where no token of a text counts.
        """
        if self.head == TOKENS:
            return self._of_tokens(states, ids, block_ids, texts)
        bias = None
        if self.transform:
            states = self.transformed(states, key)
            bias = self.token_bias
        best = highest_scores(
            to_float(states),
            ops.convert_to_tensor(self.encoder.embedding_table),
            bias, of_texts(block_ids, texts),
            dtype=self.compute_dtype, key=key,
        )  # fmt: skip
        return ops.reshape(best, (-1, best.shape[-1]))

    def _of_tokens(self, states, ids, block_ids, texts):
        """Computes `highest` of one number a token."""
        scores = ops.matmul(to_float(states), self.kernel) + self.bias
        size = self.encoder.vocab_size
        rows = ops.arange(ops.shape(ids)[0], dtype='int32')[:, None]
        text = rows * texts + block_ids
        real = ops.logical_and(block_ids >= 0, block_ids < texts)
        total = ops.shape(ids)[0] * texts
        # Padding is counted for a text that does not exist.
        at = ops.where(real, text, total) * size + ids
        best = ops.segment_max(
            ops.reshape(scores, (-1,)), ops.reshape(at, (-1,)),
            num_segments=(total + 1) * size,
        )  # fmt: skip
        best = ops.reshape(best, (-1, size))[:-1]
        if not self.left_out:
            return best
        counts = np.ones(size, bool)
        counts[self.left_out] = False
        return ops.where(counts, best, NEVER)

    def weights_of(self, highest: Tensor) -> Tensor:
        """Maps largest scores [..., V] to weights [..., V] float32.

        (Not `call`, which would cast them to the dtype of the states.)
        """
        weights = ACTIVATIONS[self.activation](highest)
        if self.top_k is None or self.top_k >= weights.shape[-1]:
            return weights
        # Equal ones are in the order of their ids, on every backend.
        best, ids = ops.top_k(weights, self.top_k)
        least, last = best[..., -1:], ids[..., -1:]
        equal = ops.logical_and(
            ops.equal(weights, least),
            ops.arange(weights.shape[-1], dtype='int32') <= last,
        )
        stays = ops.logical_or(weights > least, equal)
        return ops.where(stays, weights, 0.0)


@compiled
def _grouped(real):
    """Divides the tokens of each text into groups.

    Args:
        real: [B, J, T] bool, the tokens of each text.

    Returns:
        The token at each place [B, P] int32; where the text has ended, the
        first of the group again, by which no score gets higher. The groups of
        each text, [B, J, P / tokens of a group] bool.
    """
    b, texts, length = real.shape
    size = next(x for x in GROUPS if (x - 1) * texts * FILLING <= length)
    count = (length + texts * (size - 1)) // size
    tokens = ops.cast(real, 'int32')
    groups = -(-ops.sum(tokens, axis=2) // size)  # [B, J]
    ends = ops.cumsum(groups, axis=1)[..., None]
    begins = ends - groups[..., None]
    place = begins * size + ops.cumsum(tokens, axis=2) - 1
    place = ops.max(ops.where(real, place, -1), axis=1)  # [B, T]
    places = ops.arange(count * size, dtype='int32')[:, None]
    is_at = ops.equal(place[:, None], places)  # [B, P, T]
    shape = b, count, size
    at = ops.reshape(ops.cast(ops.argmax(is_at, axis=2), 'int32'), shape)
    filled = ops.reshape(ops.any(is_at, axis=2), shape)
    at = ops.where(filled, at, at[..., :1])
    number = ops.arange(count, dtype='int32')
    of_text = ops.logical_and(number >= begins, number < ends)
    return ops.reshape(at, (b, count * size)), of_text


@compiled
def _highest(products, bias, groups):
    """Returns largest scores and places: [B, J, C] of [B, P, C].

    groups: bool, of `_grouped`. The place is the first one where several are
    equal, and that of no token is P.
    """
    b, places, columns = products.shape
    count = groups.shape[2]
    size = places // count
    scores = plus_bias(products, bias)
    scores = ops.reshape(scores, (b, count, size, columns))
    lanes = [scores[:, :, lane] for lane in range(size)]
    of_groups = functools.reduce(ops.maximum, lanes)  # [B, P / size, C]
    at = size * ops.arange(count, dtype='int32')[:, None]
    first = size - 1
    for lane in reversed(range(size - 1)):
        first = ops.where(lanes[lane] >= of_groups, lane, first)
    best, at_best = [], []
    for text in range(groups.shape[1]):
        counts = groups[:, text, :, None]
        highest = ops.max(ops.where(counts, of_groups, NEVER), axis=1)
        is_best = ops.logical_and(counts, of_groups >= highest[:, None])
        best.append(highest)
        at_best.append(ops.min(ops.where(is_best, at + first, places), axis=1))
    return ops.stack(best, axis=1), ops.stack(at_best, axis=1)


@compiled
def _spread(d_best, places, rows, *, dtype):
    """Puts gradients [B, J, C] at places: [B, P, C] in `dtype`."""
    total = 0.0
    for text in range(d_best.shape[1]):
        at = ops.equal(places[:, text, None], rows)
        total = total + ops.where(at, d_best[:, text, None], 0.0)
    return rounded(total, dtype)


@compiled
def _with_states(total, d, rows, states):
    """Adds products of gradients and states to a sum of embeddings.

    Args:
        total: [C, E] float32, the sum so far.
        d: [n, C] float32.
        rows: [n, C] int32, of the states.
        states: [B P, E].
    """
    for text in range(d.shape[0]):
        state = to_float(ops.take(states, rows[text], axis=0))
        total = total + state * d[text, :, None]
    return total


def highest_scores(
    states: Tensor,
    embeddings: Tensor,
    bias: Tensor | None,
    real: Tensor,
    *,
    dtype: str = 'float32',
    key: Tensor | None = None,
) -> Tensor:
    """Computes the largest score of each token of the vocabulary in each text.

    Args:
        states: [B, T, E] float32.
        embeddings: [V, E] float32.
        bias: [V] float32, or None.
        real: [B, J, T] bool, the tokens of each text.
        dtype: dtype of the gradient's products; scores are always float32.
        key: None runs plain operations; of shapes that are not known J is 1
            then.

    Returns:
        [B, J, V] float32; -1e30 for a text without tokens.
    """
    b, length, width = states.shape
    size = embeddings.shape[0]
    if b is None or length is None:
        real = ops.any(real, axis=1)
        best = plus_bias(_plain(states, embeddings, real), bias)
        best = ops.where(ops.any(real, axis=1, keepdims=True), best, NEVER)
        return best[:, None]
    grouped, highest, spread, with_states = (
        by_key(f, key) for f in (_grouped, _highest, _spread, _with_states)
    )
    at, groups = grouped(ops.convert_to_tensor(real))
    places = at.shape[1]
    at = at + length * ops.arange(b, dtype='int32')[:, None]
    states = ops.reshape(states, (b * length, width))
    states = ops.take(states, ops.reshape(at, (-1,)), axis=0)  # [B P, E]
    chunks = -(-b * places * size // SCORES_AT_ONCE)
    slices = _slices(size, min(chunks, MOST_CHUNKS))

    def function(states, embeddings, bias):
        best, at_best = [], []
        for chunk in slices:
            products = ops.matmul(states, ops.transpose(embeddings[chunk]))
            of_chunk = highest(
                ops.reshape(products, (b, places, -1)),
                None if bias is None else bias[chunk], groups,
            )  # fmt: skip
            best.append(of_chunk[0])
            at_best.append(of_chunk[1])

        def grad(d_best):
            d_states, d_embeddings, d_bias = 0.0, [], []
            small = ops.cast(states, dtype)
            for chunk, at in zip(slices, at_best, strict=True):
                # A text without tokens has no place.
                d = ops.where(at < places, d_best[:, :, chunk], 0.0)
                part = ops.cast(embeddings[chunk], dtype)
                of_chunk = _gradients(
                    d, at, small, part, spread=spread, with_states=with_states
                )
                d_states = d_states + of_chunk[0]
                d_embeddings.append(of_chunk[1])
                if bias is not None:
                    d_bias.append(ops.sum(d, axis=(0, 1)))
            return (
                d_states,
                ops.concatenate(d_embeddings),
                None if bias is None else ops.concatenate(d_bias),
            )

        return ops.concatenate(best, axis=2), grad

    return with_gradient(function, states, read(embeddings), read(bias))


def _gradients(d, at, states, part, *, spread, with_states):
    """Returns gradients of states [B P, E] and of embeddings [C, E], float32.

    Args:
        d: [B, J, C] float32, gradients of the largest scores.
        at: [B, J, C] int32, places of these.
        states, part: [B P, E] and [C, E], in the dtype of products.
        spread, with_states: kernels.
    """
    b, _, columns = d.shape
    places = states.shape[0] // b
    rows = places * ops.arange(b, dtype='int32')[:, None, None]
    rows = rows + ops.minimum(at, places - 1)
    d_flat, rows = (ops.reshape(x, (-1, columns)) for x in (d, rows))
    d_part = ops.zeros(part.shape)
    for begin in range(0, d_flat.shape[0], TEXTS_AT_ONCE):
        end = begin + TEXTS_AT_ONCE
        d_part = with_states(d_part, d_flat[begin:end], rows[begin:end], states)

    def all_d() -> Tensor:
        numbers = ops.arange(places, dtype='int32')[:, None]
        total = spread(d, at, numbers, dtype=part.dtype)
        return ops.reshape(total, (-1, columns))

    count = states.shape[0]
    return _with_embeddings(d_flat, rows, part, all_d, count=count), d_part


def _with_embeddings(d, rows, part, all_d, *, count):
    """Sums products of gradients and embeddings: [count, E] float32.

    Under TensorFlow those of gradients 0 are left out, if most of them are.

    Args:
        d: [n, C] float32.
        rows: [n, C] int32, where products belong.
        part: [C, E], the embeddings.
        all_d: computes the gradients of all scores, [count, C].
    """
    import keras

    def of_all() -> Tensor:
        return to_float(ops.matmul(all_d(), part))

    if keras.backend.backend() != 'tensorflow':
        return of_all()
    import tensorflow as tf

    nonzero = tf.where(tf.not_equal(d, 0.0))

    def of_few() -> Tensor:
        factors, to = (tf.gather_nd(x, nonzero) for x in (d, rows))
        terms = to_float(tf.gather(part, nonzero[:, 1])) * factors[:, None]
        return tf.math.unsorted_segment_sum(terms, to, count)

    few = tf.shape(nonzero)[0] * SPARSE < tf.size(d)
    return tf.cond(few, of_few, of_all)


def _plain(states, embeddings, real):
    """Computes largest products of sequences whose shape is not known.

    Args:
        states: [B, T, E].
        embeddings: [V, E].
        real: [B, T] bool, tokens of the one text of each sequence.

    Returns:
        [B, V] float32; anything for a text without tokens.
    """
    b, length = ops.shape(real)
    # In place of padding one of the text's states: no product is masked.
    first = ops.argmax(real, axis=1)[:, None, None]
    first = ops.take_along_axis(states, first, axis=1)
    states = ops.where(real[..., None], states, first)
    flat = ops.transpose(ops.reshape(states, (-1, states.shape[-1])))

    def largest(begin, end):
        products = ops.matmul(to_float(embeddings[begin:end]), flat)
        shape = end - begin, b, length
        return ops.max(ops.reshape(products, shape), axis=2)

    step = SCORES_AT_ONCE // ops.maximum(b * length, 1)
    step = ops.maximum(step, 1)
    return ops.transpose(in_turn(largest, embeddings.shape[0], step))


def _slices(size: int, chunks: int) -> list[slice]:
    """Divides 0, 1, ... size - 1 into chunks."""
    chunks = max(1, min(chunks, size))
    return [
        slice(i * size // chunks, (i + 1) * size // chunks)
        for i in range(chunks)
    ]
