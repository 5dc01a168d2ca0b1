"""The row `dim`: a text from which n-grams are missing, and what is missing.

    a  [CLS] of the masked text     b  [CLS] of the n-gram, encoded alone

J_DIM of Kong et al. 2019, §4, Deep InfoMax (Hjelm et al. 2019) over text: one
encoder for both views, gradient through both, n-grams of other sequences as
candidates. With `bert_nce` it is InfoWord.

A masked text shows how many pieces each n-gram has, and that alone tells many
of them apart. Two ways to see past it: MI among the candidates of the
positive's length, which is measured always, and one [MASK] for an n-gram
(`one_mask`).

Glossary of shapes: B sequences, S n-grams of each, N = B S pairs, M
candidates, D width.
"""

import math
from typing import Any, NamedTuple

from keras import ops

from infoword_tf.layers.pooling import unit
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    gather_pool,
)
from infoword_tf.objectives.settings import CRITICS
from infoword_tf.views import Specials, View

Tensor = Any


class NGrams(NamedTuple):
    """The candidates: encoded n-grams, and how long each is.

    Attributes:
        pool: of the global batch.
        lengths: [M] int32, pieces.
    """

    pool: Pool
    lengths: Tensor


def ngram_lengths(view: View, slots: int) -> Tensor:
    """[B, S] int32: pieces of each n-gram of the view `ngrams`."""
    number = ops.arange(slots, dtype='int32')
    inside = ops.equal(view.block_ids[:, :, None], number)  # [B, T, S]
    return ops.sum(ops.cast(inside, 'int32'), axis=1) - 2  # [CLS] and [SEP]


class DeepInfoMax(Objective):
    """`dim`: f over the n-grams that other sequences of the batch hide.

    An n-gram that another sequence hides too is no negative: the training
    loss leaves it out, since the paper's S~ is a set.
    """

    more = 'same_length_mi', 'same_length_ceiling'

    def __init__(
        self,
        row: str,
        encoder: Any,
        specials: Specials,
        critic: str = 'dot',
        temperature: float = 0.05,
        one_mask: bool = False,
        dtype: Any = None,
    ):
        """As `Objective`.

        Args:
            row, encoder, specials, dtype: as there.
            critic: f(a, b): 'dot', the paper's; 'scaled', over sqrt(D);
                'cosine', over the temperature.
            temperature: of the cosine alone.
            one_mask: a is read with one [MASK] for each n-gram.

        Raises:
            ValueError: an unknown critic, a temperature that is not above 0.
        """
        super().__init__(row, encoder, specials, dtype)
        if critic not in CRITICS:
            raise ValueError(
                f'critic {critic!r}: known are {", ".join(CRITICS)}'
            )
        if not temperature > 0:
            raise ValueError(f'temperature {temperature}: it is above 0')
        self.critic, self.temperature = critic, temperature
        self.text = 'joined' if one_mask else 'masked'

    def candidates(self, batch: Batch) -> NGrams:
        """The encoded n-grams of the global batch."""
        view = batch.views['ngrams']
        pool = gather_pool(
            view,
            self.row,
            batch.replicas,
            batch.limit,
            batch.states('ngrams'),
        )
        slots = view.targets[self.row].shape[1]
        lengths = ops.reshape(ngram_lengths(view, slots), (-1,))
        return NGrams(pool, batch.replicas.gather(lengths))

    def score(self, batch: Batch, candidates: NGrams) -> infonce.Outcome:
        """Eq. 1 over the n-grams of other sequences.

        The scores are one [B, D] by [D, M] product: the n-grams of a sequence
        share their a.
        """
        view = batch.views['ngrams']
        targets = ops.reshape(view.targets[self.row], (-1,))  # [N]
        a = ops.cast(batch.states(self.text), 'float32')  # [B, 1, D]
        b = ops.cast(batch.states('ngrams'), 'float32')  # [B, S, D]
        pool = candidates.pool
        c = pool.states  # [M, D]
        slots, width = b.shape[1:]
        if self.critic == 'cosine':
            a, b, c = map(unit, (a, b, c))
            a = a / self.temperature
        elif self.critic == 'scaled':
            a = a / math.sqrt(width)
        positive = ops.reshape(ops.sum(a * b, axis=-1), (-1,))  # [N]
        scores = ops.matmul(ops.reshape(a, (-1, width)), ops.transpose(c))
        scores = ops.repeat(scores, slots, axis=0)  # [N, M]
        counts = ops.repeat(pool.others(view.sequences), slots, axis=0)
        identical = ops.equal(pool.ids[None, :], targets[:, None])
        weights = ops.reshape(view.weights[self.row], (-1,))
        found = infonce.contrast(
            positive, scores, counts, identical, weights, drop_identical=True
        )
        if batch.training:
            return found
        # The bound once more, over the candidates of the positive's length.
        own = ops.reshape(ngram_lengths(view, slots), (-1, 1))
        same = ops.equal(candidates.lengths[None, :], own)  # [N, M]
        counts = ops.where(same, counts, 0.0)
        alike = infonce.contrast(
            positive, scores, counts, identical, weights, drop_identical=False
        )
        more = alike.mi, alike.ceiling
        return found._replace(more=dict(zip(self.more, more, strict=True)))
