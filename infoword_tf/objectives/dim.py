"""The row `dim`: a text from which n-grams are missing, and what is missing.

    a  [CLS] of the masked text     b  [CLS] of the n-gram, encoded alone

J_DIM of Kong et al. 2019, §4, Deep InfoMax (Hjelm et al. 2019) over text: one
encoder for both views, gradient through both, n-grams of other sequences as
candidates. With `bert_nce` it is InfoWord.

Glossary of shapes: B sequences, S n-grams of each, N = B S pairs, M
candidates, D width.
"""

import math
from collections.abc import Mapping
from typing import Any

from keras import ops

from infoword_tf.layers.pooling import unit
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    Vector,
    gather_pool,
)
from infoword_tf.views import Specials

Tensor = Any
CRITICS = ('dot', 'scaled', 'cosine')


def vector(settings: Mapping[str, Any]) -> Vector:
    """The state of [CLS], compared as the critic compares."""
    cosine = settings['critic'] == 'cosine'
    return Vector('cls', 'cosine' if cosine else 'dot', rank=1)


class DeepInfoMax(Objective):
    """`dim`: f over the n-grams that other sequences of the batch hide.

    An n-gram that another sequence hides too is no negative: the training
    loss leaves it out, since the paper's S~ is a set.
    """

    def __init__(
        self,
        row: str,
        encoder: Any,
        specials: Specials,
        critic: str = 'dot',
        temperature: float = 0.05,
        dtype: Any = None,
    ):
        """As `Objective`.

        Args:
            row, encoder, specials, dtype: as there.
            critic: f(a, b): 'dot', the paper's; 'scaled', over sqrt(D);
                'cosine', over the temperature.
            temperature: of the cosine alone.

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

    def candidates(self, batch: Batch) -> Pool:
        """The encoded n-grams of the global batch."""
        return gather_pool(
            batch.views['ngrams'],
            self.row,
            batch.replicas,
            batch.limit,
            batch.states('ngrams'),
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Eq. 1 over the n-grams of other sequences.

        The scores are one [B, D] by [D, M] product: the n-grams of a sequence
        share their a.
        """
        view = batch.views['ngrams']
        targets = ops.reshape(view.targets[self.row], (-1,))  # [N]
        a = ops.cast(batch.states('masked'), 'float32')  # [B, 1, D]
        b = ops.cast(batch.states('ngrams'), 'float32')  # [B, S, D]
        c = candidates.states  # [M, D]
        slots, width = b.shape[1:]
        if self.critic == 'cosine':
            a, b, c = map(unit, (a, b, c))
            a = a / self.temperature
        elif self.critic == 'scaled':
            a = a / math.sqrt(width)
        positive = ops.reshape(ops.sum(a * b, axis=-1), (-1,))  # [N]
        scores = ops.matmul(ops.reshape(a, (-1, width)), ops.transpose(c))
        counts = candidates.others(view.sequences)  # [B, M]
        return infonce.contrast(
            positive,
            ops.repeat(scores, slots, axis=0),
            ops.repeat(counts, slots, axis=0),
            ops.equal(candidates.ids[None, :], targets[:, None]),
            ops.reshape(view.weights[self.row], (-1,)),
            self.kl(batch.statistics),
            drop_identical=True,
        )
