"""Views: what a and b of a row look like as token ids.

A view is a function in VIEWS: NumPy over the whole global batch, static
shapes, pure in the tokens and the draw (see `sampling.py`).

Every row says what it wants of a view: 'words', the states of the hidden words
and what they were; 'queries', the states of the query stream there, which know
the place and not the word; 'start', the state of [CLS]; 'next', that and
whether the second piece of text follows the first; or 'text', all states.

Glossary of shapes: B sequences, L tokens drawn, T tokens with specials,
P hidden words, S n-grams of a sequence, K rivals of a pair.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import sampling


class View(NamedTuple):
    """One view of the global batch, as an encoder takes it.

    A view of several texts to a sequence has [B, K, T] where [B, T] is said
    and [B, K, P] places; the encoder sees them as B K sequences.

    Attributes:
        ids: [B, T] int32.
        sequences: [B] int32: the number of the text each row is made from;
            candidates of the same text are no negatives.
        positions, segment_ids, block_ids: [B, T] int32, or None for counting
            from 0, for 0 everywhere, for one block.
        ranks, sees: [B, T] int32: token i may look at token j where
            sees[i] > ranks[j], or i is j; a query at i where
            sees[i] > ranks[j] alone. None: everywhere.
        directions: [B] int32: 1, or -1 for texts that are read backward, in
            which left is right. None: 1 everywhere.
        places: by row, [B, P] int32: where its states are; not for a row that
            wants all.
        targets: by row, [B, P] int32: what is there in truth; equal numbers
            mean the same b. Not for a row that finds only its a here.
        weights: by row, [B, P] float32: 0 where a place is padding; of the
            same rows as `targets`.
        hidden: by row, [B, P] float32: 0 where a shows b, or b is a
            separator, which then counts in the loss alone; not for a row
            whose b is always hidden.
        counts: by name, [B] int32: what is worth counting in the metrics.
    """

    ids: Any
    sequences: Any
    positions: Any = None
    segment_ids: Any = None
    block_ids: Any = None
    ranks: Any = None
    sees: Any = None
    directions: Any = None
    places: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    hidden: dict[str, Any] = {}
    counts: dict[str, Any] = {}


class Specials(NamedTuple):
    """What views need to know of the vocabulary."""

    cls_id: int
    sep_id: int
    mask_id: int
    size: int


def masked(
    text: sampling.Windows | sampling.Pairs,
    draw: sampling.Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] x^ [SEP]: the text with its hidden tokens replaced.

    a of `mlm` and `bert_nce`, at the hidden words in the order of the text,
    and of `dim`, at [CLS]. Of pairs it is [CLS] A [SEP] B [SEP] and padding,
    both views of `nsp`.

    Raises:
        ValueError: a row wants to know of windows what follows.
    """
    b, length = text.ids.shape
    p = sampling.budget(length)
    # Hidden tokens first, in order: a stable sort of booleans.
    places = np.argsort(~draw.hidden, axis=1, kind='stable')[:, :p]
    start = np.zeros((b, 1), np.int32)
    words = (
        (places + 1).astype(np.int32),
        np.take_along_axis(text.ids, places, axis=1).astype(np.int32),
        np.take_along_axis(draw.hidden, places, axis=1).astype(np.float32),
    )
    wanted = {'words': words, 'start': (start, None, None)}
    if isinstance(text, sampling.Pairs):
        follows = text.labels[:, None].astype(np.int32)
        wanted['next'] = start, follows, np.ones((b, 1), np.float32)
    elif 'next' in rows.values():
        raise ValueError(f'windows are no pairs of text: {rows}')
    counts = {}
    if draw.shortened is not None:
        counts['shortened_spans'] = draw.shortened
    places, targets, weights = (
        {
            row: wanted[what][i]
            for row, what in rows.items()
            if wanted[what][i] is not None
        }
        for i in range(3)
    )
    return View(
        **_hide(text, draw, specials),
        sequences=np.arange(b, dtype=np.int32),
        places=places,
        targets=targets,
        weights=weights,
        counts=counts,
    )


def _hide(
    text: sampling.Windows | sampling.Pairs,
    draw: sampling.Masking,
    specials: Specials,
) -> dict[str, np.ndarray]:
    """What an encoder sees of a masked text, by field of `View`: [B, T]."""
    b, length = text.ids.shape
    random = (draw.random * specials.size).astype(np.int32)
    shown = np.where(
        draw.shown == 0,
        specials.mask_id,
        np.where(draw.shown == 1, random, text.ids),
    )
    ids = np.full((b, length + 2), specials.sep_id, np.int32)
    ids[:, 0] = specials.cls_id
    ids[:, 1:-1] = np.where(draw.hidden, shown, text.ids)
    if not isinstance(text, sampling.Pairs):
        return {'ids': ids}
    ids[:, 1:-1][text.separators] = specials.sep_id
    place = np.arange(length + 2)
    first = text.firsts[:, None] + 1  # the [SEP] between them
    last = first + text.seconds[:, None] + 1
    return {
        'ids': ids,
        'segment_ids': ((place > first) & (place <= last)).astype(np.int32),
        'block_ids': (place > last).astype(np.int32),
    }


def rivals(
    pairs: sampling.Pairs,
    draw: sampling.Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] A [SEP] another B [SEP], K times, masked as the true pair is.

    Candidates of `nsp_nce`, at each [CLS]; the true one is `masked`. The
    targets [B, 1 + K] number the second pieces of text, the true one first;
    the weights are of the pairs, [B, 1].

    Raises:
        ValueError: a row wants something else than the start.
    """
    if set(rows.values()) - {'start'}:
        raise ValueError(f'of rivals there is the start alone: {rows}')
    b = len(pairs.ids)
    hidden = _hide(pairs.rivals, draw.rivals, specials)
    hidden = {
        field: array.reshape(b, -1, array.shape[-1])
        for field, array in hidden.items()
    }
    k = hidden['ids'].shape[1]
    seconds = np.concatenate([_seconds(pairs), _seconds(pairs.rivals)])
    number = _numbered(seconds)
    number = np.hstack([number[:b, None], number[b:].reshape(b, k)])
    return View(
        **hidden,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, np.zeros((b, k, 1), np.int32)),
        targets=dict.fromkeys(rows, number),
        weights=dict.fromkeys(rows, np.ones((b, 1), np.float32)),
    )


def _seconds(pairs: sampling.Pairs) -> np.ndarray:
    """[B, L] int32: B alone, -1 around it."""
    place = np.arange(pairs.ids.shape[1])
    source = np.minimum(place + pairs.firsts[:, None] + 1, place[-1])
    ids = np.take_along_axis(pairs.ids, source, axis=1)
    return np.where(place < pairs.seconds[:, None], ids, -1)


def most_ngrams(length: int) -> int:
    """S: n-grams that a packed row of `ngrams` has room for.

    Spans of five words are seven pieces (Kong et al. 2019, §5.2 with §4), so
    a budget of P holds P / 7 of them; beyond P / 5.5 + 2 they are rare.
    """
    p = sampling.budget(length)
    return min(p, math.ceil(p / 5.5) + 2)


def ngrams(
    windows: sampling.Windows | sampling.Pairs,
    draw: sampling.Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] n-gram [SEP] [CLS] n-gram [SEP] ...: what `masked` hides.

    b of `dim`, at each [CLS]. The n-grams of a sequence share one row of
    P + 2 S positions; attention stays inside each, and positions begin anew.
    Spans beyond the first S are left out and counted. The targets number the
    distinct n-grams of the batch.

    Raises:
        ValueError: the draw hides no spans, or a row wants its words.
    """
    if draw.starts is None:
        raise ValueError(
            'n-grams are cut out of spans: take the masking spans'
        )
    if set(rows.values()) - {'start'}:
        raise ValueError(f'of n-grams there is the start alone: {rows}')
    b, length = windows.ids.shape
    p, s = sampling.budget(length), most_ngrams(length)
    width = p + 2 * s
    starts, lengths = draw.starts[:, :s], draw.lengths[:, :s]
    sizes = np.where(lengths > 0, lengths + 2, 0)  # with specials
    offsets = np.cumsum(sizes, axis=1) - sizes
    # One entry for every token of every n-gram, in order.
    sequence, slot = (
        np.repeat(index.ravel(), sizes.ravel()) for index in np.indices((b, s))
    )
    begin = np.cumsum(sizes) - sizes.ravel()
    within = np.arange(len(slot)) - np.repeat(begin, sizes.ravel())
    column = offsets[sequence, slot] + within
    source = starts[sequence, slot] + within - 1
    last = within == sizes[sequence, slot] - 1
    token = windows.ids[sequence, np.clip(source, 0, length - 1)]
    token = np.where(within == 0, specials.cls_id, token)
    token = np.where(last, specials.sep_id, token)
    # What is left over is a block of its own, which nobody reads.
    ids = np.full((b, width), specials.sep_id, np.int32)
    positions = np.zeros((b, width), np.int32)
    block_ids = np.full((b, width), s, np.int32)
    ids[sequence, column] = token
    positions[sequence, column] = within
    block_ids[sequence, column] = slot
    # [B S, longest]: equal rows are equal n-grams.
    spelled = np.full((b * s, max(1, sizes.max())), -1, np.int32)
    spelled[sequence * s + slot, within] = token
    number = _numbered(spelled)
    real = lengths > 0
    return View(
        ids=ids,
        sequences=np.arange(b, dtype=np.int32),
        positions=positions,
        block_ids=block_ids,
        places=dict.fromkeys(rows, np.where(real, offsets, 0).astype(np.int32)),
        targets=dict.fromkeys(rows, number.reshape(b, s).astype(np.int32)),
        weights=dict.fromkeys(rows, real.astype(np.float32)),
        counts={
            'dropped_spans': (draw.lengths[:, s:] > 0)
            .sum(axis=1)
            .astype(np.int32)
        },
    )


def _numbered(texts: np.ndarray) -> np.ndarray:
    """Equal rows of [n, T] get equal numbers: [n] int32."""
    _, number = np.unique(texts, axis=0, return_inverse=True)
    return number.ravel().astype(np.int32)


def _whole(
    ids: np.ndarray,
    lengths: np.ndarray,
    rows: Mapping[str, str],
    draw: sampling.Cloze,
    specials: Specials,
) -> View:
    """[CLS] text [SEP] padding, wanted whole.

    Args:
        ids: [B, T - 2] int32.
        lengths: [B] int32, pieces of each text, not more than T - 2.
    """
    if set(rows.values()) - {'text'}:
        raise ValueError(f'of this view there is the text alone: {rows}')
    b, room = ids.shape
    place = np.arange(room + 2)
    end = lengths[:, None] + 1
    padded = np.full((b, room + 2), specials.sep_id, np.int32)
    padded[:, 0] = specials.cls_id
    padded[:, 1:-1] = np.where(
        place[:-2] < lengths[:, None], ids, specials.sep_id
    )
    padding = place > end
    number = _numbered(np.where(padding, -1, padded))
    weights = draw.usable.astype(np.float32)[:, None]
    hidden = 1 - draw.kept.astype(np.float32)[:, None]
    return View(
        ids=padded,
        sequences=np.arange(b, dtype=np.int32),
        block_ids=padding.astype(np.int32),
        targets=dict.fromkeys(rows, number[:, None]),
        weights=dict.fromkeys(rows, weights),
        hidden=dict.fromkeys(rows, hidden),
    )


def passage(
    documents: sampling.Documents,
    draw: sampling.Cloze,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] document [SEP] without the drawn sentence: a of `ict`.

    One time in ten with it.
    """
    room = documents.ids.shape[1]
    gap = np.where(draw.kept, 0, draw.ends - draw.starts)[:, None]
    place = np.arange(room)
    after = (place >= draw.starts[:, None]) & (gap > 0)
    source = np.minimum(place + after * gap, room - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    lengths = documents.lengths - gap[:, 0]
    return _whole(ids, lengths, rows, draw, specials)


def sentence(
    documents: sampling.Documents,
    draw: sampling.Cloze,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] the drawn sentence [SEP]: b of `ict`, cut to T / 4."""
    read = documents.ids.shape[1]
    room = max(1, (read + 2) // 4 - 2)
    source = np.minimum(draw.starts[:, None] + np.arange(room), read - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    lengths = np.minimum(draw.ends - draw.starts, room)
    view = _whole(ids, lengths, rows, draw, specials)
    cut = (draw.ends - draw.starts > room) & draw.usable
    return view._replace(counts={'cut_sentences': cut.astype(np.int32)})


def streamed(
    streams: sampling.Streams,
    draw: None,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """T tokens of a stream as they stand: a and b of `transformer_xl`.

    The target of every place is the token that comes next, of the last place
    the first one of the next step. A separator is a target of the loss, since
    where a text ends is part of it, but not of MI, whose p(b) has no specials
    but [UNK]; the other specials are none.
    """
    del draw
    if set(rows.values()) - {'text'}:
        raise ValueError(f'of this view there is the text alone: {rows}')
    targets = np.hstack([streams.ids[:, 1:], streams.following[:, None]])
    never = np.isin(targets, (specials.cls_id, specials.mask_id))
    hidden = targets != specials.sep_id
    return View(
        ids=streams.ids,
        sequences=np.arange(len(targets), dtype=np.int32),
        targets=dict.fromkeys(rows, targets),
        weights=dict.fromkeys(rows, 1 - never.astype(np.float32)),
        hidden=dict.fromkeys(rows, hidden.astype(np.float32)),
    )


def permuted(
    streams: sampling.Streams,
    draw: sampling.Permutation,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[reuse] A [SEP] B [SEP] [CLS] in a drawn order: a of `plm`.

    Nothing is masked: who sees whom hides the targets from their queries
    (Yang et al. 2019, §2.3).
    """
    if set(rows.values()) - {'queries'}:
        raise ValueError(f'of this view there are the queries alone: {rows}')
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


class Kind(NamedTuple):
    """A view, and the source of the text that it is made from.

    Attributes:
        make: (text, draw, rows, specials) -> View.
        source: name in data.batches.SOURCES, unless a row narrows it.
    """

    make: Callable[..., View]
    source: str


VIEWS = {
    'masked': Kind(masked, 'windows'),
    'ngrams': Kind(ngrams, 'windows'),
    'rivals': Kind(rivals, 'next_pairs'),
    'passage': Kind(passage, 'documents'),
    'sentence': Kind(sentence, 'documents'),
    'permuted': Kind(permuted, 'streams'),
    'streamed': Kind(streamed, 'streams'),
}


def flatten(views: dict[str, View]) -> dict[str, Any]:
    """Views as one flat dict, 'masked/targets/mlm' and the like."""
    flat = {}
    for name, view in views.items():
        for field, value in view._asdict().items():
            if isinstance(value, dict):
                for part, array in value.items():
                    flat[f'{name}/{field}/{part}'] = array
            elif value is not None:
                flat[f'{name}/{field}'] = value
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, View]:
    """What `flatten` was given."""
    fields: dict[str, dict[str, Any]] = {}
    for path, array in flat.items():
        name, field, *part = path.split('/')
        view = fields.setdefault(name, {})
        if part:
            view.setdefault(field, {})[part[0]] = array
        else:
            view[field] = array
    return {name: View(**view) for name, view in fields.items()}
