"""Documents that are there twice, exactly or nearly, whatever their number.

Two documents are near where their sets of shingles (5 words in a row, case
aside) have much in common: their Jaccard similarity is estimated from
sketches (Broder 1997). A sketch takes one hash of each shingle: hashes are
parted into bins, of which each keeps its smallest (Li, Owen and Zhang 2012,
"One Permutation Hashing"), and bins without a shingle borrow from others
(Shrivastava 2017, "Optimal Densification for Fast and Accurate Minwise
Hashing"). Documents are compared that agree in a whole band of bins.

Glossary of shapes: D documents, W words, H = 128 bins, R rows of a band.
"""

import functools
import mmap
from collections.abc import Sequence

import numpy as np

BINS, ROWS = 128, 4
BANDS = BINS // ROWS
SHINGLE = 5  # words
_MULTIPLIER = 0x9E3779B97F4A7C15
_PLACES = 64
_EMPTY = np.uint32(2**32 - 1)
_BORROWED = np.uint32(0x85EBCA6B)
_DOCUMENTS = 1 << 16  # whose sketches are in memory at a time
_ATTEMPTS, _FEW = 4096, 16  # to borrow; bins that could lend


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hashes of uint64 numbers, well spread (SplitMix64's last steps)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _table() -> np.ndarray:
    """[64 * 256] uint64: random numbers of a byte at a place of its word."""
    return np.random.default_rng(0).integers(
        0, 2**64, _PLACES * 256, dtype=np.uint64
    )


_TABLE = _table()


def _word_hashes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all words, [W] uint64, and how many words each text has, [D].

    Words are parted by single spaces, as corpora yield them; of a longer one
    the first 64 bytes are told by their places.
    """
    data = [text.casefold().encode('utf-8', 'replace') for text in texts]
    # Each text ends in a space of its own: as many spaces as words.
    joined = np.frombuffer(b' '.join([*data, b'']), np.uint8)
    ends = np.flatnonzero(joined == ord(' '))
    begins = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(joined)) - np.repeat(begins, ends - begins + 1)
    np.minimum(place, _PLACES - 1, out=place)
    place <<= 8
    place += joined
    hashes = np.add.reduceat(_TABLE[place], begins)  # the space too
    lengths = np.fromiter((len(x) + 1 for x in data), np.int64, len(data))
    splits = np.searchsorted(ends, np.cumsum(lengths) - 1, 'right')
    return hashes, np.diff(splits, prepend=0)


def sketches(texts: Sequence[str]) -> np.ndarray:
    """[D, H] uint16, equal for equal texts.

    The share of bins in which two of them agree estimates the Jaccard
    similarity of their shingles; a text of less than 5 words is one shingle.

    Args:
        texts: D, none of them empty, their words parted by single spaces.
    """
    words, counts = _word_hashes(texts)
    ends = np.cumsum(counts)
    # The shingle that begins at a word: 5 words in a row, or a whole text.
    shingles = np.zeros(len(words), np.uint64)
    factor = 1
    for i in range(SHINGLE):
        factor = factor * _MULTIPLIER % 2**64
        shingles[: max(0, len(words) - i)] += words[i:] * np.uint64(factor)
    short = np.flatnonzero(counts < SHINGLE)
    begins, value = (ends - counts)[short], np.zeros(len(short), np.uint64)
    factor = 1
    for i in range(SHINGLE - 1):
        factor = factor * _MULTIPLIER % 2**64
        word = words[np.minimum(begins + i, len(words) - 1)]
        inside = i < counts[short]
        value += np.where(inside, word * np.uint64(factor), np.uint64(0))
    shingles[begins] = value
    full = np.maximum(counts - SHINGLE + 1, 1)  # shingles of each
    number = np.arange(full.sum()) - np.repeat(np.cumsum(full) - full, full)
    text = np.repeat(np.arange(len(texts)), full)
    hashes = _mixed(shingles[(ends - counts)[text] + number])
    cell = text * BINS + (hashes >> np.uint64(57)).astype(np.int64)
    value = np.minimum(hashes.astype(np.uint32), _EMPTY - np.uint32(1))
    sketch = np.full(len(texts) * BINS, _EMPTY)
    np.minimum.at(sketch, cell, value)
    # The low bits are as random as the whole: half of the bytes will do.
    return _densified(sketch.reshape(-1, BINS)).astype(np.uint16)


@functools.cache
def _lending() -> tuple[np.ndarray, np.ndarray]:
    """Which bin lends to an empty one.

    Returns:
        At each attempt, [A, H], to each bin; all are asked at last.
        Of a lender to each bin, [H, H] int32, the attempt * H + the lender.
    """
    attempts = np.arange(1, _ATTEMPTS + 1, dtype=np.uint64)[:, None]
    bins = np.arange(BINS, dtype=np.uint64)
    lenders = _mixed(bins + attempts * BINS) % np.uint64(BINS)
    lenders = lenders.astype(np.int32)
    first = np.full((BINS, BINS), np.iinfo(np.int32).max, np.int32)
    keys = attempts.astype(np.int32) * BINS + lenders
    np.minimum.at(first, (lenders, bins.astype(np.int32)), keys)
    return lenders, first


def _densified(sketch: np.ndarray) -> np.ndarray:
    """Empty bins borrow from another one, which a hash of both chooses."""
    lenders, first = _lending()
    # A bin that borrows differs from its lender.
    more = np.arange(BINS, dtype=np.uint32) * _BORROWED
    found, filled = sketch.copy(), sketch != _EMPTY
    few = filled.sum(axis=1) <= _FEW
    # Where few could lend, the first of them to be asked.
    row, lender = np.nonzero(filled[few])
    begins = np.searchsorted(row, np.arange(few.sum()))
    some = np.repeat(lender[begins, None], _FEW, axis=1)
    some[row, np.arange(len(row)) - begins[row]] = lender
    best = first[some[:, 0]]
    for column in some.T[1:]:
        np.minimum(best, first[column], out=best)
    borrowed = np.take_along_axis(sketch[few], best % BINS, axis=1) + more
    found[few] = np.where(filled[few], sketch[few], borrowed)
    # Elsewhere few are asked in vain.
    empty = np.flatnonzero(~filled & ~few[:, None])
    column = (empty % BINS).astype(np.int32)
    row = empty - column  # where it begins
    flat, result = sketch.ravel(), found.ravel()
    for lender in lenders:
        value = flat[row + lender[column]]
        lends = np.flatnonzero(value != _EMPTY)
        borrows = column[lends]
        result[row[lends] + borrows] = value[lends] + more[borrows]
        left = np.flatnonzero(value == _EMPTY)
        row, column = row[left], column[left]
        if not len(left):
            break
    return found


def repeated(hashes: np.ndarray) -> np.ndarray:
    """[D] bool: an earlier document has the same hash; hashes [D] uint64."""
    _, first = np.unique(hashes, return_index=True)
    again = np.ones(len(hashes), bool)
    again[first] = False
    return again


def band(sketch: np.ndarray, number: int) -> np.ndarray:
    """[D] uint64, equal where sketches [D, H] agree in a band of BANDS."""
    found = np.zeros(len(sketch), np.uint64)
    for begin in range(0, len(sketch), _DOCUMENTS):
        some = sketch[begin : begin + _DOCUMENTS]
        hashed = found[begin : begin + _DOCUMENTS]
        for column in range(number * ROWS, (number + 1) * ROWS):
            hashed[:] = _mixed(
                hashed * np.uint64(_MULTIPLIER) + some[:, column]
            )
        _let_go(sketch)
    return found


def _let_go(sketch: np.ndarray) -> None:
    """Of a file, takes what was read of it out of this process' memory."""
    if isinstance(sketch, np.memmap):
        sketch._mmap.madvise(mmap.MADV_DONTNEED)


def leaders(keys: np.ndarray) -> np.ndarray:
    """[D] int64, the place of the first that has the same key; keys [D]."""
    order = np.argsort(keys, kind='stable')
    is_first = np.diff(keys[order], prepend=~keys[order[:1]]) != 0
    found = np.empty(len(keys), np.int64)
    found[order] = order[is_first][np.cumsum(is_first) - 1]
    return found


def alike(a: np.ndarray, b: np.ndarray, similarity: float) -> np.ndarray:
    """[n] bool: sketches [n, H] are as similar as that, or more."""
    return (a == b).mean(axis=1) >= similarity


def near(sketch: np.ndarray, similarity: float) -> np.ndarray:
    """[D] bool: an earlier document is as similar as that, or more.

    Of those that agree in a band each is compared with the first alone, which
    may itself be near an earlier one: a group of D copies takes D comparisons
    and not D squared. At a similarity of 0.8 all 32 bands miss a pair in 1 case
    of 20 million, at 0.6 in 1 of 80.

    Args:
        sketch: [D, H] of `sketches`; of a file (`np.memmap`) little is in
            memory at a time.
        similarity: 0.6 to 1, as estimated: of a text with few shingles the
            estimate is rough, 0.05 off on average for 5 of them.
    """
    found = np.zeros(len(sketch), bool)
    for number in range(BANDS):
        leader = leaders(band(sketch, number))
        some = np.flatnonzero((leader != np.arange(len(leader))) & ~found)
        for b in np.array_split(some, 1 + len(some) // _DOCUMENTS):
            found[b] = alike(sketch[leader[b]], sketch[b], similarity)
            _let_go(sketch)
    return found
