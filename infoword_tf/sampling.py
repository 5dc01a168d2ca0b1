"""The randomness under the views, p(a, b): vectorised NumPy, pure, keyed.

A draw is a function of a source's global batch and of a generator that comes
from (seed, step, name of the draw) alone. It is made once a step and shared by
all views and rows that use it.

Glossary of shapes: B sequences, L tokens of each (without [CLS] and the last
[SEP]), W words, P tokens of the budget.
"""

import math
import zlib
from typing import NamedTuple

import numpy as np

MASKED_SHARE = 0.15  # of the tokens, Devlin et al. 2019, Kong et al. 2019 §5.2
SPAN_MEAN, SPAN_DEVIATION, LONGEST_SPAN = 5.0, 1.0, 10  # words, Kong §5.2
FIRST_SHARE, KEPT_SHARE = 0.5, 0.1  # of documents, see `cloze`


class Windows(NamedTuple):
    """A global batch of the source `windows`.

    Attributes:
        ids: [B, L] int32 pieces; a separator lies between documents.
        word_starts: [B, L] bool; every row begins with True.
        separators: [B, L] bool.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    separators: np.ndarray


class Documents(NamedTuple):
    """A global batch of the source `documents`.

    Attributes:
        ids: [B, C] int32 pieces, from a sentence start on; zeros beyond.
        lengths: [B] int32, pieces of each.
        sentence_starts: [B, C] bool; every row begins with True.
    """

    ids: np.ndarray
    lengths: np.ndarray
    sentence_starts: np.ndarray


class Cloze(NamedTuple):
    """Which sentence of each document is asked for.

    Attributes:
        starts, ends: [B] int32: its first token and the one after its last.
        kept: [B] bool: the document keeps it.
        usable: [B] bool: there is another sentence.
    """

    starts: np.ndarray
    ends: np.ndarray
    kept: np.ndarray
    usable: np.ndarray


class Masking(NamedTuple):
    """Which tokens are hidden, and what is shown instead.

    Attributes:
        hidden: [B, L] bool, tokens to predict; P in each row, or all there
            are where a row holds fewer.
        shown: [B, L] int32 in {0, 1, 2}: [MASK], a random piece, the piece.
        random: [B, L] float64 in [0, 1): chooses the random piece.
        starts, lengths: [B, P] int32, the spans in the order of drawing,
            length 0 where a row has fewer; None for words and tokens.
        shortened: [B] int32, spans that found no room for their words.
    """

    hidden: np.ndarray
    shown: np.ndarray
    random: np.ndarray
    starts: np.ndarray | None = None
    lengths: np.ndarray | None = None
    shortened: np.ndarray | None = None


def generator(seed: int, step: int, name: str) -> np.random.Generator:
    """The random numbers of one draw of one step."""
    return np.random.default_rng([seed, step, zlib.crc32(name.encode())])


def budget(length: int) -> int:
    """P = ceil(0.15 L): tokens that are predicted in each sequence."""
    return math.ceil(MASKED_SHARE * length)


def shuffled(places: np.ndarray, size: int, *key: int) -> np.ndarray:
    """Where a pseudo-random permutation of range(size) sends some places.

    Nothing of the size of the corpus is stored: a Feistel network over the
    next power of four, walked until it lands inside (Black and Rogaway 2002).

    Args:
        places: [B] int64 in range(size).
        size: at least 1.
        *key: integers that choose the permutation.

    Returns:
        [B] int64.
    """
    half = max(1, math.ceil(math.log2(max(size, 2)) / 2))
    mask = np.uint64((1 << half) - 1)
    rounds = np.random.default_rng(list(key)).integers(
        0, 2**63, 4, dtype=np.uint64
    )

    def permute(x: np.ndarray) -> np.ndarray:
        left, right = x >> np.uint64(half), x & mask
        for salt in rounds:
            mixed = (right + salt) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << np.uint64(half)) | right

    x = permute(np.asarray(places, np.uint64))
    while (outside := x >= size).any():
        x[outside] = permute(x[outside])
    return x.astype(np.int64)


def span_lengths(size: int, random: np.random.Generator) -> np.ndarray:
    """n ~ N(5, 1) rounded, clipped to 1..10 words: [size] int64."""
    n = np.rint(random.normal(SPAN_MEAN, SPAN_DEVIATION, size))
    return np.clip(n, 1, LONGEST_SPAN).astype(np.int64)


def spans(windows: Windows, random: np.random.Generator) -> Masking:
    """Draws n-grams of whole words until the budget is spent (Kong §5.2).

    Every round draws one span for each row that has budget left: its length
    once, its place uniformly among all where so many free words follow each
    other in one document; where they follow nowhere, the longest free run is
    taken, and counted. The last span is cut to the budget. No two overlap;
    two that touch stay two.
    """
    b, length = windows.ids.shape
    rows = np.arange(b)
    # Words by number: begin[w] is the token of word w, begin[W] = L.
    word = np.cumsum(windows.word_starts, axis=1) - 1  # [B, L]
    most = int(word[:, -1].max()) + 1  # W
    begin = np.full((b, most + LONGEST_SPAN + 1), length, np.int32)
    row, token = np.nonzero(windows.word_starts)
    begin[row, word[row, token]] = token
    # Words that cannot be taken: separators, and beyond the last one.
    taken = begin[:, : most + LONGEST_SPAN] == length
    row, token = np.nonzero(windows.separators)
    taken[row, word[row, token]] = True

    left = np.full(b, budget(length), np.int64)
    hidden = np.zeros((b, length), bool)
    all_starts, all_lengths = [], []
    shortened = np.zeros(b, np.int32)
    offsets = np.arange(LONGEST_SPAN)
    while left.any():
        n = span_lengths(b, random)
        u = random.random(b)
        # free[w]: how many words from w on are free, up to 10.
        free = np.zeros(taken.shape, np.int8)
        for _ in range(LONGEST_SPAN):
            free[:, :-1] = np.where(taken[:, :-1], 0, 1 + free[:, 1:])
        longest = free.max(axis=1)
        left[longest == 0] = 0  # a row of separators: nothing to hide
        active = left > 0
        shortened += active & (longest < n)
        n = np.minimum(n, longest)
        fits = (free >= n[:, None]) & (n[:, None] > 0)
        rank = np.cumsum(fits, axis=1)
        w = np.argmax(rank > (u * rank[:, -1])[:, None], axis=1)
        first = begin[rows, w]
        size = np.minimum(begin[rows, w + n] - first, left) * active
        covered = w[:, None] + offsets  # [B, 10]
        row, i = np.nonzero((offsets < n[:, None]) & active[:, None])
        taken[row, covered[row, i]] = True
        place = np.arange(length)
        hidden |= (place >= first[:, None]) & (place < (first + size)[:, None])
        left -= size
        all_starts.append(np.where(active, first, 0))
        all_lengths.append(size)
    # Every round takes a token at least, so there are no more than P.
    drawn = np.zeros((2, b, budget(length)), np.int32)
    for number, pair in enumerate(zip(all_starts, all_lengths, strict=True)):
        drawn[:, :, number] = pair
    return Masking(
        hidden,
        np.zeros((b, length), np.int32),
        np.zeros((b, length)),
        *drawn,
        shortened,
    )


def _first_by(order: np.ndarray, windows: Windows) -> np.ndarray:
    """[B, L] bool: the P tokens of lowest order in each row, no separators."""
    order = np.where(windows.separators, np.inf, order)
    p = budget(order.shape[1])
    chosen = np.argsort(order, axis=1, kind='stable')[:, :p]
    hidden = np.zeros(order.shape, bool)
    np.put_along_axis(hidden, chosen, True, axis=1)
    return hidden & ~windows.separators


def _eighty_ten_ten(
    hidden: np.ndarray, random: np.random.Generator
) -> Masking:
    """BERT's 80 % [MASK], 10 % a random piece, 10 % the piece itself.

    Drawn for each piece, with whole words too, as the original does.
    """
    u = random.random(hidden.shape)
    shown = (u >= 0.8).astype(np.int32) + (u >= 0.9)
    return Masking(hidden, shown, random.random(hidden.shape))


def words(windows: Windows, random: np.random.Generator) -> Masking:
    """Draws whole words in random order until the budget is spent.

    The last word is cut to the budget.
    """
    b, length = windows.ids.shape
    word = np.cumsum(windows.word_starts, axis=1) - 1
    order = np.take_along_axis(random.random((b, length)), word, axis=1)
    return _eighty_ten_ten(_first_by(order, windows), random)


def tokens(windows: Windows, random: np.random.Generator) -> Masking:
    """Draws single pieces until the budget is spent (Devlin et al. 2019)."""
    order = random.random(windows.ids.shape)
    return _eighty_ten_ten(_first_by(order, windows), random)


MASKINGS = {'spans': spans, 'words': words, 'tokens': tokens}


def cloze(documents: Documents, random: np.random.Generator) -> Cloze:
    """Draws a sentence of each document (inverse cloze task, Lee et al. 2019).

    The first one half the time, since that is what says what a text is about,
    else any of the others alike. One time in ten the document keeps it, so
    that matching words count too.
    """
    rows, tokens = np.nonzero(documents.sentence_starts)
    sentences = documents.sentence_starts.sum(axis=1)
    first, later, kept = random.random((3, len(sentences)))
    number = 1 + (later * (sentences - 1)).astype(np.int64)
    number = np.where(first < FIRST_SHARE, 0, number)
    usable = sentences > 1
    number = np.where(usable, number, 0)
    begin = np.cumsum(sentences) - sentences + number  # among all sentences
    following = np.minimum(begin + 1, len(tokens) - 1)
    last = number == sentences - 1
    ends = np.where(last, documents.lengths, tokens[following])
    return Cloze(
        tokens[begin].astype(np.int32),
        ends.astype(np.int32),
        kept < KEPT_SHARE,
        usable,
    )
