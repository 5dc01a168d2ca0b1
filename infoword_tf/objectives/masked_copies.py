"""Copies of a batch's texts with masked tokens, made in the step.

For rows that are summed with a contrast of sentences, whose own texts stay
whole. Shapes: P masked places of a sequence at most.
"""

import math
from typing import NamedTuple

from infoword_tf.layers import dropout
from infoword_tf.lazy import ops
from infoword_tf.objectives.objective import Batch
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials, View

SHARE = 0.8  # of masked tokens that show [MASK]; half of the others are random


class MaskedCopy(NamedTuple):
    """A masked copy of texts.

    Attributes:
        ids: [B, T] int32.
        places: [B, P] int32, those of masked tokens.
        weights: [B, P] float32, 0 where a sequence has fewer.
        targets: [B, P] int32, the tokens before masking.
        hidden: [B, P] float32, 1 where [MASK] is shown.
    """

    ids: Tensor
    places: Tensor
    weights: Tensor
    targets: Tensor
    hidden: Tensor


def real_tokens(view: View, row: str) -> Tensor:
    """Returns [B, T] bool: False for padding.

    And for whole sequences that fill up a replica's share, of weight 0.

    Args:
        view: sentences, with targets [B, J, S] and weights [B, J] of the
            row.
    """
    _, slots, texts = view.targets[row].shape
    weighty = ops.any(view.weights[row] > 0, axis=1, keepdims=True)
    return (view.block_ids < slots * texts) & weighty


def sequence_key(batch: Batch, size: int) -> Tensor:
    """Returns a key that draws for a replica as for the global batch.

    Args:
        batch: input of the step; the key of a microbatch already says which
            sequences it has.
        size: B of the replica.
    """
    if batch.key.shape[0] > 2:
        return batch.key
    return dropout.of_rows(batch.key, batch.replicas.id * size, size)


def masked_copy(
    key: Tensor, ids: Tensor, real: Tensor, share: float, specials: Specials
) -> MaskedCopy:
    """Masks a share of each sequence's tokens, but no special tokens.

    Of n tokens the nearest number to share n, each as likely; 80 % [MASK], 10 %
    any token of the vocabulary, 10 % as they are (Devlin et al. 2019, §3.1).
    The published codes draw each token by itself, so that the number varies.

    Args:
        key: result of `sequence_key`.
        ids: [B, T] int32.
        real: [B, T] bool, False for padding.
        share: share of the tokens.
        specials: properties of the vocabulary.
    """
    b, t = ids.shape
    special = [ops.equal(ids, i) for i in (specials.cls_id, specials.sep_id)]
    inner = real & ~special[0] & ~special[1]
    u = dropout.uniform(dropout.fold_in(key, 0), (b, t))
    p = math.ceil(share * t)
    places = ops.argsort(ops.where(inner, u, 2.0), axis=1)[:, :p]
    places = ops.cast(places, 'int32')
    count = ops.sum(ops.cast(inner, 'float32'), axis=1, keepdims=True)
    number = ops.cast(ops.floor(share * count + 0.5), 'int32')
    masked = ops.arange(p, dtype='int32')[None] < number  # [B, P]
    targets = ops.take_along_axis(ids, places, axis=1)
    u = dropout.uniform(dropout.fold_in(key, 1), (b, p))
    v = dropout.uniform(dropout.fold_in(key, 2), (b, p))
    drawn = ops.cast(ops.floor(v * specials.size), 'int32')
    shown = ops.where(u < (1 + SHARE) / 2, drawn, targets)
    shown = ops.where(u < SHARE, specials.mask_id, shown)
    at = ops.one_hot(ops.where(masked, places, -1), t, dtype='float32')
    replaced = ops.sum(at, axis=1) > 0  # [B, T]
    put = ops.sum(at * ops.cast(shown, 'float32')[..., None], axis=1)
    return MaskedCopy(
        ids=ops.where(replaced, ops.cast(put, 'int32'), ids),
        places=places,
        weights=ops.cast(masked, 'float32'),
        targets=targets,
        hidden=ops.cast(u < SHARE, 'float32'),
    )
