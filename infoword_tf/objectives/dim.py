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
from collections.abc import Mapping
from typing import Any

from infoword_tf.layers.pooling import of_texts, tokens_of, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Pool
from infoword_tf.objectives.queue import (
    MOMENTUM,
    Queued,
    companions,
    encoders,
)
from infoword_tf.objectives.row import BOTH_SIDES, Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
CRITICS = ('dot', 'scaled', 'cosine')  # the paper's is the first


class DeepInfoMax(Queued):
    """`dim`: f over the n-grams that other sequences of the batch hide.

    An n-gram that another sequence hides too is no negative: the training
    loss leaves it out, since the paper's S~ is a set.
    """

    more = 'same_length_mi', 'same_length_ceiling'
    critic: str = setting(
        'dot',
        'How two states are compared; scaled: dot product over the square root '
        'of the width.',
        choices=CRITICS,
    )
    temperature: float = setting(
        0.05,
        'Temperature: the cosine is divided by it.',
        at_least=1e-6,
        needs=('critic', 'cosine'),
    )
    one_mask: bool = setting(
        False,
        'Replace each n-gram with a single [MASK], which hides its length.',
    )

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """States of [CLS]: of texts [B, 1, D], of n-grams [B, S, D].

        And of these, as 'keys', what a momentum encoder makes of them.
        """
        text = 'joined' if self.one_mask else 'masked'
        found = {'a': batch.states(text), 'b': batch.states('ngrams')}
        if self.momentum:
            found['keys'] = batch.states('ngrams', MOMENTUM)
        return found

    def candidates(self, batch: Batch) -> Pool:
        """The encoded n-grams of the global batch, and of a queue."""
        pool = self.behind(batch, self._pool(batch, 'b'))
        if batch.training:
            return pool
        lengths = self._lengths(batch.views['ngrams'])
        return pool._replace(lengths=batch.replicas.gather(lengths))

    def _lengths(self, view: View) -> Tensor:
        """[N] int32: tokens of each n-gram, [CLS] and [SEP] too."""
        slots = view.targets[self.row].shape[1]
        return ops.reshape(tokens_of(view.block_ids, slots), (-1,))

    def _pool(self, batch: Batch, name: str) -> Pool:
        """What there is of `vectors` of that name."""
        vectors = self.compared(batch)[name]
        return self.pooled(batch, batch.views['ngrams'], vectors)

    def texts_of(self, view: View) -> tuple[Tensor, Tensor]:
        """As `Queued.texts_of`."""
        slots = view.targets[self.row].shape[1]
        return view.ids, of_texts(view.block_ids, slots)

    def remember(self, batch: Batch) -> dict[str, Any]:
        """Queues n-grams, as the momentum encoder has them if there is one."""
        if not self.queue:
            return {}
        return self.enqueued(
            batch, self._pool(batch, 'keys' if self.momentum else 'b')
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Eq. 1 over the n-grams of other sequences.

        The scores are one [B, D] by [D, M] product: the n-grams of a sequence
        share their a.
        """
        view = batch.views['ngrams']
        targets = self.numbers(view)  # [N]
        compared = self.compared(batch)
        a, b = (ops.cast(compared[x], 'float32') for x in 'ab')
        c = candidates.states  # [M, D]
        slots, width = b.shape[1:]
        finish = None
        if self.critic == 'cosine':
            a, b, c = map(unit, (a, b, c))
            a, finish = a / self.temperature, unit
        elif self.critic == 'scaled':
            a = a / math.sqrt(width)
        positive = ops.reshape(ops.sum(a * b, axis=-1), (-1,))  # [N]
        a = ops.reshape(a, (-1, width))
        earlier = self.among_earlier(
            batch, candidates, a, targets, finish=finish
        )
        scores = ops.matmul(a, ops.transpose(c))
        scores = ops.repeat(scores, slots, axis=0)  # [N, M]
        counts = ops.repeat(candidates.others(view.sequences), slots, axis=0)
        identical = ops.equal(candidates.ids[None, :], targets[:, None])
        weights = ops.reshape(view.weights[self.row], (-1,))
        outcome = infonce.contrast(
            positive, scores, counts, identical, weights, drop_identical=True,
            earlier=earlier and earlier.others,
        )  # fmt: skip
        if batch.training:
            return outcome
        # The bound once more, over the candidates of the positive's length.
        own = self._lengths(view)[:, None]
        same = ops.equal(candidates.lengths[None, :], own)  # [N, M]
        counts = ops.where(same, counts, 0.0)
        alike = infonce.contrast(
            positive, scores, counts, identical, weights, drop_identical=False
        )
        more = alike.mi, alike.ceiling
        return outcome._replace(more=dict(zip(self.more, more, strict=True)))


def _vector(settings: Mapping[str, Any]) -> Vector:
    """The state of [CLS], compared as the critic compares."""
    cosine = settings['critic'] == 'cosine'
    return Vector('cls', 'cosine' if cosine else 'dot', priority=1)


_STATE = Reads('start', masking='spans')
ROW = Row(
    objective=DeepInfoMax,
    a='masked text',
    b='masked n-gram',
    relation='an n-gram that is missing from the text',
    candidates='masked n-grams of other sequences',
    views={
        'masked': lambda settings: None if settings['one_mask'] else _STATE,
        'joined': lambda settings: _STATE if settings['one_mask'] else None,
        'ngrams': lambda settings: _STATE._replace(
            encoders=encoders(settings)
        ),
    },
    encoders=BOTH_SIDES,
    heldout_candidates=128,
    vector=_vector,
    companions=companions,
)
