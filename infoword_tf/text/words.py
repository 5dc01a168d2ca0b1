"""Where words begin: after white space, and around punctuation.

A word is a run of letters, digits and the like; a character of punctuation is
one by itself, as in BERT's basic tokenizer. So is each character of a script
that writes no space between words (Han, kana, Thai and its neighbours), for a
run of these would be a whole sentence.
"""

import functools
import sys
import unicodedata

import numpy as np
import tensorflow as tf

from infoword_tf.text.tokenizer import string_of

RUN, ALONE, SPACE, MARK = range(4)  # MARK belongs to a character ALONE
# Blocks of scripts without spaces: Thai, Lao, Tibetan, Myanmar, Khmer, kana and
# Han with their extensions.
UNSPACED = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF),
    (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D), (0x1B000, 0x1B16F), (0x20000, 0x3FFFD),
)  # fmt: skip


@functools.cache
def kinds() -> tuple[np.ndarray, np.ndarray]:
    """Returns code points at which the kind changes, and new kinds."""
    codes = range(sys.maxunicode + 1)
    category = np.array([unicodedata.category(chr(code)) for code in codes])
    first = category.astype('U1')
    unspaced = np.zeros(len(codes), bool)
    for begin, last in UNSPACED:
        unspaced[begin : last + 1] = True
    alone = (first == 'P') | unspaced
    alone[:128] |= first[:128] == 'S'  # as BERT has it
    kind = np.where(alone, ALONE, RUN)
    kind[(first == 'M') & unspaced] = MARK
    kind[first == 'Z'] = SPACE
    kind[9:14] = SPACE
    changes = np.flatnonzero(np.diff(kind, prepend=-1))
    return changes.astype(np.int32), kind[changes].astype(np.int32)


def starts(strings: tf.Tensor, firsts: tf.RaggedTensor) -> tf.Tensor:
    """Tells which tokens begin a word.

    Args:
        strings: [B].
        firsts: [B, tokens] int64, the first byte of each token, no white space.

    Returns:
        [n] bool, of the tokens of all strings; true of the first of each.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    changes, names = kinds()
    kind = tf.gather(names, tf.searchsorted(changes, codes.values, 'right') - 1)
    before = tf.concat([[SPACE], kind[:-1]], axis=0)
    begins = (kind == ALONE) | ((kind == RUN) & (before != RUN))
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    bytes_before = tf.cumsum(lengths, exclusive=True)
    # All characters, by their byte among those of all strings.
    characters = offsets.values + tf.gather(
        bytes_before, string_of(offsets.row_splits)
    )
    number = string_of(firsts.row_splits)
    places = firsts.values + tf.gather(bytes_before, number)
    index = tf.searchsorted(characters, places, 'right') - 1
    begins = tf.concat([begins, [True]], axis=0)
    first = tf.concat([[-1], number[:-1]], axis=0) != number
    return first | tf.gather(begins, tf.maximum(index, 0))
