"""Texts in rows: cut, laid out and padded, in the graph and out of it.

Glossary of shapes: B texts, T tokens.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from infoword_tf.text.layout import Layout
from infoword_tf.text.tokenizer import Tokenizer

Tensor = Any


class Template:
    """A layout in the ids of a tokenizer: what stands around texts.

    Attributes:
        tokenizer: strings to ids.
        layout: which special pieces, in words.
        before, after: around a text, as ids.
        between: between two, as ids.
        around_two: before and after two, as ids.
    """

    def __init__(self, tokenizer: Tokenizer, layout: Layout):
        """Args: as the attributes."""
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

    def free_length(self, max_length: int, texts: int = 1) -> int:
        """Pieces of one text, or of two, that fit into T."""
        if texts == 2:
            parts = *self.around_two, self.between
        else:
            parts = self.before, self.after
        return max_length - sum(map(len, parts))

    def one(self, pieces: tf.RaggedTensor, max_length: int) -> tf.RaggedTensor:
        """Texts alone, their ends cut: [B, pieces] -> [B, tokens] int32."""
        sizes = tf.minimum(
            pieces.row_lengths(),
            tf.cast(self.free_length(max_length), tf.int64),
        )
        return lay_out(self.before, _cut(pieces, sizes), self.after)

    def two(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor
    ) -> tf.RaggedTensor:
        """Two texts in a row, all of them: [B, tokens] int32."""
        before, after = self.around_two
        return lay_out(before, first, self.between, second, after)

    def laid_out(
        self, texts: Tensor, pairs: Tensor | None, max_length: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ids of strings, or of pairs of them; of two the longer one is cut.

        Returns:
            ids [B, T] and lengths [B], int32; of pairs, where the second text
            begins, [B] int32, else None.
        """
        first, begins = self.tokenizer.tokenize(texts), None
        if pairs is None:
            rows = self.one(first, max_length)
        else:
            second = self.tokenizer.tokenize(pairs)
            sizes = fitting_lengths(
                first.row_lengths(),
                second.row_lengths(),
                self.free_length(max_length, texts=2),
            )
            rows = self.two(_cut(first, sizes[0]), _cut(second, sizes[1]))
            before, _ = self.around_two
            begins = len(before) + sizes[0] + len(self.between)
            begins = tf.cast(begins, tf.int32)
        return *padded(rows, self.tokenizer.pad_id), begins


def fitting_lengths(
    first: Tensor, second: Tensor, total: int
) -> tuple[Tensor, Tensor]:
    """How many pieces of two texts fit a room, where the longer is cut first.

    As the `longest_first` of the tokenizers that pairs were trained with.
    """
    swapped = first > second
    short, long = tf.minimum(first, second), tf.maximum(first, second)
    long = tf.where(short > total, short, tf.maximum(short, total - short))
    half = tf.fill(tf.shape(short), tf.cast(total // 2, short.dtype))
    beyond = short + long > total
    kept_short = tf.where(beyond, half, short)
    kept_long = tf.where(beyond, total - half, long)
    kept_long = tf.minimum(kept_long, tf.maximum(first, second))
    return (
        tf.where(swapped, kept_long, kept_short),
        tf.where(swapped, kept_short, kept_long),
    )


def lay_out(*parts: Sequence[int] | tf.RaggedTensor) -> tf.RaggedTensor:
    """Texts [B, pieces], and special pieces around them: [B, tokens] int32."""
    count = next(x for x in parts if isinstance(x, tf.RaggedTensor)).nrows()

    def each(ids: Sequence[int]) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(
            tf.tile(tf.constant(ids, tf.int32), [count]),
            len(ids) * tf.range(count + 1),
            validate=False,
        )

    rows = [x if isinstance(x, tf.RaggedTensor) else each(x) for x in parts]
    return tf.concat(rows, axis=1)


def table(rows: tf.RaggedTensor, beyond: Any) -> Tensor:
    """Rows of one length: two columns also where there are no rows."""
    found = rows.to_tensor(beyond)
    lacking = tf.maximum(2 - tf.shape(found)[1], 0)
    return tf.pad(found, [[0, 0], [0, lacking]], constant_values=beyond)


def padded(rows: tf.RaggedTensor, padding: int) -> tuple[Tensor, Tensor]:
    """[B, tokens] -> ids [B, T] and lengths [B], int32."""
    return table(rows, padding), tf.cast(rows.row_lengths(), tf.int32)


def _cut(pieces: tf.RaggedTensor, sizes: Tensor) -> tf.RaggedTensor:
    """The first pieces of each text, so many."""
    starts = pieces.row_starts()
    places = tf.ragged.range(starts, starts + sizes)
    return tf.gather(pieces.flat_values, places)
