"""The views `masked` and `joined`: a text whose masked tokens are replaced.

`masked` shows one [MASK] for each token, and with it how long an n-gram is;
`joined` shows one [MASK] for each n-gram.

**Maskings** of windows and pairs are draws: functions of a source's global
batch and of a generator that comes from (seed, step, name of the draw) alone.

**Packing** puts several texts into one sequence, each a block: `packed` as many
pairs as fit, `folded` two texts, of a fixed number a batch.

Glossary of shapes: C tokens of a sequence without specials, W words, P masked
tokens, or places, S sequences that texts share, J texts of each, n texts.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.views.view import (
    Draw,
    Specials,
    View,
    ViewSpec,
    require_where,
)

MASKED_SHARE = 0.15  # of the tokens, Devlin et al. 2019, Kong et al. 2019 §5.2
SPAN_MEAN, SPAN_DEVIATION, LONGEST_SPAN = 5.0, 1.0, 10  # words, Kong §5.2
# `Reads.where` that pairs which share a sequence can answer.
BY_PAIR = frozenset({'tokens', 'next'})


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
        assert self.slots is not None, 'these pairs share no sequences'
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
        share: share of the tokens, from which P comes.
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


def mask_spans(
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
        shown=np.zeros((b, length), np.int32),
        random=np.zeros((b, length)),
        starts=bounds[0],
        lengths=bounds[1],
        shortened=shortened,
        share=share,
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


def mask_words(
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


def mask_tokens(
    windows: Windows | Pairs,
    random: np.random.Generator,
    share: float = MASKED_SHARE,
) -> Masking:
    """Draws single tokens until the budget is spent (Devlin et al. 2019)."""
    order = random.random(windows.ids.shape)
    masked = _first_by(order, windows, share)
    return _eighty_ten_ten(masked, random, share)


MASKINGS = {'spans': mask_spans, 'words': mask_words, 'tokens': mask_tokens}


@functools.cache
def masking_of(name: str) -> Callable[..., Masking]:
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


def packed(view: View, pairs: Pairs, share: float = MASKED_SHARE) -> View:
    """Packs a view of pairs [n, T] into sequences [S, T].

    Each pair is a block: positions restart and attention stays inside. Block J
    is padding. Places, targets and weights of a sequence are those of its
    pairs, in order. `share` is that of masked tokens.
    """
    if alone := set(view.places) - set(view.weights):
        raise InputError(
            'pairs_without_start',
            f'{", ".join(sorted(alone))}: rows that pairs share have no one '
            'start',
        )
    assert pairs.slots is not None, 'these pairs share no sequences'
    tokens = view.ids.shape[1]
    sequences, slots = pairs.slots.shape
    sizes = pairs.by_slot(pairs.firsts + pairs.seconds + 3)  # with specials
    begins = np.cumsum(sizes, axis=1) - sizes
    pair = pairs.by_slot(np.arange(len(pairs.ids)))
    pair, column, slot = side_by_side(pair, sizes, tokens)
    is_padding = slot == slots

    # Places with a weight first, at most `max_tokens` of a sequence.
    max_tokens = packed_budget(tokens, slots, share)
    order = {
        row: np.argsort(
            _of_sequence(pairs, weights) == 0, axis=1, kind='stable'
        )[:, :max_tokens]
        for row, weights in view.weights.items()
    }

    def gathered(field: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            row: np.take_along_axis(_of_sequence(pairs, x), order[row], axis=1)
            for row, x in field.items()
        }

    begin = begins[pairs.slots].astype(np.int32)[:, None]
    counts = {
        name: pairs.by_slot(x).sum(axis=1, dtype=np.int32)
        for name, x in view.counts.items()
    }
    return View(
        ids=view.ids[pair, column],
        sequences=np.arange(sequences, dtype=np.int32),
        positions=np.where(is_padding, 0, column).astype(np.int32),
        segment_ids=np.where(is_padding, 0, view.segment_ids[pair, column]),
        block_ids=slot.astype(np.int32),
        places=gathered({row: x + begin for row, x in view.places.items()}),
        targets=gathered(view.targets),
        weights=gathered(view.weights),
        measured=gathered(view.measured),
        counts=counts | {'padding': is_padding.sum(axis=1, dtype=np.int32)},
    )


def side_by_side(
    texts: np.ndarray, sizes: np.ndarray, tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes text, offset and slot of every token of packed sequences.

    Args:
        texts: [S, J], numbers of the texts of each sequence.
        sizes: [S, J], tokens of each text; 0 in an empty slot.
        tokens: T.

    Returns:
        [S, T] each: number of the text, index in the text, and slot. Padding
        has slot J and index T - 1 of the last text, a separator.
    """
    ends = np.cumsum(sizes, axis=1)
    place = np.arange(tokens)
    slot = (place[:, None] >= ends[:, None]).sum(axis=2)
    at = np.minimum(slot, sizes.shape[1] - 1)
    column = place - np.take_along_axis(ends - sizes, at, axis=1)
    column[slot == sizes.shape[1]] = tokens - 1
    return np.take_along_axis(texts, at, axis=1), column, slot


def folded(sizes: np.ndarray, count: int) -> np.ndarray:
    """Pairs texts that share a sequence: the longest with the shortest.

    No other choice has a lower largest sum, so all fit if any choice fits.

    Returns:
        Of sizes [..., n] and S, numbers of texts [..., S, 2], the longer one
        first; -1 for none.
    """
    order = np.argsort(-sizes, axis=-1, kind='stable')
    empty = np.full((*order.shape[:-1], 2 * count - order.shape[-1]), -1)
    order = np.concatenate([order, empty], axis=-1)
    return np.stack([order[..., :count], order[..., :count-1:-1]], axis=-1)


def fewest_sequences(sizes: np.ndarray, max_tokens: int) -> int:
    """Returns the least S, at most n, with which sizes [..., n] fit into T."""
    n = sizes.shape[1]
    padded = np.pad(sizes, ((0, 0), (0, 1)))  # -1 is a text without tokens
    for count in range(-(-n // 2), n):
        slots = folded(sizes, count).reshape(len(sizes), -1)
        sums = np.take_along_axis(padded, slots % (n + 1), axis=1)
        if sums.reshape(len(sizes), count, 2).sum(axis=2).max() <= max_tokens:
            return count
    return n


def _of_sequence(pairs: Pairs, values: np.ndarray) -> np.ndarray:
    """Joins values of pairs [n, P] by sequence: [S, J P], 0 in empty slots."""
    values = pairs.by_slot(values)
    return values.reshape(len(values), -1)


def masked(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] x^ [SEP]: a text whose masked tokens are replaced.

    a of `mlm` and `bert_nce`, at the masked tokens in the order of the text,
    and of `dim`, at [CLS]. Of pairs it is [CLS] A [SEP] B [SEP] and padding,
    both views of `nsp`; where pairs share sequences, see `packed`.
    """
    b, length = text.ids.shape
    p = budget(length, draw.share)
    # Masked tokens first, in order: a stable sort of booleans.
    at = np.argsort(~draw.masked, axis=1, kind='stable')[:, :p]
    start = np.zeros((b, 1), np.int32)
    tokens = (
        (at + 1).astype(np.int32),
        np.take_along_axis(text.ids, at, axis=1).astype(np.int32),
        np.take_along_axis(draw.masked, at, axis=1).astype(np.float32),
    )
    hidden = np.take_along_axis(draw.shown == 0, at, axis=1)
    # Places, targets and weights, by `Reads.where`.
    fields: dict[str, tuple[np.ndarray | None, ...]] = {
        'tokens': tokens,
        'start': (start, None, None),
    }
    if isinstance(text, Pairs):
        labels = text.labels[:, None].astype(np.int32)
        fields['next'] = start, labels, np.ones((b, 1), np.float32)
    elif 'next' in rows.values():
        raise InputError(
            'windows_without_pairs', f'windows are no pairs of text: {rows}'
        )
    inputs = hide(text, draw, specials)
    counts = {}
    if isinstance(text, Pairs):
        counts['padding'] = padding_of(inputs)
    if draw.shortened is not None:
        counts['shortened_spans'] = draw.shortened
    places, targets, weights = (
        {
            row: fields[where][i]
            for row, where in rows.items()
            if fields[where][i] is not None
        }
        for i in range(3)
    )
    view = View(
        **inputs,
        sequences=np.arange(b, dtype=np.int32),
        places=places,
        targets=targets,
        weights=weights,
        measured={
            row: hidden.astype(np.float32)
            for row, where in rows.items()
            if where == 'tokens'
        },
        counts=counts,
    )
    if isinstance(text, Pairs) and text.slots is not None:
        return packed(view, text, draw.share)
    return view


def joined(
    text: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] x^ [SEP] with one [MASK] for each n-gram, and padding.

    This a of `dim` does not show how long b is.
    """
    if draw.starts is None or draw.lengths is None:
        raise InputError(
            'joined_without_spans',
            'n-grams are joined in spans: take the masking spans',
        )
    require_where(rows, 'start')
    inputs = hide(text, draw, specials)
    b, length = text.ids.shape
    stays = np.ones((b, length + 2), bool)
    stays[:, 1:-1] = ~draw.masked
    sequence, number = np.nonzero(draw.lengths)
    stays[sequence, draw.starts[sequence, number] + 1] = True
    # Tokens that stay come first, in order; the rest is padding.
    order = np.argsort(~stays, axis=1, kind='stable')
    padding = ~np.take_along_axis(stays, order, axis=1)
    fields: dict[str, Any] = {
        name: np.take_along_axis(array, order, axis=1)
        for name, array in inputs.items()
    }
    blocks = fields.get('block_ids', np.zeros((b, length + 2), np.int32))
    fields['ids'] = np.where(padding, specials.sep_id, fields['ids'])
    fields['block_ids'] = np.where(padding, np.int32(1), blocks)
    return View(
        **fields,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, np.zeros((b, 1), np.int32)),
        counts={'padding': padding_of(fields)},
    )


def hide(
    text: Windows | Pairs, draw: Masking, specials: Specials
) -> dict[str, Any]:
    """Returns the inputs [B, T] of a masked text, by field of `View`."""
    b, length = text.ids.shape
    random = (draw.random * specials.size).astype(np.int32)
    replaced = np.where(
        draw.shown == 0,
        specials.mask_id,
        np.where(draw.shown == 1, random, text.ids),
    )
    ids = np.full((b, length + 2), specials.sep_id, np.int32)
    ids[:, 0] = specials.cls_id
    ids[:, 1:-1] = np.where(draw.masked, replaced, text.ids)
    if not isinstance(text, Pairs):
        return {'ids': ids}
    ids[:, 1:-1][text.separators] = specials.sep_id
    place = np.arange(length + 2)
    first = text.firsts[:, None] + 1  # the [SEP] between A and B
    last = first + text.seconds[:, None] + 1
    return {
        'ids': ids,
        'segment_ids': ((place > first) & (place <= last)).astype(np.int32),
        'block_ids': (place > last).astype(np.int32),
    }


def padding_of(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Counts the tokens of each sequence outside the first block: [B] int32."""
    outside = inputs['block_ids'] > 0
    return outside.reshape(len(outside), -1).sum(axis=1).astype(np.int32)


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of a masking by name, for windows and pairs."""
    name = settings['masking']
    return Draw(name, masking_of(name), {'share': settings['mask_share']})


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for T - 2 tokens between [CLS] and [SEP].

    Pairs share sequences where all rows can read them pair by pair.
    """
    arguments: dict[str, Any] = {'length': length - 2}
    if settings['source'] == 'pairs' and settings['where'] <= BY_PAIR:
        arguments['packed'] = True
    return arguments


MASKED = ViewSpec(
    make=masked, source='windows', draw=draw, source_args=source_args
)
JOINED = ViewSpec(make=joined, like='masked')
