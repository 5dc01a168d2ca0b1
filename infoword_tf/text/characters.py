"""Offsets of tokens as people are shown them: of whole characters.

The bytes of a token may end inside a character (where tokens are bytes), or
before accents that are characters by themselves, which normalisation dropped.
"""

import functools
import sys
import unicodedata

import numpy as np
import tensorflow as tf

from infoword_tf.text.tokenizer import TextTokenizer, string_of


@functools.cache
def marks() -> np.ndarray:
    """Returns code points where marks (categories M) begin and end, in turn."""
    mark = [
        unicodedata.category(chr(code))[0] == 'M'
        for code in range(sys.maxunicode + 1)
    ]
    return np.flatnonzero(np.diff(mark, prepend=False)).astype(np.int32)


def after_spaces(
    strings: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Moves starts of tokens, [B, tokens] int64, after the spaces (blank, tab,
    line ends) that tokens of strings [B] begin with.
    """
    number = string_of(starts.row_splits)
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    begin = tf.gather(tf.cumsum(lengths + 1, exclusive=True), number)
    joined = tf.strings.reduce_join(strings, separator=' ')
    text = tf.io.decode_raw(joined, tf.uint8)  # [bytes]
    space = (text == 32) | ((text >= 9) & (text <= 13))
    solid = tf.where(~space)[:, 0]
    # The number of solid bytes before a byte is the number of the next one.
    before = tf.cumsum(tf.pad(tf.cast(~space, tf.int32), [[1, 0]]))
    following = tf.gather(
        tf.concat([solid, [2**62]], axis=0),
        tf.gather(before, begin + starts.values),
    )
    return starts.with_values(tf.minimum(following - begin, ends.values))


def read(
    tokenizer: TextTokenizer, strings: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Returns `tokenize_with_offsets` with offsets of whole characters, without
    the blank before a word.
    """
    ids, starts, ends = tokenizer.tokenize_with_offsets(strings)
    if not tokenizer.trims:
        starts = after_spaces(strings, starts, ends)
    return ids, *widened(strings, starts, ends)


def widened(
    strings: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Moves offsets in strings [B], starts and ends [B, tokens] int64, outward
    to whole characters with marks.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    begins = tf.cumsum(lengths, exclusive=True)  # of strings among all bytes
    number = string_of(starts.row_splits)
    characters = offsets.values + tf.gather(
        begins, string_of(offsets.row_splits)
    )
    is_mark = tf.searchsorted(marks(), codes.values, 'right') % 2 == 1
    solid = tf.boolean_mask(characters, ~is_mark)
    begin, length = tf.gather(begins, number), tf.gather(lengths, number)
    # The last character that begins at or before the token's start, and the
    # first one without a mark at or after the token's end.
    before = tf.searchsorted(characters, starts.values + begin, 'right') - 1
    after = tf.searchsorted(solid, ends.values + begin, 'left')
    characters = tf.concat([characters, [0]], axis=0)
    solid = tf.concat([solid, [tf.int64.max]], axis=0)
    first = tf.gather(characters, tf.maximum(before, 0)) - begin
    last = tf.minimum(tf.gather(solid, after) - begin, length)
    filled = ends.values > starts.values
    return (
        starts.with_values(tf.where(filled, first, starts.values)),
        ends.with_values(tf.where(filled, last, ends.values)),
    )
