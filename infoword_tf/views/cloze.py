"""The views `passage` and `sentence`: a document, and one sentence of it.

Half of a passage's row would be padding where documents are docstrings, so in
training two of them share one (`packed.folded`). The batch stays the same
documents; only where they are computed changes.

Glossary of shapes: B documents, C tokens read of each, T tokens with specials,
R rows that the documents share.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views.packed import folded, laid_out
from infoword_tf.views.view import Draw, Specials, View, ViewSpec, numbered

FIRST_SHARE, COMPLETE_SHARE = 0.5, 0.1  # of documents, see `cloze`


class Documents(NamedTuple):
    """A global batch of the source `documents`.

    Attributes:
        ids: [B, C] int32 pieces, from a sentence start on; zeros beyond.
        lengths: [B] int32, pieces of each.
        sentence_starts: [B, C] bool; every row begins with True.
        rows: R, of the view `passage`, from B / 2 to B: two passages may
            share one. None: each has its own.
    """

    ids: np.ndarray
    lengths: np.ndarray
    sentence_starts: np.ndarray
    rows: int | None = None

    @property
    def tokens(self) -> np.ndarray:
        """[B] int32: tokens of text in each row."""
        return self.lengths


class Cloze(NamedTuple):
    """Which sentence of each document is asked for.

    Attributes:
        starts, ends: [B] int32: its first token and the one after its last.
        complete: [B] bool: the document keeps its sentence.
        usable: [B] bool: there is another sentence.
    """

    starts: np.ndarray
    ends: np.ndarray
    complete: np.ndarray
    usable: np.ndarray


def cloze(documents: Documents, random: np.random.Generator) -> Cloze:
    """Draws a sentence of each document (inverse cloze task, Lee et al. 2019).

    The first one half the time, since that is what says what a text is about,
    else any of the others alike. One time in ten the document keeps it, so
    that matching words count too.
    """
    rows, tokens = np.nonzero(documents.sentence_starts)
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
    draw: Cloze,
    specials: Specials,
    counts: np.ndarray,
) -> View:
    """[CLS] text [SEP] padding, wanted whole; `counts` [B]: what is a b."""
    if set(rows.values()) - {'text'}:
        raise ValueError(f'rows of this view read the text alone: {rows}')
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
    """[B] int32: tokens of each passage, with specials."""
    gap = np.where(draw.complete, 0, draw.ends - draw.starts)
    return documents.lengths - gap + 2


def passage(
    documents: Documents,
    draw: Cloze,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """[CLS] document [SEP] without the drawn sentence: a of `ict`.

    One time in ten with it. Asked for by its sentence, from b to a, such a
    document weighs nothing: no measured one is whole, and candidates are to
    be drawn as those are.

    Where passages share rows, each is a block: positions begin anew and
    attention stays inside; block 2 is what is left over. Two that are too
    long lose tokens at their ends, the longer one first, and are counted.
    """
    max_tokens = documents.ids.shape[1]
    gap = np.where(draw.complete, 0, draw.ends - draw.starts)[:, None]
    place = np.arange(max_tokens)
    after = (place >= draw.starts[:, None]) & (gap > 0)
    source = np.minimum(place + after * gap, max_tokens - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    sizes = passage_sizes(documents, draw)
    counts = draw.usable & ~draw.complete
    if documents.rows is None:
        return _enclosed(ids, sizes - 2, rows, draw, specials, counts)
    slots = folded(sizes, documents.rows)
    wanted = np.where(slots < 0, 0, sizes[slots])  # [R, 2], the longer first
    short = np.minimum(wanted[:, 1], (max_tokens + 2) // 2)
    short = np.where(wanted.sum(axis=1) > max_tokens + 2, short, wanted[:, 1])
    long = np.minimum(wanted[:, 0], max_tokens + 2 - short)
    own = np.stack([long, short], axis=1)
    sizes[slots[slots >= 0]] = own[slots >= 0]
    view = _enclosed(ids, sizes - 2, rows, draw, specials, counts)
    text, column, block = laid_out(slots, own, max_tokens + 2)
    left_over = block == 2
    return _by_slot(view, slots)._replace(
        ids=view.ids[text, column],
        positions=np.where(left_over, 0, column).astype(np.int32),
        block_ids=block.astype(np.int32),
        counts={
            'padding': left_over.sum(axis=1).astype(np.int32),
            'cut_passages': (own < wanted).sum(axis=1).astype(np.int32),
        },
    )


def _by_slot(view: View, slots: np.ndarray) -> View:
    """What there is of each text once, [B, 1] -> [R, 2]; 0 where is none."""

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
    """[CLS] the drawn sentence [SEP]: b of `ict`, cut to T / 4.

    Beside passages that share rows there are two to a text, in their order.
    """
    read = documents.ids.shape[1]
    max_tokens = max(1, (read + 2) // 4 - 2)
    source = np.minimum(draw.starts[:, None] + np.arange(max_tokens), read - 1)
    ids = np.take_along_axis(documents.ids, source, axis=1)
    lengths = np.minimum(draw.ends - draw.starts, max_tokens)
    view = _enclosed(ids, lengths, rows, draw, specials, draw.usable)
    cut = (draw.ends - draw.starts > max_tokens) & draw.usable
    counts = {**view.counts, 'cut_sentences': cut.astype(np.int32)}
    if documents.rows is None:
        return view._replace(counts=counts)
    slots = folded(passage_sizes(documents, draw), documents.rows)
    empty = slots < 0
    return _by_slot(view, slots)._replace(
        ids=np.where(empty[:, :, None], specials.sep_id, view.ids[slots]),
        block_ids=np.where(empty[:, :, None], 1, view.block_ids[slots]),
        counts={
            name: np.where(empty, none, x[slots]).sum(axis=1, dtype=np.int32)
            for (name, x), none in zip(
                counts.items(), (max_tokens + 2, 0), strict=True
            )
        },
    )


def draw(settings: Mapping[str, Any]) -> Draw:
    """The sentence of each document."""
    del settings
    return Draw('cloze', cloze)


PASSAGE = ViewSpec(make=passage, source='documents', draw=draw)
SENTENCE = ViewSpec(make=sentence, source='documents', draw=draw)
