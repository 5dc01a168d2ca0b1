"""Pieces as whole characters: what is cut out of a text is still text.

A piece's bytes may end inside a character (of a vocabulary of bytes), or before
the accents that follow one as characters of their own, which normalisation
dropped. What is shown to people has all of them.

Glossary of shapes: B strings, N pieces of all strings together, S characters
of all strings together.
"""

import functools
import sys
import unicodedata

import numpy as np
import tensorflow as tf

from infoword_tf.text.tokenizer import Tokenizer, string_of


@functools.cache
def marks() -> np.ndarray:
    """Code points at which marks (categories M) begin and cease, in turn."""
    mark = [
        unicodedata.category(chr(code))[0] == 'M'
        for code in range(sys.maxunicode + 1)
    ]
    return np.flatnonzero(np.diff(mark, prepend=False)).astype(np.int32)


def after_spaces(
    strings: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Where pieces of strings [B] begin, [B, pieces] int64, once the spaces
    (blank, tab, line ends) that they begin with are none of theirs.
    """
    number = string_of(starts.row_splits)
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    begin = tf.gather(tf.cumsum(lengths + 1, exclusive=True), number)
    joined = tf.strings.reduce_join(strings, separator=' ')
    text = tf.io.decode_raw(joined, tf.uint8)  # [bytes]
    space = (text == 32) | ((text >= 9) & (text <= 13))
    solid = tf.where(~space)[:, 0]
    # How many of them lie before a byte, and so which is the next.
    before = tf.cumsum(tf.pad(tf.cast(~space, tf.int32), [[1, 0]]))
    following = tf.gather(
        tf.concat([solid, [2**62]], axis=0),
        tf.gather(before, begin + starts.values),
    )
    return starts.with_values(tf.minimum(following - begin, ends.values))


def read(
    tokenizer: Tokenizer, strings: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """As `tokenize_with_offsets`, with bytes that people are shown: whole
    characters, and no blank before a word.
    """
    pieces, starts, ends = tokenizer.tokenize_with_offsets(strings)
    if not tokenizer.trims:
        starts = after_spaces(strings, starts, ends)
    return pieces, *widened(strings, starts, ends)


def widened(
    strings: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Bytes of pieces of strings [B], starts and ends [B, pieces] int64,
    widened to whole characters with their marks.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    begins = tf.cumsum(lengths, exclusive=True)  # of strings among all bytes
    row = string_of(starts.row_splits)
    of = string_of(offsets.row_splits)
    characters = offsets.values + tf.gather(begins, of)
    is_mark = tf.searchsorted(marks(), codes.values, 'right') % 2 == 1
    solid = tf.boolean_mask(characters, ~is_mark)
    begin, length = tf.gather(begins, row), tf.gather(lengths, row)
    # The last character that begins at or before a piece does, and the first
    # one without a mark at or after its end.
    before = tf.searchsorted(characters, starts.values + begin, 'right') - 1
    after = tf.searchsorted(solid, ends.values + begin, 'left')
    characters = tf.concat([characters, [0]], axis=0)
    solid = tf.concat([solid, [tf.int64.max]], axis=0)
    first = tf.gather(characters, tf.maximum(before, 0)) - begin
    last = tf.minimum(tf.gather(solid, after) - begin, length)
    some = ends.values > starts.values
    return (
        starts.with_values(tf.where(some, first, starts.values)),
        ends.with_values(tf.where(some, last, ends.values)),
    )
