"""The randomness under the views, p(a, b): vectorised NumPy, pure, keyed.

A draw is a function of a source's global batch and of a generator that comes
from (seed, step, name of the draw) alone. It is made once a step and shared by
all views and rows that use it.

Glossary of shapes: B sequences, L tokens of each (without specials), T tokens
with them, W words, P tokens of the budget, H = T / 2 tokens of a half.
"""

import math
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MASKED_SHARE = 0.15  # of the tokens, Devlin et al. 2019, Kong et al. 2019 §5.2
SPAN_MEAN, SPAN_DEVIATION, LONGEST_SPAN = 5.0, 1.0, 10  # words, Kong §5.2
FIRST_SHARE, KEPT_SHARE = 0.5, 0.1  # of documents, see `cloze`
LONGEST_NGRAM = 5  # words, Yang et al. 2019, see `targets`
OTHER_SHARE = 0.5  # of rows whose B does not go on from A
ORDERS = ('partial', 'strict')  # see `visibility`


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


class Pairs(NamedTuple):
    """A global batch of the sources `pairs` and `next_pairs`: A [SEP] B.

    Attributes:
        ids: [B, L] int32 pieces; 0 where there is no text.
        word_starts: [B, L] bool; both pieces begin with True.
        separators: [B, L] bool: between A and B, and behind B.
        firsts, seconds: [B] int32, how many tokens A and B have.
        labels: [B] int32: 1 where B does not follow A (BERT's), else 0.
        rivals: pairs [B K, ...] of the same A, each with K other B, or None.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    separators: np.ndarray
    firsts: np.ndarray
    seconds: np.ndarray
    labels: np.ndarray
    rivals: 'Pairs | None' = None


class Streams(NamedTuple):
    """A global batch of the source `streams`, each row in reading order.

    Attributes:
        ids: [B, n] int32 pieces; a separator lies between documents. Rows
            begin and end anywhere, inside a word too.
        word_starts: [B, n] bool: the piece is the first that is read of its
            word; backward that is its last one.
        separators: [B, n] bool.
        directions: [B] int32, +1, or -1 for rows of the reversed text.
        following: [B] int32, the piece that is read next.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    separators: np.ndarray
    directions: np.ndarray
    following: np.ndarray


class Permutation(NamedTuple):
    """What stands where, what of it is predicted, and in which order.

    Attributes:
        away, columns: [B, T] int32: the source's token of each place: how
            many rows below its own it stands, and where in that row; L is
            [SEP], L + 1 is [CLS].
        segment_ids: [B, T] int32: 0 for what came before and A, 1 for B, 2
            for [CLS].
        places: [B, P] int32, what is predicted, in the order of the text.
        usable: [B, P] bool: not where a half has fewer words than asked for.
        ranks, sees: [B, T] int32: who sees whom, as in `views.View`.
    """

    away: np.ndarray
    columns: np.ndarray
    segment_ids: np.ndarray
    places: np.ndarray
    usable: np.ndarray
    ranks: np.ndarray
    sees: np.ndarray


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
        rivals: the same of the text's rivals, see `Pairs`.
    """

    hidden: np.ndarray
    shown: np.ndarray
    random: np.ndarray
    starts: np.ndarray | None = None
    lengths: np.ndarray | None = None
    shortened: np.ndarray | None = None
    rivals: 'Masking | None' = None


def generator(seed: int, step: int, name: str) -> np.random.Generator:
    """The random numbers of one draw of one step."""
    return np.random.default_rng([seed, step, zlib.crc32(name.encode())])


def budget(length: int) -> int:
    """P = ceil(0.15 L): tokens that are predicted in each sequence."""
    return math.ceil(MASKED_SHARE * length)


def budgets(text: Windows | Pairs) -> np.ndarray:
    """[B] int64: P of each row; a pair's own length is less than L."""
    if isinstance(text, Pairs):
        own = text.firsts + text.seconds
        return np.ceil(MASKED_SHARE * own).astype(np.int64)
    b, length = text.ids.shape
    return np.full(b, budget(length), np.int64)


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


def spans(
    windows: Windows | Pairs, random: np.random.Generator
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

    left = budgets(windows)
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


def _first_by(order: np.ndarray, windows: Windows | Pairs) -> np.ndarray:
    """[B, L] bool: the P tokens of lowest order in each row, no separators."""
    order = np.where(windows.separators, np.inf, order)
    p = budget(order.shape[1])
    chosen = np.argsort(order, axis=1, kind='stable')[:, :p]
    hidden = np.zeros(order.shape, bool)
    within = np.arange(p) < budgets(windows)[:, None]
    np.put_along_axis(hidden, chosen, within, axis=1)
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


def words(
    windows: Windows | Pairs, random: np.random.Generator
) -> Masking:
    """Draws whole words in random order until the budget is spent.

    The last word is cut to the budget.
    """
    b, length = windows.ids.shape
    word = np.cumsum(windows.word_starts, axis=1) - 1
    order = np.take_along_axis(random.random((b, length)), word, axis=1)
    return _eighty_ten_ten(_first_by(order, windows), random)


def tokens(
    windows: Windows | Pairs, random: np.random.Generator
) -> Masking:
    """Draws single pieces until the budget is spent (Devlin et al. 2019)."""
    order = random.random(windows.ids.shape)
    return _eighty_ten_ten(_first_by(order, windows), random)


MASKINGS = {'spans': spans, 'words': words, 'tokens': tokens}


def masking(name: str) -> Callable[..., Masking]:
    """The draw of a name in MASKINGS, for a text and for its rivals alike."""

    def draw(
        text: Windows | Pairs, random: np.random.Generator
    ) -> Masking:
        found = MASKINGS[name](text, random)
        if isinstance(text, Pairs) and text.rivals is not None:
            found = found._replace(rivals=MASKINGS[name](text.rivals, random))
        return found

    return draw


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


def halves(tokens: int, k: int) -> tuple[int, int]:
    """How many targets each half of T tokens has: floor(T / K) together.

    The first half is what the memory gets, the second A, B and three
    specials (Yang et al. 2019, §2.4 and §2.5; 43 and 42 of 512 tokens).

    Raises:
        ValueError: T has no two halves, or K leaves one of them no target.
    """
    if tokens % 2 or tokens < 10:
        raise ValueError(
            f'--seq_len={tokens}: a permuted text is two halves of the same '
            'length, the second with two texts and three specials in it; take '
            'an even number of 10 or more'
        )
    if not 2 <= k <= tokens // 2:
        raise ValueError(
            f'--k={k}: one in {k} of {tokens} tokens (--seq_len) leaves '
            f'{"no context" if k < 2 else "a half without a target"}; take 2 '
            f'to {tokens // 2}'
        )
    both = tokens // k
    return both - both // 2, both // 2


def permutation(
    streams: Streams,
    random: np.random.Generator,
    k: int = 6,
    order: str = 'partial',
) -> Permutation:
    """Draws what XLNet predicts of a stream, and in which order (§2.2 - §2.5).

    Of L = T - 3 tokens the first T / 2 are read again, as the memory will
    have them; the others are cut in two, A [SEP] B [SEP] [CLS]. Each half has
    its targets (`targets`) and an order of its own (`visibility`); the second
    sees all of the first, which sees nothing of the second.

    Args:
        streams: the text.
        random: the only source of chance.
        k: one in K tokens is predicted.
        order: 'partial' or 'strict', see `visibility`.

    Raises:
        ValueError: as `halves`; an order that is not known.
    """
    b, length = streams.ids.shape
    tokens = length + 3
    goals = halves(tokens, k)
    away, columns, segment_ids = _two_texts(streams, random)
    rows = np.arange(b)[:, None] + away

    def of_each(flags: np.ndarray) -> np.ndarray:
        """[B, L] of the source, True for specials -> [2 B, H]."""
        padded = np.pad(flags, ((0, 0), (0, 2)), constant_values=True)
        return padded[rows, columns].reshape(2 * b, tokens // 2)

    functional = of_each(streams.separators)
    chosen = targets(
        of_each(streams.word_starts),
        functional,
        np.tile(goals, b),
        k,
        random,
    )
    shuffled_places = np.argsort(random.random(chosen.shape), axis=1)
    ranks, sees = (
        # What the second half has is above all that the first half has.
        (x.reshape(b, 2, -1) + [[0], [tokens + 2]])
        .reshape(b, tokens)
        .astype(np.int32)
        for x in visibility(shuffled_places, chosen, functional, order)
    )
    # A half's targets, then padding: a stable sort of booleans.
    places = np.argsort(~chosen, axis=1, kind='stable')
    usable = np.take_along_axis(chosen, places, axis=1)
    first, second = goals
    return Permutation(
        away,
        columns,
        segment_ids,
        np.hstack(
            [places[::2, :first], places[1::2, :second] + tokens // 2]
        ).astype(np.int32),
        np.hstack([usable[::2, :first], usable[1::2, :second]]),
        ranks,
        sees,
    )


def _two_texts(
    streams: Streams, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[reuse] A [SEP] B [SEP] [CLS]: away, columns, segments, [B, T] int32.

    A ends before a word, each alike. B goes on there, or, half the time, is
    as much of another row that reads in the same direction (goes on too where
    there is no such row); that one begins with a word where there is one.
    """
    b, length = streams.ids.shape
    before = (length + 3) // 2
    room = length - before
    starts = streams.word_starts[:, before:]
    which, jump, other = random.random((3, b))
    count = np.cumsum(starts[:, 1:], axis=1)
    cut = 1 + np.argmax(count > (which * count[:, -1])[:, None], axis=1)
    own = np.arange(b)
    partner = own.copy()
    for direction in (1, -1):
        (same,) = np.nonzero(streams.directions == direction)
        away = 1 + (jump[same] * (len(same) - 1)).astype(np.int64)
        partner[same] = same[(np.arange(len(same)) + away) % max(1, len(same))]
    partner = np.where(other < OTHER_SHARE, partner, own)
    known = np.where(starts, np.arange(room), -1)[partner]
    known[np.arange(room) > cut[:, None]] = -1
    begin = known.max(axis=1)
    begin = np.where((partner == own) | (begin < 0), cut, begin)

    place = np.arange(room + 3)
    cut, begin = cut[:, None], begin[:, None]
    in_b = (place > cut) & (place <= room)
    column = before + place + np.where(in_b, begin - cut - 1, 0)
    column = np.where((place == cut) | (place == room + 1), length, column)
    column[:, -1] = length + 1
    segment = (place > cut).astype(np.int32)
    segment[:, -1] = 2
    first = np.zeros((b, before), np.int64)
    away = np.where(in_b, (partner - own)[:, None], 0)
    return tuple(
        np.hstack(parts).astype(np.int32)
        for parts in (
            (first, away),
            (first + np.arange(before), column),
            (first, segment),
        )
    )


def ngram_lengths(
    shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """n in 1..5 words with p ~ 1 / n: [...] int64 (Yang et al. 2019)."""
    p = 1.0 / np.arange(1, LONGEST_NGRAM + 1)
    return 1 + random.choice(LONGEST_NGRAM, shape, p=p / p.sum())


def ngrams(
    word_starts: np.ndarray, k: int, random: np.random.Generator
) -> np.ndarray:
    """Draws n-grams of whole words, about one word in K + 1.

    An n-gram lies anywhere within a context of K n other words, and the next
    one begins its search behind that context; one that reaches the end of the
    text is dropped (Yang et al. 2019, §2.3 and the official code, which counts
    n and the context in pieces: n by mistake).

    Args:
        word_starts: [N, H] bool. What comes before the first one is the end
            of a word, and stays.
        k: words of context for each word.
        random: the only source of chance.

    Returns:
        [N, H] bool.
    """
    size, length = word_starts.shape
    word = np.cumsum(word_starts, axis=1) - 1
    most = -(-length // (k + 1))  # each takes K + 1 words, or more
    n = ngram_lengths((size, most), random)
    context = k * n
    left = (random.random((size, most)) * context).astype(np.int64)
    begin = np.cumsum(n + context, axis=1) - (n + context) + left
    row, number = np.nonzero(begin + n <= word[:, -1:])
    # Whether a word is in one: up where one begins, down behind its end.
    steps = np.zeros((size, length + 1), np.int64)
    np.add.at(steps, (row, begin[row, number]), 1)
    np.add.at(steps, (row, (begin + n)[row, number]), -1)
    inside = np.cumsum(steps, axis=1) > 0
    chosen = np.take_along_axis(inside, np.maximum(word, 0), axis=1)
    return chosen & (word >= 0)


def targets(
    word_starts: np.ndarray,
    functional: np.ndarray,
    goals: np.ndarray,
    k: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Chooses which tokens are predicted: n-grams, then single tokens.

    n-grams are one word in K + 1; what lacks of one token in K is filled with
    single ones, as in the official code. The last n-gram is cut where there
    are too many.

    Args:
        word_starts: [N, H] bool.
        functional: [N, H] bool, tokens that are never predicted.
        goals: [N] int, how many are wanted of each; fewer where there are no
            more.
        k, random: as in `ngrams`.

    Returns:
        [N, H] bool.
    """
    chosen = ngrams(word_starts, k, random) & ~functional
    chosen &= np.cumsum(chosen, axis=1) <= goals[:, None]
    # The chosen first, then single tokens in any order, then the functional.
    sort = np.where(chosen, -1.0, random.random(chosen.shape))
    place = _ranked(np.where(functional, 2.0, sort))
    return (place < goals[:, None]) & ~functional


def _ranked(x: np.ndarray) -> np.ndarray:
    """The rank of each number in its row: [N, H] -> [N, H] int64."""
    order = np.argsort(x, axis=1, kind='stable')
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(x.shape[1])[None], axis=1)
    return ranks


def visibility(
    order_of_text: np.ndarray,
    chosen: np.ndarray,
    functional: np.ndarray,
    order: str = 'partial',
) -> tuple[np.ndarray, np.ndarray]:
    """Who sees whom in a factorisation order: i sees j if sees_i > ranks_j.

    'partial' is the official code's: what is neither predicted nor a
    separator is seen by all from the beginning, and sees all that is like it,
    and nothing else. Targets and separators come behind, in their order;
    separators see themselves, targets only what comes before them.

    'strict' is the paper's (Yang et al. 2019, §2.2): every token has a rank
    and sees what comes before it; the targets are the last of the order.

    Args:
        order_of_text: [N, H] int: the rank of each token, a permutation of
            0..H - 1 in each row.
        chosen: [N, H] bool, the targets.
        functional: [N, H] bool, separators; no targets.
        order: 'partial' or 'strict'.

    Returns:
        ranks, sees: [N, H] int64.

    Raises:
        ValueError: an order that is not known.
    """
    if order == 'strict':
        last = order_of_text + order_of_text.shape[1] * chosen
        ranks = _ranked(last)
    elif order == 'partial':
        ranks = np.where(chosen | functional, order_of_text, -1)
    else:
        raise ValueError(
            f'--order={order}: known are {", ".join(ORDERS)}'
        )
    return ranks, ranks + ~chosen
