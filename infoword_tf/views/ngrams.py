"""The view `ngrams`: the n-grams that `masked` hides, packed into a sequence.

Glossary of shapes: P masked tokens, S n-grams of a sequence.
"""

import math
from collections.abc import Mapping

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.views.masked import (
    MASKED_SHARE,
    Masking,
    Pairs,
    Windows,
    budget,
)
from infoword_tf.views.view import (
    Specials,
    View,
    ViewSpec,
    numbered,
    require_where,
)


def most_ngrams(length: int, share: float = MASKED_SHARE) -> int:
    """Returns S, the n-grams that a packed sequence has room for.

    Spans of five words are seven tokens (Kong et al. 2019, §5.2 with §4), so a
    budget of P holds P / 7 of them; more than P / 5.5 + 2 are rare.
    """
    p = budget(length, share)
    return min(p, math.ceil(p / 5.5) + 2)


def ngrams(
    windows: Windows | Pairs,
    draw: Masking,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Makes [CLS] n-gram [SEP] [CLS] n-gram [SEP] ... of the masked n-grams.

    b of `dim`, at each [CLS]. The n-grams of a sequence are packed into P + 2 S
    tokens; attention stays inside each, and positions restart. Spans beyond the
    first S are dropped and counted. Targets number the distinct n-grams of the
    batch.
    """
    if draw.starts is None or draw.lengths is None:
        raise InputError(
            'ngrams_without_spans',
            'n-grams are cut out of spans: take the masking spans',
        )
    require_where(rows, 'start')
    b, length = windows.ids.shape
    p, s = (f(length, draw.share) for f in (budget, most_ngrams))
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
    # Padding is a separate block, which no row reads.
    ids = np.full((b, width), specials.sep_id, np.int32)
    positions = np.zeros((b, width), np.int32)
    block_ids = np.full((b, width), s, np.int32)
    ids[sequence, column] = token
    positions[sequence, column] = within
    block_ids[sequence, column] = slot
    # One n-gram a line, for `numbered`.
    padded = np.full((b * s, max(1, sizes.max())), -1, np.int32)
    padded[sequence * s + slot, within] = token
    number = numbered(padded)
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
            .astype(np.int32),
            'padding': (width - sizes.sum(axis=1)).astype(np.int32),
        },
    )


NGRAMS = ViewSpec(make=ngrams, like='masked')
