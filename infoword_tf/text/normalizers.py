"""How a text is written before it is parted, and where that came from.

Glossary of shapes: B strings, C characters of all strings together.
"""

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text.tokenizer import string_of

BLANK = r'[\x09-\x0d\x{85}\p{Z}]'  # Unicode's White_Space, for RE2


class Characters(NamedTuple):
    """Normalised strings, flat.

    Attributes:
        codes: [C] int32: code points.
        splits: [B + 1] int64: where each string begins in `codes`.
        starts, ends: [C] int64: the first byte of what each is made of, in
            the string that was given, and the one after.
    """

    codes: tf.Tensor
    splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


class Normalizer(Protocol):
    """Strings to strings."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """[B] -> [B]."""

    def characters(self, strings: tf.Tensor) -> Characters:
        """The characters of what it makes, with their places before."""


class AsWritten:
    """Nothing is changed."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """As `Normalizer`."""
        return strings

    def characters(self, strings: tf.Tensor) -> Characters:
        """As `Normalizer`."""
        return _decoded(strings)


class Composed:
    """NFC: letters and their accents in one, where Unicode has one."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """As `Normalizer`."""
        return tf_text.normalize_utf8(strings, 'NFC')

    def characters(self, strings: tf.Tensor) -> Characters:
        """As `Normalizer`."""
        # Places are found of no string that is empty: each has a blank more.
        normal, places = tf_text.normalize_utf8_with_offsets_map(
            tf.strings.join([strings, ' ']), 'NFC'
        )
        found = _decoded(normal)
        starts, ends = (
            tf_text.find_source_offsets(
                places,
                tf.RaggedTensor.from_row_splits(
                    values, found.splits, validate=False
                ),
            ).values
            for values in (found.starts, found.ends)
        )
        added = tf.scatter_nd(
            found.splits[1:, None] - 1,
            tf.ones_like(found.splits[1:]),
            found.splits[-1:],
        )
        kept = tf.where(added == 0)[:, 0]
        return Characters(
            tf.gather(found.codes, kept),
            found.splits - tf.range(tf.size(found.splits, tf.int64)),
            tf.gather(starts, kept),
            tf.gather(ends, kept),
        )


class Mapped:
    """Each character becomes what a table says: case, accents, controls."""

    def __init__(self, model: np.ndarray):
        """Args: as `normalization.fit` makes it."""
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(model)
        )

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """As `Normalizer`."""
        return self._normalizer.normalize(strings)

    def characters(self, strings: tf.Tensor) -> Characters:
        """As `Normalizer`."""
        normal, places = self._normalizer.normalize_with_offsets(strings)
        found = _decoded(normal)
        row = string_of(found.splits)
        begin = tf.gather(places.row_splits, row)
        lasts = tf.gather(places.values, begin + found.ends - 1)
        return found._replace(
            starts=tf.gather(places.values, begin + found.starts),
            ends=ends_of(strings, row, lasts),
        )


# By the last byte of a character that stays, or the first of another: the
# bytes from there to its end.
_WIDTHS = np.array([1] * 0xC0 + [2] * 0x20 + [3] * 0x10 + [4] * 0x10)


def ends_of(strings: tf.Tensor, row: tf.Tensor, lasts: tf.Tensor) -> tf.Tensor:
    """The bytes after characters that `FastBertNormalizer` tells the places of.

    Args:
        strings: [B], as they were given to it.
        row: [N]: the string of each.
        lasts: [N] int64: what it says of the last byte of its form.

    Returns:
        [N] int64.
    """
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    joined = tf.strings.reduce_join(strings)
    text = tf.cast(tf.io.decode_raw(joined, tf.uint8), tf.int32)
    place = tf.gather(tf.cumsum(lengths, exclusive=True), row) + lasts
    ends = lasts + tf.gather(_WIDTHS, tf.gather(text, place))
    return tf.minimum(ends, tf.gather(lengths, row))  # if it is no UTF-8


def _decoded(strings: tf.Tensor) -> Characters:
    codes, starts = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    splits = codes.row_splits
    # A string's last character ends with it.
    following = tf.concat([starts.values[1:], [0]], 0)
    there = splits[1:] > splits[:-1]
    ends = tf.tensor_scatter_nd_update(
        following[: tf.size(starts.values)],
        tf.boolean_mask(splits[1:] - 1, there)[:, None],
        tf.boolean_mask(lengths, there),
    )
    return Characters(codes.values, splits, starts.values, ends)
