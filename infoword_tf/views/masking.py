"""What is masked of windows and of pairs, and what is shown instead.

A draw is a function of a source's global batch and of a generator that comes
from (seed, step, name of the draw) alone.

Glossary of shapes: B sequences, L tokens of each (without specials), W words,
P tokens of the budget.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MASKED_SHARE = 0.15  # of the tokens, Devlin et al. 2019, Kong et al. 2019 §5.2
SPAN_MEAN, SPAN_DEVIATION, LONGEST_SPAN = 5.0, 1.0, 10  # words, Kong §5.2


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

    @property
    def tokens(self) -> np.ndarray:
        """[B] int32: tokens of text in each row."""
        return (~self.separators).sum(axis=1).astype(np.int32)


class Pairs(NamedTuple):
    """A global batch of the sources `pairs` and `next_pairs`: A [SEP] B.

    Attributes:
        ids: [B, L] int32 pieces; 0 where there is no text.
        word_starts: [B, L] bool; both pieces begin with True.
        separators: [B, L] bool: between A and B, and after B.
        firsts, seconds: [B] int32, how many tokens A and B have.
        labels: [B] int32: 1 where B does not follow A (BERT's), else 0.
        negatives: pairs [B K, ...] of the same A, each with K other B, or None.
        slots: [R, J] bool: the pairs, in this order, share R rows of a view,
            each with room for J pairs, and these places hold one. None: each
            pair has a row of its own.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    separators: np.ndarray
    firsts: np.ndarray
    seconds: np.ndarray
    labels: np.ndarray
    negatives: 'Pairs | None' = None
    slots: np.ndarray | None = None

    @property
    def tokens(self) -> np.ndarray:
        """[B or R] int32: tokens of text in each row; its A once."""
        own = self.firsts + self.seconds
        if self.slots is not None:
            return self.by_slot(own).sum(axis=1, dtype=np.int32)
        if self.negatives is not None:
            others = self.negatives.seconds.reshape(len(own), -1)
            own = own + others.sum(axis=1)
        return own.astype(np.int32)

    def by_slot(self, values: np.ndarray) -> np.ndarray:
        """[B, ...] of each pair -> [R, J, ...], 0 where a slot is empty."""
        shape = self.slots.shape + values.shape[1:]
        found = np.zeros(shape, values.dtype)
        found[self.slots] = values
        return found


class Masking(NamedTuple):
    """Which tokens are masked, and what is shown instead.

    Attributes:
        masked: [B, L] bool, tokens to predict; P in each row, or all there
            are where a row holds fewer; of words fewer where none fits.
        shown: [B, L] int32 in {0, 1, 2}: [MASK], a random piece, the piece.
        random: [B, L] float64 in [0, 1): chooses the random piece.
        starts, lengths: [B, P] int32, the spans in the order of drawing,
            length 0 where a row has fewer; None for words and tokens.
        shortened: [B] int32, spans that found no room for their words.
        share: of the tokens, what P is made of.
        negatives: the same of the text's negatives, see `Pairs`.
    """

    masked: np.ndarray
    shown: np.ndarray
    random: np.ndarray
    starts: np.ndarray | None = None
    lengths: np.ndarray | None = None
    shortened: np.ndarray | None = None
    share: float = MASKED_SHARE
    negatives: 'Masking | None' = None


def budget(length: int, share: float = MASKED_SHARE) -> int:
    """P = ceil(0.15 L): tokens that are predicted in each sequence."""
    return math.ceil(share * length)


def packed_budget(
    tokens: int, slots: int, share: float = MASKED_SHARE
) -> int:
    """P of a row that pairs share, each with its own budget.

    A pair has three specials, and of its n tokens ceil(s n), which is less
    than s n + 1; and 0.15 n + 0.95 at most where s is 0.15.
    """
    text = tokens - 3 * slots
    above = 0.95 if share == MASKED_SHARE else 1.0
    return math.floor(share * text + above * slots + 1e-9)


def budgets(
    text: Windows | Pairs, share: float = MASKED_SHARE
) -> np.ndarray:
    """[B] int64: P of each row; a pair's own length is less than L."""
    if isinstance(text, Pairs):
        own = text.firsts + text.seconds
        return np.ceil(share * own).astype(np.int64)
    b, length = text.ids.shape
    return np.full(b, budget(length, share), np.int64)


def span_lengths(size: int, random: np.random.Generator) -> np.ndarray:
    """n ~ N(5, 1) rounded, clipped to 1..10 words: [size] int64."""
    n = np.rint(random.normal(SPAN_MEAN, SPAN_DEVIATION, size))
    return np.clip(n, 1, LONGEST_SPAN).astype(np.int64)


def spans(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
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

    left = budgets(windows, share)
    masked = np.zeros((b, length), bool)
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
        ordinal = np.cumsum(fits, axis=1)
        w = np.argmax(ordinal > (u * ordinal[:, -1])[:, None], axis=1)
        first = begin[rows, w]
        size = np.minimum(begin[rows, w + n] - first, left) * active
        covered = w[:, None] + offsets  # [B, 10]
        row, i = np.nonzero((offsets < n[:, None]) & active[:, None])
        taken[row, covered[row, i]] = True
        place = np.arange(length)
        masked |= (place >= first[:, None]) & (place < (first + size)[:, None])
        left -= size
        all_starts.append(np.where(active, first, 0))
        all_lengths.append(size)
    # Every round takes a token at least, so there are no more than P.
    drawn = np.zeros((2, b, budget(length, share)), np.int32)
    for number, pair in enumerate(zip(all_starts, all_lengths, strict=True)):
        drawn[:, :, number] = pair
    return Masking(
        masked,
        np.zeros((b, length), np.int32),
        np.zeros((b, length)),
        *drawn,
        shortened,
        share,
    )


def _first_by(
    order: np.ndarray, windows: Windows | Pairs, share: float
) -> np.ndarray:
    """[B, L] bool: the P tokens of lowest order in each row, no separators."""
    order = np.where(windows.separators, np.inf, order)
    p = budget(order.shape[1], share)
    chosen = np.argsort(order, axis=1, kind='stable')[:, :p]
    masked = np.zeros(order.shape, bool)
    within = np.arange(p) < budgets(windows, share)[:, None]
    np.put_along_axis(masked, chosen, within, axis=1)
    return masked & ~windows.separators


def _eighty_ten_ten(
    masked: np.ndarray, random: np.random.Generator, share: float
) -> Masking:
    """BERT's 80 % [MASK], 10 % random pieces, 10 % as they are."""
    # For each piece, with whole words too, as the original does.
    u = random.random(masked.shape)
    shown = (u >= 0.8).astype(np.int32) + (u >= 0.9)
    return Masking(masked, shown, random.random(masked.shape), share=share)


def words(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws whole words in random order until no other fits the budget.

    A word that does not fit is left out, and the next that does is taken, as
    in the official code (Devlin et al. 2019): no word is masked in part, and
    less than the shortest word that is left remains of the budget.
    """
    shape = windows.ids.shape
    word = np.cumsum(windows.word_starts, axis=1) - 1  # [B, L]
    order = np.argsort(random.random(shape), axis=1)  # of words
    sizes = np.zeros(shape, np.int64)
    np.add.at(sizes, (np.arange(shape[0])[:, None], word), ~windows.separators)
    taken = np.zeros(shape, bool)
    fitting = _that_fit(
        np.take_along_axis(sizes, order, axis=1), budgets(windows, share)
    )
    np.put_along_axis(taken, order, fitting, axis=1)
    masked = np.take_along_axis(taken, word, axis=1) & ~windows.separators
    return _eighty_ten_ten(masked, random, share)


def _that_fit(sizes: np.ndarray, max_tokens: np.ndarray) -> np.ndarray:
    """[B, W] bool: in order, each of sizes [B, W] that still fits room [B]."""
    taken = np.zeros(sizes.shape, bool)
    left = max_tokens[:, None]
    while True:
        fits = (sizes > 0) & (sizes <= left) & ~taken
        if not fits.any():
            return taken
        # All before the first of these for which there is no room: that one
        # will not fit any more, so the longest that fits gets shorter.
        taken |= fits & (np.cumsum(sizes * fits, axis=1) <= left)
        left = max_tokens[:, None] - (sizes * taken).sum(axis=1, keepdims=True)


def tokens(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws single pieces until the budget is spent (Devlin et al. 2019)."""
    order = random.random(windows.ids.shape)
    masked = _first_by(order, windows, share)
    return _eighty_ten_ten(masked, random, share)


MASKINGS = {'spans': spans, 'words': words, 'tokens': tokens}


@functools.cache
def masking(name: str) -> Callable[..., Masking]:
    """The draw of a name in MASKINGS, for a text and its negatives alike."""

    def draw(
        text: Windows | Pairs,
        random: np.random.Generator,
        share: float = MASKED_SHARE,
    ) -> Masking:
        drawn = MASKINGS[name](text, random, share)
        if isinstance(text, Pairs) and text.negatives is not None:
            others = MASKINGS[name](text.negatives, random, share)
            drawn = drawn._replace(negatives=others)
        return drawn

    return draw
