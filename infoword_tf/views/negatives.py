"""The view `negatives`: a pair's first piece before other second pieces.

Glossary of shapes: B sequences, L tokens drawn, K other pieces of each pair.
"""

from collections.abc import Mapping

import numpy as np

from infoword_tf.views import masked
from infoword_tf.views.masking import Masking, Pairs
from infoword_tf.views.view import Specials, View, ViewSpec, numbered


def negatives(
    pairs: Pairs, draw: Masking, rows: Mapping[str, str], specials: Specials
) -> View:
    """[CLS] A [SEP] another B [SEP], K times, masked as the true pair is.

    Candidates of `nsp_nce`, at each [CLS]; the true one is `masked`. The
    targets [B, 1 + K] number the second pieces of text, the true one first;
    the weights are of the pairs, [B, 1].
    """
    if set(rows.values()) - {'start'}:
        raise ValueError(f'rows of negatives read the start alone: {rows}')
    b = len(pairs.ids)
    seen = masked.hide(pairs.negatives, draw.negatives, specials)
    seen = {
        field: array.reshape(b, -1, array.shape[-1])
        for field, array in seen.items()
    }
    k = seen['ids'].shape[1]
    seconds = np.concatenate([_seconds(pairs), _seconds(pairs.negatives)])
    number = numbered(seconds)
    number = np.hstack([number[:b, None], number[b:].reshape(b, k)])
    return View(
        **seen,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, np.zeros((b, k, 1), np.int32)),
        targets=dict.fromkeys(rows, number),
        weights=dict.fromkeys(rows, np.ones((b, 1), np.float32)),
        counts={'padding': masked.padding_of(seen)},
    )


def _seconds(pairs: Pairs) -> np.ndarray:
    """[B, L] int32: B alone, -1 around it."""
    place = np.arange(pairs.ids.shape[1])
    source = np.minimum(place + pairs.firsts[:, None] + 1, place[-1])
    ids = np.take_along_axis(pairs.ids, source, axis=1)
    return np.where(place < pairs.seconds[:, None], ids, -1)


NEGATIVES = ViewSpec(make=negatives, source='next_pairs', draw=masked.draw)
