"""The views `passage` and `sentence`: a document, and one sentence of it.

Where documents are docstrings half of the passages' tokens would be padding, so
in training two of them share a sequence (`packed.folded`). The documents and
the loss stay the same.

Glossary of shapes: C tokens of a document, S sequences that the documents
share.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views.masked import folded, side_by_side
from infoword_tf.views.view import (
    Draw,
    Specials,
    View,
    ViewSpec,
    numbered,
    require_where,
)

FIRST_SHARE, COMPLETE_SHARE = 0.5, 0.1  # of documents, see `cloze`


class Documents(NamedTuple):
    """A global batch of the source `documents`.

    Attributes:
        ids: [B, C] int32 tokens, from the start of a sentence; zeros beyond.
        lengths: [B] int32, tokens of each.
        sentence_starts: [B, C] bool, True for the first token.
        sequences: S of the view `passage`, from B / 2 to B: two passages may
            share one. None: one passage a sequence.
    """

    ids: np.ndarray
    lengths: np.ndarray
    sentence_starts: np.ndarray
    sequences: int | None = None

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of each document: [B] int32."""
        return self.lengths


class Cloze(NamedTuple):
    """The drawn sentence of each document.

    Attributes:
        starts, ends: [B] int32: its first token and the one after its last.
        complete: [B] bool: the document keeps the sentence.
        usable: [B] bool: there is another sentence.
    """

    starts: np.ndarray
    ends: np.ndarray
    complete: np.ndarray
    usable: np.ndarray


def cloze(documents: Documents, random: np.random.Generator) -> Cloze:
    """Draws a sentence of each document (inverse cloze task, Lee et al. 2019).

    The first sentence half the time, since it says what a text is about, else
    one of the others with equal probability. One document in ten keeps its
    sentence, so that the model also learns to match words.
    """
    _, tokens = np.nonzero(documents.sentence_starts)
    sentences = documents.sentence_starts.sum(axis=1)
    first, later, complete = random.random((3, len(sentences)))
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
        complete < COMPLETE_SHARE,
        usable,
    )


def _enclosed(
    ids: np.ndarray,
    lengths: np.ndarray,
    rows: Mapping[str, str],
    *,
    draw: Cloze,
    specials: Specials,
    counts: np.ndarray,
) -> View:
    """Formats [CLS] text [SEP] padding; `counts` [B] bool: which are b."""
    require_where(rows, 'text')
    b, max_tokens = ids.shape
    place = np.arange(max_tokens + 2)
    end = lengths[:, None] + 1
    padded = np.full((b, max_tokens + 2), specials.sep_id, np.int32)
    padded[:, 0] = specials.cls_id
    padded[:, 1:-1] = np.where(
        place[:-2] < lengths[:, None], ids, specials.sep_id
    )
    padding = (place > end).astype(np.int32)
    number = numbered(np.where(padding > 0, -1, padded))
    weights = counts.astype(np.float32)[:, None]
    measured = 1 - draw.complete.astype(np.float32)[:, None]
    return View(
        ids=padded,
        sequences=np.arange(b, dtype=np.int32),
        block_ids=padding,
        targets=dict.fromkeys(rows, number[:, None]),
        weights=dict.fromkeys(rows, weights),
        measured=dict.fromkeys(rows, measured),
        counts={'padding': padding.sum(axis=1).astype(np.int32)},
    )


def passage_sizes(documents: Documents, draw: Cloze) -> np.ndarray:
    """Returns the tokens of each passage, with specials: [B] int32."""
    gap = np.where(draw.complete, 0, draw.ends - draw.starts)
    return documents.lengths - gap + 2


def passage(
    documents: Documents,
    draw: Cloze,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] document [SEP] without the drawn sentence: a of `ict`.

    One document in ten keeps the sentence. In the direction from b to a such a
    document has no weight: candidates have to be drawn as the measured
    documents are, and none of these is whole.

    Passages that share a sequence are blocks: positions restart and attention
    stays inside; block 2 is padding. Where both are too long, tokens at the end
    are truncated, first of the longer one, and such passages are counted.
    """
    max_tokens = documents.ids.shape[1]
    gap = np.where(draw.complete, 0, draw.ends - draw.starts)[:, None]
    place = np.arange(max_tokens)
    after = (place >= draw.starts[:, None]) & (gap > 0)
    source = np.minimum(place + after * gap, max_tokens - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    sizes = passage_sizes(documents, draw)
    counts = draw.usable & ~draw.complete
    more = {'draw': draw, 'specials': specials, 'counts': counts}
    if documents.sequences is None:
        return _enclosed(ids, sizes - 2, rows, **more)
    slots = folded(sizes, documents.sequences)
    whole = np.where(slots < 0, 0, sizes[slots])  # [S, 2], the longer first
    short = np.minimum(whole[:, 1], (max_tokens + 2) // 2)
    short = np.where(whole.sum(axis=1) > max_tokens + 2, short, whole[:, 1])
    long = np.minimum(whole[:, 0], max_tokens + 2 - short)
    truncated = np.stack([long, short], axis=1)
    sizes[slots[slots >= 0]] = truncated[slots >= 0]
    view = _enclosed(ids, sizes - 2, rows, **more)
    text, column, block = side_by_side(slots, truncated, max_tokens + 2)
    is_padding = block == 2
    return _by_slot(view, slots)._replace(
        ids=view.ids[text, column],
        positions=np.where(is_padding, 0, column).astype(np.int32),
        block_ids=block.astype(np.int32),
        counts={
            'padding': is_padding.sum(axis=1).astype(np.int32),
            'cut_passages': (truncated < whole).sum(axis=1).astype(np.int32),
        },
    )


def _by_slot(view: View, slots: np.ndarray) -> View:
    """Moves one value a text, [B, 1], to slots [S, 2]; 0 in empty slots."""

    def of(field: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            row: np.where(slots < 0, x.dtype.type(0), x[slots, 0])
            for row, x in field.items()
        }

    return view._replace(
        sequences=slots.astype(np.int32),
        targets=of(view.targets),
        weights=of(view.weights),
        measured=of(view.measured),
    )


def sentence(
    documents: Documents,
    draw: Cloze,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] drawn sentence [SEP]: b of `ict`, truncated to T / 4.

    Where passages share sequences, the view has [S, 2] sentences in the same
    order.
    """
    read = documents.ids.shape[1]
    max_tokens = max(1, (read + 2) // 4 - 2)
    source = np.minimum(draw.starts[:, None] + np.arange(max_tokens), read - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    lengths = np.minimum(draw.ends - draw.starts, max_tokens)
    view = _enclosed(
        ids, lengths, rows, draw=draw, specials=specials, counts=draw.usable
    )
    truncated = (draw.ends - draw.starts > max_tokens) & draw.usable
    counts = {**view.counts, 'cut_sentences': truncated.astype(np.int32)}
    if documents.sequences is None:
        return view._replace(counts=counts)
    slots = folded(passage_sizes(documents, draw), documents.sequences)
    empty = slots < 0
    return _by_slot(view, slots)._replace(
        ids=np.where(empty[:, :, None], specials.sep_id, view.ids[slots]),
        block_ids=np.where(empty[:, :, None], 1, view.block_ids[slots]),
        counts={
            name: np.where(empty, count, x[slots]).sum(axis=1, dtype=np.int32)
            for (name, x), count in zip(
                counts.items(), (max_tokens + 2, 0), strict=True
            )
        },
    )


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of a sentence in each document."""
    del settings
    return Draw('cloze', cloze)


PASSAGE = ViewSpec(make=passage, source='documents', draw=draw)
SENTENCE = ViewSpec(make=sentence, source='documents', draw=draw)
