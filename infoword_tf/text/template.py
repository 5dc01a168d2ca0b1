"""Texts as model inputs: truncated, with special tokens, padded.

In the graph and out of it.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from infoword_tf.tensors import Tensor
from infoword_tf.text.layout import Layout
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.views.fitting import fitting_lengths


class Template:
    """A layout in the ids of a tokenizer.

    Attributes:
        tokenizer: strings to ids.
        layout: the names of the special tokens.
        before, after: ids before and after one text.
        between: ids between two texts.
        around_two: ids before and after two texts.
        padding: id of `Layout.padding`, or None.
    """

    def __init__(self, tokenizer: TextTokenizer, layout: Layout):
        """Looks up the ids of a layout."""
        self.tokenizer, self.layout = tokenizer, layout
        ids = {
            'cls': tokenizer.cls_id,
            'sep': tokenizer.sep_id,
            'mask': tokenizer.mask_id,
        }

        def numbers(tokens: Sequence[str]) -> list[int]:
            return [
                ids[x] if x in ids else tokenizer.vocabulary.index(x)
                for x in tokens
            ]

        self.before, self.between, self.after = map(
            numbers, (layout.before, layout.between, layout.after)
        )
        self.around_two = tuple(map(numbers, layout.two))
        self.padding = None
        if layout.padding is not None:
            self.padding = tokenizer.vocabulary.index(layout.padding)

    def free_length(self, max_length: int, texts: int = 1) -> int:
        """Returns how many tokens of one text, or of two, fit into T."""
        if texts == 2:
            specials = *self.around_two, self.between
        else:
            specials = self.before, self.after
        return max_length - sum(map(len, specials))

    def one(self, tokens: tf.RaggedTensor, max_length: int) -> tf.RaggedTensor:
        """Truncates texts and adds special tokens, both [B, tokens] int32."""
        sizes = tf.minimum(
            tokens.row_lengths(),
            tf.cast(self.free_length(max_length), tf.int64),
        )
        return with_special_tokens(
            self.before, _truncated(tokens, sizes), self.after
        )

    def two(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor
    ) -> tf.RaggedTensor:
        """Adds special tokens to pairs of whole texts, [B, tokens] int32."""
        before, after = self.around_two
        parts = before, first, self.between, second, after
        return with_special_tokens(*parts)

    def format(
        self,
        texts: Tensor,
        pairs: Tensor | None,
        max_length: int,
        limits: tuple[int | None, int | None] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokenizes and formats texts or pairs, the longer of two truncated.

        Args:
            texts, pairs: [B] string; None: there are no second texts.
            max_length: T at most.
            limits: tokens of each of two texts at most, with the special ones
                that it has alone; None: any number.

        Returns:
            ids [B, T] and lengths [B], int32; of pairs the place where the
            second text begins, [B] int32, else None.
        """
        first, begins = self.tokenizer.tokenize(texts), None
        if pairs is None:
            sequences = self.one(first, max_length)
        else:
            second = self.tokenizer.tokenize(pairs)
            if limits:
                first, second = (
                    x[:, : self.free_length(most)] if most else x
                    for x, most in zip((first, second), limits, strict=True)
                )
            sizes = fitting_lengths(
                first.row_lengths(),
                second.row_lengths(),
                self.free_length(max_length, texts=2),
                tf,
            )
            sequences = self.two(
                _truncated(first, sizes[0]), _truncated(second, sizes[1])
            )
            before, _ = self.around_two
            begins = len(before) + sizes[0] + len(self.between)
            begins = tf.cast(begins, tf.int32)
        return *padded(sequences, self.tokenizer.pad_id), begins


def with_special_tokens(
    *ids: Sequence[int] | tf.RaggedTensor,
) -> tf.RaggedTensor:
    """Concatenates texts [B, tokens] int32 and special ids, equal for all."""
    count = next(x for x in ids if isinstance(x, tf.RaggedTensor)).nrows()

    def each(ids: Sequence[int]) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(
            tf.tile(tf.constant(ids, tf.int32), [count]),
            len(ids) * tf.range(count + 1),
            validate=False,
        )

    return tf.concat(
        [x if isinstance(x, tf.RaggedTensor) else each(x) for x in ids], axis=1
    )


def to_dense(ragged: tf.RaggedTensor, padding: Any) -> Tensor:
    """Pads to one length, 2 or more also of no sequences at all."""
    dense = ragged.to_tensor(padding)
    lacking = tf.maximum(2 - tf.shape(dense)[1], 0)
    return tf.pad(dense, [[0, 0], [0, lacking]], constant_values=padding)


def padded(sequences: tf.RaggedTensor, padding: int) -> tuple[Tensor, Tensor]:
    """Pads [B, tokens] to ids [B, T]; returns also lengths [B], int32."""
    lengths = tf.cast(sequences.row_lengths(), tf.int32)
    return to_dense(sequences, padding), lengths


def _truncated(tokens: tf.RaggedTensor, sizes: Tensor) -> tf.RaggedTensor:
    """Takes the first `sizes` [B] tokens of each text."""
    starts = tokens.row_starts()
    places = tf.ragged.range(starts, starts + sizes)
    return tf.gather(tokens.flat_values, places)
