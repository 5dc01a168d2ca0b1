"""The view `permuted`: a stream, its targets and who sees whom (XLNet).

Glossary of shapes: B sequences, L = T - 3 tokens drawn, T tokens with
specials, H = T / 2 tokens of a half, P places, N halves.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting
from infoword_tf.views.streams import Streams
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

LONGEST_NGRAM = 5  # words, Yang et al. 2019, see `targets`
OTHER_SHARE = 0.5  # of rows whose B does not go on from A
ORDERS = ('partial', 'strict')  # see `visibility`


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
            f'k {k}: one in {k} of {tokens} tokens (--seq_len) leaves '
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
        of_each(streams.word_starts), functional, np.tile(goals, b), k, random
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

    A ends where a sentence ends, each place alike; where none does, before
    any word. B goes on there, or, half the time, is as much of another row
    that reads in the same direction (goes on too where there is no such row).
    That one begins with a sentence where it can (Yang et al. 2019, official
    code), else with a word.
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
    own = np.arange(b)
    partner = own.copy()
    for direction in (1, -1):
        (same,) = np.nonzero(streams.directions == direction)
        away = 1 + (jump[same] * (len(same) - 1)).astype(np.int64)
        partner[same] = same[(np.arange(len(same)) + away) % max(1, len(same))]
    partner = np.where(other < OTHER_SHARE, partner, own)
    begin = cut
    for starts in (words, sentences):
        known = np.where(starts, np.arange(max_tokens), -1)[partner]
        known[np.arange(max_tokens) > cut[:, None]] = -1
        last = known.max(axis=1)
        begin = np.where((partner == own) | (last < 0), begin, last)

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
    one begins its search after that context; one that reaches the end of the
    text is dropped (Yang et al. 2019, §2.3 and the official code, which counts
    n and the context in pieces: n by mistake).

    Args:
        word_starts: [N, H] bool. What comes before the first one is the end
            of a word, and stays.
        k: words of context for each word.
    """
    size, length = word_starts.shape
    word = np.cumsum(word_starts, axis=1) - 1
    most = -(-length // (k + 1))  # each takes K + 1 words, or more
    n = ngram_lengths((size, most), random)
    context = k * n
    left = (random.random((size, most)) * context).astype(np.int64)
    begin = np.cumsum(n + context, axis=1) - (n + context) + left
    row, number = np.nonzero(begin + n <= word[:, -1:])
    # Whether a word is in one: up where one begins, down after its end.
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
    and nothing else. Targets and separators come after, in their order;
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
    """
    if order == 'strict':
        last = order_of_text + order_of_text.shape[1] * chosen
        ranks = _ranked(last)
    elif order == 'partial':
        ranks = np.where(chosen | functional, order_of_text, -1)
    else:
        raise ValueError(f'order {order!r}: known are {", ".join(ORDERS)}')
    return ranks, ranks + ~chosen


def permuted(
    streams: Streams,
    draw: Permutation,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[reuse] A [SEP] B [SEP] [CLS] in a drawn order: a of `plm`.

    Nothing is masked: who sees whom hides the targets from their queries
    (Yang et al. 2019, §2.3).
    """
    if set(rows.values()) - {'queries'}:
        raise ValueError(f'rows of this view read the queries alone: {rows}')
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
    """How the source is read, for T tokens: without the three specials.

    Each step goes on by half a text, so a token comes twice: in A or B, and
    then as what came before, of which the memory is made. Half of the rows
    read backward.
    """
    halves(length, settings['k'])
    return {
        'length': length - 3,
        'advance': length // 2,
        'both_directions': True,
    }


def draw(settings: Mapping[str, Any]) -> Draw:
    """What stands where, what is predicted, and in which order."""
    given = {name: settings[name] for name in ('k', 'order')}
    return Draw('permutation', permutation, given)


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
