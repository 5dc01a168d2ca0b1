"""The view `permuted` of XLNet: a stream, its targets, an order of prediction.

Glossary of shapes: C = T - 3 tokens of a stream, F = T / 2 tokens of a half,
P places, n halves.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.settings import Setting
from infoword_tf.views.streams import Streams
from infoword_tf.views.view import (
    Draw,
    Specials,
    View,
    ViewSpec,
    require_where,
)

LONGEST_NGRAM = 5  # words, Yang et al. 2019, see `targets`
OTHER_SHARE = 0.5  # of sequences whose B does not continue A
ORDERS = ('partial', 'strict')  # see `visibility`


class Permutation(NamedTuple):
    """The tokens and targets of each sequence, and the order of prediction.

    Attributes:
        away, columns: [B, T] int32, the stream's token at each index: the
            distance to its stream in the batch, and the index there; C is
            [SEP], C + 1 is [CLS].
        segment_ids: [B, T] int32: 0 for tokens read before and A, 1 for B, 2
            for [CLS].
        places: [B, P] int32, of the targets, in the order of the text.
        usable: [B, P] bool: False where a half has too few words.
        ranks, sees: [B, T] int32: see `views.View`.
    """

    away: np.ndarray
    columns: np.ndarray
    segment_ids: np.ndarray
    places: np.ndarray
    usable: np.ndarray
    ranks: np.ndarray
    sees: np.ndarray


def halves(tokens: int, k: int) -> tuple[int, int]:
    """Returns the targets of each half of T tokens, floor(T / k) together.

    The first half was read before, for the memory; the second is A, B and three
    specials (Yang et al. 2019, §2.4 and §2.5; 43 and 42 of 512 tokens).

    Raises:
        ValueError: T has no two halves, or k leaves a half without a target.
    """
    if tokens % 2 or tokens < 10:
        raise InputError(
            'no_two_halves',
            f'--seq_len={tokens}: a permuted text is two halves of the same '
            'length, the second with two texts and three specials in it; take '
            'an even number of 10 or more',
        )
    if not 2 <= k <= tokens // 2:
        raise InputError(
            'permuted_k_out_of_range',
            f'k {k}: one in {k} of {tokens} tokens (--seq_len) leaves '
            f'{"no context" if k < 2 else "a half without a target"}; take 2 '
            f'to {tokens // 2}',
        )
    both = tokens // k
    return both - both // 2, both // 2


def permutation(
    streams: Streams,
    random: np.random.Generator,
    k: int = 6,
    order: str = 'partial',
) -> Permutation:
    """Draws targets of a stream and an order of prediction (§2.2 - §2.5).

    Of C = T - 3 tokens the first T / 2 are read again, as the memory will hold
    them; the others become A [SEP] B [SEP] [CLS]. Each half has its own targets
    (`targets`) and order (`visibility`); the second sees all of the first,
    which sees nothing of the second.
    """
    b, length = streams.ids.shape
    tokens = length + 3
    goals = halves(tokens, k)
    away, columns, segment_ids = _two_texts(streams, random)
    sequences = np.arange(b)[:, None] + away

    def of_halves(flags: np.ndarray) -> np.ndarray:
        """Orders flags [B, C] by half, True for specials: [2 B, F]."""
        padded = np.pad(flags, ((0, 0), (0, 2)), constant_values=True)
        return padded[sequences, columns].reshape(2 * b, tokens // 2)

    functional = of_halves(streams.separators)
    chosen = targets(
        of_halves(streams.word_starts), functional, np.tile(goals, b),
        k=k, random=random,
    )  # fmt: skip
    shuffled_places = np.argsort(random.random(chosen.shape), axis=1)
    ranks, sees = (
        # Ranks of the second half are above all of the first.
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
        places=np.hstack(
            [places[::2, :first], places[1::2, :second] + tokens // 2]
        ).astype(np.int32),
        usable=np.hstack([usable[::2, :first], usable[1::2, :second]]),
        ranks=ranks,
        sees=sees,
    )


def _two_texts(
    streams: Streams, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws [reuse] A [SEP] B [SEP] [CLS].

    A ends at a random end of a sentence; where no sentence ends, before a
    random word. B continues A or, half the time, is equally long text of
    another stream in the same direction, if there is one. Such text begins with
    a sentence where possible (Yang et al. 2019, official code), else with a
    word.

    Returns:
        away, columns, segments: [B, T] int32.
    """
    b, length = streams.ids.shape
    before = (length + 3) // 2
    max_tokens = length - before
    words, sentences = (
        starts[:, before:]
        for starts in (streams.word_starts, streams.sentence_starts)
    )
    which, jump, other = random.random((3, b))
    ends = sentences[:, 1:].any(axis=1, keepdims=True)
    count = np.cumsum(np.where(ends, sentences, words)[:, 1:], axis=1)
    cut = 1 + np.argmax(count > (which * count[:, -1])[:, None], axis=1)
    itself = np.arange(b)
    partner = itself.copy()
    for direction in (1, -1):
        (same,) = np.nonzero(streams.directions == direction)
        away = 1 + (jump[same] * (len(same) - 1)).astype(np.int64)
        partner[same] = same[(np.arange(len(same)) + away) % max(1, len(same))]
    partner = np.where(other < OTHER_SHARE, partner, itself)
    begin = cut
    for starts in (words, sentences):
        known = np.where(starts, np.arange(max_tokens), -1)[partner]
        known[np.arange(max_tokens) > cut[:, None]] = -1
        last = known.max(axis=1)
        begin = np.where((partner == itself) | (last < 0), begin, last)

    place = np.arange(max_tokens + 3)
    cut, begin = cut[:, None], begin[:, None]
    in_b = (place > cut) & (place <= max_tokens)
    column = before + place + np.where(in_b, begin - cut - 1, 0)
    column = np.where(
        (place == cut) | (place == max_tokens + 1), length, column
    )
    column[:, -1] = length + 1
    segment = (place > cut).astype(np.int32)
    segment[:, -1] = 2
    first = np.zeros((b, before), np.int64)
    away = np.where(in_b, (partner - itself)[:, None], 0)
    distances, columns, segments = (
        np.hstack(halves).astype(np.int32)
        for halves in (
            (first, away),
            (first + np.arange(before), column),
            (first, segment),
        )
    )
    return distances, columns, segments


def ngram_lengths(
    shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Draws n in 1..5 words with p ~ 1 / n: int64 (Yang et al. 2019)."""
    p = 1.0 / np.arange(1, LONGEST_NGRAM + 1)
    return 1 + random.choice(LONGEST_NGRAM, shape, p=p / p.sum())


def ngrams(
    word_starts: np.ndarray, k: int, random: np.random.Generator
) -> np.ndarray:
    """Draws n-grams of whole words, about one word in k + 1: [n, F] bool.

    An n-gram lies anywhere within a context of k n other words, and the search
    for the next begins after that context. An n-gram that reaches the end of
    the text is dropped (Yang et al. 2019, §2.3 and the official code, which
    counts n and the context in tokens: n by mistake).

    Args:
        word_starts: [n, F] bool. Tokens before the first start are the rest of
            a word, and not drawn.
        k: words of context for each word.
    """
    size, length = word_starts.shape
    word = np.cumsum(word_starts, axis=1) - 1
    most = -(-length // (k + 1))  # each takes k + 1 words, or more
    n = ngram_lengths((size, most), random)
    context = k * n
    before = (random.random((size, most)) * context).astype(np.int64)
    begin = np.cumsum(n + context, axis=1) - (n + context) + before
    half, number = np.nonzero(begin + n <= word[:, -1:])
    # +1 at the first word of each n-gram and -1 after the last: their sum is
    # positive inside.
    steps = np.zeros((size, length + 1), np.int64)
    np.add.at(steps, (half, begin[half, number]), 1)
    np.add.at(steps, (half, (begin + n)[half, number]), -1)
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
    """Draws the targets [n, F] bool: n-grams, then single tokens.

    n-grams are one word in k + 1; single tokens fill up to one token in k, as
    in the official code. The last n-gram is truncated to the goal.

    Args:
        word_starts: [n, F] bool.
        functional: [n, F] bool, tokens that are never predicted.
        goals: [n] int, targets of each half; fewer where a half has no more.
    """
    chosen = ngrams(word_starts, k, random) & ~functional
    chosen &= np.cumsum(chosen, axis=1) <= goals[:, None]
    # n-grams first, then single tokens in random order, then functional ones.
    sort = np.where(chosen, -1.0, random.random(chosen.shape))
    place = _ranked(np.where(functional, 2.0, sort))
    return (place < goals[:, None]) & ~functional


def _ranked(x: np.ndarray) -> np.ndarray:
    """Ranks numbers along the last axis: [n, F] -> [n, F] int64."""
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
    """Computes attention in a factorisation order: i sees j if sees_i > rank_j.

    'partial' is the official code's: context tokens, neither targets nor
    separators, are seen by all tokens and see each other alone. Targets and
    separators follow in their order; separators see themselves, targets only
    tokens before them.

    'strict' is the paper's (Yang et al. 2019, §2.2): every token has a rank
    and sees tokens of lower rank; the targets are last in the order.

    Args:
        order_of_text: [n, F] int: the rank of each token, a permutation of
            0..F - 1 in each half.
        chosen: [n, F] bool, the targets.
        functional: [n, F] bool, separators; no targets.
        order: 'partial' or 'strict'.

    Returns:
        ranks, sees: [n, F] int64.
    """
    if order == 'strict':
        last = order_of_text + order_of_text.shape[1] * chosen
        ranks = _ranked(last)
    elif order == 'partial':
        ranks = np.where(chosen | functional, order_of_text, -1)
    else:
        raise InputError(
            'unknown_order', f'order {order!r}: known are {", ".join(ORDERS)}'
        )
    return ranks, ranks + ~chosen


def permuted(
    streams: Streams,
    draw: Permutation,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [reuse] A [SEP] B [SEP] [CLS] with a drawn order: a of `plm`.

    No token is replaced by [MASK]: `ranks` and `sees` hide the targets from
    their queries (Yang et al. 2019, §2.3).
    """
    require_where(rows, 'queries')
    b = len(streams.ids)
    closing = np.full((b, 2), specials.sep_id, np.int32)
    closing[:, 1] = specials.cls_id
    text = np.hstack([streams.ids, closing])
    ids = text[np.arange(b)[:, None] + draw.away, draw.columns]
    targets = np.take_along_axis(ids, draw.places, axis=1)
    return View(
        ids=ids.astype(np.int32),
        sequences=np.arange(b, dtype=np.int32),
        segment_ids=draw.segment_ids,
        ranks=draw.ranks,
        sees=draw.sees,
        directions=streams.directions,
        places=dict.fromkeys(rows, draw.places),
        targets=dict.fromkeys(rows, targets.astype(np.int32)),
        weights=dict.fromkeys(rows, draw.usable.astype(np.float32)),
    )


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for T - 3 tokens of streams, half of which run backward.

    Each step advances by half a text, so a token is read twice: in A or B, and
    then again for the memory.
    """
    halves(length, settings['k'])
    return {
        'length': length - 3,
        'advance': length // 2,
        'both_directions': True,
    }


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of texts, targets and order."""
    chosen = {name: settings[name] for name in ('k', 'order')}
    return Draw('permutation', permutation, chosen)


PERMUTED = ViewSpec(
    make=permuted,
    source='streams',
    draw=draw,
    source_args=source_args,
    settings={
        'k': Setting(6, 'Predict one in K tokens.', at_least=2),
        'order': Setting(
            'partial',
            'Tokens that are not predicted attend to each other (partial, the '
            'official code), or only to those earlier in the order (strict, '
            'the paper).',
            choices=ORDERS,
        ),
    },
)
