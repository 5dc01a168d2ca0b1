"""Copies of a batch's texts in which some pieces are masked, made in the step.

For rows beside a contrast of sentences, whose own texts stay whole.

Glossary of shapes: R rows of a view, T tokens, P masked places of a row at
most, D width.
"""

import math
from typing import Any, NamedTuple

from infoword_tf.layers import dropout
from infoword_tf.lazy import ops
from infoword_tf.objectives.objective import Batch
from infoword_tf.views import Specials, View

Tensor = Any
SHARE = 0.8  # of masked pieces that show [MASK]; half of the others are random


class MaskedCopy(NamedTuple):
    """What was drawn.

    Attributes:
        ids: [R, T] int32, what is shown.
        places: [R, P] int32, of masked pieces.
        there: [R, P] float32, 0 where a row has fewer.
        targets: [R, P] int32, what stood there.
        hidden: [R, P] float32, 1 where [MASK] is shown.
    """

    ids: Tensor
    places: Tensor
    there: Tensor
    targets: Tensor
    hidden: Tensor


def real_tokens(view: View, row: str) -> Tensor:
    """[R, T] bool: tokens of a text, not what is left over of a row.

    Nor of rows that fill up a replica's share, whose weights are 0.

    Args:
        view: of sentences, with targets [R, J, K] and weights [R, J] of the
            row.
    """
    _, slots, texts = view.targets[row].shape
    some = ops.any(view.weights[row] > 0, axis=1, keepdims=True)
    return (view.block_ids < slots * texts) & some


def own_rows(batch: Batch, rows: int) -> Tensor:
    """The key of a step for this replica's rows: those of the global batch.

    Args:
        batch: of the step; in parts its key knows which rows it has.
        rows: R.
    """
    if batch.key.shape[0] > 2:
        return batch.key
    return dropout.of_rows(batch.key, batch.replicas.id * rows, rows)


def masked_copy(
    key: Tensor, ids: Tensor, real: Tensor, share: float, specials: Specials
) -> MaskedCopy:
    """Masks a share of each row's pieces, no special ones.

    The nearest number to share n of n, each as likely; 80 % [MASK], 10 % any
    piece of the vocabulary, 10 % as they are (Devlin et al. 2019, §3.1). The
    published codes draw each piece by itself, so that the number varies.

    Args:
        key: as `own_rows` has it.
        ids: [R, T] int32.
        real: [R, T] bool.
        share: of the pieces.
    """
    r, t = ids.shape
    special = [ops.equal(ids, i) for i in (specials.cls_id, specials.sep_id)]
    inner = real & ~special[0] & ~special[1]
    u = dropout.uniform(dropout.fold_in(key, 0), (r, t))
    p = math.ceil(share * t)
    places = ops.argsort(ops.where(inner, u, 2.0), axis=1)[:, :p]
    places = ops.cast(places, 'int32')
    count = ops.sum(ops.cast(inner, 'float32'), axis=1, keepdims=True)
    number = ops.cast(ops.floor(share * count + 0.5), 'int32')
    there = ops.arange(p, dtype='int32')[None] < number  # [R, P]
    targets = ops.take_along_axis(ids, places, axis=1)
    u = dropout.uniform(dropout.fold_in(key, 1), (r, p))
    v = dropout.uniform(dropout.fold_in(key, 2), (r, p))
    drawn = ops.cast(ops.floor(v * specials.size), 'int32')
    shown = ops.where(u < (1 + SHARE) / 2, drawn, targets)
    shown = ops.where(u < SHARE, specials.mask_id, shown)
    at = ops.one_hot(ops.where(there, places, -1), t, dtype='float32')
    masked = ops.sum(at, axis=1) > 0  # [R, T]
    put = ops.sum(at * ops.cast(shown, 'float32')[..., None], axis=1)
    return MaskedCopy(
        ids=ops.where(masked, ops.cast(put, 'int32'), ids),
        places=places,
        there=ops.cast(there, 'float32'),
        targets=targets,
        hidden=ops.cast(u < SHARE, 'float32'),
    )
