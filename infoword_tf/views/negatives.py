"""The view `negatives`: a pair's first text with other second texts.

Glossary of shapes: C tokens of a pair, k other second texts of each pair.
"""

from collections.abc import Mapping

import numpy as np

from infoword_tf.views import masked
from infoword_tf.views.masked import Masking, Pairs
from infoword_tf.views.view import (
    Specials,
    View,
    ViewSpec,
    numbered,
    require_where,
)


def negatives(
    pairs: Pairs, draw: Masking, rows: Mapping[str, str], specials: Specials
) -> View:
    """Makes k times [CLS] A [SEP] another B [SEP], masked like the true pair.

    Candidates of `nsp_nce`, at each [CLS]; the true pair is the view `masked`.
    Targets [B, 1 + k] are numbers of the second texts, the true one first;
    weights are of pairs, [B, 1].
    """
    require_where(rows, 'start')
    b, others, of_others = len(pairs.ids), pairs.negatives, draw.negatives
    assert others is not None and of_others is not None, 'of `next_pairs`'
    inputs = masked.hide(others, of_others, specials)
    inputs = {
        field: array.reshape(b, -1, array.shape[-1])
        for field, array in inputs.items()
    }
    k = inputs['ids'].shape[1]
    seconds = np.concatenate([_seconds(pairs), _seconds(others)])
    number = numbered(seconds)
    number = np.hstack([number[:b, None], number[b:].reshape(b, k)])
    return View(
        **inputs,
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, np.zeros((b, k, 1), np.int32)),
        targets=dict.fromkeys(rows, number),
        weights=dict.fromkeys(rows, np.ones((b, 1), np.float32)),
        counts={'padding': masked.padding_of(inputs)},
    )


def _seconds(pairs: Pairs) -> np.ndarray:
    """Returns B alone, then -1: [B, C] int32."""
    place = np.arange(pairs.ids.shape[1])
    source = np.minimum(place + pairs.firsts[:, None] + 1, place[-1])
    ids = np.take_along_axis(pairs.ids, source, axis=1)
    return np.where(place < pairs.seconds[:, None], ids, -1)


NEGATIVES = ViewSpec(make=negatives, source='next_pairs', draw=masked.draw)
