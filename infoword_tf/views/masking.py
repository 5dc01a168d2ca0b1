"""Maskings of windows and pairs: the masked tokens and their replacements.

A draw is a function of a source's global batch and of a generator that comes
from (seed, step, name of the draw) alone.

Glossary of shapes: C tokens of a sequence without specials, W words, P tokens
of the budget, S sequences that pairs share, J pairs of each.
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
        ids: [B, C] int32 tokens, with a separator between documents.
        word_starts: [B, C] bool, True for the first token of a sequence.
        separators: [B, C] bool.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    separators: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of text in each sequence: [B] int32."""
        return (~self.separators).sum(axis=1).astype(np.int32)


class Pairs(NamedTuple):
    """A global batch of the sources `pairs` and `next_pairs`: A [SEP] B.

    Attributes:
        ids: [B, C] int32 tokens; 0 for separators.
        word_starts: [B, C] bool, True for the first tokens of A and B.
        separators: [B, C] bool: between A and B, and after B.
        firsts, seconds: [B] int32, tokens of A and B.
        labels: [B] int32: 1 where B does not follow A (BERT's), else 0.
        negatives: pairs [B k, ...], each A with k other B, or None.
        slots: [S, J] bool, the slots of S sequences that the pairs fill, in
            order. None: one pair a sequence.
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
        """Tokens of text in each sequence, A once: [B or S] int32."""
        counts = self.firsts + self.seconds
        if self.slots is not None:
            return self.by_slot(counts).sum(axis=1, dtype=np.int32)
        if self.negatives is not None:
            others = self.negatives.seconds.reshape(len(counts), -1)
            counts = counts + others.sum(axis=1)
        return counts.astype(np.int32)

    def by_slot(self, values: np.ndarray) -> np.ndarray:
        """Moves values of pairs [B, ...] to slots [S, J, ...]; 0 in others."""
        shape = self.slots.shape + values.shape[1:]
        result = np.zeros(shape, values.dtype)
        result[self.slots] = values
        return result


class Masking(NamedTuple):
    """The masked tokens of a batch, and the replacements.

    Attributes:
        masked: [B, C] bool, tokens to predict: P in each sequence, or all of a
            shorter one; of whole words fewer where none fits.
        shown: [B, C] int32: 0 for [MASK], 1 for a random token, 2 for the
            token itself.
        random: [B, C] float64 in [0, 1), from which the random token comes.
        starts, lengths: [B, P] int32, the spans in the order of drawing,
            length 0 beyond the last; None for words and tokens.
        shortened: [B] int32, spans with fewer words than drawn, for lack of
            room.
        share: of the tokens, from which P comes.
        negatives: the masking of the text's negatives, see `Pairs`.
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
    """Returns P = ceil(0.15 C), the tokens to predict in each sequence."""
    return math.ceil(share * length)


def packed_budget(
    tokens: int, slots: int, share: float = MASKED_SHARE
) -> int:
    """Returns the largest P of a sequence that pairs share.

    A pair has three specials, and of its n tokens ceil(s n), which is less
    than s n + 1, and at most 0.15 n + 0.95 where s is 0.15.
    """
    text = tokens - 3 * slots
    above = 0.95 if share == MASKED_SHARE else 1.0
    return math.floor(share * text + above * slots + 1e-9)


def budgets(
    text: Windows | Pairs, share: float = MASKED_SHARE
) -> np.ndarray:
    """Returns P of each sequence, of pairs by length: [B] int64."""
    if isinstance(text, Pairs):
        lengths = text.firsts + text.seconds
        return np.ceil(share * lengths).astype(np.int64)
    b, length = text.ids.shape
    return np.full(b, budget(length, share), np.int64)


def span_lengths(size: int, random: np.random.Generator) -> np.ndarray:
    """Draws n ~ N(5, 1) rounded, clipped to 1..10 words: [size] int64."""
    n = np.rint(random.normal(SPAN_MEAN, SPAN_DEVIATION, size))
    return np.clip(n, 1, LONGEST_SPAN).astype(np.int64)


def spans(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws n-grams of whole words until the budget is spent (Kong §5.2).

    Every round draws one span for each sequence with budget left: its length
    once, its start uniformly among all starts of so many consecutive free words
    of one document. Where there is none, the longest free run is taken, and
    counted. The last span is truncated to the budget. No two overlap; adjacent
    spans stay two.
    """
    b, length = windows.ids.shape
    sequences = np.arange(b)
    # Words by number: begin[w] is the token of word w, begin[W] = L.
    word = np.cumsum(windows.word_starts, axis=1) - 1  # [B, L]
    most = int(word[:, -1].max()) + 1  # W
    begin = np.full((b, most + LONGEST_SPAN + 1), length, np.int32)
    sequence, token = np.nonzero(windows.word_starts)
    begin[sequence, word[sequence, token]] = token
    # Words that cannot be masked: separators, those beyond the last word, and
    # later those of spans.
    blocked = begin[:, : most + LONGEST_SPAN] == length
    sequence, token = np.nonzero(windows.separators)
    blocked[sequence, word[sequence, token]] = True

    budget_left = budgets(windows, share)
    masked = np.zeros((b, length), bool)
    all_starts, all_lengths = [], []
    shortened = np.zeros(b, np.int32)
    offsets = np.arange(LONGEST_SPAN)
    while budget_left.any():
        n = span_lengths(b, random)
        u = random.random(b)
        # free[w]: how many words from w on are free, up to 10.
        free = np.zeros(blocked.shape, np.int8)
        for _ in range(LONGEST_SPAN):
            free[:, :-1] = np.where(blocked[:, :-1], 0, 1 + free[:, 1:])
        longest = free.max(axis=1)
        budget_left[longest == 0] = 0  # separators alone: nothing to mask
        active = budget_left > 0
        shortened += active & (longest < n)
        n = np.minimum(n, longest)
        fits = (free >= n[:, None]) & (n[:, None] > 0)
        ordinal = np.cumsum(fits, axis=1)
        w = np.argmax(ordinal > (u * ordinal[:, -1])[:, None], axis=1)
        first = begin[sequences, w]
        size = begin[sequences, w + n] - first
        size = np.minimum(size, budget_left) * active
        covered = w[:, None] + offsets  # [B, 10]
        sequence, i = np.nonzero((offsets < n[:, None]) & active[:, None])
        blocked[sequence, covered[sequence, i]] = True
        place = np.arange(length)
        masked |= (place >= first[:, None]) & (place < (first + size)[:, None])
        budget_left -= size
        all_starts.append(np.where(active, first, 0))
        all_lengths.append(size)
    # Every round masks at least one token, so there are at most P spans.
    bounds = np.zeros((2, b, budget(length, share)), np.int32)
    for number, pair in enumerate(zip(all_starts, all_lengths, strict=True)):
        bounds[:, :, number] = pair
    return Masking(
        masked,
        np.zeros((b, length), np.int32),
        np.zeros((b, length)),
        *bounds,
        shortened,
        share,
    )


def _first_by(
    order: np.ndarray, windows: Windows | Pairs, share: float
) -> np.ndarray:
    """Masks the P tokens of lowest order, without separators: [B, C] bool."""
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
    """Draws replacements: 80 % [MASK], 10 % random tokens, 10 % unchanged."""
    # For each token, with whole words too, like the official code.
    u = random.random(masked.shape)
    shown = (u >= 0.8).astype(np.int32) + (u >= 0.9)
    return Masking(masked, shown, random.random(masked.shape), share=share)


def words(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws whole words in random order until no other fits the budget.

    Words that do not fit are passed over for the next that does, as in the
    official code (Devlin et al. 2019): no word is masked in part, and the
    budget left at the end is less than the shortest unmasked word.
    """
    shape = windows.ids.shape
    word = np.cumsum(windows.word_starts, axis=1) - 1  # [B, L]
    order = np.argsort(random.random(shape), axis=1)  # of words
    sizes = np.zeros(shape, np.int64)
    np.add.at(sizes, (np.arange(shape[0])[:, None], word), ~windows.separators)
    words_masked = np.zeros(shape, bool)
    fitting = _that_fit(
        np.take_along_axis(sizes, order, axis=1), budgets(windows, share)
    )
    np.put_along_axis(words_masked, order, fitting, axis=1)
    masked = np.take_along_axis(words_masked, word, axis=1)
    return _eighty_ten_ten(masked & ~windows.separators, random, share)


def _that_fit(sizes: np.ndarray, max_tokens: np.ndarray) -> np.ndarray:
    """Selects sizes [B, W], in order, that fit into max_tokens [B]: bool."""
    selected = np.zeros(sizes.shape, bool)
    room = max_tokens[:, None]
    while True:
        fits = (sizes > 0) & (sizes <= room) & ~selected
        if not fits.any():
            return selected
        # All before the first of these without room: that one will not fit any
        # more, so the largest size that fits decreases.
        selected |= fits & (np.cumsum(sizes * fits, axis=1) <= room)
        used = (sizes * selected).sum(axis=1, keepdims=True)
        room = max_tokens[:, None] - used


def tokens(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws single tokens until the budget is spent (Devlin et al. 2019)."""
    order = random.random(windows.ids.shape)
    masked = _first_by(order, windows, share)
    return _eighty_ten_ten(masked, random, share)


MASKINGS = {'spans': spans, 'words': words, 'tokens': tokens}


@functools.cache
def masking(name: str) -> Callable[..., Masking]:
    """Returns the draw of a name in MASKINGS, for a text and any negatives."""

    def draw(
        text: Windows | Pairs,
        random: np.random.Generator,
        share: float = MASKED_SHARE,
    ) -> Masking:
        result = MASKINGS[name](text, random, share)
        if isinstance(text, Pairs) and text.negatives is not None:
            others = MASKINGS[name](text.negatives, random, share)
            result = result._replace(negatives=others)
        return result

    return draw
