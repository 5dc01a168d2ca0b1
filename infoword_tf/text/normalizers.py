"""Normalisation of texts in the graph, with offsets into what they were.

Glossary of shapes: C characters of all strings together.
"""

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text.tokenizer import ragged, string_of

BLANK = r'[\x09-\x0d\x{85}\p{Z}]'  # Unicode's White_Space, for RE2


class Characters(NamedTuple):
    """Characters of normalised strings.

    Attributes:
        codes: [C] int32: code points.
        splits: [B + 1] int64: where each string begins in `codes`.
        starts, ends: [C] int64: in the string before normalisation, the first
            byte of what became the character, and the byte after.
    """

    codes: tf.Tensor
    splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


class Normalizer(Protocol):
    """A function of strings, and one that also tells offsets."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Normalises strings [B]."""

    def characters(self, strings: tf.Tensor) -> Characters:
        """Normalises strings [B], with the offsets of each character."""


class AsWritten:
    """No normalisation."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return strings

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        return _decoded(strings)


class Composed:
    """NFC: letter and accent as one character if Unicode has one."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return tf_text.normalize_utf8(strings, 'NFC')

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        # `find_source_offsets` fails on empty strings, so a blank is appended
        # to each, and taken out again below.
        normal, offsets = tf_text.normalize_utf8_with_offsets_map(
            tf.strings.join([strings, ' ']), 'NFC'
        )
        codes, splits, *bounds = _decoded(normal)
        starts, ends = (
            tf_text.find_source_offsets(
                offsets,
                ragged(values, splits),
            ).values
            for values in bounds
        )
        # What NFC takes apart has all bytes in each part.
        earlier = tf.concat([[0], starts[:-1]], 0)
        starts = tf.where(starts < ends, starts, earlier)
        appended = tf.scatter_nd(
            splits[1:, None] - 1, tf.ones_like(splits[1:]), splits[-1:]
        )
        stays = tf.where(appended == 0)[:, 0]
        return Characters(
            tf.gather(codes, stays),
            splits - tf.range(tf.size(splits, tf.int64)),
            tf.gather(starts, stays),
            tf.gather(ends, stays),
        )


class Mapped:
    """Normalisation by a table of characters: case, accents, controls."""

    def __init__(self, model: np.ndarray):
        """Takes a model that `normalization` made, [S] uint8."""
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(model)
        )

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return self._normalizer.normalize(strings)

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        normal, offsets = self._normalizer.normalize_with_offsets(strings)
        characters = _decoded(normal)
        string = string_of(characters.splits)
        begin = tf.gather(offsets.row_splits, string)
        lasts = tf.gather(offsets.values, begin + characters.ends - 1)
        return characters._replace(
            starts=tf.gather(offsets.values, begin + characters.starts),
            ends=ends_of(strings, string, lasts),
        )


def characters_of(
    normalizer: Normalizer, strings: tf.Tensor, with_offsets: bool
) -> Characters:
    """Normalises strings [B]; without offsets `starts`, `ends` are empty."""
    if with_offsets:
        return normalizer.characters(strings)
    codes = tf.strings.unicode_decode(normalizer(strings), 'UTF-8')
    splits = codes.row_splits
    return Characters(codes.values, splits, splits[:0], splits[:0])


def utf8_widths(codes: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of each character in UTF-8, [C] int64."""
    return 1 + sum(
        tf.cast(codes >= least, tf.int64) for least in (0x80, 0x800, 0x10000)
    )


# Bytes up to the end of a character, by the byte that
# `FastBertNormalizer.normalize_with_offsets` points at: the last one of a
# character that stays as it is, the first one of a character that changes.
_WIDTHS = np.array([1] * 0xC0 + [2] * 0x20 + [3] * 0x10 + [4] * 0x10)


def ends_of(
    strings: tf.Tensor, string: tf.Tensor, lasts: tf.Tensor
) -> tf.Tensor:
    """Returns the bytes after characters or tokens, [n] int64.

    Args:
        strings: [B], before normalisation.
        string: [n]: the number of each one's string.
        lasts: [n] int64: the offset that `FastBertNormalizer` has for the last
            normalised byte.
    """
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    joined = tf.strings.reduce_join(strings)
    text = tf.cast(tf.io.decode_raw(joined, tf.uint8), tf.int32)
    place = tf.gather(tf.cumsum(lengths, exclusive=True), string) + lasts
    ends = lasts + tf.gather(_WIDTHS, tf.gather(text, place))
    return tf.minimum(ends, tf.gather(lengths, string))  # if it is no UTF-8


def _decoded(strings: tf.Tensor) -> Characters:
    codes, starts = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    splits = codes.row_splits
    # A string's last character ends with it.
    following = tf.concat([starts.values[1:], [0]], 0)
    filled = splits[1:] > splits[:-1]
    ends = tf.tensor_scatter_nd_update(
        following[: tf.size(starts.values)],
        tf.boolean_mask(splits[1:] - 1, filled)[:, None],
        tf.boolean_mask(lengths, filled),
    )
    return Characters(codes.values, splits, starts.values, ends)
