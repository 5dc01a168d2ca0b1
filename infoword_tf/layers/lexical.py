"""Lexical vectors: a weight of each token of the vocabulary for a text.

    weight of v = log(1 + relu(max over tokens i of the text of s_i . e_v))

(Formal et al. 2021, "SPLADE v2", Eq. 6). s_i are states behind the output
transform of a masked language model, e_v the input embeddings. `tokens` has one
number a token instead, which counts for the token alone (Chen et al. 2024,
"BGE M3-Embedding", §3.1).

A fused operation, see `fused.py`: of the scores [B, T, V] one chunk of the
vocabulary is held at once, and the backward pass knows the largest ones by
their places.

Glossary of shapes: J texts of a sequence, C tokens of a chunk, E width of
embeddings.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.fused import (
    by_key,
    compiled,
    in_turn,
    placed_products,
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
def _highest(products, bias, real):
    """Returns largest scores and places: [B, J, C] of [B, T, C].

    real: [B, J, T] bool. The place is the first one where several are equal,
    and that of no token is T.
    """
    length = ops.shape(products)[1]
    rows = ops.arange(length, dtype='int32')[None, :, None]
    scores = plus_bias(products, bias)
    best, places = [], []
    for text in range(real.shape[1]):
        counts = real[:, text, :, None]
        highest = ops.max(ops.where(counts, scores, NEVER), axis=1)
        is_best = ops.logical_and(counts, scores >= highest[:, None])
        best.append(highest)
        places.append(ops.min(ops.where(is_best, rows, length), axis=1))
    return ops.stack(best, axis=1), ops.stack(places, axis=1)


@compiled
def _spread(d_best, places, rows, *, dtype):
    """Puts gradients [B, J, C] at places: [B, T, C] in `dtype`."""
    total = 0.0
    for text in range(d_best.shape[1]):
        at = ops.equal(places[:, text, None], rows)
        total = total + ops.where(at, d_best[:, text, None], 0.0)
    return rounded(total, dtype)


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
    chunks = -(-b * length * size // SCORES_AT_ONCE)
    slices = _slices(size, min(chunks, MOST_CHUNKS))
    highest, spread = (by_key(f, key) for f in (_highest, _spread))

    def function(states, embeddings, bias):
        flat = ops.reshape(states, (b * length, width))
        best, places = [], []
        for chunk in slices:
            products = ops.matmul(flat, ops.transpose(embeddings[chunk]))
            of_chunk = highest(
                ops.reshape(products, (b, length, -1)),
                None if bias is None else bias[chunk], real,
            )  # fmt: skip
            best.append(of_chunk[0])
            places.append(of_chunk[1])

        def grad(d_best):
            d_states, d_embeddings, d_bias = 0.0, [], []
            first = length * ops.arange(b, dtype='int32')[:, None, None]
            small = ops.cast(flat, dtype)
            for chunk, at in zip(slices, places, strict=True):
                # A text without tokens has no place.
                d = ops.where(at < length, d_best[:, :, chunk], 0.0)
                part = ops.cast(embeddings[chunk], dtype)
                products = _of_chunk(d, at, small, part, spread=spread)
                columns = ops.arange(d.shape[2], dtype='int32')
                d_x, d_part = placed_products(
                    *(
                        ops.reshape(ops.broadcast_to(x, d.shape), (-1,))
                        for x in (d, first + at, columns)
                    ),
                    small, part, products,
                )  # fmt: skip
                d_states = d_states + d_x
                d_embeddings.append(d_part)
                if bias is not None:
                    d_bias.append(ops.sum(d, axis=(0, 1)))
            return (
                ops.reshape(d_states, states.shape),
                ops.concatenate(d_embeddings),
                None if bias is None else ops.concatenate(d_bias),
            )

        return ops.concatenate(best, axis=2), grad

    return with_gradient(function, states, read(embeddings), read(bias))


def _of_chunk(d, places, flat, part, *, spread):
    """Returns a function of all products of a chunk, see `placed_products`."""

    def products():
        length = flat.shape[0] // d.shape[0]
        rows = ops.arange(length, dtype='int32')[None, :, None]
        total = spread(d, places, rows, dtype=flat.dtype)
        total = ops.reshape(total, (flat.shape[0], -1))
        return (
            to_float(ops.matmul(total, part)),
            to_float(ops.matmul(ops.transpose(total), flat)),
        )

    return products


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
